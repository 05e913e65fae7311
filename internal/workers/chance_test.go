// Processes that join, leave, are killed and freeze, by chance.

package workers

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// L1 of the cases: a process is frozen for longer than its TTL and then goes on, before
// its transaction and inside of it. Others have taken its lanes by then; what it does is
// refused, and inside the transaction it has held up nobody for longer than the TTL.
func TestL1FrozenProcess(t *testing.T) {
	f := newFleet(t, rand.Uint64(), 16)
	z := f.join(task{})
	f.proceeds("one alone", time.Now())
	f.join(task{})
	stop, unwatch := f.appending(), f.watch()
	f.proceeds("two", time.Now())
	f.workers = f.workers[1:]
	for _, where := range []string{"before", "inside"} {
		f.frozen(z, where)
	}
	f.back(z)
	stop()
	f.ends()
	unwatch()
}

// frozen freezes a process at a place of its next step.
func (f *fleet) frozen(z *worker, where string) {
	f.Helper()
	z.tell("freeze %s", where)
	lane := z.await("frozen")
	since := time.Now()
	if where == "inside" {
		took := f.unlocked(lane)
		f.Logf("frozen inside its transaction: lane %s was locked for %v", lane, took.Round(10*time.Millisecond))
		if took > ttl+time.Second {
			f.Errorf("a process frozen inside its transaction held lane %s for %v, want at most the TTL of %v", lane, took, ttl)
		}
	}
	f.proceeds("frozen "+where+" its transaction", since)
	time.Sleep(time.Until(since.Add(ttl + ttl/2)))
	f.x.exact(f)
	z.signal(syscall.SIGCONT)
	thawed := time.Now()
	said := z.await("thawed")
	f.Logf("thawed %s its transaction: %s", where, said)
	if said == "done" || where == "before" && said != "fenced" {
		f.Errorf("the step of a process that was frozen %s its transaction: %s", where, said)
	}
	f.proceeds("thawed", thawed)
	f.x.exact(f)
}

// Any history of processes that come, go, are killed and freeze ends in the same model;
// after each of these all lanes are worked on again within TTL + 5 s.
func TestProcessesByChance(t *testing.T) {
	rounds, steps := 1, 0
	if soak() {
		rounds, steps = 5, 40
	}
	first := rand.Uint64()
	for i := range rounds {
		seed := first + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			f := newFleet(t, seed, 16)
			for range 2 {
				f.join(task{})
			}
			stop, unwatch := f.appending(), f.watch()
			f.proceeds("start", time.Now())
			kinds := []string{"join", "leave", "kill", "freeze", "freeze before", "freeze inside"}
			f.dice.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
			for range steps {
				kinds = append(kinds, kinds[f.dice.IntN(6)])
			}
			for _, kind := range kinds {
				f.act(kind)
				f.x.exact(f)
			}
			stop()
			f.ends()
			unwatch()
		})
	}
}

// act has one thing happen to a worker, and others go on.
func (f *fleet) act(kind string) {
	f.Helper()
	if len(f.workers) < 2 || kind == "join" && len(f.workers) < 4 {
		f.join(task{})
		f.proceeds("join", time.Now())
	}
	time.Sleep(time.Duration(f.dice.IntN(500)) * time.Millisecond)
	if kind == "join" {
		return
	}
	w := f.pick()
	since := time.Now()
	switch kind {
	case "leave":
		w.leave()
	case "kill":
		w.kill()
	case "freeze":
		w.signal(syscall.SIGSTOP)
		f.proceeds("freeze", since)
		time.Sleep(time.Until(since.Add(ttl + time.Duration(f.dice.Int64N(int64(ttl))))))
		since = time.Now()
		w.signal(syscall.SIGCONT)
		f.back(w)
	default:
		f.frozen(w, kind[len("freeze "):])
		f.back(w)
		return
	}
	f.proceeds(kind, since)
}
