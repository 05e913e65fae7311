// The Executor on its ordinary ways: cold, warm, refused, contended, expected marks.

package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
)

// One read and one append when cold, one append and no read when warm.
func TestColdAndWarm(t *testing.T) {
	store, log := newStore(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	res := execute(t, x, "alice", Open{"Alice"})
	if res.Stream != alice || res.Mark.Seqno != 1 || res.Token.Position == 0 || res.Replayed || res.Retries != 0 {
		t.Fatalf("first result: %+v", res)
	}
	if !slices.Equal(res.Events, []Event{Opened{"Alice"}}) {
		t.Fatalf("events: %v", res.Events)
	}
	for range 3 {
		res = execute(t, x, "alice", Deposit{5})
	}
	wantBalance(t, res.State, 15, 4)
	if appends, loads, heads := log.count(); appends != 4 || loads != 1 || heads != 0 {
		t.Fatalf("wanted 4 appends, 1 load, 0 heads, found %d, %d, %d", appends, loads, heads)
	}
	head, err := store.Head(context.Background(), alice)
	if err != nil || head.Epoch != 1 || head.Holder != x.Holder() || head.Last != res.Mark {
		t.Fatalf("head %+v, %v", head, err)
	}
}

func TestNoCacheReadsEveryTimeAndKeepsItsEpoch(t *testing.T) {
	store, log := newStore(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), &aggregate.Options{CacheBytes: -1})
	for range 4 {
		execute(t, x, "alice", Deposit{1})
	}
	if appends, loads, _ := log.count(); appends != 4 || loads != 4 {
		t.Fatalf("wanted 4 appends and 4 loads, found %d and %d", appends, loads)
	}
	if head, _ := store.Head(context.Background(), alice); head.Epoch != 1 {
		t.Fatalf("an owner claimed anew: epoch %d", head.Epoch)
	}
}

// A1: the load, the decision and the append of many processes on one stream.
func TestA1ManyProcessesOneStream(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			store := eventstore.New(memlog.New(nil), nil)
			const n = 20
			executors := make([]*executor, 5)
			for i := range executors {
				executors[i] = newExecutor(t, store, accounts(aggregate.Snapshots{Every: 7}), &aggregate.Options{Retries: 100})
			}
			var acks atomic.Int64
			var group sync.WaitGroup
			barrier := make(chan struct{})
			for i := range n {
				group.Go(func() {
					<-barrier
					if _, err := executors[i%len(executors)].Execute(t.Context(), "alice", Deposit{1}); err != nil {
						t.Error(err)
						return
					}
					acks.Add(1)
				})
			}
			close(barrier)
			group.Wait()
			if got := len(entries(t, store, alice)); got != n || acks.Load() != n {
				t.Fatalf("%d acks, %d events, wanted %d of each", acks.Load(), got, n)
			}
			s, _, err := executors[0].Load(t.Context(), "alice")
			if err != nil {
				t.Fatal(err)
			}
			wantBalance(t, s, n, n)
		})
	}
}

// A fenced warm executor finds out at its append, and decides on what is there.
func TestFencedWarmExecutor(t *testing.T) {
	store, log := newStore(t)
	typ := accounts(aggregate.Snapshots{})
	a, b := newExecutor(t, store, typ, nil), newExecutor(t, store, typ, nil)
	execute(t, a, "alice", Deposit{100})
	execute(t, b, "alice", Withdraw{80})
	_, err := a.Execute(context.Background(), "alice", Withdraw{80}) // its cache says 100
	wantErr(t, err, errFunds)
	res := execute(t, a, "alice", Withdraw{20})
	wantBalance(t, res.State, 0, 3)
	if res.Retries != 0 {
		t.Fatalf("the state was fresh, yet it was decided again %d times", res.Retries)
	}
	if _, _, heads := log.count(); heads != 0 {
		t.Fatalf("a decision with events needs no look at the head, found %d", heads)
	}
}

// A refusal, or an empty answer, is true for the log and not only for the cache.
func TestRefusalOnOldStateIsDecidedAgain(t *testing.T) {
	store, log := newStore(t)
	typ := accounts(aggregate.Snapshots{})
	a, b := newExecutor(t, store, typ, nil), newExecutor(t, store, typ, nil)
	execute(t, a, "alice", Deposit{10})
	execute(t, b, "alice", Deposit{90})
	res := execute(t, a, "alice", Withdraw{100})
	wantBalance(t, res.State, 0, 3)
	if res.Retries != 1 {
		t.Fatalf("wanted one further decision, found %d", res.Retries)
	}
	_, loadsBefore, headsBefore := log.count()
	for range 2 { // now the warm state is the last one: one look at the head, no load
		_, err := a.Execute(context.Background(), "alice", Withdraw{1})
		wantErr(t, err, errFunds)
	}
	if _, loads, heads := log.count(); loads != loadsBefore || heads != headsBefore+2 {
		t.Fatalf("wanted 2 looks at the head and no load, found %d and %d", heads-headsBefore, loads-loadsBefore)
	}
}

