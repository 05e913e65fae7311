// Readiness, and what reads do on connections that turn out unfit.

package pglog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// TestPing: nil where an append comes through, also for a role with no more rights than
// an append needs, and the reason where it does not.
func TestPing(t *testing.T) {
	p, schema, l, s := fresh(t)
	if err := l.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	role := "ping_" + schema[max(0, len(schema)-8):]
	exec1(t, p, "create role "+role)
	t.Cleanup(func() {
		p.Exec(context.Background(), "drop owned by "+role)
		p.Exec(context.Background(), "drop role "+role)
	})
	exec1(t, p, "grant usage on schema "+schema+" to "+role)
	exec1(t, p, "grant select, insert, update, delete on all tables in schema "+schema+" to "+role)
	exec1(t, p, "grant usage, select on all sequences in schema "+schema+" to "+role)
	for _, x := range []struct {
		name, param, value string
		want               error
	}{
		{"ordinary role", "role", role, nil},
		{"read-only session", "default_transaction_read_only", "on", eventstore.ErrReadOnly},
		{"stricter isolation", "default_transaction_isolation", "serializable", eventstore.ErrIsolation},
	} {
		bent, bs := open(t, pool(t, pgtest.DSN(t), withParam(x.param, x.value)), schema)
		if err := bent.Ping(t.Context()); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
		_, err := bs.Append(t.Context(), one(batch("account-a", 1)))
		if (x.want == nil) != (err == nil) {
			t.Errorf("%s: append answers %v, so the ping should have told", x.name, err)
		}
		if _, err := bs.ReadFeed(t.Context(), 0, eventstore.Filter{}, 0); x.want == nil && err != nil {
			t.Errorf("%s: feed: %v", x.name, err)
		}
	}
	exec1(t, p, "drop schema "+schema+" cascade")
	if err := l.Ping(t.Context()); !errors.Is(err, eventstore.ErrNotMigrated) {
		t.Errorf("no schema: %v", err)
	}
	s.Close()
	if err := l.Ping(t.Context()); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestPingWaits: a server that answers all reads and waits for a synchronous standby
// that is not there is not ready.
func TestPingWaits(t *testing.T) {
	srv, p := server(t)
	l, _ := open(t, p, "")
	if err := l.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv.Set(t, "synchronous_standby_names", "nobody")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := l.Ping(ctx); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("no standby: %v, want ErrUnavailable", err)
	}
	srv.Set(t, "synchronous_standby_names", "")
	if err := l.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
