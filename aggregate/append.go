// Appending what was decided, and finding out what became of it.

package aggregate

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// outcome is what a decision makes of one stream.
type outcome[S, E any] struct {
	events []E // as they will be read back; none: the stream is guarded
	state  S
	bytes  int
	batch  int // index of its batch
}

// append writes the events of a decision and folds them into what is known. It
// returns as try does.
func (r *run[S, C, E]) append(ctx context.Context, events [][]E) (results []Result[S, E], refusal, err error) {
	a, outcomes, err := r.prepare(events)
	if err != nil {
		return nil, nil, err
	}
	done, resent, err := r.x.send(ctx, a)
	if err != nil {
		return r.notAppended(a, outcomes, resent, err)
	}
	results = r.results()
	for i, o := range outcomes {
		results[i].Token = done.Token
		if len(o.events) == 0 {
			r.x.keep(r.known[i])
			continue
		}
		receipt := done.Receipts[o.batch]
		r.advance(ctx, i, &o, &a.Batches[o.batch], receipt, done.Token)
		results[i].Mark, results[i].Events, results[i].State = receipt.Last, o.events, o.state
	}
	if done.Receipts[0].Replays && !resent { // another process decided the same command alike
		for i := range results {
			results[i].Replayed = true
		}
	}
	return results, nil, nil
}

// notAppended says what is to be done about an append that has failed.
func (r *run[S, C, E]) notAppended(a eventstore.Append, outcomes []outcome[S, E], resent bool, err error) (_ []Result[S, E], refusal, _ error) {
	if own, ok := err.(*ownRefusal); ok {
		r.refused = true
		return nil, nil, own.err
	}
	named := !r.call.command.IsZero()
	e, _ := errors.AsType[*eventstore.Error](err)
	switch {
	case isKind(err, eventstore.ErrFenced, eventstore.ErrAlreadyWritten, eventstore.ErrGuard):
		return nil, err, nil
	case isKind(err, eventstore.ErrBatchIDReused) && named:
		return nil, err, nil // another decision of the same command stands there: it will be recalled
	case isUnprovable(err) && !resent:
		// It was never sent before: what was trimmed there is somebody else's. If that
		// was the same command it will be recalled.
		return nil, moved(e.Stream, a.Batches[0].After, e.Head), nil
	case isUnprovable(err) && named:
		for i, o := range outcomes {
			if len(o.events) > 0 {
				r.doubt = &doubt{stream: i, after: a.Batches[o.batch].After, err: e}
				break
			}
		}
		return nil, err, nil
	}
	return nil, nil, err
}

// prepare encodes the events of a decision, and folds them as they will be read
// back, before anything is written. See the package comment.
func (r *run[S, C, E]) prepare(events [][]E) (a eventstore.Append, outcomes []outcome[S, E], err error) {
	outcomes = make([]outcome[S, E], len(events))
	for i, h := range r.known {
		if len(events[i]) == 0 {
			a.Guards = append(a.Guards, eventstore.Guard{Stream: h.stream, At: h.last})
			continue
		}
		o := outcome[S, E]{state: h.state, batch: len(a.Batches), events: make([]E, 0, len(events[i]))}
		b := eventstore.Batch{ID: r.batchID(h.stream), Stream: h.stream, Epoch: h.epoch, Holder: r.x.holder,
			Claim: !h.owned, After: h.last, Events: make([]eventstore.Event, 0, len(events[i]))}
		if b.Claim {
			b.Epoch++
		}
		for _, e := range events[i] {
			stored, err := r.x.prepareEvent(e, &o, r.folded == nil)
			if err != nil {
				return a, nil, err
			}
			stored.Metadata = r.call.metadata
			b.Events = append(b.Events, stored)
		}
		if r.folded != nil { // by Type.Remote, which knows of one stream
			o.state = *r.folded
		}
		a.Batches = append(a.Batches, b)
		outcomes[i] = o
	}
	return a, outcomes, nil
}

func (x *Executor[S, C, E]) prepareEvent(e E, o *outcome[S, E], fold bool) (eventstore.Event, error) {
	stored, err := x.typ.Schema.Encode(e)
	if err != nil {
		return stored, err
	}
	back, err := x.typ.Schema.Decode(eventstore.Entry{Event: stored})
	if err != nil {
		return stored, err
	}
	o.events = append(o.events, back)
	if fold {
		o.state = x.typ.Decider.Evolve(o.state, back)
	}
	o.bytes += len(stored.Data)
	return stored, nil
}

