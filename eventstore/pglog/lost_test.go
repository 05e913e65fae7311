// Answers that come after the caller has given up, and appends that come after their
// owner has lost the stream.

package pglog_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/internal/cutproxy"
)

// appending is a way to append; it calls armed right before what commits is sent.
type appending func(ctx context.Context, s *eventstore.Store, a eventstore.Append, armed func()) (eventstore.Appended, error)

func plainly(ctx context.Context, s *eventstore.Store, a eventstore.Append, armed func()) (eventstore.Appended, error) {
	armed()
	return s.Append(ctx, a)
}

// within appends beside an effect.
func (c counted) within(ctx context.Context, s *eventstore.Store, a eventstore.Append, armed func()) (eventstore.Appended, error) {
	return pglog.Within(ctx, s, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
		err := c.effect(ctx, tx, a.Batches[0].ID.String())
		armed()
		return a, err
	})
}

// Case A7: the statement, or COMMIT, is carried out, and its answer is kept back until
// the caller's deadline has passed. He is told that the outcome is unknown; the same
// batch again gives the positions of the first time, and there is one copy.
func TestA7AnsweredAfterTheDeadline(t *testing.T) {
	t.Parallel()
	p := newProxied(t, 3, pglog.Options{}, nil)
	o := newOwner(p)
	for _, x := range []struct {
		name string
		send appending
		take func() eventstore.Batch
	}{
		{"owner's next", plainly, o.take},
		{"first append", plainly, func() eventstore.Batch { return batch(newStream(), 2) }},
		{"Within", p.within, o.take},
	} {
		if _, err := x.send(t.Context(), p.cut, one(x.take()), func() {}); err != nil { // prepares
			t.Fatal(err)
		}
		a := one(x.take())
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		_, err := x.send(ctx, p.cut, a, func() {
			p.proxy.Arm(cutproxy.Fault{Direction: cutproxy.ToClient, Mode: cutproxy.Hold})
		})
		cancel()
		if !p.proxy.Disarm() {
			t.Errorf("%s: no answer was kept back", x.name)
		}
		if !errors.Is(err, eventstore.ErrUnknown) {
			t.Errorf("%s, answered after the deadline: %v, want ErrUnknown", x.name, err)
		}
		p.proxy.Release()
		p.wantProof(t, x.name, x.send, a, p.store, p.cut)
	}
}

// Case A7, with the server killed instead: the append is committed, its answer on the
// way, and the server dies. The caller has no deadline.
func TestA7ServerKilledBehindCommit(t *testing.T) {
	t.Parallel()
	srv, straight := server(t)
	l, s := open(t, straight, "")
	create(t, s, "account")
	exec1(t, straight, "create table wattle.effects (name text primary key, n int not null)")
	c := counted{straight, "wattle", l, s}
	proxy, bent := behindProxy(t, srv.DSN(), func(*pgxpool.Config) {})
	_, cut := open(t, bent, "")
	for name, send := range map[string]appending{"Append": plainly, "Within": c.within} {
		a := one(batch(newStream(), 2))
		told := make(chan error, 1)
		fired := make(chan (<-chan struct{}), 1)
		go func() {
			_, err := send(context.Background(), cut, a, func() {
				fired <- proxy.Arm(cutproxy.Fault{Direction: cutproxy.ToClient, Mode: cutproxy.Hold})
			})
			told <- err
		}()
		strikes := <-fired
		for prepares := true; prepares; { // the first answer may be that of preparing
			<-strikes
			if prepares = c.head(t, a.Batches[0].Stream) == 0; prepares {
				strikes = proxy.Arm(cutproxy.Fault{Direction: cutproxy.ToClient, Mode: cutproxy.Hold})
				proxy.Release()
			}
		}
		srv.Immediate(t)
		proxy.Break()
		if err := <-told; !errors.Is(err, eventstore.ErrUnknown) {
			t.Errorf("%s: %v, want ErrUnknown", name, err)
		}
		srv.Start(t)
		eventually(t, "the server takes connections", func() bool { _, err := s.Head(t.Context(), "account-a"); return err == nil })
		c.wantProof(t, name, send, a, s)
	}
}

