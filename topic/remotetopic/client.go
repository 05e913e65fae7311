// The near side: topics at the other end of a network.

package remotetopic

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
	"github.com/wattle-es/wattle/topic"
)

// Defaults of a Client.
const (
	DefaultTimeout    = 30 * time.Second // of a call whose context has no deadline
	DefaultTryTimeout = 5 * time.Second  // of one try of a publication
)

// Options are the options of Open; nil and zero fields are the defaults.
type Options struct {
	// Transport carries the calls: client certificates and the like are set there. Nil: one
	// of its own, with HTTP/2 if the server can for https, and always for http. One that
	// wraps another must not send a request twice. A Publisher wants HTTP/2.
	Transport http.RoundTripper
	JSON      bool // messages as JSON instead of the binary form
	Gzip      bool // requests from 1 KiB on are compressed; answers may be in any case
	// Token gives the bearer token of each call, "" for none; its error is the call's.
	Token func(ctx context.Context) (string, error)
	// Timeout bounds a call whose context has no deadline: a Publish with all its tries,
	// another one at each server. TryTimeout bounds one try of a publication: one that is
	// not answered by then, as by a server that is frozen, is sent again, to the next server
	// if there is one. 0: DefaultTimeout, DefaultTryTimeout.
	Timeout, TryTimeout time.Duration
	// Direct says if the client may go straight to a server at this address, which another
	// one has named as the owner of a partition. It saves the hop between the two. Nil:
	// only to the URLs that Open was given.
	Direct func(address string) bool
	// Heartbeat is how long a consumption that does not say may be silent, within the bounds
	// MinHeartbeat and MaxHeartbeat: after three times that the connection is given up for
	// another. 0: topic.DefaultHeartbeat.
	Heartbeat time.Duration
	// Window and WindowBytes bound the publications of one Publisher that are unanswered.
	// 0: DefaultWindow, DefaultWindowBytes.
	Window, WindowBytes int
	TracerProvider      trace.TracerProvider // nil: no spans of calls; the trace is told in any case
	// Lazy has Open ask nothing: what is wrong is found by the first call.
	Lazy    bool
	Options []connect.ClientOption // of Connect, behind ours: gRPC, interceptors and the like
}

func (o *Options) complete() {
	for _, d := range []struct {
		of        *time.Duration
		otherwise time.Duration
	}{{&o.Timeout, DefaultTimeout}, {&o.TryTimeout, DefaultTryTimeout}, {&o.Heartbeat, topic.DefaultHeartbeat}} {
		if *d.of <= 0 {
			*d.of = d.otherwise
		}
	}
	if o.Window <= 0 {
		o.Window = DefaultWindow
	}
	if o.WindowBytes <= 0 {
		o.WindowBytes = DefaultWindowBytes
	}
}

// Client is a client of servers that share the topics of one store: a topic.Service with
// its promises. All methods may be called from several goroutines at once.
//
// A call goes to the server that answered last. Where that cannot be reached, or ends, the
// next one is asked. Publish, Consume and Publisher go on by themselves until their
// context ends; the other calls ask each server once.
type Client struct {
	o      Options
	client *http.Client
	own    *http.Transport // nil: it is the caller's
	header http.Header     // of each call

	minHeartbeat time.Duration // MinHeartbeat but in tests

	servers []*target
	current atomic.Int64 // of servers, the one to ask first
	direct  hints
	commits generations

	mu      sync.Mutex
	closed  bool
	calls   sync.WaitGroup // under way; added to with mu held and closed false
	closing context.Context
	stop    context.CancelCauseFunc
}

// target is one server.
type target struct {
	url     string
	service wattlev1.TopicServiceClient
	caller  *wire.Caller
	suspect atomic.Bool // its connection: nothing came back over it in time
}

// Bounds of answers, uncompressed.
const (
	answerBytes = DefaultMessageBytes + eventstore.MaxEventBytes + 8<<20 // a message, the one that passes its mark, and metadata
	jsonTimes   = 6                                                      // how much longer text may be in JSON, where a character is escaped
)

