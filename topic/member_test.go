// Members of a consumer: how they come to share the partitions, and what holds meanwhile.

package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// load publishes to all partitions until stop is called, now and then untold.
func (e *env) load(partitions int, every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; pause(ctx, every); i++ {
			e.publish("t", i%partitions, 1+i%3, i%5 != 0)
		}
	}()
	stop = func() { cancel(); <-done }
	e.t.Cleanup(stop)
	return stop
}

// settled is TTL + 5 s, within which partitions move.
const settled = testTTL + 5*time.Second

// epochs are those of the positions, by partition.
func (e *env) epochs(consumer string, partitions int) (all []eventstore.Epoch) {
	for p := range partitions {
		h, err := e.store.Head(context.Background(), positionStream("t", p, consumer))
		e.ok(err)
		all = append(all, h.Epoch)
	}
	return all
}

// While nobody fails each message comes once, in order, whoever comes and goes.
func TestMembersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 8), newLedger(false)
		stop := e.load(8, 7*time.Millisecond)
		a := e.proc().join("c", l, nil)
		eventually(t, time.Second, "all by one", func() bool { return shares(a) == "[8]" })
		b := e.proc().join("c", l, nil)
		eventually(t, settled, "half each", func() bool { return shares(a, b) == "[4 4]" })
		kept, epochs := a.has(), e.epochs("c", 8)
		c := e.proc().join("c", l, nil)
		eventually(t, settled, "by three", func() bool { return shares(a, b, c) == "[2 3 3]" })
		for p, epoch := range e.epochs("c", 8) {
			if own := slices.Contains(c.has(), p); own != (epoch > epochs[p]) {
				t.Errorf("partition %d: epoch %d, was %d, and new is %v", p, epoch, epochs[p], own)
			}
		}
		for _, p := range a.has() {
			if !slices.Contains(kept, p) {
				t.Errorf("a has been given %d by a third member", p)
			}
		}
		b.stop.Store(true) // leaves by itself, and releases at once
		eventually(t, 2*time.Second+testTTL/3, "by two", func() bool { return shares(a, c) == "[4 4]" })
		time.Sleep(5 * time.Second)
		stop()
		eventually(t, time.Second, "all delivered and committed", func() bool { return l.reached(e, "t", 8) })
		l.check(t)
		for _, r := range []*run{a, b, c} {
			if r.kill(); r.losses() > 0 {
				t.Errorf("commits lost: %v", r.lost)
			}
		}
	})
}

// More members than partitions: those without are told so, and take over.
func TestMoreMembersThanPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 2), newLedger(true)
		var runs []*run
		for range 4 {
			runs = append(runs, e.proc().join("c", l, nil))
		}
		eventually(t, settled, "by two of four", func() bool { return shares(runs...) == "[0 0 1 1]" })
		time.Sleep(time.Minute)
		for _, r := range runs {
			if r.assignments() > 4 {
				t.Errorf("%d assignments while nothing happened", r.assignments())
			}
		}
		for _, r := range runs[:] {
			if len(r.has()) > 0 {
				r.kill()
			}
		}
		left := slices.DeleteFunc(slices.Clone(runs), func(r *run) bool { return r.err != nil })
		e.publish("t", 0, 1, true)
		e.publish("t", 1, 1, true)
		eventually(t, settled, "the others", func() bool { return shares(left...) == "[1 1]" && l.reached(e, "t", 2) })
		l.check(t)
		for _, r := range runs {
			r.kill()
		}
	})
}

// A member that is killed under load is replaced within TTL + 5 s; what it had committed
// does not come again, what it had not does.
func TestMemberKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 4), newLedger(true)
		stop := e.load(4, 11*time.Millisecond)
		a := e.proc().join("c", l, nil)
		// b commits every other Delivery only.
		b := e.proc().join("c", l, func(r *run, _ *Consumption) {
			n := 0
			r.body = func(Delivery) { n++; r.commit = n%2 == 0 }
		})
		eventually(t, settled, "half each", func() bool { return shares(a, b) == "[2 2]" })
		time.Sleep(time.Second)
		b.kill()
		eventually(t, settled, "all by the other", func() bool { return shares(a) == "[4]" })
		stop()
		eventually(t, time.Second, "all delivered and committed", func() bool { return l.reached(e, "t", 4) })
		l.check(t)
		a.kill()
	})
}

