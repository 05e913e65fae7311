// The function on Lambda: cold, warm, frozen between calls, killed at the deadline.

package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/wattle-es/wattle/internal/cutproxy"
)

// send has a command executed through a function URL.
func (r *runtime) send(body string) (int, string) {
	r.Helper()
	return streamed(r, r.response(r.invoke(request(body), 10*time.Second)))
}

func (r *runtime) must(body, part string) {
	r.Helper()
	if status, reply := r.send(body); status != 200 || !strings.Contains(reply, part) {
		r.Fatalf("status %d, wanted %q in %s", status, part, reply)
	}
}

func TestFunctionURL(t *testing.T) {
	w := newWorld(t)
	path := binary(t)
	began := time.Now()
	r := w.run(path, "url", w.pooled)
	r.must(event(t, "1", "a", "loan.submit", submitted), `"seqno":"1"`)
	cold := time.Since(began)
	r.must(event(t, "1", "a", "loan.submit", submitted), `"replayed":true`)
	if status, reply := r.send(event(t, "2", "a", "loan.submit", submitted)); status != 422 || !strings.Contains(reply, "rejected") {
		t.Errorf("refused: %d %s", status, reply)
	}
	if status, reply := r.send("no event"); status != 400 {
		t.Errorf("no event: %d %s", status, reply)
	}
	var took []time.Duration
	r.must(event(t, "p", "a", "loan.partly_submit", later), `"seqno":"2"`)
	for i := range 100 {
		began := time.Now()
		r.must(event(t, fmt.Sprint("w", i), "a", "loan.schedule_work", `{"at":"2026-01-02T03:06:05Z","item":"W_Afhandelen leads"}`), fmt.Sprintf(`"seqno":"%d"`, i+3))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("process start to first committed append %v; warm p50 %v, p99 %v", cold, took[50], took[99])
}

// Frozen between calls, while another instance goes on and the connection breaks: the next
// call is right all the same.
func TestFrozenBetweenCalls(t *testing.T) {
	w := newWorld(t)
	u, err := url.Parse(w.pooled)
	ok(t, err)
	proxy, err := cutproxy.New(u.Host)
	ok(t, err)
	t.Cleanup(proxy.Close)
	u.Host = fmt.Sprintf("127.0.0.1:%d", proxy.Port())
	r, other := w.start("url", u.String()), w.start("url", w.pooled)
	r.must(event(t, "1", "a", "loan.submit", submitted), `"seqno":"1"`)
	other.must(event(t, "2", "a", "loan.partly_submit", later), `"seqno":"2"`)
	work := func(i int) string {
		return event(t, fmt.Sprint(i), "a", "loan.schedule_work", `{"at":"2026-01-02T03:06:05Z","item":"W_Afhandelen leads"}`)
	}
	for i := 3; i < 13; i += 2 {
		r.signal(syscall.SIGSTOP)
		other.must(work(i), fmt.Sprintf(`"seqno":"%d"`, i))
		if i%4 == 3 {
			proxy.Break()
		}
		time.Sleep(20 * time.Millisecond)
		r.signal(syscall.SIGCONT)
		began := time.Now()
		for { // a connection that broke unseen may cost a try; the id is the same
			status, reply := r.send(work(i + 1))
			if status == 200 && strings.Contains(reply, fmt.Sprintf(`"seqno":"%d"`, i+1)) {
				break
			}
			if status < 500 || time.Since(began) > 10*time.Second {
				t.Fatalf("%d: %d %s", i+1, status, reply)
			}
		}
	}
	if n := len(w.history("a")); n != 12 {
		t.Errorf("%d events", n)
	}
}

// The answer of the database is late, the deadline comes, Lambda kills the process, and
// delivers the event anew to another one: it was executed, once.
func TestKilledAtTheDeadline(t *testing.T) {
	for name, d := range map[string]cutproxy.Direction{"behind the append": cutproxy.ToClient, "before it": cutproxy.ToServer} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			u, err := url.Parse(w.pooled)
			ok(t, err)
			proxy, err := cutproxy.New(u.Host)
			ok(t, err)
			t.Cleanup(proxy.Close)
			u.Host = fmt.Sprintf("127.0.0.1:%d", proxy.Port())
			r := w.start("url", u.String())
			r.must(event(t, "1", "a", "loan.submit", submitted), `"seqno":"1"`)
			fired := proxy.Arm(cutproxy.Fault{Direction: d, Mode: cutproxy.Hold})
			again := request(event(t, "2", "a", "loan.partly_submit", later))
			i := r.invoke(again, 2*time.Second)
			<-fired
			for d == cutproxy.ToClient && len(w.history("a")) < 2 && time.Now().Before(i.until) {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Until(i.until))
			select {
			case o := <-i.outcome: // the context's deadline may have been a little faster
				if status, reply := streamed(t, o.body); status < 500 {
					t.Errorf("%d %s", status, reply)
				}
			default:
			}
			r.kill()
			want := map[cutproxy.Direction]string{cutproxy.ToClient: `"replayed":true`, cutproxy.ToServer: `"seqno":"2"`}[d]
			next := w.start("url", w.pooled)
			status, reply := streamed(t, next.response(next.invoke(again, 10*time.Second)))
			if status != 200 || !strings.Contains(reply, want) {
				t.Errorf("delivered anew: %d %s", status, reply)
			}
			if got := w.history("a"); !slices.Equal(got, []string{"loan.submitted", "loan.partly_submitted"}) {
				t.Errorf("history %v", got)
			}
		})
	}
}

