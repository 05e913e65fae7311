// Migrations against a real server: every road in, all of them together, names that need quotes, and a death half way.

package migrations_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestUpDownUp(t *testing.T) {
	t.Parallel()
	pool, schema := freshSchema(t, "")
	expectPending(t, pool, schema, true)
	if err := migrations.Down(t.Context(), pool, schema); err != nil {
		t.Fatalf("down of nothing: %v", err)
	}
	for range 2 {
		for range 2 { // the second has nothing to do
			up(t, pool, schema)
		}
		expectPending(t, pool, schema, false)
		expectStore(t, pool, schema)
		if err := migrations.Down(t.Context(), pool, schema); err != nil {
			t.Fatalf("down: %v", err)
		}
		expectPending(t, pool, schema, true)
		if left := tables(t, pool, schema); left != "wattle_lock wattle_version" {
			t.Errorf("down left %q", left)
		}
	}
}

func TestVersionIsTheNewest(t *testing.T) {
	all, err := migrations.Status(t.Context(), pgtest.Pool(t), pgtest.SchemaName(t))
	if err != nil || len(all) == 0 || all[len(all)-1].Version != migrations.Version {
		t.Fatalf("Status %v, %v; Version is %d", all, err, migrations.Version)
	}
}

// Names that need quotes, would be taken for variables or patterns, or end a statement early.
func TestOddSchemaNames(t *testing.T) {
	t.Parallel()
	for _, odd := range []string{` with spaces `, `Upper`, `qu"ote's`, `a.b`, `$HOME`, `${WATTLE_SCHEMA:-x}`, `x; y;`, `ß%s`, `user`, `back\slash`} {
		t.Run(odd, func(t *testing.T) {
			pool, schema := freshSchema(t, odd)
			for range 2 {
				up(t, pool, schema)
			}
			expectPending(t, pool, schema, false)
			expectStore(t, pool, schema)
			if err := migrations.Down(t.Context(), pool, schema); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestBadSchemaNames(t *testing.T) {
	for _, bad := range []string{"a\x00b", "a\nb", "\xff", strings.Repeat("x", 64), "x -- y"} {
		var e *migrations.SchemaNameError
		if err := migrations.Up(t.Context(), pgtest.Pool(t), bad); !errors.As(err, &e) || e.Name != bad {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestPoolOfOneIsRefused(t *testing.T) {
	config, err := pgxpool.ParseConfig(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := migrations.Up(t.Context(), pool, "x"); !errors.Is(err, migrations.ErrPoolTooSmall) {
		t.Fatal(err)
	}
}

// Works without prepared statements, as behind a pooler in transaction mode.
func TestExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		_, schema := freshSchema(t, "")
		config, err := pgxpool.ParseConfig(pgtest.DSN(t))
		if err != nil {
			t.Fatal(err)
		}
		config.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		up(t, pool, schema)
		expectPending(t, pool, schema, false)
		expectStore(t, pool, schema)
		pool.Close()
	}
}

func TestConcurrentMigrators(t *testing.T) {
	t.Parallel()
	pool, schema := freshSchema(t, "")
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			other := pgtest.Pool(t)
			if err := migrations.Up(t.Context(), other, schema); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	expectPending(t, pool, schema, false)
	expectStore(t, pool, schema)
}

func TestAWaitingMigratorHeedsItsContext(t *testing.T) {
	t.Parallel()
	pool, schema := freshSchema(t, "")
	up(t, pool, schema)
	q := pgx.Identifier{schema}.Sanitize()
	run(t, pool, `INSERT INTO `+q+`.wattle_lock SELECT lock_id, true, now(), 'other', now() + '1 hour' FROM `+q+`.wattle_lock
		ON CONFLICT (lock_id) DO UPDATE SET locked = true, locked_by = 'other', lease_expires_at = now() + '1 hour'`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := migrations.Down(ctx, pool, schema); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	expectPending(t, pool, schema, false)
}

const (
	childTask = "MIGRATIONS_CHILD" // what the test binary does instead of testing
	childDSN  = "MIGRATIONS_DSN"
)

// TestCaseC4KilledAmongThree: three migrators at once, direct and through a pooler; the
// one at work is killed half way, and its session lives on in the server. The others wait
// no longer than they are told to and say for what; run again, one does the whole.
func TestCaseC4KilledAmongThree(t *testing.T) {
	if os.Getenv(childTask) == "up" {
		childUp(t)
		return
	}
	for name, connect := range map[string]func(t *testing.T) string{
		"direct":    func(t *testing.T) string { return pgtest.DSN(t) },
		"PgBouncer": func(t *testing.T) string { return pgtest.Bouncer(t, pgtest.DSN(t), 3) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killedAmongThree(t, connect(t))
		})
	}
}

func killedAmongThree(t *testing.T, dsn string) {
	pool, schema := freshSchema(t, "")
	// Something in the way of a late statement keeps the child inside its transaction.
	q := pgx.Identifier{schema}.Sanitize()
	run(t, pool, `CREATE SCHEMA `+q)
	block, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unblock := sync.OnceFunc(func() { _ = block.Rollback(context.Background()) })
	t.Cleanup(unblock) // or the schema could not be dropped
	if _, err := block.Exec(t.Context(), `CREATE TABLE `+q+`.leases ()`); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestCaseC4KilledAmongThree$")
	child.Env = append(os.Environ(), childTask+"=up", childDSN+"="+dsn, "WATTLE_SCHEMA="+schema)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	const inside = `SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'CREATE TABLE%'||$1||'%'`
	waitFor(t, pool, inside, schema)
	both(t, dsn, schema, time.Second, func(err error) {
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another migrator is at work") {
			t.Errorf("while one is at work: %v", err)
		}
	})
	_ = child.Process.Kill()
	_ = child.Wait()
	waitFor(t, pool, inside, schema) // its session does not know yet
	expectPending(t, pool, schema, true)
	release := time.AfterFunc(12*time.Second, unblock) // the lease has run out by then
	defer release.Stop()
	both(t, dsn, schema, time.Minute, func(err error) {
		if err != nil {
			t.Errorf("after its death: %v", err)
		}
	})
	expectPending(t, pool, schema, false)
	expectStore(t, pool, schema)
	var times int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM `+q+`.wattle_version WHERE version_id = 1`).Scan(&times); err != nil || times != 1 {
		t.Errorf("applied %d times, %v", times, err)
	}
}

// both runs two migrators at once, each with a bounded time, and has their outcomes judged.
func both(t *testing.T, dsn, schema string, limit time.Duration, judge func(error)) {
	t.Helper()
	outcomes := make(chan error, 2)
	for range cap(outcomes) {
		pool := execPool(t, dsn)
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		go func() { outcomes <- migrations.Up(ctx, pool, schema) }()
	}
	for range cap(outcomes) {
		judge(<-outcomes)
	}
}

// execPool is a pool without prepared statements, as a pooler in transaction mode needs it.
func execPool(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func childUp(t *testing.T) {
	up(t, execPool(t, os.Getenv(childDSN)), os.Getenv("WATTLE_SCHEMA"))
}

// The goose CLI on the same directory: its code, its environment substitution, its table; then we take over from it.
func TestGooseCLI(t *testing.T) {
	if command := os.Getenv(childTask); command != "" {
		gooseCLI(t, command)
		return
	}
	t.Parallel()
	pool, schema := freshSchema(t, "")
	run(t, pool, `CREATE SCHEMA `+schema)
	cli := func(command string) {
		t.Helper()
		child := exec.Command(os.Args[0], "-test.run=^TestGooseCLI$")
		child.Env = append(os.Environ(), childTask+"="+command, childDSN+"="+pgtest.DSN(t), "WATTLE_SCHEMA="+schema)
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("goose %s: %v\n%s", command, err, out)
		}
	}
	cli("up")
	expectPending(t, pool, schema, false)
	expectStore(t, pool, schema)
	up(t, pool, schema)
	cli("down") // the newest one
	all, err := migrations.Status(t.Context(), pool, schema)
	if err != nil || len(all) != int(migrations.Version) || !all[len(all)-1].Pending() || all[0].Pending() {
		t.Errorf("after goose down: %+v, %v, want the newest pending", all, err)
	}
	up(t, pool, schema)
	expectPending(t, pool, schema, false)
	if err := migrations.Down(t.Context(), pool, schema); err != nil {
		t.Fatal(err)
	}
}

// gooseCLI is what goose's main does with "-dir sql -table … postgres DSN command".
func gooseCLI(t *testing.T, command string) {
	db, err := goose.OpenDBWithDriver("pgx", os.Getenv(childDSN))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	goose.SetTableName(os.Getenv("WATTLE_SCHEMA") + ".wattle_version")
	if err := goose.RunContext(t.Context(), command, db, "sql"); err != nil {
		t.Fatal(err)
	}
}

func TestProvider(t *testing.T) {
	t.Parallel()
	pool, schema := freshSchema(t, "")
	run(t, pool, `CREATE SCHEMA `+schema)
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	p, err := migrations.Provider(db, schema)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, err := p.GetDBVersion(t.Context()); err != nil || v != migrations.Version {
		t.Fatalf("version %d, %v", v, err)
	}
	expectStore(t, pool, schema)
}

// Every line with the placeholder lies where goose substitutes, and nothing escapes it: no name is left unqualified.
func TestFilesAreQualified(t *testing.T) {
	names, err := fs.Glob(migrations.FS(), "*.sql")
	if err != nil || len(names) != int(migrations.Version) {
		t.Fatalf("files %v, %v", names, err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) { fileIsQualified(t, name) })
	}
}

func fileIsQualified(t *testing.T, name string) {
	f, err := migrations.FS().Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	substituted := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if after, ok := strings.CutPrefix(line, "-- +goose ENVSUB "); ok {
			substituted = after == "ON"
		}
		comment := strings.HasPrefix(strings.TrimSpace(line), "--")
		if !comment && strings.Contains(line, "${") && !substituted {
			t.Errorf("placeholder outside substitution: %s", line)
		}
		for _, verb := range []string{"CREATE TABLE ", "ALTER TABLE ", "CREATE SEQUENCE ", "DROP SEQUENCE ", "INSERT INTO "} {
			if after, ok := strings.CutPrefix(line, verb); ok && !strings.HasPrefix(after, "${WATTLE_SCHEMA:-wattle}.") {
				t.Errorf("not qualified: %s", line)
			}
		}
	}
}

// freshSchema is a name that does not exist yet, dropped at the end. odd is a part of it.
func freshSchema(t *testing.T, odd string) (*pgxpool.Pool, string) {
	t.Helper()
	pool := pgtest.Pool(t)
	schema := pgtest.SchemaName(t)
	if odd != "" {
		schema = odd + schema[len(schema)-9:]
	}
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+pgx.Identifier{schema}.Sanitize()+" CASCADE")
		if err != nil {
			t.Error(err)
		}
	})
	return pool, schema
}

func up(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := migrations.Up(ctx, pool, schema); err != nil {
		t.Fatal(err)
	}
}

func expectPending(t *testing.T, pool *pgxpool.Pool, schema string, want bool) {
	t.Helper()
	all, err := migrations.Status(t.Context(), pool, schema)
	if err != nil || len(all) != int(migrations.Version) {
		t.Fatalf("status %v, %v", all, err)
	}
	for _, m := range all {
		if m.Pending() != want {
			t.Fatalf("%s pending: %v, want %v", m.Name, m.Pending(), want)
		}
		if !want && time.Since(m.Applied).Abs() > time.Minute {
			t.Errorf("%s applied %v", m.Name, m.Applied)
		}
	}
}

// expectStore looks at the first and the last thing that the migration makes.
func expectStore(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	q := pgx.Identifier{schema}.Sanitize()
	var rows, checkpoints int
	err := pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT (SELECT count(*) FROM %s.store), (SELECT count(*) FROM %s.checkpoints)`, q, q)).
		Scan(&rows, &checkpoints)
	if err != nil || rows != 1 || checkpoints != 0 {
		t.Fatalf("%d store rows, %d checkpoints: %v", rows, checkpoints, err)
	}
}

func tables(t *testing.T, pool *pgxpool.Pool, schema string) (names string) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class
		WHERE relkind IN ('r', 'p', 'S', 'v') AND relname NOT LIKE '%\_seq' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)`, schema).Scan(&names)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return names
}

func run(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func waitFor(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
		var ok bool
		if err := pool.QueryRow(t.Context(), sql, args...).Scan(&ok); err != nil {
			t.Fatal(err)
		}
		if ok {
			return
		}
	}
	t.Fatalf("never true: %s", sql)
}
