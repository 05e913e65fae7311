// What a Log at the client has beside the contract: following, announcements, producing
// and waiting.

package remotelog

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
)

// clientStreams is what a Log knows of its message streams.
type clientStreams struct {
	service   wattlev1.LogServiceClient
	caller    *wire.Caller
	heartbeat time.Duration // asked for
	watching  *watching

	ctx  context.Context // ends when the log is closed
	stop context.CancelFunc
}

// newClientStreams returns the streams of a client. Heartbeat 0 is DefaultHeartbeat.
func newClientStreams(service wattlev1.LogServiceClient, caller *wire.Caller, heartbeat time.Duration) *clientStreams {
	if heartbeat <= 0 {
		heartbeat = DefaultHeartbeat
	}
	heartbeat = min(max(heartbeat, MinHeartbeat), MaxHeartbeat)
	s := &clientStreams{service: service, caller: caller, heartbeat: heartbeat}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.watching = &watching{heartbeat: heartbeat, local: NewHub(nil), wanted: map[eventstore.Category]int{}, wrong: s.wrong("watch", "", ""),
		open: func(ctx context.Context, m *wattlev1.WatchRequest) (receiver[wattlev1.WatchResponse], error) {
			return received(s.service.Watch(ctx, m))
		}}
	return s
}

// close ends all streams.
func (s *clientStreams) close() {
	s.stop()
	s.watching.close()
}

// bound is a context that ends with the log too.
func (s *clientStreams) bound(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.ctx, func() { cancel(errClosed) })
	return ctx, sync.OnceFunc(func() { unhook(); cancel(nil) })
}

var errClosed = &eventstore.Error{Kind: eventstore.ErrClosed, Op: "follow", Wanted: "an open log", Found: "one that was closed"}

// wrong makes the errors of calls that read.
func (s *clientStreams) wrong(op string, stream eventstore.Stream, c eventstore.Category) func(error) error {
	return func(err error) error {
		return s.caller.Failed(context.Background(), wire.Act{Op: op, Stream: stream, Category: c}, false, err)
	}
}

// received is a stream as tail wants it: a nil pointer is no stream.
func received[M any](r *connect.ServerStreamForClient[M], err error) (receiver[M], error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Follow yields the entries of a stream behind a mark (its ID is compared if it is given),
// in order, each once, and those that are appended from then on. When the connection
// breaks, the server ends or nothing is heard of it for three heartbeats, it goes on by
// itself behind the last entry, after a pause of 50 ms to 5 s.
//
// It ends with an error: ctx's, or one that would come again, as ErrTrimmed, ErrDiverged,
// ErrNoSuchCategory, ErrNoSuchStream, ErrInvalid, ErrDenied, ErrUnauthenticated;
// ErrCorrupt if what the server sends is no stream; ErrClosed after Close. The loop body
// may take its time and may call the log: if it takes so long that the server ends the
// stream as too slow, that is resumed too.
func (l *Log) Follow(ctx context.Context, stream eventstore.Stream, after eventstore.Mark) iter.Seq2[eventstore.Entry, error] {
	s := l.streams
	t := tail[wattlev1.FollowResponse]{wrong: s.wrong("follow", stream, ""), silence: silentBeats * s.heartbeat}
	open := func(ctx context.Context, at eventstore.Mark) (receiver[wattlev1.FollowResponse], error) {
		return received(s.service.Follow(ctx, &wattlev1.FollowRequest{Stream: string(stream), After: wire.FromMark(at), Heartbeat: durationpb.New(s.heartbeat)}))
	}
	read := func(m *wattlev1.FollowResponse) ([]eventstore.Entry, error) {
		entries, err := wire.ToEntries(m.GetEntries())
		if err != nil {
			return nil, unreadable(stream, err)
		}
		return entries, nil
	}
	return func(yield func(eventstore.Entry, error) bool) {
		ctx, done := s.bound(ctx)
		defer done()
		followStream(ctx, t, stream, after, open, read)(func(e eventstore.Entry, err error) bool { return yield(e, s.ended(ctx, err)) })
	}
}

// ended is ErrClosed if a context's error comes of the log being closed.
func (s *clientStreams) ended(ctx context.Context, err error) error {
	if err != nil && errors.Is(err, context.Canceled) && context.Cause(ctx) == error(errClosed) {
		return errClosed
	}
	return err
}

// unreadable is the error of a message that is none.
func unreadable(stream eventstore.Stream, err error) error {
	e := &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: "follow", Stream: stream, Wanted: "entries", Found: "a message that cannot be read", Err: err,
		Hint: "the server has sent what no log holds"}
	return e
}

