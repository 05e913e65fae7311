// Verify, the dedicated layout: each stream in its two tables.

package pglog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// verifyLogStep is how many entries of a log one step reads. Their bodies are sent: a
// step is ended by the bytes of a page, too.
const verifyLogStep = 500

// verifyLogRegistry is verifyRegistry for one log, and its ring. $1 ordinal.
const verifyLogRegistry = `select s.ordinal, s.key, s.slot, s.epoch, s.holder, s.last_seqno, s.last_id, {lastTime}, s.trimmed,
  c.demand_snapshots, sn.seqno, sn.id, m.id, s.ring
from {s}.streams s join {s}.categories c on c.id = s.category
left join {s}.snapshots sn on sn.stream = s.ordinal
left join lateral {halves} m on true where s.ordinal = $1::bigint`

// verifyLogHalf is what a half holds: its lowest and highest seqno. {h} is the half.
const verifyLogHalf = `select coalesce(min(seqno), 0), coalesce(max(seqno), 0) from {s}.log_{o}_{h}`

// logReader reads one category of the dedicated layout.
type logReader struct {
	*verifier
	category *verifyCategory
}

func (r *logReader) run(ctx context.Context) error {
	for key, first := "", true; ; first = false {
		rows, err := r.log.pool.Query(ctx, r.sql.streams, r.category.id, key, first, verifyStreamsStep)
		if err != nil {
			return err
		}
		tasks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t streamTask, err error) {
			err = row.Scan(&t.ordinal, &t.key, &t.expected)
			return t, err
		})
		if err != nil {
			return err
		}
		for _, t := range tasks {
			key = t.key
			if err := r.one(ctx, t); err != nil {
				return err
			}
		}
		if len(tasks) < verifyStreamsStep {
			return nil
		}
	}
}

func (r *logReader) stream(t streamTask) eventstore.Stream {
	return eventstore.Stream(string(r.category.name) + "-" + t.key)
}

// one checks one log, in steps.
func (r *logReader) one(ctx context.Context, t streamTask) error {
	f := r.category.finding("unreadable", 0, "a stream that the server can read", "", hintUnread)
	f.Stream = r.stream(t)
	for done := false; !done; {
		out := logStep{}
		err := r.twice(ctx, func(ctx context.Context) (_ []eventstore.Finding, err error) {
			out, err = r.step(ctx, t)
			return out.found, err
		})
		if pgCode(err) == codeUndefinedTable {
			return r.absent(ctx, t)
		}
		if err != nil {
			return r.unreadable(err, f)
		}
		r.progress.Entries += out.entries
		t.place, done = out.place, out.done
		r.advance(false)
	}
	r.progress.Streams++
	return nil
}

// absent reports a log without its tables, unless it has been dropped meanwhile.
func (r *logReader) absent(ctx context.Context, t streamTask) error {
	return r.twice(ctx, func(ctx context.Context) ([]eventstore.Finding, error) {
		var there bool
		err := r.log.pool.QueryRow(ctx, "select exists (select from "+r.log.schema+".streams where ordinal = $1::bigint)", t.ordinal).Scan(&there)
		if err != nil || !there {
			return nil, err
		}
		f := r.category.finding("log-table", 0, "tables "+logTable(t.ordinal, 0)+" and "+logTable(t.ordinal, 1), "one of them is missing", hintRestore)
		f.Stream = r.stream(t)
		return []eventstore.Finding{f}, nil
	})
}

// logStep is what one step found and how far it came.
type logStep struct {
	found   []eventstore.Finding
	place   place
	entries int64
	done    bool
}

