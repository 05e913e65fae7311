// A projector over several backends: each entry once, a checkpoint for each, one
// instance at a time, and a state that is that of the worst.

package projector_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

func TestPartsHandleEachEntryOnce(t *testing.T) {
	r, db := newRouted(t, nil), &tables{}
	p := r.over(db, projector.Options{PageSize: 3})
	stop := run(t, p)
	for i := range 30 {
		r.ok(p.Wait(within(t), r.deposit(stream(i%3), 1)))
		r.append("item-x", Deposited{1}) // of red, and not followed
		r.ok(p.Wait(within(t), r.deposit(order(i%2), 2)))
	}
	if red, blue := db.handled(keyRed), db.handled(keyBlue); red != 30 || blue != 60 {
		t.Errorf("handled %d and %d, want 30 and 60", red, blue)
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v", err)
	}
	db.check(r)
	if p.Key() != keyRed {
		t.Errorf("key %v, want %v", p.Key(), keyRed)
	}
	if red, blue := db.checkpoint(keyRed), db.checkpoint(keyBlue); red.Incarnation == blue.Incarnation || red.Position == blue.Position {
		t.Errorf("checkpoints %v, %v: want two of two stores", red, blue)
	}
	// Again, by calls that are bounded.
	again := &tables{}
	if more, err := r.over(again, projector.Options{PageSize: 7}).CatchUp(t.Context(), 0); more || err != nil || again.handled(keyRed) != 30 || again.handled(keyBlue) != 60 {
		t.Errorf("more %v, %v: handled %d and %d", more, err, again.handled(keyRed), again.handled(keyBlue))
	}
	again.check(r)
}

// Whatever fails, and wherever: each entry is handled once.
func TestPartsCrashAnywhere(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	r, db := newRouted(t, nil), &tables{}
	failed := 0
	for i := range 200 {
		r.deposit(stream(rng.IntN(3)), rng.IntN(4))
		r.deposit(order(rng.IntN(3)), rng.IntN(4))
		left := rng.IntN(12)
		db.failing(func(projector.Key, string) error {
			if left--; left == 0 {
				return errOutage
			}
			return nil
		})
		// The same projector for some rounds, as a process has it, or a new one.
		p := r.over(db, projector.Options{PageSize: 1 + rng.IntN(4)})
		for range 1 + rng.IntN(2) {
			if _, err := p.CatchUp(t.Context(), 0); err != nil {
				failed++
			}
		}
		if db.check(r); t.Failed() {
			t.Fatalf("round %d", i)
		}
	}
	db.failing(nil)
	if more, err := r.over(db).CatchUp(t.Context(), 0); more || err != nil {
		t.Fatal(more, err)
	}
	db.check(r)
	if want := len(r.of(r.red, "account")) + len(r.of(r.blue, "order")); db.handled(keyRed)+db.handled(keyBlue) != want || failed < 50 {
		t.Errorf("handled %d of %d with %d failures", db.handled(keyRed)+db.handled(keyBlue), want, failed)
	}
}

// of returns what a backend has of a category.
func (r *routed) of(log *bentLog, c eventstore.Category) (all []eventstore.Entry) {
	for e, err := range eventstore.New(log.Log, nil).Feed(context.Background(), 0, eventstore.Filter{Categories: []eventstore.Category{c}}) {
		r.ok(err)
		all = append(all, e)
	}
	return all
}

