// One command at a time on a stream: waiting, order, and what a panic leaves.

package aggregate_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/aggregate"
)

// A panic leaves nothing behind: no state, no lock.
func TestPanicLeavesNothingBehind(t *testing.T) {
	store, log := newStore(t)
	typ := accounts(aggregate.Snapshots{})
	typ.Decider.Decide = func(s State, c Command) ([]Event, error) {
		if c == (Withdraw{13}) {
			panic("decide")
		}
		return decide(s, c)
	}
	typ.Decider.Evolve = func(s State, e Event) State {
		if e == (Deposited{13}) {
			panic("evolve")
		}
		return evolve(s, e)
	}
	x := newExecutor(t, store, typ, nil)
	execute(t, x, "alice", Deposit{100})
	for _, c := range []Command{Withdraw{13}, Deposit{13}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%#v did not panic", c)
				}
			}()
			x.Execute(context.Background(), "alice", c)
		}()
	}
	res := execute(t, x, "alice", Deposit{1})
	wantBalance(t, res.State, 101, 2)
	if appends, loads, _ := log.count(); appends != 2 || loads != 3 {
		t.Fatalf("wanted 2 appends and 3 loads, found %d and %d", appends, loads)
	}
}

// Who waits for a busy stream waits no longer than its context.
func TestWaitingForAStreamEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := newStore(t)
		x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
		held := make(chan struct{})
		log.next(before(func() { <-held }, pass))
		var group sync.WaitGroup
		group.Go(func() { execute(t, x, "alice", Deposit{1}) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := x.Execute(ctx, "alice", Deposit{1})
		wantErr(t, err, context.DeadlineExceeded)
		execute(t, x, "bob", Deposit{1}) // another stream goes on
		close(held)
		group.Wait()
		if got := len(entries(t, store, alice)); got != 1 {
			t.Fatalf("%d events", got)
		}
	})
}

// Commands on one stream are taken in the order in which they came.
func TestFairPerStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := newStore(t)
		x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
		held := make(chan struct{})
		log.next(before(func() { <-held }, pass))
		var group sync.WaitGroup
		for i := range int64(10) {
			group.Go(func() { execute(t, x, "alice", Deposit{i}) })
			synctest.Wait()
		}
		close(held)
		group.Wait()
		for i, e := range entries(t, store, alice) {
			if got := string(e.Data); got != fmt.Sprintf(`{"Amount":%d}`, i) {
				t.Fatalf("entry %d is %s", i+1, got)
			}
		}
	})
}
