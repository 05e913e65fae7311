// The database's clock jumps, hours forward and back.

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
)

// clock is that of a server, which libfaketime bends as a file says.
type clock struct {
	t    *testing.T
	file string
}

func newClock(t *testing.T) (*clock, pgtest.Option) {
	t.Helper()
	library := ""
	for _, place := range []string{"/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1", "/usr/local/lib/faketime/libfaketimeMT.so.1",
		"/opt/homebrew/lib/faketime/libfaketimeMT.1.dylib", "/usr/local/lib/faketime/libfaketimeMT.1.dylib"} {
		if found, _ := filepath.Glob(place); len(found) > 0 {
			library = found[0]
			break
		}
	}
	if library == "" {
		t.Fatal("libfaketime is not installed: install the package faketime (apt-get install faketime; dnf install libfaketime)")
	}
	dir, err := os.MkdirTemp("", "wattle-clock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the server runs as another user
		t.Fatal(err)
	}
	c := &clock{t, filepath.Join(dir, "clock")}
	c.write("+0")
	return c, func(s *pgtest.Server) {
		for _, v := range []string{"LD_PRELOAD=" + library, "DYLD_INSERT_LIBRARIES=" + library, "FAKETIME_TIMESTAMP_FILE=" + c.file, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_DONT_RESET=1"} {
			pgtest.Env(v)(s)
		}
	}
}

func (c *clock) write(offset string) {
	c.t.Helper()
	next := c.file + ".next"
	if err := os.WriteFile(next, []byte(offset+"\n"), 0o644); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(next, c.file); err != nil {
		c.t.Fatal(err)
	}
}

// set puts the clock of s off by some hours from ours.
func (c *clock) set(s *eventstore.Store, offset string, off time.Duration) {
	c.t.Helper()
	c.write(offset)
	var now time.Time
	eventually(c.t, "the server's clock jumps", func() bool {
		err := poolOf(c.t, s).QueryRow(c.t.Context(), "select clock_timestamp()").Scan(&now)
		return err == nil && (time.Until(now)-off).Abs() < 5*time.Minute
	})
}

// TestClockJumps: with the clock two hours ahead, then two behind, under load. Time does
// not fall along a stream, epochs rise, who lost a lease to the clock is fenced. Two
// workers share the lanes of a projector: its effects happen once, and all lanes are worked
// on within TTL + 5 s of each jump.
func TestClockJumps(t *testing.T) {
	c, faked := newClock(t)
	srv := pgtest.NewServer(t, faked)
	migrated(t, srv)
	direct(t, srv).Close()
	p := newPool(t, srv.DSN())
	_, s := open(t, p)
	w := start(t, s, 4, 1)
	two := []*projection{project(t, s, p, sharing), project(t, s, p, sharing)}
	eventually(t, "the workers share the lanes", func() bool { return len(two[0].p.Status().Lanes) == 2 && len(two[1].p.Status().Lanes) == 2 })
	passing(t, s, "start", two)
	w.working("start", time.Now())

	alpha, beta, gamma := eventstore.NewUUID(), eventstore.NewUUID(), eventstore.NewUUID()
	lease := c.acquire(s, alpha)
	owned := batch("account-owned", 1)
	owned.Epoch, owned.Holder, owned.Claim = lease.Epoch, alpha, false
	c.fence(s, owned.Stream, lease)
	must(t, s, owned)

	c.set(s, "+2h", 2*time.Hour)
	passing(t, s, "two hours ahead", two)
	w.working("two hours ahead", time.Now())
	taken := c.acquire(s, beta) // the first one's looks as if it had run out
	if taken.Epoch <= lease.Epoch {
		t.Errorf("epoch %d after %d", taken.Epoch, lease.Epoch)
	}
	_, err := s.RenewLease(t.Context(), lease, 0)
	wantKind(t, "renew what was given to another", err, eventstore.ErrLeaseLost)
	c.fence(s, owned.Stream, taken)
	_, err = s.Append(t.Context(), one(next(owned, 1)))
	wantKind(t, "append under the epoch of before", err, eventstore.ErrFenced)
	theirs := next(owned, 1)
	theirs.Epoch, theirs.Holder = taken.Epoch, beta
	must(t, s, theirs)

	given := eventstore.LeaseUpdate{Holder: alpha, TTL: sharing.LeaseTTL, Prefix: "given", Acquire: []string{"given"}}
	all, err := s.UpdateLeases(t.Context(), given)
	if err != nil || len(all) != 1 || all[0].Left <= 0 {
		t.Fatalf("acquired %+v, %v", all, err)
	}
	given.Acquire, given.Release = nil, all
	if _, err := s.UpdateLeases(t.Context(), given); err != nil {
		t.Fatal(err)
	}

	c.set(s, "-2h", -2*time.Hour)
	if all, err := s.UpdateLeases(t.Context(), eventstore.LeaseUpdate{Holder: beta, TTL: sharing.LeaseTTL, Prefix: "given"}); err != nil || len(all) != 1 || all[0].Left != 0 {
		t.Errorf("a lease that was released before the clock fell: %+v, %v", all, err)
	}
	passing(t, s, "two hours behind", two)
	w.working("two hours behind", time.Now())
	if _, granted, err := s.AcquireLease(t.Context(), "work", gamma, 0); err != nil || granted {
		t.Errorf("a lease that is held was given away: %v, %v", granted, err)
	}
	renewed, err := s.RenewLease(t.Context(), taken, 0)
	if err != nil || renewed.Epoch != taken.Epoch || renewed.Left > 2*eventstore.DefaultLeaseTTL {
		t.Errorf("renewed %+v, %v", renewed, err)
	}
	if err := s.ReleaseLease(t.Context(), renewed); err != nil {
		t.Fatal(err)
	}
	if last := c.acquire(s, gamma); last.Epoch <= taken.Epoch {
		t.Errorf("epoch %d after %d", last.Epoch, taken.Epoch)
	}
	must(t, s, next(theirs, 1))
	c.frozen(s)
	passing(t, s, "four hours behind", two)
	c.set(s, "+0", 0)
	passing(t, s, "as ours again", two)

	there := direct(t, srv)
	w.stop(there)
	for _, x := range two {
		x.stop(there)
	}
}

