// The rules for every handler.

package conformance

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

var general = []rule{
	{"a description is always the same", nil, describesItself},
	{"an operation that it does not have is refused as a bad request", nil, unknownOp},
	{"a request whose caller has gone ends, and harms nothing that follows", nil, cancelled},
	{"a reply over a limit is too large, and harms nothing that follows", nil, tooLarge},
	{"calls at once have the replies that they have one after another", nil, together},
}

func describesItself(r *run) {
	first := r.call("", &handler.Request{Op: handler.Describe, Key: entryID(1)})
	second := r.call("", &handler.Request{Op: handler.Describe, Key: entryID(1)})
	if first == nil || second == nil {
		return
	}
	if a, b := handler.AppendReply(nil, first), handler.AppendReply(nil, second); !bytes.Equal(a, b) {
		r.found("", "wanted %s, found %s", a, b)
	}
}

func unknownOp(r *run) {
	q := &handler.Request{Op: "dance", Key: entryID(1), Stream: r.anyStream()}
	reply, err := r.counted().Handle(r.ctx, q)
	switch {
	case err != nil:
		r.wants("", err, handler.ErrBadRequest)
	case reply.Failure == nil || reply.Failure.Code != handler.CodeInvalid:
		r.found("", "wanted a failure %q, found %s", handler.CodeInvalid, handler.AppendReply(nil, reply))
	}
	r.call("", &handler.Request{Op: handler.Describe})
}

func (r *run) anyStream() eventstore.Stream {
	category := r.result.Description.Category
	if category == "" {
		category = "any"
	}
	return eventstore.Stream(category + "-conformance")
}

func cancelled(r *run) {
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	_, _ = r.counted().Handle(ctx, &handler.Request{Op: handler.Describe, Key: entryID(1)}) // with a reply or without
	r.call("", &handler.Request{Op: handler.Describe})
}

func tooLarge(r *run) {
	if r.o.TooLarge == nil {
		return
	}
	_, err := r.caller.Call(r.ctx, r.o.TooLarge)
	e, _ := errors.AsType[*handler.Error](err)
	if e == nil || e.Kind != eventstore.ErrTooLarge { // not as a cause of another kind
		r.found("", "wanted an error of the kind %q, found %v", eventstore.ErrTooLarge, errorText(err))
	}
	r.call("", &handler.Request{Op: handler.Describe})
}

func together(r *run) {
	var requests []*handler.Request
	for i := range r.o.Cases {
		if r.result.Description.Can(handler.Decide) && i < 20 {
			q := r.decide(&r.o.Cases[i])
			q.Key = q.ID
			requests = append(requests, q)
		}
	}
	requests = append(requests, &handler.Request{Op: handler.Describe, Key: entryID(1)})
	alone := make([][]byte, len(requests))
	for i, q := range requests {
		alone[i] = r.plain(q)
	}
	var wait sync.WaitGroup
	found := make([][][]byte, r.o.Parallel)
	for n := range r.o.Parallel {
		found[n] = make([][]byte, len(requests))
		wait.Go(func() {
			for i, q := range requests {
				found[n][i] = r.plain(q)
			}
		})
	}
	wait.Wait()
	for n := range found {
		for i := range requests {
			if !bytes.Equal(found[n][i], alone[i]) {
				r.found("", "wanted %s, found %s", alone[i], found[n][i])
				return
			}
		}
	}
}

// plain is what comes of a request, a refusal included, as bytes.
func (r *run) plain(q *handler.Request) []byte {
	reply, err := r.caller.Call(r.ctx, q)
	if err != nil {
		reply = handler.AsReply(q, err)
	}
	return handler.AppendReply(nil, reply)
}
