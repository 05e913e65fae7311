// Client: the host's side.

package httpcarrier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

// headerDeadline is when the caller stops waiting, as of RFC 3339.
const headerDeadline = "Wattle-Deadline"

// DefaultSource is the ce-source of requests where none is given.
const DefaultSource = "/wattle"

// ClientOptions of a Client; nil and zero fields are the defaults.
type ClientOptions struct {
	// HTTP sends the requests; what it says of redirects and cookies does not count. Nil:
	// one with a transport of its own, of 64 connections at most that idle.
	HTTP *http.Client
	// Header goes with each request, as an Authorization does.
	Header http.Header
	// Source is the ce-source of requests, a URI reference. Empty: DefaultSource.
	Source string
	// Signer signs each request. Nil: nobody does.
	Signer *Signer
	Now    func() time.Time // of signatures; nil: time.Now
	// RequestBytes bounds an encoded request before it is compressed, ReplyBytes a reply as
	// it comes and as it is when decompressed. 0: the contract's defaults.
	RequestBytes, ReplyBytes int
	// GzipOver is the size in bytes over which requests are compressed. 0: never, for a
	// server need not understand that. Compressed replies are always accepted.
	GzipOver int
}

// Client is a handler.Handler that has requests answered over HTTP. It makes one try: see
// handler.Caller for more. It may be used from several goroutines at once.
type Client struct {
	url    string
	target string // the same, without a password
	o      ClientOptions
}

// NewClient returns a client of the handler at an http or https address.
func NewClient(address string, o *ClientOptions) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "handler over HTTP", Wanted: "an address of http or https", Found: short(address)}
	}
	c := &Client{url: u.String(), target: u.Redacted()}
	if o != nil {
		c.o = *o
	}
	if c.o.Source == "" {
		c.o.Source = DefaultSource
	}
	if c.o.Now == nil {
		c.o.Now = time.Now
	}
	if c.o.RequestBytes <= 0 {
		c.o.RequestBytes = handler.DefaultRequestBytes
	}
	if c.o.ReplyBytes <= 0 {
		c.o.ReplyBytes = handler.DefaultReplyBytes
	}
	if err := (&CloudEvent{ID: "-", Source: c.o.Source, Type: "-"}).Check(); err != nil {
		return nil, &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "handler over HTTP", Err: err}
	}
	c.o.HTTP = own(c.o.HTTP)
	return c, nil
}

// own is a client that follows no redirect: the body is signed for, and meant for, one
// address.
func own(given *http.Client) *http.Client {
	h := http.Client{}
	if given != nil {
		h = *given
	} else if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t = t.Clone()
		t.MaxIdleConnsPerHost = 64
		t.MaxResponseHeaderBytes = MaxHeaderBytes
		h.Transport = t
	}
	h.Jar = nil
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &h
}

// Close lets go of connections that idle.
func (c *Client) Close() error {
	c.o.HTTP.CloseIdleConnections()
	return nil
}

// Handle sends a request and returns the reply, unchecked but for its form: a Failure or
// Rejected in it are the handler's. Errors are *handler.Error; see the table of the
// package.
func (c *Client) Handle(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
	sent := r
	if r.Key.IsZero() { // an event has an id
		keyed := *r
		keyed.Key = eventstore.NewUUID()
		sent = &keyed
	}
	q, err := c.request(ctx, sent)
	if err != nil {
		return nil, err
	}
	resp, err := c.o.HTTP.Do(q)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // it has the address, with a password
		}
		return nil, c.failed(ctx, r, handler.ErrFailed, err)
	}
	defer c.finish(resp.Body)
	reply, err := c.reply(ctx, sent, resp)
	switch {
	case err != nil:
		return nil, err
	case reply.Key == sent.Key:
		reply.Key = r.Key
	case !reply.Key.IsZero(): // a server or proxy that answered something twice
		c.o.HTTP.CloseIdleConnections()
		return nil, &handler.Error{Kind: handler.ErrFailed, Op: r.Op, Target: c.target, Stream: r.Stream, Wanted: "the reply to " + sent.Key.String(), Found: "that to " + reply.Key.String()}
	}
	return reply, nil
}

