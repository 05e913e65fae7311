// The far side: a server of topics.

package remotetopic

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/streaming"
	"github.com/wattle-es/wattle/internal/wire"
	"github.com/wattle-es/wattle/topic"
)

// Defaults and bounds of a Service.
const (
	DefaultPublishTimeout = 30 * time.Second // of a publication without a deadline of its own
	DefaultForwardTimeout = 3 * time.Second  // of one try at the owner
	DefaultWindow         = 256              // publications of one PublishStream that are under way
	DefaultWindowBytes    = 32 << 20         // of these together; one that is larger goes alone
	DefaultWindowOfAll    = 256 << 20        // bytes under way of all PublishStreams together
	DefaultMessageBytes   = 1 << 20          // of one message of Consume
	DefaultSlowAfter      = 10 * time.Second // how long the sending of one message may take
	DefaultStuckAfter     = 30 * time.Second // how much longer before the stream is reset
	DefaultStreams        = 10_000           // message streams at once
	MinHeartbeat          = time.Second
	MaxHeartbeat          = time.Minute
)

// ServiceOptions are the options of NewService; nil and zero fields are the defaults.
type ServiceOptions struct {
	// Visible says which topics a caller may know of: ListTopics leaves the others out.
	// Nil: all. It decides nothing else: to refuse calls is for an interceptor.
	Visible func(ctx context.Context, name eventstore.Category) bool
	// Failed is told each error before its cause is left out, to log or to count it. The
	// cause may hold what belongs in no log. Nil: nobody is told.
	Failed func(ctx context.Context, op string, err error)
	// MaxRequestBytes bounds a request, uncompressed. 0: 64 MiB.
	MaxRequestBytes int

	// Forward makes a client of the server at an address, see [NewPeer]: publications for
	// partitions that this server does not own go there. It opens no connection. Nil: they
	// are answered with ErrNotOwner. That the caller may publish is decided here; the other
	// server sees this one.
	Forward func(address string) (Peer, error)
	// PublishTimeout bounds a publication whose caller has set no deadline, and each of a
	// PublishStream; within it one whose owner changes is tried again. ForwardTimeout bounds
	// one try at an owner. 0: DefaultPublishTimeout, DefaultForwardTimeout.
	PublishTimeout, ForwardTimeout time.Duration

	// Window and WindowBytes bound the publications of one PublishStream that are under
	// way; what comes behind them is not read yet. 0: DefaultWindow, DefaultWindowBytes.
	Window, WindowBytes int
	// WindowBytesOfAll bounds what the publications of all PublishStreams that are not done
	// have in memory, in bytes: who finds no room waits, and its next one is not read. 0: DefaultWindowOfAll.
	WindowBytesOfAll int
	// MessageBytes is about how much payload a message of Consume has: it ends with the one
	// that passes this. 0: DefaultMessageBytes, which is the most.
	MessageBytes int
	// SlowAfter is how long the sending of one message may take: who reads slower is ended
	// with ErrSlowConsumer as soon as it reads on. StuckAfter is how long after that a
	// stream nobody reads is reset. 0: DefaultSlowAfter, DefaultStuckAfter.
	SlowAfter, StuckAfter time.Duration
	// Streams is how many message streams there may be at once; more are ErrOverloaded. 0:
	// DefaultStreams.
	Streams int
	// Still is asked before each message that is sent, heartbeats among them, and before
	// each publication of a stream, with the call's context: its error ends the stream. Nil:
	// nobody is. A context that ends with a cause ends the stream with that cause at once.
	Still func(context.Context) error

	Options []connect.HandlerOption // of Connect, behind ours: interceptors, say
}

