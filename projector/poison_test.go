// Poison: keys are parked, queue, and are retried or skipped; the others go on.

package projector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// picky is a worker that cannot handle what bad says, alone or in a batch.
type picky struct {
	worker
	bad   func(e eventstore.Entry) error
	batch bool // it does not say which entry was at fault
	tries map[eventstore.Position]int
}

func newPicky(bad func(e eventstore.Entry) error) *picky {
	return &picky{worker: worker{ledger: newLedger()}, bad: bad, tries: map[eventstore.Position]int{}}
}

func (p *picky) Handle(ctx context.Context, s projector.Step) error {
	for i := range s.Batch {
		err := projector.Contain(s.Batch[i:i+1], func() error {
			p.mu.Lock()
			p.tries[s.Batch[i].Position]++
			p.mu.Unlock()
			return p.bad(s.Batch[i])
		})
		if e, ok := errors.AsType[*projector.EntryError](err); ok && p.batch {
			return projector.NewEntryError(s.Batch, e.Err)
		}
		if err != nil {
			return err
		}
	}
	return p.worker.Handle(ctx, s)
}

var errBad = errors.New("will not do")

// An entry that cannot be handled is tried, then its key waits with all that comes
// behind it; everything else goes on. Retried, all of it is handled, in order.
func TestPoisonParksTheKey(t *testing.T) {
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprint("unnamed ", batch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { parksTheKey(t, batch) })
		})
	}
}

func parksTheKey(t *testing.T, batch bool) {
	e := newEnv(t, nil)
	mended := false
	h := newPicky(func(e eventstore.Entry) error {
		if !mended && e.Stream == "account-3" && e.Seqno == 2 {
			panic(errBad)
		}
		return nil
	})
	h.batch = batch
	a := e.start(h, projector.Options{Lanes: 2, Categories: []eventstore.Category{"other"}})
	token := e.spread(50, 10) // five entries a key
	e.ok(a.p.Wait(within(t), token))
	e.append("other-3", Deposited{1}) // the same key in another category waits too
	poisoned := e.append("account-3", Deposited{1})
	token = e.spread(1, 1)
	e.ok(a.p.Wait(within(t), token))
	if err := a.p.Wait(within(t), poisoned); !errors.Is(err, eventstore.ErrParked) || !strings.Contains(err.Error(), "will not do") {
		t.Errorf("Wait over a parked key: %v", err)
	}
	all := e.all("account", "other")
	waiting := slices.DeleteFunc(slices.Clone(all), func(e eventstore.Entry) bool { return e.Stream.Key() != "3" || e.Stream == "account-3" && e.Seqno == 1 })
	h.exact(t, slices.DeleteFunc(slices.Clone(all), func(e eventstore.Entry) bool {
		return slices.ContainsFunc(waiting, func(w eventstore.Entry) bool { return w.Position == e.Position })
	}))
	if st := a.p.Status(); st.Parked != 1 || st.CaughtUp {
		t.Errorf("status %+v, want one parked key and so not caught up", st)
	}
	versions, err := h.Versions(t.Context(), "p")
	e.ok(err)
	k := versions[0].Parked[0]
	if k.StreamKey != "3" || k.Stream != "account-3" || k.Seqno != 2 || k.Count != uint64(len(waiting)) || k.Through != poisoned.Position ||
		k.Attempts != projector.DefaultTries || !strings.Contains(k.Cause, "will not do") || !batch && !strings.Contains(k.Stack, "goroutine") || k.Since.IsZero() || len(k.Queue) != 2 {
		t.Errorf("parked %+v", k)
	}
	if n := h.tries[k.Position]; batch && n < projector.DefaultTries || !batch && n != projector.DefaultTries {
		t.Errorf("tried %d times", n)
	}
	admin := projector.NewAdmin(e.store, h)
	// What waits is held.
	time.Sleep(10 * time.Second)
	if r, err := e.store.Trim(t.Context(), "account-3", 6, false); err != nil || r.Trimmed > 1 || !strings.Contains(r.StoppedBy, "parked") {
		t.Errorf("trimmed %+v, %v", r, err)
	}
	// Retried in vain it stays parked, and says so.
	if n, err := admin.Retry(t.Context(), "p", 0, "3"); n != 1 || err != nil {
		t.Error(n, err)
	}
	time.Sleep(10 * time.Second)
	versions, _ = h.Versions(t.Context(), "p")
	if got := versions[0].Parked[0]; got.Attempts != k.Attempts+1 || got.Request != projector.Wait || got.Count != k.Count {
		t.Errorf("after a retry in vain: %+v", got)
	}
	mended = true
	if n, err := admin.Retry(t.Context(), "p", 1, ""); n != 1 || err != nil {
		t.Error(n, err)
	}
	time.Sleep(10 * time.Second)
	e.ok(a.p.Wait(within(t), poisoned))
	h.exact(t, all)
	if st := a.p.Status(); st.Parked != 0 || !st.CaughtUp {
		t.Errorf("status %+v", st)
	}
	holds, _ := e.store.ListHolds(t.Context())
	if slices.ContainsFunc(holds, func(h eventstore.Hold) bool { return h.Stream != "" }) {
		t.Errorf("holds %+v", holds)
	}
}

