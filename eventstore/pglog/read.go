// Reading one stream: head, pages forward and backward, load.

package pglog

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// read runs f with the number of the stream's category.
func (l *Log) read(ctx context.Context, op string, s eventstore.Stream, f func(c category) error) error {
	leave, err := l.enter(ctx, op, s)
	if err != nil {
		return err
	}
	defer leave()
	return l.translate(op, s, l.with(ctx, l.pool, op, s.Category(), s, f), reading)
}

// Head returns the head of a stream.
func (l *Log) Head(ctx context.Context, s eventstore.Stream) (h eventstore.Head, err error) {
	err = l.read(ctx, "head", s, func(c category) error {
		var r headRow
		if err := l.pool.QueryRow(ctx, l.sql.head, c.id, s.Key()).Scan(r.targets()...); err != nil {
			return noRowsIsStale(err)
		}
		if c.dedicated && r.epoch == nil {
			return eventstore.NoSuchStreamError("head", s)
		}
		h = r.head()
		return nil
	})
	return h, err
}

// noRowsIsStale makes "no row" what it means for statements that give one for every
// category that exists.
func noRowsIsStale(err error) error {
	if err == pgx.ErrNoRows {
		return errStale
	}
	return err
}

// ReadFrom returns the entries of a stream after a seqno.
func (l *Log) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (p eventstore.Page, err error) {
	err = l.read(ctx, "read", s, func(c category) error {
		if c.dedicated {
			p, err = l.readLog(ctx, s, c, after, limit)
		} else {
			p, err = l.readFrom(ctx, s, c.id, after, limit)
		}
		return err
	})
	return p, err
}

func (l *Log) readFrom(ctx context.Context, s eventstore.Stream, id int32, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	p, h, err := l.page(ctx, of(l.sql.page, id), s, id, s.Key(), int64(after), limit)
	if err != nil {
		return p, err
	}
	if after < h.Trimmed {
		return p, eventstore.TrimmedError("read", s, after+1, h)
	}
	p.End = after+eventstore.Seqno(len(p.Entries)) >= h.Last.Seqno
	return p, nil
}

// ReadBackward returns the entries of a stream below a seqno, newest first.
func (l *Log) ReadBackward(ctx context.Context, s eventstore.Stream, before eventstore.Seqno, limit int) (p eventstore.Page, err error) {
	err = l.read(ctx, "read backward", s, func(c category) error {
		var h eventstore.Head
		if c.dedicated {
			p, h, err = l.logPage(ctx, "read backward", s, c, l.sql.logs.backward, int64(before), int64(limit))
		} else {
			p, h, err = l.page(ctx, of(l.sql.backward, c.id), s, c.id, s.Key(), int64(before), limit)
		}
		if err != nil {
			return err
		}
		if len(p.Entries) == 0 && h.Trimmed > 0 {
			return eventstore.TrimmedError("read backward", s, max(before, 1)-1, h)
		}
		p.End = len(p.Entries) == 0 || p.Entries[len(p.Entries)-1].Seqno == h.Trimmed+1
		return nil
	})
	return p, err
}

// page runs a statement whose rows are last seqno, trimmed, last ID and an entry.
func (l *Log) page(ctx context.Context, sql string, s eventstore.Stream, args ...any) (p eventstore.Page, h eventstore.Head, err error) {
	rows, err := l.pool.Query(ctx, sql, args...)
	if err != nil {
		return p, h, err
	}
	defer rows.Close()
	bytes, found := 0, false
	for rows.Next() && bytes < eventstore.MaxPageBytes {
		var last, trimmed *int64
		var lastID uuid
		var r entryRow
		if err := rows.Scan(r.targets(&last, &trimmed, &lastID)...); err != nil {
			return p, h, err
		}
		if found = true; last != nil {
			h = eventstore.Head{Last: eventstore.Mark{Seqno: eventstore.Seqno(*last), ID: fromUUID(lastID)}, Trimmed: eventstore.Seqno(*trimmed)}
		}
		e, ok, err := r.entry(s)
		if err != nil {
			return p, h, err
		}
		if ok {
			p.Entries = append(p.Entries, e)
			bytes += len(e.Data)
		}
	}
	if rows.Close(); rows.Err() != nil {
		return p, h, rows.Err()
	}
	if !found {
		return p, h, errStale
	}
	return p, h, nil
}

