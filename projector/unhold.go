// Holds of parked keys that nothing needs any more: a reset took the key away, or the
// step that was to park it was never done. Left alone they would stop trims for ever.

package projector

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// forgetHolds releases what this session holds, as far as it does not wait now that the
// lane was loaded anew. What another holder may hold is not this session's to release,
// nor to rely on.
func (s *session) forgetHolds(ctx context.Context) {
	if !s.owned {
		s.held = nil
		return
	}
	s.unhold(ctx, slices.Collect(maps.Keys(s.held)))
}

// releaseStray releases what those before held in this lane and did not park. It is called
// by who has just claimed the lane: no step of theirs can park anything any more.
func (s *session) releaseStray(ctx context.Context) {
	if s.p.control == nil || s.p.o.Stream != "" || s.p.o.NoHold {
		return
	}
	all, err := s.p.store.ListHolds(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.p.logger.WarnContext(ctx, "holds of parked keys not looked through", "lane", s.key.Lane, "error", err)
		}
		return
	}
	var held []eventstore.Stream
	for _, h := range all {
		if h.Name == s.p.HoldName()+parkedHold && LaneOf(h.Stream.Slot(), s.lane.Lanes) == s.key.Lane && slices.Contains(s.p.source.categories(), h.Stream.Category()) {
			held = append(held, h.Stream)
		}
	}
	s.unhold(ctx, held)
}

// unhold releases the holds on streams of which nothing waits. It is no harm if that
// fails, but for space.
func (s *session) unhold(ctx context.Context, held []eventstore.Stream) {
	if len(held) == 0 {
		return
	}
	waits := map[eventstore.Stream]bool{}
	for _, k := range s.parked {
		for _, q := range k.Queue {
			waits[q.Stream] = true
		}
	}
	for _, stream := range held {
		if waits[stream] {
			continue
		}
		delete(s.held, stream)
		if err := s.p.store.ReleaseHold(ctx, s.p.HoldName()+parkedHold, "", stream); err != nil {
			s.p.logger.WarnContext(ctx, "hold of a parked key not released", "stream", stream, "error", err)
		}
	}
}

// releaseHolds releases all holds of a version, in all backends: on what it follows, or
// did once, and on what waits under parked keys, or was to.
func releaseHolds(ctx context.Context, store *eventstore.Store, name string) error {
	all, err := store.ListHolds(ctx)
	failed := []error{err}
	for _, h := range all {
		if h.Name != name && h.Name != name+parkedHold {
			continue
		}
		if h.Stream != "" {
			h.Category = ""
		}
		failed = append(failed, store.ReleaseHold(ctx, h.Name, h.Category, h.Stream))
	}
	return errors.Join(failed...)
}

// releaseDropped releases what a worker of a version that was dropped held behind the Drop,
// which it had not seen yet. Whoever registers the version anew holds what it needs behind
// that; what they may have held before is held again.
func (p *Projector) releaseDropped(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	all, err := p.versions(ctx)
	if err == nil && p.version(all) != nil {
		return
	}
	if err == nil {
		err = p.Unregister(ctx)
	}
	if err == nil {
		all, err = p.versions(ctx)
	}
	for _, leaf := range p.leaves() {
		if v := leaf.version(all); v != nil && err == nil {
			err = errors.Join(leaf.hold(ctx, leaf.lowest(v)), leaf.session(0).holdQueues(ctx, v.Parked))
		}
	}
	if err != nil {
		p.logger.WarnContext(ctx, "holds of a version that was dropped not released", "hold", p.HoldName(), "error", err)
	}
}

// holdName is the name of the holds of a version, the same in all backends.
func holdName(k Key) string {
	return "projector/" + Key{Projector: k.Name(), Version: k.Version}.String()
}
