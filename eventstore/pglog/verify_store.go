// Verify, the store as a whole: its row, the sequence, categories and their tables,
// streams of no category, the one order of positions.

package pglog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

func fault(check, wanted, found, hint string) eventstore.Finding {
	return eventstore.Finding{Check: check, Severity: eventstore.SeverityFault, Wanted: wanted, Found: found, Hint: hint}
}

// begin checks the store's row, the sequence and the rows of categories.
func (v *verifier) begin(ctx context.Context) error {
	var total float64
	if err := v.log.pool.QueryRow(ctx, v.sql.total).Scan(&total); err != nil && !damaged(err) {
		return err
	}
	v.progress.Total = int64(total)
	v.advance(true)
	sound := false
	err := v.twice(ctx, func(ctx context.Context) (found []eventstore.Finding, err error) {
		found, sound, err = v.store(ctx)
		return found, err
	})
	if err != nil {
		return err
	}
	if !sound { // nothing below could be asked
		return errStopped
	}
	return v.twice(ctx, v.listed)
}

const hintSequence = "restore its settings and set it above the highest position: without them the feed skips entries"

// store checks the store's row and the sequence; sound says if there is a sequence.
func (v *verifier) store(ctx context.Context) (found []eventstore.Finding, sound bool, err error) {
	var rows int64
	var incarnation uuid
	var settings bool
	var value *int64
	err = v.log.pool.QueryRow(ctx, v.sql.store).Scan(&rows, &incarnation, &settings, &value)
	if errors.Is(err, pgx.ErrNoRows) {
		return []eventstore.Finding{fault("sequence", "sequence "+v.log.schema+".position", "none", "restore it above the highest position; nothing else was checked")}, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if rows != 1 || fromUUID(incarnation).IsZero() {
		found = append(found, fault("store", "one row in table store, with an incarnation", itoa(rows)+" rows, incarnation "+fromUUID(incarnation).String(), hintRestore))
	}
	if !settings || value == nil {
		state := "another setting"
		if settings {
			state = "no value"
		}
		found = append(found, fault("sequence", "a sequence with INCREMENT 1, CACHE 1, NO CYCLE, drawn from once", state, hintSequence))
	}
	return found, true, nil
}

// listed reads the categories and checks their rows.
func (v *verifier) listed(ctx context.Context) (found []eventstore.Finding, err error) {
	rows, err := v.log.pool.Query(ctx, v.sql.categories)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	v.categories = nil
	for rows.Next() {
		var c verifyCategory
		var layout int16
		var drawn int64
		if err := rows.Scan(&c.id, (*string)(&c.name), &layout, &c.trimmed, &drawn); err != nil {
			return nil, err
		}
		if _, err := eventstore.ParseCategory(string(c.name)); err != nil {
			found = append(found, c.finding("category", 0, "a valid name", brief(err), hintRestore))
		}
		if c.layout = eventstore.Layout(layout); layout < 0 || c.layout > eventstore.Dedicated {
			c.absent = true
			found = append(found, c.finding("category", 0, "layout 0 or 1", fmt.Sprint(layout), hintRestore))
		}
		if c.trimmed < 0 || c.trimmed > drawn {
			found = append(found, c.finding("category-trimmed", c.trimmed, fmt.Sprintf("a trimmed-to position of 0 to the sequence's value %d", drawn), itoa(c.trimmed),
				"readers of the feed are told that entries are gone which are not"))
		}
		v.categories = append(v.categories, c)
	}
	return found, rows.Err()
}

// tables checks that every category has its table, attached, with its indexes, and that
// there is no other.
func (v *verifier) tables(ctx context.Context) error {
	var missing []int32
	err := v.twice(ctx, func(ctx context.Context) (found []eventstore.Finding, err error) {
		missing = nil
		rows, err := v.log.pool.Query(ctx, v.sql.partitions)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var t categoryTable
			if err := rows.Scan(&t.id, &t.name, &t.exists, &t.attached, &t.bound, &t.unique); err != nil {
				return nil, err
			}
			if !t.exists {
				missing = append(missing, t.id)
			}
			found = append(found, t.check()...)
		}
		return found, rows.Err()
	})
	for i := range v.categories {
		c := &v.categories[i]
		c.absent = c.absent || slices.Contains(missing, c.id)
	}
	return err
}

