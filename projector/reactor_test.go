// The reactor: one effect for each command, wherever it is interrupted.

package projector_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/projector"
)

// A ledger takes what deposits call for: its state is how often each was booked.
type (
	book         struct{ Place string }
	booked       struct{ Place string }
	placesBooked map[string]int
)

var bookings = schema.New[booked](schema.Wire[booked]("booked", 1))

// reaction is a store with deposits, and a reactor that books each twice over, under
// two places, on one ledger. crash is asked at each step.
type reaction struct {
	*env
	exec    *aggregate.Executor[placesBooked, book, booked]
	kept    *projector.MemoryCheckpoints
	version int
	crash   func(point string) error
	issued  []eventstore.UUID
	refuse  error
}

func newReaction(t testing.TB, remembered int) *reaction {
	r := &reaction{env: newEnv(t, nil), kept: &projector.MemoryCheckpoints{}, version: 1}
	var err error
	r.exec, err = aggregate.NewExecutor(t.Context(), r.store, aggregate.Type[placesBooked, book, booked]{
		Category: "booking", Schema: bookings, Snapshots: aggregate.Snapshots{RememberedIDs: remembered},
		Decider: aggregate.Decider[placesBooked, book, booked]{
			Initial: func() placesBooked { return nil },
			Decide:  func(_ placesBooked, c book) ([]booked, error) { return []booked{booked(c)}, r.refuse },
			Evolve: func(l placesBooked, e booked) placesBooked {
				next := placesBooked{}
				for k, v := range l {
					next[k] = v
				}
				next[e.Place]++
				return next
			},
		},
	}, nil)
	r.ok(err)
	return r
}

func (r *reaction) at(point string) error {
	if r.crash == nil {
		return nil
	}
	return r.crash(point)
}

// keeper keeps checkpoints, unless it crashes before or after.
type keeper struct{ *reaction }

func (c keeper) Load(ctx context.Context, key projector.Key) (projector.Checkpoint, error) {
	return c.kept.Load(ctx, key)
}

func (c keeper) Save(ctx context.Context, s projector.Step) error {
	if err := c.at("before save"); err != nil {
		return err
	}
	if err := c.kept.Save(ctx, s); err != nil {
		return err
	}
	return c.at("after save")
}

// reactor is a new instance, as after a restart.
func (r *reaction) reactor() *projector.Projector {
	return projector.NewReactor(r.store, "bookings", "account", keeper{r}, projector.ReactorOptions[Event, book]{
		Events: events,
		React: func(e projector.Event[Event]) ([]book, error) {
			place := fmt.Sprintf("%s@%d", e.Stream, e.Seqno)
			return []book{{place + " debit"}, {place + " credit"}}, nil
		},
		Issue: func(ctx context.Context, c projector.Command[book]) error {
			if err := r.at("before issue"); err != nil {
				return err
			}
			r.issued = append(r.issued, c.ID)
			if _, err := r.exec.Execute(ctx, "main", c.Value, aggregate.CommandID(c.ID), aggregate.CausedBy(c.Entry)); err != nil {
				return err
			}
			return r.at("after issue")
		},
		Projector: projector.Options{Version: r.version, PageSize: 3},
	})
}

// check demands that each deposit was booked once on each side.
func (r *reaction) check(deposits int) {
	r.t.Helper()
	state, last, err := r.exec.Load(r.t.Context(), "main")
	r.ok(err)
	if len(state) != 2*deposits || int(last.Seqno) != 2*deposits {
		r.t.Fatalf("%d places booked by %d entries, want %d each", len(state), last.Seqno, 2*deposits)
	}
	for place, n := range state {
		if n != 1 {
			r.t.Fatalf("%s booked %d times", place, n)
		}
	}
}

var errCut = errors.New("crash")

