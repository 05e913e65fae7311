// History: what clients were told, to be held against what is there.

package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
)

// History notes what the clients of a store were told. Its methods may be called
// from several goroutines at once.
type History struct {
	mu      sync.Mutex
	batches map[eventstore.UUID]*told
	grants  map[eventstore.Stream]map[eventstore.Epoch]eventstore.UUID // who was granted what
	token   eventstore.Token                                           // the highest that was acked
	faults  []string                                                   // seen as it was noted
}

// told is a batch and what its clients were told about it.
type told struct {
	batch   eventstore.Batch
	acked   bool // at least once
	unknown bool // the last answer was that nothing is known
}

// NewHistory returns an empty History.
func NewHistory() *History {
	return &History{batches: map[eventstore.UUID]*told{}, grants: map[eventstore.Stream]map[eventstore.Epoch]eventstore.UUID{}}
}

// Append appends through a store and notes batches and answer. Batches without an
// ID get one.
func (h *History) Append(ctx context.Context, store *eventstore.Store, a eventstore.Append) (eventstore.Appended, error) {
	return h.note(a, func(a eventstore.Append) (eventstore.Appended, error) { return store.Append(ctx, a) })
}

// Sent carries out an append by another way than a Store, which tells the error
// only, and notes both. Batches must have their IDs.
func (h *History) Sent(a eventstore.Append, send func(eventstore.Append) error) error {
	_, err := h.note(a, func(a eventstore.Append) (done eventstore.Appended, err error) {
		if err = send(a); err == nil {
			for _, b := range a.Batches {
				b = whole(b)
				done.Receipts = append(done.Receipts, eventstore.Receipt{Stream: b.Stream, First: b.After.Seqno + 1,
					Last: eventstore.Mark{Seqno: b.Last(), ID: b.Events[len(b.Events)-1].ID}})
			}
		}
		return done, err
	})
	return err
}

func (h *History) note(a eventstore.Append, send func(eventstore.Append) (eventstore.Appended, error)) (eventstore.Appended, error) {
	a.Batches = append([]eventstore.Batch(nil), a.Batches...)
	for i := range a.Batches {
		if a.Batches[i].ID.IsZero() {
			a.Batches[i].ID = eventstore.NewUUID()
		}
	}
	h.begin(a)
	done, err := send(a)
	yield()
	h.end(a, done, err)
	return done, err
}

// yield lets others go on after an answer. WebAssembly has one thread and takes it from
// nobody: where a backend never waits, a client that calls without end has it for ever.
func yield() {
	if runtime.GOARCH == "wasm" {
		runtime.Gosched()
	}
}

// begin notes batches as unknown, so that a crash of send leaves them so.
func (h *History) begin(a eventstore.Append) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range a.Batches {
		if h.batches[b.ID] == nil {
			h.batches[b.ID] = &told{batch: whole(b), unknown: true}
		}
	}
}

func (h *History) end(a eventstore.Append, done eventstore.Appended, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && len(done.Receipts) != len(a.Batches) {
		h.faults = append(h.faults, fmt.Sprintf("%d receipts for %d batches", len(done.Receipts), len(a.Batches)))
		return
	}
	if err == nil && done.Token.Position > h.token.Position {
		h.token = done.Token
	}
	for i, b := range a.Batches {
		t := h.batches[b.ID]
		switch {
		case err == nil:
			h.ack(t, whole(b), done.Receipts[i])
		case !t.acked:
			t.unknown = errors.Is(err, eventstore.ErrUnknown)
			t.batch = whole(b)
		}
	}
}

func (h *History) ack(t *told, b eventstore.Batch, r eventstore.Receipt) {
	if t.acked && !sameContent(t.batch, b) {
		h.faults = append(h.faults, fmt.Sprintf("batch %v was acked with two contents", b.ID))
	}
	if !t.acked {
		t.batch = b
	}
	t.acked, t.unknown = true, false
	want := eventstore.Receipt{Stream: b.Stream, First: b.After.Seqno + 1, Fenced: r.Fenced, Replays: r.Replays,
		Last: eventstore.Mark{Seqno: b.Last(), ID: b.Events[len(b.Events)-1].ID}}
	if r != want {
		h.faults = append(h.faults, fmt.Sprintf("receipt %+v, want %+v", r, want))
	}
	h.grant(b.Stream, b.Epoch, b.Holder)
}

