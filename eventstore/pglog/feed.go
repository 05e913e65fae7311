// The feed: four statements in one pipelined batch, and the watchdog over those
// who hold it back.

package pglog

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
)

// ReadFeed returns entries after a position, up to the horizon.
func (l *Log) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (p eventstore.FeedPage, err error) {
	const op = "read feed"
	leave, err := l.enter(ctx, op, "")
	if err != nil {
		return p, err
	}
	defer leave()
	if err := pause(ctx, l.pace.rest(after)); err != nil {
		return p, err
	}
	for range 2 {
		ids, nerr := l.filterNumbers(ctx, f)
		if nerr != nil {
			return p, nerr
		}
		start := time.Now()
		p, err = l.readFeed(ctx, after, f, ids, limit)
		if !stale(err) {
			if err == nil {
				l.pace.polled(time.Since(start), after, p)
			}
			break
		}
		l.categories.forget()
	}
	return p, l.translate(op, "", err, reading)
}

func (l *Log) filterNumbers(ctx context.Context, f eventstore.Filter) ([]int32, error) {
	ids := make([]int32, 0, len(f.Categories))
	for _, c := range f.Categories {
		known, err := l.number(ctx, l.pool, "read feed", c, "")
		if err == nil && known.dedicated {
			err = eventstore.NotInFeedError("read feed", c)
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, known.id)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// horizon is what the first two statements say.
type horizon struct {
	at          int64 // positions up to it are complete
	drawn       int64 // the sequence's value
	held        *int64
	history     uint64 // see historyOf
	incarnation eventstore.UUID
}

func (l *Log) readFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, ids []int32, limit int) (p eventstore.FeedPage, err error) {
	slots := make([]int16, len(f.Slots))
	for i, s := range f.Slots {
		slots[i] = int16(s)
	}
	b := &pgx.Batch{}
	b.Queue(l.sql.horizonLow)
	b.Queue(l.sql.horizonHeld)
	// One entry more than wanted tells whether something stands behind the page.
	b.Queue(l.sql.feedOf(ids), int64(after), limit+1, append([]string{}, f.Types...), slots)
	b.Queue(l.sql.trims, ids)
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return p, err
	}
	p, h, err := l.readBatch(ctx, conn, b, after, f, len(ids), limit)
	if errors.Is(err, eventstore.ErrReadOnly) {
		conn.Conn().Close(ctx) // behind a failover the pool's others may lead to the new primary
	}
	conn.Release() // before the watchdog asks for one
	if err == nil {
		l.watch.look(ctx, l, h.held)
	}
	return p, err
}

// readBatch sends the statements and reads their answers.
func (l *Log) readBatch(ctx context.Context, conn *pgxpool.Conn, b *pgx.Batch, after eventstore.Position, f eventstore.Filter, categories, limit int) (p eventstore.FeedPage, h horizon, err error) {
	res := conn.SendBatch(ctx, b)
	defer res.Close()
	if h, err = scanHorizon(res); err != nil {
		return p, h, err
	}
	rows, err := res.Query()
	if err != nil {
		return p, h, err
	}
	if p, err = scanFeed(rows, limit, h); err != nil {
		return p, h, err
	}
	if err := scanTrims(res.QueryRow(), after, f, categories); err != nil {
		return p, h, err
	}
	return p, h, res.Close()
}

func scanHorizon(res pgx.BatchResults) (h horizon, err error) {
	var low *int64
	var isolation string
	var standby bool
	var incarnation uuid
	var timeline *int64
	var system, sequence int64
	if err := res.QueryRow().Scan(&low, &isolation, &standby, &timeline, &system, &sequence, &incarnation); err != nil {
		return h, err
	}
	if err := res.QueryRow().Scan(&h.held); err != nil {
		return h, err
	}
	switch {
	case standby:
		return h, &eventstore.Error{Kind: eventstore.ErrReadOnly, Op: "read feed", Wanted: "the primary: a standby does not show who holds the feed back",
			Found: "a server in recovery", Hint: "connect readers of the feed to the primary"}
	case isolation != "read committed":
		return h, isolationError("read feed", "")
	case low == nil:
		return h, &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: "read feed", Wanted: "a value of the position sequence",
			Found: "none", Hint: "the sequence was reset, or USAGE on it is missing"}
	}
	h.at, h.drawn, h.incarnation = *low, *low, fromUUID(incarnation)
	h.history = historyOf(system, sequence, *timeline)
	if h.held != nil {
		h.at = min(h.at, *h.held)
	}
	return h, nil
}

