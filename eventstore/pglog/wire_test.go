// What an operation costs on the wire, and lost answers.

package pglog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// TestCost holds the number of statements and round trips of every operation that
// succeeds. The first call of each kind prepares its statement and is not counted.
func TestCost(t *testing.T) {
	_, schema, _, plain := fresh(t)
	var w wire
	_, s := open(t, pool(t, pgtest.DSN(t), w.config), schema)
	ctx := t.Context()

	var b eventstore.Batch
	var last eventstore.Receipt
	n := 0
	key := func() eventstore.Stream {
		n++
		return eventstore.Stream("account-" + eventstore.NewUUID().String())
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lease := eventstore.Lease{}
	for _, op := range []struct {
		name              string
		run               func()
		statements, trips int64
	}{
		{"first append", func() {
			b = batch(key(), 3)
			last = must(t, s, one(b)).Receipts[0]
		}, 1, 1},
		{"append", func() { b = next(b, last, 3); last = must(t, s, one(b)).Receipts[0] }, 1, 1},
		{"append to several streams with a guard", func() {
			must(t, s, eventstore.Append{Batches: []eventstore.Batch{batch(key(), 1), batch(key(), 2)}, Guards: []eventstore.Guard{{Stream: b.Stream, At: last.Last}}})
		}, 1, 1},
		{"read", func() { _, err := s.ReadFrom(ctx, b.Stream, 0, 0); check(err) }, 1, 1},
		{"read backward", func() { _, err := s.ReadBackwardPage(ctx, b.Stream, 0, 0); check(err) }, 1, 1},
		{"head", func() { _, err := s.Head(ctx, b.Stream); check(err) }, 1, 1},
		{"fence", func() { _, err := s.Fence(ctx, key(), b.Holder); check(err) }, 1, 1},
		{"load", func() { _, err := s.Load(ctx, b.Stream, "v1"); check(err) }, 4, 1}, // begin, head with snapshot, tail, commit
		{"feed", func() { _, err := s.ReadFeed(ctx, 0, eventstore.Filter{}, 0); check(err) }, 4, 1},
		{"feed of a category", func() {
			_, err := s.ReadFeed(ctx, 0, eventstore.Filter{Categories: []eventstore.Category{"account"}}, 0)
			check(err)
		}, 4, 1},
		{"save snapshot", func() {
			check(s.SaveSnapshot(ctx, eventstore.Snapshot{Stream: b.Stream, At: last.Last, Fingerprint: "v1"}))
		}, 1, 1},
		{"acquire lease", func() { var err error; lease, _, err = s.AcquireLease(ctx, "l", b.Holder, 0); check(err) }, 1, 1},
		{"renew lease", func() { var err error; lease, err = s.RenewLease(ctx, lease, 0); check(err) }, 1, 1},
	} {
		op.run()
		op.run() // the same connection may have to prepare it for another path
		w.reset()
		op.run()
		if got, trips := w.statements.Load(), w.syncs.Load(); got != op.statements || trips != op.trips {
			t.Errorf("%s: %d statements in %d round trips, want %d in %d", op.name, got, trips, op.statements, op.trips)
		}
	}
	_ = plain
}

// TestLostAnswer: the server commits, the answer never comes, the context ends.
func TestLostAnswer(t *testing.T) {
	_, schema, _, plain := fresh(t)
	var w wire
	_, s := open(t, pool(t, pgtest.DSN(t), w.config), schema)
	warm := batch("account-warm", 1)
	must(t, s, one(warm))

	b := batch("account-a", 2)
	w.mute.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := s.Append(ctx, one(b))
	if !errors.Is(err, eventstore.ErrUnknown) {
		t.Fatalf("append without an answer: %v, want ErrUnknown", err)
	}
	w.mute.Store(false)
	eventually(t, "the append that was sent is committed", func() bool {
		h, err := plain.Head(t.Context(), b.Stream)
		return err == nil && h.Last.Seqno == 2
	})
	first := feed(t, plain)
	done := must(t, s, one(b))
	if r := done.Receipts[0]; !r.Replays || r.First != 1 || r.Last.Seqno != 2 || done.Token.Position != first[len(first)-1].Position {
		t.Errorf("resent: %+v, want the first receipt and position %d", done, first[len(first)-1].Position)
	}
	if again := feed(t, plain); len(again) != len(first) {
		t.Errorf("%d entries after resending, want %d", len(again), len(first))
	}
}

// TestServerKilled: the postmaster is killed with appends in flight; every outcome
// that was unknown is learned by resending, once.
func TestServerKilled(t *testing.T) {
	srv, p := server(t)
	_, s := open(t, p, "")
	create(t, s, "account")
	const writers = 8
	type sent struct {
		b   eventstore.Batch
		err error
	}
	out := make(chan sent)
	stop := make(chan struct{})
	for w := range writers {
		go func() {
			var last sent
			defer func() { out <- last }()
			stream := eventstore.Stream("account-" + string(rune('a'+w)))
			b := batch(stream, 1)
			for i := range 100_000 {
				done, err := s.Append(context.Background(), one(b))
				last = sent{b, err}
				if err != nil {
					return
				}
				if i == 20 && w == 0 {
					close(stop)
				}
				b = next(b, done.Receipts[0], 1)
			}
		}()
	}
	<-stop
	srv.KillPostmaster(t)
	var all []sent
	for range writers {
		all = append(all, <-out)
	}
	srv.Start(t)
	eventually(t, "the server takes connections", func() bool { _, err := s.Head(t.Context(), "account-a"); return err == nil })
	for _, x := range all {
		if !errors.Is(x.err, eventstore.ErrUnknown) && !errors.Is(x.err, eventstore.ErrUnavailable) && !errors.Is(x.err, eventstore.ErrOverloaded) {
			t.Errorf("append to a killed server: %v", x.err)
		}
		before, err := s.Head(t.Context(), x.b.Stream)
		if err != nil {
			t.Fatal(err)
		}
		done := must(t, s, one(x.b))
		if there := before.Last.Seqno == x.b.Last(); done.Receipts[0].Replays != there {
			t.Errorf("%s: resent batch replays %v, but it was there: %v", x.b.Stream, done.Receipts[0].Replays, there)
		}
	}
}
