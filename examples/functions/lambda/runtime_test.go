// A stand-in for Lambda's runtime API, and for what Lambda does to processes.

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/handler/httpcarrier"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// asVariable says that this process is no test but the function.
const asVariable = "WATTLE_TEST_LAMBDA"

func TestMain(m *testing.M) {
	if os.Getenv(asVariable) != "" {
		main()
		os.Exit(0)
	}
	pgtest.Main(m)
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// outcome is what a function says of an invocation.
type outcome struct {
	kind string // response, error, init
	body []byte
	head http.Header
}

// invocation is one event on its way.
type invocation struct {
	id      string
	event   []byte
	until   time.Time
	outcome chan outcome
}

// runtime is the API for one process.
type runtime struct {
	*testing.T
	srv     *httptest.Server
	next    chan *invocation
	current chan *invocation // of one place: what the process has
	init    chan outcome
	cmd     *exec.Cmd
	n       int
}

// ServeHTTP is the runtime API.
func (r *runtime) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	path := strings.TrimPrefix(q.URL.Path, "/2018-06-01/runtime/")
	body, _ := io.ReadAll(q.Body) // half of one is an outcome too
	switch {
	case path == "invocation/next":
		select {
		case i := <-r.next:
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", i.id)
			w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(i.until.UnixMilli()))
			w.Header().Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:x:1:function:loan")
			r.current <- i
			_, _ = w.Write(i.event)
		case <-q.Context().Done():
		}
	case path == "init/error":
		r.init <- outcome{"init", body, q.Header}
		w.WriteHeader(http.StatusAccepted)
	default:
		i := <-r.current
		kind, found := strings.CutPrefix(path, "invocation/"+i.id+"/")
		if !found {
			r.Errorf("wanted the outcome of %s, found %s", i.id, path)
		}
		w.WriteHeader(http.StatusAccepted)
		i.outcome <- outcome{kind, body, q.Header}
	}
}

// world is a store behind a pooler.
type world struct {
	*testing.T
	schema, pooled string
	store          *eventstore.Store
}

func newWorld(t *testing.T) *world {
	pool, schema := pgtest.Schema(t)
	log, err := pglog.Open(t.Context(), pool, &pglog.Options{Schema: schema})
	ok(t, err)
	store := eventstore.New(log, nil)
	t.Cleanup(func() { _ = store.Close() })
	return &world{t, schema, pgtest.Bouncer(t, pgtest.DSN(t), 3), store}
}

// binary builds the program as it is deployed.
func binary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bootstrap")
	build := exec.Command("go", "build", "-tags", "lambda.norpc", "-ldflags", "-s -w", "-o", path, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	return path
}

// start begins a process as Lambda would, of this program, so that the race detector sees
// it.
func (w *world) start(by, dsn string) *runtime {
	w.Helper()
	self, err := os.Executable()
	ok(w, err)
	return w.run(self, by, dsn, asVariable+"=1")
}

// run begins a process of a program.
func (w *world) run(path, by, dsn string, env ...string) *runtime {
	w.Helper()
	r := &runtime{T: w.T, next: make(chan *invocation), current: make(chan *invocation, 1), init: make(chan outcome, 1)}
	r.srv = httptest.NewServer(r)
	r.cmd = exec.Command(path)
	r.cmd.Stderr = os.Stderr
	r.cmd.Env = append(append(os.Environ(), env...), "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(r.srv.URL, "http://"), "_HANDLER="+by, "WATTLE_DSN="+dsn, "WATTLE_SCHEMA="+w.schema)
	ok(w, r.cmd.Start())
	w.Cleanup(func() { r.kill(); r.srv.Close() })
	return r
}

// kill ends the process, once.
func (r *runtime) kill() {
	if r.cmd.ProcessState == nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	}
}

func (r *runtime) signal(s syscall.Signal) { ok(r, r.cmd.Process.Signal(s)) }

// invoke hands an event to the process.
func (r *runtime) invoke(event any, limit time.Duration) *invocation {
	r.Helper()
	body, err := json.Marshal(event)
	ok(r, err)
	r.n++
	i := &invocation{fmt.Sprintf("%08d-0000-0000-0000-000000000000", r.n), body, time.Now().Add(limit), make(chan outcome, 1)}
	select {
	case r.next <- i:
	case <-time.After(20 * time.Second):
		r.Fatal("the function asks for no event")
	}
	return i
}

// response waits for the outcome of an invocation.
func (r *runtime) response(i *invocation) []byte {
	r.Helper()
	select {
	case o := <-i.outcome:
		if o.kind != "response" {
			r.Fatalf("%s: %s", o.kind, o.body)
		}
		return o.body
	case <-time.After(20 * time.Second):
		r.Fatal("no outcome")
		return nil
	}
}

// event is a command as a structured CloudEvent.
func event(t testing.TB, id, key, typ, data string) string {
	body, err := httpcarrier.AppendStructured(nil, &httpcarrier.CloudEvent{ID: id, Source: "/branch/7", Type: typ, Subject: key, Data: []byte(data)})
	ok(t, err)
	return string(body)
}

const (
	submitted = `{"at":"2026-01-02T03:04:05Z","amount":5000}`
	later     = `{"at":"2026-01-02T03:05:05Z"}`
)

// request is a function URL's event, and API Gateway's.
func request(body string) map[string]any {
	return map[string]any{"version": "2.0", "rawPath": "/", "headers": map[string]string{"content-type": httpcarrier.StructuredType},
		"requestContext": map[string]any{"domainName": "x.lambda-url.example", "http": map[string]string{"method": "POST", "path": "/"}}, "body": body}
}

// streamed takes apart what lambdaurl answers: the head in JSON, eight zeros, the body.
func streamed(t testing.TB, body []byte) (status int, reply string) {
	t.Helper()
	head, rest, found := bytes.Cut(body, make([]byte, 8))
	var h struct{ StatusCode int }
	if err := json.Unmarshal(head, &h); err != nil || !found {
		t.Fatalf("%q: %v", body, err)
	}
	return h.StatusCode, string(rest)
}

// history is what a stream holds, by types.
func (w *world) history(key string) (types []string) {
	w.Helper()
	for e, err := range w.store.Read(w.Context(), eventstore.Stream("application-"+key), 0) {
		ok(w, err)
		types = append(types, e.Type)
	}
	return types
}
