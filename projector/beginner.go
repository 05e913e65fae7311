// How a session tells what to hand over of streams that were trimmed.

package projector

import (
	"context"
	"errors"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// plan says what a batch of the first entries comes to. It takes all of them if nothing
// is to be handed over; then it may have taken more than a batch has.
func (s *session) plan(ctx context.Context, entries []eventstore.Entry) (pl plan, err error) {
	if !s.p.begins() {
		pl.took = min(len(entries), s.limit)
		pl.batch = entries[:pl.took]
		return pl, nil
	}
	pl.known = map[eventstore.Stream]begun{}
	for i := range entries {
		if len(pl.batch) == s.limit {
			return pl, nil
		}
		e := &entries[i]
		if _, ok := s.parked[e.Stream.Key()]; ok {
			pl.add(i, *e) // it waits; what it comes to is told when it is replayed
			pl.took = i + 1
			continue
		}
		sn, as, err := s.begin(ctx, e, pl.known)
		switch {
		case err != nil:
			return pl, err
		case as == inPlace:
			pl.add(i, entryOf(sn, e.Position))
		case as == inFront:
			pl.add(i, entryOf(sn, 0))
			pl.known[e.Stream] = begun{through: sn.At.Seqno}
			if len(pl.batch) == s.limit {
				return pl, nil // the entry itself comes next
			}
			fallthrough
		case as == itself:
			if s.p.wants(e) {
				pl.add(i, *e)
			}
			pl.known[e.Stream] = begun{through: e.Seqno}
		}
		pl.took = i + 1
	}
	return pl, nil
}

// manner is how an entry is handed over.
type manner int

const (
	passedOver manner = iota
	itself
	inPlace // the snapshot instead of it
	inFront // the snapshot, then it
)

// begin says how an entry is to be handed over. known is what is known of streams beyond
// what the session knows, and is kept up but for what itself and inFront lead to.
func (s *session) begin(ctx context.Context, e *eventstore.Entry, known map[eventstore.Stream]begun) (*eventstore.Snapshot, manner, error) {
	b, ok := known[e.Stream]
	if !ok {
		b, ok = s.known[e.Stream]
	}
	switch {
	case ok && b.passes(e.Seqno):
		return nil, passedOver, nil
	case ok && b.next(e.Seqno), !ok && e.Seqno == 1 && !s.forgot:
		return nil, itself, nil
	}
	sn, err := s.snapshotFor(ctx, e)
	switch {
	case err != nil || sn == nil:
		return nil, itself, err
	case sn.At.Seqno > e.Seqno:
		b.until = sn.At.Seqno
		known[e.Stream] = b
		return nil, passedOver, nil
	case sn.At.Seqno == e.Seqno:
		known[e.Stream] = begun{through: e.Seqno}
		return sn, inPlace, nil
	}
	return sn, inFront, nil
}

// snapshotFor looks up the snapshot that an entry has to do with: it contains the entry,
// or stands for the trimmed one before it. nil: the entry is good by itself.
func (s *session) snapshotFor(ctx context.Context, e *eventstore.Entry) (*eventstore.Snapshot, error) {
	h, err := s.p.store.Head(ctx, e.Stream)
	if err != nil || h.Trimmed == 0 {
		return nil, err
	}
	h, sn, err := s.p.store.Snapshot(ctx, e.Stream)
	switch {
	case errors.Is(err, eventstore.ErrTrimmed):
		return nil, s.unfounded(ctx, e.Stream.Category(), err)
	case err != nil || sn == nil:
		return nil, err
	case sn.At.Seqno >= e.Seqno, sn.At.Seqno == h.Trimmed && e.Seqno == h.Trimmed+1:
		return sn, nil
	}
	return nil, nil
}

// unfounded says if it is harm that what was trimmed of a category has no snapshot: not
// if all of it had been passed by then.
func (s *session) unfounded(ctx context.Context, c eventstore.Category, missing error) error {
	if s.p.o.AcceptTrimmed {
		return nil
	}
	_, err := s.p.store.ReadFeed(ctx, s.kept.Position, eventstore.Filter{Categories: []eventstore.Category{c}}, 1)
	if !errors.Is(err, eventstore.ErrTrimmed) {
		return err
	}
	e, _ := errors.AsType[*eventstore.Error](missing)
	told := *e
	told.Op, told.Wanted = "project", "a snapshot in the place of what was trimmed"
	told.Hint = "save a snapshot of the stream, or set AcceptTrimmed to go on without what is gone"
	return &told
}

// wants says if an entry is of the types that are handled.
func (p *Projector) wants(e *eventstore.Entry) bool {
	return len(p.o.Types) == 0 || slices.Contains(p.o.Types, e.Type)
}

// learn keeps what is known of streams behind a step that landed.
func (s *session) learn(known map[eventstore.Stream]begun) {
	if len(known) == 0 {
		return
	}
	if len(s.known) > maxBegun {
		s.known, s.forgot = nil, true
	}
	if s.known == nil {
		s.known = make(map[eventstore.Stream]begun, len(known))
	}
	for stream, b := range known {
		s.known[stream] = b
	}
}

// beginLost hands over the snapshots of the lane's streams that were trimmed wholly.
func (s *session) beginLost(ctx context.Context) error {
	for _, c := range s.p.source.categories() {
		for next := ""; ; {
			p, err := s.p.store.ListTrimmed(ctx, c, slotsOf(s.key.Lane, s.lane.Lanes), next, eventstore.MaxPageEntries)
			if err != nil {
				return err
			}
			if err := s.beginAll(ctx, p.Streams); err != nil {
				return err
			}
			if next = p.Next; next == "" {
				break
			}
		}
	}
	return nil
}

// beginAll hands over the snapshots of streams that were trimmed wholly, some at a time.
func (s *session) beginAll(ctx context.Context, streams []eventstore.Stream) error {
	var batch []eventstore.Entry
	bytes := 0
	for _, stream := range streams {
		e, err := s.wholly(ctx, stream)
		if err != nil {
			return err
		}
		if e == nil {
			continue
		}
		batch, bytes = append(batch, *e), bytes+len(e.Data)
		if len(batch) < s.p.o.PageSize && bytes < eventstore.MaxPageBytes {
			continue
		}
		if err := s.handSnapshots(ctx, batch); err != nil {
			return err
		}
		batch, bytes = nil, 0
	}
	return s.handSnapshots(ctx, batch)
}

// wholly returns the snapshot of a stream that was trimmed wholly; nil if it was not, so
// that it is in the feed, or if it waits under a parked key already.
func (s *session) wholly(ctx context.Context, stream eventstore.Stream) (*eventstore.Entry, error) {
	if k, ok := s.parked[stream.Key()]; ok && slices.ContainsFunc(k.Queue, func(q Queued) bool { return q.Stream == stream }) {
		return nil, nil
	}
	h, sn, err := s.p.store.Snapshot(ctx, stream)
	switch {
	case errors.Is(err, eventstore.ErrTrimmed):
		return nil, s.unfounded(ctx, stream.Category(), err)
	case err != nil || sn == nil || h.Trimmed < h.Last.Seqno:
		return nil, err
	}
	e := entryOf(sn, 0)
	return &e, nil
}

// handSnapshots hands over snapshots at the checkpoint, which stays where it is. As in
// replay each step raises its epoch.
func (s *session) handSnapshots(ctx context.Context, batch []eventstore.Entry) error {
	for len(batch) > 0 {
		n := min(len(batch), s.limit)
		st := Step{To: s.again()}
		st.Batch, st.Park = s.apart(batch[:n])
		if err := s.holdQueues(ctx, st.Park); err != nil {
			return err
		}
		err := s.write(ctx, st)
		if bad := s.poison(ctx, st.Batch, err); bad != nil {
			parked, err := s.badSnapshot(ctx, st.Batch, bad)
			if err != nil {
				return err
			}
			if parked {
				batch = slices.DeleteFunc(slices.Clone(batch), func(e eventstore.Entry) bool { return e.Stream == bad.Stream })
			}
			continue
		}
		if err != nil {
			return err
		}
		known := map[eventstore.Stream]begun{}
		for _, e := range batch[:n] {
			known[e.Stream] = begun{through: e.Seqno}
		}
		s.learn(known)
		s.limit = min(2*s.limit, s.p.o.PageSize)
		batch = batch[n:]
	}
	return nil
}

// badSnapshot deals with snapshots of which one cannot be handled: it is parked if it
// comes first; else those before it are to come again without it.
func (s *session) badSnapshot(ctx context.Context, batch []eventstore.Entry, bad *EntryError) (parked bool, err error) {
	if bad.Count > 1 && len(batch) > 1 && s.p.parks() {
		s.limit = len(batch) / 2
		return false, nil
	}
	at := slices.IndexFunc(batch, func(e eventstore.Entry) bool { return e.Stream == bad.Stream && e.Seqno == bad.Seqno })
	switch {
	case at > 0:
		s.limit = at
		return false, nil
	case at < 0:
		return false, bad
	}
	if err := s.parkable(bad); err != nil {
		return false, err
	}
	if err := s.parkIn(ctx, s.again(), parkedAt(batch[0]), bad); err != nil {
		return false, err
	}
	s.tried.tries = 0 // the next one was not tried at this place
	return true, nil
}

// waiting returns the entry, or the snapshot, that comes first of what waits of a stream
// under a parked key; nil if there is nothing more.
func (s *session) waiting(ctx context.Context, q Queued, through eventstore.Position) (*eventstore.Entry, error) {
	known := map[eventstore.Stream]begun{}
	defer func() { s.learn(known) }()
	for after := q.From - 1; ; {
		p, err := s.p.store.ReadFrom(ctx, q.Stream, after, replayPage)
		if errors.Is(err, eventstore.ErrTrimmed) {
			_, sn, err := s.p.store.Snapshot(ctx, q.Stream)
			if err != nil || sn == nil {
				return nil, err
			}
			if s.known[q.Stream].through < sn.At.Seqno {
				e := entryOf(sn, 0)
				return &e, nil
			}
			after = sn.At.Seqno
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range p.Entries {
			e := &p.Entries[i]
			if e.Position > through {
				return nil, nil
			}
			first, err := s.waits(ctx, e, known)
			if first != nil || err != nil {
				return first, err
			}
			after = e.Seqno
		}
		if p.End {
			return nil, nil
		}
	}
}

// waits returns what an entry that waits comes to, nil if it is nothing.
func (s *session) waits(ctx context.Context, e *eventstore.Entry, known map[eventstore.Stream]begun) (*eventstore.Entry, error) {
	sn, as, err := s.begin(ctx, e, known)
	if err != nil {
		return nil, err
	}
	switch as {
	case itself:
		if s.p.wants(e) {
			return e, nil
		}
		known[e.Stream] = begun{through: e.Seqno}
	case inPlace:
		delete(known, e.Stream) // it is not handed over yet
		first := entryOf(sn, e.Position)
		return &first, nil
	case inFront:
		first := entryOf(sn, 0)
		return &first, nil
	}
	return nil, nil
}
