// Appending to dedicated streams: chunks, and what is seen of a log when an append
// does not pass.

package pglog

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// chunkArrays are the columns of chunks, as unnest takes them. What only an entry's
// first chunk has stands with it; the others carry zero values that are not stored.
type chunkArrays struct {
	nths     []int64 // which event of its batch, from 1
	chunks   []int32
	versions []int32
	splits   []int32
	ids      []uuid
	types    []string
	contents []string
	bodies   [][]byte
}

// add adds the chunks of events, the first of which is number before + 1, and returns
// how many there are.
func (a *chunkArrays) add(events []eventstore.Event, before int64) (n int) {
	for i := range events {
		e := &events[i]
		meta := toMetadata(e.Metadata)
		body := e.Data
		if meta != "" {
			body = append([]byte(meta), e.Data...)
		}
		for j, chunk := range chunksOf(body) {
			a.nths, a.chunks, a.bodies = append(a.nths, before+int64(i)+1), append(a.chunks, int32(j)), append(a.bodies, chunk)
			if j == 0 {
				a.first(e, int32(len(meta)))
			} else {
				a.first(&eventstore.Event{}, 0)
			}
			n++
		}
	}
	return n
}

func (a *chunkArrays) first(e *eventstore.Event, split int32) {
	a.versions, a.splits, a.ids = append(a.versions, int32(e.Version)), append(a.splits, split), append(a.ids, toUUID(e.ID))
	a.types, a.contents = append(a.types, e.Type), append(a.contents, e.ContentType)
}

func (a *chunkArrays) args() []any {
	return []any{a.nths, a.chunks, a.versions, a.splits, a.ids, a.types, a.contents, a.bodies}
}

func logArgs(b *eventstore.Batch, category int32) []any {
	var c chunkArrays
	c.add(b.Events, 0)
	return append([]any{category, b.Stream.Key(), int64(b.Epoch), toUUID(b.Holder), b.Claim, int64(b.After.Seqno), toUUID(b.After.ID),
		int64(len(b.Events)), toUUID(b.Events[len(b.Events)-1].ID), toUUID(b.ID)}, c.args()...)
}

// mixedArgs is allArgs with what is dedicated behind it.
func mixedArgs(a eventstore.Append, places []category) []any {
	dedicated := make([]bool, len(places))
	var items []int64
	var c chunkArrays
	for i, p := range places {
		dedicated[i] = p.dedicated
		if p.dedicated && i < len(a.Batches) {
			for range c.add(a.Batches[i].Events, 0) {
				items = append(items, int64(i+1))
			}
		}
	}
	return append(append(allArgs(a, places), dedicated, items), c.args()...)
}

// ordinalOf returns the ordinal of a dedicated stream, or ErrNoSuchStream.
func (l *Log) ordinalOf(ctx context.Context, q querier, op string, c category, s eventstore.Stream) (int64, error) {
	if ordinal, ok := l.categories.ordinal(s); ok {
		return ordinal, nil
	}
	var ordinal int64
	err := q.QueryRow(ctx, l.sql.logs.ordinal, c.id, s.Key()).Scan(&ordinal)
	if err == pgx.ErrNoRows {
		return 0, l.noSuchStream(ctx, q, op, c, s)
	}
	if err != nil {
		return 0, err
	}
	l.categories.putOrdinal(s, ordinal)
	return ordinal, nil
}

// noSuchStream is ErrNoSuchStream, unless it is the category that is gone.
func (l *Log) noSuchStream(ctx context.Context, q querier, op string, c category, s eventstore.Stream) error {
	known, _, err := l.lookUp(ctx, q, s.Category())
	switch {
	case err != nil:
		return err
	case known.id != c.id:
		return errStale
	}
	return eventstore.NoSuchStreamError(op, s)
}

// seeLogs is see for an append of which some is dedicated.
func (l *Log) seeLogs(ctx context.Context, q querier, a eventstore.Append, places []category) ([]seen, error) {
	ordinals := make([]int64, len(places)) // 0: not there
	for i, c := range places {
		s := streamOf(a, i)
		if !c.dedicated {
			continue
		}
		var err error
		ordinals[i], err = l.ordinalOf(ctx, q, "append", c, s)
		if err != nil && !errors.Is(err, eventstore.ErrNoSuchStream) { // that one judge tells
			return nil, l.readError("append", s, err)
		}
	}
	all := make([]seen, len(places))
	wanted := make([][2]eventstore.Seqno, len(places))
	err := l.look(ctx, q, func(o *oneOffs) {
		for i, c := range places {
			wanted[i] = [2]eventstore.Seqno{1, 0} // a guard's: the head alone
			if i < len(a.Batches) {
				b := &a.Batches[i]
				wanted[i] = [2]eventstore.Seqno{b.After.Seqno, min(b.Last()+1, eventstore.MaxNumber)}
			}
			after, last := int64(wanted[i][0]), int64(wanted[i][1])
			switch {
			case !c.dedicated:
				o.add(of(l.sql.around, c.id), c.id, streamOf(a, i).Key(), after, last)
			case ordinals[i] > 0:
				o.add(ofLog(l.sql.logs.around, ordinals[i]), ordinals[i], after, last)
			}
		}
	}, func(r *results) error {
		for i, c := range places {
			if c.dedicated && ordinals[i] == 0 {
				continue
			}
			rows, err := r.next()
			if err != nil {
				return err
			}
			if c.dedicated {
				all[i], err = scanSeenLog(rows, streamOf(a, i), wanted[i])
			} else {
				all[i], err = scanSeen(rows, streamOf(a, i))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return all, l.readError("append", a.Batches[0].Stream, err)
}

// streamOf is the stream of a batch or, behind those, of a guard.
func streamOf(a eventstore.Append, i int) eventstore.Stream {
	if i < len(a.Batches) {
		return a.Batches[i].Stream
	}
	return a.Guards[i-len(a.Batches)].Stream
}

// scanSeenLog takes the entries from wanted[0] through wanted[1]. All that the head says
// are there must be: a half emptied since the moment began reads as empty.
func scanSeenLog(rows pgx.Rows, s eventstore.Stream, wanted [2]eventstore.Seqno) (seen, error) {
	h, entries, found, err := scanLog(rows, s)
	first, last := max(wanted[0], h.Trimmed+1), min(wanted[1], h.Last.Seqno)
	if err == nil && (!found || first <= last && !whole(entries, first-1, h)) {
		err = errStale
	}
	return seen{Seen: eventstore.Seen{Head: h, Around: entries}, exists: found}, err
}
