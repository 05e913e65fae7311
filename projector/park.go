// Poison: entries that cannot be handled. They are found, tried again, and then parked
// with all that comes behind them under the same key, so that the other keys go on.

package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wattle-es/wattle/eventstore"
)

// poison returns what is wrong with a batch if that is the batch's own fault: not that
// of store, link or another instance. nil: it is not.
func (s *session) poison(ctx context.Context, batch []eventstore.Entry, failed error) *EntryError {
	if ctx.Err() != nil || len(batch) == 0 || outage(failed) {
		return nil
	}
	bad, _ := errors.AsType[*EntryError](failed)
	return bad
}

// poisoned deals with a batch that cannot be handled. What stands before the entry at
// fault is kept; if nobody knows which one that is, the batch is halved until it is
// known. nil means: come on.
func (s *session) poisoned(ctx context.Context, entries []eventstore.Entry, pl plan, batch []eventstore.Entry, to Checkpoint, bad *EntryError) error {
	if bad.Count > 1 && len(batch) > 1 && s.p.parks() {
		s.limit = max(1, len(pl.batch)/2)
		return nil
	}
	at := pl.entry(bad)
	if at < 0 {
		return bad
	}
	if at > 0 {
		if further, err := s.salvage(ctx, entries[:at], pl.before(at), to); further || err != nil {
			s.tried.here()
			s.tried.tries = 1 // the one at fault comes first now, and was tried once
			return err
		}
	}
	if err := s.parkable(bad); err != nil {
		return err
	}
	return s.park(ctx, entries[at], to, bad)
}

// parkable says if an entry that cannot be handled, and comes first, is to be parked;
// if not, with what error the lane tries again or stops.
func (s *session) parkable(bad *EntryError) error {
	switch {
	case !bad.Permanent && !s.tried.last():
		return bad
	case !s.p.parks():
		return bad
	case len(s.parked) >= s.p.o.MaxParked:
		return &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: "project " + s.key.String(), Stream: bad.Stream, Err: bad,
			Wanted: fmt.Sprintf("at most %d parked keys in a lane", s.p.o.MaxParked), Found: "one more that cannot be handled",
			Hint: "mend the handler or what it needs, then retry the parked keys; the lane waits meanwhile"}
	}
	return nil
}

// parks says if keys are parked at all.
func (p *Projector) parks() bool { return p.control != nil && !p.o.StopOnPoison && p.o.Stream == "" }

// salvage keeps what stands before an entry that cannot be handled, and what that comes
// to, so that the checkpoint gets as far as it can and the next batch begins with it.
func (s *session) salvage(ctx context.Context, good, batch []eventstore.Entry, like Checkpoint) (further bool, err error) {
	// A handler whose effects cannot be taken back has kept them itself.
	kept, err := s.p.loadKey(ctx, s.key)
	switch {
	case err != nil:
		return false, err
	case kept.Holder == s.holder && !kept.Same(s.kept):
		s.take(kept)
		s.known, s.forgot = nil, true
		return true, nil
	}
	to := s.kept
	for _, e := range good {
		to = to.Past(e, like)
	}
	st := Step{To: to}
	st.Batch, st.Park = s.apart(batch)
	s.known, s.forgot = nil, true
	return true, s.write(ctx, st)
}

// park passes an entry over and has its key wait, in one step.
func (s *session) park(ctx context.Context, e eventstore.Entry, like Checkpoint, bad *EntryError) error {
	k := parkedAt(e)
	if bad.Type == SnapshotType {
		k.Type = bad.Type
	}
	return s.parkIn(ctx, s.kept.Past(e, like), k, bad)
}

// parkedAt is a key with one entry that waits.
func parkedAt(e eventstore.Entry) Parked {
	return Parked{StreamKey: e.Stream.Key(), Stream: e.Stream, Seqno: e.Seqno, Position: e.Position, ID: e.ID, Type: e.Type,
		Queue: []Queued{{e.Stream, e.Seqno}}, Through: e.Position, Count: 1, Trace: e.Metadata[eventstore.MetaTraceparent]}
}

