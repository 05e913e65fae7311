// What a Store does around a Log's append: announcing, behind the commit and never
// at its expense, and storing the trace context.

package eventstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// announcer calls f for every Announce and keeps the hints.
type announcer struct {
	f func(ctx context.Context, hints []eventstore.Announcement) error

	mu    sync.Mutex
	hints []eventstore.Announcement
}

func (a *announcer) Announce(ctx context.Context, hints []eventstore.Announcement) error {
	a.mu.Lock()
	a.hints = append(a.hints, hints...)
	a.mu.Unlock()
	if a.f == nil {
		return nil
	}
	return a.f(ctx, hints)
}

func (a *announcer) Subscribe(context.Context, []eventstore.Category, func(eventstore.Announcement)) (func(), error) {
	return func() {}, nil
}

func newStore(t *testing.T, o *eventstore.Options) *eventstore.Store {
	t.Helper()
	s := eventstore.New(memlog.New(nil), o)
	if err := s.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "account"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// opening is an append of n first events to each of the streams.
func opening(n int, streams ...eventstore.Stream) (a eventstore.Append) {
	for _, s := range streams {
		b := eventstore.Batch{Stream: s, Epoch: 1, Holder: eventstore.UUID{1}, Claim: true}
		for range n {
			b.Events = append(b.Events, eventstore.Event{Type: "opened"})
		}
		a.Batches = append(a.Batches, b)
	}
	return a
}

// A hint comes when what it hints at can be read, one for each stream, with what
// was written; a refused append is not announced.
func TestAnnounceBehindTheCommit(t *testing.T) {
	a := &announcer{}
	s := newStore(t, &eventstore.Options{Announcer: a})
	a.f = func(ctx context.Context, hints []eventstore.Announcement) error {
		for _, h := range hints {
			if head, err := s.Head(ctx, h.Stream); err != nil || head.Last.Seqno != h.Seqno {
				t.Errorf("hint at %d, head %v, %v", h.Seqno, head.Last, err)
			}
		}
		return nil
	}
	done, err := s.Append(t.Context(), opening(3, "account-a", "account-b"))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint([]eventstore.Announcement{
		{Category: "account", Slot: eventstore.Stream("account-a").Slot(), Stream: "account-a", Seqno: 3, Position: done.Token.Position},
		{Category: "account", Slot: eventstore.Stream("account-b").Slot(), Stream: "account-b", Seqno: 3, Position: done.Token.Position}})
	if got := fmt.Sprint(a.hints); got != want {
		t.Errorf("hints %s, want %s", got, want)
	}
	if _, err := s.Append(t.Context(), opening(1, "account-a")); !errors.Is(err, eventstore.ErrFenced) {
		t.Fatal(err)
	}
	if len(a.hints) != 2 {
		t.Errorf("a refused append was announced: %v", a.hints)
	}
}

// An announcer that fails, or hangs, changes nothing about the append.
func TestAnnounceAtNobodysExpense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &announcer{f: func(context.Context, []eventstore.Announcement) error { return errors.New("no NATS") }}
		s := newStore(t, &eventstore.Options{Announcer: a})
		if _, err := s.Append(t.Context(), opening(1, "account-a")); err != nil {
			t.Errorf("an append failed for its announcement: %v", err)
		}
		a.f = func(ctx context.Context, _ []eventstore.Announcement) error {
			select {
			case <-ctx.Done():
			case <-time.After(time.Hour):
			}
			return ctx.Err()
		}
		began := time.Now()
		if _, err := s.Append(t.Context(), opening(1, "account-b")); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > eventstore.DefaultAnnounceTimeout {
			t.Errorf("an append waited %v for its announcement", took)
		}
	})
}

// What is committed is announced although its caller has gone.
func TestAnnounceForACallerWhoHasGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := &announcer{f: func(announcing context.Context, _ []eventstore.Announcement) error {
		cancel()
		return announcing.Err()
	}}
	var warned bytes.Buffer
	s := newStore(t, &eventstore.Options{Announcer: a, Logger: slog.New(slog.NewTextHandler(&warned, nil))})
	if _, err := s.Append(ctx, opening(1, "account-a")); err != nil || warned.Len() > 0 {
		t.Errorf("%v, %s", err, &warned)
	}
}

// The trace context is stored with each event, of spans that are not sampled too,
// and is that of the append unless the event brings its own.
func TestTraceIsStored(t *testing.T) {
	for name, sampler := range map[string]sdk.Sampler{"sampled": sdk.AlwaysSample(), "not sampled": sdk.NeverSample()} {
		t.Run(name, func(t *testing.T) {
			provider := sdk.NewTracerProvider(sdk.WithSampler(sampler))
			s := newStore(t, &eventstore.Options{TracerProvider: provider})
			const own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
			remote, _ := eventstore.ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")
			ctx, span := provider.Tracer("test").Start(trace.ContextWithRemoteSpanContext(t.Context(), remote), "caller")
			defer span.End()
			a := opening(2, "account-a")
			a.Batches[0].Events[1].Metadata = eventstore.Metadata{eventstore.MetaTraceparent: own}
			if _, err := s.Append(ctx, a); err != nil {
				t.Fatal(err)
			}
			page, err := s.ReadFrom(ctx, "account-a", 0, 0)
			if err != nil || len(page.Entries) != 2 {
				t.Fatal(page, err)
			}
			m := page.Entries[0].Metadata
			stored, ok := eventstore.ParseTraceparent(m[eventstore.MetaTraceparent], m[eventstore.MetaTracestate])
			if !ok || stored.TraceID() != remote.TraceID() || stored.IsSampled() != (name == "sampled") || stored.TraceState().Get("vendor") != "1" {
				t.Errorf("stored %v", m)
			}
			if m := page.Entries[1].Metadata; m[eventstore.MetaTraceparent] != own || len(m) != 1 {
				t.Errorf("the event's own trace context became %v", m)
			}
		})
	}
}
