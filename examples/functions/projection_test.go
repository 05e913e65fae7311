// The projection: pushed by NATS and by the command function, by cron where hints are
// lost, twice at once; and nothing of it there while nobody calls.

package functions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync"
	"syscall"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/natsannounce"
	"github.com/wattle-es/wattle/examples/functions"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/internal/cutproxy"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector/pgdocuments"
)

// documents are those that there are, by stream.
func (w *world) documents() map[eventstore.Stream]loan.Application {
	w.Helper()
	all := map[eventstore.Stream]loan.Application{}
	for d, err := range pgdocuments.New(w.pool, w.settings().Documents()).All(w.Context(), functions.ProjectionName, 1) {
		ok(w, err)
		var a loan.Application
		ok(w, json.Unmarshal(d.Data, &a))
		all[eventstore.Stream(d.Key)] = a
	}
	return all
}

// folded are those that there have to be.
func (w *world) folded() map[eventstore.Stream]loan.Application {
	w.Helper()
	all, events := map[eventstore.Stream]loan.Application{}, wire.Events()
	for e, err := range w.store.Feed(w.Context(), 0, eventstore.Filter{Categories: []eventstore.Category{wire.Category}, AcceptTrimmed: true}) {
		ok(w, err)
		value, err := events.Decode(e)
		ok(w, err)
		all[e.Stream] = loan.Apply(all[e.Stream], value)
	}
	return all
}

// caughtUp waits until each event is in its document, once.
func (w *world) caughtUp() {
	w.Helper()
	want := w.folded()
	w.eventually("the documents", func() bool { return reflect.DeepEqual(w.documents(), want) })
}

// nobody waits until the server has no connection of the projection, and stays so.
func (w *world) nobody() {
	w.Helper()
	none := 0
	w.eventually("no connection for 100 ms", func() bool {
		if none++; w.connections(functions.ProjectionName) > 0 {
			none = 0
		}
		time.Sleep(5 * time.Millisecond)
		return none >= 20
	})
}

// executor is a plain service beside the functions; announcer may be nil.
func (w *world) executor(announcer eventstore.Announcer) *aggregate.Executor[loan.State, loan.Command, loan.Event] {
	w.Helper()
	store := w.store
	if announcer != nil {
		store = eventstore.New(w.store.Log(), &eventstore.Options{Announcer: announcer})
	}
	x, err := aggregate.NewExecutor(w.Context(), store, wire.Applications(), nil)
	ok(w, err)
	return x
}

func (w *world) nats() *natsannounce.Announcer {
	w.Helper()
	srv, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoLog: true, NoSigs: true})
	ok(w, err)
	srv.Start()
	w.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(10 * time.Second) {
		w.Fatal("the embedded NATS server does not start")
	}
	nc, err := nats.Connect(srv.ClientURL())
	ok(w, err)
	w.Cleanup(nc.Close)
	return natsannounce.New(nc, nil)
}

// An announcement on NATS becomes a push, the push a call, the call a document; then there
// is nothing. It goes on after a scale to zero: another process takes over.
func TestPushedByNATS(t *testing.T) {
	w := newWorld(t)
	announcer := w.nats()
	x := w.executor(announcer)
	p := w.start("projection", pgtest.DSN(t)).ready()
	w.nobody()
	ctx, stop := context.WithCancel(t.Context())
	var triggering sync.WaitGroup
	triggering.Go(func() { _ = functions.Trigger(ctx, announcer, wire.Category, p.address+functions.HintsPath, nil) })
	defer triggering.Wait()
	defer stop()
	w.eventually("a subscriber", func() bool { // hints are not kept for anybody
		_, err := x.Execute(t.Context(), eventstore.NewUUID().String(), loan.Submit{Order: at(0), Amount: 1})
		ok(t, err)
		return len(w.documents()) > 0
	})
	for i := range 5 {
		for k := range 3 {
			_, err := x.Execute(t.Context(), fmt.Sprintf("n%d-%d", i, k), loan.Submit{Order: at(0), Amount: 5000})
			ok(t, err)
		}
		w.caughtUp()
		w.nobody()
	}
}

// The command function pushes itself, within its call. Both are the programs that are
// deployed.
func TestPushedByTheCommand(t *testing.T) {
	w := newWorld(t)
	p := w.run(binary(t, "projection"), pgtest.DSN(t)).ready()
	c := w.run(binary(t, "command"), w.pooled, "WATTLE_HINTS="+p.address+functions.HintsPath).ready()
	for i := range 5 {
		c.must(submit("1", fmt.Sprint("p", i)))
		w.caughtUp()
	}
	w.nobody()
}

