// Verify, the shared layout: walking the streams of a category and its table.

package pglog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// sharedReader reads one category of the shared layout.
type sharedReader struct {
	*verifier
	category *verifyCategory
	tasks    []streamTask
}

// streamTask is a stream to read, from its beginning or from where it was left.
type streamTask struct {
	ordinal  int64
	key      string
	expected int64 // entries there should be, for planning only
	place    place
}

func (r *sharedReader) run(ctx context.Context) error {
	for _, part := range []func(context.Context) error{r.streams, r.positions} {
		err := part(ctx)
		if pgCode(err) == codeUndefinedTable { // it was deleted meanwhile, or tables has reported it
			return nil
		}
		if err := r.unreadable(err, r.category.finding("unreadable", 0, "a table that the server can read", "", hintUnread)); err != nil {
			return err
		}
	}
	return nil
}

// streams walks the registry by key and checks each stream.
func (r *sharedReader) streams(ctx context.Context) error {
	key, first := "", true
	for {
		n, err := r.plan(ctx, &key, first)
		if err != nil {
			return err
		}
		for len(r.tasks) > 0 {
			if err := r.some(ctx); err != nil {
				return err
			}
		}
		if first = false; n < verifyStreamsStep {
			return r.watermarks(ctx)
		}
	}
}

// plan looks up the next streams.
func (r *sharedReader) plan(ctx context.Context, key *string, first bool) (n int, err error) {
	rows, err := r.log.pool.Query(ctx, r.sql.streams, r.category.id, *key, first, verifyStreamsStep)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var t streamTask
		if err := rows.Scan(&t.ordinal, &t.key, &t.expected); err != nil {
			return 0, err
		}
		*key = t.key
		r.tasks = append(r.tasks, t)
		n++
	}
	return n, rows.Err()
}

// some checks as many of the tasks as make a step, and leaves the rest.
func (r *sharedReader) some(ctx context.Context) error {
	n, entries := 0, int64(0)
	for n < len(r.tasks) && (n == 0 || entries+r.tasks[n].expected < verifyEntriesStep) {
		entries += r.tasks[n].expected
		n++
	}
	read := r.read
	var out stepResult
	step := func(ctx context.Context) ([]eventstore.Finding, error) {
		var err error
		out, err = read(ctx, r.tasks[:n])
		return out.found, err
	}
	err := r.twice(ctx, step)
	if damaged(err) { // one by one then, to name what cannot be read
		n, read = 1, r.readEach
		err = r.twice(ctx, step)
	}
	if damaged(err) {
		out = stepResult{streams: 1}
		f := r.category.finding("unreadable", 0, "a stream that the server can read", "", hintUnread)
		f.Stream = eventstore.Stream(string(r.category.name) + "-" + r.tasks[0].key)
		err = r.unreadable(err, f)
	}
	if err != nil {
		return err
	}
	r.tasks = append(out.left, r.tasks[n:]...)
	r.category.anywhere = r.category.anywhere || out.trimmed
	r.progress.Streams += out.streams
	r.progress.Entries += out.entries
	r.advance(false)
	return nil
}

// stepResult is what one step found and how far it came.
type stepResult struct {
	found            []eventstore.Finding
	left             []streamTask // to go on with
	streams, entries int64
	trimmed          bool
}

