// What the tests of this package share: a store, a projection, a straight fold of it, and
// a carrier of bytes.

package guest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
)

type Event interface{ event() }

type Deposited struct{ Amount int }
type Closed struct{ Why string }
type Cursed struct{ How string } // cannot be applied

func (Deposited) event() {}
func (Closed) event()    {}
func (Cursed) event()    {}

var events = schema.New[Event](schema.Wire[Deposited]("deposited", 1), schema.Wire[Closed]("closed", 1), schema.Wire[Cursed]("cursed", 1))

// Account is a document per stream, Total one that many streams share.
type Account struct {
	Sum  int
	N    int
	Last eventstore.Seqno
}
type Total struct{ N, Sum int }

func totalOf(s eventstore.Stream) string { return "total " + strconv.Itoa(int(s.Slot())%3) }

// accounts counts deposits. A closed account is removed, with a command and a timer.
var accounts = guest.Projection[Event]{
	Name: "accounts", Release: "1", Category: "account", Events: events,
	Keys: func(e projector.Event[Event]) []string { return []string{string(e.Stream), totalOf(e.Stream)} },
	Apply: func(e projector.Event[Event], docs *guest.Docs) error {
		var a Account
		docs.Get(string(e.Stream), &a)
		switch v := e.Value.(type) {
		case Deposited:
			var t Total
			docs.Get(totalOf(e.Stream), &t)
			docs.Put(string(e.Stream), Account{a.Sum + v.Amount, a.N + 1, e.Seqno})
			docs.Put(totalOf(e.Stream), Total{t.N + 1, t.Sum + v.Amount})
		case Closed:
			docs.Delete(string(e.Stream))
			docs.Issue("archive-"+eventstore.Stream(e.Stream.Key()), "archive", a)
			docs.Issue("mail-1", "tell", v.Why)
		case Cursed:
			docs.Delete(string(e.Stream)) // must not stand
			docs.Issue("mail-1", "curse", v.How)
			if v.How == "panic" {
				panic("cursed")
			}
			return errors.New("cursed")
		}
		return nil
	},
}

// fold is what accounts comes to, without any of its code: documents, and commands by ID.
func fold(t testing.TB, name string, entries []eventstore.Entry) (docs, commands map[string]string) {
	t.Helper()
	docs, commands = map[string]string{}, map[string]string{}
	open, totals := map[eventstore.Stream]*Account{}, map[string]*Total{}
	for _, e := range entries {
		v, err := events.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		switch v := v.(type) {
		case Deposited:
			if open[e.Stream] == nil {
				open[e.Stream] = &Account{}
			}
			if totals[totalOf(e.Stream)] == nil {
				totals[totalOf(e.Stream)] = &Total{}
			}
			a, s := open[e.Stream], totals[totalOf(e.Stream)]
			a.Sum, a.N, a.Last = a.Sum+v.Amount, a.N+1, e.Seqno
			s.N, s.Sum = s.N+1, s.Sum+v.Amount
		case Closed:
			a := Account{}
			if open[e.Stream] != nil {
				a = *open[e.Stream]
			}
			delete(open, e.Stream)
			commands[projector.CommandUUID(name, e, 0).String()] = "archive archive-" + e.Stream.Key() + " " + text(a)
			commands[projector.CommandUUID(name, e, 1).String()] = "tell mail-1 " + text(v.Why)
		}
	}
	for s, a := range open {
		docs[string(s)] = text(a)
	}
	for k, s := range totals {
		docs[k] = text(s)
	}
	return docs, commands
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// commands notes what is issued, by ID, and that it is the same each time.
type commands struct {
	mu     sync.Mutex
	had    map[string]string
	times  int
	faults []string
	fail   func() error
}

func (c *commands) issue(_ context.Context, cmd projector.Command[handler.Issue]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		if err := c.fail(); err != nil {
			return err
		}
	}
	if c.had == nil {
		c.had = map[string]string{}
	}
	c.times++
	is := fmt.Sprintf("%s %s %s", cmd.Value.Type, cmd.Value.Stream, cmd.Value.Data)
	if was, again := c.had[cmd.ID.String()]; again && was != is {
		c.faults = append(c.faults, fmt.Sprintf("%v was %s, is %s", cmd.ID, was, is))
	}
	if cmd.Entry.Position != cmd.Value.Position {
		c.faults = append(c.faults, fmt.Sprintf("%s because of %v, of entry %v", is, cmd.Value.Position, cmd.Entry.Position))
	}
	c.had[cmd.ID.String()] = is
	return nil
}

