// The interceptor: every message is asked about before the service sees it.

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
	"github.com/wattle-es/wattle/server/policy"
)

type interceptor struct{ s *Server }

// allow asks the policy about everything a message needs. What it is told to deny it logs.
func (s *Server) allow(c *call, list []Access) *connect.Error {
	p := s.policy.State().Policy
	for _, a := range list {
		if d := decide(p, c.caller.identity, a); !d.Allowed {
			level := slog.LevelWarn
			if a.Resource == "" && !a.Somewhere { // there is no such resource: a client asks what server this is
				level = slog.LevelDebug
			} else {
				s.metrics.denied(c.proc.path)
			}
			s.logger.Log(context.Background(), level, "wattle: denied", "identity", clean(c.caller.identity), "procedure", c.proc.path,
				"verb", string(a.Verb), "resource", clean(a.Resource), "rule", clean(d.Rule))
			return denied(a.String())
		}
	}
	return nil
}

func decide(p *policy.Policy, identity string, a Access) policy.Decision {
	if a.Somewhere {
		return p.DecideAny(identity, a.Verb)
	}
	return p.Decide(identity, a.Verb, a.Resource)
}

// check is allow for a message: of a known caller, of the procedure that was routed, one
// that has a row in the table.
func (s *Server) check(c *call, spec connect.Spec, message any) ([]Access, *connect.Error) {
	switch {
	case c == nil || c.caller == nil:
		return nil, unauthenticated("a call that did not come through this server")
	case c.proc.path != spec.Procedure:
		return nil, denied("call another procedure than the one that was asked for")
	}
	m, ok := message.(proto.Message)
	if !ok {
		return nil, denied("send something else than a message")
	}
	list := c.proc.accesses(m)
	if len(list) == 0 {
		s.logger.Warn("wattle: denied", "identity", clean(c.caller.identity), "procedure", c.proc.path, "verb", "", "resource", "", "rule", "no row in the table of accesses")
		return nil, denied("call this procedure")
	}
	if !c.account.keep(int64(wire.Weight(m))) {
		s.metrics.overloaded()
		return nil, s.budget.full()
	}
	return list, s.allow(c, list)
}

// WrapUnary implements connect.Interceptor.
func (i interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (answer connect.AnyResponse, err error) {
		c := callOf(ctx)
		if c != nil {
			c.reached = true
			defer func() { c.end(err) }()
		}
		list, refused := i.s.check(c, r.Spec(), r.Any())
		if refused != nil {
			return nil, refused
		}
		ctx, cancel := context.WithTimeout(ctx, i.s.limits.UnaryTimeout)
		defer cancel()
		if reads(c.proc, list) {
			return i.read(ctx, c, r, next)
		}
		return i.call(ctx, r, next)
	}
}

// call has a call carried out, whose answer is small.
func (i interceptor) call(ctx context.Context, r connect.AnyRequest, next connect.UnaryFunc) (answer connect.AnyResponse, err error) {
	defer i.s.contain(&err, r.Spec().Procedure)
	answer, err = next(ctx, r)
	return answer, i.s.told(r.Spec().Procedure, err)
}

// read has a page or a snapshot read. Only so many are made at once, and what waits to be
// sent counts as what is received does: who asks for much and takes none of it is refused
// before memory grows.
func (i interceptor) read(ctx context.Context, c *call, r connect.AnyRequest, next connect.UnaryFunc) (connect.AnyResponse, error) {
	select {
	case i.s.reading <- struct{}{}:
		defer func() { <-i.s.reading }()
	case <-ctx.Done():
		i.s.metrics.overloaded()
		return nil, overloaded("a turn to read", "none in time")
	}
	answer, err := i.call(ctx, r, next)
	if err != nil {
		return nil, err
	}
	if m, ok := answer.Any().(proto.Message); ok && !c.account.take(answerTimes*int64(proto.Size(m))) {
		i.s.metrics.overloaded()
		return nil, i.s.budget.full()
	}
	return answer, nil
}

// answerTimes is how many times its size an answer is in memory: the message, and its bytes.
const answerTimes = 2

// reads says that a call brings what was stored. One that only waits does not.
func reads(p *procedure, list []Access) bool {
	return p.path != wattlev1.LogServiceWaitProcedure && !slices.ContainsFunc(list, func(a Access) bool { return a.Verb != policy.Read })
}

