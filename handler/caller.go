// Caller: the host's side of a handler. Keys, deadlines, traces, tries and checks are
// here, once for all carriers.

package handler

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/wattle-es/wattle/eventstore"
)

// Options of a Caller; nil and zero fields are the defaults.
type Options struct {
	Limits Limits
	// Timeout bounds one try. 0: DefaultTimeout. Where ctx ends sooner, that counts.
	Timeout time.Duration
	// Retries is how often a call that failed is made again, under the same key, after a
	// pause that grows from 50 ms to a second. 0: DefaultRetries. Negative: never.
	Retries        int
	TracerProvider trace.TracerProvider // nil: no spans
	Target         string               // names the handler in errors and spans; "": what it calls itself
}

// Bounds of the pause between two tries.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = time.Second
)

// Caller calls one handler. Its methods may be called from several goroutines at once.
type Caller struct {
	h           Handler
	o           Options
	tracer      trace.Tracer
	description Description
}

// NewCaller asks a handler what it is and returns a caller of it.
func NewCaller(ctx context.Context, h Handler, o *Options) (*Caller, error) {
	if o == nil {
		o = &Options{}
	}
	c := &Caller{h: h, o: *o}
	c.o.Limits = c.o.Limits.orDefault()
	if c.o.Timeout <= 0 {
		c.o.Timeout = DefaultTimeout
	}
	if c.o.Retries == 0 {
		c.o.Retries = DefaultRetries
	}
	if c.o.TracerProvider == nil {
		c.o.TracerProvider = noop.NewTracerProvider()
	}
	c.tracer = c.o.TracerProvider.Tracer(eventstore.ScopeName)
	reply, err := c.Call(ctx, &Request{Op: Describe})
	if err != nil {
		return nil, err
	}
	c.description = *reply.Description
	if c.o.Target == "" {
		c.o.Target = c.description.Name
	}
	return c, nil
}

// Description is what the handler said of itself when the Caller was made.
func (c *Caller) Description() Description { return c.description }

// Limits are those in force.
func (c *Caller) Limits() Limits { return c.o.Limits }

// Attributes of the span "decide <category>" and the like, of kind client, around a call;
// those of eventstore beside them. A refusal is an answer, not a failure.
const (
	AttrTarget  = attribute.Key("wattle.handler")
	AttrRetries = attribute.Key("wattle.retries")
	AttrRefused = attribute.Key("wattle.refused")
)

// Call sends a request, again where that may help, and returns a reply that was checked.
// It gives the request a key, deadline and trace context where it has none. A refusal
// comes back as the error *Rejected, a Failure as the *Error that it stands for.
func (c *Caller) Call(ctx context.Context, r *Request) (reply *Reply, err error) {
	if r.Op != Describe && c.description.Name != "" && !c.description.Can(r.Op) {
		return nil, &Error{Kind: ErrBadRequest, Op: r.Op, Target: c.o.Target, Stream: r.Stream, Wanted: "a handler with the capability " + string(r.Op), Found: "none of it"}
	}
	ctx, span := c.tracer.Start(ctx, c.spanName(r), trace.WithSpanKind(trace.SpanKindClient))
	retries := 0
	defer func() { c.endSpan(span, r, retries, err) }()
	sent := c.prepare(ctx, r)
	for ; ; retries++ {
		reply, err = c.try(ctx, sent)
		if err == nil || retries >= c.o.Retries || !Temporary(err) {
			return reply, err
		}
		if e := pause(ctx, retries); e != nil {
			return nil, err
		}
		ctx = context.WithValue(ctx, againKey{}, true)
	}
}

func (c *Caller) spanName(r *Request) string {
	switch {
	case r.Stream != "":
		return string(r.Op) + " " + string(r.Stream.Category())
	case r.Projector != "":
		return string(r.Op) + " " + r.Projector
	}
	return string(r.Op)
}

func (c *Caller) endSpan(span trace.Span, r *Request, retries int, err error) {
	if span.IsRecording() {
		span.SetAttributes(eventstore.AttrSystem.String(eventstore.System), eventstore.AttrOperation.String(string(r.Op)),
			AttrTarget.String(c.o.Target), AttrRetries.Int(retries))
		if r.Stream != "" {
			span.SetAttributes(eventstore.AttrStream.String(string(r.Stream)), eventstore.AttrDestination.String(string(r.Stream.Category())))
		}
	}
	if _, refused := errors.AsType[*Rejected](err); refused {
		span.SetAttributes(AttrRefused.Bool(true))
		err = nil
	}
	eventstore.EndSpan(span, err)
}

// prepare returns the request as it is sent, each time.
func (c *Caller) prepare(ctx context.Context, r *Request) *Request {
	sent := *r
	if sent.Key.IsZero() {
		sent.Key = eventstore.NewUUID()
	}
	if parent := eventstore.Traceparent(ctx); parent != "" {
		sent.Traceparent = parent
		sent.Tracestate = trace.SpanContextFromContext(ctx).TraceState().String()
	}
	return &sent
}

// try is one call.
func (c *Caller) try(ctx context.Context, r *Request) (*Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	if until, ok := ctx.Deadline(); ok {
		r.Deadline = until
	}
	reply, err := c.h.Handle(ctx, r)
	if err != nil {
		return nil, c.named(ctx, r, err)
	}
	if reply == nil {
		return nil, &Error{Kind: ErrBadReply, Op: r.Op, Target: c.o.Target, Stream: r.Stream, Wanted: "a reply", Found: "nil"}
	}
	if err := Check(&c.description, r, reply, c.o.Limits); err != nil {
		return nil, c.named(ctx, r, err)
	}
	switch {
	case reply.Failure != nil:
		return nil, failure(r, c.o.Target, reply.Failure)
	case reply.Rejected != nil:
		return nil, reply.Rejected
	}
	return reply, nil
}

// named makes an *Error that names the target of what a handler returned.
func (c *Caller) named(ctx context.Context, r *Request, err error) error {
	if e, ok := err.(*Error); ok {
		if e.Target == "" {
			with := *e
			with.Target = c.o.Target
			return &with
		}
		return e
	}
	if _, ok := errors.AsType[*Rejected](err); ok {
		return err
	}
	return &Error{Kind: nearKind(err), Op: r.Op, Target: c.o.Target, Stream: r.Stream, Err: err}
}

// pause waits before another try, a random time that may double with each.
func pause(ctx context.Context, retries int) error {
	most := min(firstPause<<min(retries, 10), mostPause)
	t := time.NewTimer(most/2 + rand.N(most/2))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
