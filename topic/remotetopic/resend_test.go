// What is said of a publication after several tries.

package remotetopic

import (
	"context"
	"errors"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/topic"
)

func kindOf(kind error) error { return &eventstore.Error{Kind: kind, Op: "publish"} }

// After a try that may have written it, only proof ends it as something else than unknown.
func TestOutcomeOfSeveralTries(t *testing.T) {
	unprovable := &eventstore.Error{Kind: eventstore.ErrUnknown, Unprovable: true}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for i, x := range []struct {
		ctx   context.Context
		tries []error
		done  bool
		kind  error // of the outcome; nil: none
	}{
		{nil, []error{nil}, true, nil},
		{nil, []error{kindOf(topic.ErrNotOwner)}, false, nil},
		{nil, []error{kindOf(eventstore.ErrUnknown)}, false, nil},
		{nil, []error{kindOf(eventstore.ErrUnavailable), kindOf(eventstore.ErrOverloaded), kindOf(remotelog.ErrGoingAway), context.DeadlineExceeded}, false, nil},
		{nil, []error{kindOf(eventstore.ErrInvalid)}, true, eventstore.ErrInvalid},
		{nil, []error{kindOf(topic.ErrNotOwner), kindOf(topic.ErrNoSuchTopic)}, true, topic.ErrNoSuchTopic},
		{nil, []error{kindOf(eventstore.ErrUnknown), nil}, true, nil},
		{nil, []error{kindOf(eventstore.ErrUnknown), unprovable}, true, eventstore.ErrUnknown},
		{nil, []error{kindOf(eventstore.ErrUnknown), kindOf(eventstore.ErrBatchIDReused)}, true, eventstore.ErrBatchIDReused},
		{nil, []error{kindOf(eventstore.ErrUnknown), kindOf(remotelog.ErrDenied)}, true, eventstore.ErrUnknown},
		{nil, []error{kindOf(eventstore.ErrUnknown), kindOf(topic.ErrNoSuchTopic)}, true, eventstore.ErrUnknown},
		{nil, []error{kindOf(eventstore.ErrUnknown), kindOf(eventstore.ErrOverloaded)}, false, nil},
		{over, []error{kindOf(topic.ErrNotOwner)}, true, topic.ErrNotOwner},
		{over, []error{context.Canceled}, true, context.Canceled},
		{over, []error{kindOf(eventstore.ErrUnknown)}, true, eventstore.ErrUnknown},
	} {
		if x.ctx == nil {
			x.ctx = context.Background()
		}
		r := resend{op: "publish", id: "the ID"}
		var done bool
		var err error
		for _, try := range x.tries {
			done, err = r.done(x.ctx, try)
		}
		if done != x.done || x.kind == nil && done && err != nil || x.kind != nil && !errors.Is(err, x.kind) {
			t.Errorf("%d: %v, %v, want %v, %v", i, done, err, x.done, x.kind)
		}
		if e, ours := errors.AsType[*eventstore.Error](err); ours && x.kind == eventstore.ErrUnknown && e.Unprovable != (x.tries[len(x.tries)-1] == error(unprovable)) {
			t.Errorf("%d: %+v", i, e)
		}
	}
}

// What ends a stream is the outcome of the oldest publication only if it is about that.
func TestStreamEndsWith(t *testing.T) {
	for kind, left := range map[error]int{remotelog.ErrSlowConsumer: 3, remotelog.ErrGoingAway: 3, eventstore.ErrUnavailable: 3, eventstore.ErrInvalid: 2, topic.ErrNoSuchTopic: 2} {
		p := &Publisher{ctx: t.Context(), sent: 2}
		p.changed.L = &p.mu
		for range 3 {
			x, err := newSending(publication("orders", "k", 1))
			ok(t, err)
			p.waiting = append(p.waiting, x)
		}
		first := p.waiting[0]
		if p.settle(kindOf(kind)); len(p.waiting) != left || left == 2 && !errors.Is(first.err, kind) {
			t.Errorf("%v: %d of 3 are sent again, the first one came to %v", kind, len(p.waiting), first.err)
		}
		if last := p.waiting[left-1]; last.tries.unknown != nil || p.waiting[0].tries.unknown == nil {
			t.Errorf("%v: what was sent may have been carried out, what was not is not", kind)
		}
	}
}
