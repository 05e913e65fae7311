// Message streams that go on: whatever ended one, the next begins where it ended.

package remotelog

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
)

// How a client resumes.
const (
	silentBeats = 3 // heartbeats that do not come make a connection dead
	leastPause  = 50 * time.Millisecond
	mostPause   = 5 * time.Second
)

var (
	errSilent = errors.New("remotelog: nothing came for three heartbeats")
	errStop   = errors.New("remotelog: the caller has enough")
)

// receiver is a message stream as connect has it.
type receiver[M any] interface {
	Receive() bool
	Msg() *M
	Err() error
	Close() error
}

// tail is a message stream that is opened again whenever it ends.
type tail[M any] struct {
	// open begins a stream behind what was received.
	open func(ctx context.Context) (receiver[M], error)
	// opened is called when the first message of a stream is there; it may be nil.
	opened func()
	// wrong is the error of a call as eventstore has it.
	wrong func(error) error
	// silence is how long nothing may come.
	silence time.Duration
	pause   pause
	suspect bool // of the connection: nothing came over it
	// patient tails take no error for final.
	patient bool
}

// each calls f with the messages until ctx ends, f returns an error or the server one that
// will not pass, and returns that.
func (t *tail[M]) each(ctx context.Context, f func(*M) error) error {
	for {
		err := t.once(ctx, f)
		if s, ok := errors.AsType[stopped](err); ok {
			return s.error
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !t.patient && final(err) {
			return err
		}
		if !sleep(ctx, t.pause.next()) {
			return ctx.Err()
		}
	}
}

// stopped is an error of the caller's function.
type stopped struct{ error }

// once receives one stream until it ends.
func (t *tail[M]) once(ctx context.Context, f func(*M) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := t.silence
	if t.suspect { // the first message comes at once
		ctx, silence = onlyOnce(ctx), silence/silentBeats
	}
	watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watchdog.Stop()
	r, err := t.open(ctx)
	if err != nil {
		return t.ended(ctx, err)
	}
	defer r.Close()
	for first := true; r.Receive(); first = false {
		watchdog.Stop() // the caller may take his time
		t.pause.reset()
		t.suspect = false
		if first && t.opened != nil {
			t.opened()
		}
		if err := f(r.Msg()); err != nil {
			return stopped{err}
		}
		watchdog.Reset(t.silence)
	}
	return t.ended(ctx, r.Err())
}

func (t *tail[M]) ended(ctx context.Context, err error) error {
	if t.suspect = context.Cause(ctx) == errSilent; err == nil || t.suspect {
		return nil // a stream ends with an error only; this one was cut
	}
	return t.wrong(err)
}

// onlyOnce has a call's connection serve no call after it. A transport of HTTP/2 that
// sends no pings would go on with a dead one for as long as the kernel does: the call that
// is made like this will fail on it too, but the next one gets another.
func onlyOnce(ctx context.Context) context.Context {
	ctx, call := connect.NewClientContext(ctx)
	call.RequestHeader().Set("Connection", "close")
	return ctx
}

// final says if an error will come again when the stream is resumed.
func final(err error) bool {
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok {
		return errors.Is(err, errors.ErrUnsupported)
	}
	for _, passing := range []error{ErrGoingAway, ErrSlowConsumer, eventstore.ErrUnavailable, eventstore.ErrOverloaded, eventstore.ErrUnknown,
		context.DeadlineExceeded, context.Canceled} {
		if errors.Is(e.Kind, passing) {
			return false
		}
	}
	return true
}

// pause is how long to wait before the next try: longer from one to the next, and left to
// chance, so that those who were cut off together do not come back together.
type pause struct{ last time.Duration }

func (p *pause) next() time.Duration {
	p.last = min(max(2*p.last, leastPause), mostPause)
	return p.last/2 + rand.N(p.last)
}

func (p *pause) reset() { p.last = 0 }
