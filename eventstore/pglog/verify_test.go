// Verify: a store that was damaged by hand, each damage found by its name, and stores
// in use, in which nothing is found.

package pglog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// findings are what Verify finds above a severity.
func findings(t testing.TB, l *pglog.Log, above eventstore.Severity) (all []eventstore.Finding) {
	t.Helper()
	for f, err := range l.Verify(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if f.Severity > above {
			all = append(all, f)
		}
	}
	return all
}

// names of the checks that found something, each once.
func names(all []eventstore.Finding) (checks []string) {
	for _, f := range all {
		checks = append(checks, f.Check)
	}
	slices.Sort(checks)
	return slices.Compact(checks)
}

// verified is a small store in which everything is that Verify looks at:
//
//	account    (1) demands snapshots: account-a of 12 entries in 5 batches, 3 trimmed behind
//	               a snapshot at 5, account-b of 4 in one batch, account-held without any
//	click      (2) trims freely: click-x of 6 entries in 2 batches, 2 trimmed
//	deleted    (3) was deleted
//
// with a batch over two streams, holds, a projector's checkpoint and a lease.
type verified struct {
	pool   *pgxpool.Pool
	schema string
	log    *pglog.Log
	store  *eventstore.Store
}

func newVerified(t testing.TB) verified {
	t.Helper()
	p, schema := pgtest.Schema(t)
	l, s := open(t, p, schema)
	v := verified{p, schema, l, s}
	for i, name := range []string{"account", "click", "deleted"} {
		createNumbered(t, p, schema, i+1, name, name == "click")
	}
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a := v.extend(t, batch("account-a", 3), 2, 3)
	b, x := batch("account-b", 4), batch("click-x", 4)
	both := must(t, s, eventstore.Append{Batches: []eventstore.Batch{b, x}})
	a = v.extend(t, next(a.batch, a.receipt, 3), 1)
	must(t, s, one(next(x, both.Receipts[1], 2)))
	must(t, s, one(batch("deleted-d", 3)))
	check(s.SaveSnapshot(ctx, eventstore.Snapshot{Stream: "account-a", At: a.entries(t, s)[4].Mark(), Fingerprint: "v1", Data: []byte(`{"sum":15}`)}))
	check(s.DeleteCategory(ctx, "deleted"))
	for stream, through := range map[eventstore.Stream]eventstore.Seqno{"account-a": 3, "click-x": 2} {
		if r, err := s.Trim(ctx, stream, through, false); err != nil || r.Trimmed != through {
			t.Fatalf("trim %s: %+v %v", stream, r, err)
		}
	}
	v.project(t)
	check(s.SetHold(ctx, eventstore.Hold{Name: "archive", Stream: "account-b", Seqno: 2, ID: b.Events[1].ID}))
	check(s.SetHold(ctx, eventstore.Hold{Name: "archive", Stream: "account-held", Seqno: 1}))
	if _, _, err := s.AcquireLease(ctx, "owner", eventstore.NewUUID(), 0); err != nil {
		t.Fatal(err)
	}
	return v
}

// createNumbered creates a category as the product does, under a number of the test's
// choice: damages are easier to write down by it.
func createNumbered(t testing.TB, p *pgxpool.Pool, schema string, id int, name string, freely bool) {
	t.Helper()
	exec1(t, p, "insert into "+schema+".categories (id, name, layout, demand_snapshots) overriding system value values ($1, $2, 0, $3)", id, name, !freely)
	table := fmt.Sprintf("%s.entries_%d", schema, id)
	exec1(t, p, "create table "+table+" (like "+schema+".entries_0 including all)")
	exec1(t, p, fmt.Sprintf("alter table %s.entries attach partition %s for values in (%d)", schema, table, id))
}

// written is a batch and the answer to it.
type written struct {
	batch   eventstore.Batch
	receipt eventstore.Receipt
}

