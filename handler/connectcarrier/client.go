// The caller's side.

package connectcarrier

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/connectcarrier/handlerv1"
	"github.com/wattle-es/wattle/handler/internal/nearside"
)

// Protocol is what a client speaks. The far side understands all.
type Protocol int

// The protocols. GRPC wants HTTP/2 from one end to the other.
const (
	Connect Protocol = iota
	GRPC
	GRPCWeb
)

// ClientOptions are the options of NewClient; nil and zero fields are the defaults.
type ClientOptions struct {
	Protocol Protocol
	JSON     bool           // messages as JSON instead of the binary form
	Gzip     bool           // requests from 1 KiB on are compressed; replies may be in any case
	Limits   handler.Limits // RequestBytes and ReplyBytes count here, of messages uncompressed
	// Timeout bounds a call for which neither ctx nor the request says how long it may
	// take. 0: handler.DefaultTimeout.
	Timeout time.Duration
	Options []connect.ClientOption // of Connect, behind ours: interceptors that authenticate, say
}

// NewClient returns the handler that answers at a URL: scheme, host and, if it is served
// below one, a path. A nil httpClient is http.DefaultClient, which keeps two idle
// connections to a server: for more calls at once over HTTP/1.1 give one that keeps more.
// It wants a handler.Caller around it, which makes keys, tries and checks.
//
// An error is an *handler.Error: ErrFailed if no answer came (the deadline passed, the
// server was not reached or failed), eventstore.ErrOverloaded if it had no room,
// eventstore.ErrTooLarge before anything is sent for what is over Limits, and for a reply
// that is or says that it is, ErrBadRequest or ErrDenied as the far side says, ErrBadReply for an answer that no handler may give. A
// bad URL is the eventstore.ErrInvalid of every call.
func NewClient(httpClient connect.HTTPClient, baseURL string, o *ClientOptions) handler.Handler {
	if o == nil {
		o = &ClientOptions{}
	}
	if httpClient == nil {
		httpClient = http.DefaultClient
	}
	c := &client{timeout: o.Timeout, requestBytes: handler.DefaultRequestBytes, replyBytes: handler.DefaultReplyBytes}
	if c.timeout <= 0 {
		c.timeout = handler.DefaultTimeout
	}
	if o.Limits.RequestBytes > 0 {
		c.requestBytes = o.Limits.RequestBytes
	}
	if o.Limits.ReplyBytes > 0 {
		c.replyBytes = o.Limits.ReplyBytes
	}
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		c.mistake = fmt.Sprintf("%.200q", baseURL)
		return c
	}
	c.target = u.Redacted()
	c.service = handlerv1.NewHandlerServiceClient(httpClient, baseURL, c.options(o)...)
	return c
}

type client struct {
	service                  handlerv1.HandlerServiceClient
	target                   string
	mistake                  string // in the URL; every call returns it
	requestBytes, replyBytes int
	timeout                  time.Duration
}

// options are those of Connect.
func (c *client) options(o *ClientOptions) []connect.ClientOption {
	options := []connect.ClientOption{
		connect.WithReadMaxBytes(c.replyBytes), connect.WithSendMaxBytes(c.requestBytes + frameBytes),
		connect.WithAcceptCompression("gzip", newUnzip("reply", c.replyBytes), newZip), connect.WithCompressMinBytes(compressBytes),
	}
	switch o.Protocol {
	case GRPC:
		options = append(options, connect.WithGRPC())
	case GRPCWeb:
		options = append(options, connect.WithGRPCWeb())
	}
	if o.JSON {
		options = append(options, connect.WithCodec(strictJSON{"json"}))
	}
	if o.Gzip {
		options = append(options, connect.WithSendGzip())
	}
	return append(options, o.Options...)
}

func (c *client) error(r *handler.Request, kind error, wanted, found string) *handler.Error {
	return &handler.Error{Kind: kind, Op: r.Op, Target: c.target, Stream: r.Stream, Wanted: wanted, Found: found}
}

// Handle sends a request and awaits its reply.
func (c *client) Handle(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
	if c.mistake != "" {
		return nil, c.error(r, eventstore.ErrInvalid, "a URL as https://host/path", c.mistake)
	}
	m := encodeRequest(r)
	if n := proto.Size(m); n > c.requestBytes {
		return nil, c.error(r, eventstore.ErrTooLarge, fmt.Sprintf("a request of at most %d bytes", c.requestBytes), fmt.Sprint(n))
	}
	ctx, cancel := nearside.Bounded(ctx, r, c.timeout)
	defer cancel()
	ctx, call := connect.NewClientContext(ctx)
	setHeader(call.RequestHeader(), m)
	got, err := c.service.Handle(ctx, m)
	if err != nil {
		return c.failed(ctx, r, err)
	}
	reply, err := decodeReply(got)
	if err != nil {
		e := c.error(r, handler.ErrBadReply, "", "")
		e.Err = err
		return nil, e
	}
	if reply.Key != r.Key {
		return nil, c.error(r, handler.ErrBadReply, "the reply to "+r.Key.String(), "that to "+reply.Key.String())
	}
	return reply, nil
}

func setHeader(h http.Header, m *handlerv1.Request) {
	h.Set(headerContract, fmt.Sprint(m.GetV()))
	if m.GetKey() != "" {
		h.Set(headerKey, m.GetKey())
	}
	if _, ok := eventstore.ParseTraceparent(m.GetTraceparent(), ""); !ok {
		return
	}
	h.Set(headerTraceparent, m.GetTraceparent())
	if state := m.GetTracestate(); state != "" && len(state) <= maxTracestate {
		if _, ok := eventstore.ParseTraceparent(m.GetTraceparent(), state); ok {
			h.Set(headerTracestate, state)
		}
	}
}

// failed says what a call came to that has no reply: a Failure that the far side has sent,
// or an error of this carrier's.
func (c *client) failed(ctx context.Context, r *handler.Request, err error) (*handler.Reply, error) {
	e := c.error(r, handler.ErrFailed, "", "")
	e.Err = err
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil, e
	}
	if f := detailOf(ce); f != nil && connect.IsWireError(ce) {
		switch f.Code {
		case detailOverloaded:
			e.Kind, e.Found, e.Err = eventstore.ErrOverloaded, f.Message, nil
			return nil, e
		case detailDenied:
			e.Kind, e.Found, e.Err = handler.ErrDenied, f.Message, nil
			return nil, e
		}
		return &handler.Reply{Key: r.Key, Failure: f}, nil
	}
	e.Kind = kindOf(ce)
	switch {
	case ctx.Err() != nil:
		e.Kind, e.Err = handler.ErrFailed, ctx.Err()
		e.Wanted, e.Found = "a reply in time", "none"
	case ce.Code() == connect.CodeUnimplemented:
		e.Hint = "is the handler served at this URL?"
	case errors.Is(e.Kind, eventstore.ErrOverloaded):
		e.Hint = "or the request is over a limit of the server"
	}
	return nil, e
}
