// Package pgtest gives tests a real PostgreSQL: one throwaway server per test binary, or the one that the environment
// variable WATTLE_TEST_DSN names, and a fresh, migrated schema per test.
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestAppend(t *testing.T) {
//		pool, schema := pgtest.Schema(t)
//		…
//	}
//
// The server starts with the first test that asks for it and ends with the binary: Main stops it, and should the binary
// be killed, a watchdog process does. It runs with fsync and synchronous_commit on, as the one in production must. A
// missing PostgreSQL fails the test and says what to install; it never skips.
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/migrations"
)

// EnvDSN names the environment variable with the DSN of a server to use instead of a throwaway one. Its role must be
// allowed to create schemas. Only schemas made here are written to, and dropped.
const EnvDSN = "WATTLE_TEST_DSN"

// poolConns bounds a test's pool, so that a dozen parallel tests stay below the server's max_connections.
const poolConns = 12

// shared is the binary's server. It is a package variable because Main and tests meet nowhere else.
var shared struct {
	sync.Mutex
	server *Server
	err    error
}

// password is in the DSNs of this package, though its servers let everybody in: no output may
// hold it, and "make test" looks for it in that of every test.
const password = "c4n4ry-of-a-dsn"

// Main runs the tests of a binary, ends its server and exits. Use it as the whole TestMain of a package that calls this
// one.
func Main(m *testing.M) { os.Exit(M{m}.Run()) }

// M is a testing.M whose Run ends the server that the tests have shared, for a TestMain
// that has more to do afterwards.
type M struct{ *testing.M }

// Run runs the tests, and returns the exit code.
func (m M) Run() int {
	code := m.M.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		if code != 0 {
			os.Stderr.WriteString("pgtest: the end of the server's log:\n" + shared.server.Log(40))
		}
		shared.server.Close()
	}
	return code
}

// DSN is the connection URL of the server that this binary's tests share, started if need be.
func DSN(t testing.TB) string {
	t.Helper()
	if dsn := os.Getenv(EnvDSN); dsn != "" {
		return dsn
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = Launch()
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server.DSN()
}

// Pool is a new pool of at most 12 connections on the shared server, closed when the test ends; a connection that the
// test has not given back 10 s later is an error of the test.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return newPool(t, DSN(t))
}

// Schema makes an empty migrated schema of its own for a test, dropped when the test ends, and a [Pool]. Its name says
// which test it belongs to.
func Schema(t testing.TB) (pool *pgxpool.Pool, schema string) {
	t.Helper()
	dsn := DSN(t)
	schema = SchemaName(t)
	t.Cleanup(func() { dropSchema(t, dsn, schema) }) // runs after the pool's own cleanup
	pool = newPool(t, dsn)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := migrations.Up(ctx, pool, schema); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return pool, schema
}

// SchemaName is a new name, not yet a schema, of at most 63 bytes: the test's name and 32 random bits.
func SchemaName(t testing.TB) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(t.Name()))
	var random [4]byte
	rand.Read(random[:])
	return "t_" + clean[:min(len(clean), 50)] + "_" + hex.EncodeToString(random[:])
}

func newPool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	config.MaxConns = poolConns
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// closePool bounds Close, which waits for every connection that is out.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	done := make(chan struct{})
	go func() { pool.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Errorf("pgtest: %d connections were not given back to the pool", pool.Stat().AcquiredConns())
	}
}

// dropSchema bounds its wait for locks: a transaction that the test left open must not hang the run.
func dropSchema(t testing.TB, dsn, schema string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Errorf("pgtest: drop schema %s: %v", schema, err)
		return
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "SET lock_timeout = '15s'; SET client_min_messages = warning; DROP SCHEMA IF EXISTS "+
		pgx.Identifier{schema}.Sanitize()+" CASCADE")
	if err != nil {
		t.Errorf("pgtest: drop schema %s (is a transaction of the test still open?): %v", schema, err)
	}
}
