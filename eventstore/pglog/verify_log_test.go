// Verify on dedicated streams: each damage made by hand is found by its name.

package pglog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
)

func TestVerifyLogs(t *testing.T) {
	for _, d := range []struct{ name, check, sql string }{
		{"nothing", "", "select 1"},
		{"an entry gone", "gap", "delete from {half} where seqno = 24"},
		{"the first gone", "gap", "delete from {half} where seqno = 21"},
		{"the last gone", "last-seqno", "delete from {half} where seqno = 30"},
		{"a chunk gone", "chunks", "delete from {half} where seqno = 21 and chunk = 1"},
		{"the first chunk gone", "chunks", "delete from {half} where seqno = 21 and chunk = 0"},
		{"an entry twice", "duplicate", "insert into {half} select * from {half} where seqno = 25"},
		{"an entry above the head", "above-head", "update {half} set seqno = 31 where seqno = 30; update {s}.streams set last_seqno = 29 where ordinal = {o}"},
		{"epoch falls", "epoch", "update {half} set epoch = 0 where seqno = 28"},
		{"epoch above the registry's", "last-epoch", "update {half} set epoch = 99 where seqno = 30"},
		{"time falls", "time", "update {half} set time = time - interval '1 hour' where seqno = 28"},
		{"last ID", "last-id", "update {s}.streams set last_id = gen_random_uuid() where ordinal = {o}"},
		{"watermark above the head", "watermark", "update {s}.streams set trimmed = 99 where ordinal = {o}"},
		{"metadata cut", "chunks", "update {half} set split = 3 where seqno = 26"},
		{"an old entry in the half that is written", "ring", "update {half} set seqno = 5 where seqno = 30; update {s}.streams set trimmed = 10 where ordinal = {o}"},
		{"ring turned back", "ring", "update {s}.streams set ring = 4 where ordinal = {o}"},
		{"a table gone", "log-table", "alter table {s}.logs_{n} detach partition {half}; drop table {half}"},
		{"another batch in the middle", "batch", "update {half} set batch = '00000000-0000-0000-0000-000000000000' where seqno = 28"},
		{"snapshot of another history", "snapshot-mark", "update {s}.snapshots set id = gen_random_uuid() where stream = {o}"},
		{"hold on another entry", "hold-mark", "update {s}.holds set id = gen_random_uuid() where stream = {o}"},
	} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			p, schema, l, s, logs := freshLogs(t, 2)
			last := grow(t, s, eventstore.Batch{Stream: logs[0]}, 2, 10, 100)
			if _, err := s.Trim(t.Context(), logs[0], 5, false); err != nil { // turns the ring
				t.Fatal(err)
			}
			if _, err := s.Trim(t.Context(), logs[0], 20, false); err != nil { // empties a half, turns it again
				t.Fatal(err)
			}
			b := next(last, last.Written(), 10)
			b.Events[0].Data = []byte(strings.Repeat("long", 5000)) // 21 takes three rows
			for i := range b.Events {
				b.Events[i].Metadata = eventstore.Metadata{"k": "v"}
			}
			must(t, s, one(b))
			if err := s.SaveSnapshot(t.Context(), eventstore.Snapshot{Stream: logs[0], At: eventstore.Mark{Seqno: 25, ID: b.Events[4].ID}, Fingerprint: "v1"}); err != nil {
				t.Fatal(err)
			}
			if err := s.SetHold(t.Context(), eventstore.Hold{Name: "h", Stream: logs[0], Seqno: 26, ID: b.Events[5].ID}); err != nil {
				t.Fatal(err)
			}
			tables, err := l.LogTables(t.Context(), logs[0])
			if err != nil {
				t.Fatal(err)
			}
			half := tables[0]
			if number(t, p, "select count(*) from "+tables[1]) > 0 {
				half = tables[1]
			}
			ordinal := strings.Split(half, "_")
			sql := strings.NewReplacer("{half}", half, "{s}", schema, "{o}", ordinal[len(ordinal)-2],
				"{n}", fmt.Sprint(number(t, p, "select id from "+schema+".categories where name = 'log'"))).Replace(d.sql)
			for stmt := range strings.SplitSeq(sql, "; ") {
				exec1(t, p, stmt)
			}
			got := names(findings(t, l, eventstore.SeverityNote))
			if d.check == "" && len(got) > 0 || d.check != "" && !slices.Contains(got, d.check) {
				t.Errorf("found %q, want %q", got, d.check)
			}
		})
	}
}
