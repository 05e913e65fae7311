// The command side: cold, warm, frozen behind its append and before it, twice at once,
// killed.

package functions_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/functions"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
	"github.com/wattle-es/wattle/internal/cutproxy"
)

// A command is executed, the same one is not again, one that a rule forbids is refused; all
// of it by CloudEvents and by the contract. The signature is checked where there are keys.
func TestCommand(t *testing.T) {
	w := newWorld(t)
	p := w.start("command", w.pooled).ready()
	first := p.must(submit("c1", "a"))
	if first.Mark.Seqno != 1 || first.Replayed || len(first.Events) != 1 || first.Token.Position == 0 {
		t.Errorf("%+v", first)
	}
	if again := p.must(submit("c1", "a")); !again.Replayed || again.Mark != first.Mark {
		t.Errorf("again: %+v", again)
	}
	if status, reply, err := p.send(t.Context(), submit("c2", "a")); err != nil || status != 422 || reply.Rejected == nil {
		t.Errorf("refused: %d %+v %v", status, reply, err)
	}
	client, err := httpcarrier.NewClient(p.address, nil)
	ok(t, err)
	caller, err := handler.NewCaller(t.Context(), client, nil)
	ok(t, err)
	id := eventstore.NewUUID()
	for i := range 2 {
		reply, err := caller.Call(t.Context(), &handler.Request{Op: handler.Execute, ID: id, Stream: "application-b", Command: &handler.Command{Type: "loan.submit", Data: []byte(`{"at":"2026-01-02T03:04:05Z","amount":1}`)}})
		if err != nil || reply.Replayed != (i == 1) {
			t.Errorf("by the contract, %d: %+v %v", i, reply, err)
		}
	}
	if a, b := w.history("a"), w.history("b"); !slices.Equal(a, []string{"loan.submitted"}) || !slices.Equal(b, a) {
		t.Errorf("%v %v", a, b)
	}
	const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	signed := w.start("command", w.pooled, "WATTLE_KEYS="+key).ready()
	if status, _, err := signed.send(t.Context(), submit("c3", "c")); err != nil || status != 401 {
		t.Errorf("unsigned: %d %v", status, err)
	}
	s, err := httpcarrier.NewSigner(key)
	ok(t, err)
	client, err = httpcarrier.NewClient(signed.address, &httpcarrier.ClientOptions{Signer: s})
	ok(t, err)
	if _, err := handler.NewCaller(t.Context(), client, nil); err != nil {
		t.Error(err)
	}
}

// What it takes from the start of the process to the first append that is committed.
func TestColdStart(t *testing.T) {
	w := newWorld(t)
	path := binary(t, "command")
	var took []time.Duration
	for i := range 9 {
		p := w.run(path, w.pooled)
		c := submit("1", fmt.Sprint("cold", i))
		for limit := p.began.Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			status, reply, err := p.send(t.Context(), c)
			if err == nil && status == 200 {
				if reply.Replayed || reply.Mark.Seqno != 1 {
					t.Errorf("%+v", reply)
				}
				break
			}
			if time.Now().After(limit) {
				t.Fatal(status, reply, err)
			}
		}
		took = append(took, time.Since(p.began))
		p.kill()
	}
	p := w.run(path, w.pooled).ready()
	p.begun("warm")
	var warm []time.Duration
	for i := range 200 {
		began := time.Now()
		p.must(work(fmt.Sprint("warm ", i), "warm"))
		warm = append(warm, time.Since(began))
	}
	slices.Sort(warm)
	t.Logf("warm, a command that appends: p50 %v, p99 %v", warm[len(warm)/2], warm[len(warm)*99/100])
	slices.Sort(took)
	t.Logf("process start to first committed append, through PgBouncer: min %v, median %v, max %v", took[0], took[len(took)/2], took[len(took)-1])
}

// SIGTERM lets the call under way end, and the process with it.
func TestTerminates(t *testing.T) {
	w := newWorld(t)
	p := w.start("command", w.pooled).ready()
	p.must(submit("1", "a"))
	p.signal(syscall.SIGTERM)
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
		p.ended.Do(func() {})
	case <-time.After(15 * time.Second):
		t.Error("it does not end")
	}
}

// frozen has a function stopped in the middle of a command's append: at the moment when
// something goes in a direction, and is held.
func frozen(t *testing.T, d cutproxy.Direction) (w *world, p *process, c command, thaw func() (int, *handler.Reply, error)) {
	w = newWorld(t)
	proxy, dsn := w.through()
	p = w.start("command", dsn).ready()
	p.begun("a")
	fired := proxy.Arm(cutproxy.Fault{Direction: d, Mode: cutproxy.Hold})
	c = work("a 3", "a")
	type answer struct {
		status int
		reply  *handler.Reply
		err    error
	}
	answered := make(chan answer, 1)
	go func() {
		status, reply, err := p.send(context.WithoutCancel(t.Context()), c)
		answered <- answer{status, reply, err}
	}()
	select {
	case <-fired:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing passed")
	}
	if d == cutproxy.ToClient {
		w.eventually("the append", func() bool { return len(w.history("a")) == 3 })
	}
	p.signal(syscall.SIGSTOP)
	return w, p, c, func() (int, *handler.Reply, error) {
		proxy.Release()
		p.signal(syscall.SIGCONT)
		select {
		case a := <-answered:
			return a.status, a.reply, a.err
		case <-time.After(30 * time.Second):
			t.Fatal("no answer")
			return 0, nil, nil
		}
	}
}

