// A transaction that is prepared outlives its session and its server.

package cluster

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// TestPreparedTransaction: an append in a transaction that is prepared holds the feed
// through a crash, holds up no other append, and is delivered in its place. The
// watchdog, which finds no session to end, says so and leaves it.
func TestPreparedTransaction(t *testing.T) {
	srv := pgtest.NewServer(t)
	migrated(t, srv)
	p := newPool(t, srv.DSN())
	var said lines
	l, err := pglog.Open(t.Context(), p, &pglog.Options{HolderTTL: 200 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(l, nil)
	create(t, s, "account")
	before := must(t, s, batch("account-before", 1)).Token

	conn, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pglog.AppendTx(t.Context(), s, tx, one(batch("account-prepared", 2))); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "prepare transaction 'two phases'"); err != nil {
		t.Fatal(err)
	}
	conn.Release()
	must(t, s, batch("account-after", 1))
	held := func(what string) {
		t.Helper()
		page, err := s.ReadFeed(t.Context(), 0, eventstore.Filter{}, 0)
		if err != nil || len(page.Entries) != 1 || page.Through.Position != before.Position || page.Horizon > before.Position {
			t.Fatalf("%s: %d entries, through %v, horizon %d, %v; want what stands before the prepared append", what, len(page.Entries), page.Through, page.Horizon, err)
		}
	}
	held("prepared")
	srv.Immediate(t)
	srv.Start(t)
	eventually(t, "the pool has a connection", func() bool { return l.Ping(t.Context()) == nil })
	held("after the crash")
	other := batch("account-after2", 1)
	must(t, s, other)
	must(t, s, next(other, 1))
	eventually(t, "the watchdog says who holds the feed", func() bool {
		held("watched")
		return strings.Contains(said.String(), "two phases")
	})
	if n := strings.Count(said.String(), "ended a session"); n > 0 {
		t.Errorf("the watchdog ended %d sessions:\n%s", n, said.String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = s.Append(ctx, one(batch("account-prepared", 1)))
	wantKind(t, "an append to the same stream", err, eventstore.ErrUnknown) // it waits for the outcome

	exec(t, p, "commit prepared 'two phases'")
	var got []eventstore.Stream
	for _, e := range feed(t, s) {
		got = append(got, e.Stream)
	}
	want := []eventstore.Stream{"account-before", "account-prepared", "account-prepared", "account-after", "account-after2", "account-after2"}
	if !slices.Equal(got, want) {
		t.Errorf("feed %v, want %v", got, want)
	}
	if n := strings.Count(said.String(), "two phases"); n > 50 {
		t.Errorf("said %d times", n)
	}
}

// lines is a log that is written and read at once.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