// parkIn parks a key in a step to a checkpoint.
func (s *session) parkIn(ctx context.Context, to Checkpoint, k Parked, bad *EntryError) error {
	s.tried.tries++
	k.blame(bad, s.tried.tries)
	if err := s.holdQueues(ctx, []Parked{k}); err != nil {
		return err
	}
	if err := s.write(ctx, Step{To: to, Park: []Parked{k}}); err != nil {
		return err
	}
	s.p.logger.ErrorContext(ctx, "key parked", "key", k.StreamKey, "stream", k.Stream, "seqno", k.Seqno, "attempts", k.Attempts, "error", bad)
	return nil
}

// blame notes why an entry could not be handled.
func (k *Parked) blame(bad *EntryError, attempts int) {
	k.Cause, k.Stack, k.Attempts = clip(bad.Err.Error(), MaxCauseBytes), clip(string(bad.Stack), MaxStackBytes), k.Attempts+attempts
}

// clip shortens a text to so many bytes, without what no database keeps in a text.
func clip(text string, most int) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
	if len(text) <= most {
		return text
	}
	text = text[:most-len("…")]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "…"
}

// apart takes what belongs to parked keys out of a batch, and returns these as they are
// behind it.
func (s *session) apart(entries []eventstore.Entry) (batch []eventstore.Entry, park []Parked) {
	if len(s.parked) == 0 {
		return entries, nil
	}
	grown := map[string]Parked{}
	for _, e := range entries {
		k, ok := grown[e.Stream.Key()]
		if !ok {
			k, ok = s.parked[e.Stream.Key()]
		}
		if !ok {
			batch = append(batch, e)
			continue
		}
		grown[k.StreamKey] = k.with(e)
	}
	for _, k := range grown {
		park = append(park, k)
	}
	slices.SortFunc(park, func(a, b Parked) int { return cmp.Compare(a.StreamKey, b.StreamKey) })
	return batch, park
}

// with is a parked key with one more entry that waits.
func (k Parked) with(e eventstore.Entry) Parked {
	k.Count, k.Through = k.Count+1, max(k.Through, e.Position)
	if !slices.ContainsFunc(k.Queue, func(q Queued) bool { return q.Stream == e.Stream }) {
		k.Queue = append(slices.Clone(k.Queue), Queued{e.Stream, e.Seqno})
		slices.SortFunc(k.Queue, func(a, b Queued) int { return cmp.Compare(a.Stream, b.Stream) })
	}
	return k
}

// wanted says if something is wanted of a parked key of the lane.
func (s *session) wanted() (k Parked, ok bool) {
	for _, k := range s.parked {
		if k.Request != Wait {
			return k, true
		}
	}
	return Parked{}, false
}

// replayAll does what is wanted of parked keys.
func (s *session) replayAll(ctx context.Context) error {
	for {
		k, ok := s.wanted()
		if !ok {
			return nil
		}
		if err := s.replay(ctx, k); err != nil {
			return err
		}
	}
}

// replay handles the entries of a parked key, one a step, until none waits or one
// cannot be handled. The lane's checkpoint stays where it is, so each step raises its
// epoch: a step whose answer was lost, and that lands later, is refused then.
func (s *session) replay(ctx context.Context, k Parked) error {
	skip := k.Request == Skip
	for {
		e, after, err := s.firstOf(ctx, k)
		if passed, record, ok := k.behindTrim(err); ok && (skip || s.p.o.AcceptTrimmed) {
			if err := s.giveUp(ctx, passed, record); err != nil {
				return err
			}
			k, skip = passed, passed.Request == Skip
			continue
		}
		if errors.Is(err, eventstore.ErrTrimmed) {
			return s.stillParked(ctx, k, &EntryError{Stream: k.Stream, Seqno: k.Seqno, Position: k.Position, Type: k.Type, Count: 1, Err: err})
		}
		if err != nil {
			return err
		}
		st := Step{To: s.again()}
		switch {
		case e == nil:
			st.Unpark = []string{k.StreamKey}
		case skip:
			st.Skipped = []Parked{k}
		default:
			st.Batch = []eventstore.Entry{*e}
		}
		if e != nil && e.Position >= k.Through && !standsForSnapshot(e) {
			st.Unpark = []string{k.StreamKey}
		} else if e != nil {
			st.Park = []Parked{after}
		}
		err = s.write(ctx, st)
		if bad := s.poison(ctx, st.Batch, err); bad != nil {
			return s.stillParked(ctx, k.at(*e), bad)
		}
		if err != nil {
			return err
		}
		if s.p.begins() && e != nil {
			s.learn(map[eventstore.Stream]begun{e.Stream: {through: e.Seqno}})
		}
		if len(st.Unpark) > 0 {
			s.released(ctx, k)
			return nil
		}
		k, skip = after, false
	}
}