// A function that is frozen behind its append, before it knows of it: a copy is asked
// again and finds it done; others go on; thawed, it is told of its own append, which was
// proved, and all of it once.
func TestFrozenBehindItsAppend(t *testing.T) {
	w, p, c, thaw := frozen(t, cutproxy.ToClient)
	other := w.start("command", w.pooled).ready()
	if reply := other.must(c); !reply.Replayed || reply.Mark.Seqno != 3 {
		t.Errorf("the copy: %+v", reply)
	}
	other.must(work("a 4", "a"))
	status, reply, err := thaw()
	if err != nil || status != 200 || reply.Mark.Seqno != 3 {
		t.Errorf("thawed: %d %+v %v", status, reply, err)
	}
	p.must(work("a 5", "a")) // its warm state is of before: the fence finds out
	once(t, w, "a", 5)
}

// A function that is frozen before its append: a copy executes the command, and another
// one. Thawed, what it sends is fenced; it loads again and finds its command done.
func TestFrozenBeforeItsAppend(t *testing.T) {
	w, p, c, thaw := frozen(t, cutproxy.ToServer)
	other := w.start("command", w.pooled).ready()
	if reply := other.must(c); reply.Replayed || reply.Mark.Seqno != 3 {
		t.Errorf("the copy: %+v", reply)
	}
	other.must(work("a 4", "a"))
	status, reply, err := thaw()
	if err != nil || status != 200 || !reply.Replayed || reply.Mark.Seqno != 3 {
		t.Errorf("thawed: %d %+v %v", status, reply, err)
	}
	p.must(work("a 5", "a"))
	once(t, w, "a", 5)
}

// A function that is killed behind its append: asked again, another one has done nothing
// and says what was.
func TestKilledBehindItsAppend(t *testing.T) {
	w, p, c, _ := frozen(t, cutproxy.ToClient)
	p.kill()
	if reply := w.start("command", w.pooled).ready().must(c); !reply.Replayed || reply.Mark.Seqno != 3 {
		t.Errorf("asked again: %+v", reply)
	}
	once(t, w, "a", 3)
}

// Killed before it, the append never came to be; asked again it is made, once.
func TestKilledBeforeItsAppend(t *testing.T) {
	w, p, c, _ := frozen(t, cutproxy.ToServer)
	p.kill()
	if reply := w.start("command", w.pooled).ready().must(c); reply.Replayed || reply.Mark.Seqno != 3 {
		t.Errorf("asked again: %+v", reply)
	}
	once(t, w, "a", 3)
}

// once checks that the n commands of a stream are in its history, each once.
func once(t *testing.T, w *world, key string, n int) {
	t.Helper()
	ids := map[string]int{}
	for e, err := range w.store.Read(t.Context(), eventstore.Stream(string(wire.Category)+"-"+key), 0) {
		ok(t, err)
		ids[e.Metadata[eventstore.MetaCommand]]++
	}
	if len(ids) != n {
		t.Errorf("%s: wanted %d commands, found %v", key, n, ids)
	}
	for id, times := range ids {
		if times != 1 || id == "" {
			t.Errorf("%s: command %q is there %d times", key, id, times)
		}
	}
}

// Two copies of each invocation at the same time, in two processes, with warm states that
// go stale all the time: one history.
func TestTwoCopies(t *testing.T) {
	w := newWorld(t)
	copies := []*process{w.start("command", w.pooled).ready(), w.start("command", w.pooled).ready()}
	copies[0].begun("a")
	const n = 25
	replayed := 0
	for i := 3; i <= n; i++ {
		var going sync.WaitGroup
		replies := make([]*handler.Reply, len(copies))
		for k, p := range copies {
			going.Go(func() {
				status, reply, err := p.send(t.Context(), work(fmt.Sprint("a ", i), "a"))
				if err != nil || status != 200 {
					t.Errorf("%d: %d %+v %v", i, status, reply, err)
					return
				}
				replies[k] = reply
			})
		}
		going.Wait()
		if t.Failed() {
			return
		}
		if replies[0].Mark != replies[1].Mark || replies[0].Mark.Seqno != eventstore.Seqno(i) {
			t.Errorf("%d: %v and %v", i, replies[0].Mark, replies[1].Mark)
		}
		for _, r := range replies {
			if r.Replayed {
				replayed++
			}
		}
	}
	if replayed == 0 {
		t.Error("no copy found the other's append")
	}
	once(t, w, "a", n)
	if n := w.connections(functions.CommandName); n > 3 {
		t.Errorf("%d connections to the server: the pooler has 3", n)
	}
}