// sharing is how the two workers of the projector work.
var sharing = &projector.Options{Lanes: 4, LeaseTTL: 2 * time.Second}

// passing fails unless all lanes are worked on within TTL + 5 s from now: each has
// something to handle, appended now, and all of it is passed. So every worker goes on.
func passing(t *testing.T, s *eventstore.Store, what string, workers []*projection) {
	t.Helper()
	began, a, lanes := time.Now(), eventstore.Append{}, map[int]bool{}
	for i := 0; len(lanes) < sharing.Lanes; i++ {
		stream := eventstore.Stream(fmt.Sprintf("account-%s-%d", eventstore.NewUUID(), i))
		if lane := projector.LaneOf(stream.Slot(), sharing.Lanes); !lanes[lane] {
			lanes[lane] = true
			a.Batches = append(a.Batches, batch(stream, 2))
		}
	}
	done := must(t, s, a.Batches...)
	ctx, cancel := context.WithTimeout(t.Context(), sharing.LeaseTTL+5*time.Second)
	defer cancel()
	if err := workers[0].p.Wait(ctx, done.Token); err != nil {
		t.Fatalf("%s: not all lanes are worked on: %v", what, err)
	}
	for i, x := range workers {
		if len(x.done) > 0 {
			t.Fatalf("%s: worker %d has stopped: %v", what, i, <-x.done)
		}
	}
	t.Logf("%s: all lanes have passed what was appended %v later", what, time.Since(began).Round(time.Millisecond))
}

func (c *clock) acquire(s *eventstore.Store, holder eventstore.UUID) eventstore.Lease {
	c.t.Helper()
	lease, granted, err := s.AcquireLease(c.t.Context(), "work", holder, 0)
	if err != nil || !granted {
		c.t.Fatalf("not granted: %+v, %v", lease, err)
	}
	return lease
}

func (c *clock) fence(s *eventstore.Store, stream eventstore.Stream, lease eventstore.Lease) {
	c.t.Helper()
	if _, err := s.FenceAt(c.t.Context(), stream, lease.Epoch, lease.Holder); err != nil {
		c.t.Fatal(err)
	}
}

// frozen: a transaction that holds the feed seems to have begun in the future. Its age
// says nothing, but that it stays where it is does.
func (c *clock) frozen(s *eventstore.Store) {
	t := c.t
	t.Helper()
	p := poolOf(t, s)
	unbounded, err := pglog.Open(t.Context(), p, &pglog.Options{HolderTTL: -1})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := pglog.AppendTx(t.Context(), eventstore.New(unbounded, nil), tx, one(batch("account-frozen", 1))); err != nil {
		t.Fatal(err)
	}
	c.set(s, "-4h", -4*time.Hour)
	watched, err := pglog.Open(t.Context(), p, &pglog.Options{HolderTTL: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the watchdog ends it", func() bool {
		if _, err := watched.ReadFeed(t.Context(), 0, eventstore.Filter{}, 1); err != nil {
			t.Fatal(err)
		}
		var there bool
		err := p.QueryRow(t.Context(), "select exists (select from pg_stat_activity where pid = $1)", int64(tx.Conn().PgConn().PID())).Scan(&there)
		return err == nil && !there
	})
}
