// One call, on the far side.

package natscarrier

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/internal/farside"
)

// Tally is the Data of an endpoint's statistics: what became of the calls of one
// operation, since the service began. Inside is of the whole service.
type Tally struct {
	Answered   int64         `json:"answered"`   // replies of the handler in time, refusals among them
	Failed     int64         `json:"failed"`     // errors and Failures, in time
	Overloaded int64         `json:"overloaded"` // refused for want of room
	Late       int64         `json:"late"`       // not run, or not answered: nobody waited any more
	Inside     int           `json:"inside"`     // run or wait now
	Time       time.Duration `json:"time"`       // all calls together took, in nanoseconds
}

type tally struct {
	came, answered, failed, overloaded, late, time atomic.Int64
}

func (t *tally) data(g *farside.Gate) Tally {
	if t == nil {
		return Tally{}
	}
	return Tally{t.answered.Load(), t.failed.Load(), t.overloaded.Load(), t.late.Load(), g.Inside(), time.Duration(t.time.Load())}
}

// receive takes a call in, or refuses it, and never blocks: other calls wait behind it.
func (s *Service) receive(base context.Context, op handler.Op, req micro.Request) {
	t := s.tallies[op]
	t.came.Add(1)
	if req.Reply() == "" { // a publication: nobody asked
		t.late.Add(1)
		return
	}
	if err := s.gate.Enter(&handler.Request{Op: op}); err != nil {
		t.overloaded.Add(1)
		_ = req.Error(codeOverloaded, oneLine(err.Error(), maxReasonBytes), nil) // micro counts it
		return
	}
	received := time.Now()
	go func() {
		defer s.gate.Leave()
		ctx, cancel := context.WithDeadline(base, received.Add(timeoutOf(req.Headers(), s.timeout)))
		defer cancel()
		s.answer(ctx, op, req)
		t.time.Add(int64(time.Since(received)))
	}()
}

// answer runs one call and sends its reply, as long as somebody waits for it. It does not
// reply by way of micro, which counts a call when it has been received and would race.
func (s *Service) answer(ctx context.Context, op handler.Op, req micro.Request) {
	t := s.tallies[op]
	done, err := s.gate.Turn(ctx)
	if err != nil {
		t.late.Add(1)
		return
	}
	m := s.reply(ctx, op, req)
	done()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		t.late.Add(1)
		return
	case m.Header.Get(micro.ErrorCodeHeader) != "":
		t.failed.Add(1)
	default:
		t.answered.Add(1)
	}
	m.Subject = req.Reply()
	if err := s.nc.PublishMsg(m); err != nil && s.logger != nil {
		s.logger.ErrorContext(ctx, "wattle: a reply could not be sent", "op", op, "err", err)
	}
}

// reply makes the message that answers a request.
func (s *Service) reply(ctx context.Context, op handler.Op, req micro.Request) *nats.Msg {
	r, err := s.request(op, req)
	var reply *handler.Reply
	if err == nil {
		reply, err = s.h.Handle(ctx, r)
	}
	if code := bareCode(err); code != "" {
		return &nats.Msg{Header: nats.Header{micro.ErrorCodeHeader: {code}, micro.ErrorHeader: {oneLine(err.Error(), maxReasonBytes)}}}
	}
	answered := handler.Func(func(context.Context, *handler.Request) (*handler.Reply, error) { return reply, err })
	reply = handler.Answer(ctx, answered, r, nil)
	data := handler.AppendReply(nil, reply)
	if most := min(s.replyBytes, int(s.nc.MaxPayload())-replyHeaderBytes); len(data) > most {
		reply = handler.AsReply(r, &handler.Error{Kind: eventstore.ErrTooLarge, Op: op, Stream: r.Stream,
			Wanted: fmt.Sprintf("a reply of at most %d bytes", most), Found: fmt.Sprint(len(data))})
		data = handler.AppendReply(nil, reply)
	}
	return &nats.Msg{Header: replyHeader(reply.Key, reply.Failure), Data: data}
}

// bareCode is that of an error for which a reply has no Failure.
func bareCode(err error) string {
	switch kind := handler.Kind(err); {
	case errors.Is(kind, eventstore.ErrOverloaded):
		return codeOverloaded
	case errors.Is(kind, handler.ErrDenied):
		return codeDenied
	}
	return ""
}

// request reads a request. Where it cannot it says so, and gives as much as it knows.
func (s *Service) request(op handler.Op, req micro.Request) (*handler.Request, error) {
	known, err := s.announced(op, req)
	if err != nil {
		return known, err
	}
	bad := &handler.Error{Kind: handler.ErrBadRequest, Op: op}
	r, err := handler.ParseRequest(req.Data())
	if err != nil {
		bad.Err = err
		return known, bad
	}
	switch {
	case r.Op != op:
		bad.Wanted, bad.Found = "a request of the operation "+string(op), oneLine(string(r.Op), maxReasonBytes)
		return known, bad
	case r.Key.IsZero():
		r.Key = known.Key
	case !known.Key.IsZero() && known.Key != r.Key:
		bad.Wanted, bad.Found = "the key of the header, "+known.Key.String(), r.Key.String()
		return known, bad
	}
	if r.Traceparent == "" {
		r.Traceparent, r.Tracestate = req.Headers().Get(headerTraceparent), req.Headers().Get(headerTracestate)
	}
	return r, nil
}

// announced is what is known of a request before its body is read.
func (s *Service) announced(op handler.Op, req micro.Request) (*handler.Request, error) {
	headers, known := req.Headers(), &handler.Request{Op: op}
	bad := &handler.Error{Kind: handler.ErrBadRequest, Op: op}
	if k := headers.Get(headerKey); k != "" {
		key, err := eventstore.ParseUUID(k)
		if err != nil {
			bad.Wanted, bad.Err = "a UUID in the header "+headerKey, err
			return known, bad
		}
		known.Key = key
	}
	if v := headers.Get(headerContract); v != "" && v != contract {
		bad.Wanted, bad.Found = "version "+contract+" of the contract", oneLine(v, maxReasonBytes)
		return known, bad
	}
	if n := len(req.Data()); n > s.requestBytes {
		bad.Kind = eventstore.ErrTooLarge
		bad.Wanted, bad.Found = fmt.Sprintf("a request of at most %d bytes", s.requestBytes), fmt.Sprint(n)
		return known, bad
	}
	return known, nil
}
