// Trimming and Holds. Both lock the category's row, so they exclude each other;
// appends do not touch that row.

package pglog

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// Trim moves the stream's watermark as far as is allowed. What lies below it can
// no longer be read at once; its space comes back in the background (see
// Options.ReclaimEvery).
func (l *Log) Trim(ctx context.Context, s eventstore.Stream, through eventstore.Seqno, dry bool) (out eventstore.TrimResult, err error) {
	dead := int64(0)
	err = l.lockedCategory(ctx, "trim", s.Category(), s, func(tx pgx.Tx, c category, demand bool, _ eventstore.Position) error {
		out, dead, err = l.trim(ctx, tx, s, c, demand, through, dry)
		return err
	})
	if err == nil && dead > 0 && l.emptyLog(ctx, dead) {
		dead = 0
	}
	if err == nil && !dry && (out.Trimmed > 0 && !l.isDedicated(s) || dead > 0) {
		l.reclaimSoon()
	}
	return out, err
}

// isDedicated says if a stream that was just looked at is dedicated.
func (l *Log) isDedicated(s eventstore.Stream) bool {
	c, _ := l.categories.get(s.Category())
	return c.dedicated
}

// trim also returns the ordinal of a dedicated stream of which a half is dead.
func (l *Log) trim(ctx context.Context, tx pgx.Tx, s eventstore.Stream, c category, demand bool, through eventstore.Seqno, dry bool) (out eventstore.TrimResult, dead int64, err error) {
	var ordinal, place int64
	var r headRow
	var snapshot *int64
	err = tx.QueryRow(ctx, l.sql.lockStream, c.id, s.Key()).Scan(append(append([]any{&ordinal, &place}, r.targets()...), &snapshot)...)
	if err == pgx.ErrNoRows && c.dedicated {
		err = eventstore.NoSuchStreamError("trim", s)
	}
	if err == pgx.ErrNoRows {
		return out, 0, nil
	}
	if err != nil {
		return out, 0, err
	}
	h := r.head()
	f := eventstore.TrimFloor{To: through}
	f.Head(h.Last.Seqno)
	if demand {
		f.Snapshot(snapshotAt(snapshot))
	}
	if err := l.lowerByHolds(ctx, tx, &f, c, ordinal, s); err != nil {
		return out, 0, err
	}
	out = eventstore.TrimResult{Trimmed: max(f.To, h.Trimmed), StoppedBy: f.StoppedBy}
	if dry || f.To <= h.Trimmed {
		return out, 0, nil
	}
	if c.dedicated {
		turned := ringOf(place).turned(f.To, h.Last.Seqno)
		if turned.dead(f.To) {
			dead = ordinal
		}
		_, err = tx.Exec(ctx, l.sql.logs.setTrimmed, ordinal, int64(f.To), turned.number())
		return out, dead, err
	}
	_, err = tx.Exec(ctx, of(l.sql.setTrimmed, c.id), c.id, ordinal, int64(f.To))
	return out, 0, err
}

func snapshotAt(seqno *int64) *eventstore.Snapshot {
	if seqno == nil {
		return nil
	}
	return &eventstore.Snapshot{At: eventstore.Mark{Seqno: eventstore.Seqno(*seqno)}}
}

func (l *Log) lowerByHolds(ctx context.Context, tx pgx.Tx, f *eventstore.TrimFloor, c category, ordinal int64, s eventstore.Stream) error {
	sql := of(l.sql.categoryHolds, c.id)
	if c.dedicated {
		sql = l.sql.logs.holds
	}
	rows, err := tx.Query(ctx, sql, c.id, ordinal)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var h eventstore.Hold
		var stream, seqno, position, first int64
		if err := rows.Scan(&h.Name, &stream, &seqno, &position, &first); err != nil {
			return err
		}
		h.Seqno, h.Position = eventstore.Seqno(seqno), eventstore.Position(position)
		if stream != 0 {
			h.Stream, first = s, seqno
		}
		f.Hold(h, eventstore.Seqno(first))
	}
	return rows.Err()
}

// lockedCategory runs f in a transaction that holds the category's row.
func (l *Log) lockedCategory(ctx context.Context, op string, c eventstore.Category, s eventstore.Stream,
	f func(tx pgx.Tx, known category, demand bool, trimmed eventstore.Position) error) error {
	leave, err := l.enter(ctx, op, s)
	if err != nil {
		return err
	}
	defer leave()
	err = l.with(ctx, l.pool, op, c, s, func(known category) error {
		return l.inTx(ctx, op, s, func(tx pgx.Tx) error {
			var demand bool
			var trimmed int64
			if err := tx.QueryRow(ctx, l.sql.lockCategory, known.id).Scan(&demand, &trimmed); err != nil {
				return noRowsIsStale(err)
			}
			return f(tx, known, demand, eventstore.Position(trimmed))
		})
	})
	return l.translate(op, s, err, writing)
}