// Load returns head, usable snapshot and the entries behind it, as of one moment.
func (l *Log) Load(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (out eventstore.Loaded, err error) {
	err = l.read(ctx, "load", s, func(c category) error {
		if c.dedicated {
			out, err = l.loadLog(ctx, s, c, fingerprint, limit)
		} else {
			out, err = l.load(ctx, s, c.id, fingerprint, limit)
		}
		return err
	})
	return out, err
}

func (l *Log) load(ctx context.Context, s eventstore.Stream, id int32, fingerprint string, limit int) (out eventstore.Loaded, err error) {
	res, end := l.moment(ctx, l.pool, func(b *pgx.Batch) {
		b.Queue(of(l.sql.loadHead, id), id, s.Key(), fingerprint)
		b.Queue(of(l.sql.loadTail, id), id, s.Key(), fingerprint, limit)
	})
	defer end()
	if out, err = scanLoadHead(res.QueryRow(), s, fingerprint); err != nil {
		return out, noRowsIsStale(err)
	}
	rows, err := res.Query()
	if err != nil {
		return out, err
	}
	if out.Entries, err = scanEntries(rows, s); err != nil {
		return out, err
	}
	if err := end(); err != nil {
		return out, err
	}
	return finishLoad(s, out, func(after eventstore.Seqno) (eventstore.Page, error) { return l.readFrom(ctx, s, id, after, limit) })
}

// finishLoad checks that the tail begins where the snapshot (or nothing) ends. SQL
// cannot see a bad checksum: then the tail is read again from the first entry.
func finishLoad(s eventstore.Stream, out eventstore.Loaded, read func(after eventstore.Seqno) (eventstore.Page, error)) (eventstore.Loaded, error) {
	after := eventstore.Seqno(0)
	if out.Snapshot != nil {
		after = out.Snapshot.At.Seqno
	}
	if after < out.Head.Trimmed {
		return out, eventstore.TrimmedError("load", s, after+1, out.Head)
	}
	if len(out.Entries) > 0 && out.Entries[0].Seqno != after+1 {
		p, err := read(after)
		if err != nil {
			return out, err
		}
		out.Entries = p.Entries
	}
	for i, e := range out.Entries {
		if e.Seqno > out.Head.Last.Seqno { // read later than the head
			out.Entries = out.Entries[:i]
			break
		}
	}
	out.End = after+eventstore.Seqno(len(out.Entries)) == out.Head.Last.Seqno
	return out, nil
}

func scanLoadHead(row pgx.Row, s eventstore.Stream, fingerprint string) (out eventstore.Loaded, err error) {
	var h headRow
	var seqno *int64
	var id, marked, incarnation uuid
	var print, contentType *string
	var checksum, data []byte
	var at *time.Time
	if err := row.Scan(h.targets(&seqno, &id, &print, &contentType, &checksum, &data, &at, &marked, &incarnation)...); err != nil {
		return out, err
	}
	out.Head, out.Incarnation = h.head(), fromUUID(incarnation)
	if seqno == nil {
		return out, nil
	}
	sn := eventstore.Snapshot{Stream: s, At: eventstore.Mark{Seqno: eventstore.Seqno(*seqno), ID: fromUUID(id)},
		Fingerprint: *print, ContentType: *contentType, Data: data, Time: at.UTC()}
	if len(checksum) == sha256.Size {
		sn.Checksum = [sha256.Size]byte(checksum)
	}
	if out.Skipped = sn.Usable(fingerprint, out.Head, fromUUID(marked)); out.Skipped == "" {
		out.Snapshot = &sn
	}
	return out, nil
}

func scanEntries(rows pgx.Rows, s eventstore.Stream) (all []eventstore.Entry, err error) {
	defer rows.Close()
	bytes := 0
	for rows.Next() && bytes < eventstore.MaxPageBytes {
		var r entryRow
		if err := rows.Scan(r.targets()...); err != nil {
			return nil, err
		}
		e, ok, err := r.entry(s)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, e)
			bytes += len(e.Data)
		}
	}
	rows.Close()
	return all, rows.Err()
}