// behindTrim is what a parked key is behind what was trimmed of a stream that waits, as an
// error of reading it says, and the record of what is gone.
func (k Parked) behindTrim(err error) (passed, record Parked, ok bool) {
	refused, is := errors.AsType[*eventstore.Error](err)
	if !is || refused.Kind != eventstore.ErrTrimmed {
		return k, k, false
	}
	i := slices.IndexFunc(k.Queue, func(q Queued) bool { return q.Stream == refused.Stream && q.From < refused.First })
	if i < 0 {
		return k, k, false
	}
	from := k.Queue[i].From
	record, passed = k, k
	if k.Stream == refused.Stream && from <= k.Seqno && k.Seqno < refused.First {
		passed.Request, passed.Note = Retry, "" // the entry at fault is gone: there is none to skip
	} else {
		record.Stream, record.Seqno, record.Position, record.ID, record.Type = refused.Stream, from, 0, eventstore.UUID{}, ""
	}
	if record.Note == "" {
		record.Note = clip("trimmed while it waited: "+refused.Error(), MaxNoteBytes)
	}
	passed.Queue = slices.Clone(k.Queue)
	passed.Queue[i].From = refused.First
	passed.Count -= min(passed.Count-1, uint64(refused.First-from))
	return passed, record, true
}

// giveUp goes on without what was trimmed under a parked key.
func (s *session) giveUp(ctx context.Context, passed, record Parked) error {
	if err := s.holdQueues(ctx, []Parked{passed}); err != nil && !errors.Is(err, eventstore.ErrTrimmed) {
		return err
	}
	if err := s.write(ctx, Step{To: s.again(), Park: []Parked{passed}, Skipped: []Parked{record}}); err != nil {
		return err
	}
	s.p.logger.WarnContext(ctx, "entries of a parked key are gone", "key", record.StreamKey, "stream", record.Stream, "seqno", record.Seqno)
	return nil
}

// again is the kept checkpoint under a new epoch of the same holder.
func (s *session) again() Checkpoint {
	to := s.kept
	to.Epoch++
	return to
}

// at is a parked key of which another entry is at fault now.
func (k Parked) at(e eventstore.Entry) Parked {
	if k.Stream != e.Stream || k.Seqno != e.Seqno {
		k.Attempts = 0
	}
	k.Stream, k.Seqno, k.Position, k.ID, k.Type = e.Stream, e.Seqno, e.Position, e.ID, e.Type
	return k
}

// stillParked keeps why a key stays parked.
func (s *session) stillParked(ctx context.Context, k Parked, bad *EntryError) error {
	k.Request, k.Note = Wait, ""
	k.blame(bad, 1)
	if err := s.write(ctx, Step{To: s.again(), Park: []Parked{k}}); err != nil {
		return err
	}
	s.p.logger.ErrorContext(ctx, "key stays parked", "key", k.StreamKey, "stream", k.Stream, "seqno", k.Seqno, "attempts", k.Attempts, "error", bad)
	return nil
}