// On one backend the key is as it always was; another backend joins without anything
// being handled again; what would begin anew is refused.
func TestPartsKeepTheirCheckpoints(t *testing.T) {
	r, db := newRouted(t, nil), &tables{}
	r.deposit("account-a", 5)
	r.deposit("order-a", 5)
	r.deposit("item-a", 5)
	catchUp := func(store *eventstore.Store, first eventstore.Category, more ...eventstore.Category) error {
		_, err := projector.New(store, "p", first, db, &projector.Options{Categories: more}).CatchUp(t.Context(), 0)
		return err
	}
	r.ok(catchUp(eventstore.New(r.red, nil), "account")) // before there was a Route
	r.ok(catchUp(r.store, "account"))
	if db.handled(keyRed) != 5 || len(db.kept) != 1 {
		t.Errorf("handled %d under %v, want 5 under one key", db.handled(keyRed), db.kept)
	}
	r.ok(catchUp(r.store, "account", "order"))
	if db.check(r); db.handled(keyRed) != 5 || db.handled(keyBlue) != 5 {
		t.Errorf("handled %d and %d, want 5 and 5", db.handled(keyRed), db.handled(keyBlue))
	}
	// The other way round both backends would be begun anew.
	err := catchUp(r.store, "order", "account")
	if !errors.Is(err, eventstore.ErrDiverged) || !errors.Is(err, eventstore.ErrInvalid) || !strings.Contains(err.Error(), "as before") {
		t.Errorf("named in another order: %v", err)
	}
	// Blue alone, whose checkpoint is under the other key, when red's was lost.
	delete(db.kept, keyRed)
	if err := catchUp(r.store, "order"); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("begun anew: %v", err)
	}
	if db.handled(keyRed) != 5 || db.handled(keyBlue) != 5 {
		t.Errorf("handled again: %d and %d", db.handled(keyRed), db.handled(keyBlue))
	}
}

func TestPartsConfiguration(t *testing.T) {
	r, db := newRouted(t, nil), &tables{}
	if err := r.over(db, projector.Options{StartAt: 3}).Run(t.Context()); !errors.Is(err, eventstore.ErrInvalid) || !strings.Contains(err.Error(), "several backends") {
		t.Errorf("a position over several backends: %v", err)
	}
	route, err := eventstore.NewRoute([]eventstore.Backend{{Name: "red", Log: r.red}, {Name: "blue", Log: r.blue}},
		&eventstore.RouteOptions{Table: map[eventstore.Category]string{"account": "red"}})
	r.ok(err)
	for _, o := range []*projector.Options{{Categories: []eventstore.Category{"order"}}, {Stream: "order-a"}} {
		category := eventstore.Category("account")
		if o.Stream != "" {
			category = ""
		}
		p := projector.New(eventstore.New(route, nil), "p", category, db, o)
		if err := p.Run(t.Context()); !errors.Is(err, eventstore.ErrNoSuchCategory) {
			t.Errorf("a category of no backend: %v", err)
		}
	}
	over := projector.SnapshotOptions{Projector: projector.Options{Categories: []eventstore.Category{"order"}}}
	unfit := projector.NewSnapshotter(r.store, "p", "account", &projector.MemoryCheckpoints{}, over)
	if s := unfit.Status(); s.CaughtUp || !errors.Is(s.LastError, eventstore.ErrInvalid) {
		t.Errorf("without a function to take snapshots: %+v", s)
	}
	p := r.over(db)
	run(t, p)
	until(t, func() bool { return p.Status().Running })
	if err := p.Run(t.Context()); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("a second Run: %v", err)
	}
}

// An outage of one backend does not keep the other waiting, and the state is that of
// the one.
func TestPartsAreAsGoodAsTheWorst(t *testing.T) {
	for _, name := range []string{"red", "blue"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { oneBackendDown(t, name) })
		})
	}
}

func oneBackendDown(t *testing.T, name string) {
	r, db := newRouted(t, nil), &tables{}
	bad, good, goodKey := r.red, eventstore.Stream("order-a"), keyBlue
	if name == "blue" {
		bad, good, goodKey = r.blue, "account-a", keyRed
	}
	p := r.over(db)
	if s := p.Status(); s.CaughtUp || s.Lag < 2 || len(s.Parts) != 2 {
		t.Errorf("before Run: %+v", s)
	}
	r.down(bad, errOutage)
	stop := run(t, p)
	for i := range 5 {
		r.ok(p.Wait(within(t), r.deposit(good, 1)))
		if got := db.handled(goodKey); got != i+1 {
			t.Fatalf("handled %d, want %d", got, i+1)
		}
		time.Sleep(time.Second)
		s := p.Status()
		if s.CaughtUp || s.Lag == 0 || !errors.Is(s.LastError, eventstore.ErrUnavailable) || !strings.Contains(s.LastError.Error(), "backend "+name) || !s.Looked.IsZero() {
			t.Errorf("with %s down: %+v", name, s)
		}
		for _, part := range s.Parts {
			if healthy := part.Backend != name; part.CaughtUp != healthy || (part.LastError == nil) != healthy || !part.Running {
				t.Errorf("part %+v", part)
			}
		}
	}
	r.down(bad, nil)
	r.ok(p.Wait(within(t), r.deposit("account-b", 1)))
	r.ok(p.Wait(within(t), r.deposit("order-b", 1)))
	time.Sleep(time.Second)
	if s := p.Status(); !s.CaughtUp || s.Lag != 0 || s.LastError != nil || s.Looked.IsZero() || s.Saved.IsZero() || !s.Running || s.Key != keyRed {
		t.Errorf("healed: %+v", s)
	}
	// Stuck later on, with nothing to do in the other.
	r.down(bad, errOutage)
	time.Sleep(time.Second)
	if s := p.Status(); s.CaughtUp || s.LastError == nil {
		t.Errorf("down again: %+v", s)
	}
	_ = stop()
	db.check(r)
}

