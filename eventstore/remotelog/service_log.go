// The unary methods of the log service.

package remotelog

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
)

// Append implements the service.
func (s *Service) Append(ctx context.Context, m *wattlev1.AppendRequest) (*wattlev1.AppendResponse, error) {
	const op = "append"
	var first eventstore.Stream
	if len(m.GetBatches()) > 0 {
		first = eventstore.Stream(m.GetBatches()[0].GetStream())
	}
	a, err := wire.ToAppend(m.GetBatches(), m.GetGuards())
	if err != nil {
		return nil, s.fail(ctx, op, first, err)
	}
	done, err := s.store.Append(ctx, a)
	if err != nil {
		return nil, s.fail(ctx, op, first, err)
	}
	return wire.FromAppended(done), nil
}

// cut is how many entries make a page of no more than most bytes and the entry that
// passes them. Backends count payloads; metadata and names go over the wire too.
func cut(entries []*wattlev1.Entry, most int) int {
	bytes := 0
	for i, e := range entries {
		if bytes += proto.Size(e); bytes >= most {
			return i + 1
		}
	}
	return len(entries)
}

// pageBytes is the bound that a request asks for.
func pageBytes(n uint32) int {
	if n == 0 || n > eventstore.MaxPageBytes {
		return eventstore.MaxPageBytes
	}
	return int(n)
}

// Read implements the service.
func (s *Service) Read(ctx context.Context, m *wattlev1.ReadRequest) (*wattlev1.ReadResponse, error) {
	const op = "read"
	stream := eventstore.Stream(m.GetStream())
	limit, err := wire.ToCount("limit", m.GetLimit())
	if err != nil {
		return nil, s.fail(ctx, op, stream, err)
	}
	p, err := s.store.ReadFrom(ctx, stream, eventstore.Seqno(m.GetAfter()), limit)
	if err != nil {
		return nil, s.fail(ctx, op, stream, err)
	}
	entries := wire.FromEntries(p.Entries)
	n := cut(entries, pageBytes(m.GetMaxBytes()))
	return &wattlev1.ReadResponse{Entries: entries[:n], End: p.End && n == len(entries)}, nil
}

// ReadBackward implements the service.
func (s *Service) ReadBackward(ctx context.Context, m *wattlev1.ReadBackwardRequest) (*wattlev1.ReadBackwardResponse, error) {
	const op = "read backward"
	stream := eventstore.Stream(m.GetStream())
	limit, err := wire.ToCount("limit", m.GetLimit())
	if err != nil {
		return nil, s.fail(ctx, op, stream, err)
	}
	p, err := s.store.ReadBackwardPage(ctx, stream, eventstore.Seqno(m.GetBefore()), limit)
	if err != nil {
		return nil, s.fail(ctx, op, stream, err)
	}
	entries := wire.FromEntries(p.Entries)
	n := cut(entries, pageBytes(m.GetMaxBytes()))
	return &wattlev1.ReadBackwardResponse{Entries: entries[:n], End: p.End && n == len(entries)}, nil
}

// ReadFeed implements the service. A page that is cut gets as far as its last entry. What
// the caller may not know of is passed over, not left out of what is asked: else entries
// of a category that is created meanwhile would be skipped.
func (s *Service) ReadFeed(ctx context.Context, m *wattlev1.ReadFeedRequest) (*wattlev1.ReadFeedResponse, error) {
	const op = "read feed"
	f, err := wire.ToFilter(m.GetFilter())
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	limit, err := wire.ToCount("limit", m.GetLimit())
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	p, err := s.store.ReadFeed(ctx, eventstore.Position(m.GetAfter()), f, limit)
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	if len(f.Categories) == 0 && s.o.Visible != nil {
		p.Entries = slices.DeleteFunc(slices.Clone(p.Entries), func(e eventstore.Entry) bool { return !s.o.Visible(ctx, e.Stream.Category()) })
	}
	page := wire.FromFeedPage(p)
	if n := cut(page.GetEntries(), eventstore.MaxPageBytes); n < len(page.GetEntries()) {
		page.Entries, page.End = page.GetEntries()[:n], false
		page.Through = wire.FromPositionMark(p.Entries[n-1].PositionMark())
	}
	return page, nil
}