// Hints are lost: nobody looks. Cron comes, and proves who it is: all is there.
func TestCron(t *testing.T) {
	w := newWorld(t)
	x := w.executor(nil)
	const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	p := w.start("projection", w.pooled, "WATTLE_KEYS="+key).ready()
	signer, err := functions.Settings{Keys: []string{key}}.Signer()
	ok(t, err)
	for i := range 50 {
		_, err := x.Execute(t.Context(), fmt.Sprint("c", i), loan.Submit{Order: at(0), Amount: 5000})
		ok(t, err)
	}
	if _, err := functions.Push(t.Context(), p.address+functions.HintsPath, nil); err == nil {
		t.Error("a push that nobody signed is taken")
	}
	if n := len(w.documents()); n != 0 {
		t.Fatalf("%d documents, and nobody has called", n)
	}
	if more, err := functions.Push(t.Context(), p.address+functions.HintsPath, signer); more || err != nil {
		t.Error(more, err)
	}
	w.caughtUp()
	if more, err := functions.Push(t.Context(), p.address+functions.HintsPath, signer); more || err != nil { // nothing to do is no work
		t.Error(more, err)
	}
}

// A call leaves nothing behind in the process: no goroutine, so nothing that a freeze could
// catch in the middle.
func TestNothingBetweenCalls(t *testing.T) {
	w := newWorld(t)
	_, err := w.executor(nil).Execute(t.Context(), "a", loan.Submit{Order: at(0), Amount: 5000})
	ok(t, err)
	before := goleak.IgnoreCurrent()
	settings := w.settings()
	settings.DSN = pgtest.DSN(t)
	f, err := functions.Projection(t.Context(), settings)
	ok(t, err)
	for range 3 {
		answer := httptest.NewRecorder()
		f.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, functions.HintsPath, nil))
		if answer.Code != http.StatusOK {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
	w.caughtUp()
	w.nobody()
}

// Two copies are pushed at the same time, again and again, while commands come in: each
// document has had each event once.
func TestProjectionTwice(t *testing.T) {
	w := newWorld(t)
	x := w.executor(nil)
	copies := []*process{w.start("projection", pgtest.DSN(t)).ready(), w.start("projection", w.pooled).ready()}
	for i := range 10 {
		for k := range 5 {
			_, err := x.Execute(t.Context(), fmt.Sprintf("t%d-%d", i, k), loan.Submit{Order: at(0), Amount: 5000})
			ok(t, err)
		}
		var going sync.WaitGroup
		for _, p := range copies {
			going.Go(func() {
				if _, err := functions.Push(t.Context(), p.address+functions.HintsPath, nil); err != nil {
					t.Error(err)
				}
			})
		}
		going.Wait()
	}
	if _, err := functions.Push(t.Context(), copies[0].address+functions.HintsPath, nil); err != nil {
		t.Error(err)
	}
	w.caughtUp()
	w.nobodyWorks()
}

// nobodyWorks is nobody where a pooler keeps connections of its own.
func (w *world) nobodyWorks() {
	w.Helper()
	w.eventually("none but idle connections of the pooler", func() bool {
		var n int
		ok(w, w.pool.QueryRow(w.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND state <> 'idle'", functions.ProjectionName).Scan(&n))
		return n == 0
	})
}

// A projection that is frozen in the middle of its commit: a copy does the work, and what
// the frozen one finds when it thaws is that it has been done, by itself or the other.
func TestProjectionFrozen(t *testing.T) {
	for name, d := range map[string]cutproxy.Direction{"before its first write": cutproxy.ToServer, "before an answer": cutproxy.ToClient} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			x := w.executor(nil)
			proxy, dsn := w.through()
			p := w.start("projection", dsn).ready()
			other := w.start("projection", pgtest.DSN(t)).ready()
			for i := range 20 {
				_, err := x.Execute(t.Context(), fmt.Sprint("f", i), loan.Submit{Order: at(0), Amount: 5000})
				ok(t, err)
			}
			fired := proxy.Arm(cutproxy.Fault{Direction: d, After: 2500, Mode: cutproxy.Hold})
			answered := make(chan error, 1)
			go func() {
				q, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, p.address+functions.HintsPath, nil)
				if err == nil {
					var resp *http.Response
					if resp, err = http.DefaultClient.Do(q); err == nil {
						err = resp.Body.Close()
					}
				}
				answered <- err
			}()
			<-fired
			p.signal(syscall.SIGSTOP)
			w.eventually("the copy", func() bool {
				// A step that the frozen one has open holds the copy up until the server ends it, or it thaws.
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				more, err := functions.Push(ctx, other.address+functions.HintsPath, nil)
				if err != nil {
					proxy.Break() // as a server does that waits no longer for a client
				}
				return err == nil && !more
			})
			w.caughtUp()
			proxy.Release()
			p.signal(syscall.SIGCONT)
			ok(t, <-answered)
			for range 2 {
				if _, err := functions.Push(t.Context(), p.address+functions.HintsPath, nil); err != nil {
					t.Error(err)
				}
			}
			w.caughtUp()
		})
	}
}
