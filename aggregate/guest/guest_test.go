// An Executor over a remote Decider does what one over the Decider itself does, whatever
// becomes of the calls between them.

package guest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/handler"
)

type (
	added   struct{ N int }
	renamed struct{ Name string }
	event   interface{ isEvent() }

	add     struct{ N, Times int }
	rename  struct{ Name string }
	stamp   struct{}
	stamped struct {
		At time.Time
		ID eventstore.UUID
		On string
	}
	command interface{ isCommand() }

	state struct {
		Sum   int      `json:"sum"`
		Names []string `json:"names,omitempty"`
	}
)

func (added) isEvent()     {}
func (renamed) isEvent()   {}
func (stamped) isEvent()   {}
func (add) isCommand()     {}
func (rename) isCommand()  {}
func (stamp) isCommand()   {}
func (stamped) isCommand() {}

type tooBig struct{ sum int }

func (e tooBig) Error() string { return fmt.Sprintf("the sum would be %d", e.sum) }
func (e tooBig) Code() string  { return "too-big" }

const most = 1_000_000

func decide(s state, c command) ([]event, error) {
	switch c := c.(type) {
	case add:
		if s.Sum+c.N*c.Times > most {
			return nil, tooBig{s.Sum + c.N*c.Times}
		}
		var all []event
		for range c.Times {
			all = append(all, added{c.N})
		}
		return all, nil
	case rename:
		return []event{renamed{c.Name}}, nil
	case stamped:
		return []event{c}, nil
	}
	return nil, fmt.Errorf("no command: %T", c)
}

func evolve(s state, e event) state {
	switch e := e.(type) {
	case added:
		s.Sum += e.N
	case renamed:
		s.Names = append(s.Names[:len(s.Names):len(s.Names)], e.Name)
	}
	return s
}

func counters() aggregate.Type[state, command, event] {
	return aggregate.Type[state, command, event]{Category: "counter",
		Schema:  schema.New[event](schema.Wire[added]("added", 1), schema.Wire[renamed]("renamed", 2), schema.Wire[stamped]("stamped", 1)),
		Decider: aggregate.Decider[state, command, event]{Initial: func() state { return state{} }, Decide: decide, Evolve: evolve}}
}

func commands() guest.Commands[command] {
	return guest.CommandsOf(schema.New[command](schema.Wire[add]("add", 1), schema.Wire[rename]("rename", 1), schema.Wire[stamp]("stamp", 1)))
}

