// The near side: a log at the other end of a network.

package remotelog

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
)

// Protocol is what a client speaks. The service understands all.
type Protocol int

// The protocols. GRPC wants HTTP/2 from one end to the other.
const (
	Connect Protocol = iota
	GRPC
	GRPCWeb
)

// DefaultTimeout bounds a call whose context has no deadline.
const DefaultTimeout = 30 * time.Second

// Options are the options of Open; nil and zero fields are the defaults.
type Options struct {
	// Transport carries the calls: client certificates, HTTP/1.1 and the like are set
	// there. Nil: one of its own, with HTTP/2 if the server can for https, and always for
	// http. In a browser, in Node.js and in workerd either is fetch. One that wraps
	// another must not send a request twice.
	Transport http.RoundTripper
	Protocol  Protocol
	JSON      bool // messages as JSON instead of the binary form
	Gzip      bool // requests and answers from 1 KiB on are compressed
	// Token gives the bearer token of each call, "" for none; its error is the call's.
	Token func(ctx context.Context) (string, error)
	// Timeout bounds a call whose context has no deadline, except Verify. 0: DefaultTimeout.
	Timeout time.Duration
	// Heartbeat is how often the server is to say that it is there on a stream of messages
	// on which nothing else comes; three that are missing end it. 0: DefaultHeartbeat.
	Heartbeat time.Duration
	// TracerProvider gets a span for each call. Nil: no spans. In either case the server is
	// told the trace of the call's context.
	TracerProvider trace.TracerProvider
	// Lazy has Open ask nothing: what is wrong is found by the first call.
	Lazy    bool
	Options []connect.ClientOption // of Connect, behind ours: interceptors, say
}

// Log is a client of a [Service]: an eventstore.Log that keeps the promises of the log
// behind the server. It also implements Categories, Streams, Snapshots, TrimmedStreams,
// Holds, Leases, BackwardReader, Verifier and Doctor of eventstore. Where the log behind the
// server does not, an error is errors.ErrUnsupported.
//
// Errors of the server arrive as the same kinds with the same facts. Where no answer
// comes, a read is ErrUnavailable. A write is ErrUnknown, because it may have been carried
// out, unless no connection could be had: sending the same append again tells what
// became of it. A transport that does not say when it has a connection (fetch) makes
// ErrUnknown of that too.
type Log struct {
	service, loads wattlev1.LogServiceClient // loads may have larger answers
	admin          wattlev1.AdminServiceClient
	leases         wattlev1.LeaseServiceClient
	caller         *wire.Caller
	own            *http.Transport // nil: it is the caller's
	streams        *clientStreams

	mu      sync.Mutex
	closed  bool
	calls   sync.WaitGroup // under way; added to with mu held and closed false
	closing context.Context
	stop    context.CancelFunc
}

// Bounds of answers, uncompressed, in the binary form.
const (
	// pageAnswer is a page's payload and the entry that passes its mark, with all that
	// may be around them.
	pageAnswer = eventstore.MaxPageBytes + eventstore.MaxEventBytes + 1<<20
	loadAnswer = pageAnswer + eventstore.MaxSnapshotBytes
	// jsonTimes is how much longer text may be in JSON, where a character is escaped.
	jsonTimes = 6
)

