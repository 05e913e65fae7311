// Run, CatchUp, Wait: that every entry is handled once, in order.

package projector_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

func TestRunAndWait(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-a", 3)
	var mu sync.Mutex
	balances := map[eventstore.Stream]int64{}
	h := projector.Memory(events, func(_ context.Context, ev projector.Event[Event]) error {
		mu.Lock()
		defer mu.Unlock()
		if d, ok := ev.Value.(Deposited); ok {
			balances[ev.Stream] += d.Amount
		}
		return nil
	})
	p := projector.New(e.store, "balances", "account", h)
	stop := run(t, p)
	for i := range 50 {
		token := e.append(stream(i%3), Deposited{10})
		e.ok(p.Wait(within(t), token))
		mu.Lock()
		got := balances[stream(i%3)]
		mu.Unlock()
		if want := int64(10 * (i/3 + 1)); got != want {
			t.Fatalf("after %d appends the balance of %s is %d, want %d", i+1, stream(i%3), got, want)
		}
	}
	if balances["account-a"] != 3 {
		t.Errorf("what was there before is %d, want 3", balances["account-a"])
	}
	if s := p.Status(); !s.Running || s.LastError != nil || s.Position != 53 {
		t.Errorf("status %+v", s)
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v", err)
	}
	if s := p.Status(); s.Running {
		t.Error("runs after its end")
	}
}

func TestCatchUp(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-a", 25)
	e.append("other-x", Deposited{1})
	e.deposit("account-b", 25)
	db := &database{}
	for _, size := range []int{1, 7, 100} {
		db = &database{}
		p := projector.New(e.store, "p", "account", db, &projector.Options{PageSize: size})
		more, err := p.CatchUp(t.Context(), 0)
		if more || err != nil {
			t.Fatalf("more %v, %v", more, err)
		}
		db.check(t, e.all("account"))
		if len(db.model) != 50 || db.kept.Epoch != 1 {
			t.Errorf("%d entries at epoch %d", len(db.model), db.kept.Epoch)
		}
	}
	writes := db.writes
	again := projector.New(e.store, "p", "account", db, nil)
	for range 3 {
		if more, err := again.CatchUp(t.Context(), time.Minute); more || err != nil {
			t.Fatalf("more %v, %v", more, err)
		}
	}
	if db.writes != writes {
		t.Errorf("%d writes with nothing to do", db.writes-writes)
	}
	if s := again.Status(); !s.CaughtUp || s.Lag != 0 {
		t.Errorf("status %+v", s)
	}
	e.deposit("account-a", 1)
	if _, err := again.CatchUp(t.Context(), 0); err != nil || db.kept.Epoch != 2 {
		t.Errorf("%v, epoch %d: the first write claims", err, db.kept.Epoch)
	}
	db.check(t, e.all("account"))
}

func TestCatchUpKeepsToItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		e.deposit("account-a", 10)
		db := &database{fail: func(point string, _ *eventstore.Entry) error {
			if point == "entry" {
				time.Sleep(time.Second)
			}
			return nil
		}}
		p := projector.New(e.store, "p", "account", db, &projector.Options{PageSize: 1})
		began := time.Now()
		more, err := p.CatchUp(t.Context(), 3500*time.Millisecond)
		if !more || err != nil || len(db.model) != 3 {
			t.Fatalf("more %v, %v, %d handled", more, err, len(db.model))
		}
		if d := time.Since(began); d > 3500*time.Millisecond {
			t.Errorf("took %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond) // the deadline is a budget too
		defer cancel()
		if more, err = p.CatchUp(ctx, time.Hour); !more || err != nil || len(db.model) != 5 {
			t.Fatalf("more %v, %v, %d handled", more, err, len(db.model))
		}
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // one batch is begun, and lost
		defer cancel()
		if more, err = p.CatchUp(short, 0); !more || !errors.Is(err, context.DeadlineExceeded) || len(db.model) != 5 {
			t.Fatalf("more %v, %v, %d handled", more, err, len(db.model))
		}
		if more, err = p.CatchUp(t.Context(), time.Hour); more || err != nil {
			t.Fatalf("more %v, %v", more, err)
		}
		db.check(t, e.all("account"))
	})
}

