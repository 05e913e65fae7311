// Stores that are not what they were: restored, made anew, cut short, failed over.

package projector_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector"
)

// R6 of the cases: never silent idling. The store is bent before the projector
// starts again, and under a projector that works.
func TestR6StoreIsAnotherOne(t *testing.T) {
	type page = eventstore.FeedPage
	for name, bend := range map[string]func(after eventstore.Position, p page) page{
		"other incarnation": func(_ eventstore.Position, p page) page {
			p.Incarnation = eventstore.UUID{9}
			return p
		},
		"fewer positions given out": func(after eventstore.Position, p page) page {
			return page{Incarnation: p.Incarnation, Horizon: 5, Drawn: 5, End: true}
		},
		"other entry at the mark": func(after eventstore.Position, p page) page {
			if after == 9 {
				p.Entries[0].ID = eventstore.UUID{9}
			}
			return p
		},
		"mark gone, later ones there": func(after eventstore.Position, p page) page {
			if after == 9 {
				p.Entries = nil
			}
			return p
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { anotherStore(t, name, bend) }) })
	}
}

// anotherStore bends a store under a projector that starts again, and under one that
// works.
func anotherStore(t *testing.T, name string, bend func(after eventstore.Position, p eventstore.FeedPage) eventstore.FeedPage) {
	type page = eventstore.FeedPage
	e := newEnv(t, nil)
	e.deposit("account-a", 10)
	db := &database{}
	p := projector.New(e.store, "p", "account", db, nil)
	if _, err := p.CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	e.deposit("account-a", 10)
	e.log.set(func(l *bentLog) {
		l.readFeed = func(after eventstore.Position, _ eventstore.Filter, p page, err error) (page, error) {
			return bend(after, p), err
		}
	})
	err := wantKind(t, p.Run(within(t)), eventstore.ErrDiverged)
	if err.Hint == "" || err.Wanted == "" || err.Found == "" {
		t.Errorf("%v says too little", err)
	}
	if len(db.model) != 10 || p.Status().CaughtUp {
		t.Errorf("%d handled, %+v", len(db.model), p.Status())
	}
	if strings.HasPrefix(name, "mark") || strings.HasPrefix(name, "other entry") {
		return // the mark is read on resume only
	}
	e.log.set(func(l *bentLog) { l.readFeed = nil })
	working := projector.New(e.store, "p", "account", db, nil)
	ended := make(chan error, 1)
	go func() { ended <- working.Run(within(t)) }()
	until(t, func() bool { return working.Status().CaughtUp })
	e.log.set(func(l *bentLog) {
		l.readFeed = func(after eventstore.Position, _ eventstore.Filter, p page, err error) (page, error) {
			return bend(after, p), err
		}
	})
	wantKind(t, <-ended, eventstore.ErrDiverged)
}

// A store that is empty again, with the same checkpoint.
func TestStoreMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		e.deposit("account-a", 10)
		db := &database{}
		if _, err := projector.New(e.store, "p", "account", db).CatchUp(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		anew := eventstore.New(memlog.New(nil), nil)
		e.ok(anew.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "account"}))
		wantKind(t, projector.New(anew, "p", "account", db).Run(within(t)), eventstore.ErrDiverged)
	})
}

// A log that gives entries out of order is stopped at, not followed.
func TestOutOfOrderIsCorrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		e.deposit("account-a", 10)
		e.log.readFeed = func(_ eventstore.Position, _ eventstore.Filter, p eventstore.FeedPage, err error) (eventstore.FeedPage, error) {
			if len(p.Entries) > 3 {
				p.Entries[2], p.Entries[3] = p.Entries[3], p.Entries[2]
			}
			return p, err
		}
		db := &database{}
		wantKind(t, projector.New(e.store, "p", "account", db).Run(within(t)), eventstore.ErrCorrupt)
		if len(db.model) != 0 {
			t.Errorf("%d handled", len(db.model))
		}
	})
}

// failover makes a log answer from a timeline on which entries are lost.
func failover(timeline uint64, lost ...eventstore.Position) func(eventstore.Position, eventstore.Filter, eventstore.FeedPage, error) (eventstore.FeedPage, error) {
	return func(_ eventstore.Position, _ eventstore.Filter, p eventstore.FeedPage, err error) (eventstore.FeedPage, error) {
		p.Timeline = timeline
		var left []eventstore.Entry
		for _, e := range p.Entries {
			keep := true
			for _, l := range lost {
				keep = keep && e.Position != l
			}
			if keep {
				left = append(left, e)
			}
		}
		p.Entries = left
		return p, err
	}
}

