// The suite is tested by logs that are wrong: each breaks one promise, and the
// named case must notice.

package logtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// mutants are the planted bugs and the cases that must notice each.
var mutants = []struct {
	name  string
	cases []string
	plant func(m *mutant)
}{
	{"acks what it refused", []string{"one after", "fenced", "after the head"}, func(m *mutant) {
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			done, err := m.Log.Append(ctx, a)
			if err != nil {
				done = acked(a)
			}
			return done, nil
		}
	}},
	{"lists trimmed streams of all slots", []string{"list of trimmed"}, func(m *mutant) {
		m.listFn = func(ctx context.Context, c eventstore.Category, _ []eventstore.Slot, after string, limit int) (eventstore.TrimmedPage, error) {
			return m.Log.ListTrimmed(ctx, c, nil, after, limit)
		}
	}},
	{"ignores epochs", []string{"fenced", "claims", "head is final", "ranking in one batch"}, func(m *mutant) {
		m.rewrite(func(b *eventstore.Batch, h eventstore.Head) { b.Epoch, b.Claim = max(b.Epoch, h.Epoch+1), true })
	}},
	{"ignores holders", []string{"fenced", "ranking in one batch"}, func(m *mutant) {
		m.rewrite(func(b *eventstore.Batch, h eventstore.Head) {
			if b.Epoch == h.Epoch {
				b.Holder = h.Holder
			}
		})
	}},
	{"ignores IDs", []string{"diverged", "diverged under a warm writer", "ranking"}, func(m *mutant) {
		m.rewrite(func(b *eventstore.Batch, _ eventstore.Head) { b.After.ID = eventstore.UUID{} })
	}},
	{"appends behind the head whatever After says", []string{"already written", "after the head", "one after"}, func(m *mutant) {
		m.rewrite(func(b *eventstore.Batch, h eventstore.Head) { b.After = h.Last })
	}},
	{"takes max plus one for After, for claims only", []string{"already written"}, func(m *mutant) {
		m.rewrite(func(b *eventstore.Batch, h eventstore.Head) {
			if b.Claim && b.Epoch > h.Epoch {
				b.After = h.Last
			}
		})
	}},
	{"is not atomic over streams", []string{"one of several"}, func(m *mutant) {
		m.appendFn = func(ctx context.Context, a eventstore.Append) (done eventstore.Appended, err error) {
			for _, b := range a.Batches {
				one, err := m.Log.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}, Guards: a.Guards})
				if err != nil {
					return done, err
				}
				done.Receipts, done.Token = append(done.Receipts, one.Receipts...), one.Token
			}
			return done, nil
		}
	}},
	{"ignores guards", []string{"guards", "guards crossing writes", "ranking"}, func(m *mutant) {
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			a.Guards = nil
			return m.Log.Append(ctx, a)
		}
	}},
	{"checks guards before it writes", []string{"guards crossing writes"}, func(m *mutant) {
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			for _, g := range a.Guards {
				if h, err := m.Head(ctx, g.Stream); err != nil || h.Last != g.At {
					return m.Log.Append(ctx, a)
				}
			}
			time.Sleep(time.Millisecond)
			a.Guards = nil
			return m.Log.Append(ctx, a)
		}
	}},
	{"proves by the batch ID alone", []string{"other content", "other content, fenced"}, func(m *mutant) {
		m.instead(eventstore.ErrBatchIDReused, func(a eventstore.Append, _ error) (eventstore.Appended, error) {
			done := acked(a)
			for i := range done.Receipts {
				done.Receipts[i].Replays = true
			}
			return done, nil
		})
	}},
	{"guesses that what was trimmed was there", []string{"after a trim", "absent behind a trim"}, func(m *mutant) {
		m.instead(eventstore.ErrUnknown, func(a eventstore.Append, _ error) (eventstore.Appended, error) { return acked(a), nil })
	}},
	{"guesses that what was trimmed was not there", []string{"after a trim", "after a partial trim"}, func(m *mutant) {
		m.instead(eventstore.ErrUnknown, func(a eventstore.Append, err error) (eventstore.Appended, error) {
			return eventstore.Appended{}, kindOf(err, eventstore.ErrAlreadyWritten)
		})
	}},
	{"tells a gap as already written", []string{"after the head", "ranking"}, func(m *mutant) {
		m.instead(eventstore.ErrGap, func(_ eventstore.Append, err error) (eventstore.Appended, error) {
			return eventstore.Appended{}, kindOf(err, eventstore.ErrAlreadyWritten)
		})
	}},
	{"forgets facts", []string{"fenced", "guards"}, func(m *mutant) {
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			done, err := m.Log.Append(ctx, a)
			if e, ok := errors.AsType[*eventstore.Error](err); ok {
				err = &eventstore.Error{Kind: e.Kind}
			}
			return done, err
		}
	}},
	{"does not say fenced on a replay", []string{"after being fenced", "at once"}, func(m *mutant) {
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			done, err := m.Log.Append(ctx, a)
			for i := range done.Receipts {
				done.Receipts[i].Fenced = false
			}
			return done, err
		}
	}},
	{"writes and then forgets that the context ended", []string{"context ended"}, func(m *mutant) {
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			done, err := m.Log.Append(context.WithoutCancel(ctx), a)
			return done, errors.Join(err, ctx.Err())
		}
	}},
	{"keeps the caller's buffers", []string{"payload stays the caller's"}, func(m *mutant) {
		kept := map[eventstore.UUID][]byte{}
		var mu sync.Mutex
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			mu.Lock()
			defer mu.Unlock()
			for _, b := range a.Batches {
				for _, e := range b.Events {
					kept[e.ID] = e.Data
				}
			}
			return m.Log.Append(ctx, a)
		}
		m.entries(func(e *eventstore.Entry) { mu.Lock(); e.Data = kept[e.ID]; mu.Unlock() })
	}},
	{"reads empty data as nil", []string{"payloads"}, func(m *mutant) {
		m.entries(func(e *eventstore.Entry) { e.Data = append([]byte(nil), e.Data...) })
	}},
	{"reads nil metadata as empty", []string{"metadata"}, func(m *mutant) {
		m.entries(func(e *eventstore.Entry) {
			if e.Metadata == nil {
				e.Metadata = eventstore.Metadata{}
			}
		})
	}},
	{"reads times in another zone", []string{"acked is readable"}, func(m *mutant) {
		m.entries(func(e *eventstore.Entry) { e.Time = e.Time.In(time.FixedZone("", 3600)) })
	}},
	{"cuts data at NUL", []string{"payloads"}, func(m *mutant) {
		m.entries(func(e *eventstore.Entry) {
			if i := slices.Index(e.Data, 0); i >= 0 {
				e.Data = e.Data[:i]
			}
		})
	}},
	{"has an empty page for what was trimmed", []string{"below the trim point", "all trimmed"}, func(m *mutant) {
		m.readFn = func(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
			p, err := m.Log.ReadFrom(ctx, s, after, limit)
			if errors.Is(err, eventstore.ErrTrimmed) {
				return eventstore.Page{End: true}, nil
			}
			return p, err
		}
	}},
	{"says End when the page is full", []string{"order and paging"}, func(m *mutant) {
		m.readFn = func(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
			p, err := m.Log.ReadFrom(ctx, s, after, limit)
			p.End = p.End && len(p.Entries) < limit
			return p, err
		}
	}},
	{"reads backward one short", []string{"backward"}, func(m *mutant) {
		m.backwardFn = func(ctx context.Context, s eventstore.Stream, before eventstore.Seqno, limit int) (eventstore.Page, error) {
			if before == 0 {
				h, err := m.Head(ctx, s)
				if err != nil {
					return eventstore.Page{}, err
				}
				before = h.Last.Seqno
			}
			return eventstore.New(plainLog{m.Log}, nil).ReadBackwardPage(ctx, s, before, limit)
		}
	}},
	{"skips what commits late", []string{"probe"}, func(m *mutant) { m.late() }},
	{"keeps the horizon as a cursor", []string{"pages", "nothing matches"}, func(m *mutant) {
		m.pages(func(p *eventstore.FeedPage) { p.Through.Position = p.Horizon })
	}},
	{"feeds in the order of streams", []string{"order", "pages"}, func(m *mutant) {
		m.pages(func(p *eventstore.FeedPage) {
			slices.SortStableFunc(p.Entries, func(a, b eventstore.Entry) int {
				return len(a.Stream) - len(b.Stream) + int(a.Stream[len(a.Stream)-1]) - int(b.Stream[len(b.Stream)-1])
			})
		})
	}},
	{"stops at what does not match", []string{"filters", "nothing matches"}, func(m *mutant) {
		m.pages(func(p *eventstore.FeedPage) {
			p.Through = eventstore.PositionMark{}
			if n := len(p.Entries); n > 0 {
				p.Through = p.Entries[n-1].PositionMark()
			}
		})
	}},
	{"feeds on over what was trimmed", []string{"trimmed"}, func(m *mutant) {
		m.feedFn = func(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
			f.AcceptTrimmed = true
			return m.Log.ReadFeed(ctx, after, f, limit)
		}
	}},
	{"grants the same epoch again", []string{"next"}, func(m *mutant) {
		m.fenceFn = func(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
			if h, err := m.Head(ctx, s); err == nil && at == 0 && h.Holder == holder {
				return h, nil
			}
			return m.Log.Fence(ctx, s, holder, at)
		}
	}},
	{"reads the head before it fences", []string{"racing an owner"}, func(m *mutant) {
		m.fenceFn = func(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
			before, _ := m.Head(ctx, s)
			m.await(ctx, s, before)
			h, err := m.Log.Fence(ctx, s, holder, at)
			h.Last = before.Last
			return h, err
		}
	}},
	{"burns an epoch when a grant fails", []string{"failed grant burns none"}, func(m *mutant) {
		m.fenceFn = func(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
			h, err := m.Log.Fence(ctx, s, holder, at)
			if err != nil {
				m.Log.Fence(ctx, s, holder, 0)
			}
			return h, err
		}
	}},
	{"loads in two steps", []string{"never mixed"}, func(m *mutant) {
		m.loadFn = func(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error) {
			l, err := m.Log.Load(ctx, s, fingerprint, limit)
			l.Head = m.await(ctx, s, l.Head)
			return l, err
		}
	}},
	{"does not look at fingerprints", []string{"other fingerprint"}, func(m *mutant) {
		m.loadFn = func(ctx context.Context, s eventstore.Stream, f string, limit int) (eventstore.Loaded, error) {
			if f != "" {
				f = fingerprint
			}
			return m.Log.Load(ctx, s, f, limit)
		}
	}},
	{"trims past holds", []string{"hold on a stream", "hold on a category"}, func(m *mutant) {
		m.trimFn = func(ctx context.Context, s eventstore.Stream, through eventstore.Seqno, dry bool) (eventstore.TrimResult, error) {
			holds, _ := m.ListHolds(ctx)
			for _, h := range holds {
				m.ReleaseHold(ctx, h.Name, h.Category, h.Stream)
			}
			return m.Log.Trim(ctx, s, through, dry)
		}
	}},
	{"trims when it is to tell", []string{"dry"}, func(m *mutant) {
		m.trimFn = func(ctx context.Context, s eventstore.Stream, through eventstore.Seqno, _ bool) (eventstore.TrimResult, error) {
			return m.Log.Trim(ctx, s, through, false)
		}
	}},
	{"renews for whoever asks", []string{"renew", "expires"}, func(m *mutant) {
		m.renewFn = func(ctx context.Context, l eventstore.Lease, ttl time.Duration) (eventstore.Lease, error) {
			if got, err := m.Log.RenewLease(ctx, l, ttl); err == nil {
				return got, nil
			}
			l.Left = ttl
			return l, nil
		}
	}},
	{"keeps holds of a deleted category", []string{"delete"}, func(m *mutant) {
		m.deleteFn = func(ctx context.Context, c eventstore.Category) error {
			holds, _ := m.ListHolds(ctx)
			err := m.Log.DeleteCategory(ctx, c)
			if err == nil {
				m.CreateCategory(ctx, eventstore.CategorySpec{Name: c})
				for _, h := range holds {
					m.SetHold(ctx, h)
				}
			}
			return err
		}
	}},
}

