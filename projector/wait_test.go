// Wait: what passes, what does not, and what it says then.

package projector_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

func TestWaitPassesWhatDoesNotConcernIt(t *testing.T) {
	e := newEnv(t, nil)
	db := &database{}
	p := projector.New(e.store, "p", "account", db, &projector.Options{Types: []string{"deposited"}, PageSize: 3}) // nobody works
	e.ok(p.Wait(t.Context(), eventstore.Token{}))
	e.ok(p.Wait(t.Context(), e.append("other-x", Deposited{1})))
	var token eventstore.Token
	for range 3 {
		token = e.append("account-a", Renamed{"x"})
	}
	e.ok(p.Wait(t.Context(), token))
	beyond := token
	beyond.Position++ // not below the horizon
	waitsFor := func(token eventstore.Token) {
		t.Helper()
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := p.Wait(short, token); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	waitsFor(beyond)
	behind := e.append("account-a", Deposited{1})
	e.ok(p.Wait(t.Context(), token)) // what comes behind the token does not matter
	waitsFor(behind)
	beyond.Position++
	waitsFor(beyond)
	if db.writes != 0 {
		t.Error("Wait has written")
	}
}

// Waiting for an entry of one lane does not take until the other lanes, which have nothing
// to do, have kept that they passed it over.
func TestWaitForOneLaneOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := newEnv(t, nil), newLedger()
		slow := &worker{ledger: l, before: func(_ context.Context, s projector.Step) error {
			if len(s.Batch) > 0 {
				time.Sleep(300 * time.Millisecond) // Wait looks meanwhile, and sees that it is not handled
			}
			return nil
		}}
		w := e.start(slow, projector.Options{Lanes: 256})
		e.ok(w.p.Wait(within(t), e.spread(256, 256)))
		time.Sleep(time.Minute)
		began := time.Now()
		for i := range 5 {
			e.ok(w.p.Wait(within(t), e.spread(1+i, 1+i)))
		}
		if took := time.Since(began); took > 5*(5*300*time.Millisecond+eventstore.DefaultPollInterval) {
			t.Errorf("waiting took %v", took)
		}
	})
}

func TestWaitSaysHowFarBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		db := &database{}
		p := projector.New(e.store, "p", "account", db, &projector.Options{PageSize: 5, Tries: 1})
		e.deposit("account-a", 3)
		if _, err := p.CatchUp(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		behind := 0
		for _, n := range []int{1, 3, 10} {
			token := e.deposit("account-a", n)
			behind += n
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			err := p.Wait(ctx, token)
			lag, ok := errors.AsType[*projector.LagError](err)
			if !ok || !errors.Is(err, context.DeadlineExceeded) || lag.Wanted != token.Position || lag.Reached != 3 || time.Since(began) != time.Minute {
				t.Fatalf("%+v after %v", err, time.Since(began))
			}
			if want := min(5, behind); lag.Behind != want || lag.More != (behind > 5) {
				t.Errorf("behind %d, more %v", lag.Behind, lag.More)
			}
			if !strings.Contains(err.Error(), "p/1/0") {
				t.Error(err)
			}
		}
		// A Run that is stuck says why.
		db.fail = func(string, *eventstore.Entry) error { return errors.New("stuck") }
		stop := run(t, p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.Wait(ctx, eventstore.Token{Incarnation: db.kept.Incarnation, Position: 17}); err == nil || !strings.Contains(err.Error(), "stuck") {
			t.Error(err)
		}
		stop()
	})
}

func TestWaitRefusesForeignTokens(t *testing.T) {
	e := newEnv(t, nil)
	db := &database{}
	p := projector.New(e.store, "p", "account", db)
	token := e.deposit("account-a", 1)
	foreign := token
	foreign.Incarnation = eventstore.UUID{9}
	wantKind(t, p.Wait(t.Context(), foreign), eventstore.ErrDiverged) // no checkpoint yet: the store tells
	if _, err := p.CatchUp(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	e.ok(p.Wait(t.Context(), token))
	wantKind(t, p.Wait(t.Context(), foreign), eventstore.ErrDiverged)
	db.kept.Incarnation = eventstore.UUID{8}
	wantKind(t, p.Wait(t.Context(), token), eventstore.ErrDiverged)
}

// The projector works in another process; it is waited for by polling, also
// through outages of the read model.
func TestWaitAcrossProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		db := &database{}
		there, here := projector.New(e.store, "p", "account", db), projector.New(e.store, "p", "account", db)
		stop := run(t, there)
		for range 5 {
			token := e.deposit("account-a", 2)
			began := time.Now()
			e.ok(here.Wait(t.Context(), token))
			if took := time.Since(began); took > 2*eventstore.DefaultPollInterval {
				t.Errorf("took %v", took)
			}
		}
		outage := true
		db.mu.Lock()
		db.loads = func() error {
			if outage {
				return errOutage
			}
			return nil
		}
		db.mu.Unlock()
		token := e.deposit("account-a", 1)
		go func() {
			time.Sleep(time.Minute)
			db.mu.Lock()
			outage = false
			db.mu.Unlock()
		}()
		e.ok(here.Wait(t.Context(), token))
		if here.Status().CaughtUp {
			t.Error("an instance that does not work says it is caught up")
		}
		stop()
	})
}