// Overlapping invocations: all progress is made, each effect happens once.
func TestCatchUpOverlaps(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-a", 200)
	db := &database{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			p := projector.New(e.store, "p", "account", db, &projector.Options{PageSize: 3})
			for {
				more, err := p.CatchUp(context.Background(), 0)
				if err != nil && !errors.Is(err, eventstore.ErrFenced) {
					t.Error(err)
				}
				if !more {
					return
				}
			}
		})
	}
	wg.Wait()
	db.check(t, e.all("account"))
	if len(db.model) != 200 {
		t.Errorf("%d handled", len(db.model))
	}
}

// A zombie, frozen in the middle of a batch, changes nothing after its successor
// has claimed, and stops.
func TestZombieIsFenced(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-a", 10)
	frozen, thaw := make(chan struct{}), make(chan struct{})
	var once sync.Once
	db := &database{}
	zombie := &hooked{database: db, before: func() {
		once.Do(func() { close(frozen); <-thaw })
	}}
	first := projector.New(e.store, "p", "account", zombie, nil)
	ended := make(chan error, 1)
	bounded, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	go func() { ended <- first.Run(bounded) }()
	<-frozen

	second := projector.New(e.store, "p", "account", db, nil)
	stop := run(t, second)
	e.ok(second.Wait(within(t), e.deposit("account-a", 5)))
	close(thaw)
	wantKind(t, <-ended, eventstore.ErrFenced)
	if s := first.Status(); s.CaughtUp || s.LastError == nil {
		t.Errorf("the zombie's status %+v", s)
	}
	e.ok(second.Wait(within(t), e.deposit("account-a", 5)))
	stop()
	db.check(t, e.all("account"))
	if len(db.model) != 20 {
		t.Errorf("%d handled", len(db.model))
	}
}

// hooked calls before, and after where it went through, each step that has entries.
type hooked struct {
	*database
	before, after func()
}

func (h *hooked) Handle(ctx context.Context, s projector.Step) error {
	if len(s.Batch) > 0 && h.before != nil {
		h.before()
	}
	err := h.database.Handle(ctx, s)
	if err == nil && len(s.Batch) > 0 && h.after != nil {
		h.after()
	}
	return err
}

// A zombie that finds trimmed what its successor has handled is fenced, not
// told that it missed something; be it overtaken in a step or between two.
func TestZombieIsFencedNotTrimmed(t *testing.T) {
	for _, between := range []bool{false, true} {
		e := newEnv(t, nil)
		e.deposit("account-a", 10)
		db := &database{}
		o := &projector.Options{NoHold: true, PageSize: 5}
		overtake := sync.OnceFunc(func() {
			if _, err := projector.New(e.store, "p", "account", db, o).CatchUp(context.Background(), 0); err != nil {
				t.Error(err)
			}
			if _, err := e.store.Trim(context.Background(), "account-a", 9, false); err != nil {
				t.Error(err)
			}
		})
		zombie := &hooked{database: db, before: overtake}
		if between {
			zombie = &hooked{database: db, after: overtake}
		}
		wantKind(t, projector.New(e.store, "p", "account", zombie, o).Run(within(t)), eventstore.ErrFenced)
		if len(db.model) != 10 {
			t.Errorf("%d handled", len(db.model))
		}
	}
}

func TestRunTwiceAtOnceIsRefused(t *testing.T) {
	e := newEnv(t, nil)
	p := projector.New(e.store, "p", "account", &database{}, nil)
	run(t, p)
	e.ok(p.Wait(within(t), e.deposit("account-a", 1)))
	wantKind(t, p.Run(t.Context()), eventstore.ErrInvalid)
}