// FollowFeed yields what comes of the feed behind a mark (its ID is compared if it is
// given; it is a Through of the same categories), in order, each entry once, and what is
// appended from then on. What it keeps doing by itself, and what ends it, is as with
// Follow. Keep Through with what was done for the entries: it is where to go on.
func (l *Log) FollowFeed(ctx context.Context, after eventstore.PositionMark, f eventstore.Filter) iter.Seq2[FollowedFeed, error] {
	s := l.streams
	var category eventstore.Category
	if len(f.Categories) > 0 {
		category = f.Categories[0]
	}
	t := tail[wattlev1.FollowFeedResponse]{wrong: s.wrong("follow feed", "", category), silence: silentBeats * s.heartbeat}
	open := func(ctx context.Context, at eventstore.PositionMark) (receiver[wattlev1.FollowFeedResponse], error) {
		return received(s.service.FollowFeed(ctx, &wattlev1.FollowFeedRequest{After: wire.FromPositionMark(at), Filter: wire.FromFilter(f), Heartbeat: durationpb.New(s.heartbeat)}))
	}
	return func(yield func(FollowedFeed, error) bool) {
		ctx, done := s.bound(ctx)
		defer done()
		followFeed(ctx, t, after, f, open, readFeedMessage)(func(p FollowedFeed, err error) bool { return yield(p, s.ended(ctx, err)) })
	}
}

func readFeedMessage(m *wattlev1.FollowFeedResponse) (p FollowedFeed, err error) {
	p.End = m.GetEnd()
	if p.Entries, err = wire.ToEntries(m.GetEntries()); err != nil {
		return p, unreadable("", err)
	}
	if p.Through, err = wire.ToPositionMark("through", m.GetThrough()); err != nil {
		return p, unreadable("", err)
	}
	if p.Incarnation, err = wire.ToUUID("incarnation", m.GetIncarnation()); err != nil {
		return p, unreadable("", err)
	}
	return p, nil
}

// Announcer returns the announcements of the server, for the Options of a Store around
// this log. All who subscribe share one stream, which is opened again whenever it ends,
// after a pause of 50 ms to 5 s; they get the empty announcement then. Its Announce does
// nothing, since the server announces what it appended.
func (l *Log) Announcer() eventstore.Announcer { return l.streams.watching }

// Produce returns a producer, which ends with ctx. Its errors, that it could not be begun
// among them, are those of its appends.
func (l *Log) Produce(ctx context.Context) *Producer {
	s := l.streams
	ctx, done := s.bound(ctx)
	return newProducer(ctx, done, s.caller, func(ctx context.Context) (produceConn, error) { return s.service.Produce(ctx) })
}

// Wait returns nil when a projector that the server knows has passed a token or, with an
// empty name, when everybody who reads the feed can see what the token names. The server
// waits as long as ctx allows, 10 s if it has no deadline and a minute at most: the error
// is context.DeadlineExceeded then, naming the lag. A token of another store is
// ErrDiverged.
func (l *Log) Wait(ctx context.Context, projector string, t eventstore.Token) error {
	s := l.streams
	m := &wattlev1.WaitRequest{Projector: projector, Token: wire.FromToken(t)}
	if until, ok := ctx.Deadline(); ok {
		m.Timeout = durationpb.New(max(time.Until(until)*9/10, time.Millisecond)) // so that its answer comes in time
	}
	var raw error
	_, err := wire.Call(ctx, &wire.Caller{Target: s.caller.Target, Timeout: DefaultWaitTimeout + MaxWaitTimeout, Kinds: s.caller.Kinds}, wire.Act{Op: "wait"}, m,
		func(ctx context.Context, m *wattlev1.WaitRequest) (res *wattlev1.WaitResponse, err error) {
			res, err = s.service.Wait(ctx, m)
			raw = err
			return res, err
		})
	if late := lateWait(raw); late != nil {
		return late
	}
	return err
}

// lateWait is what the server says of a wait whose time was up; nil if it is another error.
func lateWait(err error) error {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok || !connect.IsWireError(ce) {
		return nil
	}
	for _, d := range ce.Details() {
		value, err := d.Value()
		detail, ok := value.(*wattlev1.ErrorDetail)
		if err == nil && ok && detail.GetKind() == wattlev1.ErrorKind_ERROR_KIND_DEADLINE && detail.GetFound() != "" {
			return &eventstore.Error{Kind: context.DeadlineExceeded, Op: "wait", Wanted: detail.GetWanted(), Found: detail.GetFound(), Hint: detail.GetHint()}
		}
	}
	return nil
}
