// Linear is tested by logs that break a promise only when calls fall together, and by
// short histories of which is known whether they are linearizable.

package logtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// linearMutants are logs whose answers are each possible at some time, but not
// together.
var linearMutants = []struct {
	name  string
	plant func(m *mutant)
}{
	{"answers the head from a cache", func(m *mutant) {
		var cache sync.Map
		m.headFn = func(ctx context.Context, s eventstore.Stream) (eventstore.Head, error) {
			h, err := m.Log.Head(ctx, s)
			if was, ok := cache.Swap(s, h); ok && rand.IntN(4) == 0 {
				return was.(eventstore.Head), nil
			}
			return h, err
		}
	}},
	{"reads from a copy that lags", func(m *mutant) {
		m.readFn = func(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
			p, err := m.Log.ReadFrom(ctx, s, after, limit)
			if n := len(p.Entries); n > 0 && p.End && time.Since(p.Entries[n-1].Time) < time.Millisecond {
				last := p.Entries[n-1].BatchID
				p.Entries = slices.DeleteFunc(slices.Clone(p.Entries), func(e eventstore.Entry) bool { return e.BatchID == last })
			}
			return p, err
		}
	}},
	{"tells the end as of another moment", func(m *mutant) {
		m.readFn = func(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
			p, err := m.Log.ReadFrom(ctx, s, after, limit)
			if h, _ := m.Log.Head(ctx, s); err == nil && p.End {
				now := m.await(ctx, s, h)
				p.End = after+eventstore.Seqno(len(p.Entries)) >= now.Last.Seqno
			}
			return p, err
		}
	}},
	{"shows what is not committed yet", func(m *mutant) {
		var flight sync.Map
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			flight.Store(a.Batches[0].Stream, a.Batches[0])
			m.await(ctx, a.Batches[0].Stream, eventstore.Head{})
			return m.Log.Append(ctx, a)
		}
		m.readFn = func(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
			p, err := m.Log.ReadFrom(ctx, s, after, limit)
			if b, ok := flight.Load(s); ok && err == nil && p.End && len(p.Entries) > 0 && len(p.Entries) < limit {
				b, last := b.(eventstore.Batch), p.Entries[len(p.Entries)-1]
				if b.After.Seqno == last.Seqno {
					p.Entries = append(p.Entries, eventstore.Entry{Event: b.Events[0], Stream: s, Seqno: last.Seqno + 1, Epoch: b.Epoch, BatchID: b.ID, Position: last.Position + 1, Time: last.Time})
				}
			}
			return p, err
		}
	}},
	{"acks now and then what it did not write", func(m *mutant) {
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			if h, _ := m.Log.Head(ctx, a.Batches[0].Stream); a.Batches[0].Passes(h) && rand.IntN(20) == 0 {
				return acked(a), nil
			}
			return m.Log.Append(ctx, a)
		}
	}},
	{"writes twice when it is in doubt", func(m *mutant) {
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			done, err := m.Log.Append(ctx, a)
			if b := a.Batches[0]; err == nil && rand.IntN(20) == 0 {
				b.ID, b.After, b.Claim, b.Events = eventstore.NewUUID(), done.Receipts[0].Last, false, slices.Clone(b.Events)
				m.Log.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
			}
			return done, err
		}
	}},
	{"checks, and writes a moment later", func(m *mutant) {
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			b := a.Batches[0]
			h, _ := m.Log.Head(ctx, b.Stream)
			if !b.Passes(h) {
				return m.Log.Append(ctx, a)
			}
			now := m.await(ctx, b.Stream, h)
			b.After, b.Epoch = now.Last, max(b.Epoch, now.Epoch)
			if b.Claim && b.Epoch == now.Epoch {
				b.Epoch++
			}
			done, err := m.Log.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
			if err != nil {
				return m.Log.Append(ctx, a)
			}
			return done, err
		}
	}},
	{"lets an append through that began before the fence", func(m *mutant) {
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			b := a.Batches[0]
			h, _ := m.Log.Head(ctx, b.Stream)
			if b.Claim || !b.Passes(h) {
				return m.Log.Append(ctx, a)
			}
			now := m.await(ctx, b.Stream, h)
			b.Epoch, b.Holder = now.Epoch, now.Holder
			return m.Log.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
		}
	}},
	{"fences with the head of before", func(m *mutant) {
		m.fenceFn = func(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
			before, _ := m.Log.Head(ctx, s)
			m.await(ctx, s, before)
			h, err := m.Log.Fence(ctx, s, holder, at)
			h.Last = before.Last
			return h, err
		}
	}},
	{"grants one epoch twice at once", func(m *mutant) {
		m.fenceFn = func(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
			before, _ := m.Log.Head(ctx, s)
			if now := m.await(ctx, s, before); at == 0 && now.Epoch == before.Epoch+1 {
				now.Holder = holder
				return now, nil
			}
			return m.Log.Fence(ctx, s, holder, at)
		}
	}},
	{"refuses with the facts of before", func(m *mutant) {
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			before, _ := m.Log.Head(ctx, a.Batches[0].Stream)
			m.await(ctx, a.Batches[0].Stream, before)
			done, err := m.Log.Append(ctx, a)
			if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Head != nil {
				e.Head = &before
			}
			return done, err
		}
	}},
	{"takes a trim back", func(m *mutant) {
		var pages sync.Map
		m.trimFn = func(ctx context.Context, s eventstore.Stream, through eventstore.Seqno, dry bool) (eventstore.TrimResult, error) {
			if p, err := m.Log.ReadFrom(ctx, s, 0, 1000); err == nil && !dry {
				pages.Store(s, p)
			}
			return m.Log.Trim(ctx, s, through, dry)
		}
		m.readFn = func(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
			p, err := m.Log.ReadFrom(ctx, s, after, limit)
			if was, ok := pages.Load(s); ok && after == 0 && errors.Is(err, eventstore.ErrTrimmed) {
				if p := was.(eventstore.Page); len(p.Entries) <= limit {
					return eventstore.Page{Entries: slices.Clone(p.Entries), End: p.End}, nil
				}
			}
			return p, err
		}
	}},
	{"loads head and entries in two steps", func(m *mutant) {
		m.loadFn = func(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error) {
			l, err := m.Log.Load(ctx, s, fingerprint, limit)
			if err == nil {
				l.Head = m.await(ctx, s, l.Head)
			}
			return l, err
		}
	}},
	{"proves a batch that is not there yet", func(m *mutant) {
		var sent sync.Map
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			if _, again := sent.Swap(a.Batches[0].ID, true); again {
				done := acked(a)
				done.Receipts[0].Replays = true
				return done, nil
			}
			runtime.Gosched()
			return m.Log.Append(ctx, a)
		}
	}},
	{"says that nothing was written, and writes", func(m *mutant) {
		m.appendFn = func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
			done, err := m.Log.Append(ctx, a)
			if err == nil && rand.IntN(20) == 0 {
				return eventstore.Appended{}, context.DeadlineExceeded
			}
			return done, err
		}
	}},
}