// What stops one stops all: half a projection would look alive.
func TestPartsStopTogether(t *testing.T) {
	for name, bad := range map[string]projector.Key{"red": keyRed, "blue": keyBlue} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { oneStops(t, name, bad) }) })
	}
}

func oneStops(t *testing.T, name string, bad projector.Key) {
	r, db := newRouted(t, nil), &tables{}
	r.deposit("account-a", 3)
	r.deposit("order-a", 3)
	boom := errors.New("boom")
	db.failing(func(key projector.Key, point string) error {
		if key == bad && point == "handle" && db.checkpoint(key).Epoch > 0 {
			return boom
		}
		return nil
	})
	p := r.over(db, projector.Options{Tries: 2})
	if err := p.Run(within(t)); !errors.Is(err, boom) || !strings.Contains(err.Error(), "backend "+name) {
		t.Errorf("Run = %v", err)
	}
	if s := p.Status(); s.Running || s.CaughtUp || !errors.Is(s.LastError, boom) {
		t.Errorf("status %+v", s)
	}
	db.failing(nil)
	if more, err := r.over(db).CatchUp(t.Context(), 0); more || err != nil {
		t.Fatal(more, err)
	}
	db.check(r)
}

func TestPartsCatchUp(t *testing.T) {
	r, db := newRouted(t, nil), &tables{}
	r.deposit("account-a", 20)
	r.deposit("order-a", 20)
	r.down(r.red, errOutage)
	p := r.over(db, projector.Options{PageSize: 1})
	_, err := p.CatchUp(t.Context(), 0)
	if !errors.Is(err, eventstore.ErrUnavailable) || !strings.Contains(err.Error(), "backend red") || db.handled(keyBlue) != 20 {
		t.Errorf("with red down: %v, handled %d of blue", err, db.handled(keyBlue))
	}
	r.down(r.red, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.CatchUp(ended, 0); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "backend") {
		t.Errorf("cancelled: %v", err)
	}
}

// Each backend gets its share of the budget, and what one leaves over goes to the next.
func TestPartsShareABudget(t *testing.T) {
	type counts struct{ red, blue int }
	for all, calls := range map[counts][]counts{
		{10, 20}: {{3, 3}, {6, 6}, {9, 9}, {10, 14}, {10, 20}},
		{20, 10}: {{3, 3}, {6, 6}, {9, 9}, {12, 10}, {15, 10}, {18, 10}, {20, 10}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, db := newRouted(t, nil), &tables{}
			r.deposit("account-a", all.red)
			r.deposit("order-a", all.blue)
			db.failing(func(_ projector.Key, point string) error {
				if point == "handle" {
					time.Sleep(2 * time.Millisecond)
				}
				return nil
			})
			p := r.over(db, projector.Options{PageSize: 1})
			for _, want := range calls {
				more, err := p.CatchUp(t.Context(), 12*time.Millisecond)
				if got := (counts{db.handled(keyRed), db.handled(keyBlue)}); err != nil || more != (want != all) || got != want {
					t.Errorf("of %+v: more %v, %v: handled %+v, want %+v", all, more, err, got, want)
				}
			}
			db.check(r)
		})
	}
}

