// What the tests of the command share: running it in process, its stores, a NATS server.

package main

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bankpg"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// asCommand in the environment has the test binary be the command, for the worker
// processes that a demo starts in process.
const asCommand = "WATTLE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	if err := os.Setenv(asCommand, "yes"); err != nil {
		panic(err)
	}
	pgtest.Main(m)
}

// result is what a run of the command left.
type result struct {
	code     int
	out, err string
}

func noEnv(string) string { return "" }

// wattle runs the command in process, without environment and input.
func wattle(t testing.TB, args ...string) result {
	t.Helper()
	return wattleIn(t, noEnv, "", args...)
}

func wattleIn(t testing.TB, env func(string) string, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out, err bytes.Buffer
	code := run(ctx, args, strings.NewReader(stdin), &out, &err, env)
	return result{code, out.String(), err.String()}
}

// wants checks the exit code, that stdout and stderr hold what they should, and
// that an error is one line.
func (r result) wants(t testing.TB, code int, parts ...string) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("wanted exit code %d, found %d\nstdout: %.2000s\nstderr: %.2000s", code, r.code, r.out, r.err)
	}
	for _, part := range parts {
		if !strings.Contains(r.out+r.err, part) {
			t.Errorf("wanted %q in the output\nstdout: %.2000s\nstderr: %.2000s", part, r.out, r.err)
		}
	}
	message := r.err
	if strings.HasPrefix(message, "wattle: going on with file:") { // a demo that goes on says so first
		_, message, _ = strings.Cut(message, "\n")
	}
	if code != 0 && (!strings.HasPrefix(message, "wattle: ") || strings.Count(message, "\n") != 1) {
		t.Errorf("wanted one line of error, found %q", r.err)
	}
	return r
}

// storeURL is a store of the test's own in PostgreSQL, not migrated. It and the
// demo's read model are dropped when the test ends.
func storeURL(t testing.TB) string {
	t.Helper()
	schema := pgtest.SchemaName(t)
	pool := pgtest.Pool(t)
	t.Cleanup(func() {
		for _, s := range []string{schema, bankpg.SchemaBeside(schema)} {
			if _, err := pool.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+pgx.Identifier{s}.Sanitize()+" CASCADE"); err != nil {
				t.Errorf("drop schema %s: %v", s, err)
			}
		}
	})
	u, err := url.Parse(pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("schema", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

// migrated is a store of the test's own in PostgreSQL.
func migrated(t testing.TB) string {
	t.Helper()
	store := storeURL(t)
	wattle(t, "migrate", "up", "--store", store).wants(t, 0)
	return store
}

// filed is an empty store of the test's own in files.
func filed(t testing.TB) string {
	t.Helper()
	store := "file:" + t.TempDir() + "/store"
	wattle(t, "migrate", "up", "--store", store).wants(t, 0)
	return store
}

// atHome is the environment of a user whose home is a directory of the test's own.
func atHome(home string) func(string) string {
	return func(name string) string {
		return map[string]string{"HOME": home, "LocalAppData": home, "XDG_STATE_HOME": home}[name]
	}
}

// demoDir is where the demo of such a user keeps its store.
func demoDir(t testing.TB, home string) string {
	t.Helper()
	dir, err := stateDir(runtime.GOOS, atHome(home))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "wattle", "demo")
}

// schemaOf is the schema that a store URL names.
func schemaOf(t testing.TB, store string) string {
	t.Helper()
	u, err := url.Parse(store)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("schema")
}

// natsURL starts a NATS server on a free port of loopback.
func natsURL(t testing.TB) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	return s.ClientURL()
}

// xesFile writes generated cases as an XES file and returns its path and how many
// events are in it.
func xesFile(t testing.TB, seed uint64, cases int, change func(*loan.Case)) (path string, events int) {
	t.Helper()
	var b bytes.Buffer
	err := loan.WriteXES(&b, func(yield func(loan.Case) bool) {
		for c := range loan.Generate(seed, cases) {
			if change != nil {
				change(&c)
			}
			events += len(c.Events)
			if !yield(c) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	path = t.TempDir() + "/log.xes"
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, events
}

// logOf is xesFile for stores that are to hold the applications of a log and nothing else.
func logOf(t testing.TB, cases int) string {
	t.Helper()
	path, _ := xesFile(t, 1, cases, nil)
	return path
}

// buffer is written by a running command and read by its test.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