// historyOf is what changes when entries may be missing below one that is there: the
// server's timeline, by a failover, in the lower half; in the upper one, by a dump that
// was restored, the cluster or, in the same cluster, the position sequence's OID. An
// append that was in flight is not in a dump, one that came behind it may be.
func historyOf(system, sequence, timeline int64) uint64 {
	h := fnv.New32a()
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(system))
	binary.BigEndian.PutUint64(b[8:], uint64(sequence))
	h.Write(b[:])
	return uint64(h.Sum32()>>1)<<32 | uint64(timeline) // at most 63 bits: it is kept as a bigint
}

// scanFeed takes the rows up to the horizon.
func scanFeed(rows pgx.Rows, limit int, h horizon) (p eventstore.FeedPage, err error) {
	defer rows.Close()
	p = eventstore.FeedPage{Horizon: eventstore.Position(h.at), Drawn: eventstore.Position(h.drawn), Incarnation: h.incarnation, Timeline: h.history}
	looked, bytes, more := 0, 0, false
	var r entryRow
	var key, category pgtype.Text
	var id uuid
	var match bool
	targets := r.targets(&key, &category, &id, &match)
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return p, err
		}
		if r.position.Int64 > h.at {
			break
		}
		if more = looked == limit || bytes >= eventstore.MaxPageBytes; more {
			break
		}
		looked++
		p.Through = eventstore.PositionMark{Position: eventstore.Position(r.position.Int64), ID: fromUUID(id)}
		if match {
			if p.Entries == nil {
				p.Entries = make([]eventstore.Entry, 0, min(limit, eventstore.DefaultPageEntries))
			}
			e, _, err := r.entry(eventstore.Stream(category.String + "-" + key.String))
			if err != nil {
				return p, err
			}
			p.Entries = append(p.Entries, e)
			bytes += len(e.Data)
		}
	}
	rows.Close()
	p.End = !more
	return p, rows.Err()
}

// scanTrims refuses a page that begins below a category's trimmed-to position, or of a
// category that is gone.
func scanTrims(row pgx.Row, after eventstore.Position, f eventstore.Filter, categories int) error {
	var trimmed, found int64
	var most string // the category trimmed furthest
	switch err := row.Scan(&trimmed, &most, &found); {
	case err == pgx.ErrNoRows && categories > 0:
		return errStale
	case err == pgx.ErrNoRows:
		return nil // a store without a category
	case err != nil:
		return err
	case int64(after) < trimmed && !f.AcceptTrimmed:
		return eventstore.TrimmedFeedError(eventstore.Category(most), after, eventstore.Position(trimmed))
	case int(found) < categories:
		return errStale
	}
	return nil
}

// watchdog ends sessions that hold the feed back for longer than the TTL: a client
// frozen between sending an append and the end of its transaction is under no
// time-out of the server before transaction_timeout of PostgreSQL 17.
type watchdog struct {
	mu    sync.Mutex
	held  int64 // lowest key held when last looked
	since time.Time
}

// look notes the lowest key held, nil for none, and acts if it has not moved for
// the TTL.
func (w *watchdog) look(ctx context.Context, l *Log, held *int64) {
	if l.holderTTL < 0 || !w.stuck(held, l.holderTTL) {
		return
	}
	all, err := l.longHolders(ctx, *held)
	if err != nil {
		l.logger.WarnContext(ctx, "cannot see who holds the feed back", "error", err)
		return
	}
	for _, h := range all {
		if h.pid == nil {
			l.logger.WarnContext(ctx, "a prepared transaction holds the feed back; nobody but its owner can commit it or roll it back",
				"gid", *h.gid, "age", h.age)
			continue
		}
		_, err := l.pool.Exec(ctx, l.sql.endHolder, *h.pid)
		l.logger.WarnContext(ctx, "ended a session that held the feed back", "pid", *h.pid, "age", h.age, "ttl", l.holderTTL, "error", err)
	}
}

func (w *watchdog) stuck(held *int64, ttl time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if held == nil || *held != w.held || w.since.IsZero() {
		w.since = now
		if w.held = -1; held != nil {
			w.held = *held
		}
		return false
	}
	if now.Sub(w.since) < ttl {
		return false
	}
	w.since = now.Add(-ttl / 2) // look again soon, not at every poll
	return true
}

// longHolder is a session or a prepared transaction.
type longHolder struct {
	pid *int32
	gid *string
	age time.Duration // on the server's clock
}

func (l *Log) longHolders(ctx context.Context, key int64) ([]longHolder, error) {
	rows, err := l.pool.Query(ctx, l.sql.holders, l.holderTTL.Microseconds(), key)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (h longHolder, err error) {
		var age float64
		err = r.Scan(&h.pid, &h.gid, &age)
		h.age = time.Duration(age * float64(time.Second))
		return h, err
	})
}