// After a failover one mark proves nothing below it: an entry lost anywhere in
// the window is noticed, by a new process and by one that works.
func TestFailoverWithLossBelowTheMark(t *testing.T) {
	for _, n := range []int{1, 8, 9, 100, 3000} {
		for _, lost := range []int{1, n / 2, n - 1} {
			if lost == 0 || lost >= n || n > 1000 && lost == 1 {
				continue
			}
			t.Run(fmt.Sprint(n, lost), func(t *testing.T) {
				e := newEnv(t, nil)
				values := make([]Event, n)
				for i := range values {
					values[i] = Deposited{1}
				}
				e.append("account-a", values...)
				e.log.readFeed = failover(1)
				db := &database{}
				o := &projector.Options{PageSize: 700}
				if _, err := projector.New(e.store, "p", "account", db, o).CatchUp(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				if n := len(db.kept.Recent); n == 0 || n > projector.MaxRecentBytes {
					t.Fatalf("%d bytes of digest", n)
				}
				// Nothing lost: it goes on, and takes the new timeline over.
				e.log.readFeed = failover(2)
				e.deposit("account-b", 1)
				if _, err := projector.New(e.store, "p", "account", db, o).CatchUp(t.Context(), 0); err != nil || db.kept.Timeline != 2 {
					t.Fatalf("%v, timeline %d", err, db.kept.Timeline)
				}
				// Lost, on the same timeline: not looked for.
				e.log.readFeed = failover(2, eventstore.Position(lost))
				if _, err := projector.New(e.store, "p", "account", db, o).CatchUp(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
				e.log.readFeed = failover(3, eventstore.Position(lost))
				_, err := projector.New(e.store, "p", "account", db, o).CatchUp(t.Context(), 0)
				wantKind(t, err, eventstore.ErrDiverged)
			})
		}
	}
}

func TestFailoverUnderARunningProjector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		e.deposit("account-a", 20)
		e.log.readFeed = failover(1)
		db := &database{}
		p := projector.New(e.store, "p", "account", db)
		ended := make(chan error, 1)
		go func() { ended <- p.Run(within(t)) }()
		until(t, func() bool { return p.Status().CaughtUp })
		e.log.set(func(l *bentLog) { l.readFeed = failover(2) })
		e.ok(p.Wait(within(t), e.deposit("account-a", 1)))
		e.log.set(func(l *bentLog) { l.readFeed = failover(3, 7) })
		wantKind(t, <-ended, eventstore.ErrDiverged)
	})
}

// What was trimmed is no loss, as far as the trim has reached.
func TestFailoverAfterTrim(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-a", 100)
	e.log.readFeed = failover(1)
	db := &database{}
	p := projector.New(e.store, "p", "account", db)
	if _, err := p.CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	e.ok(p.Unregister(t.Context()))
	if _, err := e.store.Trim(t.Context(), "account-a", 60, false); err != nil {
		t.Fatal(err)
	}
	trimmed := func(timeline uint64, lost ...eventstore.Position) {
		bend := failover(timeline, lost...)
		e.log.readFeed = func(after eventstore.Position, f eventstore.Filter, p eventstore.FeedPage, err error) (eventstore.FeedPage, error) {
			return bend(after, f, p, err)
		}
	}
	trimmed(2)
	if _, err := projector.New(e.store, "p", "account", db).CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	trimmed(3, 90)
	_, err := projector.New(e.store, "p", "account", db).CatchUp(t.Context(), 0)
	wantKind(t, err, eventstore.ErrDiverged)
}

// A digest that was damaged, or made under another filter, proves nothing.
func TestFailoverWithoutProof(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-a", 20)
	e.log.readFeed = failover(1)
	db := &database{}
	if _, err := projector.New(e.store, "p", "account", db).CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	good := db.kept.Recent
	e.log.readFeed = failover(2)
	_, err := projector.New(e.store, "p", "account", db, &projector.Options{Types: []string{"deposited"}}).CatchUp(t.Context(), 0)
	wantKind(t, err, eventstore.ErrDiverged)
	db.kept.Recent = good[:len(good)-1]
	_, err = projector.New(e.store, "p", "account", db).CatchUp(t.Context(), 0)
	wantKind(t, err, eventstore.ErrCorrupt)
}

// The marked entry itself may be trimmed, when nothing above it is.
func TestTrimmedMark(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-a", 10)
	db := &database{}
	o := &projector.Options{NoHold: true}
	catchUp := func(o *projector.Options) error {
		_, err := projector.New(e.store, "p", "account", db, o).CatchUp(t.Context(), 0)
		return err
	}
	trim := func(through eventstore.Seqno) {
		_, err := e.store.Trim(t.Context(), "account-a", through, false)
		e.ok(err)
	}
	e.ok(catchUp(o))
	trim(10)
	e.ok(catchUp(o))
	e.ok(catchUp(nil)) // sets a hold behind it
	e.ok(projector.New(e.store, "p", "account", db).Unregister(t.Context()))
	e.deposit("account-a", 5)
	trim(12) // two entries that it has not handled
	for _, o := range []*projector.Options{o, nil} {
		if err := wantKind(t, catchUp(o), eventstore.ErrTrimmed); err.FirstPosition != 12 {
			t.Error(err)
		}
	}
	o.AcceptTrimmed = true
	e.ok(catchUp(o))
	if len(db.model) != 13 {
		t.Errorf("%d handled", len(db.model))
	}
	e.ok(catchUp(&projector.Options{AcceptTrimmed: true}))
}

// An append in flight makes the horizon fall below a checkpoint for a while: what
// stands there is hidden, not lost, and the projector goes on when it shows again.
func TestHorizonFalls(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-a", 10)
	db := &database{}
	first := projector.New(e.store, "p", "account", db, nil)
	if _, err := first.CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	e.deposit("account-a", 5)
	pages := 0
	e.log.set(func(l *bentLog) {
		l.readFeed = func(_ eventstore.Position, _ eventstore.Filter, p eventstore.FeedPage, err error) (eventstore.FeedPage, error) {
			if pages++; pages <= 3 || pages == 6 { // at the resume, and once under a projector that works
				return eventstore.FeedPage{Incarnation: p.Incarnation, Horizon: 4, Drawn: p.Drawn, End: true}, err
			}
			return p, err
		}
	})
	again := projector.New(e.store, "p", "account", db, nil)
	for range 3 {
		if _, err := again.CatchUp(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if len(db.model) != 15 || pages < 6 {
		t.Errorf("%d handled in %d pages, want 15", len(db.model), pages)
	}
}