// A skipped entry is recorded; those behind it are handled.
func TestSkipLeavesARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		h := newPicky(func(e eventstore.Entry) error {
			if e.Stream == "account-1" && e.Seqno == 1 {
				return errBad
			}
			return nil
		})
		a := e.start(h, projector.Options{})
		token := e.spread(20, 4)
		e.ok(ignore(a.p.Wait(within(t), token), eventstore.ErrParked))
		admin := projector.NewAdmin(e.store, h)
		if err := admin.Skip(t.Context(), "p", 0, "2", "x"); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("skip of a key that is not parked: %v", err)
		}
		if err := admin.Skip(t.Context(), "q", 0, "2", "x"); !errors.Is(err, projector.ErrNotRegistered) {
			t.Errorf("skip of an unknown projector: %v", err)
		}
		e.ok(admin.Skip(t.Context(), "p", 0, "1", "a test account"))
		time.Sleep(10 * time.Second)
		h.exact(t, slices.DeleteFunc(e.all("account"), func(e eventstore.Entry) bool { return e.Stream == "account-1" && e.Seqno == 1 }))
		records, err := admin.Skipped(t.Context(), "p", 0)
		e.ok(err)
		if len(records) != 1 || records[0].Stream != "account-1" || records[0].Seqno != 1 || records[0].Note != "a test account" || !strings.Contains(records[0].Cause, "will not do") {
			t.Errorf("records %+v", records)
		}
		if st := a.p.Status(); st.Parked != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

// A lane parks no more keys than it may; then it waits at the next, and is not healthy,
// until some are dealt with.
func TestParkedKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		broken := true
		h := newPicky(func(eventstore.Entry) error {
			if broken {
				return errBad
			}
			return nil
		})
		a := e.start(h, projector.Options{MaxParked: 3})
		token := e.spread(50, 10)
		time.Sleep(time.Minute)
		if st := a.p.Status(); st.Parked != 3 || st.CaughtUp || !errors.Is(st.LastError, errBad) || !errors.Is(st.LastError, eventstore.ErrOverloaded) {
			t.Errorf("status %+v", st)
		}
		broken = false
		if _, err := projector.NewAdmin(e.store, h).Retry(t.Context(), "p", 0, ""); err != nil {
			t.Error(err)
		}
		e.ok(a.p.Wait(within(t), token))
		time.Sleep(10 * time.Second)
		h.exact(t, e.all("account"))
	})
}

// Crashes while keys are parked, pass entries over, and are replayed: every entry is
// handled once, in order, or waits.
func TestParkingIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for at := 1; at < 60; at++ {
			e := newEnv(t, nil)
			mended, n := false, 0
			h := newPicky(func(e eventstore.Entry) error {
				if !mended && e.Stream == "account-2" && e.Seqno == 2 {
					return errBad
				}
				return nil
			})
			crash := func(context.Context, projector.Step) error {
				if n++; n == at {
					return &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "test"}
				}
				return nil
			}
			h.before, h.after = crash, crash
			o := projector.Options{PageSize: 3, Tries: 2}
			admin := projector.NewAdmin(e.store, h)
			catchUp := func() {
				for range 20 {
					if more, err := projector.New(e.store, "p", "account", h, &o).CatchUp(t.Context(), 0); err == nil && !more {
						return
					}
				}
				t.Fatal("no end")
			}
			e.spread(12, 4)
			catchUp()
			e.spread(8, 4)
			catchUp()
			mended = true
			if k, err := admin.Retry(t.Context(), "p", 0, "2"); k != 1 || err != nil {
				t.Fatal(k, err)
			}
			catchUp()
			h.exact(t, e.all("account"))
			if t.Failed() {
				t.Fatal("crash at ", at)
			}
			if n < at {
				return
			}
		}
	})
}

// A step of a replay whose answer was lost, and that lands only when it is being done
// again, has its effect once: the lane's checkpoint has not moved, but its epoch has.
func TestLateReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		var mended atomic.Bool
		h := newPicky(func(e eventstore.Entry) error {
			if !mended.Load() && e.Stream == "account-1" {
				return errBad
			}
			return nil
		})
		var lost *projector.Step
		h.before = func(ctx context.Context, s projector.Step) error {
			switch {
			case !mended.Load() || len(s.Batch) == 0 || s.From.Position != s.To.Position:
			case lost == nil:
				lost = &s
				return errOutage
			default:
				_ = h.ledger.Handle(ctx, *lost)
			}
			return nil
		}
		a := e.start(h, projector.Options{Tries: 2})
		token := e.spread(20, 4)
		e.ok(ignore(a.p.Wait(within(t), token), eventstore.ErrParked))
		mended.Store(true)
		if n, err := projector.NewAdmin(e.store, h).Retry(t.Context(), "p", 0, "1"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(time.Minute)
		st := a.p.Status()
		if _ = a.stop(); lost == nil || st.Parked != 0 {
			t.Errorf("status %+v", st)
		}
		h.exact(t, e.all("account"))
	})
}

// A store that is away for a while when it is asked whether a token's entry waits under a
// parked key is waited for.
func TestWaitOverAParkedKeySitsOutAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		h := newPicky(func(eventstore.Entry) error { return errBad })
		a := e.start(h, projector.Options{Tries: 1})
		token := e.spread(1, 1)
		eventually(t, time.Minute, "the key is parked", func() bool { return a.p.Status().Parked == 1 })
		e.log.set(func(l *bentLog) { l.down = errOutage })
		time.AfterFunc(10*time.Second, func() { e.log.set(func(l *bentLog) { l.down = nil }) })
		if err := a.p.Wait(within(t), token); !errors.Is(err, eventstore.ErrParked) {
			t.Errorf("Wait: %v", err)
		}
	})
}
