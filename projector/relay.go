// Changing the number of lanes.

package projector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// SetLanes changes the number of lanes of a registered version, while workers keep
// running: they stay away from it for the moment that it takes. Nothing is handled twice
// or skipped. Lanes that become one are brought to one place first, that of the lane
// that is furthest, by this projector's handler; so it takes as long as handling what
// lies between them. It may be given up at any time, and then done again.
//
// ErrInvalid for a handler without Control, a version that is paused, or, where the
// control is private to this process, while Run is on. ErrLeaseLost if this process was
// held up for longer than the TTL meanwhile; ErrOverloaded if CatchUp or others took lanes
// each time, or if lanes of a shadow would have to overtake the live version's.
func (p *Projector) SetLanes(ctx context.Context, lanes int) error {
	switch {
	case p.mistake != nil:
		return p.mistake
	case lanes < 1 || lanes > MaxLanes:
		return p.invalid(fmt.Sprintf("1 to %d lanes", MaxLanes), fmt.Sprint(lanes))
	case p.control == nil || p.o.Stream != "":
		return p.invalid("a projector of categories whose handler has Control", "one that has one lane")
	case !p.leased && p.running.Load():
		return p.invalid("that nobody works on a projection in memory while its lanes are changed", "a Run that has not ended")
	}
	if _, err := p.prepare(ctx); err != nil {
		return err
	}
	r := &relay{p: p, holder: eventstore.NewUUID(), lanes: lanes}
	if p.leased {
		if err := r.clear(ctx); err != nil {
			return err
		}
		defer r.giveBack(ctx)
	}
	for range maxConflicts {
		done, err := r.try(ctx)
		if done || err != nil {
			return err
		}
	}
	return &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: "set lanes of " + p.key.String(), Wanted: "the lanes for a moment",
		Found: "others that took them each time", Hint: "try again, without CatchUp at the same time"}
}

// relay is one change of the number of lanes.
type relay struct {
	p      *Projector
	holder eventstore.UUID
	lanes  int
	lease  eventstore.Lease
	until  time.Time // when the lease is to be renewed
}

// clear announces the change and waits until all workers have left the lanes.
func (r *relay) clear(ctx context.Context) error {
	prefix := r.p.leasePrefix()
	for {
		lease, granted, err := r.p.store.AcquireLease(ctx, prefix+relayLease, r.holder, r.p.o.LeaseTTL)
		if err != nil {
			return err
		}
		if granted {
			r.lease, r.until = lease, time.Now().Add(beatInterval(r.p.o.LeaseTTL))
			all, err := r.p.store.UpdateLeases(ctx, eventstore.LeaseUpdate{Holder: r.holder, TTL: r.p.o.LeaseTTL, Prefix: prefix})
			if err != nil || !worked(all, prefix) {
				return err
			}
		}
		if err := sleep(ctx, min(eagerInterval, beatInterval(r.p.o.LeaseTTL))); err != nil {
			return fmt.Errorf("workers still have lanes of projector %s: %w", r.p.key, err)
		}
	}
}

// worked says if somebody has a lane.
func worked(all []eventstore.Lease, prefix string) bool {
	for _, l := range all {
		if l.Left > 0 && strings.HasPrefix(l.Name, prefix+"lane/") {
			return true
		}
	}
	return false
}

// keep renews the lease if it is time to.
func (r *relay) keep(ctx context.Context) error {
	if !r.p.leased || time.Now().Before(r.until) {
		return nil
	}
	lease, err := r.p.store.RenewLease(ctx, r.lease, r.p.o.LeaseTTL)
	if err == nil {
		r.lease, r.until = lease, time.Now().Add(beatInterval(r.p.o.LeaseTTL))
	}
	return err
}

func (r *relay) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	if err := r.p.store.ReleaseLease(ctx, r.lease); err != nil {
		r.p.logger.WarnContext(ctx, "lease not released; it runs out by itself", "ttl", r.p.o.LeaseTTL, "error", err)
	}
}

// try levels the lanes and divides them anew. done is false if somebody else worked on
// one meanwhile.
func (r *relay) try(ctx context.Context) (done bool, err error) {
	all, err := r.p.versions(ctx)
	if err != nil {
		return false, err
	}
	plan := map[Key]division{}
	for _, leaf := range r.p.leaves() {
		v := leaf.version(all)
		if v == nil {
			return false, NotRegistered(leaf.key)
		}
		leaf.lay(all)
		if v.Paused() {
			return false, r.p.invalid("lanes that can be worked on", "that they are paused: resume them first")
		}
		d, err := r.level(ctx, leaf, v)
		if fenced(err) {
			return false, nil
		}
		if err != nil {
			return false, leaf.inBackend(err)
		}
		plan[leaf.key] = d
	}
	err = r.p.control.Update(ctx, r.p.key.Name(), func(found []Version) ([]Version, error) {
		for i := range found {
			if d, ok := plan[found[i].Key]; ok && !d.apply(&found[i]) {
				return nil, errChanged
			}
		}
		return found, nil
	})
	if errors.Is(err, errChanged) {
		return false, nil
	}
	return err == nil, err
}