// allCases returns the cases by name; where areas share a name, all of them.
func allCases() map[string][]testCase {
	all := map[string][]testCase{}
	for _, a := range areas {
		for _, c := range a.cases {
			all[c.name] = append(all[c.name], c)
		}
	}
	return all
}

func TestMutants(t *testing.T) {
	cases := allCases()
	for _, mu := range mutants {
		t.Run(mu.name, func(t *testing.T) {
			t.Parallel()
			h := Harness{Open: func(testing.TB) eventstore.Log {
				m := &mutant{Log: memlog.New(nil)}
				mu.plant(m)
				if m.backwardFn != nil {
					return backwardMutant{m}
				}
				return m
			}}
			for _, name := range mu.cases {
				noticed := ""
				// Cases that race meet the bug by chance: nine times in ten the first time.
				for try := 0; try < 20 && noticed == ""; try++ {
					noticed = notice(t, h, name, cases[name])
				}
				if noticed == "" {
					t.Errorf("case %q does not notice", name)
				}
				t.Logf("%s: %.150s", name, noticed)
			}
		})
	}
}

// notice runs a case, or the probe, and returns the first thing it complains of.
func notice(t *testing.T, h Harness, name string, cases []testCase) (noticed string) {
	if name == "probe" {
		return record(t, func(t testing.TB) { Probe(t, h, ProbeOptions{Duration: 200 * time.Millisecond}) }).first
	}
	for _, c := range cases {
		noticed += record(t, func(t testing.TB) { runCase(t, h, c, nil) }).first
	}
	return noticed
}

// Every case has a rule and a name of its own in its area.
func TestCaseTable(t *testing.T) {
	for _, a := range areas {
		seen := map[string]bool{}
		for _, c := range a.cases {
			if c.name == "" || c.rule == "" || c.run == nil || seen[c.name] {
				t.Errorf("%s: case %+v: want a name of its own, a rule and a function", a.name, c)
			}
			seen[c.name] = true
		}
	}
}

// A clock that goes backward is not seen along a stream.
func TestClockBackward(t *testing.T) {
	var calls atomic.Int64
	now := time.Now()
	h := Harness{Open: func(testing.TB) eventstore.Log {
		return memlog.New(&memlog.Options{Now: func() time.Time { return now.Add(-time.Duration(calls.Add(1)) * time.Hour) }})
	}}
	for _, name := range []string{"times", "acked is readable", "parallel batches"} {
		for _, c := range allCases()[name] {
			t.Run(name, func(t *testing.T) { runCase(t, h, c, nil) })
		}
	}
}
