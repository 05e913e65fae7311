// What really runs: the participants that need no Node.js, on a real server.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// newBench is a campaign on the tests' server.
func newBench(t *testing.T) *bench {
	t.Helper()
	o := &options{repeats: 1, writers: []int{2}, streams: 2, readStreams: 3, readEntries: 20, seconds: 0.2, payload: 200, appends: true}
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	return &bench{options: o, log: io.Discard, config: config, control: pgtest.Pool(t), payloads: payloads(o.payload), acked: map[string]int64{}, report: newReport(o)}
}

// openOne opens a participant in a database of its own.
func openOne(t *testing.T, name string, streams int) *opened {
	t.Helper()
	b := newBench(t)
	all, err := b.open(t.Context(), []participant{participants[place(name)]}, streams, 4)
	t.Cleanup(func() {
		if err := b.close(all); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// appendSome makes three writers append to two streams each and gives the number acknowledged.
func appendSome(t *testing.T, o *opened) int {
	t.Helper()
	s, err := o.store.appends(t.Context(), 3, 2, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if s.events < 6 || len(s.times) != s.events || s.took < 200*time.Millisecond {
		t.Fatalf("implausible: %d events, %d times, took %v", s.events, len(s.times), s.took)
	}
	return s.events
}

// What was counted as acknowledged is there, by a question of the test's own; and a writer behind the head is refused:
// a participant that did not check what it says it checks would be measured at something else.
func TestAckedIsThere(t *testing.T) {
	for name, sql := range map[string]string{
		floorName:      "SELECT count(*) FROM floor",
		productName:    "SELECT sum(last_seqno) FROM (SELECT max(seqno) last_seqno, count(*) n FROM wattle.entries GROUP BY stream) s WHERE n = last_seqno",
		"wattle-alone": "SELECT count(DISTINCT id) FROM wattle.entries",
		"pgnotch":      "SELECT sum(last_seqno) FROM logs",
		"watermill":    "SELECT count(DISTINCT uuid) FROM watermill_bench",
	} {
		t.Run(name, func(t *testing.T) {
			o := openOne(t, name, 6)
			acked := int64(appendSome(t, o))
			if stale := staleAppend(t.Context(), o.store); stale == nil {
				t.Error("an append behind the head went through")
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), o.setup.config)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			var found int64
			if err := pool.QueryRow(t.Context(), sql).Scan(&found); err != nil {
				t.Fatal(err)
			}
			counted, err := o.count(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if found != acked || counted != acked {
				t.Errorf("%d acknowledged, %d found, %d counted", acked, found, counted)
			}
			if name == "pgnotch" {
				pgnotchHasNoGap(t, pool)
			}
		})
	}
}

// staleAppend appends as a writer that has missed the last event; those without expected versions need not refuse it.
func staleAppend(ctx context.Context, s store) error {
	switch s := s.(type) {
	case *pgnotch:
		s.last[0]--
		return s.append(ctx, 0)
	case *wattleStore:
		s.next[0].After.Seqno--
		return s.append(ctx, 0, 1)
	}
	return errors.ErrUnsupported
}

// pgnotchHasNoGap: its logs have no key, so that there is no gap and no double is the statement's work.
func pgnotchHasNoGap(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for i := range 6 {
		var gaps int
		sql := fmt.Sprintf("SELECT count(*) FROM (SELECT seqno, row_number() OVER (ORDER BY seqno) n FROM log_%d) s WHERE seqno <> n", i)
		if err := pool.QueryRow(t.Context(), sql).Scan(&gaps); err != nil {
			t.Fatal(err)
		}
		if gaps != 0 {
			t.Errorf("log %d: %d entries are not where they should be", i, gaps)
		}
	}
}

// short has lost an event, or acknowledged one too many.
type short struct{ store }

func (s short) appends(ctx context.Context, writers, k int, d time.Duration) (sample, error) {
	out, err := s.store.appends(ctx, writers, k, d)
	out.events++
	return out, err
}

func (s short) catchUp(ctx context.Context) (sample, error) {
	out, err := s.store.catchUp(ctx)
	out.events--
	return out, err
}

func TestLostEventsEndTheCampaign(t *testing.T) {
	b := newBench(t)
	b.chosen = []participant{{name: "short", reads: true, open: func(ctx context.Context, s *setup) (store, error) {
		inner, err := openWattle(wattle{})(ctx, s)
		return short{inner}, err
	}}}
	if err := b.allAppends(t.Context()); err == nil || !strings.Contains(err.Error(), "acknowledged") {
		t.Errorf("appends: wanted an error of the count, found %v", err)
	}
	if err := b.allReads(t.Context()); err == nil || !strings.Contains(err.Error(), "wanted 60 events, found 59") {
		t.Errorf("reads: wanted an error of the count, found %v", err)
	}
}

// The whole command, and that it leaves no database behind.
func TestCommand(t *testing.T) {
	dsn, names := pgtest.DSN(t), []string{floorName, productName, "pgnotch", "watermill"}
	var out, progress bytes.Buffer
	code := run(t.Context(), []string{"-dsn", dsn, "-only", strings.Join(names, ","), "-seconds", "0.1", "-repeats", "2", "-writers", "1,3",
		"-payload", "300", "-read-streams", "4", "-o", "json"}, &out, &progress)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, progress.String())
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for _, writers := range []int{1, 3} {
			row := r.rowOf(t, name, writers)
			if m := row.Median; len(row.Runs) != 2 || m.Rate <= 0 || m.P50 <= 0 || m.P99 < m.P50 || m.WAL < 300 || row.Ratio == nil {
				t.Errorf("%s with %d writers: found %+v, ratio %v", name, writers, m, row.Ratio)
			}
		}
	}
	for _, row := range r.Reads { // pgnotch has no feed, a queue no streams
		m := row.Median
		if (m.Load > 0) != (row.Participant != "watermill") || (m.Feed > 0) != (row.Participant != "pgnotch") || m.Scan <= 0 {
			t.Errorf("reading %s: found %+v", row.Participant, m)
		}
	}
	if len(r.Reads) != 3 || r.Settings["fsync"] != "on" || !strings.HasPrefix(r.Server, "PostgreSQL") || r.Versions["watermill"] == "" {
		t.Errorf("found %s", out.String())
	}
	var left int
	if err := pgtest.Pool(t).QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname LIKE 'wattle\\_bench\\_%'").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d databases are left (%v)", left, err)
	}
}