func TestLinearMutants(t *testing.T) {
	for _, mu := range linearMutants {
		t.Run(mu.name, func(t *testing.T) {
			t.Parallel()
			h := Harness{Open: func(testing.TB) eventstore.Log {
				m := &mutant{Log: memlog.New(nil)}
				mu.plant(m)
				return m
			}}
			said := record(t, func(tb testing.TB) {
				Linear(tb, h, LinearOptions{Histories: 200, Dir: t.TempDir(), Limit: 30 * time.Second})
			})
			first, _, _ := strings.Cut(said.first, "\n")
			if !strings.Contains(said.first, "is not linearizable") {
				t.Errorf("Linear says %q", said.first)
			}
			t.Log(first)
		})
	}
}

// moment is a call of a hand-written history.
type moment struct {
	begin, end int64
	call       linearCall
	answer     linearAnswer
}

// TestLinearModel: histories whose verdict is known.
func TestLinearModel(t *testing.T) {
	const s = eventstore.Stream("a-b")
	x, y, batch := eventstore.NewUUID(), eventstore.NewUUID(), eventstore.NewUUID()
	sent := newLinearBatch(eventstore.Batch{ID: batch, Stream: s, Epoch: 1, Holder: x, Claim: true, Events: []eventstore.Event{{Type: "t"}}})
	last := eventstore.Mark{Seqno: 1, ID: sent.batch.Events[0].ID}
	before, after, fenced := eventstore.Head{}, eventstore.Head{Epoch: 1, Holder: x, Last: last}, eventstore.Head{Epoch: 2, Holder: y, Last: last}
	empty := eventstore.Head{Epoch: 1, Holder: y}
	appends := linearCall{op: "append", sent: sent}
	lost := linearAnswer{unknown: true}
	ok := linearAnswer{receipt: eventstore.Receipt{Stream: s, First: 1, Last: last}}
	replays := linearAnswer{receipt: eventstore.Receipt{Stream: s, First: 1, Last: last, Replays: true}}
	refused := linearAnswer{err: &eventstore.Error{Kind: eventstore.ErrFenced, Stream: s, Head: &empty}}
	head := func(begin, end int64, h eventstore.Head) moment {
		return moment{begin, end, linearCall{op: "head"}, linearAnswer{head: h}}
	}
	for _, c := range []struct {
		name string
		want bool
		all  []moment
	}{
		{"one after the other", true, []moment{{1, 2, appends, ok}, head(3, 4, after)}},
		{"a read that misses what was acked", false, []moment{{1, 2, appends, ok}, head(3, 4, before)}},
		{"a read beside it may miss it", true, []moment{{1, 4, appends, ok}, head(2, 3, before)}},
		{"a read beside it may see it", true, []moment{{1, 4, appends, ok}, head(2, 3, after)}},
		{"seen, then gone", false, []moment{{1, 8, appends, ok}, head(2, 3, after), head(4, 5, before)}},
		{"acked twice as written", false, []moment{{1, 2, appends, ok}, {3, 4, appends, ok}}},
		{"acked, then proved", true, []moment{{1, 2, appends, ok}, {3, 4, appends, replays}}},
		{"lost, and never there", true, []moment{{1, 9, appends, lost}, head(3, 4, before)}},
		{"lost, and there at once", true, []moment{{1, 9, appends, lost}, head(3, 4, after)}},
		{"lost, and there late", true, []moment{{1, 9, appends, lost}, head(3, 4, before), head(5, 6, after)}},
		{"lost, there, then gone", false, []moment{{1, 9, appends, lost}, head(3, 4, after), head(5, 6, before)}},
		{"lost, then proved", true, []moment{{1, 9, appends, lost}, {3, 4, appends, replays}}},
		{"lost, then written by sending again", true, []moment{{1, 9, appends, lost}, {3, 4, appends, ok}}},
		{"lost behind a fence", false, []moment{{1, 2, linearCall{op: "fence", holder: y}, linearAnswer{head: empty}}, {3, 9, appends, lost}, head(4, 5, after)}},
		{"refused by a fence", true, []moment{{1, 2, linearCall{op: "fence", holder: y}, linearAnswer{head: empty}}, {3, 4, appends, refused}}},
		{"refused, and there", false, []moment{{1, 6, linearCall{op: "fence", holder: y}, linearAnswer{head: empty}}, {2, 5, appends, refused}, head(7, 8, fenced)}},
		{"a fence whose head is not final", false, []moment{{1, 4, appends, ok}, {2, 3, linearCall{op: "fence", holder: y}, linearAnswer{head: empty}}, head(5, 6, fenced)}},
		{"a fence behind it", true, []moment{{1, 4, appends, ok}, {2, 3, linearCall{op: "fence", holder: y}, linearAnswer{head: fenced}}, head(5, 6, fenced)}},
	} {
		var history []porcupine.Operation
		for _, m := range c.all {
			call, answer := m.call, m.answer
			call.stream = s
			history = append(history, porcupine.Operation{Input: &call, Output: &answer, Call: m.begin, Return: m.end})
		}
		if got := linear(history); got != c.want {
			t.Errorf("%s: linearizable %t, want %t", c.name, got, c.want)
		}
		if c.want {
			continue
		}
		if small := shrink(history); linear(small) || len(small) > len(history) {
			t.Errorf("%s: made small it is %d calls, linearizable %t", c.name, len(small), linear(small))
		}
	}
}
