// Read models in memory, and effects outside of any transaction.

package projector

import (
	"context"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
)

// MemoryCheckpoints keeps checkpoints in memory; they end with the process. The
// zero value is ready. It may be used from several goroutines at once.
type MemoryCheckpoints struct {
	work sync.Mutex // held through a step, so that steps exclude each other
	mu   sync.Mutex // guards kept, never held for long: Load does not wait for a step
	kept map[Key]Checkpoint
}

// Load returns the checkpoint of a key.
func (m *MemoryCheckpoints) Load(ctx context.Context, key Key) (Checkpoint, error) {
	return m.get(key), ctx.Err()
}

// Save replaces a checkpoint.
func (m *MemoryCheckpoints) Save(ctx context.Context, key Key, from, to Checkpoint) error {
	return m.step(ctx, key, from, func() error {
		m.set(key, to)
		return nil
	})
}

// step calls f, which may set the checkpoint, if it is from; one at a time.
func (m *MemoryCheckpoints) step(ctx context.Context, key Key, from Checkpoint, f func() error) error {
	m.work.Lock()
	defer m.work.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if kept := m.get(key); !kept.Same(from) {
		return FencedError(key, from, kept)
	}
	return f()
}

func (m *MemoryCheckpoints) get(key Key) Checkpoint {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept[key]
}

func (m *MemoryCheckpoints) set(key Key, c Checkpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		m.kept = map[Key]Checkpoint{}
	}
	m.kept[key] = c
}

// memory is a Handler with its checkpoint in memory.
type memory struct {
	MemoryCheckpoints
	apply func(ctx context.Context, batch []eventstore.Entry, passed func(eventstore.Entry)) error
}

func (m *memory) Handle(ctx context.Context, key Key, from, to Checkpoint, batch []eventstore.Entry) error {
	return m.step(ctx, key, from, func() error {
		at := from
		err := m.apply(ctx, batch, func(e eventstore.Entry) {
			at = at.Past(e, to)
			m.set(key, at)
		})
		if err == nil {
			m.set(key, to)
		}
		return err
	})
}

// Memory returns a handler for a read model in the memory of this process, which
// lives as long as the handler: f sees every event once, in order, and is never
// called twice at once. f must leave the model as it was when it returns an error
// or panics. The read model needs a lock of its own against its readers.
func Memory[E any](d Decoder[E], f func(ctx context.Context, e Event[E]) error) Handler {
	return &memory{apply: func(ctx context.Context, batch []eventstore.Entry, passed func(eventstore.Entry)) error {
		events, err := Decode(d, batch)
		if err != nil {
			return err
		}
		return Each(ctx, events, func(ctx context.Context, e Event[E]) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f(ctx, e); err != nil {
				return err
			}
			passed(e.Entry)
			return nil
		})
	}}
}

// MemoryBatch is Memory for a function that takes a batch, all of it or nothing.
func MemoryBatch[E any](d Decoder[E], f func(ctx context.Context, batch []Event[E]) error) Handler {
	return Func(func(ctx context.Context, batch []eventstore.Entry) error {
		events, err := Decode(d, batch)
		if err != nil {
			return err
		}
		return f(ctx, events)
	})
}

// Func is MemoryBatch for a function that takes entries as they are stored.
func Func(f func(ctx context.Context, batch []eventstore.Entry) error) Handler {
	return &memory{apply: func(ctx context.Context, batch []eventstore.Entry, _ func(eventstore.Entry)) error {
		if len(batch) == 0 {
			return nil
		}
		return Contain(batch, func() error { return f(ctx, batch) })
	}}
}

// Sink returns a handler for effects that share no transaction with their
// checkpoint. f sees every entry at least once and in order; after a crash or a
// lost answer the last batch comes again. An effect is told from its repetition
// by key (projector, version) and the entry's position. An instance that is known
// to be fenced does not call f, but one that is fenced while f runs has no way to
// know.
func Sink(c Checkpoints, f func(ctx context.Context, key Key, batch []eventstore.Entry) error) Handler {
	return &sink{Checkpoints: c, f: f}
}

type sink struct {
	Checkpoints
	f    func(ctx context.Context, key Key, batch []eventstore.Entry) error
	tidy func(ctx context.Context, of []eventstore.Category) error // may be nil
}

func (s *sink) Handle(ctx context.Context, key Key, from, to Checkpoint, batch []eventstore.Entry) error {
	if len(batch) > 0 {
		kept, err := s.Load(ctx, key)
		if err != nil {
			return err
		}
		if !kept.Same(from) {
			return FencedError(key, from, kept)
		}
		if err := Contain(batch, func() error { return s.f(ctx, key, batch) }); err != nil {
			return err
		}
	}
	return s.Save(ctx, key, from, to)
}