// SetHold registers or moves a hold.
func (l *Log) SetHold(ctx context.Context, h eventstore.Hold) error {
	return l.lockedCategory(ctx, "set hold", h.Category, h.Stream, func(tx pgx.Tx, c category, _ bool, trimmed eventstore.Position) error {
		ordinal := int64(0)
		if h.Stream == "" && c.dedicated {
			return eventstore.NotInFeedError("set hold", h.Category)
		}
		if h.Stream == "" && trimmed > 0 && h.Position <= trimmed {
			return eventstore.TrimmedFeedError(h.Category, h.Position, trimmed)
		}
		if h.Stream != "" {
			var err error
			if ordinal, err = l.holdableStream(ctx, tx, c, h); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, l.sql.setHold, h.Name, c.id, ordinal, int64(h.Seqno), int64(h.Position), toUUID(h.ID))
		return err
	})
}

// holdableStream returns the ordinal of a hold's stream, made if it is missing, or
// refuses a mark that is gone or of another history.
func (l *Log) holdableStream(ctx context.Context, tx pgx.Tx, c category, h eventstore.Hold) (int64, error) {
	s := h.Stream
	ordinal, head, marked, err := l.lockHeld(ctx, tx, c, h)
	if err != nil {
		return 0, err
	}
	if head.Trimmed > 0 && h.Seqno <= head.Trimmed {
		return 0, eventstore.TrimmedError("set hold", s, h.Seqno, head)
	}
	if !marked.IsZero() && !h.ID.IsZero() && marked != h.ID {
		return 0, eventstore.DivergedError("set hold", s, eventstore.Mark{Seqno: h.Seqno, ID: h.ID}, head)
	}
	return ordinal, nil
}

// lockHeld locks the stream of a hold and returns its ordinal, its head and the ID of
// the entry at the hold's seqno, zero if that is not there.
func (l *Log) lockHeld(ctx context.Context, tx pgx.Tx, c category, h eventstore.Hold) (ordinal int64, head eventstore.Head, marked eventstore.UUID, err error) {
	s := h.Stream
	var r headRow
	if c.dedicated {
		var place int64
		var snapshot *int64
		err := tx.QueryRow(ctx, l.sql.lockStream, c.id, s.Key()).Scan(append(append([]any{&ordinal, &place}, r.targets()...), &snapshot)...)
		if err == pgx.ErrNoRows {
			err = eventstore.NoSuchStreamError("set hold", s)
		}
		if err == nil {
			marked, err = l.markedInLog(ctx, tx, ordinal, h.Seqno)
		}
		return ordinal, r.head(), marked, err
	}
	if _, err := tx.Exec(ctx, l.sql.ensureStream, c.id, s.Key(), int16(s.Slot())); err != nil {
		return 0, head, marked, err
	}
	var id uuid
	err = tx.QueryRow(ctx, of(l.sql.streamOrdinal, c.id), c.id, s.Key(), int64(h.Seqno)).Scan(append(append([]any{&ordinal}, r.targets()...), &id)...)
	return ordinal, r.head(), fromUUID(id), err
}

// ReleaseHold removes a hold; nil if there is none.
func (l *Log) ReleaseHold(ctx context.Context, name string, c eventstore.Category, s eventstore.Stream) error {
	key := ""
	if s != "" {
		key = s.Key()
	}
	return l.simple(ctx, "release hold", s, func(q querier) error {
		_, err := q.Exec(ctx, l.sql.releaseHold, name, string(c), key)
		return err
	})
}

// simple runs f, which writes, on one connection.
func (l *Log) simple(ctx context.Context, op string, s eventstore.Stream, f func(q querier) error) error {
	leave, err := l.enter(ctx, op, s)
	if err != nil {
		return err
	}
	defer leave()
	return l.translate(op, s, l.on(ctx, op, s, f), writing)
}

// ListHolds returns all holds ordered by name, category, stream.
func (l *Log) ListHolds(ctx context.Context) ([]eventstore.Hold, error) {
	leave, err := l.enter(ctx, "list holds", "")
	if err != nil {
		return nil, err
	}
	defer leave()
	rows, err := l.pool.Query(ctx, l.sql.holds)
	if err != nil {
		return nil, l.translate("list holds", "", err, reading)
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (h eventstore.Hold, err error) {
		var category string
		var key *string
		var seqno, position int64
		var id uuid
		err = r.Scan(&h.Name, &category, &key, &seqno, &position, &id)
		h.Category, h.Seqno, h.Position, h.ID = eventstore.Category(category), eventstore.Seqno(seqno), eventstore.Position(position), fromUUID(id)
		if key != nil {
			h.Stream = eventstore.Stream(category + "-" + *key)
		}
		return h, err
	})
	return all, l.translate("list holds", "", err, reading)
}
