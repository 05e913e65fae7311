// One log and its owner: fenced once, then one append after the other.

package load

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Pauses before a batch is sent again, and in a closed loop after a failure: each
// twice as long as the one before.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// owner appends to one log. It waits for each answer before it sends again: what a
// next batch stands behind is known only then.
type owner struct {
	store  *eventstore.Store
	meter  *meter
	stream eventstore.Stream
	holder eventstore.UUID
	epoch  eventstore.Epoch
	after  eventstore.Mark
	batch  int // events of an append
	data   *payloads
	pace   pacer
	acked  func(*owner) // called after each

	last    atomic.Uint64 // seqno acknowledged
	trimmed atomic.Uint64 // seqno through which was asked to trim
}

// fence makes o the owner of its log, which goes on where it was left off.
func (o *owner) fence(ctx context.Context, at eventstore.Epoch) error {
	var h eventstore.Head
	var err error
	if at == 0 {
		h, err = o.store.Fence(ctx, o.stream, o.holder)
	} else {
		h, err = o.store.FenceAt(ctx, o.stream, at, o.holder)
	}
	if err != nil {
		return err
	}
	o.epoch, o.after = h.Epoch, h.Last
	o.last.Store(uint64(h.Last.Seqno))
	o.trimmed.Store(uint64(h.Trimmed))
	return nil
}

// run appends until sending ends; appends in flight then go on until flight does. It
// returns an error that the log will answer from now on, as ErrFenced.
func (o *owner) run(sending, flight context.Context) error {
	pause := firstPause
	for {
		due, ok := o.pace.next(sending)
		if !ok {
			return nil
		}
		err := o.append(flight, due)
		switch {
		case err == nil:
			pause = firstPause
			continue
		case lost(err):
			return err
		}
		if _, ok := o.pace.(closed); ok { // a schedule paces itself
			sleep(sending, pause)
			pause = min(2*pause, lastPause)
		}
	}
}

// append sends one batch, again and again while its outcome is unknown. Once it is,
// only a verdict on the batch ends that: another batch in its place could meet it.
func (o *owner) append(ctx context.Context, due time.Time) error {
	b, sizes := o.next()
	unknown := false
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		done, err := o.store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
		if err == nil {
			o.after = done.Receipts[0].Last
			o.last.Store(uint64(o.after.Seqno))
			o.meter.acked(time.Since(due), sizes)
			o.acked(o)
			return nil
		}
		unknown = unknown || errors.Is(err, eventstore.ErrUnknown)
		if !unknown || lost(err) || ctx.Err() != nil || !sleep(ctx, pause) {
			o.meter.failed(err)
			return err
		}
		o.meter.resent()
	}
}

// next makes the batch behind the last one that was acknowledged.
func (o *owner) next() (eventstore.Batch, []int) {
	b := eventstore.Batch{ID: eventstore.NewUUID(), Stream: o.stream, Epoch: o.epoch, Holder: o.holder, After: o.after,
		Events: make([]eventstore.Event, o.batch)}
	sizes := make([]int, o.batch)
	for i := range b.Events {
		data := o.data.next()
		sizes[i] = len(data)
		b.Events[i] = eventstore.Event{Type: "load", ContentType: "application/octet-stream", Data: data}
	}
	return b, sizes
}

// lost says if the log is no longer its owner's, or not what its owner left: it will
// answer the same to everything that follows.
func lost(err error) bool {
	for _, kind := range []error{eventstore.ErrFenced, eventstore.ErrDiverged, eventstore.ErrAlreadyWritten, eventstore.ErrGap, eventstore.ErrBatchIDReused} {
		if errors.Is(err, kind) {
			return true
		}
	}
	e, ok := errors.AsType[*eventstore.Error](err)
	return ok && e.Unprovable
}