// Load implements the service.
func (s *Service) Load(ctx context.Context, m *wattlev1.LoadRequest) (*wattlev1.LoadResponse, error) {
	const op = "load"
	stream := eventstore.Stream(m.GetStream())
	limit, err := wire.ToCount("limit", m.GetLimit())
	if err != nil {
		return nil, s.fail(ctx, op, stream, err)
	}
	l, err := s.load(ctx, stream, m.GetFingerprint(), limit)
	if err != nil {
		return nil, s.fail(ctx, op, stream, err)
	}
	loaded := wire.FromLoaded(l)
	if n := cut(loaded.GetEntries(), eventstore.MaxPageBytes); n < len(loaded.GetEntries()) {
		loaded.Entries, loaded.End = loaded.GetEntries()[:n], false
	}
	return loaded, nil
}

// load is what the Load of a store does before it makes a sequence of what it got.
func (s *Service) load(ctx context.Context, stream eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error) {
	if _, err := eventstore.ParseStream(string(stream)); err != nil {
		return eventstore.Loaded{}, err
	}
	if len(fingerprint) > eventstore.MaxNameBytes {
		return eventstore.Loaded{}, &eventstore.Error{Kind: eventstore.ErrInvalid, Wanted: "a fingerprint of at most 256 bytes", Found: "a longer one"}
	}
	log, ok := s.store.Log().(eventstore.Snapshots)
	if !ok {
		return eventstore.Loaded{}, errUnsupported
	}
	if limit == 0 {
		limit = eventstore.DefaultPageEntries
	}
	return log.Load(ctx, stream, fingerprint, min(limit, eventstore.MaxPageEntries))
}

// GetHead implements the service.
func (s *Service) GetHead(ctx context.Context, m *wattlev1.GetHeadRequest) (*wattlev1.GetHeadResponse, error) {
	stream := eventstore.Stream(m.GetStream())
	h, err := s.store.Head(ctx, stream)
	if err != nil {
		return nil, s.fail(ctx, "head", stream, err)
	}
	return &wattlev1.GetHeadResponse{Head: wire.FromHead(h)}, nil
}

// Fence implements the service.
func (s *Service) Fence(ctx context.Context, m *wattlev1.FenceRequest) (*wattlev1.FenceResponse, error) {
	const op = "fence"
	stream := eventstore.Stream(m.GetStream())
	holder, err := wire.ToUUID("holder", m.GetHolder())
	if err != nil {
		return nil, s.fail(ctx, op, stream, err)
	}
	var h eventstore.Head
	if at := eventstore.Epoch(m.GetAt()); at == 0 {
		h, err = s.store.Fence(ctx, stream, holder)
	} else {
		h, err = s.store.FenceAt(ctx, stream, at, holder)
	}
	if err != nil {
		return nil, s.fail(ctx, op, stream, err)
	}
	return &wattlev1.FenceResponse{Head: wire.FromHead(h)}, nil
}

// Trim implements the service.
func (s *Service) Trim(ctx context.Context, m *wattlev1.TrimRequest) (*wattlev1.TrimResponse, error) {
	stream := eventstore.Stream(m.GetStream())
	r, err := s.store.Trim(ctx, stream, eventstore.Seqno(m.GetThrough()), m.GetDry())
	if err != nil {
		return nil, s.fail(ctx, "trim", stream, err)
	}
	return &wattlev1.TrimResponse{Trimmed: uint64(r.Trimmed), StoppedBy: r.StoppedBy}, nil
}

// SaveSnapshot implements the service.
func (s *Service) SaveSnapshot(ctx context.Context, m *wattlev1.SaveSnapshotRequest) (*wattlev1.SaveSnapshotResponse, error) {
	const op = "save snapshot"
	stream := eventstore.Stream(m.GetSnapshot().GetStream())
	sn, err := wire.ToSnapshot(m.GetSnapshot())
	if err == nil {
		err = s.saveSnapshot(ctx, sn)
	}
	if err != nil {
		return nil, s.fail(ctx, op, stream, err)
	}
	return &wattlev1.SaveSnapshotResponse{}, nil
}

// ListTrimmed implements the service.
func (s *Service) ListTrimmed(ctx context.Context, m *wattlev1.ListTrimmedRequest) (*wattlev1.ListTrimmedResponse, error) {
	const op = "list trimmed streams"
	slots, err := wire.ToSlots(m.GetSlots())
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	limit, err := wire.ToCount("limit", m.GetLimit())
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	p, err := s.store.ListTrimmed(ctx, eventstore.Category(m.GetCategory()), slots, m.GetAfter(), limit)
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	return &wattlev1.ListTrimmedResponse{Streams: wire.FromStreams(p.Streams), Next: p.Next}, nil
}
