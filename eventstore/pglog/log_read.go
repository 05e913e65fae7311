// Reading dedicated streams: both halves of the ring, chunks put together.

package pglog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// logRow takes one row of logColumns. All are NULL where a LEFT JOIN found none, most
// in a row that goes on with an entry.
type logRow struct {
	seqno, epoch          *int64
	chunk, version, split *int32
	time                  *time.Time
	id, batch             uuid
	typ, contentType      *string
	body                  []byte
}

func (r *logRow) targets(more ...any) []any {
	return append(more, &r.seqno, &r.chunk, &r.epoch, &r.time, &r.id, &r.batch, &r.version, &r.typ, &r.contentType, &r.split, &r.body)
}

// pieces puts entries together from rows in the order of seqno and chunk.
type pieces struct {
	stream  eventstore.Stream
	first   logRow // of the entry that is being put together
	body    []byte
	chunks  int32
	bytes   int
	entries []eventstore.Entry
}

// add takes the next row.
func (p *pieces) add(r logRow) error {
	switch {
	case r.seqno == nil:
		return nil
	case *r.chunk == 0:
		if err := p.flush(); err != nil {
			return err
		}
		p.first, p.body, p.chunks = r, r.body, 1
		return nil
	case p.chunks == 0 || *p.first.seqno != *r.seqno || *r.chunk != p.chunks:
		return p.corrupt(*r.seqno, "its chunks in order")
	case p.chunks == 1:
		p.body = append(make([]byte, 0, 4*chunkBytes), p.body...) // the first one is the driver's
	}
	p.body = append(p.body, r.body...)
	p.chunks++
	return nil
}

// flush ends the entry that is being put together.
func (p *pieces) flush() error {
	r := p.first
	if p.chunks == 0 {
		return nil
	}
	p.chunks = 0
	if r.typ == nil || r.split == nil || int(*r.split) > len(p.body) {
		return p.corrupt(*r.seqno, "a whole first chunk")
	}
	meta, err := fromMetadata(string(p.body[:*r.split]))
	if err != nil {
		return p.corrupt(*r.seqno, "its metadata to be a JSON object")
	}
	data := p.body[*r.split:]
	if data == nil {
		data = []byte{}
	}
	p.bytes += len(data)
	p.entries = append(p.entries, eventstore.Entry{
		Event: eventstore.Event{ID: fromUUID(r.id), Type: *r.typ, Version: int(*r.version), ContentType: *r.contentType,
			Data: data[:len(data):len(data)], Metadata: meta},
		Stream: p.stream, Seqno: eventstore.Seqno(*r.seqno), Epoch: eventstore.Epoch(*r.epoch), BatchID: fromUUID(r.batch), Time: r.time.UTC(),
	})
	return nil
}

func (p *pieces) corrupt(seqno int64, wanted string) error {
	return &eventstore.Error{Kind: eventstore.ErrCorrupt, Stream: p.stream, Wanted: "entry " + itoa(seqno) + ": " + wanted, Found: "something else",
		Hint: "the log was changed by other hands; wattle verify tells more"}
}

// scanLog takes rows of a head and an entry's chunk each, up to the bytes of a page.
func scanLog(rows pgx.Rows, s eventstore.Stream) (h eventstore.Head, entries []eventstore.Entry, found bool, err error) {
	defer rows.Close()
	p := pieces{stream: s}
	var head headRow
	for rows.Next() {
		var r logRow
		if err := rows.Scan(head.targets(r.targets()...)...); err != nil {
			return h, nil, false, err
		}
		found = true
		if err := p.add(r); err != nil {
			return h, nil, false, err
		}
		if p.bytes >= eventstore.MaxPageBytes { // the row just taken begins another entry
			p.chunks = 0
			break
		}
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return h, nil, false, err
	}
	err = p.flush()
	return head.head(), p.entries, found, err
}

// scanChunks takes rows of entries' chunks. With an error that an entry is damaged it
// returns those before it.
func scanChunks(rows pgx.Rows, s eventstore.Stream) ([]eventstore.Entry, error) {
	defer rows.Close()
	p := pieces{stream: s}
	for rows.Next() {
		var r logRow
		if err := rows.Scan(r.targets()...); err != nil {
			return nil, err
		}
		if err := p.add(r); err != nil {
			return p.entries, err
		}
		if p.bytes >= eventstore.MaxPageBytes {
			p.chunks = 0
			break
		}
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, err
	}
	err := p.flush()
	return p.entries, err
}

// logPage runs a statement whose rows are a head and a chunk, of one log.
func (l *Log) logPage(ctx context.Context, op string, s eventstore.Stream, c category, sql string, from, to int64) (p eventstore.Page, h eventstore.Head, err error) {
	ordinal, err := l.ordinalOf(ctx, l.pool, op, c, s)
	if err != nil {
		return p, h, err
	}
	found := false
	err = l.look(ctx, l.pool, func(o *oneOffs) { o.add(ofLog(sql, ordinal), ordinal, from, to) }, func(r *results) error {
		rows, err := r.next()
		if err == nil {
			h, p.Entries, found, err = scanLog(rows, s)
		}
		return err
	})
	if err == nil && !found {
		err = errStale
	}
	return p, h, err
}

// tornReads is how often a page is read again that lacks an entry it must have.
const tornReads = 3