// wantProof sends an append again, through each store: it is proved at the position
// that it has, and nothing is written.
func (c counted) wantProof(t *testing.T, name string, send appending, a eventstore.Append, stores ...*eventstore.Store) {
	t.Helper()
	before := feed(t, c.store)
	var want eventstore.Position
	for _, e := range before {
		if e.BatchID == a.Batches[0].ID {
			want = e.Position
		}
	}
	for _, s := range stores {
		done, err := send(t.Context(), s, a, func() {})
		if err != nil || !done.Receipts[0].Replays || done.Token.Position != want || want == 0 {
			t.Errorf("%s, sent again: %+v %v, want it proved at position %d", name, done, err, want)
		}
	}
	if n := len(feed(t, c.store)); n != len(before) {
		t.Errorf("%s: %d entries after sending again, want %d", name, n, len(before))
	}
}

// Case L3: an old owner's append is kept back on its way to the server, or in the queue
// of his process; a new owner fences the stream, reads the head and decides; then it is
// let go. It is refused, and the head that was read stays final.
func TestL3AppendParkedBeforeTheFence(t *testing.T) {
	t.Parallel()
	p := newProxied(t, 3, pglog.Options{Senders: 1}, nil)
	fence := func(s eventstore.Stream) eventstore.Head {
		t.Helper()
		h, err := p.store.Fence(t.Context(), s, eventstore.NewUUID())
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	for _, x := range []struct {
		name string
		park func(told chan<- error, b eventstore.Batch) (release func())
	}{
		{"in the network", func(told chan<- error, b eventstore.Batch) func() {
			fired := p.proxy.Arm(cutproxy.Fault{Direction: cutproxy.ToServer, Mode: cutproxy.Hold})
			go func() { _, err := p.cut.Append(t.Context(), one(b)); told <- err }()
			<-fired
			return p.proxy.Release
		}},
		{"in the network, half of it", func(told chan<- error, b eventstore.Batch) func() {
			fired := p.proxy.Arm(cutproxy.Fault{Direction: cutproxy.ToServer, After: 200, Mode: cutproxy.Hold})
			go func() { _, err := p.cut.Append(t.Context(), one(b)); told <- err }()
			<-fired
			return p.proxy.Release
		}},
		{"in the queue", func(told chan<- error, b eventstore.Batch) func() {
			blocker := newOwner(p)
			unlock := p.lock(blocker.next.Stream)
			done := make(chan error, 1)
			go func() { _, err := p.cut.Append(t.Context(), one(blocker.take())); done <- err }()
			eventually(t, "the blocker waits in its sender", func() bool { return p.waiting() == 1 })
			go func() { _, err := p.cut.Append(t.Context(), one(b)); told <- err }()
			eventually(t, "the append is queued", func() bool { return p.cutLog.Queued() == 1 })
			return func() {
				unlock()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}},
	} {
		o := newOwner(p)
		for range 2 { // the statement is prepared
			must(t, p.cut, one(o.take()))
		}
		b := o.take()
		told := make(chan error, 1)
		release := x.park(told, b)
		h := fence(b.Stream)
		mine := batch(b.Stream, 1)
		mine.Claim, mine.Epoch, mine.Holder, mine.After = false, h.Epoch, h.Holder, h.Last
		release()
		if err := <-told; !errors.Is(err, eventstore.ErrFenced) {
			t.Errorf("%s: the old owner's append: %v, want ErrFenced", x.name, err)
		}
		if now, err := p.store.Head(t.Context(), b.Stream); err != nil || now != h {
			t.Errorf("%s: head %+v %v, but %+v was granted as final", x.name, now, err, h)
		}
		must(t, p.store, one(mine))
		entries := feed(t, p.store)
		if slices.ContainsFunc(entries, func(e eventstore.Entry) bool { return e.BatchID == b.ID }) {
			t.Errorf("%s: the old owner's append is there", x.name)
		}
	}
}