// A member that is lost and comes back within the TTL keeps what it has, under higher
// epochs; nobody else is disturbed, and what it had not committed comes again to it.
func TestMemberComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 4), newLedger(true)
		p, q := e.proc(), e.proc()
		a, b := p.join("c", l, nil), q.join("c", l, func(r *run, _ *Consumption) { r.commit = false })
		eventually(t, settled, "half each", func() bool { return shares(a, b) == "[2 2]" })
		had, epochs, told := b.has(), e.epochs("c", 4), a.assignments()
		for n := range 4 {
			e.publish("t", n, 3, true)
		}
		time.Sleep(time.Second)
		b.kill()
		again := e.proc().join("c", l, func(r *run, _ *Consumption) { r.id = b.id })
		synctest.Wait()
		if !slices.Equal(again.has(), had) {
			t.Errorf("it has %v, had %v", again.has(), had)
		}
		for n, epoch := range e.epochs("c", 4) {
			if own := slices.Contains(had, n); own != (epoch > epochs[n]) {
				t.Errorf("partition %d of %v: epoch %d, was %d", n, had, epoch, epochs[n])
			}
		}
		eventually(t, time.Second, "all", func() bool { return l.reached(e, "t", 4) })
		time.Sleep(2 * testTTL)
		if a.assignments() != told {
			t.Errorf("the other was disturbed: %d assignments, %d before", a.assignments(), told)
		}
		l.check(t)
		a.kill()
		again.kill()
	})
}

// Two Consume calls of one member: the newer one goes on, the older one ends, on the same
// broker and on another one.
func TestMemberTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, same := range []bool{true, false} {
			e, l := memEnv(t, 4), newLedger(true)
			p := e.proc()
			a := p.join("c", l, nil)
			eventually(t, time.Second, "all by one", func() bool { return shares(a) == "[4]" })
			if !same {
				p = e.proc()
			}
			began := time.Now()
			b := p.join("c", l, func(r *run, _ *Consumption) { r.id = a.id })
			if a.ends(); time.Since(began) > testTTL/2 {
				t.Errorf("the older one went on for %v", time.Since(began))
			}
			if !errors.Is(a.err, eventstore.ErrLeaseLost) {
				t.Errorf("the older one: %v", a.err)
			}
			e.publish("t", 1, 5, true)
			eventually(t, time.Second, "all", func() bool { return shares(b) == "[4]" && l.reached(e, "t", 4) })
			time.Sleep(2 * testTTL)
			if b.assignments() > 2 {
				t.Errorf("%d assignments", b.assignments())
			}
			b.kill()
			l.check(t)
		}
	})
}

// L1: a member frozen with a page in its hands loses its partitions after the TTL. When it
// thaws its commit is refused, and it delivers nothing of them any more.
func TestL1FrozenMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 4), newLedger(true)
		stop := e.load(4, 11*time.Millisecond)
		thaw := make(chan struct{})
		frozen := make(chan struct{})
		p := e.proc()
		var thawGate func()
		n := 0
		z := p.join("c", l, func(r *run, _ *Consumption) {
			r.body = func(d Delivery) {
				if n += len(d.Messages); n > 50 && len(d.Messages) > 0 && thawGate == nil {
					thawGate = p.gate.freeze()
					close(frozen)
					<-thaw
				}
			}
		})
		<-frozen
		a := e.proc().join("c", l, nil)
		eventually(t, settled, "all by the other", func() bool { return shares(a) == "[4]" })
		time.Sleep(time.Second)
		thawGate()
		close(thaw)
		eventually(t, settled, "half each", func() bool { return shares(a, z) == "[2 2]" })
		stop()
		eventually(t, time.Second, "all", func() bool { return l.reached(e, "t", 4) })
		if z.losses() == 0 {
			t.Error("the commit of what it had in its hands was not refused")
		}
		l.check(t)
		a.kill()
		z.kill()
	})
}

// A member that has stopped believing: its leases ran out since the store did not answer.
// What was read is not delivered, though nobody has taken the partitions.
func TestExpiredMemberDeliversNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 1), newLedger(true)
		p := e.proc()
		e.publish("t", 0, 1, false)
		r := p.join("c", l, nil)
		eventually(t, time.Second, "all", func() bool { return l.reached(e, "t", 1) })
		// Its reads are answered late, its renewals not at all.
		slow := make(chan struct{})
		p.gate.mu.Lock()
		p.gate.before = func(call string, s eventstore.Stream) {
			if call == "leases" || call == "read" && s == "t-0" {
				<-slow
			}
		}
		p.gate.mu.Unlock()
		e.publish("t", 0, 1, true)
		time.Sleep(testTTL + time.Second)
		p.gate.mu.Lock()
		p.gate.before = func(call string, _ eventstore.Stream) {
			if call == "leases" {
				time.Sleep(time.Second)
			}
		}
		p.gate.mu.Unlock()
		l.mu.Lock()
		n := len(l.all)
		l.mu.Unlock()
		close(slow)
		synctest.Wait()
		l.mu.Lock()
		if len(l.all) > n {
			t.Error("delivered behind the end of its leases")
		}
		l.mu.Unlock()
		eventually(t, settled, "all, once it has them again", func() bool { return l.reached(e, "t", 1) })
		l.check(t)
		r.kill()
	})
}