// step reads the next entries as of one moment. The last step also looks at what the
// halves hold.
func (r *logReader) step(ctx context.Context, t streamTask) (out logStep, err error) {
	c := &streamCheck{stream: r.stream(t), category: r.category.id, place: t.place, log: true}
	after := t.place.prev.seqno
	var place int64
	var halves [2][2]int64
	var entries []eventstore.Entry
	var torn error
	fill := func(sql string) string {
		return strings.NewReplacer("{lastTime}", micros("s.last_time"), "{s}", r.log.schema).Replace(strings.ReplaceAll(sql, "{o}", itoa(t.ordinal)))
	}
	err = r.log.look(ctx, r.log.pool, func(o *oneOffs) {
		o.add(fill(strings.ReplaceAll(verifyLogRegistry, "{halves}", halvesOf(`e.seqno = sn.seqno and e.chunk = 0`))), t.ordinal)
		for h := range 2 {
			o.add(fill(strings.ReplaceAll(verifyLogHalf, "{h}", itoa(int64(h)))))
		}
		o.add(fill(`select `+logColumns+` from `+halvesOf(`e.seqno > greatest($2::bigint, s.trimmed) and e.seqno <= greatest($2::bigint, s.trimmed) + `+itoa(verifyLogStep), `{s}.streams s cross join lateral `)+
			` x where s.ordinal = $1::bigint order by x.seqno, x.chunk`), t.ordinal, after)
	}, func(res *results) error {
		rows, err := res.next()
		if err != nil {
			return err
		}
		if c.row, place, err = scanLogRegistry(rows); err != nil || c.row == nil {
			return err
		}
		for h := range halves {
			if err := res.row(&halves[h][0], &halves[h][1]); err != nil {
				return err
			}
		}
		if rows, err = res.next(); err != nil {
			return err
		}
		entries, torn = scanChunks(rows, c.stream)
		if errors.Is(torn, eventstore.ErrCorrupt) {
			return nil
		}
		return torn
	})
	if err != nil || c.row == nil {
		return logStep{done: true}, err
	}
	if !t.place.begun {
		c.registry()
		c.ring(ringOf(place), halves)
	}
	for i := range entries {
		e := stored(&entries[i], c.category)
		c.entry(&e)
	}
	if torn != nil {
		c.torn(torn)
	}
	out = logStep{place: c.place, entries: c.entries}
	if out.done = torn != nil || len(entries) == 0 || c.place.prev.seqno >= c.row.last; out.done && torn == nil {
		c.end()
	}
	out.found = c.found
	return out, nil
}

// halvesOf is halves, behind something that its condition speaks of.
func halvesOf(where string, before ...string) string { return strings.Join(before, "") + halves(where) }

// stored is an entry as the checks take it.
func stored(e *eventstore.Entry, category int32) storedEntry {
	at := e.Time.UnixMicro()
	return storedEntry{seqno: int64(e.Seqno), epoch: int64(e.Epoch), time: &at, category: category, version: int32(e.Version), size: int32(len(e.Data)),
		id: toUUID(e.ID), batch: toUUID(e.BatchID), typ: e.Type, contentType: e.ContentType, meta: toMetadata(e.Metadata)}
}

func scanLogRegistry(rows pgx.Rows) (s *registryRow, ring int64, err error) {
	defer rows.Close()
	for rows.Next() {
		s = &registryRow{}
		if err := rows.Scan(&s.ordinal, &s.key, &s.slot, &s.epoch, &s.holder, &s.last, &s.lastID, &s.lastTime, &s.trimmed,
			&s.demand, &s.snapshot, &s.snapshotID, &s.marked, &ring); err != nil {
			return nil, 0, err
		}
	}
	return s, ring, rows.Err()
}

// ring checks that each half holds what the ring says.
func (c *streamCheck) ring(g ring, halves [2][2]int64) {
	if g.from < 1 || int64(g.from) > c.row.last+1 || c.row.last < 0 {
		c.fault("ring", nil, fmt.Sprintf("a ring that begins at 1 to %d", c.row.last+1), itoa(int64(g.from)), hintRegistry)
		return
	}
	written, left := halves[g.half], halves[1-g.half]
	switch {
	case written[0] > 0 && written[0] < int64(g.from):
		c.fault("ring", &storedEntry{seqno: written[0]}, "entries from "+g.from.String()+" on in the half that is written", "an older one", hintRegistry)
	case written[1] > c.row.last:
		c.fault("above-head", &storedEntry{seqno: written[1]}, "no entry above the last seqno "+itoa(c.row.last), "one", hintRegistry)
	case left[1] >= int64(g.from):
		c.fault("ring", &storedEntry{seqno: left[1]}, "entries below "+g.from.String()+" in the half left behind", "a newer one; a trim would remove it", hintRegistry)
	case left[1] > 0 && !g.full:
		c.fault("ring", &storedEntry{seqno: left[1]}, "the half left behind empty", "entries", hintRegistry)
	}
}

// torn reports an entry whose chunks do not make one.
func (c *streamCheck) torn(err error) {
	next := &storedEntry{seqno: max(c.row.trimmed, c.place.prev.seqno) + 1}
	c.fault("chunks", next, "entries whose chunks are all there, in order", brief(err), hintRestore+"; what is behind it in the stream was left out")
}
