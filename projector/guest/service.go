// CatchUpService: a projector as a service that is called, for functions that scale to
// zero and for cron.

package guest

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
)

// CatchUpper is a projector.Projector or projector.Versioned.
type CatchUpper interface {
	CatchUp(ctx context.Context, budget time.Duration) (more bool, err error)
}

// CatchUpService returns a handler that has a projector catch up when it is asked to, by
// the operation handler.CatchUp with Request.Projector name, for at most budget and until
// the request's deadline; 0: no budget of its own. Reply.More says that something was
// left: ask again. A hint that is lost is no harm if somebody asks now and then.
//
// Calls may overlap, also in different processes and with a Run: one that is overtaken
// answers More, since others do the work. Request.ProjectorVersion is 0, or that of a
// projector whose Key tells it. A failure is handler.ErrFailed: ask again.
func CatchUpService(name string, p CatchUpper, budget time.Duration) handler.Handler {
	return &service{name, p, budget}
}

type service struct {
	name   string
	p      CatchUpper
	budget time.Duration
}

func (s *service) Handle(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
	switch r.Op {
	case handler.Describe:
		return &handler.Reply{Key: r.Key, Description: &handler.Description{Name: s.name, Capabilities: []string{string(handler.CatchUp)}}}, nil
	case handler.CatchUp:
		if err := s.meant(r); err != nil {
			return nil, err
		}
		return s.catchUp(ctx, r)
	}
	return nil, handler.Unsupported(r, handler.Describe, handler.CatchUp)
}

// meant refuses a request for another projector.
func (s *service) meant(r *handler.Request) error {
	if r.Projector != s.name {
		return &handler.Error{Kind: handler.ErrBadRequest, Op: r.Op, Target: s.name, Wanted: "projector " + s.name, Found: "projector " + r.Projector}
	}
	k, ok := s.p.(interface{ Key() projector.Key })
	if !ok || r.ProjectorVersion == 0 || k.Key().Version == r.ProjectorVersion {
		return nil
	}
	return &handler.Error{Kind: handler.ErrBadRequest, Op: r.Op, Target: s.name, Wanted: "version " + strconv.Itoa(k.Key().Version), Found: "version " + strconv.Itoa(r.ProjectorVersion)}
}

func (s *service) catchUp(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
	if !r.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.Deadline)
		defer cancel()
	}
	more, err := s.p.CatchUp(ctx, s.budget)
	switch {
	case err == nil:
		return &handler.Reply{Key: r.Key, More: more}, nil
	case overtaken(err):
		return &handler.Reply{Key: r.Key, More: true}, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, &handler.Error{Kind: handler.ErrFailed, Op: r.Op, Target: s.name, Err: err}
}

// overtaken says if others have taken all that was not done.
func overtaken(err error) bool {
	switch e := err.(type) {
	case *eventstore.Error:
		return e.Kind == eventstore.ErrFenced
	case *projector.EntryError: // a fence of somebody else's
		return false
	case interface{ Unwrap() []error }: // of several lanes, parts or versions
		for _, one := range e.Unwrap() {
			if !overtaken(one) {
				return false
			}
		}
		return true
	}
	return errors.Is(err, eventstore.ErrFenced)
}