// A partition is given up when what was delivered of it is committed, however late, and
// after half a TTL if it never is.
func TestRebalanceWaitsForCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, commits := range []bool{true, false} {
			e, l := memEnv(t, 2), newLedger(true)
			e.publish("t", 0, 5, false)
			e.publish("t", 1, 5, false)
			a := e.proc().join("c", l, func(r *run, _ *Consumption) { r.commit = false })
			eventually(t, time.Second, "all delivered", func() bool { return l.given(e, "t", 2) })
			b := e.proc().join("c", l, nil)
			eventually(t, testTTL/3, "a gives one up", func() bool { return shares(a) == "[1]" })
			began := time.Now()
			var left int
			for p := range 2 {
				if !slices.Contains(a.has(), p) {
					left = p
				}
			}
			// Nothing of it comes to anybody while it is not committed.
			e.publish("t", left, 3, true)
			time.Sleep(testTTL / 4)
			l.mu.Lock()
			for _, m := range l.all {
				if m.partition == left && (m.who != a.id || m.offset > 5) {
					t.Errorf("delivered while it is being left: %v", m)
				}
			}
			l.mu.Unlock()
			if commits {
				a.commitTo(t.Context(), left, 5)
			}
			eventually(t, settled, "b has it", func() bool { return fmt.Sprint(b.has()) == fmt.Sprint([]int{left}) })
			switch took := time.Since(began); {
			case commits && took > testTTL/4+2*eagerInterval:
				t.Errorf("committed, it took %v", took)
			case !commits && (took < testTTL/2 || took > testTTL/2+2*eagerInterval):
				t.Errorf("not committed, it took %v", took)
			}
			eventually(t, time.Second, "what is new", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.acked[left] == 8 })
			a.commitTo(t.Context(), left, 6)
			if a.losses() != 1 {
				t.Error("a commit by who has left it was not refused")
			}
			l.check(t)
			a.kill()
			b.kill()
		}
	})
}

// The same, where commits go through another broker than the one that delivers.
func TestRebalanceSeesCommitsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 2), newLedger(true)
		e.publish("t", 0, 5, false)
		e.publish("t", 1, 5, false)
		a := e.proc().join("c", l, func(r *run, _ *Consumption) { r.commit = false })
		eventually(t, time.Second, "all delivered", func() bool { return l.given(e, "t", 2) })
		other := e.proc()
		for p := range 2 {
			lost, err := other.c.commit(t.Context(), Commit{Topic: "t", Consumer: "c", Member: a.id, Places: []Place{{p, 5}}})
			if err != nil || len(lost) > 0 {
				t.Fatal(lost, err)
			}
		}
		b := e.proc().join("c", l, nil)
		began := time.Now()
		eventually(t, settled, "half each", func() bool { return shares(a, b) == "[1 1]" })
		if took := time.Since(began); took > testTTL/3+eagerInterval+200*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		l.check(t)
		a.kill()
		b.kill()
	})
}

// The position is fenced before it is read: a commit that comes between the two would be
// passed over, and what it covers delivered again.
func TestPositionIsFencedBeforeItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 1), newLedger(true)
		e.publish("t", 0, 10, false)
		a := e.proc().join("c", l, func(r *run, _ *Consumption) { r.commit = false })
		eventually(t, time.Second, "all delivered", func() bool { return l.given(e, "t", 1) })
		a.kill()
		// At each call about the position that b makes, the one that was lost commits one more.
		p := e.proc()
		next := eventstore.Seqno(1)
		other := e.proc()
		p.gate.before = func(call string, s eventstore.Stream) {
			if s != positionStream("t", 0, "c") || call == "append" {
				return
			}
			lost, err := other.c.commit(context.Background(), Commit{Topic: "t", Consumer: "c", Member: a.id, Places: []Place{{0, next}}})
			if e.ok(err); len(lost) == 0 {
				l.ack(a.id, 0, next)
				next++
			}
		}
		b := p.join("c", l, nil)
		eventually(t, settled, "all by b", func() bool { return l.reached(e, "t", 1) })
		if next == 1 {
			t.Error("no commit came between")
		}
		l.check(t)
		b.kill()
	})
}

