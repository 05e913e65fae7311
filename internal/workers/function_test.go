// Functions: processes that catch up whenever they are called, are frozen between calls
// and inside of them, overlap, and are killed at the deadline.

package workers

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"
)

const budget = 200 * time.Millisecond

// However calls overlap, freeze and die, the model is exact, what a call says it did is
// there, and no goroutine is left behind it.
func TestFunctionsByChance(t *testing.T) {
	f := newFleet(t, rand.Uint64(), 4)
	long := 8 * time.Second
	if soak() {
		long = 5 * time.Minute
	}
	c := &calls{fleet: f, end: time.Now().Add(long)}
	stop, unwatch := f.appending(), f.watch()
	var going sync.WaitGroup
	for first := range 3 { // so that each kind of fault happens, whatever the dice say
		w, dice := f.joinFunction(), rand.New(rand.NewPCG(f.dice.Uint64(), 3))
		going.Go(func() { c.chance(w, dice, first) })
	}
	going.Wait()
	stop()
	if t.Failed() {
		return
	}
	f.x.exact(t)
	c.drain()
	n := f.x.exact(t)
	unwatch()
	if n != f.w.n {
		t.Errorf("%d of %d entries are handled", n, f.w.n)
	}
	t.Logf("%d entries, each handled once and in order; %d calls answered, %d of them with more to do, %d with an error, %d without work; %d frozen inside, %d between, %d killed",
		n, c.answered, c.more, c.failed, c.idle, c.inside, c.between, c.killed)
	for what, n := range map[string]int{"answered": c.answered, "with more to do": c.more, "frozen inside": c.inside, "frozen between": c.between, "killed": c.killed} {
		if n == 0 {
			t.Errorf("no call was %s", what)
		}
	}
}

// A process that is frozen in the middle of a call that is at work, inside its
// transaction, for longer than the TTL: another one does its work, and what it says it did
// when it thaws is what it did.
func TestFunctionFrozenInsideItsTransaction(t *testing.T) {
	f := newFleet(t, rand.Uint64(), 4)
	c := &calls{fleet: f}
	z, other := f.joinFunction(), f.joinFunction()
	for range 3 {
		_, err := f.w.append(t.Context(), "account-k0", "account-k1", "account-k2", "account-k3")
		ok(t, err)
	}
	z.tell("freeze inside")
	z.tell("call %v", 10*time.Second)
	z.await("frozen")
	since := time.Now()
	more := true
	for more && time.Since(since) < proceeds {
		a, died := c.answer(other, func() { other.tell("call %v", budget) })
		if died {
			t.Fatal("it died")
		}
		more = a.More
	}
	if more || time.Since(since) > proceeds {
		t.Errorf("%v after the other froze there is more to do: %v", time.Since(since), more)
	}
	f.x.exact(t)
	a, died := c.answer(z, func() { z.signal(syscall.SIGCONT) })
	if died {
		t.Fatal("it died")
	}
	t.Logf("thawed: %+v", a)
	f.x.exact(t)
	c.drain()
	if n := f.x.exact(t); n != f.w.n {
		t.Errorf("%d of %d entries are handled", n, f.w.n)
	}
}

// calls are those of functions. Its counts are guarded by mu.
type calls struct {
	*fleet
	end time.Time

	mu                                                    sync.Mutex
	answered, more, failed, idle, inside, between, killed int
}

// joinFunction starts a process that is called.
func (f *fleet) joinFunction() *worker { return f.join(task{Call: true, Slow: 3 * time.Millisecond}) }

// successor starts another process, beside those that do so at the same time.
func (c *calls) successor() *worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.joinFunction()
}

func (c *calls) count(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// chance calls a function again and again, and does to its process what dice say.
func (c *calls) chance(w *worker, dice *rand.Rand, what int) {
	call := func() { w.tell("call %v", budget) }
	for time.Now().Before(c.end) && !c.Failed() {
		some := func(most time.Duration) time.Duration { return time.Duration(dice.Int64N(int64(most))) }
		switch what {
		case 0:
			c.count(&c.inside)
			if _, died := c.answer(w, func() {
				call()
				time.Sleep(some(budget))
				w.signal(syscall.SIGSTOP)
				time.Sleep(some(3 * time.Second))
				w.signal(syscall.SIGCONT)
			}); died {
				return
			}
		case 1:
			c.count(&c.between)
			w.signal(syscall.SIGSTOP)
			time.Sleep(some(3 * time.Second))
			w.signal(syscall.SIGCONT)
		case 2:
			c.count(&c.killed)
			call()
			time.Sleep(budget)
			w.kill()
			w = c.successor()
		default:
			a, died := c.answer(w, call)
			if died {
				return
			}
			// The batch at hand when the time is up is finished: 20 effects, on a machine that others use.
			if most := budget + 3*time.Second; a.Took > most {
				c.Errorf("a call with a budget of %v took %v", budget, a.Took)
			}
		}
		time.Sleep(some(50 * time.Millisecond))
		what = dice.IntN(6)
	}
}

// answer has a call made and holds what it says against what is there.
func (c *calls) answer(w *worker, call func()) (a called, died bool) {
	call()
	select {
	case line, open := <-w.lines:
		for open && line[:min(len(line), 7)] != "called " {
			line, open = <-w.lines
		}
		if !open {
			<-w.ended
			c.Errorf("%s ended: %v: %s", w.who, w.err, w.stderr.String())
			return a, true
		}
		if err := json.Unmarshal([]byte(line[7:]), &a); err != nil {
			c.Error(err)
			return a, true
		}
	case <-time.After(20 * time.Second):
		c.Errorf("%s does not answer", w.who)
		return a, true
	}
	c.judge(a)
	return a, false
}

// judge: what a call says it did is committed when it returns, and it left nothing behind.
func (c *calls) judge(a called) {
	if a.Leaked != "" {
		c.Errorf("call %s left goroutines: %s", a.By, a.Leaked)
	}
	var there int64
	if err := c.x.pool.QueryRow(c.Context(), "SELECT count(*) FROM "+c.x.table()+" WHERE by = $1", a.By).Scan(&there); err != nil {
		c.Error(err)
	}
	if there < a.Done || there > a.Done+a.Unknown {
		c.Errorf("call %s says it did %d effects (and %d perhaps), %d are there", a.By, a.Done, a.Unknown, there)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered++
	if a.More {
		c.more++
	}
	if a.Err != "" {
		c.failed++
	}
	if a.Done == 0 {
		c.idle++
	}
}

// drain calls a function until nothing is left to do.
func (c *calls) drain() {
	c.Helper()
	w := c.joinFunction()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		a, died := c.answer(w, func() { w.tell("call %v", time.Second) })
		if died {
			c.FailNow()
		}
		if !a.More && a.Err == "" {
			w.leave()
			return
		}
	}
	c.Fatal(fmt.Errorf("there is more to do after 30 s of calls"))
}
