// The real binary: killed at any point and run again, interrupted, ended.

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan/bankpg"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// build builds the binary as users do.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wattle")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// process is a running binary.
type process struct {
	*exec.Cmd
	out, err bytes.Buffer
}

func start(t *testing.T, binary string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(binary, args...)}
	p.Stdout, p.Stderr = &p.out, &p.err
	p.Env = append(os.Environ(), storeVariable+"=")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// end waits for the process and returns its exit code, -1 if a signal ended it.
func (p *process) end(t *testing.T) int {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.Wait() }()
	select {
	case <-done:
		return p.ProcessState.ExitCode()
	case <-time.After(time.Minute):
		t.Fatalf("%q does not end\n%s", p.Args, p.err.String())
		return 0
	}
}

func TestBinary(t *testing.T) {
	t.Parallel()
	binary := build(t)
	t.Run("killed", func(t *testing.T) { testKilled(t, binary) })
	t.Run("killed in files", func(t *testing.T) { testKilledFiles(t, binary) })
	t.Run("interrupted", func(t *testing.T) { testInterrupted(t, binary) })
}

// testKilled kills an import into PostgreSQL, by what the store and every other time the
// read model holds.
func testKilled(t *testing.T, binary string) {
	store := migrated(t)
	progress := &progress{t: t, pool: pgtest.Pool(t), schema: schemaOf(t, store)}
	killOften(t, binary, store, progress.recorded, progress.projected)
}

// testKilledFiles kills an import into files, by what the store holds. The read model
// is in the memory of the process; killing early catches it being made anew, and the
// store being made or opened.
func testKilledFiles(t *testing.T, binary string) {
	store := "file:" + filepath.Join(t.TempDir(), "demo")
	beside := &beside{t: t, store: store}
	defer beside.close()
	killOften(t, binary, store, beside.recorded)
	if n := beside.recorded(); n != len(entries(t, store)) {
		t.Errorf("who has read beside all the time has seen %d entries", n)
	}
}

// killOften kills one import 20 times with SIGKILL, when what the looks say, in turns, has
// grown by a number of events chosen by seed, or some time after the start; each run goes
// on where the one before was killed. In the end everything is as if nothing had happened.
func killOften(t *testing.T, binary, store string, looks ...func() int) {
	const kills = 20
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("WATTLE_TEST_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("WATTLE_TEST_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))

	file, events := xesFile(t, 1, cut, nil)
	recorded := looks[0]
	args := func() []string {
		return []string{"demo", "--json", "--xes", file, "--store", store, "--writers", []string{"1", "4", "16"}[rng.IntN(3)]}
	}
	for kill := range kills {
		look := looks[kill%len(looks)]
		left := events - look()
		at, pause := min(events, look()+rng.IntN(1+2*left/(kills-kill))), 2*time.Millisecond
		if kill%4 == 0 { // while it makes or opens the store, and catches up
			at, pause = look(), 40*time.Millisecond
		}
		p := start(t, binary, args()...)
		died := make(chan struct{})
		go func() { _ = p.Wait(); close(died) }()
		for look() < at {
			select {
			case <-died:
				t.Fatalf("kill %d at %d of %d: it ended by itself: %s", kill, at, events, p.err.String())
			case <-time.After(time.Millisecond):
			}
		}
		time.Sleep(time.Duration(rng.Int64N(int64(pause))))
		if err := p.Process.Signal(syscall.SIGKILL); err != nil {
			t.Logf("kill %d at %d of %d: it was faster", kill, at, events)
		}
		<-died
		t.Logf("kill %d at %d of %d: %d recorded", kill, at, events, recorded())
	}
	p := start(t, binary, args()...)
	if code := p.end(t); code != 0 || p.out.String() != reportOf(t, 1, cut) {
		t.Errorf("wanted\n%sfound exit code %d and\n%s%s", reportOf(t, 1, cut), code, p.out.String(), p.err.String())
	}
	if n := len(entries(t, store)); n != events {
		t.Errorf("wanted %d entries, found %d", events, n)
	}
}

// beside reads a store in files beside those who write to it.
type beside struct {
	t     *testing.T
	store string
	open  *open.Store // nil: there is none yet
	after eventstore.Position
	count int
}

// recorded is how many entries there are.
func (b *beside) recorded() int {
	b.t.Helper()
	if b.open == nil {
		target, err := open.Parse(b.store)
		if err != nil {
			b.t.Fatal(err)
		}
		if b.open, err = target.Open(b.t.Context(), &open.Options{ReadOnly: true}); errors.Is(err, eventstore.ErrNotMigrated) {
			return 0
		} else if err != nil {
			b.t.Fatal(err)
		}
	}
	for end := false; !end; {
		p, err := b.open.ReadFeed(b.t.Context(), b.after, eventstore.Filter{}, 0)
		if err != nil {
			b.t.Fatal(err)
		}
		b.count += len(p.Entries)
		b.after = max(b.after, p.Through.Position)
		end = p.End
	}
	return b.count
}

func (b *beside) close() {
	if b.open != nil {
		b.open.Close()
	}
}

// progress looks at the tables of a store from outside.
type progress struct {
	t      *testing.T
	pool   *pgxpool.Pool
	schema string
}

// recorded is how many entries there are.
func (p *progress) recorded() int {
	return p.count("SELECT count(*) FROM " + pgx.Identifier{p.schema, "entries"}.Sanitize())
}

// projected is how many events the read model has seen.
func (p *progress) projected() int {
	table := pgx.Identifier{bankpg.SchemaBeside(p.schema), "applications_1"}.Sanitize()
	if p.count("SELECT count(*) FROM (SELECT to_regclass('"+table+"') AS c) AS t WHERE c IS NOT NULL") == 0 {
		return 0
	}
	return p.count("SELECT coalesce(sum((doc ->> 'events')::int), 0) FROM " + table)
}

func (p *progress) count(sql string) (n int) {
	p.t.Helper()
	if err := p.pool.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// testInterrupted ends running commands with signals.
func testInterrupted(t *testing.T, binary string) {
	store := migrated(t)
	progress := &progress{t: t, pool: pgtest.Pool(t), schema: schemaOf(t, store)}
	for _, d := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}} {
		demo := start(t, binary, "demo", "--cases", "100000", "--store", store)
		before := progress.recorded()
		until(t, "an import to be under way", func() bool { return progress.recorded() > before+10 })
		_ = demo.Process.Signal(d.signal)
		if code := demo.end(t); code != d.code || demo.out.Len() > 0 || demo.err.String() != "wattle: interrupted by "+d.signal.String()+"\n" {
			t.Errorf("wanted exit code %d, found %d: %s", d.code, code, demo.err.String())
		}
	}
	tail := start(t, binary, "tail", "application", "-f", "--store", store)
	time.Sleep(300 * time.Millisecond) // until it follows; earlier would be 0 too
	_ = tail.Process.Signal(syscall.SIGINT)
	if code := tail.end(t); code != 0 || tail.err.Len() > 0 {
		t.Errorf("wanted exit code 0, found %d: %s", code, tail.err.String())
	}
}
