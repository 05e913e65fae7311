// Wait over several backends: whose checkpoint a token is about.

package projector_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector"
)

// waits demands that Wait does not return before its context ends.
func waits(t *testing.T, p *projector.Projector, token eventstore.Token) *projector.LagError {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := p.Wait(ctx, token)
	lag, ok := errors.AsType[*projector.LagError](err)
	if !ok || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Wait = %v, want it to wait", err)
	}
	return lag
}

func TestPartsWaitInTheTokensBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, db := newRouted(t, nil), &tables{}
		r.append("item-x", Deposited{1}) // red is ahead by one
		far := r.deposit("order-a", 50)
		near := r.deposit("account-a", 3)
		p, elsewhere := r.over(db), r.over(db)
		// Blue has come far, red nowhere.
		r.down(r.red, errOutage)
		if _, err := p.CatchUp(t.Context(), 0); !errors.Is(err, eventstore.ErrUnavailable) {
			t.Fatal(err)
		}
		r.ok(elsewhere.Wait(within(t), far)) // red cannot be asked; blue is known without
		r.down(r.red, nil)
		if lag := waits(t, elsewhere, near); lag.Key != keyRed || lag.Wanted != near.Position || lag.Reached != 0 || lag.Behind != 3 {
			t.Errorf("lag %+v", lag)
		}
		if more, err := p.CatchUp(t.Context(), 0); more || err != nil {
			t.Fatal(more, err)
		}
		r.ok(elsewhere.Wait(t.Context(), near))
		// The other way round: red has passed position 50, blue's next has not been handled.
		r.deposit("account-a", 100)
		later := r.deposit("order-a", 2)
		r.down(r.blue, errOutage)
		_, _ = p.CatchUp(t.Context(), 0)
		r.down(r.blue, nil)
		if lag := waits(t, p, later); lag.Key != keyBlue || lag.Reached != far.Position || lag.Behind != 2 {
			t.Errorf("lag %+v", lag)
		}
		r.ok(p.Wait(t.Context(), eventstore.Token{}))
	})
}

// What is in a backend that the projector does not follow does not concern it; a store
// that is none of the Route's is an error, once all have said who they are.
func TestPartsWaitKnowsItsStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, db := newRouted(t, nil), &tables{}
		token := r.deposit("order-a", 5)
		own := r.deposit("account-a", 1)
		for name, o := range map[string]*projector.Options{"category": nil, "stream": {Stream: "account-a"}} {
			p := projector.New(r.store, name, "account", db, o)
			r.ok(p.Wait(t.Context(), token)) // nobody works
			waits(t, p, own)
			if more, err := p.CatchUp(t.Context(), 0); more || err != nil {
				t.Fatal(more, err)
			}
			r.ok(p.Wait(t.Context(), own))
			strange := eventstore.Token{Incarnation: eventstore.UUID{5}, Position: 1}
			err := p.Wait(t.Context(), strange)
			wantKind(t, err, eventstore.ErrDiverged)
			for _, known := range []eventstore.UUID{own.Incarnation, token.Incarnation, strange.Incarnation} {
				if !strings.Contains(err.Error(), known.String()) {
					t.Errorf("%v does not name %v", err, known)
				}
			}
			r.down(r.blue, errOutage)
			if lag := waits(t, p, strange); lag.Last == nil || !strings.Contains(lag.Last.Error(), "backend blue") {
				t.Errorf("lag %+v, want it to say that blue does not answer", lag)
			}
			r.down(r.blue, &eventstore.Error{Kind: eventstore.ErrNotMigrated, Op: "test"})
			if err := p.Wait(t.Context(), strange); !errors.Is(err, eventstore.ErrNotMigrated) {
				t.Errorf("Wait = %v, want what is wrong with blue", err)
			}
			r.down(r.blue, nil)
		}
	})
}

// A backend that was replaced is another store.
func TestPartsWaitNoticesAnotherStore(t *testing.T) {
	r, db := newRouted(t, nil), &tables{}
	p := r.over(db)
	old := r.deposit("order-a", 3)
	if more, err := p.CatchUp(t.Context(), 0); more || err != nil {
		t.Fatal(more, err)
	}
	r.ok(p.Wait(t.Context(), old))
	r.blue.set(func(l *bentLog) { l.Log = memlog.New(nil) })
	r.ok(r.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "order", TrimFreely: true}))
	delete(r.marks, "order-a")
	wantKind(t, p.Wait(t.Context(), r.deposit("order-a", 1)), eventstore.ErrDiverged)
	if _, err := p.CatchUp(t.Context(), 0); !errors.Is(err, eventstore.ErrDiverged) || !strings.Contains(err.Error(), "backend blue") {
		t.Errorf("CatchUp = %v, want blue diverged", err)
	}
}

// Two backends that are one store, or a copy, cannot be told apart by a token.
func TestPartsWaitRefusesATwin(t *testing.T) {
	r, db := newRouted(t, nil), &tables{}
	r.blue.set(func(l *bentLog) { l.Log = r.red.Log })
	wantKind(t, r.over(db).Wait(t.Context(), eventstore.Token{Incarnation: eventstore.UUID{1}, Position: 1}), eventstore.ErrInvalid)
}
