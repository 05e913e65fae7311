// A command that is in the history already: finding it, and answering it again.

package aggregate

import (
	"context"
	"errors"

	"github.com/wattle-es/wattle/eventstore"
)

// recall answers a command that was executed before; nil if it was not.
func (r *run[S, C, E]) recall(ctx context.Context) ([]Result[S, E], error) {
	if r.call.command.IsZero() {
		return nil, nil
	}
	found := make([]remembered, len(r.known))
	hits := 0
	for i, h := range r.known {
		c, ok := h.memory.find(r.call.command)
		if !ok && h.memory.mayHaveForgotten(r.call.command) {
			var err error
			if c, ok, err = r.x.search(ctx, h, r.call.command); err != nil {
				return nil, err
			}
		}
		if ok {
			found[i] = c
			hits++
		}
	}
	if hits == 0 {
		return nil, nil
	}
	return r.replayed(ctx, found)
}

// replayed gives the first results of a command. It was written in one step, so
// streams that do not have it were not written by it.
func (r *run[S, C, E]) replayed(ctx context.Context, found []remembered) ([]Result[S, E], error) {
	results := r.results()
	var position eventstore.Position
	for i := range results {
		results[i].Replayed = true
		if found[i].Last == 0 {
			continue
		}
		events, err := r.x.eventsOf(ctx, r.streams[i], found[i])
		if err != nil {
			return nil, err
		}
		results[i].Mark, results[i].Events = found[i].mark(), events
		position = max(position, found[i].Position)
	}
	if position > 0 {
		token := eventstore.Token{Incarnation: r.known[0].store, Position: position}
		for i := range results {
			results[i].Token = token
		}
	}
	r.keep()
	return results, nil
}

// eventsOf reads the events of a command; nil if they were trimmed.
func (x *Executor[S, C, E]) eventsOf(ctx context.Context, s eventstore.Stream, c remembered) ([]E, error) {
	var events []E
	last := eventstore.Mark{Seqno: c.First - 1}
	for last.Seqno < c.Last {
		page, err := x.store.ReadFrom(ctx, s, last.Seqno, int(c.Last-last.Seqno))
		switch {
		case isKind(err, eventstore.ErrTrimmed):
			return nil, nil
		case err != nil:
			return nil, err
		case len(page.Entries) == 0:
			return nil, diverged(s, c.mark(), eventstore.Head{Last: last}, "head "+last.String())
		}
		for _, e := range page.Entries {
			event, err := x.typ.Schema.Decode(e)
			if err != nil {
				return nil, err
			}
			events, last = append(events, event), e.Mark()
		}
	}
	if last != c.mark() {
		return nil, diverged(s, c.mark(), eventstore.Head{Last: last}, "entry "+last.String())
	}
	return events, nil
}

// search looks for a command among those that a stream has forgotten, newest first.
// ErrForgotten if the entries that can be looked at do not settle it.
func (x *Executor[S, C, E]) search(ctx context.Context, h *history[S], command eventstore.UUID) (c remembered, ok bool, err error) {
	left := SearchedEntries
	for e, err := range x.store.ReadBackward(ctx, h.stream, h.memory.Through+1) {
		switch id, _ := commandOf(&e); {
		case isKind(err, eventstore.ErrTrimmed):
			return c, ok, unlessFound(ok, h.stream, command, "and the entries that would tell are trimmed")
		case err != nil:
			return c, false, err
		case id == command && !ok:
			c, ok = remembered{ID: id, First: e.Seqno, Last: e.Seqno, Event: e.ID, Position: e.Position}, true
		case id == command:
			c.First = e.Seqno
		case ok:
			return c, true, nil
		case left == 0:
			return c, false, forgotten(h.stream, command, "and too many entries to look through")
		}
		left--
		if e.Seqno == 1 {
			return c, ok, nil
		}
	}
	return c, ok, unlessFound(ok, h.stream, command, "and the entries that would tell are trimmed")
}

func unlessFound(ok bool, s eventstore.Stream, command eventstore.UUID, why string) error {
	if ok {
		return nil
	}
	return forgotten(s, command, why)
}

// settleDoubt looks at a freshly loaded history for an append whose proof was
// trimmed. It was not recalled; that proves it absent if every command from where it
// would stand is remembered.
func (r *run[S, C, E]) settleDoubt() error {
	d := r.doubt
	if d == nil {
		return nil
	}
	if r.call.command.IsZero() || !r.known[d.stream].memory.knowsAllFrom(d.after.Seqno+1) {
		return unknown(d.err, d.err)
	}
	r.doubt = nil
	return nil
}

// doubted keeps an error from hiding that an append of this run may be there.
func (r *run[S, C, E]) doubted(err error) error {
	if err == nil || r.doubt == nil || errors.Is(err, eventstore.ErrDiverged) {
		return err
	}
	return unknown(r.doubt.err, err)
}
