// Snapshots, the cache's bound, and states of the past.

package aggregate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
)

// kept is a memlog that tells where snapshots were saved and loaded, or refuses them.
type kept struct {
	*memlog.Log
	saved  []eventstore.Snapshot
	used   []eventstore.Seqno // of each Load; 0: replayed from the first entry
	refuse error
}

func (k *kept) SaveSnapshot(ctx context.Context, sn eventstore.Snapshot) error {
	if k.refuse != nil {
		return k.refuse
	}
	k.saved = append(k.saved, sn)
	return k.Log.SaveSnapshot(ctx, sn)
}

func (k *kept) Load(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error) {
	l, err := k.Log.Load(ctx, s, fingerprint, limit)
	at := eventstore.Seqno(0)
	if l.Snapshot != nil {
		at = l.Snapshot.At.Seqno
	}
	k.used = append(k.used, at)
	return l, err
}

func newKept(t *testing.T) (*eventstore.Store, *kept, *bytes.Buffer) {
	log, text := &kept{Log: memlog.New(nil)}, new(bytes.Buffer)
	store := eventstore.New(log, &eventstore.Options{Logger: slog.New(slog.NewTextHandler(text, nil))})
	t.Cleanup(func() { store.Close() })
	return store, log, text
}

func (k *kept) savedAt() string {
	var at []eventstore.Seqno
	for _, s := range k.saved {
		at = append(at, s.At.Seqno)
	}
	return fmt.Sprint(at)
}

// Snapshots are made by count, after the append, warm as cold, and the load with
// each of them equals the fold of everything (I15).
func TestSnapshotsByCount(t *testing.T) {
	for _, cache := range []int{0, -1} {
		store, log, _ := newKept(t)
		x := newExecutor(t, store, accounts(aggregate.Snapshots{Every: 10}), &aggregate.Options{CacheBytes: cache})
		for i := range int64(25) {
			res := execute(t, x, "alice", Deposit{i})
			s, m, err := x.Load(context.Background(), "alice")
			if err != nil || s != res.State || m != res.Mark || s.Events != int(i)+1 {
				t.Fatalf("loaded %+v at %v, executed %+v, %v", s, m, res, err)
			}
		}
		execute(t, x, "alice", Shift{make([]int64, 9)})
		if got := log.savedAt(); got != "[10 20 34]" {
			t.Fatalf("snapshots at %s", got)
		}
		if last := log.used[len(log.used)-1]; last == 0 {
			t.Fatal("the last load used no snapshot")
		}
	}
}

func TestSnapshotFailureIsNoFailureOfTheCommand(t *testing.T) {
	store, log, text := newKept(t)
	log.refuse = &eventstore.Error{Kind: eventstore.ErrOverloaded}
	x := newExecutor(t, store, accounts(aggregate.Snapshots{Every: 2}), nil)
	for range 5 {
		execute(t, x, "alice", Deposit{1})
	}
	if n := strings.Count(text.String(), "snapshot not saved"); n != 2 {
		t.Fatalf("wanted 2 warnings, found %d:\n%s", n, text)
	}
}

// T1: layout or meaning of State changed, so the older snapshot is left out.
func TestT1FingerprintChange(t *testing.T) {
	store, log, text := newKept(t)
	typ := accounts(aggregate.Snapshots{Every: 50})
	execute(t, newExecutor(t, store, typ, nil), "alice", Shift{make([]int64, 50)})

	typ.Snapshots.Version = 1 // Evolve changed its meaning
	typ.Decider.Evolve = func(s State, e Event) State { s.Events += 2; return s }
	s, _, err := newExecutor(t, store, typ, nil).Load(context.Background(), "alice")
	if err != nil || s.Events != 100 {
		t.Fatalf("found %+v, %v", s, err)
	}
	type state2 struct { // another layout
		Count   int
		Balance int64
	}
	typ2 := aggregate.Type[state2, Command, Event]{Category: "account", Schema: events, Snapshots: aggregate.Snapshots{Every: 50},
		Decider: aggregate.Decider[state2, Command, Event]{Initial: func() state2 { return state2{} },
			Decide: func(state2, Command) ([]Event, error) { return nil, nil },
			Evolve: func(s state2, _ Event) state2 { s.Count++; return s }}}
	x2, err := aggregate.NewExecutor(context.Background(), store, typ2, nil)
	if err != nil {
		t.Fatal(err)
	}
	s2, _, err := x2.Load(context.Background(), "alice")
	if err != nil || s2.Count != 50 {
		t.Fatalf("found %+v, %v", s2, err)
	}
	if n := strings.Count(text.String(), "made by code with fingerprint"); n != 2 {
		t.Fatalf("wanted 2 warnings, found %d:\n%s", n, text)
	}
	if fmt.Sprint(log.used) != "[0 0 0]" {
		t.Fatalf("used %v", log.used)
	}
}