// Every run ends at a random step; each instance begins where the last one left off.
func TestReactorCrashAtEveryStep(t *testing.T) {
	const deposits = 12
	points := map[string]int{}
	for first := range 60 { // the first crash comes at each step once, the others anywhere
		seed := uint64(first)
		r := newReaction(t, 4)
		rng := rand.New(rand.NewPCG(seed, 1))
		left := first + 1
		r.crash = func(point string) error {
			if left--; left > 0 {
				return nil
			}
			left = 1 + rng.IntN(20)
			points[point]++
			return errCut
		}
		r.deposit("account-1", deposits/2)
		r.deposit("account-2", deposits/2)
		done := false
		for range 400 {
			if more, err := r.reactor().CatchUp(t.Context(), 0); err == nil && !more {
				done = true
				break
			} else if err != nil && !errors.Is(err, errCut) {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if !done {
			t.Fatalf("seed %d: not done after 400 runs", seed)
		}
		r.check(deposits)
	}
	for _, point := range []string{"before issue", "after issue", "before save", "after save"} {
		if points[point] == 0 {
			t.Errorf("no crash %s", point)
		}
	}
	t.Log("crashes:", points)
}

// An instance that was frozen before it issued goes on when another has done it all:
// what it issues is known, and it keeps nothing.
func TestReactorFrozen(t *testing.T) {
	const deposits = 6
	r := newReaction(t, 0)
	r.deposit("account-1", deposits)
	var overtook error
	steps := 0
	r.crash = func(point string) error {
		if steps++; steps == 4 { // in the middle of the first page
			r.crash = nil
			_, overtook = r.reactor().CatchUp(t.Context(), 0)
		}
		return nil
	}
	_, err := r.reactor().CatchUp(t.Context(), 0)
	r.ok(overtook)
	if err != nil {
		wantKind(t, err, eventstore.ErrFenced)
	}
	if len(r.issued) <= 2*deposits {
		t.Fatalf("%d issued: nothing was issued twice", len(r.issued))
	}
	r.check(deposits)
}

// A version that is built anew issues everything again, under the same IDs. The target
// remembers four of them: that the others are old is told by their time.
func TestReactorRebuiltIssuesNothingTwice(t *testing.T) {
	const deposits = 30
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := newReaction(t, 4)
	r.log.Log = memlog.New(&memlog.Options{Now: func() time.Time { now = now.Add(time.Millisecond); return now }})
	for _, c := range []eventstore.Category{"account", "booking"} {
		r.ok(r.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c}))
	}
	r.deposit("account-1", deposits)
	catchUp := func() []eventstore.UUID {
		r.issued = nil
		_, err := r.reactor().CatchUp(t.Context(), 0)
		r.ok(err)
		r.check(deposits)
		return r.issued
	}
	old := catchUp()
	r.version = 2
	again := catchUp()
	seen := map[eventstore.UUID]bool{}
	for i, id := range old {
		if again[i] != id {
			t.Fatalf("command %d has ID %v, and %v in the new version", i, id, again[i])
		}
		if seen[id] {
			t.Fatalf("command %d has the ID %v of another", i, id)
		}
		seen[id] = true
	}
	if len(old) != 2*deposits || len(again) != 2*deposits {
		t.Fatalf("issued %d and %d commands, want %d", len(old), len(again), 2*deposits)
	}
}

// An ID tells the reactor, the entry and the ordinal; its time is the entry's.
func TestCommandUUID(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 789_000_000, time.UTC)
	e := eventstore.Entry{Event: eventstore.Event{ID: eventstore.UUID{1}}, Stream: "order-1", Seqno: 7, Time: at}
	id := projector.CommandUUID("shipping", e, 0)
	if want := "019c21ac-ec65-7"; id.String()[:15] != want { // 2026-02-03T04:05:06.789Z in milliseconds
		t.Errorf("ID %v of %v, want it to begin with %s", id, at, want)
	}
	later := e
	later.Time, later.Position, later.Epoch = at, 9, 4
	if projector.CommandUUID("shipping", later, 0) != id {
		t.Error("position or epoch changes the ID")
	}
	other := []eventstore.UUID{id, projector.CommandUUID("shipping", e, 1), projector.CommandUUID("billing", e, 0)}
	moved, next, twin := e, e, e
	moved.Stream, next.Seqno, twin.ID = "order-2", 8, eventstore.UUID{2}
	for _, e := range []eventstore.Entry{moved, next, twin} {
		other = append(other, projector.CommandUUID("shipping", e, 0))
	}
	for i, a := range other {
		for _, b := range other[:i] {
			if a == b {
				t.Errorf("ID %v twice", a)
			}
		}
	}
}

// A refusal that Issue returns is tried again and then stops the reactor, naming the
// entry; what stands before it is done.
func TestReactorRefusal(t *testing.T) {
	refusal := errors.New("account closed")
	r := newReaction(t, 0)
	r.deposit("account-1", 1)
	_, err := r.reactor().CatchUp(t.Context(), 0)
	r.ok(err)
	r.deposit("account-1", 1)
	r.refuse = refusal
	err = r.reactor().Run(within(t))
	bad, ok := errors.AsType[*projector.EntryError](err)
	if !ok || !errors.Is(err, refusal) || bad.Seqno != 2 || bad.Permanent {
		t.Fatalf("error %v, want the refusal of entry 2", err)
	}
	if len(r.issued) != 2+projector.DefaultTries {
		t.Fatalf("issued %d times, want %d", len(r.issued), 2+projector.DefaultTries)
	}
	r.refuse = nil
	_, err = r.reactor().CatchUp(t.Context(), 0)
	r.ok(err)
	r.check(2)
}