// request makes the HTTP request.
func (c *Client) request(ctx context.Context, r *handler.Request) (*http.Request, error) {
	body := handler.AppendRequest(nil, r)
	if len(body) > c.o.RequestBytes {
		return nil, &handler.Error{Kind: eventstore.ErrTooLarge, Op: r.Op, Target: c.target, Stream: r.Stream,
			Wanted: fmt.Sprintf("a request of at most %d bytes", c.o.RequestBytes), Found: strconv.Itoa(len(body))}
	}
	h := http.Header{}
	for name, values := range c.o.Header {
		h[name] = values
	}
	event := CloudEvent{ID: r.Key.String(), Source: c.o.Source, Type: typeOf(r.Op), Subject: string(r.Stream), DataContentType: JSONType}
	if err := WriteBinary(h, &event); err != nil {
		return nil, &handler.Error{Kind: handler.ErrBadRequest, Op: r.Op, Target: c.target, Stream: r.Stream, Err: err}
	}
	if c.o.GzipOver > 0 && len(body) > c.o.GzipOver {
		body = compress(body)
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Accept-Encoding", "gzip")
	traced(ctx, r, h)
	if until, ok := ctx.Deadline(); ok && (r.Deadline.IsZero() || until.Before(r.Deadline)) {
		h.Set(headerDeadline, until.UTC().Format(time.RFC3339Nano))
	} else if !r.Deadline.IsZero() {
		h.Set(headerDeadline, r.Deadline.UTC().Format(time.RFC3339Nano))
	}
	if c.o.Signer != nil {
		c.o.Signer.Sign(h, r.Key.String(), c.o.Now(), body)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, c.failed(ctx, r, handler.ErrBadRequest, err)
	}
	q.Header = h
	return q, nil
}

// traced sets the trace context of the request, else that of ctx.
func traced(ctx context.Context, r *handler.Request, h http.Header) {
	parent, state := r.Traceparent, r.Tracestate
	if parent == "" {
		parent = eventstore.Traceparent(ctx)
	}
	if parent != "" {
		h.Set("Traceparent", parent)
		if state != "" {
			h.Set("Tracestate", state)
		}
	}
}

// typeOf is the ce-type of a request.
func typeOf(op handler.Op) string {
	return "wattle." + string(op) + ".v" + strconv.Itoa(handler.Version)
}

func (c *Client) failed(ctx context.Context, r *handler.Request, kind, err error) error {
	if ctx.Err() != nil && kind == handler.ErrFailed {
		err = ctx.Err()
	}
	return &handler.Error{Kind: kind, Op: r.Op, Target: c.target, Stream: r.Stream, Err: err}
}

// finish reads a little of what is left, so that the connection can be used again.
func (c *Client) finish(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, drainBytes)
	_ = body.Close()
}

// reply makes of an HTTP response what it says.
func (c *Client) reply(ctx context.Context, r *handler.Request, resp *http.Response) (*handler.Reply, error) {
	kind := kindOf(resp.StatusCode)
	body, err := c.body(resp)
	switch {
	case errors.Is(err, eventstore.ErrTooLarge) && inBody(resp.StatusCode):
		return nil, c.failed(ctx, r, eventstore.ErrTooLarge, err)
	case errors.Is(err, errBomb) && inBody(resp.StatusCode):
		return nil, c.failed(ctx, r, handler.ErrBadReply, err)
	case err != nil && inBody(resp.StatusCode):
		return nil, c.failed(ctx, r, handler.ErrFailed, err)
	case err != nil:
		body = nil // the status is enough
	}
	reply, bad := parseReply(resp, body)
	switch {
	case bad == nil && fits(resp.StatusCode, reply) && (kind == nil || !reply.Key.IsZero()):
		return reply, nil // without a key: to a request that could not be read
	case kind == nil && unended(resp): // the end of the connection was the body's, or not
		return nil, c.failed(ctx, r, handler.ErrFailed, bad)
	case kind == nil:
		return nil, c.failed(ctx, r, handler.ErrBadReply, bad)
	}
	e := &handler.Error{Kind: kind, Op: r.Op, Target: c.target, Stream: r.Stream, Wanted: "status 200 and a reply", Found: "status " + strconv.Itoa(resp.StatusCode), Hint: hintOf(resp)}
	if bad == nil && reply.Failure != nil {
		e.Found += fmt.Sprintf(", %.*s", handler.MaxMessageBytes, reply.Failure)
	}
	return nil, e
}

func hintOf(resp *http.Response) string {
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return "redirects are not followed: give the address it redirects to"
	case resp.Header.Get("Retry-After") != "":
		return "Retry-After: " + short(resp.Header.Get("Retry-After"))
	}
	return ""
}

// body reads at most as much as a reply may have.
func (c *Client) body(resp *http.Response) ([]byte, error) {
	most := c.o.ReplyBytes
	if resp.ContentLength > int64(most) {
		return nil, &sizeError{fmt.Sprintf("a reply of at most %d bytes", most), strconv.FormatInt(resp.ContentLength, 10)}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(body) > most {
		return nil, &sizeError{fmt.Sprintf("a reply of at most %d bytes", most), "more"}
	}
	if resp.Header.Get("Content-Encoding") == "gzip" {
		return inflate(body, most)
	}
	return body, nil
}

// unended says if nothing told where the body ends.
func unended(resp *http.Response) bool {
	return resp.ProtoMajor == 1 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0 && resp.Header.Get("Content-Encoding") == ""
}

// parseReply reads a reply, plain or as the data of a structured event.
func parseReply(resp *http.Response, body []byte) (*handler.Reply, error) {
	if t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && t == StructuredType {
		e, err := ParseStructured(body)
		if err != nil {
			return nil, err
		}
		body = e.Data
	}
	return handler.ParseReply(body)
}
