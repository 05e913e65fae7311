// A synchronous standby that never comes: a wait for it that somebody cancels, or that
// ends with the session, is no acknowledgement.

package pglog_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
)

// standby is a server that waits for a standby, or not.
type standby struct {
	t *testing.T
	p *pgxpool.Pool
}

func (s standby) name(names string) {
	s.t.Helper()
	exec1(s.t, s.p, "alter system set synchronous_standby_names = '"+names+"'")
	exec1(s.t, s.p, "select pg_reload_conf()")
	eventually(s.t, "the server knows its standby", func() bool {
		return number(s.t, s.p, "select (current_setting('synchronous_standby_names') = $1)::int", names) == 1
	})
}

// end calls pg_cancel_backend or pg_terminate_backend for the n sessions that wait.
func (s standby) end(how string, n int64) {
	s.t.Helper()
	eventually(s.t, "the commit waits for the standby", func() bool {
		return number(s.t, s.p, "select count(*) from pg_stat_activity where wait_event = 'SyncRep'") == n
	})
	exec1(s.t, s.p, "select "+how+"(pid) from pg_stat_activity where wait_event = 'SyncRep'")
}

func TestCancelledStandbyWait(t *testing.T) {
	t.Parallel()
	_, p := server(t)
	l, plain := open(t, p, "")
	create(t, plain, "account")
	exec1(t, p, "create table wattle.effects (name text primary key, n int not null)")
	c := counted{p, "wattle", l, plain}
	var noticed atomic.Int64
	watched := pool(t, p.Config().ConnString(), func(c *pgxpool.Config) {
		c.ConnConfig.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { noticed.Add(1) }
		pglog.Configure(c.ConnConfig)
	})
	_, s := open(t, watched, "")
	var said lines
	grouping, err := pglog.Open(t.Context(), watched, &pglog.Options{Senders: 1, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	groups := eventstore.New(grouping, nil)
	owned, second := batch(newStream(), 1), batch(newStream(), 1)
	own, own2 := next(owned, must(t, s, one(owned)).Receipts[0], 1), next(second, must(t, s, one(second)).Receipts[0], 1)
	sb := standby{t, p}
	sb.name("ghost")
	t.Cleanup(func() { // or who waits for ever would keep its pool from being closed
		p.Exec(context.Background(), "alter system reset synchronous_standby_names")
		p.Exec(context.Background(), "select pg_reload_conf()")
	})

	background := func(f func() error) (told <-chan error) {
		ch := make(chan error, 1)
		go func() { ch <- f() }()
		return ch
	}
	unknown := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, eventstore.ErrUnknown) {
			t.Fatalf("%s: %v, want ErrUnknown", what, err)
		}
	}
	fresh := batch(newStream(), 2)
	inside := batch(newStream(), 1)
	resends := []func(ctx context.Context) (eventstore.Appended, error){
		func(ctx context.Context) (eventstore.Appended, error) { return s.Append(ctx, one(fresh)) },
		func(ctx context.Context) (eventstore.Appended, error) {
			return c.within(ctx, s, one(inside), func() {})
		},
	}
	for _, how := range []string{"pg_cancel_backend", "pg_terminate_backend"} {
		for i, send := range resends { // the second time round each is a proof
			told := background(func() error { _, err := send(t.Context()); return err })
			sb.end(how, 1)
			unknown(how+" of "+[]string{"an append", "Within"}[i], <-told)
		}
		told := background(func() error { _, err := s.Fence(t.Context(), newStream(), eventstore.NewUUID()); return err })
		sb.end(how, 1)
		unknown(how+" of a fence", <-told)
	}
	made := background(func() error {
		return s.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "other"})
	})
	sb.end("pg_cancel_backend", 1)
	unknown("a category", <-made)

	// The first waits in the only sender, the second goes as a group behind it.
	first := background(func() error { _, err := groups.Append(t.Context(), one(own)); return err })
	eventually(t, "the first waits", func() bool {
		return number(t, p, "select count(*) from pg_stat_activity where wait_event = 'SyncRep'") == 1
	})
	behind := background(func() error { _, err := groups.Append(t.Context(), one(own2)); return err })
	eventually(t, "the second is queued", func() bool { return grouping.Queued() == 1 })
	sb.end("pg_cancel_backend", 1)
	unknown("the first", <-first)
	sb.end("pg_cancel_backend", 1)
	unknown("the group", <-behind)
	if noticed.Load() == 0 {
		t.Error("the caller's own OnNotice is no longer called")
	}

	// Healed: what was unknown is proved.
	sb.name("")
	for i, b := range []eventstore.Batch{fresh, own, own2} {
		if done := must(t, s, one(b)); !done.Receipts[0].Replays {
			t.Errorf("%d, sent again: %+v, want it proved", i, done)
		}
	}
	if strings.Contains(said.String(), "standby") {
		t.Errorf("Open warned of a pool that was configured, on a server without standby: %s", said.String())
	}
}

// TestStandbyWarning: Open says that a pool would not notice, where that matters.
func TestStandbyWarning(t *testing.T) {
	t.Parallel()
	_, p := server(t)
	standby{t, p}.name("ghost")
	configured := pool(t, p.Config().ConnString(), func(c *pgxpool.Config) { pglog.Configure(c.ConnConfig) })
	for name, x := range map[string]struct {
		p    *pgxpool.Pool
		want bool
	}{"bare": {p, true}, "configured": {configured, false}} {
		var said lines
		if _, err := pglog.Open(t.Context(), x.p, &pglog.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(said.String(), "pglog.Configure"); got != x.want {
			t.Errorf("%s pool: Open said %q, want a warning: %v", name, said.String(), x.want)
		}
	}
}
