// The caller's side.

package natscarrier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/internal/nearside"
)

// ClientOptions of a client; nil and zero fields are the defaults.
type ClientOptions struct {
	Limits handler.Limits // RequestBytes and ReplyBytes count here
	// Timeout bounds a call for which neither ctx nor the request says how long it may
	// take. 0: handler.DefaultTimeout.
	Timeout time.Duration
}

// NewClient returns the handler that answers below a prefix of subjects, as
// "handler.loan". The connection stays the caller's. It wants a handler.Caller around it,
// which makes keys, tries and checks.
//
// An error is an *handler.Error: ErrFailed if no answer came (the deadline passed, the
// connection is down or was lost), eventstore.ErrOverloaded if nobody listens on the
// subject or nobody has room, eventstore.ErrTooLarge before anything is sent for what is
// over Limits or the server's max_payload, and for a reply over them, ErrBadReply for an
// answer that no handler may give. A bad prefix or a nil connection is the eventstore.ErrInvalid of every call.
func NewClient(nc *nats.Conn, prefix string, o *ClientOptions) handler.Handler {
	c := &client{nc: nc, prefix: prefix, requestBytes: handler.DefaultRequestBytes, replyBytes: handler.DefaultReplyBytes, timeout: handler.DefaultTimeout}
	if o == nil {
		return c
	}
	if o.Limits.RequestBytes > 0 {
		c.requestBytes = o.Limits.RequestBytes
	}
	if o.Limits.ReplyBytes > 0 {
		c.replyBytes = o.Limits.ReplyBytes
	}
	if o.Timeout > 0 {
		c.timeout = o.Timeout
	}
	return c
}

type client struct {
	nc                       *nats.Conn
	prefix                   string
	requestBytes, replyBytes int
	timeout                  time.Duration
}

// Handle sends a request and awaits the first reply; others are dropped.
func (c *client) Handle(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
	m, err := c.message(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := nearside.Bounded(ctx, r, c.timeout)
	defer cancel()
	until, _ := ctx.Deadline()
	m.Header = requestHeader(r, until)
	got, err := c.nc.RequestMsgWithContext(ctx, m)
	if errors.Is(err, nats.ErrNoResponders) && c.without(ctx, r.Op) {
		return nil, c.error(r, handler.ErrBadRequest, "an operation that the service has", string(r.Op))
	}
	if err != nil {
		return nil, c.sendError(ctx, r, len(m.Data), err)
	}
	return c.reply(r, got)
}

// without says if a service is there but has no such operation: nobody listens then
// either.
func (c *client) without(ctx context.Context, op handler.Op) bool {
	if op == handler.Describe {
		return false
	}
	reply, err := c.Handle(ctx, &handler.Request{Op: handler.Describe, Key: eventstore.NewUUID()})
	return err == nil && reply.Description != nil && !reply.Description.Can(op)
}

// message makes the message of a request, as far as it may be sent.
func (c *client) message(r *handler.Request) (*nats.Msg, error) {
	switch {
	case c.nc == nil:
		return nil, c.error(r, eventstore.ErrInvalid, "a NATS connection", "nil")
	case !validSubject(c.prefix):
		return nil, c.error(r, eventstore.ErrInvalid, fmt.Sprintf("a prefix of at most %d bytes: tokens without blanks, * and >, joined by dots", MaxPrefixBytes), fmt.Sprintf("%.200q", c.prefix))
	case !validOp(r.Op):
		return nil, c.error(r, handler.ErrBadRequest, "an operation that is one token", fmt.Sprintf("%.200q", string(r.Op)))
	case !c.nc.IsConnected():
		// What a connection that is away keeps for later is sent when nobody waits for it.
		e := c.error(r, handler.ErrFailed, "a connection to NATS", c.nc.Status().String())
		e.Hint = "nothing was sent"
		return nil, e
	}
	m := &nats.Msg{Subject: c.prefix + "." + string(r.Op), Data: handler.AppendRequest(nil, r)}
	if n := len(m.Data); n > c.requestBytes {
		return nil, c.error(r, eventstore.ErrTooLarge, fmt.Sprintf("a request of at most %d bytes", c.requestBytes), fmt.Sprint(n))
	}
	return m, nil
}

func (c *client) error(r *handler.Request, kind error, wanted, found string) *handler.Error {
	return &handler.Error{Kind: kind, Op: r.Op, Target: c.prefix, Stream: r.Stream, Wanted: wanted, Found: found}
}

// sendError says what a request came to that has no reply.
func (c *client) sendError(ctx context.Context, r *handler.Request, bytes int, err error) error {
	e := c.error(r, handler.ErrFailed, "", "")
	e.Err = err
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		e.Kind, e.Hint = eventstore.ErrOverloaded, "nothing was done; is the service running, under this prefix and in this account?"
		e.Wanted, e.Found = "a service on the subject "+c.prefix+"."+string(r.Op), "nobody"
	case errors.Is(err, nats.ErrMaxPayload):
		e.Kind, e.Hint = eventstore.ErrTooLarge, "nothing was sent; raise max_payload of the NATS server, or send smaller batches"
		e.Wanted, e.Found = fmt.Sprintf("at most %d bytes with the headers, the server's max_payload", c.nc.MaxPayload()), fmt.Sprint(bytes)
	case ctx.Err() != nil:
		e.Err = ctx.Err()
		e.Wanted, e.Found = "a reply in time", "none"
	}
	return e
}

// reply reads what came.
func (c *client) reply(r *handler.Request, m *nats.Msg) (*handler.Reply, error) {
	if code := m.Header.Get(micro.ErrorCodeHeader); code != "" && len(m.Data) == 0 {
		return nil, c.error(r, kindOf(code), "a reply", oneLine(code+" "+m.Header.Get(micro.ErrorHeader), maxReasonBytes))
	}
	if n := len(m.Data); n > c.replyBytes {
		return nil, c.error(r, eventstore.ErrTooLarge, fmt.Sprintf("a reply of at most %d bytes", c.replyBytes), fmt.Sprint(n))
	}
	reply, err := handler.ParseReply(m.Data)
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