// A new event type makes no snapshot wrong, and a trimmed stream stays loadable.
func TestNewEventTypeKeepsSnapshots(t *testing.T) {
	store, _, _ := newKept(t)
	typ := accounts(aggregate.Snapshots{Every: 4})
	old := typ
	old.Schema = schema.New[Event](schema.Wire[Deposited]("deposited", 1))
	execute(t, newExecutor(t, store, old, nil), "alice", Shift{[]int64{1, 1, 1, 1}})
	if _, err := store.Trim(context.Background(), alice, 4, false); err != nil {
		t.Fatal(err)
	}
	wantBalance(t, execute(t, newExecutor(t, store, typ, nil), "alice", Withdraw{1}).State, 3, 5)
}

// I15: a snapshot whose data cannot be read is replayed around.
func TestUnreadableSnapshot(t *testing.T) {
	store, log, text := newKept(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{Every: 3}), nil)
	execute(t, x, "alice", Shift{[]int64{1, 2, 3}})
	bad := log.saved[0]
	bad.Data = []byte(`{"state":[`)
	if err := store.SaveSnapshot(context.Background(), bad); err != nil {
		t.Fatal(err)
	}
	s, _, err := x.Load(context.Background(), "alice")
	if err != nil || !strings.Contains(text.String(), "snapshot not readable") {
		t.Fatalf("%v:\n%s", err, text)
	}
	wantBalance(t, s, 6, 3)
}

