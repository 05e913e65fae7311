// Inline: effects of events in the very transaction that appends them.

package pgcheckpoint

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/projector"
)

const opInline = "append inline"

// Inline returns a function that appends like store.Append and calls f with each event
// of the append, in order, inside the transaction that writes them: the effects are
// there when, and only when, the events are. So f can keep what has to be true at once,
// as a table of names that are unique over all streams, and refuse an append; everything
// else is better projected behind the append, where it does not make it slower. There is
// no checkpoint: what was appended otherwise, f has not seen.
//
//	x, err := aggregate.NewExecutor(ctx, store, accounts, &aggregate.Options{
//		Append: pgcheckpoint.Inline(store, events, func(ctx context.Context, tx pgx.Tx, e projector.Event[Event]) error {
//			_, err := tx.Exec(ctx, "INSERT INTO emails …", …)
//			return err
//		}),
//	})
//
// store's log must be a *pglog.Log, else every append is errors.ErrUnsupported. It is
// one transaction by [pglog.Within], in READ COMMITTED; what is said of its function goes
// for f: it must use tx for its effects, cannot end it, may run again when a race was
// lost, and holds what it locks until the commit. The events have their stream, seqno, ID,
// type and data; they have no position, time and trace yet. f sees them before the log has
// looked at the append.
//
// An error or panic of f rolls everything back and is returned as a
// *projector.EntryError that wraps it, if the append could have gone through: when
// the log has gone on meanwhile, what f refused is not what would be appended, and the
// log's own refusal is returned. An event that d cannot decode is such an error too.
// Errors of the log and of the database are those of [eventstore.Log.Append].
//
// After ErrUnknown call it again with the same batches (the same ID): if the first append
// did go through it is proved, with nothing done a second time, also when f refuses
// because its own effects are there.
func Inline[E any](store *eventstore.Store, d projector.Decoder[E], f func(ctx context.Context, tx pgx.Tx, e projector.Event[E]) error) func(context.Context, eventstore.Append) (eventstore.Appended, error) {
	apply := func(ctx context.Context, tx pgx.Tx, entries []eventstore.Entry) error {
		events, err := projector.Decode(d, entries) // anew for each attempt, as f may change them
		if err != nil {
			return err
		}
		return projector.Each(ctx, events, func(ctx context.Context, e projector.Event[E]) error { return f(ctx, handlerTx{tx}, e) })
	}
	return func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
		return inline(ctx, store, a, apply)
	}
}

func inline(ctx context.Context, store *eventstore.Store, a eventstore.Append, apply func(context.Context, pgx.Tx, []eventstore.Entry) error) (eventstore.Appended, error) {
	a, entries := foreseen(a)
	done, err := pglog.Within(ctx, store, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
		err := apply(ctx, tx, entries)
		if err != nil {
			err = ofHandler(ctx, tx.Conn(), err, false)
		}
		return a, err
	})
	switch refused := err.(type) {
	case *projector.EntryError:
		return settled(ctx, store, a, refused)
	case *lostError: // a serialization failure: f has asked for more than READ COMMITTED
		return done, &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: opInline, Err: refused.err, Hint: "nothing was written; try again"}
	}
	return done, err
}

// foreseen completes the IDs of an append and returns the entries that it will write, as
// far as they are known before.
func foreseen(a eventstore.Append) (eventstore.Append, []eventstore.Entry) {
	var entries []eventstore.Entry
	a.Batches = slices.Clone(a.Batches)
	for i := range a.Batches {
		b := &a.Batches[i]
		if b.ID.IsZero() {
			b.ID = eventstore.NewUUID()
		}
		for j, e := range b.Events {
			if e.ID.IsZero() {
				e.ID = eventstore.DeriveUUID(b.ID, j)
			}
			e.Version = max(e.Version, 1)
			entries = append(entries, eventstore.Entry{Event: e, Stream: b.Stream, Epoch: b.Epoch, BatchID: b.ID, Seqno: b.After.Seqno + 1 + eventstore.Seqno(j)})
		}
	}
	return a, entries
}

// settled returns what has become of an append that f refused. If a stream has gone on
// behind After nothing can be written any more: the log proves the append, if it was the
// one that went on, or says why it could not have gone through.
func settled(ctx context.Context, store *eventstore.Store, a eventstore.Append, refused error) (eventstore.Appended, error) {
	for i := range a.Batches {
		h, err := store.Head(ctx, a.Batches[i].Stream)
		switch {
		case errors.Is(err, eventstore.ErrInvalid): // no stream at all: the log says so first
			return store.Append(ctx, a)
		case err != nil:
			return eventstore.Appended{}, err
		case h.Last.Seqno > a.Batches[i].After.Seqno:
			return store.Append(ctx, a)
		}
	}
	return eventstore.Appended{}, refused
}
