// The client's categories, streams, holds and diagnosis.

package remotelog

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
)

// CreateCategory implements [eventstore.Categories].
func (l *Log) CreateCategory(ctx context.Context, spec eventstore.CategorySpec) error {
	act := wire.Act{Op: "create category", Category: spec.Name, Writes: true}
	_, err := call(ctx, l, act, &wattlev1.CreateCategoryRequest{Spec: wire.FromCategorySpec(spec)}, l.admin.CreateCategory)
	return err
}

// DeleteCategory implements [eventstore.Categories].
func (l *Log) DeleteCategory(ctx context.Context, c eventstore.Category) error {
	act := wire.Act{Op: "delete category", Category: c, Writes: true}
	_, err := call(ctx, l, act, &wattlev1.DeleteCategoryRequest{Name: string(c)}, l.admin.DeleteCategory)
	return err
}

// ListCategories implements [eventstore.Categories]: those that the server lets the caller
// know of.
func (l *Log) ListCategories(ctx context.Context) ([]eventstore.CategorySpec, error) {
	act := wire.Act{Op: "list categories"}
	m, err := call(ctx, l, act, &wattlev1.ListCategoriesRequest{}, l.admin.ListCategories)
	if err != nil {
		return nil, err
	}
	all, err := wire.ToCategorySpecs(m.GetCategories())
	return checked(l, act, all, err)
}

// CreateStreams implements [eventstore.Streams].
func (l *Log) CreateStreams(ctx context.Context, streams []eventstore.Stream) error {
	act := wire.Act{Op: "create streams", Writes: true}
	if len(streams) > 0 {
		act.Stream = streams[0]
	}
	_, err := call(ctx, l, act, &wattlev1.CreateStreamsRequest{Streams: wire.FromStreams(streams)}, l.admin.CreateStreams)
	return err
}

// DropStream implements [eventstore.Streams].
func (l *Log) DropStream(ctx context.Context, s eventstore.Stream) error {
	act := wire.Act{Op: "drop stream", Stream: s, Writes: true}
	_, err := call(ctx, l, act, &wattlev1.DropStreamRequest{Stream: string(s)}, l.admin.DropStream)
	return err
}

// SetHold implements [eventstore.Holds].
func (l *Log) SetHold(ctx context.Context, h eventstore.Hold) error {
	act := wire.Act{Op: "set hold", Stream: h.Stream, Category: h.Category, Writes: true}
	_, err := call(ctx, l, act, &wattlev1.SetHoldRequest{Hold: wire.FromHold(h)}, l.admin.SetHold)
	return err
}

// ReleaseHold implements [eventstore.Holds].
func (l *Log) ReleaseHold(ctx context.Context, name string, c eventstore.Category, s eventstore.Stream) error {
	act := wire.Act{Op: "release hold", Stream: s, Category: c, Writes: true}
	_, err := call(ctx, l, act, &wattlev1.ReleaseHoldRequest{Name: name, Category: string(c), Stream: string(s)}, l.admin.ReleaseHold)
	return err
}

// ListHolds implements [eventstore.Holds]: those on categories that the server lets the
// caller know of.
func (l *Log) ListHolds(ctx context.Context) ([]eventstore.Hold, error) {
	act := wire.Act{Op: "list holds"}
	m, err := call(ctx, l, act, &wattlev1.ListHoldsRequest{}, l.admin.ListHolds)
	if err != nil {
		return nil, err
	}
	all, err := wire.ToHolds(m.GetHolds())
	return checked(l, act, all, err)
}

// Examine implements [eventstore.Doctor].
func (l *Log) Examine(ctx context.Context) ([]eventstore.Finding, error) {
	act := wire.Act{Op: "examine"}
	m, err := call(ctx, l, act, &wattlev1.ExamineRequest{}, l.admin.Examine)
	if err != nil {
		return nil, err
	}
	all, err := wire.ToFindings(m.GetFindings())
	return checked(l, act, all, err)
}

// Verify implements [eventstore.Verifier]: the server verifies, as long as the sequence is
// ranged over.
func (l *Log) Verify(ctx context.Context, progress func(eventstore.Progress)) iter.Seq2[eventstore.Finding, error] {
	act := wire.Act{Op: "verify"}
	return func(yield func(eventstore.Finding, error) bool) {
		if err := l.enter(act); err != nil {
			yield(eventstore.Finding{}, err)
			return
		}
		l.calls.Done() // it may take for ever, so Close ends it and does not wait
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(l.closing, cancel)()
		err := l.verify(inner, act, progress, yield)
		switch {
		case err == nil:
		case l.closing.Err() != nil && ctx.Err() == nil:
			yield(eventstore.Finding{}, &eventstore.Error{Kind: eventstore.ErrClosed, Op: act.Op})
		default:
			yield(eventstore.Finding{}, l.caller.Failed(ctx, act, false, err))
		}
	}
}

// verify yields findings until the end, an error, or yield has enough.
func (l *Log) verify(ctx context.Context, act wire.Act, progress func(eventstore.Progress), yield func(eventstore.Finding, error) bool) error {
	stream, err := l.admin.Verify(ctx, &wattlev1.VerifyRequest{})
	if err != nil {
		return err
	}
	defer stream.Close() // its error is stream.Err, or of a call that was given up
	for stream.Receive() {
		m := stream.Msg()
		if m.GetProgress() != nil && progress != nil {
			progress(wire.ToProgress(m.GetProgress()))
		}
		if m.GetFinding() == nil {
			continue
		}
		f, err := wire.ToFinding(m.GetFinding())
		if err != nil {
			return l.caller.Misfit(act, err)
		}
		if !yield(f, nil) {
			return nil
		}
	}
	if err := stream.Err(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return ctx.Err()
}