func (w written) entries(t testing.TB, s *eventstore.Store) []eventstore.Entry {
	t.Helper()
	p, err := s.ReadFrom(t.Context(), w.batch.Stream, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return p.Entries
}

// extend appends a batch and others of these sizes behind it.
func (v verified) extend(t testing.TB, b eventstore.Batch, sizes ...int) written {
	t.Helper()
	w := written{b, must(t, v.store, one(b)).Receipts[0]}
	for _, n := range sizes {
		b := next(w.batch, w.receipt, n)
		w = written{b, must(t, v.store, one(b)).Receipts[0]}
	}
	return w
}

// project brings a projector over both categories to the end.
func (v verified) project(t testing.TB) {
	t.Helper()
	kept := pgcheckpoint.NewCheckpoints(v.pool, &pgcheckpoint.Options{Schema: v.schema})
	sink := projector.Sink(kept, func(context.Context, projector.Key, []eventstore.Entry) error { return nil })
	p := projector.New(v.store, "sums", "account", sink, &projector.Options{Categories: []eventstore.Category{"click"}, AcceptTrimmed: true})
	if _, err := p.CatchUp(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
}

// exec runs SQL with {s} for the schema, as the server's superuser.
func (v verified) exec(t testing.TB, sql string) {
	t.Helper()
	if _, err := v.pool.Exec(t.Context(), strings.ReplaceAll(sql, "{s}", v.schema)); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// backup copies all tables, so that restore can undo what a test has done to the rows.
func (v verified) backup(t testing.TB) (restore func(t testing.TB)) {
	t.Helper()
	tables := []string{"store", "categories", "streams", "entries_1", "entries_2", "snapshots", "holds", "leases", "checkpoints"}
	back := ""
	for _, table := range tables {
		v.exec(t, "create table {s}.backup_"+table+" as table {s}."+table)
		back += "delete from {s}." + table + "; insert into {s}." + table + " overriding system value table {s}.backup_" + table + ";\n"
	}
	var position int64
	if err := v.pool.QueryRow(t.Context(), "select last_value from "+v.schema+".position").Scan(&position); err != nil {
		t.Fatal(err)
	}
	return func(t testing.TB) {
		t.Helper()
		v.exec(t, back+fmt.Sprintf("select setval('{s}.position', %d)", position))
	}
}

// damage is SQL that damages a store, and the check that must find it.
type damage struct {
	name, sql, check string
	severity         eventstore.Severity // zero: fault
}

// inRows are damages of rows, in what newVerified makes.
var inRows = []damage{
	{name: "entry in the middle deleted", check: "gap", sql: "delete from {s}.entries_1 where {a} and seqno = 7"},
	{name: "several deleted", check: "gap", sql: "delete from {s}.entries_1 where {a} and seqno between 6 and 9"},
	{name: "first entry deleted", check: "gap", sql: "delete from {s}.entries_1 where {a} and seqno = 4"},
	{name: "last entry deleted", check: "last-seqno", sql: "delete from {s}.entries_1 where {a} and seqno = 12"},
	{name: "all entries of a stream deleted", check: "last-seqno", sql: "delete from {s}.entries_1 where {b}"},
	{name: "one position twice", check: "position-unique", sql: "update {s}.entries_2 set position = (select position from {s}.entries_1 where {b} and seqno = 2) where seqno = 4"},
	{name: "positions swapped", check: "position-order", sql: `update {s}.entries_1 set position = 1000000 where {a} and seqno = 9;
		update {s}.entries_1 set position = (select position from {s}.entries_1 where {a} and seqno = 10) where {a} and seqno = 9 and false;
		update {s}.entries_1 e set position = -e.position where {a} and seqno in (10, 11);
		update {s}.entries_1 e set position = (select -position from {s}.entries_1 where {a} and seqno = 21 - e.seqno) + 1000000 where {a} and seqno in (10, 11);
		select setval('{s}.position', 3000000)`},
	{name: "position 0", check: "position-order", sql: "update {s}.entries_1 set position = 0 where {a} and seqno = 9"},
	{name: "last seqno too high", check: "last-seqno", sql: "update {s}.streams set last_seqno = 13 where key = 'a'"},
	{name: "last seqno too low", check: "above-head", sql: "update {s}.streams set last_seqno = 11 where key = 'a'"},
	{name: "last ID of another entry", check: "last-id", sql: "update {s}.streams set last_id = gen_random_uuid() where key = 'a'"},
	{name: "last ID gone", check: "last-id", sql: "update {s}.streams set last_id = {zero} where key = 'a'"},
	{name: "last time too late", check: "last-time", sql: "update {s}.streams set last_time = last_time + interval '1 hour' where key = 'a'"},
	{name: "last time too early", check: "last-time", sql: "update {s}.streams set last_time = last_time - interval '1 hour' where key = 'a'"},
	{name: "last time infinite", check: "last-time", sql: "update {s}.streams set last_time = 'infinity' where key = 'a'"},
	{name: "registry's epoch below an entry's", check: "last-epoch", sql: "update {s}.entries_1 set epoch = 5 where {a} and seqno = 12"},
	{name: "registry without an epoch", check: "registry-epoch", sql: "update {s}.streams set epoch = 0 where key = 'a'"},
	{name: "epoch without a holder", check: "registry-epoch", sql: "update {s}.streams set holder = {zero} where key = 'a'"},
	{name: "epoch falls", check: "epoch", sql: "update {s}.entries_1 set epoch = 3 where {a} and seqno = 6; update {s}.streams set epoch = 3 where key = 'a'"},
	{name: "epoch 0", check: "epoch", sql: "update {s}.entries_1 set epoch = 0 where {a} and seqno = 4"},
	{name: "time falls", check: "time", sql: "update {s}.entries_1 set time = time - interval '1 hour' where {a} and seqno = 8"},
	{name: "time infinite", check: "time", sql: "update {s}.entries_1 set time = '-infinity' where {a} and seqno = 8"},
	{name: "slot of a stream", check: "slot", sql: "update {s}.streams set slot = (slot + 1) % 1024 where key = 'a'"},
	{name: "slot of an entry", check: "entry-slot", sql: "update {s}.entries_1 set slot = (slot + 1) % 1024 where {a} and seqno = 8"},
	{name: "stream in another category", check: "orphan-entries", sql: "update {s}.streams set category = 2 where key = 'b'"},
	{name: "stream gone", check: "orphan-entries", sql: "delete from {s}.streams where key = 'b'"},
	{name: "stream of a category that never was", check: "orphan-streams", sql: "update {s}.streams set category = 99 where key = 'held'; update {s}.store set deleted_categories = 0"},
	{name: "stream of a deleted category", check: "orphan-streams", severity: eventstore.SeverityNote, sql: "update {s}.streams set category = 3 where key = 'held'"},
	{name: "key with a control character", check: "stream-name", sql: "update {s}.streams set key = E'a\nb' where key = 'a'"},
	{name: "batch ID in the middle", check: "batch", sql: "update {s}.entries_1 set batch = gen_random_uuid() where {a} and seqno = 10"},
	{name: "batch ID at its first entry", check: "batch", sql: "update {s}.entries_1 set batch = gen_random_uuid() where {a} and seqno = 9"},
	{name: "batch ID at its last entry", check: "batch", sql: "update {s}.entries_1 set batch = gen_random_uuid() where {a} and seqno = 11"},
	{name: "batch ID of the next batch", check: "batch", sql: "update {s}.entries_1 set batch = (select batch from {s}.entries_1 where {a} and seqno = 9) where {a} and seqno = 8"},
	{name: "batch without an ID", check: "batch", sql: "update {s}.entries_1 set batch = {zero} where {a} and seqno = 12"},
	{name: "two epochs in a batch", check: "batch", sql: "update {s}.entries_1 set epoch = 2 where {a} and seqno > 9; update {s}.streams set epoch = 2 where key = 'a'"},
	{name: "two times in a batch", check: "batch", sql: "update {s}.entries_1 set time = (select time from {s}.entries_1 where {a} and seqno = 12) where {a} and seqno = 11"},
	{name: "batch ID used twice", check: "batch-reused", severity: eventstore.SeverityWarning,
		sql: "update {s}.entries_1 set id = gen_random_uuid() where {a} and seqno > 8; update {s}.entries_1 set batch = (select batch from {s}.entries_1 where {a} and seqno = 6) where {a} and seqno = 12; update {s}.streams set last_id = (select id from {s}.entries_1 where {a} and seqno = 12) where key = 'a'"},
	{name: "metadata cut off", check: "metadata", sql: `update {s}.entries_1 set metadata = '{"a":' where {a} and seqno = 8`},
	{name: "metadata of numbers", check: "metadata", sql: `update {s}.entries_1 set metadata = '{"a":1}' where {a} and seqno = 8`},
	{name: "metadata too large", check: "event", sql: `update {s}.entries_1 set metadata = '{"a":"' || repeat('x', 17000) || '"}' where {a} and seqno = 8`},
	{name: "entry without an ID", check: "event", sql: "update {s}.entries_1 set id = {zero} where {a} and seqno = 8"},
	{name: "entry without a type", check: "event", sql: "update {s}.entries_1 set type = '' where {a} and seqno = 8"},
	{name: "entry without a version", check: "event", sql: "update {s}.entries_1 set version = 0 where {a} and seqno = 8"},
	{name: "content type too long", check: "event", sql: "update {s}.entries_1 set content_type = repeat('x', 129) where {a} and seqno = 8"},
	{name: "payload too large", check: "event", sql: "update {s}.entries_1 set data = convert_to(repeat('x', 9000000), 'UTF8') where {a} and seqno = 8"},
	{name: "bit of a snapshot", check: "snapshot-checksum", sql: "update {s}.snapshots set data = set_byte(data, 2, get_byte(data, 2) # 1)"},
	{name: "checksum cut off", check: "snapshot-checksum", sql: "update {s}.snapshots set checksum = substr(checksum, 1, 31)"},
	{name: "snapshot above the head", check: "snapshot-head", sql: "update {s}.snapshots set seqno = 13"},
	{name: "snapshot of another history", check: "snapshot-mark", sql: "update {s}.snapshots set id = gen_random_uuid()"},
	{name: "snapshot at the head of another history", check: "snapshot-mark", sql: "update {s}.snapshots set seqno = 12"},
	{name: "snapshot below the watermark", check: "trim-snapshot", sql: "update {s}.snapshots set seqno = 2, id = (select id from {s}.entries_1 where {a} and seqno = 2)"},
	{name: "snapshot gone", check: "trim-snapshot", sql: "delete from {s}.snapshots"},
	{name: "snapshot without a fingerprint", check: "snapshot", sql: "update {s}.snapshots set fingerprint = ''"},
	{name: "snapshot of no stream", check: "orphan-snapshots", severity: eventstore.SeverityNote, sql: "insert into {s}.snapshots select 4711, seqno, time, id, fingerprint, content_type, checksum, data from {s}.snapshots"},
	{name: "checkpoint of another store", check: "checkpoint-store", severity: eventstore.SeverityWarning, sql: "update {s}.checkpoints set incarnation = gen_random_uuid()"},
	{name: "checkpoint above the sequence", check: "checkpoint-position", sql: "update {s}.checkpoints set position = 1000000"},
	{name: "checkpoint at another entry", check: "checkpoint-mark", sql: "update {s}.checkpoints set mark_id = gen_random_uuid()"},
	{name: "checkpoint at an entry that is not there", check: "checkpoint-mark", severity: eventstore.SeverityWarning, sql: "update {s}.checkpoints set mark_position = 900000"},
	{name: "checkpoint without an epoch", check: "checkpoint", sql: "update {s}.checkpoints set epoch = 0"},
	{name: "hold on another entry", check: "hold-mark", sql: "update {s}.holds set id = gen_random_uuid() where name = 'archive' and seqno = 2"},
	{name: "hold on an entry that is not there", check: "hold-mark", sql: "delete from {s}.entries_1 where {b} and seqno = 2"},
	{name: "hold of a category on another entry", check: "hold-mark", sql: "update {s}.holds set id = gen_random_uuid() where stream = 0 and category = 1"},
	{name: "hold on no stream", check: "hold", sql: "update {s}.holds set stream = 4711 where name = 'archive' and seqno = 2"},
	{name: "hold on no category", check: "hold", sql: "update {s}.holds set category = 99 where name = 'archive' and seqno = 2"},
	{name: "stream trimmed past a hold", check: "hold-trimmed", sql: "update {s}.streams set trimmed = 3 where key = 'b'"},
	{name: "category trimmed past a hold", check: "hold-trimmed", sql: "update {s}.holds set position = 2, id = {zero} where stream = 0 and category = 1"},
	{name: "watermark above the head", check: "watermark", sql: "update {s}.streams set trimmed = 13 where key = 'a'"},
	{name: "watermark below 0", check: "watermark", sql: "update {s}.streams set trimmed = -1 where key = 'b'"},
	{name: "trimmed-to position too low", check: "category-trimmed", sql: "update {s}.categories set trimmed_position = 0 where id = 1"},
	{name: "trimmed-to position above the sequence", check: "category-trimmed", sql: "update {s}.categories set trimmed_position = 1000000 where id = 1"},
	{name: "trimmed-to position without a trim", check: "category-trimmed", sql: "update {s}.streams set trimmed = 0 where category = 2"},
	{name: "name of a category", check: "category", sql: "update {s}.categories set name = 'a.b' where id = 2"},
	{name: "layout of a category", check: "category", sql: "update {s}.categories set layout = 7 where id = 2"},
	{name: "row of a category gone", check: "partition", sql: "delete from {s}.categories where id = 2"},
	{name: "sequence set back", check: "sequence-behind", sql: "select setval('{s}.position', 5)"},
	{name: "sequence not drawn from", check: "sequence", sql: "select setval('{s}.position', 1000, false)"},
	{name: "lease without an epoch", check: "lease", sql: "update {s}.leases set epoch = 0"},
	{name: "lease for ever", check: "lease", sql: "update {s}.leases set until = 'infinity'"},
	{name: "store without an incarnation", check: "store", sql: "update {s}.store set incarnation = {zero}"},
	{name: "store without its row", check: "store", sql: "delete from {s}.store"},
}

// fill fills in a damage's places.
func (d damage) fill() string {
	return strings.NewReplacer("{a}", "stream = (select ordinal from {s}.streams where key = 'a')", "{b}", "stream = (select ordinal from {s}.streams where key = 'b')",
		"{zero}", "'00000000-0000-0000-0000-000000000000'").Replace(d.sql)
}

// is checks that a damage was found by its check, and how bad that is.
func (d damage) is(t testing.TB, l *pglog.Log) {
	t.Helper()
	want := d.severity
	if want == 0 {
		want = eventstore.SeverityFault
	}
	all := findings(t, l, eventstore.SeverityOK)
	for _, f := range all {
		if f.Wanted == "" || f.Found == "" || f.Hint == "" || f.Severity == eventstore.SeverityOK {
			t.Errorf("a finding without all it should say: %+v", f)
		}
		if f.Check == d.check && f.Severity == want {
			return
		}
	}
	t.Errorf("wanted a %v by check %q, found %+v", want, d.check, all)
}

// TestVerifyRows: every damage of a row is found, by its name; undone, nothing is.
func TestVerifyRows(t *testing.T) {
	v := newVerified(t)
	restore := v.backup(t)
	for _, d := range inRows {
		t.Run(d.name, func(t *testing.T) {
			defer restore(t)
			v.exec(t, d.fill())
			d.is(t, v.log)
		})
	}
	if all := findings(t, v.log, eventstore.SeverityNote); len(all) > 0 {
		t.Errorf("undone, wanted nothing, found %+v", all)
	}
}

// inTables are damages of what holds the rows.
var inTables = []damage{
	{name: "primary key dropped", check: "index", sql: "alter table {s}.entries_1 drop constraint entries_1_pkey"},
	{name: "index of positions dropped", check: "index", sql: "alter table {s}.entries_2 drop constraint entries_2_position_key"},
	{name: "index invalid", check: "index", sql: "update pg_index set indisvalid = false where indexrelid = '{s}.entries_1_position_key'::regclass"},
	{name: "seqno twice", check: "duplicate", sql: "alter table {s}.entries_1 drop constraint entries_1_pkey; update {s}.entries_1 set seqno = 7 where {a} and seqno = 8"},
	{name: "position twice in one category", check: "position-unique", sql: "alter table {s}.entries_1 drop constraint entries_1_position_key; update {s}.entries_1 set position = (select min(position) from {s}.entries_1 where {a} and seqno = 5) where {a} and seqno = 4"},
	{name: "table detached", check: "partition", sql: "alter table {s}.entries detach partition {s}.entries_2"},
	{name: "table dropped", check: "partition", sql: "drop table {s}.entries_2"},
	{name: "table attached as another's", check: "partition", sql: "alter table {s}.entries detach partition {s}.entries_2; update {s}.entries_2 set category = 9; alter table {s}.entries attach partition {s}.entries_2 for values in (9)"},
	{name: "entry of another category", check: "entry-category", sql: "alter table {s}.entries detach partition {s}.entries_2; update {s}.entries_2 set category = 1 where seqno = 4"},
	{name: "sequence with a cache", check: "sequence", sql: "alter sequence {s}.position cache 20"},
	{name: "sequence gone", check: "sequence", sql: "drop sequence {s}.position"},
}

// TestVerifyTables: every damage of a table, index or sequence is found, by its name, in
// a store that Open may refuse.
func TestVerifyTables(t *testing.T) {
	for _, d := range inTables {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			v := newVerified(t)
			v.exec(t, d.fill())
			d.is(t, v.log)
		})
	}
}

// TestVerifyClean: nothing is found in a store of which everything was used, before and
// after Reclaim, but a count of what waits for it.
func TestVerifyClean(t *testing.T) {
	v := newVerified(t)
	all := findings(t, v.log, eventstore.SeverityOK)
	if got := names(all); !slices.Equal(got, []string{"unreclaimed"}) || len(all) != 2 || all[0].Severity != eventstore.SeverityNote || !strings.HasPrefix(all[0].Found, "3 ") {
		t.Errorf("wanted notes of 3 and 2 entries to reclaim, found %+v", all)
	}
	if _, err := v.log.Reclaim(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if all := findings(t, v.log, eventstore.SeverityOK); len(all) > 0 {
		t.Errorf("wanted nothing, found %+v", all)
	}
	// Trimmed to the end, and fenced.
	for _, s := range []eventstore.Stream{"click-x", "click-none"} {
		if _, err := v.store.Fence(t.Context(), s, eventstore.NewUUID()); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.store.ReleaseHold(t.Context(), "projector/sums/1/0", "click", ""); err != nil {
		t.Fatal(err)
	}
	if r, err := v.store.Trim(t.Context(), "click-x", 99, false); err != nil || r.Trimmed != 6 {
		t.Fatal(r, err)
	}
	if _, err := v.log.Reclaim(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if all := findings(t, v.log, eventstore.SeverityOK); len(all) > 0 {
		t.Errorf("trimmed to the end, wanted nothing, found %+v", all)
	}
}

// TestVerifySteps: what lies at the edges of steps is read once, and its damage found.
func TestVerifySteps(t *testing.T) {
	p, schema := pgtest.Schema(t)
	createNumbered(t, p, schema, 1, "account", false)
	l, s := open(t, p, schema)
	v := verified{p, schema, l, s}
	v.extend(t, batch("account-long", 2600), 2600, 2600, 2600, 2600, 2600, 2600, 2600)
	for i := range 3 {
		var a eventstore.Append
		for j := range 250 {
			a.Batches = append(a.Batches, batch(eventstore.Stream(fmt.Sprintf("account-%03d", i*250+j)), 1+j%3))
		}
		must(t, s, a)
	}
	var last eventstore.Progress
	for f, err := range l.Verify(t.Context(), func(p eventstore.Progress) { last = p }) {
		t.Fatalf("wanted nothing, found %+v %v", f, err)
	}
	want := eventstore.Progress{Streams: 751, Entries: 20800 + 3*499, Total: 20800 + 3*499}
	if last != want {
		t.Errorf("wanted %+v, found %+v", want, last)
	}
	long := "stream = (select ordinal from {s}.streams where key = 'long')"
	v.exec(t, "create table {s}.kept as table {s}.entries_1")
	for _, d := range []struct{ sql, want string }{
		{"delete from {s}.entries_1 where " + long + " and seqno in (1999, 2000, 2001, 2002)", "gap at 1999"},
		{"delete from {s}.entries_1 where " + long + " and seqno in (1, 4000, 4001, 20800)", "gap at 1, batch at 2, gap at 4000, last-seqno at 20800"},
		{"update {s}.entries_1 set batch = gen_random_uuid() where " + long + " and seqno in (2001, 5201)", "batch at 2001, batch at 2002, batch at 5202"},
		{"update {s}.entries_1 set time = time - interval '1 year' where " + long + " and seqno = 8000", "time at 8000, batch at 8000, batch at 8001"},
		{"insert into {s}.entries_1 select position + 1000000, stream, 20801, epoch, time, category, version, id, batch, slot, type, content_type, metadata, data from {s}.entries_1 where " + long + " and seqno = 20800; select setval('{s}.position', 2000000)", "above-head at 20801"},
	} {
		v.exec(t, d.sql)
		var got []string
		for _, f := range findings(t, l, eventstore.SeverityOK) {
			got = append(got, f.Check+" at "+f.Seqno.String())
		}
		if found := strings.Join(got, ", "); found != d.want {
			t.Errorf("%s:\nwanted %s\nfound  %s", d.sql, d.want, found)
		}
		v.exec(t, "truncate {s}.entries_1; insert into {s}.entries_1 table {s}.kept")
	}
}

// TestVerifyInUse: whatever is written, trimmed, reclaimed, created and deleted
// meanwhile, nothing is found.
func TestVerifyInUse(t *testing.T) {
	v := newVerified(t)
	ctx, stop := context.WithCancel(t.Context())
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var users sync.WaitGroup
	for i := range 4 {
		users.Go(func() { v.use(ctx, t, i, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	users.Go(func() {
		for ctx.Err() == nil {
			if _, err := v.log.Reclaim(ctx, 50*time.Millisecond); err != nil && ctx.Err() == nil {
				t.Error("reclaim:", err)
			}
		}
	})
	users.Go(func() {
		for ctx.Err() == nil {
			err := v.store.CreateCategory(ctx, eventstore.CategorySpec{Name: "brief"})
			if err == nil {
				_, err = v.store.Append(ctx, one(batch("brief-a", 20)))
			}
			if err == nil {
				err = v.store.DeleteCategory(ctx, "brief")
			}
			if err != nil && ctx.Err() == nil {
				t.Error("category:", err)
			}
		}
	})
	rounds := 0
	for end := time.Now().Add(useFor()); rounds < 3 || time.Now().Before(end); rounds++ {
		for _, f := range findings(t, v.log, eventstore.SeverityNote) {
			t.Errorf("round %d: %+v", rounds, f)
		}
	}
	stop()
	users.Wait()
	var entries int64
	for f, err := range v.log.Verify(t.Context(), func(p eventstore.Progress) { entries = p.Entries }) {
		if err != nil || f.Severity > eventstore.SeverityNote {
			t.Errorf("at rest: %+v %v", f, err)
		}
	}
	t.Logf("%d rounds, %d entries left", rounds, entries)
}

func useFor() time.Duration {
	if os.Getenv("WATTLE_SOAK") != "" {
		return time.Minute
	}
	return 2 * time.Second
}

// use writes streams of a user's own, snapshots and trims them, until ctx ends.
func (v verified) use(ctx context.Context, t *testing.T, user int, r *rand.Rand) {
	s := eventstore.Stream(fmt.Sprintf("account-user%d", user))
	w := written{batch: batch(s, 3)}
	for n := 0; ctx.Err() == nil; n++ {
		a := one(w.batch)
		if n%5 == 4 {
			a.Batches = append(a.Batches, batch(eventstore.Stream(fmt.Sprintf("click-%d-%d", user, n)), 1+r.IntN(3)))
		}
		done, err := v.store.Append(ctx, a)
		if err == nil && n%7 == 6 {
			at := done.Receipts[0].Last
			err = v.store.SaveSnapshot(ctx, eventstore.Snapshot{Stream: s, At: at, Fingerprint: "v1", Data: []byte("{}")})
			if err == nil {
				_, err = v.store.Trim(ctx, s, at.Seqno-eventstore.Seqno(r.IntN(5)), false)
			}
		}
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("%s: %v", s, err)
			}
			return
		}
		w.receipt = done.Receipts[0]
		size := 1 + r.IntN(4)
		if r.IntN(10) == 0 {
			size = 700
		}
		claim := r.IntN(4) == 0
		w.batch = next(w.batch, w.receipt, size)
		if claim {
			w.batch.Epoch, w.batch.Claim, w.batch.Holder = w.batch.Epoch+1, true, eventstore.NewUUID()
		}
	}
}

// TestVerifyUnreadable: what the server itself can no longer read is named, and the rest
// is checked all the same.
func TestVerifyUnreadable(t *testing.T) {
	srv, p := server(t)
	l, s := open(t, p, "")
	for i, c := range []string{"account", "click", "order"} {
		createNumbered(t, p, "wattle", i+1, c, false)
	}
	large := batch("click-x", 3)
	large.Events[1].Data = make([]byte, 20000)
	rand.NewChaCha8([32]byte{}).Read(large.Events[1].Data)
	must(t, s, eventstore.Append{Batches: []eventstore.Batch{large, batch("account-a", 2), batch("order-o", 3)}})
	v := verified{p, "wattle", l, s}
	v.exec(t, "delete from {s}.entries_3 where seqno = 2")
	harm := func(relation string, with byte) {
		t.Helper()
		var file string
		if err := p.QueryRow(t.Context(), "select pg_relation_filepath("+relation+")").Scan(&file); err != nil {
			t.Fatal(err)
		}
		p.Reset()
		srv.Stop(t)
		overwrite(t, filepath.Join(srv.DataDir(), file), bytes.Repeat([]byte{with}, 8192))
		srv.Start(t)
	}
	wants := func(want ...string) {
		t.Helper()
		var got []string
		for _, f := range findings(t, l, eventstore.SeverityOK) {
			got = append(got, f.Check+" "+f.Where())
		}
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("wanted %q, found %q", w, got)
			}
		}
	}
	// An empty block is one that a server takes for valid: the payload's parts are gone.
	harm("(select reltoastrelid from pg_class where oid = 'wattle.entries_2'::regclass)", 0)
	wants("unreadable click-x at 2", "gap order-o at 2")
	if _, err := s.ReadFrom(t.Context(), "click-x", 0, 0); !errors.Is(err, eventstore.ErrCorrupt) {
		t.Errorf("read: %v, want ErrCorrupt", err)
	}
	harm("'wattle.entries_1'::regclass", 0xff)
	wants("unreadable click-x at 2", "unreadable account-a at 1", "unreadable account-a at 2", "gap order-o at 2")
	harm("'wattle.streams'::regclass", 0xff)
	wants("unreadable account", "unreadable click", "unreadable order")
}

// overwrite writes over the beginning of a file.
func overwrite(t *testing.T, file string, with []byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(with, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestVerifyStops: at a break of the loop, at the end of the context, at a schema of
// another version or none, at a log that was closed.
func TestVerifyStops(t *testing.T) {
	v := newVerified(t)
	n := 0
	for range v.log.Verify(t.Context(), nil) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("wanted one finding and an end, found %d", n)
	}
	last := func(l *pglog.Log, ctx context.Context) (err error) {
		for _, err = range l.Verify(ctx, nil) {
		}
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := last(v.log, ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: found %v", err)
	}
	var err error
	for _, err = range pglog.Verify(t.Context(), v.pool, &pglog.Options{Schema: "nothing_here"}, nil) {
	}
	if !errors.Is(err, eventstore.ErrNotMigrated) {
		t.Errorf("no schema: found %v", err)
	}
	v.exec(t, "insert into {s}.wattle_version (version_id, is_applied) values (1000, true)")
	for _, err = range pglog.Verify(t.Context(), v.pool, &pglog.Options{Schema: v.schema}, nil) {
	}
	if !errors.Is(err, eventstore.ErrNotMigrated) || !strings.Contains(err.Error(), "1000") {
		t.Errorf("newer schema: found %v", err)
	}
	if err := v.log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := last(v.log, t.Context()); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("closed: found %v", err)
	}
}

// TestVerifyRefusedByOpen: a sequence that Open refuses does not keep the rest from being
// verified.
func TestVerifyRefusedByOpen(t *testing.T) {
	v := newVerified(t)
	v.exec(t, "alter sequence {s}.position cache 20; delete from {s}.entries_1 where seqno = 7")
	if _, err := pglog.Open(t.Context(), v.pool, &pglog.Options{Schema: v.schema}); !errors.Is(err, eventstore.ErrInvalid) {
		t.Fatalf("open: found %v", err)
	}
	var all []eventstore.Finding
	for f, err := range pglog.Verify(t.Context(), v.pool, &pglog.Options{Schema: v.schema}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	if got := names(all); !slices.Equal(got, []string{"gap", "sequence", "unreclaimed"}) {
		t.Errorf("found %q", got)
	}
}