// SaveSnapshot keeps a snapshot if it is newer than the one kept.
func (l *Log) SaveSnapshot(ctx context.Context, sn eventstore.Snapshot) error {
	const op = "save snapshot"
	return l.change(ctx, op, sn.Stream, func(q querier, c category) error {
		if c.dedicated {
			return l.saveLogSnapshot(ctx, q, op, sn, c)
		}
		var ok, category bool
		var ours *bool
		var h headRow
		err := q.QueryRow(ctx, of(l.sql.saveSnapshot, c.id), c.id, sn.Stream.Key(), int64(sn.At.Seqno), toUUID(sn.At.ID), sn.Fingerprint,
			sn.ContentType, sn.Checksum[:], sn.Data).Scan(append([]any{&ok, &category, &ours}, h.targets()...)...)
		switch {
		case err != nil:
			return err
		case !category:
			return errStale
		case !ok:
			return isolationError(op, sn.Stream)
		case ours == nil || !*ours:
			return eventstore.DivergedError(op, sn.Stream, sn.At, h.head())
		}
		return nil
	})
}

// change runs f, which writes, on one connection with the number of the stream's
// category.
func (l *Log) change(ctx context.Context, op string, s eventstore.Stream, f func(q querier, c category) error) error {
	leave, err := l.enter(ctx, op, s)
	if err != nil {
		return err
	}
	defer leave()
	err = l.with(ctx, l.pool, op, s.Category(), s, func(c category) error {
		return l.on(ctx, op, s, func(q querier) error { return f(q, c) })
	})
	return l.translate(op, s, err, writing)
}

// Fence grants the next epoch, or the one given. If the statement did not grant it,
// a second round trip finds out why.
func (l *Log) Fence(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (h eventstore.Head, err error) {
	err = l.change(ctx, "fence", s, func(q querier, c category) error {
		for range maxAttempts {
			var ok bool
			var r headRow
			err := q.QueryRow(ctx, l.sql.fence, c.id, s.Key(), int16(s.Slot()), int64(at), toUUID(holder)).Scan(append([]any{&ok}, r.targets()...)...)
			if err != nil {
				return err
			}
			if !ok {
				return isolationError("fence", s)
			}
			if r.epoch != nil {
				h = r.head()
				return nil
			}
			if err := q.QueryRow(ctx, l.sql.head, c.id, s.Key()).Scan(r.targets()...); err != nil {
				return l.readError("fence", s, noRowsIsStale(err))
			}
			if c.dedicated && r.epoch == nil {
				return eventstore.NoSuchStreamError("fence", s)
			}
			if _, err := r.head().Grant(s, holder, at); err != nil {
				return err
			}
		}
		return &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: "fence", Stream: s, Wanted: "to fence without losing a race", Found: "races lost", Hint: "try again"}
	})
	return h, err
}

// ListTrimmed returns streams of which no entry is left, in the order of their keys.
func (l *Log) ListTrimmed(ctx context.Context, name eventstore.Category, slots []eventstore.Slot, after string, limit int) (p eventstore.TrimmedPage, err error) {
	const op = "list trimmed streams"
	leave, err := l.enter(ctx, op, "")
	if err != nil {
		return p, err
	}
	defer leave()
	wanted := make([]int16, len(slots))
	for i, s := range slots {
		wanted[i] = int16(s)
	}
	err = l.with(ctx, l.pool, op, name, "", func(c category) error {
		rows, err := l.pool.Query(ctx, l.sql.listTrimmed, c.id, after, limit, wanted)
		if err != nil {
			return err
		}
		p, err = scanTrimmed(rows, name, limit)
		return err
	})
	return p, l.translate(op, "", err, reading)
}

func scanTrimmed(rows pgx.Rows, name eventstore.Category, limit int) (p eventstore.TrimmedPage, err error) {
	defer rows.Close()
	found := false
	for rows.Next() {
		var looked int
		var last, key *string
		if err := rows.Scan(&looked, &last, &key); err != nil {
			return p, err
		}
		if found = true; last != nil && looked == limit {
			p.Next = *last
		}
		if key != nil {
			p.Streams = append(p.Streams, eventstore.Stream(string(name)+"-"+*key))
		}
	}
	if rows.Close(); rows.Err() == nil && !found {
		return p, errStale
	}
	return p, rows.Err()
}
