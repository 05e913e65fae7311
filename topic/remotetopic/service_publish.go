// The service: a publication, here or at the owner of its partition.

package remotetopic

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/topic"
)

// Headers beside those of Connect.
const (
	// forwardedHeader is in the request of a server: it is not to be forwarded again.
	forwardedHeader = "Wattle-Forwarded"
	// ownerHeader is in the answer to a publication that was forwarded: where to. It is
	// the address of the owner, for who can go there straight.
	ownerHeader = "Wattle-Owner"
)

// Publish implements the service.
func (s *Service) Publish(ctx context.Context, m *wattlev1.PublishRequest) (*wattlev1.PublishResponse, error) {
	const op = "publish"
	p, err := read(m, (*reader).publication)
	if err != nil {
		return nil, s.fail(ctx, op, m.GetTopic(), err)
	}
	answer, forwarded := headers(ctx)
	got, owner, err := s.publish(ctx, ctx, p, forwarded)
	if err != nil {
		return nil, s.fail(ctx, op, m.GetTopic(), err)
	}
	if owner != "" && answer != nil {
		answer.Set(ownerHeader, owner)
	}
	return fromPublished(got), nil
}

// headers are those of the answer, and if the request was forwarded.
func headers(ctx context.Context) (answer http.Header, forwarded bool) {
	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return nil, false
	}
	return info.ResponseHeader(), info.RequestHeader().Get(forwardedHeader) != ""
}

// publish publishes here, or at the owner, whom it then names. While the owner is another
// one from one moment to the next, or cannot be reached, it tries again, the same under the
// same ID, until ctx ends. It does not wait to do so when caller has ended: nobody would
// have the answer.
func (s *Service) publish(ctx, caller context.Context, p topic.Publication, forwarded bool) (got topic.Published, owner string, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if forwarded || s.peers.dial == nil {
		got, err = s.topics.Publish(ctx, p)
		return got, "", err
	}
	if p.ID.IsZero() {
		p.ID = eventstore.NewUUID() // whoever gets it is to know it again
	}
	r := resend{op: "publish", id: p.ID.String(), topic: p.Topic}
	for {
		var local bool
		got, owner, local, err = s.try(ctx, p)
		if end, err := r.done(ctx, err); end {
			return got, owner, err
		}
		if r.unknown == nil && (errors.Is(err, eventstore.ErrOverloaded) || local && errors.Is(err, eventstore.ErrUnavailable)) {
			return got, "", err // nothing was written, and the caller is to know
		}
		if !sleep(caller, r.pause.next()) {
			return got, "", r.verdict(r.last)
		}
	}
}

func (s *Service) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.o.PublishTimeout)
}

// try publishes once, here or at the owner.
func (s *Service) try(ctx context.Context, p topic.Publication) (got topic.Published, owner string, local bool, err error) {
	got, err = s.topics.Publish(ctx, p)
	owner, other := topic.Owner(err)
	if !other {
		return got, "", !errors.Is(err, topic.ErrNotOwner), err
	}
	peer, done, err := s.peers.use(owner)
	if err != nil {
		return got, "", false, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, s.o.ForwardTimeout)
	defer cancel()
	got, err = peer.Publish(ctx, p)
	return got, owner, false, err
}
