// The crew: the lanes that this worker has, and how workers come to share them.

package projector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// crew is one Run of a projector with Control. Every beat it looks at the version as it
// is kept, renews its leases and sees who else is there, all lanes in one round trip,
// and takes or gives lanes so that each worker has its share.
//
// A lease says who works on a lane; that nobody else does is the checkpoint's to
// promise: a session claims it, under a new epoch, before it works. So a worker that is
// frozen and thaws, or whose clock is wrong, changes nothing.
type crew struct {
	p      *Projector
	leases leases
	teams  []*team // one a backend
	lanes  int     // of the version, at the last beat
	stop   context.CancelCauseFunc
	moved  time.Time // when the holds were moved last
}

// team works on this worker's lanes in one backend.
type team struct {
	p       *Projector
	pl      *puller
	members map[int]*member
}

// member is a session at work.
type member struct {
	s     *session
	leave func() // has it finish what it is at, and end
	abort func() // has it end
	done  chan struct{}
	since time.Time
}

// runCrew works until ctx ends or something fails that going on would make worse.
func (p *Projector) runCrew(outer context.Context) error {
	ctx, stop := context.WithCancelCause(outer)
	c := &crew{p: p, stop: stop}
	c.leases = newLeases(p)
	var waits []func()
	for _, leaf := range p.leaves() {
		leaf.running.Store(true)
		pl, wait := leaf.pull(ctx)
		waits = append(waits, wait, func() { leaf.running.Store(leaf == p) })
		c.teams = append(c.teams, &team{p: leaf, pl: pl, members: map[int]*member{}})
	}
	c.work(ctx)
	for _, t := range c.teams {
		t.wait()
	}
	stop(nil)
	for _, wait := range waits {
		wait()
	}
	if p.leased {
		c.leases.giveUp(outer)
	}
	if fenced(context.Cause(ctx)) {
		p.releaseDropped(outer)
	}
	if outer.Err() != nil {
		return outer.Err()
	}
	return context.Cause(ctx)
}

// work beats until ctx ends.
func (c *crew) work(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		pause, err := c.beat(ctx)
		switch {
		case err == nil:
			failures = 0
			for _, t := range c.teams {
				t.p.sees(nil, t.pl.still())
			}
		case ctx.Err() != nil:
			return
		case outage(err):
			if c.p.leased && c.leases.expired() {
				c.abort() // others may have them by now
			}
			pause = backoff(failures)
			failures++
			for _, t := range c.teams {
				t.p.sees(err, false)
			}
			c.p.logger.WarnContext(ctx, "projector cannot see to its lanes; trying again", "pause", pause, "error", err)
		default:
			c.stop(err)
			return
		}
		_ = sleep(ctx, pause)
	}
}

// beat looks at everything once. It returns when to look again.
func (c *crew) beat(ctx context.Context) (pause time.Duration, err error) {
	lanes, err := c.look(ctx)
	if err != nil {
		return 0, err
	}
	all := make([]int, lanes)
	for i := range all {
		all[i] = i
	}
	pause = beatInterval(c.p.o.LeaseTTL)
	if !c.p.leased {
		c.assign(ctx, all)
		return pause, nil
	}
	mine, eager, err := c.leases.share(ctx, lanes, c.leave)
	if err != nil {
		return 0, err
	}
	c.assign(ctx, mine)
	if eager {
		pause = min(pause, eagerInterval)
	}
	return pause, nil
}

// beatInterval is how often leases are renewed: often enough that two beats may fail, and
// that what a dead worker had is found free soon after its TTL.
func beatInterval(ttl time.Duration) time.Duration { return min(ttl/3, maxBeat) }

// look loads the version, registering it if this is the first beat.
func (c *crew) look(ctx context.Context) (lanes int, err error) {
	if c.lanes == 0 {
		if lanes, err = c.p.prepare(ctx); err == nil {
			c.lanes = lanes
		}
		return lanes, err
	}
	began := time.Now()
	all, err := c.p.versions(ctx)
	if err != nil {
		return 0, err
	}
	for _, t := range c.teams {
		v := t.p.version(all)
		if v == nil {
			return 0, c.missing(ctx, t.p)
		}
		lanes = len(v.Lanes)
		t.p.lay(all)
		t.compare(v, began)
	}
	c.lanes = lanes
	c.moveHolds(ctx, all)
	return lanes, nil
}

