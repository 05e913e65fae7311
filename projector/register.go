// Registration: a version makes itself known before it works.

package projector

import (
	"cmp"
	"context"
	"slices"
)

// controlOf finds the Control of a handler. leased is false if it is private to this
// process, so that there is nobody to share lanes with.
func controlOf(h Handler) (c Control, leased bool) {
	if s, ok := h.(*sink); ok {
		c, ok = s.Checkpoints.(Control)
		return c, ok
	}
	if s, ok := h.(interface{ Keeps() Checkpoints }); ok {
		c, ok = s.Keeps().(Control)
		return c, ok
	}
	c, ok := h.(Control)
	_, private := h.(interface{ private() })
	return c, ok && !private
}

// layout is what was last seen of a version: how many lanes it has, and how far the live
// version has come if this is a shadow. It is behind Projector.mu.
type layout struct {
	lanes  int
	live   []Checkpoint // of the live version, by lane; nil: this one is live
	behind uint64       // how far the lowest lane is behind the lowest of live
}

// prepare registers the version if it is not, and holds what it has not come to. It
// returns the number of its lanes.
func (p *Projector) prepare(ctx context.Context) (lanes int, err error) {
	if p.control == nil {
		return 1, nil
	}
	all, err := p.register(ctx)
	if err != nil {
		return 0, err
	}
	for _, leaf := range p.leaves() {
		v := leaf.version(all)
		leaf.lay(all)
		lanes = len(v.Lanes)
		if err := leaf.hold(ctx, leaf.lowest(v)); err != nil {
			return 0, leaf.gone(ctx, err)
		}
	}
	return lanes, nil
}

// gone tells what was trimmed before this version came to it from what another instance
// has left behind since it was looked at.
func (p *Projector) gone(ctx context.Context, failed error) error {
	if !hopeless(failed) {
		return failed
	}
	all, err := p.versions(ctx)
	if v := p.version(all); err == nil && v != nil {
		return p.hold(ctx, p.lowest(v))
	}
	return failed
}

// versions lists the versions of the projector, in all backends.
func (p *Projector) versions(ctx context.Context) (all []Version, err error) {
	err = contained(func() error {
		all, err = p.control.Versions(ctx, p.key.Name())
		return err
	})
	return all, err
}

// version finds the projector's version; nil: it is not registered.
func (p *Projector) version(all []Version) *Version {
	i := slices.IndexFunc(all, func(v Version) bool { return v.Key == p.key })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// lowest is the checkpoint of the lane that has come least far.
func (p *Projector) lowest(v *Version) Checkpoint {
	return slices.MinFunc(v.Lanes, func(a, b Checkpoint) int {
		return cmp.Compare(p.source.place(a), p.source.place(b))
	})
}

// register makes the version known, in every backend, and returns all versions.
func (p *Projector) register(ctx context.Context) (all []Version, err error) {
	name := p.key.Name()
	if all, err = p.versions(ctx); err != nil || p.known(all) {
		return all, err
	}
	for _, leaf := range p.leaves() {
		if leaf.version(all) == nil {
			if err := leaf.unrivaled(ctx); err != nil {
				return nil, err
			}
		}
	}
	return all, p.control.Update(ctx, name, func(found []Version) ([]Version, error) {
		for _, leaf := range p.leaves() {
			found = leaf.add(found)
		}
		all = slices.Clone(found)
		return found, nil
	})
}

// known says if all is registered as it is now.
func (p *Projector) known(all []Version) bool {
	for _, leaf := range p.leaves() {
		v := leaf.version(all)
		if v == nil || !v.Scope.same(leaf.scope()) {
			return false
		}
	}
	return true
}

func (s Scope) same(o Scope) bool {
	return slices.Equal(s.Categories, o.Categories) && slices.Equal(s.Types, o.Types) && s.Stream == o.Stream
}

// scope is what the projector follows.
func (p *Projector) scope() Scope {
	if p.o.Stream != "" {
		return Scope{Types: p.o.Types, Stream: p.o.Stream}
	}
	return Scope{Categories: p.source.categories(), Types: slices.Sorted(slices.Values(p.o.Types))}
}

// add adds the version to those there are. The first one of a projector is live.
func (p *Projector) add(all []Version) []Version {
	if v := p.version(all); v != nil {
		v.Scope = p.scope()
		return all
	}
	v := Version{Key: p.key, Scope: p.scope(), Role: Live, Lanes: make([]Checkpoint, max(1, p.o.Lanes))}
	for _, other := range all {
		if other.Key.Projector == p.key.Projector && other.Role == Live {
			v.Role = Shadow
		}
		// The versions of all backends have as many lanes: a worker has a lane in all.
		if other.Key.Name() == p.key.Name() && other.Key.Version == p.key.Version {
			v.Lanes = make([]Checkpoint, len(other.Lanes))
		}
	}
	for i := range v.Lanes {
		v.Lanes[i] = Checkpoint{Epoch: 1, Position: p.o.StartAt, Seqno: p.o.StartSeqno}
	}
	return append(all, v)
}

// lay notes the layout.
func (p *Projector) lay(all []Version) {
	v := p.version(all)
	l := layout{lanes: len(v.Lanes)}
	if v.Role == Shadow {
		for _, other := range all {
			if other.Key.Projector == p.key.Projector && other.Role == Live {
				l.live = other.Lanes
				l.behind = other.aheadOf(v)
			}
		}
	}
	p.mu.Lock()
	moved := !slices.EqualFunc(l.live, p.layout.live, Checkpoint.Same)
	p.layout = l
	p.mu.Unlock()
	if moved {
		p.nudge()
	}
}

// top is how far a lane of a shadow may come: not beyond the live version's lanes that
// have slots in common with it. A lane that became a shadow's since the versions were
// looked at, when it was the live one's, stays where it is until they are looked at again.
// (Places of a version that was live before the one that is are no danger: all effects up
// to there were had.)
func (p *Projector) top(c cursor) (top Checkpoint, ok bool) {
	p.mu.Lock()
	live := p.layout.live
	p.mu.Unlock()
	if c.shadow && len(live) == 0 {
		return c.at, true
	}
	for i, at := range live {
		if overlap(c.lane, c.lanes, i, len(live)) && (!ok || p.source.place(at) < p.source.place(top)) {
			top, ok = at, true
		}
	}
	return top, ok
}

// overlap says if lane a of n and lane b of m have slots in common.
func overlap(a, n, b, m int) bool {
	return first(a, n) < first(b+1, m) && first(b, m) < first(a+1, n)
}
