// Options and state of the message streams that a service serves.

package remotelog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Defaults and bounds of message streams.
const (
	DefaultMessageBytes   = 1 << 20          // payload of one message of a follower, about; and the most
	DefaultHeartbeat      = 10 * time.Second // how often something comes when nothing is appended
	MinHeartbeat          = time.Second
	MaxHeartbeat          = time.Minute
	DefaultSlowAfter      = 10 * time.Second // how long the sending of one message may take
	DefaultStuckAfter     = 30 * time.Second // how much longer before the stream is reset
	DefaultStreams        = 10_000           // message streams at once
	DefaultFollowReads    = 16               // pages that followers read from the store at once
	DefaultProduceWindow  = 64               // requests of one Produce that are under way
	DefaultProduceBytes   = 32 << 20         // of these together; one that is larger goes alone
	DefaultProduceOfAll   = 256 << 20        // bytes under way of all Produces together
	DefaultAppendTimeout  = 30 * time.Second // of one request of a Produce
	DefaultWaitTimeout    = 10 * time.Second
	MaxWaitTimeout        = time.Minute
	throughPause          = time.Second // how often a feed that only passes over entries says so
	horizonTries          = 200         // times horizonPause: how long a horizon may stand below a mark
	horizonPause          = 10 * time.Millisecond
	minRelook, firstLimit = 2 * time.Millisecond, 16
)

// StreamOptions are the options of what a Service streams; zero fields are the defaults.
//
// A follower costs the server a goroutine and a timer, some 30 KiB with what HTTP/2 keeps,
// and while a message is sent one page, which is about MessageBytes unless single events
// are larger. Idle ones read nothing: each PollInterval the service asks for one entry of
// each category that is followed, or that a stream followed belongs to, and if there is one
// that it had not seen, for the heads of the streams followed or, where these are more
// than 64, for the entries. Of a dedicated category it asks for the heads each time.
type StreamOptions struct {
	// PollInterval is how often the service looks for what was not announced.
	// 0: eventstore.DefaultPollInterval.
	PollInterval time.Duration
	// MessageBytes bounds the payload of a message: it ends with the entry that passes it.
	// 0: DefaultMessageBytes, which is the most.
	MessageBytes int
	// SlowAfter is how long the sending of one message may take: who reads slower is ended
	// with ErrSlowConsumer as soon as it reads on. 0: DefaultSlowAfter.
	SlowAfter time.Duration
	// StuckAfter is how long after that a stream nobody reads is reset. 0: DefaultStuckAfter.
	// A connection on which nothing can be written is for http.Server.HTTP2.WriteByteTimeout
	// to end.
	StuckAfter time.Duration
	// Streams is how many there may be at once; more are ErrOverloaded. 0: DefaultStreams.
	Streams int
	// Reads bounds the pages that followers read at once. 0: DefaultFollowReads.
	Reads int
	// ProduceWindow and ProduceBytes bound the requests of one Produce that are under way;
	// what comes behind them is not read yet. 0: DefaultProduceWindow, DefaultProduceBytes.
	ProduceWindow, ProduceBytes int
	// ProduceBytesOfAll bounds what the requests of all Produces that are not done have in
	// memory, in bytes: who finds no room waits, and its next request is not read. 0: DefaultProduceOfAll.
	ProduceBytesOfAll int
	// AppendTimeout bounds each append of a Produce. 0: DefaultAppendTimeout.
	AppendTimeout time.Duration
	// Still is asked before each message that is sent, heartbeats among them, and each that
	// is carried out, with the call's context: its error ends the stream. Nil: nobody is.
	// A context that ends with a cause ends the stream with that cause at once.
	Still func(context.Context) error
	// Waiter waits until a projector has passed a token, as projector.Projector.Wait does.
	// Nil: there are no projectors.
	Waiter func(ctx context.Context, projector string, t eventstore.Token) error
}

func (o StreamOptions) orDefault() StreamOptions {
	span := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	count := func(n *int, otherwise int) {
		if *n <= 0 {
			*n = otherwise
		}
	}
	span(&o.PollInterval, eventstore.DefaultPollInterval)
	span(&o.SlowAfter, DefaultSlowAfter)
	span(&o.StuckAfter, DefaultStuckAfter)
	span(&o.AppendTimeout, DefaultAppendTimeout)
	count(&o.MessageBytes, DefaultMessageBytes)
	count(&o.Streams, DefaultStreams)
	count(&o.Reads, DefaultFollowReads)
	count(&o.ProduceWindow, DefaultProduceWindow)
	count(&o.ProduceBytes, DefaultProduceBytes)
	count(&o.ProduceBytesOfAll, DefaultProduceOfAll)
	o.MessageBytes = min(o.MessageBytes, DefaultMessageBytes)
	if o.Still == nil {
		o.Still = func(context.Context) error { return nil }
	}
	return o
}

// streams is what a service knows of its message streams.
type streams struct {
	store *eventstore.Store
	hub   *Hub
	poll  *poller
	o     StreamOptions
	reads chan struct{} // as many as may read at once

	pipeline     *producing
	minHeartbeat time.Duration

	mu       sync.Mutex
	open     int
	leaving  bool
	draining chan struct{}
}

// newStreams returns the streams over a store. A nil hub is one that hears what the
// store's announcer does.
func newStreams(store *eventstore.Store, hub *Hub, o StreamOptions) *streams {
	o = o.orDefault()
	if hub == nil {
		hub = NewHub(storeAnnouncer{store})
	}
	s := &streams{store: store, hub: hub, o: o, reads: make(chan struct{}, o.Reads), draining: make(chan struct{}), minHeartbeat: MinHeartbeat,
		poll: &poller{store: store, hub: hub, every: o.PollInterval, groups: map[eventstore.Category]*pollGroup{}}}
	s.pipeline = s.producing()
	return s
}

// storeAnnouncer is what a store's announcer hears.
type storeAnnouncer struct{ store *eventstore.Store }

func (storeAnnouncer) Announce(context.Context, []eventstore.Announcement) error { return nil }

func (s storeAnnouncer) Subscribe(ctx context.Context, categories []eventstore.Category, f func(eventstore.Announcement)) (func(), error) {
	return s.store.Subscribe(ctx, categories, f)
}

// enter admits one more stream until leave is called.
func (s *streams) enter(op string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.leaving:
		return nil, goingAway(op)
	case s.open >= s.o.Streams:
		return nil, &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: op, Wanted: fmt.Sprintf("at most %d streams at once", s.o.Streams),
			Found: "one more", Hint: "try again later, or at another server"}
	}
	s.open++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	}, nil
}

// drain ends all streams with ErrGoingAway: followers at once, a Produce when what it has
// read is answered. Later ones are refused.
func (s *streams) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leaving {
		s.leaving = true
		close(s.draining)
	}
}

func goingAway(op string) error {
	return &eventstore.Error{Kind: ErrGoingAway, Op: op, Wanted: "this stream to go on", Found: "a server that ends",
		Hint: "go on from the last message, at another server or at this one later"}
}

// ending is the error of a stream whose context has ended or whose server drains; nil if
// it goes on.
func (s *streams) ending(ctx context.Context, op string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-s.draining:
		return goingAway(op)
	default:
		return nil
	}
}

// inStream is an error as it ends a stream: a log that was closed is a server that ends,
// and what failed because the call's context has ended tells why that has.
func inStream(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	if isKind(err, eventstore.ErrClosed) {
		return goingAway(op)
	}
	return err
}