// division is what the lanes of a version are, levelled, and what they become.
type division struct{ from, to []Checkpoint }

// apply divides a version if it is as it was.
func (d division) apply(v *Version) bool {
	if len(v.Lanes) != len(d.from) {
		return false
	}
	for i, c := range v.Lanes {
		if !c.Same(d.from[i]) {
			return false
		}
	}
	v.Lanes = d.to
	return true
}

// level claims all lanes, brings those that will share a lane to one place, and works
// out the new ones.
func (r *relay) level(ctx context.Context, p *Projector, v *Version) (d division, err error) {
	old := len(v.Lanes)
	sessions := make([]*session, old)
	for i := range sessions {
		sessions[i] = p.sessionOf(r.holder, i)
		if err := r.claim(ctx, sessions[i]); err != nil {
			return d, err
		}
	}
	for i, group := range groups(old, r.lanes) {
		top := sessions[i].kept
		for _, lane := range group {
			if p.source.place(sessions[lane].kept) > p.source.place(top) {
				top = sessions[lane].kept
			}
		}
		if err := r.bring(ctx, sessions[i], top); err != nil {
			return d, err
		}
	}
	epoch := eventstore.Epoch(0)
	for _, s := range sessions {
		d.from, epoch = append(d.from, s.kept), max(epoch, s.kept.Epoch)
		p.forget(s.key.Lane)
	}
	for i := range r.lanes {
		if err := r.keep(ctx); err != nil {
			return d, err
		}
		c := d.from[first(i, r.lanes)*old/eventstore.Slots]
		c.Epoch, c.Holder = epoch+1, eventstore.UUID{}
		if c.Recent, err = p.source.digest(ctx, cursor{lane: i, lanes: r.lanes, at: c}); err != nil {
			return d, err
		}
		d.to = append(d.to, c)
	}
	return d, nil
}

func (r *relay) claim(ctx context.Context, s *session) error {
	if err := r.keep(ctx); err != nil {
		return err
	}
	if err := s.open(ctx); err != nil {
		return err
	}
	return s.claim(ctx)
}

// bring works on a lane until it has come to where another one is.
func (r *relay) bring(ctx context.Context, s *session, top Checkpoint) error {
	place := s.p.source.place
	for place(s.cur) < place(top) {
		// What a shadow passed before the live version did would have no effects: it is quiet,
		// and takes that one to have had them when it becomes live.
		if limit, ok := s.p.top(s.cursor()); ok && s.lane.Role == Shadow && place(limit) < place(top) {
			return &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: "set lanes of " + s.p.key.String(), Wanted: fmt.Sprintf("lane %d to go on to position %d", s.key.Lane, place(top)),
				Found: fmt.Sprintf("that the live version has come to %d there", place(limit)), Hint: "try again when the live version has come further: its shadow does not overtake it"}
		}
		if err := r.keep(ctx); err != nil {
			return err
		}
		looks, err := s.p.source.read(ctx, []cursor{s.cursor()})
		if err != nil {
			return s.overtaken(ctx, err)
		}
		l := looks[0]
		if place(l.next) > place(top) {
			l = s.p.cutAt(s.cur, l, top)
		}
		if err := s.absorb(ctx, l); err != nil {
			return err
		}
	}
	if s.ahead() {
		return s.write(ctx, Step{To: s.cur})
	}
	return nil
}

// groups returns for each old lane the old lanes that share a new one with it, directly
// or through others.
func groups(old, lanes int) [][]int {
	of := make([][]int, old)
	for start := 0; start < old; {
		end := start + 1 // of the group, exclusive
		for grown := true; grown; {
			grown = false
			for j := range lanes {
				lo, hi := first(j, lanes)*old/eventstore.Slots, (first(j+1, lanes)-1)*old/eventstore.Slots
				if lo < end && hi >= end {
					end, grown = hi+1, true
				}
			}
		}
		var group []int
		for i := start; i < end; i++ {
			group = append(group, i)
		}
		for i := start; i < end; i++ {
			of[i] = group
		}
		start = end
	}
	return of
}

// first is the first slot of a lane.
func first(lane, lanes int) int { return (lane*eventstore.Slots + lanes - 1) / lanes }
