// Categories, dedicated streams, snapshots and holds.

package filelog

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// CreateCategory creates a category; idempotent for the same spec.
func (l *Log) CreateCategory(ctx context.Context, spec eventstore.CategorySpec) error {
	return l.change(ctx, "create category", "", 0, func(g *group) (body, error) {
		if err := g.whole(); err != nil {
			return nil, err
		}
		if c := l.reg.categories[spec.Name]; c != nil {
			return nil, eventstore.SameSpec(c.spec, spec)
		}
		return createCategoryBody{l.reg.lastNumber + 1, spec}, nil
	})
}

// DeleteCategory removes a category and all that is in it. Its space comes back later,
// see Reclaim.
func (l *Log) DeleteCategory(ctx context.Context, name eventstore.Category) error {
	const op = "delete category"
	return l.change(ctx, op, "", 0, func(g *group) (body, error) {
		if err := g.whole(); err != nil {
			return nil, err
		}
		c, err := l.reg.category(op, name, "")
		if err != nil {
			return nil, err
		}
		return deleteCategoryBody{c.number}, nil
	})
}

// ListCategories returns all categories ordered by name.
func (l *Log) ListCategories(ctx context.Context) ([]eventstore.CategorySpec, error) {
	if err := l.begin(ctx, "list categories", ""); err != nil {
		return nil, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	var all []eventstore.CategorySpec
	for _, name := range slices.Sorted(maps.Keys(l.reg.categories)) {
		all = append(all, l.reg.categories[name].spec)
	}
	return all, nil
}

// CreateStreams creates streams of dedicated categories, all or none.
func (l *Log) CreateStreams(ctx context.Context, streams []eventstore.Stream) error {
	return l.change(ctx, "create streams", "", 0, func(g *group) (body, error) {
		if err := g.whole(); err != nil {
			return nil, err
		}
		var b createStreamsBody
		added := map[eventstore.Stream]bool{}
		for _, s := range streams {
			c, err := l.dedicated("create streams", s)
			if err != nil {
				return nil, err
			}
			if l.reg.streams[s] == nil && !added[s] {
				added[s] = true
				b.streams = append(b.streams, streamRef{g.ordinals + uint32(len(b.streams)), c.number, s})
			}
		}
		if len(b.streams) == 0 {
			return nil, nil
		}
		return b, nil
	})
}

// DropStream removes a stream of a dedicated category.
func (l *Log) DropStream(ctx context.Context, s eventstore.Stream) error {
	const op = "drop stream"
	return l.change(ctx, op, s, 0, func(g *group) (body, error) {
		if err := g.whole(); err != nil {
			return nil, err
		}
		if _, err := l.dedicated(op, s); err != nil {
			return nil, err
		}
		st := l.reg.streams[s]
		if st == nil {
			return nil, eventstore.NoSuchStreamError(op, s)
		}
		return dropStreamBody{st.ref()}, nil
	})
}

// dedicated returns the category of a stream if it is a dedicated one.
func (l *Log) dedicated(op string, s eventstore.Stream) (*category, error) {
	c, err := l.reg.category(op, s.Category(), s)
	if err == nil && !c.dedicated() {
		err = eventstore.NotDedicatedError(op, s)
	}
	return c, err
}

// SaveSnapshot keeps sn if it is newer than the one kept.
func (l *Log) SaveSnapshot(ctx context.Context, sn eventstore.Snapshot) error {
	const op = "save snapshot"
	return l.change(ctx, op, sn.Stream, len(sn.Data), func(g *group) (body, error) {
		_, st, err := g.alone(op, sn.Stream)
		if err != nil {
			return nil, err
		}
		h := headOf(st)
		if st == nil || sn.At.Seqno > h.Last.Seqno || sn.At.Seqno == h.Last.Seqno && sn.At.ID != h.Last.ID {
			return nil, eventstore.DivergedError(op, sn.Stream, sn.At, h)
		}
		id, err := l.idAt(op, sn.Stream, sn.At.Seqno)
		if err != nil {
			return nil, err
		}
		if !id.IsZero() && id != sn.At.ID {
			return nil, eventstore.DivergedError(op, sn.Stream, sn.At, h)
		}
		if st.snapshot != nil && st.snapshot.at.Seqno > sn.At.Seqno {
			return nil, nil
		}
		sn.Time = l.now().UTC().Truncate(time.Microsecond)
		return snapshotBody{st.ref(), sn}, nil
	})
}

// SetHold registers or moves a hold.
func (l *Log) SetHold(ctx context.Context, h eventstore.Hold) error {
	const op = "set hold"
	return l.change(ctx, op, h.Stream, 0, func(g *group) (body, error) {
		if err := g.whole(); err != nil {
			return nil, err
		}
		c, err := l.reg.category(op, h.Category, h.Stream)
		if err == nil {
			err = l.checkHold(c, h)
		}
		if err != nil {
			return nil, err
		}
		return setHoldBody{h}, nil
	})
}

// checkHold refuses a hold over what is gone already, or on another history.
func (l *Log) checkHold(c *category, h eventstore.Hold) error {
	const op = "set hold"
	if h.Stream == "" {
		if c.dedicated() {
			return eventstore.NotInFeedError(op, h.Category)
		}
		if c.trimmedTo > 0 && h.Position <= c.trimmedTo {
			return eventstore.TrimmedFeedError(h.Category, h.Position, c.trimmedTo)
		}
		return nil
	}
	st := l.reg.streams[h.Stream]
	if st == nil && c.dedicated() {
		return eventstore.NoSuchStreamError(op, h.Stream)
	}
	head := headOf(st)
	if head.Trimmed > 0 && h.Seqno <= head.Trimmed {
		return eventstore.TrimmedError(op, h.Stream, h.Seqno, head)
	}
	if h.ID.IsZero() || h.Seqno > head.Last.Seqno {
		return nil
	}
	id, err := l.idAt(op, h.Stream, h.Seqno)
	if err == nil && !id.IsZero() && id != h.ID {
		err = eventstore.DivergedError(op, h.Stream, eventstore.Mark{Seqno: h.Seqno, ID: h.ID}, head)
	}
	return err
}

// ReleaseHold removes a hold.
func (l *Log) ReleaseHold(ctx context.Context, name string, c eventstore.Category, s eventstore.Stream) error {
	return l.change(ctx, "release hold", s, 0, func(g *group) (body, error) {
		if err := g.whole(); err != nil {
			return nil, err
		}
		k := holdKey{name, c, s}
		if _, ok := l.reg.holds[k]; !ok {
			return nil, nil
		}
		return releaseHoldBody{k}, nil
	})
}

// ListHolds returns all holds ordered by name, category, stream.
func (l *Log) ListHolds(ctx context.Context) ([]eventstore.Hold, error) {
	if err := l.begin(ctx, "list holds", ""); err != nil {
		return nil, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	var all []eventstore.Hold
	for _, k := range slices.SortedFunc(maps.Keys(l.reg.holds), holdKey.compare) {
		all = append(all, l.reg.holds[k])
	}
	return all, nil
}
