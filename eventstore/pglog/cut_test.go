// The link is cut at every byte of an append's dialogue, and of a read's.

package pglog_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/internal/cutproxy"
)

// owner appends to one stream, each batch behind the last one that is there.
type owner struct{ next eventstore.Batch }

func newOwner(p *proxied) *owner {
	b := batch(newStream(), 1)
	return &owner{next(b, must(p.t, p.store, one(b)).Receipts[0], 1)}
}

// take returns the next batch; the one after it stands behind it, for each is there
// once it has been sent again.
func (o *owner) take() eventstore.Batch {
	b := o.next
	o.next = next(b, eventstore.Receipt{Last: eventstore.Mark{Seqno: b.Last(), ID: b.Events[len(b.Events)-1].ID}}, 1)
	return b
}

// through sends an append through the proxy.
func (p *proxied) through(ctx context.Context, armed func(), a eventstore.Append) []sent {
	armed()
	_, err := p.cut.Append(ctx, a)
	return []sent{{a: a, err: err}}
}

// TestCutAppend cuts the dialogue of each kind of append, both ways, by FIN, RST and
// silence: the answer is true, what was sent is there once after it has been sent
// again, and the pool recovers.
func TestCutAppend(t *testing.T) {
	for name, kind := range map[string]func(p *proxied) dialogue{
		"owner's next": func(p *proxied) dialogue {
			o := newOwner(p)
			return dialogue{run: func(ctx context.Context, armed func()) []sent { return p.through(ctx, armed, one(o.take())) }}
		},
		"first with claim": func(p *proxied) dialogue {
			return dialogue{every: 21, run: func(ctx context.Context, armed func()) []sent {
				return p.through(ctx, armed, one(batch(newStream(), 1)))
			}}
		},
		"several streams": func(p *proxied) dialogue {
			o := newOwner(p)
			return dialogue{every: 35, run: func(ctx context.Context, armed func()) []sent {
				return p.through(ctx, armed, eventstore.Append{Batches: []eventstore.Batch{batch(newStream(), 1), o.take()}})
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxied(t, 2, pglog.Options{}, nil)
			p.pollFeed()
			d := kind(p)
			d.name = name
			t.Log(p.cutEverywhere(d))
		})
	}
}

// TestCutGroup cuts the one statement of several appends that went together: each has
// its own true outcome, and so has the append that they waited for.
func TestCutGroup(t *testing.T) {
	t.Parallel()
	const members = 3
	p := newProxied(t, 3, pglog.Options{Senders: 1}, nil)
	p.pollFeed()
	blocker, own := newOwner(p), make([]*owner, members)
	for i := range own {
		own[i] = newOwner(p)
	}
	t.Log(p.cutEverywhere(dialogue{name: "group", every: 49, run: func(ctx context.Context, armed func()) []sent {
		all, told := make([]sent, members+1), make(chan int)
		send := func(i int, o *owner) {
			all[i].a = one(o.take())
			go func() {
				_, all[i].err = p.cut.Append(ctx, all[i].a)
				told <- i
			}()
		}
		unlock := p.lock(blocker.next.Stream)
		send(members, blocker)
		eventually(t, "the blocker waits in its sender", func() bool { return p.waiting() == 1 })
		for i, o := range own {
			send(i, o)
		}
		eventually(t, "the others are queued", func() bool { return p.cutLog.Queued() == members })
		armed()
		unlock()
		for range all {
			<-told
		}
		return all
	}}))
}

// TestCutWithin cuts a transaction of Within from its begin to the answer to COMMIT:
// the caller's effect and the entries are there together, once.
func TestCutWithin(t *testing.T) {
	t.Parallel()
	p := newProxied(t, 2, pglog.Options{}, nil)
	o := newOwner(p)
	within := func(ctx context.Context, s *eventstore.Store, a eventstore.Append) (bool, error) {
		done, err := pglog.Within(ctx, s, func(ctx context.Context, tx pgx.Tx) (eventstore.Append, error) {
			return a, p.effect(ctx, tx, a.Batches[0].ID.String())
		})
		return err == nil && done.Receipts[0].Replays, err
	}
	t.Log(p.cutEverywhere(dialogue{name: "within", holds: true, every: 42,
		run: func(ctx context.Context, armed func()) []sent {
			a := one(o.take())
			armed()
			_, err := within(ctx, p.cut, a)
			return []sent{{a: a, err: err}}
		},
		resend: func(ctx context.Context, s sent) (bool, error) {
			replays, err := within(ctx, p.store, s.a)
			return replays, errors.Join(err, p.oneEffect(s.a))
		}}))
}

// oneEffect says what is wrong if the effect of an append did not happen once.
func (p *proxied) oneEffect(a eventstore.Append) error {
	if n := p.effects(p.t, a.Batches[0].ID.String()); n != 1 {
		return errors.New("the effect happened " + string(rune('0'+n)) + " times")
	}
	return nil
}

// TestCutAppendTx cuts the append in a caller's transaction and his COMMIT.
func TestCutAppendTx(t *testing.T) {
	t.Parallel()
	p := newProxied(t, 2, pglog.Options{}, nil)
	o := newOwner(p)
	t.Log(p.cutEverywhere(dialogue{name: "AppendTx", holds: true, every: 21,
		run: func(ctx context.Context, armed func()) []sent {
			s := sent{a: one(o.take())}
			tx, err := p.bent.Begin(ctx)
			if err != nil {
				return []sent{{a: s.a, err: err}}
			}
			defer tx.Rollback(ctx)
			if s.err = p.effect(ctx, tx, s.a.Batches[0].ID.String()); s.err != nil {
				return []sent{s}
			}
			armed()
			if _, s.err = pglog.AppendTx(ctx, p.cut, tx, s.a); s.err == nil {
				s.commit = true
				s.err = tx.Commit(ctx)
				s.commit = s.err != nil
			}
			return []sent{s}
		},
		resend: func(ctx context.Context, s sent) (bool, error) {
			tx, err := p.pool.Begin(ctx)
			if err != nil {
				return false, err
			}
			defer tx.Rollback(ctx)
			pending, err := pglog.AppendTx(ctx, p.store, tx, s.a)
			if err != nil || pending.Receipts()[0].Replays {
				return err == nil, errors.Join(err, p.oneEffect(s.a))
			}
			if err := p.effect(ctx, tx, s.a.Batches[0].ID.String()); err != nil {
				return false, err
			}
			if err := tx.Commit(ctx); err != nil {
				return false, err
			}
			return false, p.oneEffect(s.a)
		}}))
}

// TestCutReads cuts reads: an error of a known kind, or all of the truth.
func TestCutReads(t *testing.T) {
	t.Parallel()
	p := newProxied(t, 2, pglog.Options{}, nil)
	b := batch(newStream(), 3)
	last := must(t, p.store, one(b)).Receipts[0]
	if err := p.store.SaveSnapshot(t.Context(), eventstore.Snapshot{Stream: b.Stream, At: eventstore.Mark{Seqno: 1, ID: b.Events[0].ID}, Fingerprint: "v1", Data: []byte("state")}); err != nil {
		t.Fatal(err)
	}
	must(t, p.store, one(next(b, last, 2)))
	for name, read := range map[string]func(ctx context.Context, s *eventstore.Store) (any, error){
		"read": func(ctx context.Context, s *eventstore.Store) (any, error) { return s.ReadFrom(ctx, b.Stream, 1, 0) },
		"backward": func(ctx context.Context, s *eventstore.Store) (any, error) {
			return s.ReadBackwardPage(ctx, b.Stream, 0, 2)
		},
		"head": func(ctx context.Context, s *eventstore.Store) (any, error) { return s.Head(ctx, b.Stream) },
		"feed": func(ctx context.Context, s *eventstore.Store) (any, error) {
			return s.ReadFeed(ctx, 0, eventstore.Filter{Categories: []eventstore.Category{"account"}}, 3)
		},
		"load": func(ctx context.Context, s *eventstore.Store) (any, error) { return loaded(ctx, s, b.Stream, "v1") },
	} {
		want, err := read(t.Context(), p.store)
		if err != nil {
			t.Fatal(err)
		}
		cuts, failed := 0, 0
		everyCut(t, 140, 140, func(f cutproxy.Fault) (struck bool) {
			p.bent.Reset() // no connection broken before
			for range 2 {  // its statement is prepared
				if _, err := read(t.Context(), p.cut); err != nil {
					t.Fatalf("%s before %v: %v", name, f, err)
				}
			}
			got, err := p.cutRead(f, func(ctx context.Context) (any, error) { return read(ctx, p.cut) })
			struck = p.proxy.Disarm()
			p.proxy.Release()
			switch {
			case err != nil:
				failed++
				if !errors.Is(err, eventstore.ErrUnavailable) && !errors.Is(err, context.Canceled) {
					t.Errorf("%s, %v: %v, want ErrUnavailable or the context's error", name, f, err)
				}
			case !reflect.DeepEqual(got, want):
				t.Errorf("%s, %v: %+v, want %+v", name, f, got, want)
			}
			if struck {
				cuts++
			}
			return struck
		})
		t.Logf("%s: %d cuts, %d of them an error", name, cuts, failed)
		if failed < cuts/2 {
			t.Errorf("%s: the cuts do not meet the dialogue", name)
		}
	}
}

// cutRead runs a read with a fault armed; a black hole is ended by the context.
func (p *proxied) cutRead(f cutproxy.Fault, read func(ctx context.Context) (any, error)) (any, error) {
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	fired := p.proxy.Arm(f)
	if f.Mode == cutproxy.BlackHole {
		go func() {
			select {
			case <-fired:
				time.AfterFunc(3*time.Millisecond, cancel)
			case <-ctx.Done():
			}
		}()
	}
	return read(ctx)
}

// whole is all that a load gives.
type whole struct {
	Head     eventstore.Head
	Snapshot eventstore.Snapshot
	Entries  []eventstore.Entry
}