func TestSnapshotOnDemand(t *testing.T) {
	store, log, _ := newKept(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	ctx := context.Background()
	if m, err := x.Snapshot(ctx, "alice"); err != nil || m.Seqno != 0 {
		t.Fatalf("%v, %v", m, err)
	}
	at := execute(t, x, "alice", Deposit{1}).Mark
	for range 2 { // the second finds it there
		if m, err := x.Snapshot(ctx, "alice"); err != nil || m != at {
			t.Fatalf("%v, %v", m, err)
		}
	}
	if log.savedAt() != "[1]" {
		t.Fatal(log.savedAt())
	}
	typ := aggregate.Type[func(), Command, Event]{Category: "account", Schema: events, Decider: aggregate.Decider[func(), Command, Event]{
		Initial: func() func() { return nil }, Decide: func(func(), Command) ([]Event, error) { return nil, nil }, Evolve: func(s func(), _ Event) func() { return s }}}
	y, err := aggregate.NewExecutor(ctx, store, typ, nil) // without Every any State will do
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.Snapshot(ctx, "alice"); err == nil || !strings.Contains(err.Error(), "JSON has no func") {
		t.Fatal(err)
	}
}

// S1: numbers keep every digit through events, generic fields, state and snapshot.
func TestS1NumbersAreExact(t *testing.T) {
	type noted struct {
		Exact int64
		Any   any
		Raw   json.Number
	}
	typ := aggregate.Type[[]noted, noted, noted]{Category: "note", Schema: schema.New[noted](schema.Wire[noted]("noted", 1)),
		Snapshots: aggregate.Snapshots{Every: 1},
		Decider: aggregate.Decider[[]noted, noted, noted]{
			Initial: func() []noted { return nil },
			Decide:  func(_ []noted, c noted) ([]noted, error) { return []noted{c}, nil },
			Evolve:  func(s []noted, e noted) []noted { return append(s[:len(s):len(s)], e) },
		}}
	store, log, _ := newKept(t)
	x, err := aggregate.NewExecutor(context.Background(), store, typ, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []json.Number{"12345678901234567890", "0.1234567890123456789", "9223372036854775807", "1e400"} {
		if _, err := x.Execute(context.Background(), "a", noted{Exact: 9223372036854775807, Any: map[string]any{"n": n, "html": "<&>"}, Raw: n}); err != nil {
			t.Fatal(err)
		}
		payload := fmt.Sprintf(`{"Exact":9223372036854775807,"Any":{"html":"<&>","n":%s},"Raw":%[1]s}`, n)
		all := entries(t, store, "note-a")
		if got := string(all[len(all)-1].Data); got != payload {
			t.Fatalf("stored %s, wanted %s", got, payload)
		}
		s, _, err := x.Load(context.Background(), "a") // from the snapshot made just now
		if err != nil || log.used[len(log.used)-1] != all[len(all)-1].Seqno {
			t.Fatalf("%v, %v", log.used, err)
		}
		last := s[len(s)-1]
		if last.Raw != n || last.Exact != 9223372036854775807 || last.Any.(map[string]any)["n"] != n {
			t.Fatalf("found %#v, wanted %s", last, n)
		}
	}
}

// The cache is bounded in bytes: the stream not used for longest is loaded again.
func TestCacheEviction(t *testing.T) {
	store, log := newStore(t)
	typ := accounts(aggregate.Snapshots{})
	typ.Size = func(State) int { return 10_000 }
	x := newExecutor(t, store, typ, &aggregate.Options{CacheBytes: 35_000}) // three states
	for _, key := range []string{"a", "b", "c"} {
		execute(t, x, key, Deposit{1})
	}
	execute(t, x, "a", Deposit{1})
	execute(t, x, "d", Deposit{1}) // b has to go
	if _, loads, _ := log.count(); loads != 4 {
		t.Fatalf("%d loads", loads)
	}
	for _, key := range []string{"a", "c", "d"} {
		execute(t, x, key, Deposit{1})
	}
	if _, loads, _ := log.count(); loads != 4 {
		t.Fatalf("%d loads", loads)
	}
	wantBalance(t, execute(t, x, "b", Deposit{1}).State, 2, 2)
	if _, loads, _ := log.count(); loads != 5 {
		t.Fatalf("%d loads", loads)
	}
	typ.Size = func(State) int { return 40_000 } // more than there is room for
	y := newExecutor(t, store, typ, &aggregate.Options{CacheBytes: 35_000})
	execute(t, y, "a", Deposit{1})
	wantBalance(t, execute(t, y, "a", Deposit{1}).State, 5, 5)
}

// A stream that is trimmed while its pages are read is loaded again.
func TestTrimmedWhileLoading(t *testing.T) {
	store, log := newStore(t)
	typ := accounts(aggregate.Snapshots{Every: 1500})
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	for range 3 {
		execute(t, x, "alice", Shift{make([]int64, 500)})
	}
	maker := newExecutor(t, store, typ, nil)
	once := false
	store2 := eventstore.New(&trimming{faulty: log, trim: func() {
		if !once {
			once = true
			if _, err := maker.Snapshot(context.Background(), "alice"); err != nil {
				t.Error(err)
			}
			if _, err := store.Trim(context.Background(), alice, 1500, false); err != nil {
				t.Error(err)
			}
		}
	}}, nil)
	slow := newExecutor(t, store2, typ, nil)
	s, m, err := slow.Load(context.Background(), "alice")
	if err != nil || m.Seqno != 1500 || !once {
		t.Fatalf("%v, %v, trimmed %v", m, err, once)
	}
	wantBalance(t, s, 0, 1500)
}

// trimming calls trim after each Load, before its further pages are read.
type trimming struct {
	*faulty
	trim func()
}

func (l *trimming) Load(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error) {
	got, err := l.faulty.Load(ctx, s, fingerprint, limit)
	l.trim()
	return got, err
}

func TestStatesOfThePast(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	log := memlog.New(&memlog.Options{Now: func() time.Time { return now }})
	store := eventstore.New(log, nil)
	defer store.Close()
	x := newExecutor(t, store, accounts(aggregate.Snapshots{Every: 4}), nil)
	start := now
	for range 10 { // one a minute, the first at start; snapshots at 4 and 8
		execute(t, x, "alice", Deposit{1})
		now = now.Add(time.Minute)
	}
	ctx := context.Background()
	for n := range 11 {
		s, m, err := x.LoadAt(ctx, "alice", eventstore.Seqno(n))
		if err != nil || m.Seqno != eventstore.Seqno(n) {
			t.Fatalf("at %d: %v, %v", n, m, err)
		}
		wantBalance(t, s, int64(n), n)
		s, m, err = x.LoadAsOf(ctx, "alice", start.Add(time.Duration(n)*time.Minute-time.Second))
		if err != nil || m.Seqno != eventstore.Seqno(n) {
			t.Fatalf("as of minute %d: %v, %v", n, m, err)
		}
		wantBalance(t, s, int64(n), n)
	}
	_, _, err := x.LoadAt(ctx, "alice", 11)
	wantErr(t, err, eventstore.ErrGap)
	if _, err := store.Trim(ctx, alice, 6, false); err != nil {
		t.Fatal(err)
	}
	s, _, err := x.LoadAt(ctx, "alice", 9)
	if err != nil {
		t.Fatal(err)
	}
	wantBalance(t, s, 9, 9)
	_, _, err = x.LoadAt(ctx, "alice", 7) // the snapshot stands at 8
	wantErr(t, err, eventstore.ErrTrimmed)
	_, _, err = x.LoadAsOf(ctx, "alice", start)
	wantErr(t, err, eventstore.ErrTrimmed)
	if s, m, err := x.Load(ctx, "nobody"); err != nil || m != (eventstore.Mark{}) || s != (State{}) {
		t.Fatalf("%v %v %v", s, m, err)
	}
	_, _, err = x.Load(ctx, "")
	if e, ok := errors.AsType[*eventstore.Error](err); !ok || e.Kind != eventstore.ErrInvalid {
		t.Fatal(err)
	}
}
