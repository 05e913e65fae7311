// Announcements carry no truth (I18): any order, loss and repetition gives the
// same model, and costs latency within the poll interval at most.

package projector_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// orders returns all sequences of at most n of the numbers below n, with
// repetition: every order, loss and repeat of n messages within n deliveries.
func orders(n int) [][]int {
	all := [][]int{{}}
	for from := 0; from < len(all); from++ {
		if len(all[from]) == n {
			break
		}
		for i := range n {
			all = append(all, append(append([]int{}, all[from]...), i))
		}
	}
	return all
}

// N3 of the cases, exhaustively for up to 4 messages: deliveries are spread over
// the appends and after them; a lower one comes last.
func TestN3EveryOrderOfHints(t *testing.T) {
	const n = 4
	all := orders(n)
	synctest.Test(t, func(t *testing.T) {
		for _, order := range all {
			a := &announcer{}
			e := newEnv(t, &eventstore.Options{Announcer: a})
			db := &database{}
			p := projector.New(e.store, "p", "account", db)
			stop := run(t, p)
			synctest.Wait()
			var token eventstore.Token
			for i := range n {
				token = e.deposit("account-a", 1)
				for _, m := range order {
					if m <= i && (m+i)%2 == 0 {
						a.deliver(a.held[m])
					}
				}
				synctest.Wait()
				db.check(t, e.all("account"))
			}
			for _, m := range order {
				a.deliver(a.held[m])
			}
			if len(order) > 0 {
				a.deliver(a.held[0])
			}
			appended := time.Now()
			for p.Status().Position < token.Position {
				time.Sleep(time.Millisecond)
			}
			if late := time.Since(appended); late > eventstore.DefaultPollInterval+5*time.Millisecond {
				t.Errorf("order %v: late by %v", order, late)
			}
			stop()
			db.check(t, e.all("account"))
			if len(db.model) != n {
				t.Fatalf("order %v: %d handled", order, len(db.model))
			}
		}
	})
	t.Logf("%d orders", len(all))
}

// With hints that arrive, nobody waits for the poll.
func TestHintsWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &announcer{direct: true}
		e := newEnv(t, &eventstore.Options{Announcer: a})
		db := &database{}
		p := projector.New(e.store, "p", "account", db, &projector.Options{PollInterval: time.Hour})
		stop := run(t, p)
		for range 10 {
			time.Sleep(time.Second)
			token := e.deposit("account-a", 1)
			synctest.Wait()
			if kept, _, _ := db.get(); kept.Position != token.Position {
				t.Fatalf("checkpoint %v, want %d", kept, token.Position)
			}
		}
		stop()
	})
}

// Hints that lie cost a few looks each, and no more; those that are old or of
// other categories cost none.
func TestHintsThatLie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &announcer{}
		e := newEnv(t, &eventstore.Options{Announcer: a})
		db := &database{}
		p := projector.New(e.store, "p", "account", db, &projector.Options{PollInterval: 24 * time.Hour})
		stop := run(t, p)
		e.ok(p.Wait(t.Context(), e.deposit("account-a", 10)))
		time.Sleep(time.Minute)
		reads := func(hint eventstore.Announcement, times int) (n int) {
			e.log.set(func(l *bentLog) { l.reads = 0 })
			for range times {
				a.deliver(hint)
			}
			time.Sleep(30 * time.Minute)
			e.log.set(func(l *bentLog) { n = l.reads })
			return n
		}
		if n := reads(eventstore.Announcement{Category: "account", Stream: "account-a", Seqno: 1, Position: 3}, 1000); n != 0 {
			t.Errorf("%d reads for old hints", n)
		}
		if n := reads(eventstore.Announcement{Category: "other", Stream: "other-a", Seqno: 1, Position: 1000}, 1000); n != 0 {
			t.Errorf("%d reads for hints of another category", n)
		}
		if n := reads(eventstore.Announcement{}, 1000); n < 1 || n > 3 {
			t.Errorf("%d reads for 1000 empty hints at once", n)
		}
		if n := reads(eventstore.Announcement{Category: "account", Stream: "account-a", Seqno: 1, Position: eventstore.MaxNumber}, 1000); n < 1 || n > 25 {
			t.Errorf("%d reads for hints that lie", n)
		}
		e.ok(p.Wait(within(t), e.deposit("account-a", 1))) // it works on
		if s := p.Status(); !s.Running || s.LastError != nil {
			t.Errorf("%+v", s)
		}
		stop()
		db.check(t, e.all("account"))
	})
}

// A subscription that cannot be had is tried for again; polling goes on.
func TestNoSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &announcer{direct: true, refuse: errors.New("no NATS")}
		e := newEnv(t, &eventstore.Options{Announcer: a})
		db := &database{}
		p := projector.New(e.store, "p", "account", db)
		stop := run(t, p)
		e.ok(p.Wait(t.Context(), e.deposit("account-a", 1)))
		a.mu.Lock()
		a.refuse = nil
		a.mu.Unlock()
		time.Sleep(6 * time.Second)
		a.mu.Lock()
		if len(a.subs) != 1 {
			t.Error("no subscription after NATS came back")
		}
		a.mu.Unlock()
		stop()
		if len(a.subs) != 0 {
			t.Error("the subscription outlives Run")
		}
	})
}