func native(t testing.TB) handler.Handler {
	t.Helper()
	h, err := guest.New(counters(), commands(), &guest.Options[command]{Prepare: func(c command, m guest.Moment) command {
		if _, ok := c.(stamp); ok {
			return stamped{m.Now, m.ID, string(m.Stream)}
		}
		return c
	}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func wired(t testing.TB, c command) guest.Command {
	t.Helper()
	data, err := schema.JSON.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(reflect.TypeOf(c).String(), "guest_test.")
	return guest.Command{Command: handler.Command{Type: name, Data: data}}
}

func newStore(t testing.TB) *eventstore.Store {
	s := eventstore.New(memlog.New(nil), nil)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func remote(t testing.TB, s *eventstore.Store, h handler.Handler, o *guest.ExecutorOptions, co *handler.Options) *guest.Executor {
	t.Helper()
	c, err := handler.NewCaller(t.Context(), h, co)
	if err != nil {
		t.Fatal(err)
	}
	x, err := guest.NewExecutor(t.Context(), s, c, o)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func history(t testing.TB, s *eventstore.Store) (all []string) {
	t.Helper()
	for e, err := range s.Feed(t.Context(), 0, eventstore.Filter{Categories: []eventstore.Category{"counter"}}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %d %s/%d %s %s", e.Stream, e.Seqno, e.Type, e.Version, e.ContentType, e.Data))
	}
	return all
}

// The same commands by chance, executed natively and remotely, on cold and warm states,
// with snapshots and without, by calls that fail half the time: the same histories,
// states and refusals.
func TestAsNative(t *testing.T) {
	first := rand.Uint64()
	for i := range 30 {
		seed := first + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { asNative(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func asNative(t *testing.T, r *rand.Rand) {
	here, there := newStore(t), newStore(t)
	one, err := aggregate.NewExecutor(t.Context(), here, counters(), nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &guest.ExecutorOptions{Snapshots: aggregate.Snapshots{Every: r.IntN(3) * 5}, Options: &aggregate.Options{CacheBytes: r.IntN(2)*2000 - 1000}}
	co := &handler.Options{Retries: 50, Limits: handler.Limits{Batch: 1 + r.IntN(20), RequestBytes: 200 + r.IntN(5000)}}
	two := remote(t, there, flaky{native(t), rand.New(rand.NewPCG(r.Uint64(), 2)), new(sync.Mutex)}, o, co)
	for n := range 100 {
		key := fmt.Sprint(r.IntN(3))
		var c command = add{N: r.IntN(100_000), Times: r.IntN(5)}
		if r.IntN(3) == 0 {
			c = rename{strings.Repeat("n", r.IntN(300))}
		}
		a, errA := one.Execute(t.Context(), key, c, aggregate.CommandKey(fmt.Sprint(n)))
		b, errB := two.Execute(t.Context(), key, wired(t, c), aggregate.CommandKey(fmt.Sprint(n)))
		var big tooBig
		if errors.As(errA, &big) {
			if refused, ok := errors.AsType[*handler.Rejected](errB); !ok || refused.Code != "too-big" || refused.Message != errA.Error() {
				t.Fatalf("%v, want %v", errB, errA)
			}
			continue
		}
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		sameState(t, two, a, b)
	}
	if a, b := history(t, here), history(t, there); !reflect.DeepEqual(a, b) {
		t.Fatalf("%d entries, want %d", len(b), len(a))
	}
	for key := range 3 {
		want, _, err := one.Load(t.Context(), fmt.Sprint(key))
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := two.Load(t.Context(), fmt.Sprint(key))
		if err != nil {
			t.Fatal(err)
		}
		compare(t, two, eventstore.Stream(fmt.Sprint("counter-", key)), want, got)
	}
}

func sameState(t *testing.T, x *guest.Executor, a aggregate.Result[state, event], b aggregate.Result[guest.State, schema.Raw]) {
	t.Helper()
	if a.Mark.Seqno != b.Mark.Seqno || len(a.Events) != len(b.Events) {
		t.Fatalf("mark %v and %d events, want %v and %d", b.Mark, len(b.Events), a.Mark, len(a.Events))
	}
	compare(t, x, a.Stream, a.State, b.State)
}

func compare(t *testing.T, x *guest.Executor, stream eventstore.Stream, want state, s guest.State) {
	t.Helper()
	data, err := x.Fold(t.Context(), stream, s)
	if err != nil {
		t.Fatal(err)
	}
	var got state
	if data != nil {
		if err := schema.JSON.Decode(data, &got); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("state %+v, want %+v", got, want)
	}
}

// flaky fails before or after the handler was called, or answers after the call's time.
type flaky struct {
	h handler.Handler
	r *rand.Rand
	m *sync.Mutex
}

func (f flaky) Handle(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
	f.m.Lock()
	chance := f.r.IntN(8)
	f.m.Unlock()
	switch chance {
	case 0:
		return nil, &handler.Error{Kind: handler.ErrFailed, Op: r.Op, Found: "nobody"}
	case 1:
		_, _ = f.h.Handle(ctx, r)
		return nil, &handler.Error{Kind: handler.ErrFailed, Op: r.Op, Found: "a lost answer"}
	case 2:
		<-ctx.Done()
		return nil, ctx.Err()
	case 3:
		return handler.AsReply(r, &handler.Error{Kind: handler.ErrFailed, Op: r.Op, Found: "a bad day"}), nil
	}
	return f.h.Handle(ctx, r)
}

// What a pure function cannot know comes with the command, the same in every try.
func TestMoment(t *testing.T) {
	s := newStore(t)
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	x := remote(t, s, native(t), &guest.ExecutorOptions{Now: func() time.Time { return now }}, nil)
	id := eventstore.NewUUID()
	if _, err := x.Execute(t.Context(), "a", wired(t, stamp{}), aggregate.CommandID(id)); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`counter-a 1 stamped/1 application/json {"At":"2026-05-06T07:08:09Z","ID":"%s","On":"counter-a"}`, id)
	if got := history(t, s); len(got) != 1 || got[0] != want {
		t.Errorf("%v\nwant %s", got, want)
	}
}

// A key is one request's: the same command decided at another moment, from other pieces of
// the history or with other content has another, and a server that keeps keys apart lets
// each pass. The same request has the same.
func TestOneKeyOneRequest(t *testing.T) {
	s, h := newStore(t), native(t)
	asked := map[eventstore.UUID]string{}
	keeping := handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Op == handler.Decide {
			same := *r
			same.Key, same.Deadline = eventstore.UUID{}, time.Time{}
			text := string(handler.AppendRequest(nil, &same))
			if before, there := asked[r.Key]; there && before != text {
				t.Errorf("one key for\n%s and\n%s", before, text)
			}
			asked[r.Key] = text
		}
		return h.Handle(ctx, r)
	})
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	o := &guest.ExecutorOptions{Now: func() time.Time { return now }}
	warm := remote(t, s, keeping, o, nil)
	for range 3 {
		if _, err := warm.Execute(t.Context(), "a", wired(t, add{1, 1})); err != nil {
			t.Fatal(err)
		}
	}
	cold := remote(t, s, keeping, o, nil)
	refused := func(x *guest.Executor, n int) {
		t.Helper()
		_, err := x.Execute(t.Context(), "a", wired(t, add{n, 1}), aggregate.CommandKey("refused"))
		if _, ok := errors.AsType[*handler.Rejected](err); !ok {
			t.Fatalf("wanted a refusal, found %v", err)
		}
	}
	before := len(asked)
	refused(cold, 1_000_000)
	refused(warm, 1_000_000)
	refused(warm, 1_000_000)
	now = now.Add(time.Second)
	refused(warm, 1_000_000)
	refused(warm, 2_000_000)
	if n := len(asked) - before; n != 4 {
		t.Errorf("%d keys, want 4", n)
	}
}

// coded is a refusal with a code of any kind.
type coded string

func (c coded) Error() string { return "refused" }
func (c coded) Code() string  { return string(c) }

// A refusal is one whatever its code: the contract bounds codes, the domain does not.
func TestCodesOfRefusals(t *testing.T) {
	var refusal error
	typ := counters()
	typ.Decider.Decide = func(state, command) ([]event, error) { return nil, refusal }
	h, err := guest.New(typ, commands(), nil)
	if err != nil {
		t.Fatal(err)
	}
	x := remote(t, newStore(t), h, nil, nil)
	long := strings.Repeat("ü", handler.MaxCodeBytes)
	for _, c := range []struct {
		refusal error
		code    string
	}{{coded("full"), "full"}, {coded(""), "rejected"}, {coded(long), long[:handler.MaxCodeBytes-4] + "…"}, {errors.New("no"), "rejected"},
		{&handler.Rejected{Code: "mine", Message: "m"}, "mine"}, {&handler.Rejected{Message: "m"}, "rejected"}, {&handler.Rejected{Code: long}, long[:handler.MaxCodeBytes-4] + "…"}} {
		refusal = c.refusal
		_, err := x.Execute(t.Context(), "a", wired(t, add{1, 1}))
		if r, ok := errors.AsType[*handler.Rejected](err); !ok || r.Code != c.code {
			t.Errorf("%#v: wanted a refusal with the code %q, found %v", c.refusal, c.code, err)
		}
	}
}

// Two hosts ask the same handler at once: one history, each command once.
func TestTwoHosts(t *testing.T) {
	s := newStore(t)
	hosts := []*guest.Executor{remote(t, s, native(t), nil, nil), remote(t, s, native(t), nil, nil)}
	var wait sync.WaitGroup
	for _, x := range hosts {
		wait.Go(func() {
			for n := range 50 {
				if _, err := x.Execute(t.Context(), "a", wired(t, add{1, 1}), aggregate.CommandKey(fmt.Sprint(n))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if n := len(history(t, s)); n != 50 {
		t.Errorf("%d entries, want 50", n)
	}
}

// A handler that lies writes nothing, and is asked once.
func TestLies(t *testing.T) {
	x, calls := (*guest.Executor)(nil), 0
	lie := func(*handler.Reply) {}
	h := native(t)
	lying := handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		reply, err := h.Handle(ctx, r)
		if err == nil && r.Op == handler.Decide {
			calls++
			lie(reply)
		}
		return reply, err
	})
	s := newStore(t)
	x = remote(t, s, lying, nil, &handler.Options{Limits: handler.Limits{Events: 3, ReplyBytes: 16 << 20}})
	for name, f := range map[string]func(*handler.Reply){
		"other key":      func(r *handler.Reply) { r.Key = eventstore.NewUUID() },
		"other stream":   func(r *handler.Reply) { r.Stream = "counter-b" },
		"too many":       func(r *handler.Reply) { r.Events = append(r.Events, r.Events[0], r.Events[0], r.Events[0]) },
		"unknown type":   func(r *handler.Reply) { r.Events[0].Type = "removed" },
		"older version":  func(r *handler.Reply) { r.Events[0].Type, r.Events[0].Version = "renamed", 1 },
		"no data":        func(r *handler.Reply) { r.Events[0].Data = nil },
		"both":           func(r *handler.Reply) { r.Rejected = &handler.Rejected{Code: "no"} },
		"other op":       func(r *handler.Reply) { r.More = true },
		"huge":           func(r *handler.Reply) { r.Events[0].Data = make([]byte, eventstore.MaxEventBytes+1) },
		"no code":        func(r *handler.Reply) { *r = handler.Reply{Key: r.Key, Rejected: &handler.Rejected{}} },
		"a mark of ours": func(r *handler.Reply) { r.Mark = eventstore.Mark{Seqno: 9} },
	} {
		lie, calls = f, 0
		_, err := x.Execute(t.Context(), "a", wired(t, add{1, 1}))
		if !errors.Is(err, handler.ErrBadReply) || calls != 1 {
			t.Errorf("%s: %v after %d calls", name, err, calls)
		}
	}
	if n := len(history(t, s)); n != 0 {
		t.Errorf("%d entries, want none", n)
	}
}

// A handler that fails has refused nothing: its error is the command's failure, in the
// trace too.
func TestFailureIsNoRefusal(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	s := eventstore.New(memlog.New(nil), &eventstore.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))})
	t.Cleanup(func() { _ = s.Close() })
	h := native(t)
	x := remote(t, s, handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Op == handler.Decide {
			return nil, &handler.Error{Kind: handler.ErrFailed, Op: r.Op, Found: "nobody"}
		}
		return h.Handle(ctx, r)
	}), nil, &handler.Options{Retries: -1})
	if _, err := x.Execute(t.Context(), "a", wired(t, add{1, 1})); !errors.Is(err, handler.ErrFailed) {
		t.Fatalf("%v, want %v", err, handler.ErrFailed)
	}
	for _, span := range spans.GetSpans() {
		if span.Name == "execute counter" && span.Status.Code == codes.Error {
			return
		}
	}
	t.Errorf("no span of the command says that it failed: %v", spans.GetSpans().Snapshots())
}

// A release whose state is another one is noticed, not fed with what it cannot read.
func TestOtherRelease(t *testing.T) {
	s := newStore(t)
	version := 0
	h := handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		typ := counters()
		typ.Snapshots.Version = version
		n, err := guest.New(typ, commands(), nil)
		if err != nil {
			return nil, err
		}
		return n.Handle(ctx, r)
	})
	x := remote(t, s, h, &guest.ExecutorOptions{Snapshots: aggregate.Snapshots{Every: 1}}, nil)
	if _, err := x.Execute(t.Context(), "a", wired(t, add{1, 1})); err != nil {
		t.Fatal(err)
	}
	version = 1
	if _, err := x.Execute(t.Context(), "a", wired(t, add{1, 1})); !errors.Is(err, handler.ErrStateVersion) {
		t.Errorf("%v, want %v", err, handler.ErrStateVersion)
	}
	x = remote(t, s, h, nil, nil) // made anew it folds the events, the snapshot left out
	r, err := x.Execute(t.Context(), "a", wired(t, add{1, 1}))
	if state, ok := r.State.JSON(); err != nil || !ok || string(state) != `{"sum":2}` {
		t.Errorf("%s, %v", state, err)
	}
}

// A whole Executor as a service: asked again, by whoever, it answers what became of the
// command.
func TestService(t *testing.T) {
	s := newStore(t)
	exec, err := aggregate.NewExecutor(t.Context(), s, counters(), nil)
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	service := guest.NewService(exec, "counter", counters().Schema, commands(), nil)
	h := handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		reply, err := service.Handle(ctx, r)
		if r.Op == handler.Execute && lost > 0 {
			lost--
			return nil, &handler.Error{Kind: handler.ErrFailed, Op: r.Op, Found: "a lost answer"}
		}
		return reply, err
	})
	c, err := handler.NewCaller(t.Context(), h, nil)
	if err != nil {
		t.Fatal(err)
	}
	execute := func(id string, cmd command, after eventstore.Mark) (*handler.Reply, error) {
		w := wired(t, cmd)
		w.Metadata = eventstore.Metadata{eventstore.MetaCorrelation: "c", "mine": "m"}
		return c.Call(t.Context(), &handler.Request{Op: handler.Execute, Stream: "counter-a", ID: eventstore.NameUUID(id), After: after, Command: &w.Command})
	}
	lost = 2
	reply, err := execute("1", add{5, 2}, eventstore.Mark{})
	if err != nil || reply.Mark.Seqno != 2 || !reply.Replayed || len(reply.Events) != 2 || string(reply.Events[0].Data) != `{"N":5}` || reply.Token.Position == 0 {
		t.Fatalf("%+v, %v", reply, err)
	}
	if _, err := execute("2", add{most, 1}, eventstore.Mark{}); err == nil || err.Error() != "too-big: the sum would be 1000010" {
		t.Errorf("%v", err)
	}
	if _, err := execute("3", add{1, 1}, eventstore.Mark{Seqno: 1}); !errors.Is(err, eventstore.ErrAlreadyWritten) {
		t.Errorf("%v, want %v", err, eventstore.ErrAlreadyWritten)
	}
	lost = 10
	if _, err := execute("4", add{1, 1}, eventstore.Mark{}); !errors.Is(err, handler.ErrFailed) {
		t.Errorf("%v, want %v", err, handler.ErrFailed)
	}
	lost = 0
	if reply, err := execute("4", add{1, 1}, eventstore.Mark{}); err != nil || !reply.Replayed || reply.Mark.Seqno != 3 {
		t.Errorf("%+v, %v", reply, err)
	}
	if n := len(history(t, s)); n != 3 {
		t.Errorf("%d entries, want 3", n)
	}
	page, err := s.ReadFrom(t.Context(), "counter-a", 0, 1)
	if err != nil || page.Entries[0].Metadata["mine"] != "m" || page.Entries[0].Metadata[eventstore.MetaCorrelation] != "c" {
		t.Errorf("%+v, %v", page, err)
	}
}

func BenchmarkDecide(b *testing.B) {
	run := func(b *testing.B, execute func(n int) error) {
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			if err := execute(n); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("native", func(b *testing.B) {
		x, err := aggregate.NewExecutor(b.Context(), newStore(b), counters(), nil)
		if err != nil {
			b.Fatal(err)
		}
		run(b, func(n int) error {
			_, err := x.Execute(b.Context(), "a", add{0, 1})
			return err
		})
	})
	b.Run("handler", func(b *testing.B) {
		x, c := remote(b, newStore(b), native(b), nil, nil), wired(b, add{0, 1})
		run(b, func(n int) error {
			_, err := x.Execute(b.Context(), "a", c)
			return err
		})
	})
}