func TestGateway(t *testing.T) {
	w := newWorld(t)
	r := w.start("api", w.pooled)
	call := func(q map[string]any) (out events.APIGatewayV2HTTPResponse) {
		ok(t, json.Unmarshal(r.response(r.invoke(q, 10*time.Second)), &out))
		return out
	}
	body := event(t, "1", "a", "loan.submit", submitted)
	first := call(request(body))
	if first.StatusCode != 200 || first.Headers["Content-Type"] != "application/json" || !strings.Contains(first.Body, `"seqno":"1"`) {
		t.Errorf("%+v", first)
	}
	q := request(base64.StdEncoding.EncodeToString([]byte(body)))
	q["isBase64Encoded"] = true
	if again := call(q); again.StatusCode != 200 || !strings.Contains(again.Body, `"replayed":true`) {
		t.Errorf("%+v", again)
	}
	q["body"] = "!"
	i := r.invoke(q, 10*time.Second)
	if o := <-i.outcome; o.kind != "error" {
		t.Errorf("no base64: %s %s", o.kind, o.body)
	}
	if refused := call(request(event(t, "2", "a", "loan.submit", submitted))); refused.StatusCode != 422 {
		t.Errorf("%+v", refused)
	}
}

// A batch: what is executed, what a rule refuses and what comes twice is done; what is no
// command is listed, and what follows it in its group.
func TestQueue(t *testing.T) {
	w := newWorld(t)
	r := w.start("queue", w.pooled)
	message := func(id, group, body string) map[string]any {
		return map[string]any{"messageId": id, "body": body, "eventSource": "aws:sqs", "attributes": map[string]string{"MessageGroupId": group}}
	}
	batch := []any{
		message("m1", "a", event(t, "1", "a", "loan.submit", submitted)),
		message("m2", "a", event(t, "1", "a", "loan.submit", submitted)), // twice
		message("m3", "a", event(t, "2", "a", "loan.submit", submitted)), // refused
		message("m4", "b", "no event"),
		message("m5", "b", event(t, "3", "b", "loan.submit", submitted)), // behind it
		message("m6", "c", event(t, "4", "c", "loan.nonsense", `{}`)),
		message("m7", "d", event(t, "5", "d", "loan.submit", submitted)),
	}
	var out events.SQSEventResponse
	for range 2 { // delivered anew as a whole it changes nothing
		ok(t, json.Unmarshal(r.response(r.invoke(map[string]any{"Records": batch}, 10*time.Second)), &out))
		var failed []string
		for _, f := range out.BatchItemFailures {
			failed = append(failed, f.ItemIdentifier)
		}
		if !slices.Equal(failed, []string{"m4", "m5", "m6"}) {
			t.Errorf("failed: %v", failed)
		}
	}
	for key, n := range map[string]int{"a": 1, "b": 0, "c": 0, "d": 1} {
		if got := w.history(key); len(got) != n {
			t.Errorf("%s: %v", key, got)
		}
	}
	ok(t, json.Unmarshal(r.response(r.invoke(map[string]any{"Records": batch[:3]}, 10*time.Second)), &out))
	if out.BatchItemFailures == nil || len(out.BatchItemFailures) != 0 {
		t.Errorf("all is well: %v", out.BatchItemFailures)
	}
}

// A function that cannot begin says why, and ends.
func TestInitError(t *testing.T) {
	w := newWorld(t)
	for by, dsn := range map[string]string{"nonsense": w.pooled, "url": "nonsense://hunter2@"} {
		r := w.start(by, dsn)
		select {
		case o := <-r.init:
			if !strings.Contains(string(o.body), "wanted") || strings.Contains(string(o.body), "hunter2") {
				t.Errorf("%s", o.body)
			}
		case <-time.After(20 * time.Second):
			t.Error("it says nothing")
		}
		if err := r.cmd.Wait(); err == nil {
			t.Error("it ends well")
		}
	}
}
