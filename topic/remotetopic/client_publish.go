// The client: one publication, until its outcome is known.

package remotetopic

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
	"github.com/wattle-es/wattle/topic"
)

// Publish writes a publication; see [topic.Service]. One without an ID gets one. Under this
// ID it is sent again, to one server after the other, while nothing is known of it, or
// nothing was written because no server could be reached, none owned the partition or there
// was no room, until ctx ends. So a server that is killed costs time only. The error is then
// ErrUnknown if one of the tries may have been carried out: publish the same again, under
// the ID that the error's Wanted names if p has none.
func (c *Client) Publish(ctx context.Context, p topic.Publication) (topic.Published, error) {
	if err := c.enter("publish", p.Topic); err != nil {
		return topic.Published{}, err
	}
	defer c.calls.Done()
	inner, cancel := c.within(ctx)
	defer cancel()
	got, err := c.publish(inner, p)
	if errors.Is(context.Cause(inner), eventstore.ErrClosed) && ctx.Err() == nil && !tells(err) {
		err = closedError("publish", p.Topic)
	}
	return got, err
}

// tells says if an error is more than the end of a context.
func tells(err error) bool {
	_, ours := errors.AsType[*eventstore.Error](err)
	return err == nil || ours
}

// publish publishes until the outcome is known or ctx ends.
func (c *Client) publish(ctx context.Context, p topic.Publication) (topic.Published, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.o.Timeout)
		defer cancel()
	}
	if p.ID.IsZero() {
		p.ID = eventstore.NewUUID()
	}
	r := resend{op: "publish", id: p.ID.String(), topic: p.Topic}
	m := fromPublication(p)
	for n := 0; ; {
		owner := c.direct.of(c, p)
		t, i := c.pick(n)
		if owner != nil {
			t = owner
		}
		got, told, err := c.publishAt(ctx, t, m)
		if err == nil && owner == nil {
			c.current.Store(i)
			c.direct.note(p, told)
		}
		if end, err := r.done(ctx, err); end {
			return got, err
		}
		told, _ = topic.Owner(err)
		c.direct.note(p, told)
		if owner != nil {
			continue // the others know better
		}
		full := errors.Is(err, eventstore.ErrOverloaded) // the others could only forward to it
		if !full {
			n++
		}
		if full || n%len(c.servers) == 0 { // all were asked
			if err := r.wait(ctx); err != nil {
				return topic.Published{}, err
			}
		}
	}
}

// publishAt publishes at one server once. It also returns the owner that the answer names.
func (c *Client) publishAt(ctx context.Context, t *target, m *wattlev1.PublishRequest) (got topic.Published, owner string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.TryTimeout)
	defer cancel()
	inner := ctx
	if t.suspect.Swap(false) {
		inner = onlyOnce(ctx)
	}
	inner, info := connect.NewClientContext(inner)
	a := wire.Act{Op: "publish", Category: eventstore.Category(m.GetTopic()), Writes: true}
	answer, err := wire.Call(inner, t.caller, a, m, t.service.Publish)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.suspect.Store(true)
		}
		return got, "", err
	}
	got, err = read(answer, func(r *reader, answer *wattlev1.PublishResponse) topic.Published {
		return r.published(answer, len(m.GetEvents()))
	})
	if err != nil {
		return got, "", t.caller.Misfit(a, err)
	}
	if h := info.ResponseHeader(); h != nil {
		owner = h.Get(ownerHeader)
	}
	return got, owner, nil
}

// peer is a client that publishes once.
type peer struct{ c *Client }

// NewPeer returns a client of the server at an address, for Forward of ServiceOptions. Of
// the options Transport, JSON, Gzip, Token and Options count.
func NewPeer(address string, o *Options) (Peer, error) {
	c, err := newClient([]string{address}, o)
	if err != nil {
		return nil, err
	}
	c.header.Set(forwardedHeader, "1")
	return peer{c}, nil
}

func (p peer) Publish(ctx context.Context, q topic.Publication) (topic.Published, error) {
	if err := p.c.enter("publish", q.Topic); err != nil {
		return topic.Published{}, err
	}
	defer p.c.calls.Done()
	got, _, err := p.c.publishAt(ctx, p.c.servers[0], fromPublication(q))
	return got, err
}

func (p peer) Close() error { return p.c.Close() }

// hints are the owners of partitions as servers have told them: those of the keys of a
// slot, since these are in one partition. A wrong one costs a hop.
type hints struct {
	mu      sync.Mutex
	owners  map[slotOf]string
	targets map[string]*target
}

type slotOf struct {
	topic eventstore.Category
	slot  eventstore.Slot
}

// Bounds of hints: beyond them all are forgotten.
const (
	maxHints   = 64 * eventstore.Slots
	maxTargets = maxPeers
)

func hintOf(p topic.Publication) slotOf {
	key := p.Key
	if key == "" {
		key = string(p.ID[:])
	}
	return slotOf{p.Topic, eventstore.Stream("topic-" + key).Slot()}
}

// of returns the owner to go straight to; nil: none that is known.
func (h *hints) of(c *Client, p topic.Publication) *target {
	h.mu.Lock()
	defer h.mu.Unlock()
	address := h.owners[hintOf(p)]
	switch {
	case address == "":
		return nil
	case c.o.Direct == nil:
		return c.given(address)
	}
	if t := h.targets[address]; t != nil {
		return t
	}
	if u, err := url.Parse(address); err != nil || u.Host == "" || !c.o.Direct(address) {
		return nil
	}
	t, err := c.target(address)
	if err != nil {
		return nil
	}
	if len(h.targets) >= maxTargets || h.targets == nil {
		h.targets = map[string]*target{}
	}
	h.targets[address] = t
	return t
}

// given returns the server at an address that is one of the URLs of Open; nil: none is.
func (c *Client) given(address string) *target {
	for _, t := range c.servers {
		if strings.TrimSuffix(t.url, "/") == strings.TrimSuffix(address, "/") {
			return t
		}
	}
	return nil
}

// note takes what a server told; "" forgets.
func (h *hints) note(p topic.Publication, address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if address == "" || len(address) > topic.MaxAddressBytes {
		delete(h.owners, hintOf(p))
		return
	}
	if h.owners == nil || len(h.owners) >= maxHints {
		h.owners = map[slotOf]string{}
	}
	h.owners[hintOf(p)] = address
}
