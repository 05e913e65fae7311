// history: what is known of one stream, and loading it.

package aggregate

import (
	"context"
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
)

// history is a folded stream with what an append needs. It belongs to one call at
// a time: see cache.
type history[S any] struct {
	stream     eventstore.Stream
	store      eventstore.UUID // its incarnation
	state      S
	last       eventstore.Mark  // of the last entry folded
	epoch      eventstore.Epoch // of the stream
	owned      bool             // the epoch is this Executor's
	fresh      bool             // loaded by this very call
	memory     memory
	snapshotAt eventstore.Seqno // of the newest snapshot known, made or tried
	bytes      int              // stored bytes that were folded
}

// fold is one step: h behind the next entry of its stream.
func (x *Executor[S, C, E]) fold(h *history[S], e *eventstore.Entry) error {
	if e.Seqno != h.last.Seqno+1 {
		return &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: "load", Stream: h.stream,
			Wanted: fmt.Sprintf("entry %d", h.last.Seqno+1), Found: fmt.Sprintf("entry %d", e.Seqno)}
	}
	event, err := x.typ.Schema.Decode(*e)
	if err != nil {
		return err
	}
	h.state = x.typ.Decider.Evolve(h.state, event)
	h.last = e.Mark()
	h.bytes += len(e.Data)
	h.memory.see(e, x.remembered)
	return nil
}

// load builds the history of a stream from its snapshot and tail. before is the mark
// of the last entry that was folded earlier in the same call (zero for none): it must
// still stand, else ErrDiverged.
func (x *Executor[S, C, E]) load(ctx context.Context, s eventstore.Stream, before eventstore.Mark) (*history[S], error) {
	return again(func() (*history[S], error) {
		l, err := x.store.Load(ctx, s, x.fingerprint)
		if err != nil {
			return nil, err
		}
		h, stood, err := x.replay(ctx, s, &l, before.Seqno, nil)
		if err != nil {
			return nil, err
		}
		if h.last != l.Head.Last {
			return nil, &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: "load", Stream: s, Head: &l.Head,
				Wanted: "entries through " + l.Head.Last.String(), Found: "the last is " + h.last.String()}
		}
		h.fresh, h.epoch, h.store = true, l.Head.Epoch, l.Incarnation
		h.owned = l.Head.Epoch > 0 && l.Head.Holder == x.holder
		return h, x.stillStands(ctx, s, before, stood, l.Head)
	})
}

// again calls load anew when the stream was trimmed while its pages were read: there
// is a newer snapshot then.
func again[T any](load func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		got, err := load()
		if try == loadTries || !isKind(err, eventstore.ErrTrimmed) {
			return got, err
		}
	}
}

// replay folds what was loaded up to the first entry that is beyond (nil: all), and
// returns with the history the mark of the entry at the seqno watched, or of the
// snapshot. A snapshot that cannot be read is replayed around, with a warning.
func (x *Executor[S, C, E]) replay(ctx context.Context, s eventstore.Stream, l *eventstore.Loading, watched eventstore.Seqno, beyond func(*eventstore.Entry) bool) (*history[S], eventstore.Mark, error) {
	h, err := x.begin(s, l.Snapshot)
	if err != nil {
		x.store.Logger().WarnContext(ctx, "snapshot not readable; replaying", "stream", s, "at", l.Snapshot.At.Seqno, "error", err)
		if *l, err = x.store.Load(ctx, s, ""); err != nil {
			return nil, eventstore.Mark{}, err
		}
		h, _ = x.begin(s, nil)
	}
	stood := h.last
	for e, err := range l.Tail {
		if err == nil && beyond != nil && beyond(&e) {
			break
		}
		if err == nil {
			err = x.fold(h, &e)
		}
		if err != nil {
			return nil, eventstore.Mark{}, err
		}
		if e.Seqno == watched {
			stood = e.Mark()
		}
	}
	return h, stood, nil
}

// begin returns the history as of a snapshot, or the empty one without.
func (x *Executor[S, C, E]) begin(s eventstore.Stream, sn *eventstore.Snapshot) (*history[S], error) {
	if sn == nil {
		return &history[S]{stream: s, state: x.typ.Decider.Initial()}, nil
	}
	e, err := decodeSnapshot[S](sn)
	if err != nil {
		return nil, err
	}
	return &history[S]{stream: s, state: e.State, last: sn.At, memory: e.memory, snapshotAt: sn.At.Seqno, bytes: len(sn.Data)}, nil
}

// stillStands checks that a history that was folded before is part of the one
// loaded now. stood is the mark met where before stands; an entry below the
// snapshot is read, and one that was trimmed since cannot be checked.
func (x *Executor[S, C, E]) stillStands(ctx context.Context, s eventstore.Stream, before, stood eventstore.Mark, h eventstore.Head) error {
	if before.Seqno == 0 {
		return nil
	}
	if before.Seqno > h.Last.Seqno {
		return diverged(s, before, h, "head "+h.Last.String())
	}
	if stood.Seqno != before.Seqno {
		m, err := x.markAt(ctx, s, before.Seqno)
		if isKind(err, eventstore.ErrTrimmed) {
			return nil
		}
		if err != nil {
			return err
		}
		stood = m
	}
	if stood != before {
		return diverged(s, before, h, "entry "+stood.String())
	}
	return nil
}

// markAt reads the mark of one entry; zero if the stream ends before it.
func (x *Executor[S, C, E]) markAt(ctx context.Context, s eventstore.Stream, n eventstore.Seqno) (eventstore.Mark, error) {
	p, err := x.store.ReadFrom(ctx, s, n-1, 1)
	if err != nil || len(p.Entries) == 0 {
		return eventstore.Mark{}, err
	}
	return p.Entries[0].Mark(), nil
}

// keep puts a history back into the cache.
func (x *Executor[S, C, E]) keep(h *history[S]) {
	h.fresh = false
	size := h.bytes
	if x.typ.Size != nil {
		size = x.typ.Size(h.state)
	}
	x.cache.put(h, cacheEntryBytes+len(h.stream)+max(size, 0)+h.memory.bytes())
}