// batchID is the same whenever a command with an ID is decided for a stream, so
// that the log itself knows a second one; else it is new with every decision.
func (r *run[S, C, E]) batchID(s eventstore.Stream) eventstore.UUID {
	if r.call.command.IsZero() {
		return eventstore.NewUUID()
	}
	return eventstore.NameUUID("command " + r.call.command.String() + " on " + string(s))
}

// advance brings what is known of stream i behind its batch, makes the snapshot
// that is due, and keeps the state warm. If the batch was there already, others may
// stand behind it: then nothing is kept.
func (r *run[S, C, E]) advance(ctx context.Context, i int, o *outcome[S, E], b *eventstore.Batch, receipt eventstore.Receipt, t eventstore.Token) {
	h := r.known[i]
	h.state, h.last, h.epoch, h.owned = o.state, receipt.Last, b.Epoch, true
	h.bytes += o.bytes
	if !r.call.command.IsZero() {
		h.memory.add(remembered{ID: r.call.command, First: receipt.First, Last: receipt.Last.Seqno, Event: receipt.Last.ID,
			Position: t.Position}, r.x.remembered)
	}
	if receipt.Replays || receipt.Fenced {
		return
	}
	r.x.saveIfDue(ctx, h)
	r.x.keep(h)
}

// send appends a, and after a lost answer sends the same again until the log says
// what became of it. resent tells that it was sent more than once: then it is there,
// or the error proves it absent, or is ErrUnknown.
func (x *Executor[S, C, E]) send(ctx context.Context, a eventstore.Append) (done eventstore.Appended, resent bool, err error) {
	done, err = x.appendOnce(ctx, a)
	first, ok := errors.AsType[*eventstore.Error](err)
	if !ok || first.Kind != eventstore.ErrUnknown || first.Unprovable {
		return done, false, err
	}
	for n := range x.retries {
		if e := pause(ctx, n+1, unknownWait, unknownWaitMost); e != nil {
			return done, true, unknown(first, e)
		}
		done, err = x.appendOnce(ctx, a)
		switch {
		case err == nil, isUnprovable(err):
			return done, true, err
		case isKind(err, eventstore.ErrGuard):
			return done, true, x.behindGuard(ctx, first, &a.Batches[0], err)
		case isKind(err, eventstore.ErrBatchIDReused, eventstore.ErrFenced, eventstore.ErrDiverged,
			eventstore.ErrAlreadyWritten, eventstore.ErrGap, eventstore.ErrNoSuchCategory, eventstore.ErrNoSuchStream):
			return done, true, err
		case isKind(err, eventstore.ErrClosed):
			return done, true, unknown(first, err)
		}
		// Anything else says nothing about the first time: unavailable now is not
		// "nothing was written" then.
	}
	return done, true, unknown(first, err)
}

// appendOnce appends by Options.Append, if there is one, and tells its refusals from the
// log's.
func (x *Executor[S, C, E]) appendOnce(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if x.appends == nil {
		return x.store.Append(ctx, a)
	}
	done, err := x.appends(ctx, a)
	_, ofLog := err.(*eventstore.Error)
	if err == nil || ofLog || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return done, err
	}
	return done, &ownRefusal{err}
}

// behindGuard finds out what a failed guard says of an append sent before. A guarded
// stream only moves on, so the append can no longer go through; but it may have gone
// through while the guard held. The entry where its first batch would stand tells.
func (x *Executor[S, C, E]) behindGuard(ctx context.Context, first *eventstore.Error, b *eventstore.Batch, refusal error) error {
	page, err := x.store.ReadFrom(ctx, b.Stream, b.After.Seqno, 1)
	switch {
	case err != nil:
		return unknown(first, err)
	case len(page.Entries) > 0 && page.Entries[0].BatchID == b.ID:
		return unknown(first, refusal) // it is there; the log should have proved it
	}
	return refusal
}

// pause waits before the n-th retry: not at all before the first, then a random time
// below base, doubled with each further one up to most ("full jitter": contenders
// fall out of step). It returns early when ctx ends.
func pause(ctx context.Context, n int, base, most time.Duration) error {
	if n < 2 {
		return ctx.Err()
	}
	t := time.NewTimer(rand.N(min(base<<min(n, 30), most)))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