func TestPartsHolds(t *testing.T) {
	r, db := newRouted(t, nil), &tables{}
	r.deposit("account-a", 5)
	r.deposit("order-a", 5)
	boom := errors.New("boom")
	db.failing(func(_ projector.Key, point string) error {
		if point == "handle" {
			return boom
		}
		return nil
	})
	p := r.over(db)
	if _, err := p.CatchUp(t.Context(), 0); !errors.Is(err, boom) {
		t.Fatal(err)
	}
	for s, log := range map[eventstore.Stream]*bentLog{"account-a": r.red, "order-a": r.blue} {
		holds, err := log.ListHolds(t.Context())
		if err != nil || len(holds) != 1 || holds[0].Name != "projector/p/1/0" || holds[0].Name != p.HoldName() || holds[0].Category != s.Category() {
			t.Errorf("holds of %s's backend: %+v, %v", s, holds, err)
		}
		if trimmed, err := r.store.Trim(t.Context(), s, 3, false); err != nil || trimmed.Trimmed != 0 {
			t.Errorf("trimmed %+v, %v before it was handled", trimmed, err)
		}
	}
	r.ok(p.Unregister(t.Context()))
	if holds, err := r.store.ListHolds(t.Context()); err != nil || len(holds) != 0 {
		t.Errorf("holds after Unregister: %+v, %v", holds, err)
	}
}

// Trims of one backend's streams are tried again when its feed's end is reached; the
// other backend's need not be there.
func TestPartsOfASnapshotter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouted(t, nil)
		r.ok(r.store.SetHold(t.Context(), eventstore.Hold{Name: "h", Stream: "account-a"}))
		r.ok(r.store.SetHold(t.Context(), eventstore.Hold{Name: "h", Stream: "order-a"}))
		o := projector.SnapshotOptions{Every: 5, Projector: projector.Options{Categories: []eventstore.Category{"order"}},
			Take: func(ctx context.Context, s eventstore.Stream) (eventstore.Mark, error) {
				h, err := r.store.Head(ctx, s)
				return h.Last, err
			}}
		p := projector.NewSnapshotter(r.store, "p", "account", &projector.MemoryCheckpoints{}, o)
		run(t, p)
		r.ok(p.Wait(within(t), r.deposit("account-a", 5)))
		r.ok(p.Wait(within(t), r.deposit("order-a", 5)))
		time.Sleep(time.Second)
		for _, s := range []eventstore.Stream{"account-a", "order-a"} {
			r.ok(r.store.ReleaseHold(t.Context(), "h", "", s))
			time.Sleep(20 * time.Second)
			if h, err := r.store.Head(t.Context(), s); err != nil || h.Trimmed != 5 {
				t.Errorf("%s is at %+v, %v, want it trimmed", s, h, err)
			}
		}
		if s := p.Status(); s.LastError != nil {
			t.Error(s.LastError)
		}
	})
}

// A hint of one backend wakes that part.
func TestPartsHear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &announcer{direct: true}
		r, db := newRouted(t, &eventstore.Options{Announcer: a}), &tables{}
		p := r.over(db, projector.Options{PollInterval: time.Hour})
		run(t, p)
		time.Sleep(time.Second)
		for i := range 3 {
			for key, s := range map[projector.Key]eventstore.Stream{keyRed: "account-a", keyBlue: "order-a"} {
				r.deposit(s, 1)
				time.Sleep(time.Second)
				if got := db.handled(key); got != i+1 {
					t.Errorf("%s: handled %d a second after the hint, want %d", s, got, i+1)
				}
			}
		}
		if s := p.Status(); !s.CaughtUp {
			t.Errorf("status %+v", s)
		}
	})
}

func TestStatusNamesItsParts(t *testing.T) {
	r := newRouted(t, nil)
	got := ""
	for _, part := range r.over(&tables{}).Status().Parts {
		got += fmt.Sprint(part.Backend, " ", part.Key, " ")
	}
	if want := "red p/1/0 blue p/blue/1/0 "; got != want {
		t.Errorf("parts %q, want %q", got, want)
	}
}
