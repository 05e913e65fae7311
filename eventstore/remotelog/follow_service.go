// The message streams of a Service, and Wait: messages in, messages out.

package remotelog

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/streaming"
	"github.com/wattle-es/wattle/internal/wire"
)

// Drain ends all message streams with ErrGoingAway and refuses new ones: followers at once,
// a Produce when what the server has read of it is answered. Call it before the Shutdown of
// the http.Server, which waits for them.
func (s *Service) Drain() { s.streams.drain() }

// streamFailed is an error as it ends a message stream. What Connect says itself of a
// message that could not be sent or read is nobody's but the connection's, and passes.
func (s *Service) streamFailed(ctx context.Context, op string, stream eventstore.Stream, err error) error {
	if _, broken := errors.AsType[*connect.Error](err); err == nil || broken {
		return err
	}
	return s.fail(ctx, op, stream, err)
}

// Follow implements the service.
func (s *Service) Follow(ctx context.Context, m *wattlev1.FollowRequest, out *connect.ServerStream[wattlev1.FollowResponse]) error {
	c, err := toFollowCall(m)
	if err == nil {
		err = s.streams.follow(ctx, c, func(entries []eventstore.Entry, end bool) error { return out.Send(toFollowResponse(entries, end)) })
	}
	return s.streamFailed(ctx, "follow", eventstore.Stream(m.GetStream()), err)
}

func toFollowResponse(entries []eventstore.Entry, end bool) *wattlev1.FollowResponse {
	return &wattlev1.FollowResponse{Entries: wire.FromEntries(entries), End: end}
}

func toFollowCall(m *wattlev1.FollowRequest) (c followCall, err error) {
	if c.stream, err = eventstore.ParseStream(m.GetStream()); err != nil {
		return c, err
	}
	if c.after, err = wire.ToMark("after", m.GetAfter()); err != nil {
		return c, err
	}
	if c.bytes, err = wire.ToCount("max_bytes", m.GetMaxBytes()); err != nil {
		return c, err
	}
	c.heartbeat, err = wire.ToDuration("heartbeat", m.GetHeartbeat())
	return c, err
}

// FollowFeed implements the service.
func (s *Service) FollowFeed(ctx context.Context, m *wattlev1.FollowFeedRequest, out *connect.ServerStream[wattlev1.FollowFeedResponse]) error {
	c, err := toFeedCall(m)
	if len(c.filter.Categories) == 0 && s.o.Visible != nil {
		c.visible = func(category eventstore.Category) bool { return s.o.Visible(ctx, category) }
	}
	if err == nil {
		err = s.streams.followFeed(ctx, c, func(f feedMessage) error { return out.Send(toFeedResponse(f)) })
	}
	return s.streamFailed(ctx, "follow feed", "", err)
}

func toFeedResponse(f feedMessage) *wattlev1.FollowFeedResponse {
	m := &wattlev1.FollowFeedResponse{Entries: wire.FromEntries(f.entries), End: f.end, Incarnation: wire.FromUUID(f.incarnation)}
	if f.through.Position != 0 {
		m.Through = wire.FromPositionMark(f.through)
	}
	return m
}

func toFeedCall(m *wattlev1.FollowFeedRequest) (c feedCall, err error) {
	if c.after, err = wire.ToPositionMark("after", m.GetAfter()); err != nil {
		return c, err
	}
	if c.filter, err = wire.ToFilter(m.GetFilter()); err != nil {
		return c, err
	}
	if c.bytes, err = wire.ToCount("max_bytes", m.GetMaxBytes()); err != nil {
		return c, err
	}
	c.heartbeat, err = wire.ToDuration("heartbeat", m.GetHeartbeat())
	return c, err
}

// Watch implements the service.
func (s *Service) Watch(ctx context.Context, m *wattlev1.WatchRequest, out *connect.ServerStream[wattlev1.WatchResponse]) error {
	categories := wire.ToCategories(m.GetCategories())
	err := checkWatched(categories)
	heartbeat, wrong := wire.ToDuration("heartbeat", m.GetHeartbeat())
	if err == nil {
		err = wrong
	}
	if err == nil {
		err = s.streams.watch(ctx, categories, heartbeat, func(hints []eventstore.Announcement) error {
			m := &wattlev1.WatchResponse{}
			for _, a := range hints {
				if a.Category == "" || len(categories) > 0 || s.visible(ctx, a.Category) {
					m.Announcements = append(m.Announcements, wire.FromAnnouncement(a))
				}
			}
			return out.Send(m)
		})
	}
	return s.streamFailed(ctx, "watch", "", err)
}

// checkWatched is the rule for the categories of who wants hints.
func checkWatched(categories []eventstore.Category) error {
	if len(categories) > eventstore.MaxFilterNames {
		return &eventstore.Error{Kind: eventstore.ErrTooLarge, Wanted: fmt.Sprintf("at most %d categories", eventstore.MaxFilterNames),
			Found: fmt.Sprint(len(categories)), Hint: "none means all"}
	}
	for _, c := range categories {
		if _, err := eventstore.ParseCategory(string(c)); err != nil {
			return err
		}
	}
	return nil
}

// Produce implements the service.
func (s *Service) Produce(ctx context.Context, stream *connect.BidiStream[wattlev1.ProduceRequest, wattlev1.ProduceResponse]) error {
	receive := func() (streaming.Request[eventstore.Append], error) {
		m, err := stream.Receive()
		if err != nil {
			return streaming.Request[eventstore.Append]{}, err
		}
		r := streaming.Request[eventstore.Append]{Bytes: wire.Weight(m)}
		r.Value, r.Err = wire.ToAppend(m.GetBatches(), m.GetGuards())
		return r, nil
	}
	return s.streamFailed(ctx, "produce", "", s.streams.produce(ctx, receive, func(a eventstore.Appended) error {
		m := wire.FromAppended(a)
		return stream.Send(&wattlev1.ProduceResponse{Receipts: m.GetReceipts(), Token: m.GetToken()})
	}))
}

// Wait implements the service.
func (s *Service) Wait(ctx context.Context, m *wattlev1.WaitRequest) (*wattlev1.WaitResponse, error) {
	const op = "wait"
	token, err := wire.ToToken(m.GetToken())
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	timeout, err := wire.ToDuration("timeout", m.GetTimeout())
	if err != nil {
		return nil, s.fail(ctx, op, "", err)
	}
	err = s.streams.wait(ctx, m.GetProjector(), token, timeout)
	switch {
	case isKind(err, context.DeadlineExceeded):
		return nil, wire.FromError(err, wire.Kind{Err: context.DeadlineExceeded, Wire: wattlev1.ErrorKind_ERROR_KIND_DEADLINE, Code: connect.CodeDeadlineExceeded})
	case err != nil:
		return nil, s.fail(ctx, op, "", err)
	}
	return &wattlev1.WaitResponse{}, nil
}