func (o *ServiceOptions) complete() {
	for _, d := range []struct {
		of        *time.Duration
		otherwise time.Duration
	}{{&o.PublishTimeout, DefaultPublishTimeout}, {&o.ForwardTimeout, DefaultForwardTimeout}, {&o.SlowAfter, DefaultSlowAfter}, {&o.StuckAfter, DefaultStuckAfter}} {
		if *d.of <= 0 {
			*d.of = d.otherwise
		}
	}
	for _, n := range []struct {
		of        *int
		otherwise int
	}{{&o.MaxRequestBytes, wire.MaxRequestBytes}, {&o.Window, DefaultWindow}, {&o.WindowBytes, DefaultWindowBytes},
		{&o.WindowBytesOfAll, DefaultWindowOfAll}, {&o.MessageBytes, DefaultMessageBytes}, {&o.Streams, DefaultStreams}} {
		if *n.of <= 0 {
			*n.of = n.otherwise
		}
	}
	o.MessageBytes = min(o.MessageBytes, DefaultMessageBytes)
	if o.Still == nil {
		o.Still = func(context.Context) error { return nil }
	}
}

// Service serves a topic.Service, a Broker as a rule, as the TopicService of wattle.v1.
// Closing what it serves is for who has made it; end the http.Server first.
//
// What it does not bound is for the http.Server around it, and for interceptors: how many
// calls there are at once, how large headers are.
type Service struct {
	topics       topic.Service
	o            ServiceOptions
	peers        peers
	pipeline     *publishing
	minHeartbeat time.Duration // MinHeartbeat but in tests

	mu       sync.Mutex
	open     int // streams
	leaving  bool
	draining chan struct{}
	members  map[memberKey]*memberStream
}

// NewService returns a service over topics.
func NewService(topics topic.Service, o *ServiceOptions) *Service {
	s := &Service{topics: topics, draining: make(chan struct{}), members: map[memberKey]*memberStream{}, minHeartbeat: MinHeartbeat}
	if o != nil {
		s.o = *o
	}
	s.o.complete()
	s.peers.dial = s.o.Forward
	s.pipeline = s.publishing()
	return s
}

// compressBytes is the size from which on messages are compressed, if the other side can.
const compressBytes = 1 << 10

// Handler returns what to serve below a path, "/wattle.v1.TopicService/": by Connect, gRPC,
// gRPC-Web and plain HTTP, in the binary form or JSON. PublishStream wants HTTP/2.
func (s *Service) Handler() (path string, h http.Handler) {
	options := append([]connect.HandlerOption{connect.WithReadMaxBytes(s.o.MaxRequestBytes), connect.WithCompressMinBytes(compressBytes)}, s.o.Options...)
	path, h = wattlev1.NewTopicServiceHandler(s, options...)
	return path, streaming.Handler(h)
}

// Mount serves Handler.
func (s *Service) Mount(mux *http.ServeMux) { mux.Handle(s.Handler()) }

// Drain ends all streams with ErrGoingAway, and refuses later ones: a Consume at once, its
// members keep their partitions until they come again; a PublishStream when what it has
// read is answered. Other calls go on.
func (s *Service) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leaving {
		s.leaving = true
		close(s.draining)
	}
}

// Close drains, and closes the clients of other servers.
func (s *Service) Close() error {
	s.Drain()
	s.peers.close()
	return nil
}

// enter admits one more stream until leave is called.
func (s *Service) enter(op string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.leaving:
		return nil, goingAway(op)
	case s.open >= s.o.Streams:
		return nil, &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: op, Wanted: "room for one more stream of messages", Found: "none",
			Hint: "try again later, or at another server"}
	}
	s.open++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	}, nil
}

func goingAway(op string) error {
	return &eventstore.Error{Kind: remotelog.ErrGoingAway, Op: op, Wanted: "this stream to go on", Found: "a server that ends",
		Hint: "go on at another server, or at this one later"}
}

// fail is an error as it leaves the service.
func (s *Service) fail(ctx context.Context, op string, name string, err error) error {
	if err == nil {
		return nil
	}
	if s.o.Failed != nil {
		s.o.Failed(ctx, op, err)
	}
	e, ours := errors.AsType[*eventstore.Error](err)
	if !ours {
		return wire.FromError(err, kinds...)
	}
	told := *e
	if told.Op == "" {
		told.Op = op
	}
	if told.Stream == "" && told.Category == "" {
		told.Category = eventstore.Category(name)
	}
	if told.Kind == eventstore.ErrClosed { // the caller's own client is not
		told.Kind, told.Wanted, told.Found, told.Hint = eventstore.ErrUnavailable, "an open store", "one that was closed", "the server is ending: try again later"
	}
	return wire.FromError(&told, kinds...)
}