// WrapStreamingClient implements connect.Interceptor; the server is none.
func (i interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (i interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) (err error) {
		c := callOf(ctx)
		if c == nil || c.caller == nil {
			_, err := i.s.check(c, conn.Spec(), nil)
			return err
		}
		c.reached = true
		defer func() { c.end(err) }()
		if !c.caller.until.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadlineCause(ctx, c.caller.until, unauthenticated("a certificate that has expired"))
			defer cancel()
		}
		st, ctx, refused := i.s.open(ctx, c)
		if refused != nil {
			return refused
		}
		defer i.s.close(st)
		if why := c.caller.still(); why != "" { // revoked since it was let in: nobody has looked at this stream
			return unauthenticated(why)
		}
		defer i.s.contain(&err, conn.Spec().Procedure)
		stop := context.AfterFunc(ctx, func() { // a certificate's end is a cause too
			if e, ok := errors.AsType[*connect.Error](context.Cause(ctx)); ok {
				st.end(e)
			}
		})
		defer stop()
		err = next(ctx, &checkedConn{conn, st})
		cause := st.why()
		if cause == nil { // what stop would have heard of may have come this moment
			cause, _ = errors.AsType[*connect.Error](context.Cause(ctx))
		}
		if cause != nil {
			return cause
		}
		return i.s.told(conn.Spec().Procedure, err)
	}
}

// checkedConn asks about each message that is received.
type checkedConn struct {
	connect.StreamingHandlerConn
	st *stream
}

// Receive gives back the room of the message before: the service has it behind itself, or
// counts what it keeps.
func (c *checkedConn) Receive(message any) error {
	if err := c.begin(); err != nil {
		return err
	}
	c.st.c.account.keep(0)
	c.st.c.read = 0
	err := c.StreamingHandlerConn.Receive(message)
	if cause := c.done(); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	generation := c.st.s.policy.State().Generation
	list, refused := c.st.s.check(c.st.c, c.Spec(), message)
	if refused == nil {
		c.st.remember(list)
		// Whoever has changed the policy meanwhile may have looked at the stream before.
		if c.st.s.policy.State().Generation != generation {
			refused = c.st.s.allow(c.st.c, list)
		}
	}
	if refused != nil {
		c.st.end(refused)
		return refused
	}
	return nil
}

func (c *checkedConn) begin() error {
	c.st.mu.Lock()
	defer c.st.mu.Unlock()
	if c.st.cause != nil {
		return c.st.cause
	}
	c.st.receiving = true
	return nil
}

func (c *checkedConn) done() error {
	c.st.mu.Lock()
	defer c.st.mu.Unlock()
	c.st.receiving = false
	if c.st.cause != nil {
		return c.st.cause
	}
	return nil
}

// contain makes a panic an error that tells nothing. The log gets the stack and the type:
// what was said in the panic may be anything that the service was given.
func (s *Server) contain(err *error, procedure string) {
	p := recover()
	if p == nil {
		return
	}
	s.metrics.panicked()
	s.logger.Error("wattle: a service panicked", "procedure", procedure, "type", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
	*err = internal()
}

// told makes an error one that may leave: those of the services are connect's with their
// detail, an end of the context has its code, anything else could tell what it should not.
func (s *Server) told(procedure string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
	case errors.Is(err, context.Canceled), errors.Is(err, io.ErrClosedPipe):
		return connect.NewError(connect.CodeCanceled, context.Canceled)
	}
	s.logger.Error("wattle: a service failed with an error that is none of wattle.v1", "procedure", procedure, "type", fmt.Sprintf("%T", err))
	return internal()
}

// Identity returns who asks; "" outside of a call.
func Identity(ctx context.Context) string {
	if c := callOf(ctx); c != nil && c.caller != nil {
		return c.caller.identity
	}
	return ""
}

// Visible says if whoever asks may do anything with a category or topic: whether a list
// may show it. Outside of a call of this server nothing is visible.
func (s *Server) Visible(ctx context.Context, category string) bool {
	return s.May(ctx, policy.Any, category)
}

// May says if whoever asks may do something with a resource.
func (s *Server) May(ctx context.Context, verb policy.Verb, resource string) bool {
	return s.policy.Decide(Identity(ctx), verb, resource).Allowed
}