// readLog returns the entries of a dedicated stream after a seqno. A half that was
// emptied after the page's moment began reads as empty: then the watermark has passed
// it, and the next look says so.
func (l *Log) readLog(ctx context.Context, s eventstore.Stream, c category, after eventstore.Seqno, limit int) (p eventstore.Page, err error) {
	var h eventstore.Head
	last := int64(min(uint64(after)+uint64(limit), eventstore.MaxNumber))
	for range tornReads {
		p, h, err = l.logPage(ctx, "read", s, c, l.sql.logs.page, int64(after), last)
		if err != nil {
			return p, err
		}
		if after < h.Trimmed {
			return p, eventstore.TrimmedError("read", s, after+1, h)
		}
		if whole(p.Entries, after, h) {
			p.End = after+eventstore.Seqno(len(p.Entries)) >= h.Last.Seqno
			return p, nil
		}
	}
	return eventstore.Page{}, gapError("read", s, after, h)
}

// whole says if entries follow after without a gap, and are not none where some are.
func whole(entries []eventstore.Entry, after eventstore.Seqno, h eventstore.Head) bool {
	for i, e := range entries {
		if e.Seqno != after+1+eventstore.Seqno(i) {
			return false
		}
	}
	return len(entries) > 0 || after >= h.Last.Seqno
}

func gapError(op string, s eventstore.Stream, after eventstore.Seqno, h eventstore.Head) error {
	return &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: op, Stream: s, Wanted: "entries after " + after.String() + " without a gap",
		Found: "one is missing; head " + h.Last.String(), Hint: "the log was changed by other hands; wattle verify tells more", Head: &h}
}

// loadLog is load for a dedicated stream.
func (l *Log) loadLog(ctx context.Context, s eventstore.Stream, c category, fingerprint string, limit int) (out eventstore.Loaded, err error) {
	ordinal, err := l.ordinalOf(ctx, l.pool, "load", c, s)
	if err != nil {
		return out, err
	}
	for range tornReads {
		err = l.look(ctx, l.pool, func(o *oneOffs) {
			o.add(ofLog(l.sql.logs.loadHead, ordinal), ordinal, fingerprint)
			o.add(ofLog(l.sql.logs.loadTail, ordinal), ordinal, fingerprint, int64(limit))
		}, func(r *results) error {
			rows, err := r.next()
			if err != nil {
				return err
			}
			out, err = scanLoadHead(oneRow{rows}, s, fingerprint)
			if err != nil {
				return noRowsIsStale(err)
			}
			if rows, err = r.next(); err == nil {
				out.Entries, err = scanChunks(rows, s)
			}
			return err
		})
		if err != nil {
			return out, err
		}
		out, err = finishLoad(s, out, func(after eventstore.Seqno) (eventstore.Page, error) { return l.readLog(ctx, s, c, after, limit) })
		after := eventstore.Seqno(0)
		if out.Snapshot != nil {
			after = out.Snapshot.At.Seqno
		}
		if err != nil || whole(out.Entries, after, out.Head) {
			return out, err
		}
	}
	return out, gapError("load", s, 0, out.Head)
}

// oneRow is rows of which the first is wanted.
type oneRow struct{ rows pgx.Rows }

func (r oneRow) Scan(targets ...any) error {
	defer r.rows.Close()
	if !r.rows.Next() {
		r.rows.Close()
		if r.rows.Err() != nil {
			return r.rows.Err()
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(targets...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// saveLogSnapshot is the statement of SaveSnapshot for a dedicated stream.
func (l *Log) saveLogSnapshot(ctx context.Context, q querier, op string, sn eventstore.Snapshot, c category) error {
	ordinal, err := l.ordinalOf(ctx, q, op, c, sn.Stream)
	if err != nil {
		return l.readError(op, sn.Stream, err)
	}
	conn, release, _, err := l.connOf(ctx, q)
	if err != nil {
		return err
	}
	defer release()
	var ok bool
	var ours *bool
	var h headRow
	o := &oneOffs{}
	o.add(indexOnly)
	o.add(ofLog(l.sql.logs.saveSnapshot, ordinal), ordinal, int64(sn.At.Seqno), toUUID(sn.At.ID), sn.Fingerprint, sn.ContentType, sn.Checksum[:], sn.Data)
	err = o.send(ctx, conn, func(r *results) error {
		if err := r.skip(); err != nil {
			return err
		}
		return r.row(append([]any{&ok, &ours}, h.targets()...)...)
	})
	switch {
	case err != nil:
		return err
	case !ok:
		return isolationError(op, sn.Stream)
	case h.epoch == nil:
		return errStale
	case ours == nil || !*ours:
		return eventstore.DivergedError(op, sn.Stream, sn.At, h.head())
	}
	return nil
}

// markedInLog returns the ID of an entry that is there, else zero.
func (l *Log) markedInLog(ctx context.Context, tx pgx.Tx, ordinal int64, seqno eventstore.Seqno) (eventstore.UUID, error) {
	var id uuid
	err := l.look(ctx, tx, func(o *oneOffs) { o.add(ofLog(l.sql.logs.marked, ordinal), ordinal, int64(seqno)) }, func(r *results) error { return r.row(&id) })
	if err == pgx.ErrNoRows {
		err = nil
	}
	return fromUUID(id), err
}