// compare wakes the sessions whose lane was changed from outside, as the version tells
// that was looked at from then on. A lane that was seen before that and lies behind what
// was seen has lost its last steps, in a failover that nobody else may notice: the
// session may have nothing to do, and so nothing that would be refused. A session that is
// woken for nothing loads its lane once more.
func (t *team) compare(v *Version, began time.Time) {
	t.p.mu.Lock()
	defer t.p.mu.Unlock()
	for lane, m := range t.members {
		seen := t.p.lanes[lane]
		switch {
		case seen == nil:
		case lane >= len(v.Lanes), v.Lanes[lane].Epoch > seen.kept.Epoch,
			seen.saved.Before(began) && t.p.setBack(seen.kept, v.Lanes[lane]):
			signal(m.s.poke)
		}
	}
}

// setBack says if a checkpoint that was kept is no longer, and what is there is not a later
// one of the same holder.
func (p *Projector) setBack(kept, found Checkpoint) bool {
	return found.Epoch < kept.Epoch ||
		found.Epoch == kept.Epoch && (found.Holder != kept.Holder || p.source.place(found) < p.source.place(kept))
}

// moveHolds lets the holds follow the lowest lane, not too often. Every worker does, to
// places that are never beyond it.
func (c *crew) moveHolds(ctx context.Context, all []Version) {
	if time.Since(c.moved) < holdInterval {
		return
	}
	c.moved = time.Now()
	for _, t := range c.teams {
		t.p.moveHold(ctx, t.p.lowest(t.p.version(all)))
	}
}

// assign has the worker work on these lanes.
func (c *crew) assign(ctx context.Context, lanes []int) {
	for _, lane := range lanes {
		for _, t := range c.teams {
			t.take(ctx, c, lane)
		}
	}
}

// leave has sessions finish what they are at, waits for them a moment, and returns the
// lanes that nobody works on any more.
func (c *crew) leave(lanes []int) (gone []int) {
	for _, t := range c.teams {
		for _, lane := range lanes {
			if m := t.members[lane]; m != nil {
				m.leave()
			}
		}
	}
	patience := time.NewTimer(leaveInterval)
	defer patience.Stop()
	over := false
	for _, lane := range lanes {
		at := 0
		for _, t := range c.teams {
			if m := t.members[lane]; m != nil && !m.ended(patience.C, &over) {
				at++
			}
		}
		if at == 0 {
			gone = append(gone, lane)
		}
	}
	return gone
}

// ended says if a member has ended, waiting for it as long as there is patience.
func (m *member) ended(patience <-chan time.Time, over *bool) bool {
	if !*over {
		select {
		case <-m.done:
		case <-patience:
			*over = true
		}
	}
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// abort ends all sessions.
func (c *crew) abort() {
	for _, t := range c.teams {
		for _, m := range t.members {
			m.abort()
		}
	}
}

// take starts a session on a lane that has none, not sooner than a moment after the last.
func (t *team) take(ctx context.Context, c *crew, lane int) {
	if m := t.members[lane]; m != nil {
		select {
		case <-m.done:
		default:
			return
		}
		if time.Since(m.since) < MaxBackoff {
			return
		}
	}
	ctx, abort := context.WithCancel(ctx)
	leave := make(chan struct{})
	m := &member{s: t.p.sessionOf(c.leases.member.Holder(), lane), abort: abort, done: make(chan struct{}), since: time.Now(),
		leave: sync.OnceFunc(func() { close(leave) })}
	t.members[lane] = m
	go func() {
		defer close(m.done)
		defer abort()
		err := m.s.run(ctx, t.pl, leave)
		t.p.forget(lane)
		if err != nil && ctx.Err() == nil && !c.excused(err) {
			c.stop(t.p.inBackend(err))
		}
	}()
}

// excused says if the worker goes on although a session has ended: another instance took
// the lane, or there is no such lane any more. The next beat tells which.
func (c *crew) excused(err error) bool {
	if errors.Is(err, ErrNotRegistered) {
		return true
	}
	return c.p.leased && fenced(err)
}

func (t *team) wait() {
	for _, m := range t.members {
		<-m.done
	}
}

// leasePrefix is what the names of all leases of a version begin with.
func (p *Projector) leasePrefix() string { return leasePrefixOf(p.key) }

func leasePrefixOf(k Key) string { return fmt.Sprintf("projector/%s/%d/", k.Name(), k.Version) }
