// Handlers for read models in memory, and for effects outside of any transaction.

package projector

import (
	"context"

	"github.com/wattle-es/wattle/eventstore"
)

// memory is a Handler with its checkpoint in memory.
type memory struct {
	MemoryCheckpoints
	apply func(ctx context.Context, batch []eventstore.Entry, passed func(eventstore.Entry)) error
}

func (m *memory) Handle(ctx context.Context, s Step) error {
	return m.step(ctx, s, func() error {
		at, to := s.From, s.To
		if s.gaps {
			to.Recent = nil // it would say that what the batch lacks was lost
		}
		err := m.apply(ctx, s.Batch, func(e eventstore.Entry) {
			at = at.Past(e, to)
			m.set(s.Key, at)
		})
		if err == nil {
			m.done(s)
		}
		return err
	})
}

// private: the read model is this handler's own, and so are its checkpoints.
func (m *memory) private() {}

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
// know. f does not see what is [Quiet].
func Sink(c Checkpoints, f func(ctx context.Context, key Key, batch []eventstore.Entry) error) Handler {
	return &sink{Checkpoints: c, f: f}
}

type sink struct {
	Checkpoints
	f    func(ctx context.Context, key Key, batch []eventstore.Entry) error
	tidy func(ctx context.Context, of []eventstore.Category) error // may be nil
}

func (s *sink) Handle(ctx context.Context, st Step) error {
	if loud := loud(ctx, st.Batch); len(loud) > 0 {
		kept, err := s.Load(ctx, st.Key)
		if err != nil {
			return err
		}
		if !kept.Same(st.From) {
			return FencedError(st.Key, st.From, kept)
		}
		if err := Contain(loud, func() error { return s.f(ctx, st.Key, loud) }); err != nil {
			return err
		}
	}
	return s.Save(ctx, st)
}