func TestNothingToDo(t *testing.T) {
	store, log := newStore(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	res := execute(t, x, "alice", Touch{})
	if res.Events != nil || res.Mark != (eventstore.Mark{}) || res.Token != (eventstore.Token{}) {
		t.Fatalf("found %+v", res)
	}
	if appends, _, _ := log.count(); appends != 0 {
		t.Fatalf("%d appends", appends)
	}
}

func TestRetriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := newStore(t)
		typ := accounts(aggregate.Snapshots{})
		x, rival := newExecutor(t, store, typ, &aggregate.Options{Retries: 3}), newExecutor(t, store, typ, nil)
		cut := before(func() {
			log.mu.Lock()
			rest := log.faults
			log.faults = nil
			log.mu.Unlock()
			execute(t, rival, "alice", Deposit{1})
			log.next(rest...)
		}, pass)
		log.next(cut, cut, cut, cut, cut)
		_, err := x.Execute(t.Context(), "alice", Deposit{1})
		wantErr(t, err, eventstore.ErrAlreadyWritten)
		if !strings.Contains(err.Error(), "given up after 3 decisions") {
			t.Fatalf("the error does not say so: %v", err)
		}
		if got := len(entries(t, store, alice)); got != 3 {
			t.Fatalf("wanted the rival's 3 events, found %d", got)
		}
	})
}

func TestErrorsBeforeTheWriteAreFinal(t *testing.T) {
	store, log := newStore(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	execute(t, x, "alice", Deposit{1})
	log.next(unavailable)
	_, err := x.Execute(context.Background(), "alice", Deposit{1})
	wantErr(t, err, eventstore.ErrUnavailable)
	res := execute(t, x, "alice", Deposit{1})
	wantBalance(t, res.State, 2, 2)
	if appends, loads, _ := log.count(); appends != 3 || loads != 2 {
		t.Fatalf("wanted the state dropped: 3 appends and 2 loads, found %d and %d", appends, loads)
	}
}

// A history that is another one stops the command, however it is met.
func TestDivergedHistoryStops(t *testing.T) {
	typ := accounts(aggregate.Snapshots{})
	other := func(t *testing.T, n int) (*memlog.Log, *executor) { // a copy that went another way
		log := memlog.New(nil)
		x := newExecutor(t, eventstore.New(log, nil), typ, nil)
		for range n {
			execute(t, x, "alice", Deposit{1000})
		}
		return log, x
	}
	for _, lost := range []int{1, 3, 5} { // shorter, as long, longer
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			store, log := newStore(t)
			x := newExecutor(t, store, typ, nil)
			for range 3 {
				execute(t, x, "alice", Deposit{1})
			}
			log.Log, _ = other(t, lost)
			_, err := x.Execute(context.Background(), "alice", Deposit{1})
			wantErr(t, err, eventstore.ErrDiverged)
			if got := len(entries(t, store, alice)); got != lost {
				t.Fatalf("the other history grew to %d", got)
			}
		})
	}
}

