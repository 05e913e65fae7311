// change: one Set, Reschedule or Cancel on its way to the log.

package timer

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/wattle-es/wattle/eventstore"
)

// change is what one call is to do.
type change struct {
	op          string
	stream      eventstore.Stream
	id          eventstore.UUID // zero: none was given
	clock       Clock
	contentType string
	metadata    eventstore.Metadata
	wrong       error // with an option
}

// loaded is a timer as it was found.
type loaded struct {
	head   eventstore.Head
	timer  Timer // if not known: the Mark alone
	record record
	known  bool // false: never set, or trimmed
}

// load reads the last entry of a timer, which says everything.
func (t *Timers) load(ctx context.Context, c *change) (l loaded, err error) {
	if l.head, err = t.store.Head(ctx, c.stream); err != nil {
		return l, err
	}
	l.timer.Mark = l.head.Last
	if l.head.Last.Seqno == 0 || l.head.Trimmed == l.head.Last.Seqno {
		return l, nil
	}
	p, err := t.store.ReadFrom(ctx, c.stream, l.head.Last.Seqno-1, 1)
	switch {
	case isKind(err, eventstore.ErrTrimmed):
		return l, nil // meanwhile: it was over
	case err != nil:
		return l, err
	case len(p.Entries) == 0 || p.Entries[0].Mark() != l.head.Last:
		return l, &eventstore.Error{Kind: eventstore.ErrDiverged, Op: c.op, Stream: c.stream, Wanted: "entry " + l.head.Last.String(),
			Found: "another one or none", Head: &l.head, Hint: "history was lost or rewritten under this call; look before going on"}
	}
	l.timer, l.record, err = decode(&p.Entries[0])
	l.known = err == nil
	return l, err
}

// apply decides a change on the timer as it is and appends what was decided, until
// nobody was faster. decide answers no state and no error if there is nothing to do.
func (t *Timers) apply(ctx context.Context, c *change, decide func(now Timer, known bool) (State, record, error)) (Timer, error) {
	var refusal error
	for try := range t.o.Retries + 1 {
		if try > 0 {
			if err := pause(ctx, try, refusedWait, refusedWaitMost); err != nil {
				return Timer{}, err
			}
		}
		l, err := t.load(ctx, c)
		if err != nil {
			return Timer{}, err
		}
		switch {
		case l.asked(c.id):
			l.timer.Replayed = true
			return l.timer, nil
		case l.mayHaveForgotten(c.id):
			return Timer{}, forgotten(c)
		}
		state, r, err := decide(l.timer, l.known)
		if err != nil || state == 0 {
			return l.timer, err
		}
		b, err := t.batch(c, &l, state, &r)
		if err != nil {
			return Timer{}, err
		}
		done, err := t.send(ctx, b)
		if err == nil {
			return made(c, state, &r, done), nil
		}
		if refusal = err; !moved(err) {
			return Timer{}, err
		}
	}
	return Timer{}, refusal
}

// asked says if a change with this ID was made before.
func (l *loaded) asked(id eventstore.UUID) bool {
	for _, r := range l.record.Requests {
		if !id.IsZero() && r.ID == id {
			return true
		}
	}
	return false
}

// mayHaveForgotten says if the ID tells that the change may be among those that the
// timer does not remember any more.
func (l *loaded) mayHaveForgotten(id eventstore.UUID) bool {
	ms, ok := minted(id)
	if !ok || l.head.Last.Seqno == 0 {
		return false
	}
	if l.known {
		return ms <= l.record.Minted
	}
	// Trimmed: what is left is the last entry's ID. Whatever was asked for before it
	// was written is older.
	last, ok := minted(l.head.Last.ID)
	return ok && ms <= last
}

// minted returns the Unix milliseconds in a UUIDv7.
func minted(id eventstore.UUID) (ms uint64, ok bool) {
	return binary.BigEndian.Uint64(id[:8]) >> 16, id[6]>>4 == 7
}

// batch is the append of a change behind what was loaded.
func (t *Timers) batch(c *change, l *loaded, state State, r *record) (eventstore.Batch, error) {
	b := eventstore.Batch{ID: eventstore.NewUUID(), Stream: c.stream, Epoch: l.head.Epoch + 1, Holder: t.holder, Claim: true, After: l.head.Last}
	if r.ContentType == "" && state == Pending {
		r.ContentType = "application/json"
	}
	r.Requests, r.Minted = append(r.Requests, l.record.Requests...), l.record.Minted
	if !c.id.IsZero() {
		r.Requests = append(r.Requests, request{ID: c.id, Seqno: b.After.Seqno + 1})
	}
	for len(r.Requests) > RememberedIDs {
		if ms, ok := minted(r.Requests[0].ID); ok {
			r.Minted = max(r.Minted, ms)
		}
		r.Requests = r.Requests[1:]
	}
	e, err := r.event(state)
	e.Metadata = c.metadata
	b.Events = []eventstore.Event{e}
	return b, err
}

// made is the timer after a change.
func made(c *change, state State, r *record, done eventstore.Appended) Timer {
	t := Timer{Name: c.stream.Key(), State: state, Generation: r.Generation, Due: r.Due, Clock: r.Clock, ContentType: r.ContentType,
		Payload: r.Payload, Mark: done.Receipts[0].Last, Position: done.Token.Position, Token: done.Token}
	if state == Pending {
		t.Generation = t.Mark.Seqno
	}
	return t
}

// send appends a batch, and after a lost answer sends the same again until the log says
// what became of it.
func (t *Timers) send(ctx context.Context, b eventstore.Batch) (eventstore.Appended, error) {
	a := eventstore.Append{Batches: []eventstore.Batch{b}}
	done, err := t.store.Append(ctx, a)
	first, ok := errors.AsType[*eventstore.Error](err)
	if !ok || first.Kind != eventstore.ErrUnknown {
		return done, err
	}
	if first.Unprovable {
		// It was never sent before: what was trimmed there is somebody else's.
		c := *first
		c.Kind = eventstore.ErrAlreadyWritten
		return done, &c
	}
	for n := range t.o.Retries {
		if pause(ctx, n, unknownWait, unknownWaitMost) != nil {
			break
		}
		done, err = t.store.Append(ctx, a)
		// Unavailable now is not "nothing was written" then.
		if err == nil || isKind(err, eventstore.ErrFenced, eventstore.ErrAlreadyWritten, eventstore.ErrDiverged, eventstore.ErrBatchIDReused,
			eventstore.ErrNoSuchCategory) {
			return done, err
		}
		if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Unprovable {
			return done, err
		}
	}
	c := *first
	c.Hint = "make the same change again under the same ID; without an ID, get the timer and look"
	return done, &c
}

// moved says if an append was refused because others were faster.
func moved(err error) bool {
	return isKind(err, eventstore.ErrFenced, eventstore.ErrAlreadyWritten)
}
