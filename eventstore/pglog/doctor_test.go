// Examine: each thing that it looks at is bent, on a server, role or pool of the test's
// own, and found by its name.

package pglog_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// examined is what Examine finds, by check.
func examined(t testing.TB, p *pgxpool.Pool, o *pglog.Options) map[string]eventstore.Finding {
	t.Helper()
	all, err := pglog.Examine(t.Context(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]eventstore.Finding{}
	for _, f := range all {
		if _, twice := by[f.Check]; twice {
			t.Errorf("two findings of check %q", f.Check)
		}
		if f.Found == "" || f.Severity > eventstore.SeverityOK && (f.Wanted == "" || f.Hint == "") {
			t.Errorf("a finding without all it should say: %+v", f)
		}
		by[f.Check] = f
	}
	return by
}

// wantFinding checks how bad one finding is, and that it says something.
func wantFinding(t testing.TB, by map[string]eventstore.Finding, check string, s eventstore.Severity, parts ...string) {
	t.Helper()
	f, ok := by[check]
	if !ok || f.Severity != s {
		t.Errorf("wanted a %v by check %q, found %+v", s, check, f)
	}
	for _, part := range parts {
		if !strings.Contains(f.Found+f.Hint+f.Wanted, part) {
			t.Errorf("%s: wanted %q in %+v", check, part, f)
		}
	}
}

// allChecks are those of Examine in their order; transaction-timeout only on servers
// that have it.
var allChecks = []string{"server-version", "primary", "read-only", "isolation", "fsync", "full-page-writes", "synchronous-commit", "checksums", "autovacuum",
	"wal-compression", "idle-in-transaction", "transaction-timeout", "lz4", "connections", "clock", "pooler",
	"schema", "incarnation", "sequence", "compression", "statement-cache", "locks", "dead-rows", "unreclaimed", "feed-holders",
	"sessions", "oldest-transaction", "prepared-transactions", "replication-slots"}

// TestExamine: a healthy store on a healthy server: every check is made, none warns.
func TestExamine(t *testing.T) {
	srv, p := server(t)
	l, s := open(t, p, "")
	create(t, s, "account")
	must(t, s, one(batch("account-a", 3)))
	all, err := l.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range all {
		got = append(got, f.Check)
		if f.Severity > eventstore.SeverityNote {
			t.Errorf("found %+v", f)
		}
	}
	want := slices.DeleteFunc(slices.Clone(allChecks), func(c string) bool { return c == "transaction-timeout" && !slices.Contains(got, c) })
	if !slices.Equal(got, want) {
		t.Errorf("wanted checks %q\nfound %q", want, got)
	}
	var incarnation string
	if err := p.QueryRow(t.Context(), "select incarnation::text from wattle.store").Scan(&incarnation); err != nil {
		t.Fatal(err)
	}
	by := examined(t, p, nil)
	wantFinding(t, by, "incarnation", eventstore.SeverityOK, incarnation, "timeline 1")
	var checksums string
	if err := p.QueryRow(t.Context(), "show data_checksums").Scan(&checksums); err != nil {
		t.Fatal(err)
	}
	if checksums == "off" { // from PostgreSQL 18 on a new server has them
		wantFinding(t, by, "checksums", eventstore.SeverityNote, "pg_checksums")
	} else {
		wantFinding(t, by, "checksums", eventstore.SeverityOK)
	}
	wantFinding(t, by, "pooler", eventstore.SeverityOK, "none")

	srv.Stop(t)
	if err := os.WriteFile(filepath.Join(srv.DataDir(), "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p.Reset()
	srv.Start(t)
	by = examined(t, p, nil)
	wantFinding(t, by, "primary", eventstore.SeverityFault, "standby", "connect to the primary")
	wantFinding(t, by, "incarnation", eventstore.SeverityOK, incarnation)
	for f, err := range l.Verify(t.Context(), nil) { // reads work there
		t.Errorf("verify on a standby: %+v %v", f, err)
	}
}

// TestExamineSessions: settings that a role or a connection brings.
func TestExamineSessions(t *testing.T) {
	_, schema, _, _ := fresh(t)
	o := &pglog.Options{Schema: schema}
	for _, d := range []struct {
		name, value, check string
		severity           eventstore.Severity
	}{
		{"default_transaction_isolation", "serializable", "isolation", eventstore.SeverityFault},
		{"default_transaction_read_only", "on", "read-only", eventstore.SeverityFault},
		{"synchronous_commit", "off", "synchronous-commit", eventstore.SeverityNote},
		{"synchronous_commit", "remote_apply", "synchronous-commit", eventstore.SeverityOK},
		{"idle_in_transaction_session_timeout", "60000", "idle-in-transaction", eventstore.SeverityOK},
		{"wal_compression", "on", "wal-compression", eventstore.SeverityOK},
	} {
		wantFinding(t, examined(t, pool(t, pgtest.DSN(t), withParam(d.name, d.value)), o), d.check, d.severity)
	}
	small := pool(t, pgtest.DSN(t), func(c *pgxpool.Config) { c.ConnConfig.StatementCacheCapacity = 10 })
	wantFinding(t, examined(t, small, o), "statement-cache", eventstore.SeverityNote, "1 categories", "for 10", "statement_cache_capacity=")
	exec := pool(t, pgtest.DSN(t), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	wantFinding(t, examined(t, exec, o), "statement-cache", eventstore.SeverityOK, "not used")
}

// TestExamineRole: the settings of a role count, and what it may not see is told.
func TestExamineRole(t *testing.T) {
	p, schema, _, _ := fresh(t)
	role := schema[len(schema)-10:] + "_role"
	dsn, err := url.Parse(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	exec1(t, p, fmt.Sprintf("create role %s login password 'x'", role))
	exec1(t, p, fmt.Sprintf("alter role %s set default_transaction_isolation = 'repeatable read'", role))
	t.Cleanup(func() { p.Exec(context.Background(), "drop owned by "+role+"; drop role "+role) })
	dsn.User = url.UserPassword(role, "x")
	as := pool(t, dsn.String(), nil)
	by := examined(t, as, &pglog.Options{Schema: schema})
	wantFinding(t, by, "isolation", eventstore.SeverityFault, "repeatable read", "for the role")
	wantFinding(t, by, "sessions", eventstore.SeverityNote, "pg_read_all_stats")
	wantFinding(t, by, "schema", eventstore.SeverityWarning, "grant")
	exec1(t, p, fmt.Sprintf("grant usage on schema %s to %s", schema, role))
	exec1(t, p, fmt.Sprintf("grant select on all tables in schema %s to %s", schema, role))
	exec1(t, p, fmt.Sprintf("grant select on %s.position to %s", schema, role))
	by = examined(t, as, &pglog.Options{Schema: schema})
	wantFinding(t, by, "schema", eventstore.SeverityOK)
	wantFinding(t, by, "sequence", eventstore.SeverityFault, "USAGE", "grant")
}

// TestExamineSchema: absent, of another version, with a sequence that was altered: where
// Open refuses, Examine says why.
func TestExamineSchema(t *testing.T) {
	p, schema, _, _ := fresh(t)
	by := examined(t, p, &pglog.Options{Schema: "nothing_here"})
	wantFinding(t, by, "schema", eventstore.SeverityFault, "none", "wattle migrate up")
	wantFinding(t, by, "fsync", eventstore.SeverityOK)
	if _, ok := by["incarnation"]; ok {
		t.Error("a store was found where there is none")
	}
	exec1(t, p, "alter sequence "+schema+".position cache 20")
	wantFinding(t, examined(t, p, &pglog.Options{Schema: schema}), "sequence", eventstore.SeverityFault, "CACHE 1")
	exec1(t, p, "insert into "+schema+".wattle_version (version_id, is_applied) values (1000, true)")
	wantFinding(t, examined(t, p, &pglog.Options{Schema: schema}), "schema", eventstore.SeverityFault, "version 1000")
}

// TestExamineServer: a server of which much is wrong.
func TestExamineServer(t *testing.T) {
	srv, p := server(t, pgtest.Setting("fsync", "off"), pgtest.Setting("full_page_writes", "off"), pgtest.Setting("autovacuum", "off"),
		pgtest.Setting("wal_level", "logical"), pgtest.Setting("max_connections", "20"), pgtest.Setting("max_prepared_transactions", "1"), pgtest.Setting("max_locks_per_transaction", "10"))
	l, s := open(t, p, "")
	for i := range 35 {
		create(t, s, eventstore.Category(fmt.Sprintf("c%d", i)))
	}
	o := &pglog.Options{HolderTTL: time.Millisecond}

	exec1(t, p, "select pg_create_logical_replication_slot('forgotten', 'pgoutput')")
	gone := pool(t, srv.DSN(), withParam("application_name", "forgetful"))
	idle := begin(t, gone)
	if _, err := idle.Exec(t.Context(), "select pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	two := begin(t, p)
	if _, err := l.AppendIn(t.Context(), two, one(batch("c0-a", 1))); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Exec(t.Context(), "prepare transaction 'left behind'"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // older than 30 TTLs
	big := pool(t, srv.DSN(), func(c *pgxpool.Config) { c.MaxConns = 25 })
	by := examined(t, big, o)
	wantFinding(t, by, "fsync", eventstore.SeverityFault)
	wantFinding(t, by, "full-page-writes", eventstore.SeverityWarning)
	wantFinding(t, by, "autovacuum", eventstore.SeverityWarning)
	wantFinding(t, by, "connections", eventstore.SeverityWarning, "of 17 left")
	wantFinding(t, by, "locks", eventstore.SeverityWarning, "35 categories", "210")
	wantFinding(t, by, "oldest-transaction", eventstore.SeverityWarning, "forgetful", "idle in transaction", fmt.Sprintf("pid %d ", idle.Conn().PgConn().PID()))
	wantFinding(t, by, "prepared-transactions", eventstore.SeverityWarning, "left behind")
	wantFinding(t, by, "replication-slots", eventstore.SeverityWarning, "forgotten", "not active")
	wantFinding(t, by, "feed-holders", eventstore.SeverityFault, "prepared transaction 'left behind'")
	exec1(t, p, "rollback prepared 'left behind'")

	holding := begin(t, gone)
	if _, err := l.AppendIn(t.Context(), holding, one(batch("c0-a", 1))); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	wantFinding(t, examined(t, p, o), "feed-holders", eventstore.SeverityFault, "forgetful", fmt.Sprintf("pid %d ", holding.Conn().PgConn().PID()))
	wantFinding(t, examined(t, p, nil), "feed-holders", eventstore.SeverityOK)
}

// TestExamineSpace: dead rows of hot tables, and what waits for Reclaim, as far as the
// server has counted it.
func TestExamineSpace(t *testing.T) {
	p, schema, _, s := fresh(t)
	o := &pglog.Options{Schema: schema}
	exec1(t, p, "alter table "+schema+".leases set (autovacuum_enabled = off)")
	exec1(t, p, "insert into "+schema+".leases select 'l' || i, 1, now() from generate_series(1, 3000) i")
	p.Reset() // a session that ends reports what it has counted
	old := begin(t, p)
	if _, err := old.Exec(t.Context(), "set transaction isolation level repeatable read; select 1"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		exec1(t, p, "update "+schema+".leases set epoch = epoch + 1")
	}
	if err := s.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "click", TrimFreely: true}); err != nil {
		t.Fatal(err)
	}
	must(t, s, one(batch("click-x", 3000)))
	if r, err := s.Trim(t.Context(), "click-x", 2990, false); err != nil || r.Trimmed != 2990 {
		t.Fatal(r, err)
	}
	p.Reset()
	var by map[string]eventstore.Finding
	eventually(t, "the server counts", func() bool {
		by = examined(t, p, o)
		return strings.Contains(by["dead-rows"].Found, "beside 3000") && by["unreclaimed"].Severity == eventstore.SeverityNote
	})
	wantFinding(t, by, "dead-rows", eventstore.SeverityWarning, "leases has 15000", "VACUUM")
	wantFinding(t, by, "unreclaimed", eventstore.SeverityNote, "2990 entries", "click")
}

// TestExaminePooler: PgBouncer in transaction mode is seen, and whether the pool suits it.
func TestExaminePooler(t *testing.T) {
	_, schema, _, _ := fresh(t)
	dsn := pgtest.Bouncer(t, pgtest.DSN(t), 3)
	o := &pglog.Options{Schema: schema}
	for mode, want := range map[pgx.QueryExecMode]eventstore.Severity{pgx.QueryExecModeCacheStatement: eventstore.SeverityFault,
		pgx.QueryExecModeExec: eventstore.SeverityOK, pgx.QueryExecModeSimpleProtocol: eventstore.SeverityOK} {
		p := pool(t, dsn, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		by := examined(t, p, o)
		wantFinding(t, by, "pooler", want, mode.String())
		wantFinding(t, by, "schema", eventstore.SeverityOK)
	}
	alone := pool(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 })
	wantFinding(t, examined(t, alone, o), "pooler", eventstore.SeverityWarning, "two connections", "default_query_exec_mode=exec")
}

func TestExamineUnreachable(t *testing.T) {
	p := pool(t, "postgres://nobody@127.0.0.1:1/none?sslmode=disable", nil)
	if all, err := pglog.Examine(t.Context(), p, nil); !isKind(err, eventstore.ErrUnavailable) || len(all) > 0 {
		t.Errorf("found %v, %+v", err, all)
	}
}

func isKind(err, kind error) bool {
	e, ok := err.(*eventstore.Error)
	return ok && e.Kind == kind
}

// TestExamineClock: how far clocks may be apart, and versions that no test has.
func TestExamineClock(t *testing.T) {
	for _, d := range []struct {
		ahead, took time.Duration
		want        eventstore.Severity
	}{{0, 0, eventstore.SeverityOK}, {900 * time.Millisecond, 0, eventstore.SeverityOK}, {1100 * time.Millisecond, 0, eventstore.SeverityWarning},
		{-2 * time.Second, 0, eventstore.SeverityWarning}, {2 * time.Second, 3 * time.Second, eventstore.SeverityOK}} {
		if f := pglog.ClockFinding(d.ahead, d.took); f.Severity != d.want {
			t.Errorf("%v ahead, asked in %v: %+v", d.ahead, d.took, f)
		}
	}
	for version, want := range map[int]eventstore.Severity{130012: eventstore.SeverityFault, 140000: eventstore.SeverityOK, 180004: eventstore.SeverityOK, 190000: eventstore.SeverityWarning} {
		if f := pglog.VersionFinding(version, "x"); f.Severity != want {
			t.Errorf("%d: %+v", version, f)
		}
	}
}