// Fence fences through a store and notes the grant.
func (h *History) Fence(ctx context.Context, store *eventstore.Store, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
	var head eventstore.Head
	var err error
	if at == 0 {
		head, err = store.Fence(ctx, s, holder)
	} else {
		head, err = store.FenceAt(ctx, s, at, holder)
	}
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		if head.Holder != holder || at != 0 && head.Epoch != at {
			h.faults = append(h.faults, fmt.Sprintf("%s: fence at %d for %v granted %+v", s, at, holder, head))
		}
		h.grant(s, head.Epoch, holder)
	}
	return head, err
}

// Granted notes that a fence, of another process say, granted an epoch.
func (h *History) Granted(s eventstore.Stream, at eventstore.Epoch, holder eventstore.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grant(s, at, holder)
}

// grant notes who holds an epoch; nobody else may ever be told that he does.
func (h *History) grant(s eventstore.Stream, at eventstore.Epoch, holder eventstore.UUID) {
	if h.grants[s] == nil {
		h.grants[s] = map[eventstore.Epoch]eventstore.UUID{}
	}
	if had, ok := h.grants[s][at]; ok && had != holder {
		h.faults = append(h.faults, fmt.Sprintf("%s: epoch %d was granted to %v and to %v", s, at, had, holder))
	}
	h.grants[s][at] = holder
}

// Forget drops what is known of a category, which was deleted.
func (h *History) Forget(c eventstore.Category) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.batches, func(_ eventstore.UUID, t *told) bool { return t.batch.Stream.Category() == c })
	maps.DeleteFunc(h.grants, func(s eventstore.Stream, _ map[eventstore.Epoch]eventstore.UUID) bool { return s.Category() == c })
}

// Token returns the highest token that was acked.
func (h *History) Token() eventstore.Token {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.token
}

// whole returns a batch as it is to be read back: with the defaults that the
// contract states filled in, and sharing nothing with the caller's.
func whole(b eventstore.Batch) eventstore.Batch {
	b.Events = append([]eventstore.Event(nil), b.Events...)
	for i := range b.Events {
		e := &b.Events[i]
		if e.ID.IsZero() {
			e.ID = eventstore.DeriveUUID(b.ID, i)
		}
		if e.Version == 0 {
			e.Version = 1
		}
		if e.ContentType == "" {
			e.ContentType = "application/json"
		}
		e.Data = append([]byte{}, e.Data...)
		e.Metadata = maps.Clone(e.Metadata)
		if len(e.Metadata) == 0 {
			e.Metadata = nil
		}
	}
	return b
}

// sameContent says if two whole batches are the same, trace metadata aside.
func sameContent(a, b eventstore.Batch) bool {
	if a.Stream != b.Stream || a.After.Seqno != b.After.Seqno || len(a.Events) != len(b.Events) {
		return false
	}
	for i := range a.Events {
		if !sameEvent(untraced(a.Events[i]), untraced(b.Events[i])) {
			return false
		}
	}
	return true
}

// sameEvent says if two events are equal in every byte.
func sameEvent(a, b eventstore.Event) bool {
	return a.ID == b.ID && a.Type == b.Type && a.Version == b.Version && a.ContentType == b.ContentType &&
		bytes.Equal(a.Data, b.Data) && maps.Equal(a.Metadata, b.Metadata)
}

func untraced(e eventstore.Event) eventstore.Event {
	e.Metadata = maps.Clone(e.Metadata)
	delete(e.Metadata, eventstore.MetaTraceparent)
	delete(e.Metadata, eventstore.MetaTracestate)
	return e
}
