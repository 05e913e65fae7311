// Decoded events and the loops that hand them to functions, panics contained.

package projector

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/wattle-es/wattle/eventstore"
)

// Event is an entry and its decoded value.
type Event[E any] struct {
	eventstore.Entry
	Value E
}

// Decoder decodes entries, as *schema.Registry[E] does. It may be called from
// several goroutines at once.
type Decoder[E any] interface {
	Decode(eventstore.Entry) (E, error)
}

// EntryError says which entry a handler could not take, and why.
type EntryError struct {
	Stream   eventstore.Stream
	Seqno    eventstore.Seqno
	Position eventstore.Position
	Type     string // wire name
	Count    int    // entries that were handled together, the named one first; 1 if it is known to be at fault
	// Permanent: trying again will not help, as for an entry that cannot be decoded.
	Permanent bool
	Stack     []byte // of a panic
	Err       error
}

// NewEntryError returns the error of a batch that failed as a whole (more than
// one entry) or of one entry. The batch is not empty.
func NewEntryError(batch []eventstore.Entry, err error) *EntryError {
	e := batch[0]
	return &EntryError{Stream: e.Stream, Seqno: e.Seqno, Position: e.Position, Type: e.Type, Count: len(batch), Err: err}
}

// Error returns one line: entry, type, cause. The stack of a panic is not in it.
func (e *EntryError) Error() string {
	also := ""
	if e.Count > 1 {
		also = fmt.Sprintf(" and the %d after it", e.Count-1)
	}
	return fmt.Sprintf("wattle: handler failed on entry %d of %q (%q, position %d)%s: %v", e.Seqno, e.Stream, e.Type, e.Position, also, e.Err)
}

// Unwrap returns the cause.
func (e *EntryError) Unwrap() error { return e.Err }

// Decode decodes a batch; the error is an *EntryError that names the first entry
// that cannot be decoded. An entry that stands for a snapshot is not decoded: the event's
// Value is zero and [Event.Snapshot] has it.
func Decode[E any](d Decoder[E], batch []eventstore.Entry) ([]Event[E], error) {
	events := make([]Event[E], len(batch))
	for i, e := range batch {
		if standsForSnapshot(&e) {
			events[i] = Event[E]{Entry: e}
			continue
		}
		v, err := d.Decode(e)
		if err != nil {
			bad := NewEntryError(batch[i:i+1], err)
			bad.Permanent = true
			return nil, bad
		}
		events[i] = Event[E]{Entry: e, Value: v}
	}
	return events, nil
}

// Each calls f with each event, in order, and stops at the first error, which it
// returns as an *EntryError naming the event. A panic of f is such an error.
func Each[E any](ctx context.Context, events []Event[E], f func(context.Context, Event[E]) error) error {
	for i := range events {
		if err := one(ctx, &events[i], f); err != nil {
			return err
		}
	}
	return nil
}

func one[E any](ctx context.Context, e *Event[E], f func(context.Context, Event[E]) error) (err error) {
	ctx, span := entrySpan(ctx, &e.Entry)
	defer func() { eventstore.EndSpan(span, err) }()
	return Contain([]eventstore.Entry{e.Entry}, func() error { return f(ctx, *e) })
}

// Contain calls f, which handles the batch, and returns its error, or its panic,
// as an *EntryError. An *EntryError of f stays as it is.
func Contain(batch []eventstore.Entry, f func() error) error {
	err := containedBatch(batch, f)
	if err == nil {
		return nil
	}
	if _, named := err.(*EntryError); named {
		return err
	}
	return NewEntryError(batch, err)
}

// containedBatch calls f and returns its error as it is, its panic as an *EntryError.
func containedBatch(batch []eventstore.Entry, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			e := NewEntryError(batch, panicked(r))
			e.Stack = debug.Stack()
			err = e
		}
	}()
	return f()
}

// contained calls f and returns its error or its panic.
func contained(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked(r)
		}
	}()
	return f()
}

func panicked(r any) error {
	if cause, ok := r.(error); ok {
		return fmt.Errorf("panic: %w", cause)
	}
	return fmt.Errorf("panic: %v", r)
}