// Where a consumer of what is new begins is stored when it begins: what came while nobody
// was there, before its first commit, is delivered to who comes next.
func TestBeginningIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 2), newLedger(true)
		e.publish("t", 0, 5, false)
		l.seen = map[int]eventstore.Seqno{0: 5}
		anew := func(r *run, q *Consumption) { q.Start = New }
		a := e.proc().join("c", l, anew)
		eventually(t, time.Second, "all by one", func() bool { return shares(a) == "[2]" })
		a.kill()
		e.publish("t", 0, 5, true)
		e.publish("t", 1, 5, true)
		b := e.proc().join("c", l, anew)
		eventually(t, settled, "what came meanwhile", func() bool { return l.reached(e, "t", 2) })
		l.check(t)
		b.kill()
	})
}

// A member that is frozen, and has come a second time elsewhere, may still believe in its
// leases. So none of them goes to another member before they would have run out.
func TestFrozenMemberTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 2), newLedger(true)
		p := e.proc()
		a := p.join("c", l, nil)
		eventually(t, time.Second, "all by one", func() bool { return shares(a) == "[2]" })
		thaw := p.gate.freeze()
		again := e.proc().join("c", l, func(r *run, _ *Consumption) { r.id = a.id })
		synctest.Wait()
		if shares(again) != "[2]" {
			t.Errorf("it has %v", again.has())
		}
		began := time.Now()
		b := e.proc().join("c", l, nil)
		eventually(t, settled, "one each", func() bool { return shares(again, b) == "[1 1]" })
		if took := time.Since(began); took < testTTL-100*time.Millisecond {
			t.Errorf("given away after %v", took)
		}
		thaw()
		a.ends()
		if !errors.Is(a.err, eventstore.ErrLeaseLost) {
			t.Error(a.err)
		}
		l.check(t)
		again.kill()
		b.kill()
	})
}

// A member that has nothing to deliver and has lost the store gives no signs of life.
func TestNoSignsOfLifeWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 1), newLedger(true)
		a := e.proc().join("c", l, nil)
		eventually(t, time.Second, "the one", func() bool { return shares(a) == "[1]" })
		p := e.proc()
		p.c.o.heartbeat = 100 * time.Millisecond
		b := p.join("c", l, nil)
		time.Sleep(time.Second)
		if b.signs() < 9 {
			t.Errorf("%d signs of life in a second", b.signs())
		}
		p.gate.failWith(&eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "test"})
		time.Sleep(testTTL/3 + time.Second)
		lives := b.signs()
		b.ends()
		if b.signs() != lives {
			t.Errorf("%d signs of life without the store", b.signs()-lives)
		}
		a.kill()
	})
}

// A Commit that comes while the same member takes the partition up anew, when its position
// has been read already: what it covers does not come again.
func TestCommitWhileItIsTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, l := memEnv(t, 1), newLedger(true)
		e.publish("t", 0, 10, false)
		p := e.proc()
		a := p.join("c", l, func(r *run, _ *Consumption) { r.commit = false })
		eventually(t, time.Second, "all delivered", func() bool { return l.given(e, "t", 1) })
		a.commitTo(t.Context(), 0, 5)
		a.kill()
		var once sync.Once
		p.gate.before = func(call string, s eventstore.Stream) {
			if call == "read" && s == "t-0" { // the message at the position is compared
				once.Do(func() {
					p.gate.mu.Lock()
					p.gate.before = nil
					p.gate.mu.Unlock()
					a.commitTo(context.Background(), 0, 8)
				})
			}
		}
		b := p.join("c", l, func(r *run, _ *Consumption) { r.id = a.id })
		eventually(t, settled, "the rest", func() bool { return l.reached(e, "t", 1) })
		l.check(t)
		if a.losses() > 0 {
			t.Error("the commit was refused")
		}
		b.kill()
	})
}

// A member whose context ends with that cause gives its partitions up, as one that breaks
// out of the loop; with any other cause they are kept for it.
func TestMemberLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memEnv(t, 2)
		p := e.proc()
		for cause, kept := range map[error]bool{ErrLeave: false, errors.New("else"): true} {
			ctx, cancel := context.WithCancelCause(within(t))
			err := collect(ctx, p.c, Consumption{Topic: "t", Consumer: "c"}, func(d Delivery) bool {
				if len(d.Assignment) == 2 {
					cancel(cause)
				}
				return false
			})
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			members, err := p.c.membersOf(t.Context(), Spec{Name: "t", Partitions: 2}, "c")
			e.ok(err)
			if is := !members[0].IsZero(); is != kept || is == members[1].IsZero() {
				t.Errorf("%v: the members are %v", cause, members)
			}
			time.Sleep(settled)
		}
	})
}
