// Sending a publication until its outcome is known. The client does it, and the server
// that forwards.

package remotetopic

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/topic"
)

// outcome is what an error of one try says of it.
type outcome int

const (
	settled outcome = iota // it will be the same if tried again
	absent                 // nothing was written: try again
	unknown                // it may be there: try the same again
)

func outcomeOf(err error) outcome {
	e, ours := errors.AsType[*eventstore.Error](err)
	switch {
	case ours && errors.Is(e.Kind, eventstore.ErrUnknown):
		if e.Unprovable {
			return settled
		}
		return unknown
	case ours:
		for _, kind := range []error{topic.ErrNotOwner, eventstore.ErrUnavailable, eventstore.ErrOverloaded, remotelog.ErrGoingAway} {
			if errors.Is(e.Kind, kind) {
				return absent
			}
		}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return absent // of the try
	}
	return settled
}

// proves says that an error is the outcome also of the tries before it.
func proves(err error) bool {
	e, ok := errors.AsType[*eventstore.Error](err)
	return ok && (errors.Is(e.Kind, eventstore.ErrBatchIDReused) || errors.Is(e.Kind, eventstore.ErrUnknown) && e.Unprovable)
}

// resend is one publication that is tried until its outcome is known.
type resend struct {
	op, id  string
	topic   eventstore.Category
	unknown error // of a try that may have written it
	last    error
	pause   pause
}

// done says if err, of a try, is the end of it, and what the caller gets then. Nothing
// that is said of a later try tells that an earlier one, which may still be on its way,
// has written nothing.
func (r *resend) done(ctx context.Context, err error) (bool, error) {
	if err == nil || proves(err) {
		return true, err
	}
	r.last = err
	switch outcomeOf(err) {
	case unknown:
		r.unknown = err
	case settled:
		return true, r.verdict(err)
	}
	if ctx.Err() != nil {
		return true, r.verdict(err)
	}
	return false, nil
}

// wait waits before the next try; its error is the outcome.
func (r *resend) wait(ctx context.Context) error {
	if sleep(ctx, r.pause.next()) {
		return nil
	}
	return r.verdict(r.last)
}

// verdict is the error of a publication that is given up for err.
func (r *resend) verdict(err error) error {
	if r.unknown == nil {
		return err
	}
	return &eventstore.Error{Kind: eventstore.ErrUnknown, Op: r.op, Category: r.topic, Wanted: "the outcome of publication " + r.id,
		Found: "a try whose answer was lost", Hint: "publish the same again", Err: err}
}

// pause is how long to wait before the next try: longer from one to the next, and left to
// chance, so that those who were cut off together do not come back together.
type pause struct{ last time.Duration }

const (
	leastPause = 20 * time.Millisecond
	mostPause  = time.Second
)

func (p *pause) next() time.Duration {
	p.last = min(max(2*p.last, leastPause), mostPause)
	return p.last/2 + rand.N(p.last)
}

func (p *pause) reset() { p.last = 0 }

// sleep waits, or says that ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
