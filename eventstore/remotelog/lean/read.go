// What reads: pages of streams and of the feed, heads, loads.

package lean

import (
	"context"

	"github.com/wattle-es/wattle/eventstore"
)

type page struct {
	Entries []entry
	End     bool
}

// ReadFrom returns the entries of a stream after a seqno; see [eventstore.Log].
func (l *Log) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	res, err := call[page](ctx, l, action{op: "read", stream: s, procedure: "LogService/Read"}, struct {
		Stream eventstore.Stream `json:"stream"`
		After  number            `json:"after,omitzero"`
		Limit  int               `json:"limit,omitzero"`
	}{s, number(after), limit})
	if err != nil {
		return eventstore.Page{}, err
	}
	return eventstore.Page{Entries: entries(res.Entries), End: res.End}, nil
}

// ReadBackward returns the entries of a stream below a seqno; see [eventstore.BackwardReader].
func (l *Log) ReadBackward(ctx context.Context, s eventstore.Stream, before eventstore.Seqno, limit int) (eventstore.Page, error) {
	res, err := call[page](ctx, l, action{op: "read backward", stream: s, procedure: "LogService/ReadBackward"}, struct {
		Stream eventstore.Stream `json:"stream"`
		Before number            `json:"before,omitzero"`
		Limit  int               `json:"limit,omitzero"`
	}{s, number(before), limit})
	if err != nil {
		return eventstore.Page{}, err
	}
	return eventstore.Page{Entries: entries(res.Entries), End: res.End}, nil
}

// ReadFeed returns entries after a position; see [eventstore.Log].
func (l *Log) ReadFeed(ctx context.Context, after eventstore.Position, f eventstore.Filter, limit int) (eventstore.FeedPage, error) {
	res, err := call[struct {
		page
		Through struct {
			Position number
			ID       id
		}
		Horizon, Drawn, Timeline number
		Incarnation              id
	}](ctx, l, action{op: "read feed", procedure: "LogService/ReadFeed"}, struct {
		After  number `json:"after,omitzero"`
		Filter filter `json:"filter"`
		Limit  int    `json:"limit,omitzero"`
	}{number(after), filter{f.Categories, f.Types, f.Slots, f.AcceptTrimmed}, limit})
	if err != nil {
		return eventstore.FeedPage{}, err
	}
	return eventstore.FeedPage{
		Entries: entries(res.Entries), Through: eventstore.PositionMark{Position: eventstore.Position(res.Through.Position), ID: eventstore.UUID(res.Through.ID)},
		End: res.End, Horizon: eventstore.Position(res.Horizon), Drawn: eventstore.Position(res.Drawn),
		Incarnation: eventstore.UUID(res.Incarnation), Timeline: uint64(res.Timeline),
	}, nil
}

// Head returns what the registry knows of a stream; see [eventstore.Log].
func (l *Log) Head(ctx context.Context, s eventstore.Stream) (eventstore.Head, error) {
	res, err := call[struct{ Head head }](ctx, l, action{op: "head", stream: s, procedure: "LogService/GetHead"}, struct {
		Stream eventstore.Stream `json:"stream"`
	}{s})
	if err != nil {
		return eventstore.Head{}, err
	}
	return res.Head.head(), nil
}

// Load returns what it takes to build the state of a stream; see [eventstore.Snapshots].
func (l *Log) Load(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error) {
	a := action{op: "load", stream: s, procedure: "LogService/Load"}
	res, err := call[struct {
		page
		Head        head
		Snapshot    *snapshot
		Skipped     string
		Incarnation id
	}](ctx, l, a, struct {
		Stream      eventstore.Stream `json:"stream"`
		Fingerprint string            `json:"fingerprint,omitzero"`
		Limit       int               `json:"limit,omitzero"`
	}{s, fingerprint, limit})
	if err != nil {
		return eventstore.Loaded{}, err
	}
	loaded := eventstore.Loaded{Head: res.Head.head(), Skipped: res.Skipped, Entries: entries(res.Entries), End: res.End, Incarnation: eventstore.UUID(res.Incarnation)}
	if res.Snapshot != nil {
		if loaded.Snapshot, err = res.Snapshot.snapshot(); err != nil {
			return eventstore.Loaded{}, a.lost(ctx, "a snapshot", err)
		}
	}
	return loaded, nil
}

// ListTrimmed returns streams that were trimmed through their last entry; see
// [eventstore.TrimmedStreams].
func (l *Log) ListTrimmed(ctx context.Context, c eventstore.Category, slots []eventstore.Slot, after string, limit int) (eventstore.TrimmedPage, error) {
	res, err := call[struct {
		Streams []eventstore.Stream
		Next    string
	}](ctx, l, action{op: "list trimmed", procedure: "LogService/ListTrimmed"}, struct {
		Category eventstore.Category `json:"category"`
		Slots    []eventstore.Slot   `json:"slots,omitempty"`
		After    string              `json:"after,omitzero"`
		Limit    int                 `json:"limit,omitzero"`
	}{c, slots, after, limit})
	if err != nil {
		return eventstore.TrimmedPage{}, err
	}
	return eventstore.TrimmedPage{Streams: res.Streams, Next: res.Next}, nil
}