// A repeated command is answered from the history it was written to, or not at all.
func TestRepeatedCommandOnAnotherHistory(t *testing.T) {
	store, log := newStore(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	execute(t, x, "alice", Deposit{1}, aggregate.CommandKey("order 7"))
	log.Log = memlog.New(nil)
	y := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	execute(t, y, "alice", Deposit{2})
	_, err := x.Execute(context.Background(), "alice", Deposit{1}, aggregate.CommandKey("order 7"))
	wantErr(t, err, eventstore.ErrDiverged)

	execute(t, x, "bob", Deposit{1}, aggregate.CommandKey("order 7"))
	log.Log = memlog.New(nil)
	newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	_, err = x.Execute(context.Background(), "bob", Deposit{1}, aggregate.CommandKey("order 7")) // it is gone
	wantErr(t, err, eventstore.ErrDiverged)
}

// The same, met only by the check after the reload, which stands behind a snapshot.
func TestDivergedBelowASnapshotStops(t *testing.T) {
	store, log := newStore(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	execute(t, x, "alice", Deposit{1})

	other := memlog.New(nil)
	y := newExecutor(t, eventstore.New(other, nil), accounts(aggregate.Snapshots{Every: 2}), nil)
	for range 4 {
		execute(t, y, "alice", Deposit{1000})
	}
	log.Log = other
	_, err := x.Execute(context.Background(), "alice", Deposit{1})
	wantErr(t, err, eventstore.ErrDiverged)
}

func TestExpectedMark(t *testing.T) {
	store, _ := newStore(t)
	typ := accounts(aggregate.Snapshots{})
	x, rival := newExecutor(t, store, typ, nil), newExecutor(t, store, typ, nil)
	ctx := context.Background()
	first := execute(t, x, "alice", Deposit{1}, aggregate.Expect(eventstore.Mark{})).Mark
	second := execute(t, x, "alice", Deposit{1}, aggregate.Expect(first)).Mark
	third := execute(t, rival, "alice", Deposit{1}, aggregate.Expect(eventstore.Mark{Seqno: 2})).Mark

	for name, c := range map[string]struct {
		want eventstore.Mark
		kind error
	}{
		"nothing":            {eventstore.Mark{}, eventstore.ErrAlreadyWritten},
		"the one before":     {second, eventstore.ErrAlreadyWritten},
		"a seqno before":     {eventstore.Mark{Seqno: 1}, eventstore.ErrAlreadyWritten},
		"another entry":      {eventstore.Mark{Seqno: 3, ID: first.ID}, eventstore.ErrDiverged},
		"another one before": {eventstore.Mark{Seqno: 2, ID: first.ID}, eventstore.ErrDiverged},
		"one that is gone":   {eventstore.Mark{Seqno: 9, ID: first.ID}, eventstore.ErrDiverged},
		"a seqno above":      {eventstore.Mark{Seqno: 9}, eventstore.ErrGap},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := x.Execute(ctx, "alice", Deposit{1}, aggregate.Expect(c.want))
			wantErr(t, err, c.kind)
			e, ok := errors.AsType[*eventstore.Error](err)
			if !ok || e.Head == nil || e.Head.Last != third || e.Stream != alice {
				t.Fatalf("facts: %+v", e)
			}
		})
	}
	execute(t, x, "alice", Deposit{1}, aggregate.Expect(third)) // x's cache stood at 2
	if n := len(entries(t, store, alice)); n != 4 {
		t.Fatalf("%d events", n)
	}
}

// Somebody writes between the decision and the append: the expectation is then wrong.
func TestExpectedMarkLostInARace(t *testing.T) {
	store, log := newStore(t)
	typ := accounts(aggregate.Snapshots{})
	x, rival := newExecutor(t, store, typ, nil), newExecutor(t, store, typ, nil)
	at := execute(t, x, "alice", Deposit{1}).Mark
	log.next(before(func() { execute(t, rival, "alice", Deposit{1}) }, pass))
	_, err := x.Execute(context.Background(), "alice", Deposit{1}, aggregate.Expect(at))
	wantErr(t, err, eventstore.ErrAlreadyWritten)
}