func TestMistakesAreNamed(t *testing.T) {
	e := newEnv(t, nil)
	type o = projector.Options
	h := &database{}
	for name, p := range map[string]*projector.Projector{
		"name of":         projector.New(e.store, "", "account", h),
		"name of 1":       projector.New(e.store, strings.Repeat("x", 201), "account", h),
		"without control": projector.New(e.store, "a\nb", "account", h),
		"and '/'":         projector.New(e.store, "a/b", "account", h),
		"a handler":       projector.New(e.store, "a", "account", nil),
		"category":        projector.New(e.store, "a", "", h),
		"none of":         projector.New(e.store, "a", "a.b", h),
		"version":         projector.New(e.store, "a", "account", h, &o{Version: -1}),
		"page size":       projector.New(e.store, "a", "account", h, &o{PageSize: -1}),
		"poll interval":   projector.New(e.store, "a", "account", h, &o{PollInterval: time.Microsecond}),
		"tries":           projector.New(e.store, "a", "account", h, &o{Tries: -1}),
		"with a stream":   projector.New(e.store, "a", "account", h, &o{StartSeqno: 1}),
		"one stream":      projector.New(e.store, "a", "other", h, &o{Stream: "account-a"}),
		"stream":          projector.New(e.store, "a", "", h, &o{Stream: "account"}),
		"at most one":     projector.New(e.store, "a", "account", h, nil, nil),
		"Take":            projector.NewSnapshotter(e.store, "a", "account", &projector.MemoryCheckpoints{}, projector.SnapshotOptions{}),
	} {
		err := p.Run(t.Context())
		wantKind(t, err, eventstore.ErrInvalid)
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %q", err, name)
		}
		_, err = p.CatchUp(t.Context(), 0)
		wantKind(t, err, eventstore.ErrInvalid)
		wantKind(t, p.Wait(t.Context(), eventstore.Token{Position: 1}), eventstore.ErrInvalid)
		wantKind(t, p.Unregister(t.Context()), eventstore.ErrInvalid)
		if s := p.Status(); s.CaughtUp || s.LastError == nil {
			t.Errorf("status %+v", s)
		}
	}
	wantKind(t, projector.New(e.store, "a", "nosuch", h).Run(t.Context()), eventstore.ErrNoSuchCategory)
}

func TestSeveralCategoriesInOneOrder(t *testing.T) {
	e := newEnv(t, nil)
	for range 20 {
		e.deposit("account-a", 1)
		e.deposit("other-b", 2)
	}
	db := &database{}
	p := projector.New(e.store, "p", "account", db, &projector.Options{Categories: []eventstore.Category{"other", "account"}, PageSize: 7})
	if _, err := p.CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	db.check(t, e.all("account", "other"))
	if len(db.model) != 60 {
		t.Errorf("%d handled", len(db.model))
	}
}

func TestStartAt(t *testing.T) {
	e := newEnv(t, nil)
	token := e.deposit("account-a", 5)
	e.deposit("account-a", 2)
	db := &database{}
	p := projector.New(e.store, "p", "account", db, &projector.Options{StartAt: token.Position})
	if _, err := p.CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if len(db.model) != 2 {
		t.Errorf("%d handled", len(db.model))
	}
	p = projector.New(e.store, "beyond", "account", &database{}, &projector.Options{StartAt: 1000})
	_, err := p.CatchUp(t.Context(), 0)
	wantKind(t, err, eventstore.ErrDiverged)
}