// Open returns the log at a URL: scheme http or https, host and, if it is served below
// one, a path. Unless it is to be lazy it asks the server whether it is one of Wattle
// that knows the caller: ErrUnavailable if not, or if it cannot be reached,
// ErrUnauthenticated if it does not take the token or certificate. A bad URL is
// ErrInvalid.
func Open(ctx context.Context, target string, o *Options) (*Log, error) {
	if o == nil {
		o = &Options{}
	}
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		found := "another form"
		if err == nil {
			found = u.Redacted()
		}
		return nil, &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "open", Wanted: "a URL as https://host/path", Found: found,
			Hint: "tokens and certificates are given in the options"}
	}
	l := &Log{caller: &wire.Caller{Target: u.String(), Timeout: o.Timeout, Kinds: kinds}}
	if l.caller.Timeout <= 0 {
		l.caller.Timeout = DefaultTimeout
	}
	l.closing, l.stop = context.WithCancel(context.Background())
	l.connect(u, o)
	if o.Lazy {
		return l, nil
	}
	if err := l.probe(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// connect makes the clients.
func (l *Log) connect(u *url.URL, o *Options) {
	transport := o.Transport
	if transport == nil {
		l.own = wire.NewTransport(u.Scheme, pingAfter)
		transport = l.own
	}
	// A redirect is not followed: an append may have been carried out where it came from,
	// and the token is not for others.
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	options := o.connect()
	times := 1
	if o.JSON {
		times = jsonTimes
	}
	bounded := func(most int) []connect.ClientOption {
		return append([]connect.ClientOption{connect.WithReadMaxBytes(times * most)}, options...)
	}
	l.service = wattlev1.NewLogServiceClient(client, l.caller.Target, bounded(pageAnswer)...)
	l.streams = newClientStreams(l.service, l.caller, o.Heartbeat)
	l.loads = wattlev1.NewLogServiceClient(client, l.caller.Target, bounded(loadAnswer)...)
	l.admin = wattlev1.NewAdminServiceClient(client, l.caller.Target, bounded(pageAnswer)...)
	l.leases = wattlev1.NewLeaseServiceClient(client, l.caller.Target, bounded(pageAnswer)...)
}

// connect are the options of Connect.
func (o *Options) connect() []connect.ClientOption {
	options := append(wire.ClientCodecs(o.JSON), connect.WithCompressMinBytes(compressBytes))
	switch o.Protocol {
	case GRPC:
		options = append(options, connect.WithGRPC())
	case GRPCWeb:
		options = append(options, connect.WithGRPCWeb())
	}
	if o.Gzip {
		options = append(options, connect.WithSendGzip())
	} else {
		options = append(options, connect.WithAcceptCompression("gzip", nil, nil)) // on a fast network it takes longer than sending
	}
	options = append(options, connect.WithInterceptors(wire.Traced(o.TracerProvider)))
	if o.Token != nil {
		options = append(options, connect.WithInterceptors(wire.Bearer(o.Token, ErrUnauthenticated)))
	}
	return append(options, o.Options...)
}

// pingAfter is how long nothing may come before a connection is asked, and how long that
// may take.
const pingAfter = 15 * time.Second

// probe asks for what only a server of wattle.v1 answers, whoever asks and whatever the
// store: the head of no stream, which is refused with a detail.
func (l *Log) probe(ctx context.Context) error {
	_, err := wire.Call(ctx, l.caller, wire.Act{Op: "open"}, &wattlev1.GetHeadRequest{}, l.service.GetHead)
	if errors.Is(err, eventstore.ErrInvalid) || errors.Is(err, ErrDenied) {
		return nil
	}
	if err == nil {
		return l.caller.Misfit(wire.Act{Op: "open"}, nil)
	}
	return err
}

// call makes a unary call while the log is open.
func call[Req, Res any](ctx context.Context, l *Log, a wire.Act, req *Req, send func(context.Context, *Req) (*Res, error)) (*Res, error) {
	if err := l.enter(a); err != nil {
		return nil, err
	}
	defer l.calls.Done()
	return wire.Call(ctx, l.caller, a, req, send)
}

// enter begins a call, which ends with calls.Done.
func (l *Log) enter(a wire.Act) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return &eventstore.Error{Kind: eventstore.ErrClosed, Op: a.Op, Stream: a.Stream, Category: a.Category}
	}
	l.calls.Add(1)
	return nil
}

// Target returns the URL that the log was opened with.
func (l *Log) Target() string { return l.caller.Target }

// Close ends when the calls under way have; a Verify, followers, producers and
// announcements are ended. The server and its store go on.
func (l *Log) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	l.streams.close()
	l.calls.Wait()
	if l.own != nil {
		l.own.CloseIdleConnections()
	}
	return nil
}
