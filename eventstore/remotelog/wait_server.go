// Wait at the server: until the feed, or a projector, has passed a token.

package remotelog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// wait returns nil when a projector, or with an empty name the feed, has passed a token.
// It waits no longer than timeout, which 0 makes DefaultWaitTimeout and nothing more than
// MaxWaitTimeout: then the kind of the error is context.DeadlineExceeded.
func (s *streams) wait(ctx context.Context, projector string, t eventstore.Token, timeout time.Duration) error {
	const op = "wait"
	if timeout <= 0 {
		timeout = DefaultWaitTimeout
	}
	timeout = min(timeout, MaxWaitTimeout)
	if t.Position == 0 {
		return nil
	}
	leave, err := s.enter(op)
	if err != nil {
		return err
	}
	defer leave()
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if projector == "" {
		err = s.waitFeed(bounded, t)
	} else {
		err = s.waitProjector(bounded, projector, t)
	}
	if err == nil || bounded.Err() == nil || ctx.Err() != nil || isKind(err, eventstore.ErrParked) {
		return err
	}
	late := &eventstore.Error{Kind: context.DeadlineExceeded, Op: op, Wanted: fmt.Sprintf("position %v passed within %v", t.Position, timeout),
		Found: lateness(err), Hint: "wait again"}
	if projector != "" {
		late.Wanted = fmt.Sprintf("projector %q to have passed position %v within %v", projector, t.Position, timeout)
	}
	return late
}

// lateness is what an error that came of the time being up says about the lag.
func lateness(err error) string {
	if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Found != "" {
		return e.Found
	}
	if errors.Is(err, context.DeadlineExceeded) {
		if text := err.Error(); text != context.DeadlineExceeded.Error() {
			return text
		}
	}
	return "it was not passed yet"
}

func (s *streams) waitProjector(ctx context.Context, projector string, t eventstore.Token) error {
	if s.o.Waiter == nil {
		return &eventstore.Error{Kind: ErrNoSuchProjector, Op: "wait", Wanted: fmt.Sprintf("projector %q", projector),
			Found: "a server that knows of no projectors", Hint: "wait for the feed, without a projector"}
	}
	return s.o.Waiter(ctx, projector, t)
}

// waitFeed waits for the horizon of the backend that the token is of.
func (s *streams) waitFeed(ctx context.Context, t eventstore.Token) error {
	e := newEar(true)
	e.passed(0, t.Position-1)
	defer s.hub.add(e, "")()
	if unlink, err := s.hub.connect(ctx); err == nil { // without it looking again tells
		defer unlink()
	}
	for pause := minRelook; ; pause = min(2*pause, s.o.PollInterval) {
		passed, horizon, err := s.passed(ctx, t)
		if err != nil || passed {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-s.draining:
			err = goingAway("wait")
		case <-e.ready:
		case <-timer.C:
		}
		timer.Stop()
		if errors.Is(err, context.DeadlineExceeded) {
			return &eventstore.Error{Kind: context.DeadlineExceeded, Op: "wait", Found: "horizon " + horizon.String()}
		}
		if err != nil {
			return err
		}
	}
}

// passed says if the horizon of the token's backend has come to it.
func (s *streams) passed(ctx context.Context, t eventstore.Token) (passed bool, horizon eventstore.Position, err error) {
	backends := s.store.Backends()
	found := make([]eventstore.UUID, 0, len(backends))
	var down error
	for _, b := range backends {
		page, err := b.Log.ReadFeed(ctx, t.Position-1, eventstore.Filter{AcceptTrimmed: true}, 1)
		if err != nil {
			down = err
			continue
		}
		if found = append(found, page.Incarnation); page.Incarnation != t.Incarnation {
			continue
		}
		if page.Drawn < t.Position {
			return false, page.Horizon, foreignToken("a store that has come to position "+t.Position.String(), "one that has come to "+page.Drawn.String())
		}
		return page.Horizon >= t.Position, page.Horizon, nil
	}
	if down != nil {
		return false, 0, down
	}
	return false, 0, foreignToken("a token of incarnation "+t.Incarnation.String(), fmt.Sprintf("incarnation %v", found))
}

func foreignToken(wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrDiverged, Op: "wait", Wanted: wanted, Found: found,
		Hint: "the token is of another store, or of this one before it was restored"}
}
