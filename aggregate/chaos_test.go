// Random faults and kills: whatever happens, each command takes effect once, and
// what was acked is there.

package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
)

// errKilled is what a kill panics with: nothing behind it runs, as after SIGKILL.
var errKilled = errors.New("killed")

func kill(f fault) fault {
	return then(f, func() { panic(errKilled) })
}

// survive runs f and says if it was killed.
func survive(f func() error) (dead bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			if p != errKilled {
				panic(p)
			}
			dead = true
		}
	}()
	return false, f()
}

func TestRandomFaultsAndKills(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

// chaos sends each command until it is acked, as a sender does that got no answer:
// to another process each time, under faults, among rivals, trims and kills.
func chaos(t *testing.T, random *rand.Rand) {
	store, log := newStore(t)
	typ := accounts(aggregate.Snapshots{Every: 3, RememberedIDs: 50})
	options := &aggregate.Options{Retries: 2}
	x, rival := newExecutor(t, store, typ, options), newExecutor(t, store, typ, nil)
	interfere := func() { execute(t, rival, "alice", Deposit{0}, aggregate.CommandID(eventstore.NewUUID())) }
	trim := func() {
		interfere()
		m, err := rival.Snapshot(context.Background(), "alice")
		if err == nil {
			_, err = store.Trim(context.Background(), alice, m.Seqno, false)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	faults := []fault{pass, landed, lost, unavailable, kill(landed), kill(lost), then(landed, interfere), then(lost, interfere),
		before(interfere, pass), then(landed, trim), then(lost, trim), before(trim, landed)}
	const commands = 25
	var want int64
	for i := range int64(commands) {
		id, sent := aggregate.CommandID(eventstore.NewUUID()), false
		for !sent {
			log.next(nested(random, faults)...)
			dead, err := survive(func() error {
				_, err := x.Execute(t.Context(), "alice", Deposit{i}, id)
				return err
			})
			log.next()
			if dead || random.IntN(4) == 0 {
				x = newExecutor(t, store, typ, options)
			}
			sent = !dead && err == nil
		}
		want += i
	}
	s, _, err := rival.Load(t.Context(), "alice")
	if err != nil || s.Balance != want {
		t.Fatalf("balance %d, wanted %d: a command took effect twice or not at all (%v)", s.Balance, want, err)
	}
}

// nested draws a few faults. While one of them lets a rival in, the rest wait, so
// that they hit the command and not the rival.
func nested(random *rand.Rand, faults []fault) []fault {
	drawn := make([]fault, random.IntN(4))
	for i := range drawn {
		f := faults[random.IntN(len(faults))]
		drawn[i] = func(l *faulty, ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			l.mu.Lock()
			rest := l.faults
			l.faults = nil
			l.mu.Unlock()
			defer l.next(rest...)
			return f(l, ctx, a)
		}
	}
	return drawn
}