func TestMetadata(t *testing.T) {
	store, _ := newStore(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	id := eventstore.NewUUID()
	execute(t, x, "alice", Shift{[]int64{1, 2}}, aggregate.CommandID(id), aggregate.Correlation("order 7"), aggregate.Causation("mail"),
		aggregate.Metadata(eventstore.Metadata{"tenant": "blue"}))
	all := entries(t, store, alice)
	for _, e := range all {
		if m := e.Metadata; m[eventstore.MetaCommand] != id.String() || m[eventstore.MetaCorrelation] != "order 7" ||
			m[eventstore.MetaCausation] != "mail" || m["tenant"] != "blue" || len(m) != 4 {
			t.Fatalf("metadata %v", m)
		}
	}
	execute(t, x, "bob", Deposit{1}, aggregate.CausedBy(all[0]))
	m := entries(t, store, "account-bob")[0].Metadata
	if m[eventstore.MetaCausation] != all[0].ID.String() || m[eventstore.MetaCorrelation] != "order 7" || len(m) != 2 {
		t.Fatalf("metadata %v", m)
	}
}

func TestBadInput(t *testing.T) {
	store, log := newStore(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	ctx := context.Background()
	for name, call := range map[string]func() error{
		"empty key":  func() error { _, err := x.Execute(ctx, "", Touch{}); return err },
		"NUL in key": func() error { _, err := x.Execute(ctx, "a\x00b", Touch{}); return err },
		"zero command": func() error {
			_, err := x.Execute(ctx, "a", Touch{}, aggregate.CommandID(eventstore.UUID{}))
			return err
		},
		"empty command": func() error { _, err := x.Execute(ctx, "a", Touch{}, aggregate.CommandKey("")); return err },
		"reserved key": func() error {
			_, err := x.Execute(ctx, "a", Touch{}, aggregate.Metadata(eventstore.Metadata{"command_id": "1"}))
			return err
		},
		"foreign expect": func() error {
			_, err := x.Execute(ctx, "a", Touch{}, aggregate.ExpectOf("b", eventstore.Mark{}))
			return err
		},
		"bad correlation": func() error { _, err := x.Execute(ctx, "a", Deposit{1}, aggregate.Correlation("\xff")); return err },
		"no keys":         func() error { _, err := x.ExecuteMulti(ctx, nil, nil); return err },
		"twice the key":   func() error { _, err := x.ExecuteMulti(ctx, []string{"a", "a"}, nil); return err },
		"expect of many": func() error {
			_, err := x.ExecuteMulti(ctx, []string{"a", "b"}, nil, aggregate.Expect(eventstore.Mark{}))
			return err
		},
		"load":     func() error { _, _, err := x.Load(ctx, "\n"); return err },
		"snapshot": func() error { _, err := x.Snapshot(ctx, "\n"); return err },
	} {
		t.Run(name, func(t *testing.T) { wantErr(t, call(), eventstore.ErrInvalid) })
	}
	page, err := log.ReadFeed(ctx, 0, eventstore.Filter{}, 10)
	if err != nil || len(page.Entries) != 0 {
		t.Fatalf("written: %v, %v", page.Entries, err)
	}
}

func TestNewExecutorTellsEveryMistake(t *testing.T) {
	type hidden struct {
		balance int //lint:ignore U1000 it is looked at by reflection
	}
	bad := aggregate.Type[hidden, Command, Event]{Category: "ac-count", Schema: schema.New[Event](),
		Snapshots: aggregate.Snapshots{Every: 10, Version: -1}}
	_, err := aggregate.NewExecutor(context.Background(), nil, bad, &aggregate.Options{Retries: -1})
	for _, want := range []string{"'-' at byte 2", "no event type", "Initial, Decide and Evolve", "Version -1", "no store", "Retries", "State.balance"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("wanted %q in: %v", want, err)
		}
	}
	wantErr(t, err, eventstore.ErrInvalid)
	wantErr(t, err, schema.ErrRegistration)

	store, _ := newStore(t)
	if err := store.CreateCategory(context.Background(), eventstore.CategorySpec{Name: "account", TrimFreely: true}); err != nil {
		t.Fatal(err)
	}
	_, err = aggregate.NewExecutor(context.Background(), store, accounts(aggregate.Snapshots{}), nil)
	wantErr(t, err, eventstore.ErrInvalid)
}

// What is folded is what a load gives: here JSON drops the wall clock's zone and
// monotonic part, warm as cold.
func TestWarmStateEqualsColdState(t *testing.T) {
	type stamped struct{ At time.Time }
	typ := aggregate.Type[time.Time, time.Time, stamped]{Category: "clock", Schema: schema.New[stamped](schema.Wire[stamped]("stamped", 1)),
		Decider: aggregate.Decider[time.Time, time.Time, stamped]{
			Initial: func() time.Time { return time.Time{} },
			Decide:  func(_, c time.Time) ([]stamped, error) { return []stamped{{c}}, nil },
			Evolve:  func(_ time.Time, e stamped) time.Time { return e.At },
		}}
	store, _ := newStore(t)
	x, err := aggregate.NewExecutor(context.Background(), store, typ, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := x.Execute(context.Background(), "a", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cold, _, err := x.Load(context.Background(), "a")
	if err != nil || res.State != cold || res.Events[0].At != cold {
		t.Fatalf("warm %#v, cold %#v, %v", res.State, cold, err)
	}
}

// An event of a type that is not registered is never written; one that is stored
// and not registered here stops the command.
func TestUnknownEventTypes(t *testing.T) {
	store, log := newStore(t)
	typ := accounts(aggregate.Snapshots{})
	newExecutor(t, store, typ, nil)
	older := typ
	older.Schema = schema.New[Event](schema.Wire[Opened]("opened", 1), schema.Wire[Withdrawn]("withdrawn", 1))
	x := newExecutor(t, store, older, nil)
	_, err := x.Execute(context.Background(), "alice", Deposit{1})
	wantErr(t, err, schema.ErrEncode)
	if appends, _, _ := log.count(); appends != 0 {
		t.Fatal("it was sent")
	}
	execute(t, newExecutor(t, store, typ, nil), "alice", Deposit{1})
	_, err = x.Execute(context.Background(), "alice", Open{"Alice"})
	wantErr(t, err, schema.ErrUnknownType)
	e, _ := errors.AsType[*schema.Error](err)
	if e.Stream != alice || e.Seqno != 1 || e.Type != "deposited" || e.Version != 1 || e.Known != "opened/1, withdrawn/1" {
		t.Fatalf("facts: %+v", e)
	}
}
