// The client's Log: append, read, fence, trim, and snapshots.

package remotelog

import (
	"context"
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
)

// checked returns an answer that could be read and fits, or the error of one that is not.
func checked[T any](l *Log, a wire.Act, v T, errs ...error) (T, error) {
	for _, err := range errs {
		if err != nil {
			var none T
			return none, l.caller.Misfit(a, err)
		}
	}
	return v, nil
}

// pageFits refuses a page that would never end, or is longer than what was asked for.
func pageFits(n, limit int, end bool) error {
	if n > limit || n == 0 && !end {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Wanted: fmt.Sprintf("1 to %d entries, or the end", limit), Found: fmt.Sprint(n)}
	}
	return nil
}

// Append implements [eventstore.Log].
func (l *Log) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	act := wire.Act{Op: "append", Writes: true}
	if len(a.Batches) > 0 {
		act.Stream = a.Batches[0].Stream
	}
	m, err := call(ctx, l, act, wire.FromAppend(a), l.service.Append)
	if err != nil {
		return eventstore.Appended{}, err
	}
	done, err := wire.ToAppended(m.GetReceipts(), m.GetToken())
	return checked(l, act, done, err, wire.Answers(a, done))
}

// ReadFrom implements [eventstore.Log].
func (l *Log) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	act := wire.Act{Op: "read", Stream: s}
	m, err := call(ctx, l, act, &wattlev1.ReadRequest{Stream: string(s), After: uint64(after), Limit: wire.FromCount(limit)}, l.service.Read)
	if err != nil {
		return eventstore.Page{}, err
	}
	entries, err := wire.ToEntries(m.GetEntries())
	p := eventstore.Page{Entries: entries, End: m.GetEnd()}
	return checked(l, act, p, err, wire.Follows(s, after, entries), pageFits(len(entries), limit, p.End))
}

// ReadBackward implements [eventstore.BackwardReader].
func (l *Log) ReadBackward(ctx context.Context, s eventstore.Stream, before eventstore.Seqno, limit int) (eventstore.Page, error) {
	act := wire.Act{Op: "read backward", Stream: s}
	m, err := call(ctx, l, act, &wattlev1.ReadBackwardRequest{Stream: string(s), Before: uint64(before), Limit: wire.FromCount(limit)}, l.service.ReadBackward)
	if err != nil {
		return eventstore.Page{}, err
	}
	entries, err := wire.ToEntries(m.GetEntries())
	p := eventstore.Page{Entries: entries, End: m.GetEnd()}
	return checked(l, act, p, err, wire.Precedes(s, before, entries), pageFits(len(entries), limit, p.End))
}

// ReadFeed implements [eventstore.Log].
func (l *Log) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	act := wire.Act{Op: "read feed"}
	m, err := call(ctx, l, act, &wattlev1.ReadFeedRequest{After: uint64(after), Filter: wire.FromFilter(f), Limit: wire.FromCount(limit)}, l.service.ReadFeed)
	if err != nil {
		return eventstore.FeedPage{}, err
	}
	p, err := wire.ToFeedPage(m)
	return checked(l, act, p, err, wire.Continues(after, p))
}

// Fence implements [eventstore.Log].
func (l *Log) Fence(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
	act := wire.Act{Op: "fence", Stream: s, Writes: true}
	m, err := call(ctx, l, act, &wattlev1.FenceRequest{Stream: string(s), Holder: wire.FromUUID(holder), At: uint64(at)}, l.service.Fence)
	if err != nil {
		return eventstore.Head{}, err
	}
	h, err := wire.ToHead(m.GetHead())
	return checked(l, act, h, err, grantFits(h, holder, at))
}

// grantFits says if a head can be the answer to a fence.
func grantFits(h eventstore.Head, holder eventstore.UUID, at eventstore.Epoch) error {
	if h.Epoch == 0 || at != 0 && h.Epoch != at || h.Holder != holder {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Wanted: fmt.Sprintf("epoch %d (0: any) for %v", at, holder), Found: fmt.Sprintf("%d for %v", h.Epoch, h.Holder)}
	}
	return nil
}

// Head implements [eventstore.Log].
func (l *Log) Head(ctx context.Context, s eventstore.Stream) (eventstore.Head, error) {
	act := wire.Act{Op: "head", Stream: s}
	m, err := call(ctx, l, act, &wattlev1.GetHeadRequest{Stream: string(s)}, l.service.GetHead)
	if err != nil {
		return eventstore.Head{}, err
	}
	h, err := wire.ToHead(m.GetHead())
	return checked(l, act, h, err)
}

// Trim implements [eventstore.Log].
func (l *Log) Trim(ctx context.Context, s eventstore.Stream, through eventstore.Seqno, dry bool) (eventstore.TrimResult, error) {
	act := wire.Act{Op: "trim", Stream: s, Writes: !dry}
	m, err := call(ctx, l, act, &wattlev1.TrimRequest{Stream: string(s), Through: uint64(through), Dry: dry}, l.service.Trim)
	if err != nil {
		return eventstore.TrimResult{}, err
	}
	to, err := wire.ToNumber[eventstore.Seqno]("trimmed", m.GetTrimmed())
	return checked(l, act, eventstore.TrimResult{Trimmed: to, StoppedBy: m.GetStoppedBy()}, err)
}

// SaveSnapshot implements [eventstore.Snapshots].
func (l *Log) SaveSnapshot(ctx context.Context, sn eventstore.Snapshot) error {
	act := wire.Act{Op: "save snapshot", Stream: sn.Stream, Writes: true}
	_, err := call(ctx, l, act, &wattlev1.SaveSnapshotRequest{Snapshot: wire.FromSnapshot(&sn)}, l.service.SaveSnapshot)
	return err
}

// Load implements [eventstore.Snapshots].
func (l *Log) Load(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error) {
	act := wire.Act{Op: "load", Stream: s}
	m, err := call(ctx, l, act, &wattlev1.LoadRequest{Stream: string(s), Fingerprint: fingerprint, Limit: wire.FromCount(limit)}, l.loads.Load)
	if err != nil {
		return eventstore.Loaded{}, err
	}
	got, err := wire.ToLoaded(m)
	return checked(l, act, got, err, wire.Loads(s, got))
}

// ListTrimmed implements [eventstore.TrimmedStreams].
func (l *Log) ListTrimmed(ctx context.Context, c eventstore.Category, slots []eventstore.Slot, after string, limit int) (eventstore.TrimmedPage, error) {
	act := wire.Act{Op: "list trimmed streams", Category: c}
	m, err := call(ctx, l, act, &wattlev1.ListTrimmedRequest{Category: string(c), Slots: wire.FromSlots(slots), After: after, Limit: wire.FromCount(limit)}, l.service.ListTrimmed)
	if err != nil {
		return eventstore.TrimmedPage{}, err
	}
	return eventstore.TrimmedPage{Streams: wire.ToStreams(m.GetStreams()), Next: m.GetNext()}, nil
}
