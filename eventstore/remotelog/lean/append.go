// What writes: appends, fences, trims, snapshots.

package lean

import (
	"context"
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
)

// Append writes all batches or none; see [eventstore.Log].
func (l *Log) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	req := struct {
		Batches []batch `json:"batches"`
		Guards  []guard `json:"guards,omitempty"`
	}{Guards: mapped(a.Guards, func(g eventstore.Guard) guard { return guard{g.Stream, markOf(g.At)} })}
	for _, b := range a.Batches {
		req.Batches = append(req.Batches, batch{id(b.ID), b.Stream, number(b.Epoch), id(b.Holder), b.Claim, markOf(b.After), eventsOf(b.Events)})
	}
	act := action{op: "append", procedure: "LogService/Append", writes: true}
	if len(a.Batches) > 0 {
		act.stream = a.Batches[0].Stream
	}
	res, err := call[struct {
		Receipts []receipt
		Token    struct {
			Incarnation id
			Position    number
		}
	}](ctx, l, act, req)
	if err != nil {
		return eventstore.Appended{}, err
	}
	done := eventstore.Appended{Token: eventstore.Token{Incarnation: eventstore.UUID(res.Token.Incarnation), Position: eventstore.Position(res.Token.Position)}}
	for _, r := range res.Receipts {
		done.Receipts = append(done.Receipts, eventstore.Receipt{Stream: r.Stream, First: eventstore.Seqno(r.First), Last: r.Last.mark(), Fenced: r.Fenced, Replays: r.Replays})
	}
	if err := fits(a, done); err != nil {
		return eventstore.Appended{}, act.lost(ctx, "receipts of what was sent", err)
	}
	return done, nil
}

// fits says if receipts are those of an append.
func fits(a eventstore.Append, done eventstore.Appended) error {
	if len(done.Receipts) != len(a.Batches) {
		return fmt.Errorf("%d receipts for %d batches", len(done.Receipts), len(a.Batches))
	}
	for i, r := range done.Receipts {
		if b := &a.Batches[i]; r.Stream != b.Stream || r.First != b.After.Seqno+1 || r.Last.Seqno != b.Last() {
			return fmt.Errorf("entries %d to %d of %s instead of %d to %d of %s", r.First, r.Last.Seqno, r.Stream, b.After.Seqno+1, b.Last(), b.Stream)
		}
	}
	return nil
}

// Fence grants holder an epoch; see [eventstore.Log].
func (l *Log) Fence(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
	res, err := call[struct{ Head head }](ctx, l, action{op: "fence", stream: s, procedure: "LogService/Fence", writes: true}, struct {
		Stream eventstore.Stream `json:"stream"`
		Holder id                `json:"holder"`
		At     number            `json:"at,omitzero"`
	}{s, id(holder), number(at)})
	if err != nil {
		return eventstore.Head{}, err
	}
	return res.Head.head(), nil
}

// Trim removes entries of a stream; see [eventstore.Log].
func (l *Log) Trim(ctx context.Context, s eventstore.Stream, through eventstore.Seqno, dry bool) (eventstore.TrimResult, error) {
	res, err := call[struct {
		Trimmed   number
		StoppedBy string
	}](ctx, l, action{op: "trim", stream: s, procedure: "LogService/Trim", writes: !dry}, struct {
		Stream  eventstore.Stream `json:"stream"`
		Through number            `json:"through,omitzero"`
		Dry     bool              `json:"dry,omitzero"`
	}{s, number(through), dry})
	if err != nil {
		return eventstore.TrimResult{}, err
	}
	return eventstore.TrimResult{Trimmed: eventstore.Seqno(res.Trimmed), StoppedBy: res.StoppedBy}, nil
}

// SaveSnapshot keeps a snapshot; see [eventstore.Snapshots].
func (l *Log) SaveSnapshot(ctx context.Context, sn eventstore.Snapshot) error {
	_, err := call[struct{}](ctx, l, action{op: "save snapshot", stream: sn.Stream, procedure: "LogService/SaveSnapshot", writes: true}, struct {
		Snapshot snapshot `json:"snapshot"`
	}{snapshot{Stream: sn.Stream, At: markOf(sn.At), Fingerprint: sn.Fingerprint, ContentType: sn.ContentType, Data: sn.Data, Checksum: sn.Checksum[:]}})
	return err
}