// Open returns a client of the servers at one URL or several: scheme http or https, host
// and, if served below one, a path. Unless it is to be lazy it asks for the topics, until
// one server answers: ErrUnavailable if none can be reached, ErrUnauthenticated if the
// token or certificate is not taken. A bad URL is ErrInvalid.
func Open(ctx context.Context, urls []string, o *Options) (*Client, error) {
	c, err := newClient(urls, o)
	if err != nil || c.o.Lazy {
		return c, err
	}
	if _, err := c.List(ctx); err != nil && !errors.Is(err, remotelog.ErrDenied) {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func newClient(urls []string, o *Options) (*Client, error) {
	c := &Client{header: http.Header{}, minHeartbeat: MinHeartbeat}
	if o != nil {
		c.o = *o
	}
	c.o.complete()
	if len(urls) == 0 {
		return nil, badURL("none")
	}
	c.closing, c.stop = context.WithCancelCause(context.Background())
	transport := c.o.Transport
	if transport == nil {
		c.own = wire.NewTransport(schemeOf(urls[0]), pingAfter)
		transport = c.own
	}
	// A redirect is not followed: a publication may have been carried out where it came
	// from, and the token is not for others.
	c.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, address := range urls {
		t, err := c.target(address)
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, t)
	}
	return c, nil
}

func badURL(found string) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "open", Wanted: "a URL as https://host/path", Found: found,
		Hint: "tokens and certificates are given in the options"}
}

// target makes the client of one server.
func (c *Client) target(address string) (*target, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, badURL("another form")
	}
	if u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, badURL(u.Redacted())
	}
	times := 1
	if c.o.JSON {
		times = jsonTimes
	}
	options := append([]connect.ClientOption{connect.WithReadMaxBytes(times * answerBytes), connect.WithCompressMinBytes(compressBytes)}, wire.ClientCodecs(c.o.JSON)...)
	if c.o.Gzip {
		options = append(options, connect.WithSendGzip())
	}
	options = append(options, connect.WithInterceptors(wire.Traced(c.o.TracerProvider), callHeader{c.header}))
	if c.o.Token != nil {
		options = append(options, connect.WithInterceptors(wire.Bearer(c.o.Token, remotelog.ErrUnauthenticated)))
	}
	return &target{url: u.String(), service: wattlev1.NewTopicServiceClient(c.client, u.String(), append(options, c.o.Options...)...),
		caller: &wire.Caller{Target: u.String(), Timeout: c.o.Timeout, Kinds: kinds}}, nil
}

func schemeOf(address string) string {
	scheme, _, _ := strings.Cut(address, ":")
	return scheme
}

// pingAfter is how long nothing may come before a connection is asked, and how long that
// may take.
const pingAfter = 5 * time.Second

// enter begins a call, which ends with calls.Done.
func (c *Client) enter(op string, name eventstore.Category) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return closedError(op, name)
	}
	c.calls.Add(1)
	return nil
}

func closedError(op string, name eventstore.Category) error {
	return &eventstore.Error{Kind: eventstore.ErrClosed, Op: op, Category: name, Wanted: "a client that is open", Found: "one that was closed"}
}

// within is a context that also ends with the client.
func (c *Client) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.closing, func() { cancel(context.Cause(c.closing)) })
	if c.closing.Err() != nil { // at once, so that nothing is begun
		cancel(context.Cause(c.closing))
	}
	return ctx, func() { stop(); cancel(nil) }
}

// Close ends consumptions, publications and publishers, and returns when the calls under way
// have ended: the others are bounded by their contexts. The servers go on.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop(closedError("consume", ""))
	c.calls.Wait()
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}

// pick returns the n-th server to ask, counted from the one that answered last.
func (c *Client) pick(n int) (*target, int64) {
	i := (c.current.Load() + int64(n)) % int64(len(c.servers))
	return c.servers[i], i
}

// send is the method of a server.
type send[Req, Res any] func(wattlev1.TopicServiceClient, context.Context, *Req) (*Res, error)

// call asks one server after the other, each once, until one answers. It also says if a
// server before that one may have done what was asked.
func call[Req, Res any](ctx context.Context, c *Client, a wire.Act, req *Req, send send[Req, Res]) (res *Res, t *target, lost bool, err error) {
	if err := c.enter(a.Op, a.Category); err != nil {
		return nil, nil, false, err
	}
	defer c.calls.Done()
	for n := range c.servers {
		var i int64
		t, i = c.pick(n)
		res, err = wire.Call(ctx, t.caller, a, req, func(ctx context.Context, req *Req) (*Res, error) { return send(t.service, ctx, req) })
		if err == nil {
			c.current.Store(i)
			return res, t, lost, nil
		}
		if !elsewhere(err) || ctx.Err() != nil {
			break
		}
		lost = lost || outcomeOf(err) == unknown
	}
	if lost && outcomeOf(err) == absent { // of the last one only
		err = t.caller.Misfit(a, nil)
	}
	return nil, t, lost, err
}

// elsewhere says if another server may answer what this one did not.
func elsewhere(err error) bool {
	return outcomeOf(err) != settled && !errors.Is(err, topic.ErrNotOwner) && !errors.Is(err, eventstore.ErrOverloaded)
}