// check fails unless exactly these were issued.
func (c *commands) check(t testing.TB, want map[string]string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.faults {
		t.Error(f)
	}
	if !maps.Equal(c.had, want) {
		t.Errorf("issued %d commands, want %d:\n%v\n%v", len(c.had), len(want), c.had, want)
	}
}

// env is a store in memory with a category account.
type env struct {
	t     testing.TB
	log   *memlog.Log
	store *eventstore.Store
	marks map[eventstore.Stream]eventstore.Mark
}

func newEnv(t testing.TB, o *eventstore.Options) *env {
	t.Helper()
	e := &env{t: t, log: memlog.New(nil), marks: map[eventstore.Stream]eventstore.Mark{}}
	e.store = eventstore.New(e.log, o)
	e.ok(e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "account", TrimFreely: true}))
	return e
}

func (e *env) ok(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) append(s eventstore.Stream, values ...Event) eventstore.Token {
	e.t.Helper()
	b := eventstore.Batch{Stream: s, Epoch: 1, Holder: eventstore.UUID{1}, Claim: e.marks[s].Seqno == 0, After: e.marks[s]}
	for _, v := range values {
		ev, err := events.Encode(v)
		e.ok(err)
		b.Events = append(b.Events, ev)
	}
	done, err := e.store.Append(e.t.Context(), eventstore.Append{Batches: []eventstore.Batch{b}})
	e.ok(err)
	e.marks[s] = done.Receipts[0].Last
	return done.Token
}

func (e *env) all() (all []eventstore.Entry) {
	e.t.Helper()
	for entry, err := range eventstore.New(e.log, nil).Feed(context.Background(), 0, eventstore.Filter{Categories: []eventstore.Category{"account"}, AcceptTrimmed: true}) {
		e.ok(err)
		all = append(all, entry)
	}
	return all
}

// same fails unless the documents of a version are these.
func same(t testing.TB, docs guest.Documents, name string, version int, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for d, err := range docs.All(context.Background(), name, version) {
		if err != nil {
			t.Fatal(err)
		}
		got[d.Key] = string(d.Data)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d documents of version %d, want %d", len(got), version, len(want))
		for _, k := range slices.Sorted(maps.Keys(want)) {
			if got[k] != want[k] {
				t.Errorf("document %q: %s, want %s", k, got[k], want[k])
			}
		}
		for k := range got {
			if want[k] == "" {
				t.Errorf("document %q: %s, want none", k, got[k])
			}
		}
	}
}

// far answers bytes with a handler, as the far side of a carrier does.
type far struct{ h handler.Handler }

func (f far) Call(ctx context.Context, op string, request []byte) ([]byte, error) {
	return handler.Serve(ctx, f.h, op, request), nil
}

// overBytes is a handler whose requests and replies pass as bytes.
func overBytes(h handler.Handler) handler.Handler { return handler.Over(far{h}, "bytes") }

func caller(t testing.TB, h handler.Handler, o *handler.Options) *handler.Caller {
	t.Helper()
	c, err := handler.NewCaller(t.Context(), h, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// run starts p.Run and returns a function that stops it and gives its error.
func run(t testing.TB, p interface{ Run(context.Context) error }) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return stop
}