// Without Node.js the peers of npm say what to do, before anything is measured.
func TestMissingNode(t *testing.T) {
	dsn := pgtest.DSN(t)
	t.Setenv("PATH", t.TempDir())
	var out, progress bytes.Buffer
	code := run(t.Context(), []string{"-dsn", dsn, "-only", "message-db"}, &out, &progress)
	if text := progress.String(); code != 1 || !strings.Contains(text, "no node on PATH") || !strings.Contains(text, "-only floor,wattle") || strings.Contains(text, "repeat") {
		t.Errorf("exit %d, said %s", code, text)
	}
	if _, err := openEmmett(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "no node on PATH") {
		t.Errorf("emmett: found %v", err)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-only", "eventstoredb"}, {"-writers", "1,x"}, {"-writers", "0"}, {"-measure", "all"}, {"-o", "csv"}, {"-repeats", "0"},
		{"-payload", "10"}, {"-seconds", "0"}} {
		var out, said bytes.Buffer
		if code := run(t.Context(), args, &out, &said); code != 2 || !strings.Contains(said.String(), args[0]) {
			t.Errorf("%v: exit %d, said %s", args, code, said.String())
		}
	}
}

func TestPayloads(t *testing.T) {
	for _, n := range []int{minPayload, 900} {
		for _, p := range payloads(n) {
			if len(p) != n || !json.Valid(p) {
				t.Fatalf("wanted %d bytes of JSON, found %d: %s", n, len(p), p)
			}
		}
	}
	if a, b := payloads(500), payloads(500); !bytes.Equal(a[63], b[63]) || bytes.Equal(a[0], a[1]) {
		t.Error("payloads must be the same in every run and differ among each other")
	}
}