// P7 of the cases: what does not match is passed, kept, and costs no second scan.
func TestP7CheckpointPassesWhatDoesNotMatch(t *testing.T) {
	e := newEnv(t, nil)
	const batch, n = 100, 10_000
	values := make([]Event, batch)
	for i := range values {
		values[i] = Renamed{"x"}
	}
	for range n / batch {
		e.append("account-a", values...)
	}
	db := &database{}
	o := &projector.Options{Types: []string{"deposited"}, PageSize: 500, PollInterval: 10 * time.Millisecond}
	for restart := range 4 {
		e.log.set(func(l *bentLog) { l.scanned = 0 })
		p := projector.New(e.store, "p", "account", db, o)
		stop := run(t, p)
		until(t, func() bool { return p.Status().CaughtUp })
		s := p.Status()
		stop()
		if s.Lag != 0 {
			t.Errorf("lag %d", s.Lag)
		}
		var scanned int
		e.log.set(func(l *bentLog) { scanned = l.scanned })
		if restart > 0 && scanned > 500+1 { // one page, and the marked entry
			t.Errorf("restart %d scanned %d", restart, scanned)
		}
		if db.kept.Position < n-500 {
			t.Errorf("restart %d: checkpoint at %d", restart, db.kept.Position)
		}
	}
	p := projector.New(e.store, "p", "account", db, o)
	run(t, p)
	token := e.append("account-b", Deposited{1})
	e.ok(p.Wait(within(t), token))
	if kept, handled, _ := db.get(); handled != 1 || kept.Position != n+1 {
		t.Errorf("%d handled, checkpoint %v", handled, kept)
	}
}

func until(t testing.TB, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("waited in vain")
		}
	}
}

// At the tail of a filtered feed nothing is written while nothing happens, and
// what trickles in unmatched is kept about once a second.
func TestIdleTailWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		db := &database{}
		p := projector.New(e.store, "p", "account", db, &projector.Options{Types: []string{"deposited"}})
		stop := run(t, p)
		e.append("account-a", Deposited{1})
		time.Sleep(time.Second)
		_, _, writes := db.get()
		time.Sleep(time.Hour)
		if _, _, n := db.get(); n != writes {
			t.Errorf("%d writes while idle", n-writes)
		}
		for range 100 {
			e.append("account-a", Renamed{"x"})
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		kept, handled, after := db.get()
		if n := after - writes; n < 5 || n > 13 {
			t.Errorf("%d writes in 10 s of entries that do not match", n)
		}
		if kept.Position != 101 || handled != 1 {
			t.Errorf("kept %v, %d handled", kept, handled)
		}
		e.log.set(func(l *bentLog) { l.reads = 0 })
		time.Sleep(time.Minute)
		e.log.set(func(l *bentLog) {
			if most := int(time.Minute/eventstore.DefaultPollInterval) + 1; l.reads > most {
				t.Errorf("%d reads in an idle minute, the backstop's are %d", l.reads, most)
			}
		})
		stop()
	})
}

// R4 of the cases, by a new projector: told that the beginning is gone, and where
// the rest begins; never an empty page before the end.
func TestR4NewProjectorAfterTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{1, 10, 500} {
			e := newEnv(t, nil)
			e.deposit("account-a", 100)
			if _, err := e.store.Trim(t.Context(), "account-a", 79, false); err != nil {
				t.Fatal(err)
			}
			for _, noHold := range []bool{false, true} {
				db := &database{}
				p := projector.New(e.store, "p", "account", db, &projector.Options{PageSize: size, NoHold: noHold})
				err := wantKind(t, p.Run(within(t)), eventstore.ErrTrimmed)
				if err.FirstPosition != 79 || db.writes > 1 || p.Status().CaughtUp {
					t.Errorf("first %d, %d writes, %+v", err.FirstPosition, db.writes, p.Status())
				}
				db = &database{}
				p = projector.New(e.store, "p", "account", db, &projector.Options{PageSize: size, NoHold: noHold, AcceptTrimmed: true})
				if more, err := p.CatchUp(t.Context(), 0); more || err != nil {
					t.Fatalf("more %v, %v", more, err)
				}
				db.check(t, e.all("account"))
				if len(db.model) != 21 || db.model[0] != 80 {
					t.Errorf("handled %v", db.model)
				}
				db = &database{}
				p = projector.New(e.store, "p", "account", db, &projector.Options{PageSize: size, NoHold: noHold, StartAt: err.FirstPosition})
				if _, err := p.CatchUp(t.Context(), 0); err != nil || len(db.model) != 21 {
					t.Errorf("%v, handled %v", err, db.model)
				}
			}
		}
	})
}