// read reads the tasks' streams as of one moment, as far as a step goes.
func (r *sharedReader) read(ctx context.Context, tasks []streamTask) (out stepResult, err error) {
	ordinals, after := make([]int64, len(tasks)), make([]int64, len(tasks))
	for i, t := range tasks {
		ordinals[i], after[i] = t.ordinal, t.place.prev.seqno
	}
	id := r.category.id
	res := r.log.pool.SendBatch(ctx, readOnlySnapshot(func(b *pgx.Batch) {
		b.Queue(of(r.sql.registry, id), id, ordinals)
		b.Queue(of(r.sql.entries, id), id, ordinals, after, verifyEntriesStep)
	}))
	defer res.Close()
	res.Exec() // begin; its error comes again with the next result
	registry, err := scanRegistry(res.Query())
	if err != nil {
		return out, err
	}
	entries, last, n, err := scanStored(res.Query())
	if err != nil {
		return out, err
	}
	if err := res.Close(); err != nil {
		return out, err
	}
	for i, t := range tasks {
		row := registry[t.ordinal]
		if row == nil {
			continue // its category is being deleted
		}
		cut := n == verifyEntriesStep && (t.ordinal == last || entries[t.ordinal] == nil && behind(tasks, i, last))
		r.stream(&out, t, row, entries[t.ordinal], cut)
	}
	return out, nil
}

// behind says if the task i stands behind the one with an ordinal.
func behind(tasks []streamTask, i int, ordinal int64) bool {
	for j := range tasks[:i] {
		if tasks[j].ordinal == ordinal {
			return true
		}
	}
	return false
}

// stream checks what was read of one stream; cut says that there may be more.
func (r *sharedReader) stream(out *stepResult, t streamTask, row *registryRow, entries []storedEntry, cut bool) {
	c := &streamCheck{stream: eventstore.Stream(string(r.category.name) + "-" + row.key), category: r.category.id, row: row, place: t.place}
	if cut && len(entries) == 0 { // the step did not come to it
		out.left = append(out.left, t)
		return
	}
	if !t.place.begun {
		c.registry()
		out.streams++
	}
	for i := range entries {
		c.entry(&entries[i])
	}
	out.trimmed = out.trimmed || row.trimmed > 0
	out.found = append(out.found, c.found...)
	out.entries += c.entries
	if cut {
		t.expected, t.place = max(t.expected-c.entries, 1), c.place
		out.left = append(out.left, t)
		return
	}
	c.found = nil
	c.end()
	out.found = append(out.found, c.found...)
}

func scanRegistry(rows pgx.Rows, err error) (map[int64]*registryRow, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[int64]*registryRow{}
	for rows.Next() {
		s := &registryRow{}
		if err := rows.Scan(&s.ordinal, &s.key, &s.slot, &s.epoch, &s.holder, &s.last, &s.lastID, &s.lastTime, &s.trimmed,
			&s.demand, &s.snapshot, &s.snapshotID, &s.marked); err != nil {
			return nil, err
		}
		all[s.ordinal] = s
	}
	return all, rows.Err()
}

// scanStored returns the entries by stream, the last one's stream, and how many.
func scanStored(rows pgx.Rows, err error) (all map[int64][]storedEntry, last int64, n int, _ error) {
	if err != nil {
		return nil, 0, 0, err
	}
	defer rows.Close()
	all = map[int64][]storedEntry{}
	for rows.Next() {
		var e storedEntry
		if err := rows.Scan(&last, &e.position, &e.seqno, &e.epoch, &e.time, &e.category, &e.version, &e.id, &e.batch, &e.slot,
			&e.typ, &e.contentType, &e.meta, &e.size, nil); err != nil {
			return nil, 0, 0, err
		}
		all[last] = append(all[last], e)
		n++
	}
	return all, last, n, rows.Err()
}

// eachStep is how many entries one step of readEach reads.
const eachStep = 200

