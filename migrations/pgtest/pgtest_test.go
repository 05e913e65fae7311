// The helper's own promises: durable, own schema, own server through crashes, nothing left behind.

package pgtest_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/migrations/pgtest"
)

// asChild makes the test binary start a server, say where it is, and wait to be killed.
const asChild = "PGTEST_CHILD"

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestServerIsDurable(t *testing.T) {
	pool := pgtest.Pool(t)
	for setting, want := range map[string]string{"fsync": "on", "synchronous_commit": "on", "server_encoding": "UTF8"} {
		var got string
		if err := pool.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q (%v), want %q", setting, got, err, want)
		}
	}
}

func TestSchemasAreApartAndDropped(t *testing.T) {
	var dropped string
	t.Run("inner", func(t *testing.T) {
		pool, a := pgtest.Schema(t)
		_, b := pgtest.Schema(t)
		if a == b || len(a) > 63 {
			t.Fatalf("schemas %q and %q", a, b)
		}
		var one int
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM "+a+".store").Scan(&one); err != nil || one != 1 {
			t.Fatalf("%d store rows, %v", one, err)
		}
		dropped = a
	})
	var left bool
	err := pgtest.Pool(t).QueryRow(t.Context(), "SELECT to_regnamespace($1) IS NOT NULL", dropped).Scan(&left)
	if err != nil || left {
		t.Fatalf("schema %s still there: %v, %v", dropped, left, err)
	}
}

func TestServerOfItsOwn(t *testing.T) {
	s := pgtest.NewServer(t, pgtest.Setting("work_mem", "7MB"))
	exec := func(sql string) string {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), s.DSN())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		var out string
		if err := conn.QueryRow(t.Context(), sql).Scan(&out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := exec("SHOW work_mem"); got != "7MB" {
		t.Errorf("work_mem is %s", got)
	}
	exec("WITH c AS (SELECT pg_stat_reset()) SELECT 'ok' FROM c")
	for _, end := range []func(testing.TB){s.Stop, s.Immediate, s.KillPostmaster} {
		end(t)
		if _, err := pgx.Connect(t.Context(), s.DSN()); err == nil {
			t.Fatal("the server still answers")
		}
		s.Start(t)
		if got := exec("SELECT 'up'"); got != "up" {
			t.Fatal(got)
		}
	}
}

// A killed test binary leaves neither server nor directory.
func TestWatchdog(t *testing.T) {
	if os.Getenv(asChild) != "" {
		s := pgtest.NewServer(t)
		os.Stdout.WriteString("dir " + s.SocketDir() + "\n")
		select {}
	}
	child := exec.Command(os.Args[0], "-test.run=^TestWatchdog$")
	child.Env = append(os.Environ(), asChild+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = child.Process.Kill()
	_ = child.Wait()
	dir, ok := strings.CutPrefix(strings.TrimSpace(line), "dir ")
	if err != nil || !ok {
		t.Fatalf("the child said %q, %v", line, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for exists(dir) {
		select {
		case <-ctx.Done():
			t.Fatalf("%s is still there", filepath.Join(dir, "data"))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A standby streams through a proxy, is cut off, and becomes a primary of its own; the old primary serves on as a
// standby that follows nobody. A killed session makes the server begin anew.
func TestStandby(t *testing.T) {
	a := pgtest.NewServer(t)
	link := pgtest.NewProxy(t, a.Port())
	b := a.Standby(t, link.Port())
	a.Set(t, "synchronous_standby_names", b.Name())
	run := func(s *pgtest.Server, sql string) (out string, err error) {
		conn, err := pgx.Connect(t.Context(), s.DSN())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		rows, err := conn.Query(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return "", err
		}
		for rows.Next() {
			if err := rows.Scan(&out); err != nil {
				return "", err
			}
		}
		return out, rows.Err()
	}
	must := func(s *pgtest.Server, sql string) string {
		t.Helper()
		out, err := run(s, sql)
		if err != nil {
			t.Fatal(sql, err)
		}
		return out
	}
	must(a, "CREATE TABLE x AS SELECT 1::text AS v")
	a.CaughtUp(t, b)
	if got := must(b, "SELECT v FROM x"); got != "1" {
		t.Errorf("the standby has %q", got)
	}
	if got := must(a, "SELECT sync_state FROM pg_stat_replication"); got != "sync" {
		t.Errorf("replication is %q", got)
	}
	a.Set(t, "synchronous_standby_names", "")
	link.Point(0)
	link.Cut()
	must(a, "UPDATE x SET v = 2::text")
	b.Promote(t)
	if got := must(b, "UPDATE x SET v = v || 'b' RETURNING v"); got != "1b" {
		t.Errorf("the new primary has %q", got)
	}
	a.Stop(t)
	a.Follow(t, 0)
	if got := must(a, "SELECT v || pg_is_in_recovery() FROM x"); got != "2true" {
		t.Errorf("the old primary has %q", got)
	}
	conn, err := pgx.Connect(t.Context(), b.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	b.KillBackend(t, conn.PgConn().PID())
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the killed session answers")
	}
	if got := must(b, "SELECT v FROM x"); got != "1b" {
		t.Errorf("after the crash it has %q", got)
	}
}