// With a Control the key whose command is refused is parked and the others go on; the
// command keeps its ID. A version in the shadow issues nothing.
func TestReactorParksAndKeepsQuiet(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-1", 2)
	e.deposit("account-2", 2)
	kept := &projector.MemoryCheckpoints{}
	ids := map[eventstore.Position]eventstore.UUID{} // of each entry's command
	issued := 0
	var refusal error = errors.New("account closed")
	reactor := func(version int) *projector.Projector {
		return projector.NewReactor(e.store, "r", "account", kept, projector.ReactorOptions[Event, int]{
			Events: events,
			React:  func(projector.Event[Event]) ([]int, error) { return []int{1}, nil },
			Issue: func(_ context.Context, c projector.Command[int]) error {
				if id, known := ids[c.Entry.Position]; known && id != c.ID {
					t.Errorf("entry at %d has command %v, and %v again", c.Entry.Position, id, c.ID)
				}
				ids[c.Entry.Position] = c.ID
				if c.Entry.Stream == "account-1" && refusal != nil {
					return refusal
				}
				issued++
				return nil
			},
			Projector: projector.Options{Version: version, Tries: 1},
		})
	}
	_, err := reactor(1).CatchUp(t.Context(), 0)
	e.ok(err)
	versions, err := kept.Versions(t.Context(), "r")
	e.ok(err)
	if issued != 2 || len(versions) != 1 || len(versions[0].Parked) != 1 || versions[0].Parked[0].StreamKey != "1" || versions[0].Parked[0].Count != 2 {
		t.Fatalf("%d issued; %+v", issued, versions)
	}
	_, err = reactor(2).CatchUp(t.Context(), 0)
	e.ok(err)
	if issued != 2 || len(ids) != 3 {
		t.Fatalf("%d issued for %d entries with a shadow", issued, len(ids))
	}
	refusal = nil
	e.ok(kept.Update(t.Context(), "r", func(all []projector.Version) ([]projector.Version, error) {
		all[0].Parked[0].Request = projector.Retry
		all[0].Fence(eventstore.UUID{})
		return all, nil
	}))
	_, err = reactor(1).CatchUp(t.Context(), 0)
	e.ok(err)
	if issued != 4 || len(ids) != 4 {
		t.Fatalf("%d issued for %d entries after the retry", issued, len(ids))
	}
}

func TestReactorMistakes(t *testing.T) {
	e := newEnv(t, nil)
	good := func() projector.ReactorOptions[Event, int] {
		return projector.ReactorOptions[Event, int]{Events: events,
			React: func(projector.Event[Event]) ([]int, error) { return nil, nil },
			Issue: func(context.Context, projector.Command[int]) error { return nil }}
	}
	kept := &projector.MemoryCheckpoints{}
	for name, change := range map[string]func(o *projector.ReactorOptions[Event, int]) projector.Checkpoints{
		"checkpoints": func(*projector.ReactorOptions[Event, int]) projector.Checkpoints { return nil },
		"events":      func(o *projector.ReactorOptions[Event, int]) projector.Checkpoints { o.Events = nil; return kept },
		"react":       func(o *projector.ReactorOptions[Event, int]) projector.Checkpoints { o.React = nil; return kept },
		"issue":       func(o *projector.ReactorOptions[Event, int]) projector.Checkpoints { o.Issue = nil; return kept },
	} {
		o := good()
		c := change(&o)
		_, err := projector.NewReactor(e.store, "r", "account", c, o).CatchUp(t.Context(), 0)
		if !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("without %s: %v, want ErrInvalid", name, err)
		}
	}
	e.deposit("account-1", 1)
	o := good()
	o.React = func(projector.Event[Event]) ([]int, error) { return make([]int, projector.MaxCommands+1), nil }
	o.Projector.StopOnPoison = true
	_, err := projector.NewReactor(e.store, "many", "account", kept, o).CatchUp(t.Context(), 0)
	wantKind(t, err, eventstore.ErrTooLarge)
}