// readEach reads the entries of the first task one by one, for one of them cannot be
// read. It is not of one moment; what a trim takes away in between is not found again.
func (r *sharedReader) readEach(ctx context.Context, tasks []streamTask) (out stepResult, err error) {
	t := tasks[0]
	id := r.category.id
	rows, err := r.log.pool.Query(ctx, of(r.sql.registry, id), id, []int64{t.ordinal})
	registry, err := scanRegistry(rows, err)
	if err != nil || registry[t.ordinal] == nil {
		return out, err
	}
	row := registry[t.ordinal]
	var entries []storedEntry
	at, cut := max(t.place.prev.seqno, row.trimmed), true
	for len(entries) < eachStep {
		rows, err := r.log.pool.Query(ctx, of(r.sql.entries, id), id, []int64{t.ordinal}, []int64{at}, 1)
		one, _, n, err := scanStored(rows, err)
		switch {
		case damaged(err):
			at++
			entries = append(entries, storedEntry{seqno: at, unreadable: err.Error()})
		case err != nil:
			return out, err
		case n == 0:
			cut = false
		default:
			at = one[t.ordinal][0].seqno
			entries = append(entries, one[t.ordinal][0])
		}
		if n == 0 && !damaged(err) || at >= row.last {
			cut = false
			break
		}
	}
	r.stream(&out, t, row, entries, cut)
	return out, nil
}

// watermarks checks that the category's trimmed-to position has a reason.
func (r *sharedReader) watermarks(ctx context.Context) error {
	c := r.category
	return r.twice(ctx, func(context.Context) ([]eventstore.Finding, error) {
		if c.trimmed == 0 || c.anywhere {
			return nil, nil
		}
		return []eventstore.Finding{c.finding("category-trimmed", c.trimmed, "no trimmed-to position, for no stream was trimmed", itoa(c.trimmed),
			"readers of the feed are told that entries are gone which are there")}, nil
	})
}

// pageOfPositions is what one page of a table in the order of positions holds.
type pageOfPositions struct {
	rows, last                 int64
	orphans, firstOrphan       int64
	waiting                    int64 // for Reclaim
	unreachable, firstUnreach  int64 // for Reclaim, for ever
	above, firstAbove, highest int64
}

// positions walks the category's table in the order of positions.
func (r *sharedReader) positions(ctx context.Context) error {
	waiting, at := int64(0), int64(0)
	for {
		var p pageOfPositions
		err := r.twice(ctx, func(ctx context.Context) ([]eventstore.Finding, error) {
			err := r.log.pool.QueryRow(ctx, of(r.sql.positions, r.category.id), r.category.id, at, verifyPositionsStep).Scan(&p.rows, &p.last,
				&p.orphans, &p.firstOrphan, &p.waiting, &p.unreachable, &p.firstUnreach, &p.above, &p.firstAbove, &p.highest)
			if err != nil {
				return nil, err
			}
			return r.pageFindings(&p), nil
		})
		if err != nil {
			return err
		}
		waiting += p.waiting
		if r.advance(false); p.rows < verifyPositionsStep {
			return r.unreclaimed(waiting)
		}
		at = p.last
	}
}

func (r *sharedReader) pageFindings(p *pageOfPositions) (found []eventstore.Finding) {
	add := func(check string, n, position int64, wanted, what, hint string) {
		if n > 0 {
			found = append(found, r.category.finding(check, position, wanted, fmt.Sprintf("%d %s, the first at position %d", n, what, position), hint))
		}
	}
	add("orphan-entries", p.orphans, p.firstOrphan, "a stream of the category for every entry", "without one",
		"the registry lost a stream: restore it from a backup")
	add("category-trimmed", p.unreachable, p.firstUnreach, "the category's trimmed-to position at or above every trimmed entry", "above it",
		"readers of the feed are not told that entries are gone, and Reclaim does not find them")
	add("sequence-behind", p.above, p.firstAbove, fmt.Sprintf("positions of at most the sequence's value %d", p.highest), "above it",
		"stop appending; set the sequence above the highest position (setval), or the feed skips entries")
	return found
}

// unreclaimed tells how much trimmed entries still lie in the table.
func (r *sharedReader) unreclaimed(n int64) error {
	if n == 0 {
		return nil
	}
	f := r.category.finding("unreclaimed", 0, "no trimmed entries", itoa(n)+" below watermarks", "call Reclaim now and then; nobody can read them")
	f.Severity = eventstore.SeverityNote
	if !r.yield(f, nil) {
		return errStopped
	}
	return nil
}