// categoryTable is what the catalog says of a category's table; id 0 is the pattern of
// all, -1 one of no category.
type categoryTable struct {
	id               int32
	name             string // of the category; of a table of no category its own
	exists, attached bool
	bound            string
	unique           []string // columns of each unique index in force
}

func (t *categoryTable) check() (found []eventstore.Finding) {
	add := func(check, wanted, what, hint string) {
		f := fault(check, wanted, what, hint)
		if t.id > 0 {
			f.Category = eventstore.Category(t.name)
		}
		found = append(found, f)
	}
	table := fmt.Sprintf("entries_%d", t.id)
	bound := fmt.Sprintf("FOR VALUES IN (%d)", t.id)
	const hintAttach = "attach it again (ALTER TABLE … ATTACH PARTITION): until then appends fail and the feed skips its entries"
	switch {
	case t.id < 0:
		add("partition", "tables of categories alone", "table "+t.name+" of no category", "the category's row is gone: restore it, or detach the table")
		return found
	case !t.exists:
		add("partition", "table "+table, "none", hintRestore)
		return found
	case !t.attached:
		add("partition", table+" as a partition of entries", "a table of its own", hintAttach)
	case t.bound != bound:
		add("partition", table+" "+bound, t.bound, hintAttach)
	}
	for _, columns := range []string{"stream,seqno", "position"} {
		if !slices.Contains(t.unique, columns) {
			add("index", "a valid unique index of "+table+" on ("+columns+")", "none", "create it again as entries_0 has it; without it reads are slow and nothing keeps "+columns+" unique")
		}
	}
	return found
}

// lostStreams finds streams in the registry that belong to no category. Some are left
// behind by a deletion that was cut short: Reclaim takes them.
func (v *verifier) lostStreams(ctx context.Context) error {
	return v.twice(ctx, func(ctx context.Context) (found []eventstore.Finding, err error) {
		rows, err := v.log.pool.Query(ctx, v.sql.orphanStreams)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var id int32
			var n int64
			var given bool
			if err := rows.Scan(&id, &n, &given); err != nil {
				return nil, err
			}
			f := fault("orphan-streams", "streams of categories that exist", fmt.Sprintf("%d of category number %d", n, id), "the category's row was lost: restore from a backup")
			if given {
				f.Severity, f.Hint = eventstore.SeverityNote, "left by the deletion of a category, unless a finding about a table says otherwise; Reclaim removes them"
			}
			found = append(found, f)
		}
		return found, rows.Err()
	})
}

// order walks all positions of the store: none may come twice.
func (v *verifier) order(ctx context.Context) error {
	at, reported := int64(0), int64(0)
	for {
		var last, n, double int64
		err := v.twice(ctx, func(ctx context.Context) (found []eventstore.Finding, err error) {
			var doubles []int64
			if err := v.log.pool.QueryRow(ctx, v.sql.order, at, verifyPositionsStep).Scan(&last, &n, &doubles); err != nil {
				return nil, err
			}
			for _, p := range doubles {
				if p <= reported {
					continue
				}
				f, err := v.double(ctx, p)
				if err != nil {
					return nil, err
				}
				found, double = append(found, f), p
			}
			return found, nil
		})
		if err != nil {
			return err
		}
		if v.advance(false); n < verifyPositionsStep || last == at {
			return nil
		}
		at, reported = last, max(reported, double) // the last one again: its double may have been cut off
	}
}

// double names the entries that stand at one position.
func (v *verifier) double(ctx context.Context, position int64) (f eventstore.Finding, err error) {
	rows, err := v.log.pool.Query(ctx, v.sql.at, position)
	if err != nil {
		return f, err
	}
	defer rows.Close()
	f = fault("position-unique", "one entry at position "+itoa(position), "", "readers of the feed miss one of them: restore from a backup")
	f.Position = eventstore.Position(max(position, 0))
	for rows.Next() {
		var stream string
		var seqno int64
		var id uuid
		if err := rows.Scan(&stream, &seqno, &id); err != nil {
			return f, err
		}
		if f.Found != "" {
			f.Found += ", "
		}
		f.Found += fmt.Sprintf("%s at %d", stream, seqno)
	}
	return f, rows.Err()
}