// firstOf returns the first entry that waits under a key, nil if there is none, and what
// the key is without it.
func (s *session) firstOf(ctx context.Context, k Parked) (first *eventstore.Entry, after Parked, err error) {
	after = k
	after.Queue, after.Request, after.Note = slices.Clone(k.Queue), Retry, ""
	which := 0
	for i, q := range k.Queue {
		e, err := s.nextOf(ctx, q, k.Through)
		if err != nil {
			return nil, k, err
		}
		if e != nil && !standsForSnapshot(e) {
			after.Queue[i].From = e.Seqno // what is not handled was passed over
		}
		if e != nil && (first == nil || e.Position < first.Position) {
			first, which = e, i
		}
	}
	if first == nil {
		return nil, after, nil
	}
	after.Queue[which].From = first.Seqno + 1
	after.Count = max(1, after.Count-1)
	return first, after, nil
}

// nextOf returns the first entry of a queue, nil if none waits there.
func (s *session) nextOf(ctx context.Context, q Queued, through eventstore.Position) (*eventstore.Entry, error) {
	if s.p.begins() {
		return s.waiting(ctx, q, through)
	}
	for after := q.From - 1; ; {
		p, err := s.p.store.ReadFrom(ctx, q.Stream, after, replayPage)
		if err != nil {
			return nil, err
		}
		for _, e := range p.Entries {
			if e.Position > through {
				return nil, nil
			}
			if len(s.p.o.Types) == 0 || slices.Contains(s.p.o.Types, e.Type) {
				return &e, nil
			}
			after = e.Seqno
		}
		if p.End {
			return nil, nil
		}
	}
}

// holdParked holds what waits under the parked keys of the lane.
func (s *session) holdParked(ctx context.Context) error {
	for _, k := range s.parked {
		if err := s.holdQueues(ctx, []Parked{k}); err != nil {
			if errors.Is(err, eventstore.ErrTrimmed) || errors.Is(err, eventstore.ErrNoSuchStream) || errors.Is(err, eventstore.ErrNoSuchCategory) {
				s.p.logger.WarnContext(ctx, "entries of a parked key are gone", "key", k.StreamKey, "error", err)
				continue
			}
			return err
		}
	}
	return nil
}

// holdQueues holds what waits under keys, before the lane's checkpoint, and its hold,
// pass it.
func (s *session) holdQueues(ctx context.Context, keys []Parked) error {
	if s.p.o.NoHold {
		return nil
	}
	for _, k := range keys {
		for _, q := range k.Queue {
			if s.held[q.Stream] == q.From {
				continue
			}
			if err := s.holdQueue(ctx, q); err != nil {
				return err
			}
			if s.held == nil {
				s.held = map[eventstore.Stream]eventstore.Seqno{}
			}
			s.held[q.Stream] = q.From
		}
	}
	return nil
}

// holdQueue holds what waits of a stream; with snapshots, what is left of it.
func (s *session) holdQueue(ctx context.Context, q Queued) error {
	h := eventstore.Hold{Name: s.p.HoldName() + parkedHold, Stream: q.Stream, Seqno: q.From}
	err := s.p.store.SetHold(ctx, h)
	for range maxHoldMoves {
		refused, ok := errors.AsType[*eventstore.Error](err)
		if !ok || refused.Kind != eventstore.ErrTrimmed || !s.p.begins() {
			break
		}
		h.Seqno = refused.First
		err = s.p.store.SetHold(ctx, h)
	}
	return err
}

// released gives up the holds of a key that is parked no longer. It is no harm if that
// fails, but for space.
func (s *session) released(ctx context.Context, k Parked) {
	s.p.logger.InfoContext(ctx, "key no longer parked", "key", k.StreamKey)
	for _, q := range k.Queue {
		delete(s.held, q.Stream)
		if err := s.p.store.ReleaseHold(ctx, s.p.HoldName()+parkedHold, "", q.Stream); err != nil {
			s.p.logger.WarnContext(ctx, "hold of a parked key not released", "stream", q.Stream, "error", err)
		}
	}
}

// parkedHold is what the name of the holds of parked keys ends with.
const parkedHold = "/parked"
