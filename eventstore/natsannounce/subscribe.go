// Subscribing: one goroutine a subscriber, and an empty hint after a reconnection.

package natsannounce

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/wattle-es/wattle/eventstore"
)

// Subscribe calls f with the hints of the categories (none: all), one at a time,
// until stop is called, which waits for a running f to return. f must not block:
// hints that come meanwhile are dropped beyond 1024. After every connection that
// is made from now on f gets the empty hint, which says to look now, since hints
// may have been lost.
//
// It waits up to a second for the server to know of the subscription. Without a
// connection it succeeds all the same; only a closed one is ErrUnavailable.
func (a *Announcer) Subscribe(ctx context.Context, categories []eventstore.Category, f func(eventstore.Announcement)) (stop func(), err error) {
	if a.mistake != nil {
		return nil, a.mistake
	}
	subjects := []string{a.subject("*", "*")}
	if len(categories) > 0 {
		subjects = subjects[:0]
	}
	for _, c := range categories {
		if _, err := eventstore.ParseCategory(string(c)); err != nil {
			return nil, err
		}
		subjects = append(subjects, a.subject(c, "*"))
	}
	s := &subscriber{a: a, f: f, inbox: make(chan *nats.Msg, maxInbox), done: make(chan struct{})}
	s.connected = a.nc.StatusChanged(nats.CONNECTED)
	for _, subject := range subjects {
		sub, err := a.nc.ChanSubscribe(subject, s.inbox)
		if err != nil {
			s.unsubscribe()
			return nil, &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "subscribe", Err: err}
		}
		s.subs = append(s.subs, sub)
	}
	s.running.Go(s.loop)
	s.flush(ctx)
	return sync.OnceFunc(s.stop), nil
}

type subscriber struct {
	a         *Announcer
	f         func(eventstore.Announcement)
	subs      []*nats.Subscription
	inbox     chan *nats.Msg
	connected chan nats.Status
	done      chan struct{}
	running   sync.WaitGroup
}

func (s *subscriber) loop() {
	connected := s.connected
	for {
		select {
		case <-s.done:
			return
		case m := <-s.inbox:
			if h, ok := s.a.decode(m); ok {
				s.f(h)
			}
		case _, open := <-connected:
			if !open {
				connected = nil
				continue
			}
			s.f(eventstore.Announcement{})
		}
	}
}

// flush lets the server know of the subscription before Subscribe returns. If it
// does not answer, what is lost is a hint.
func (s *subscriber) flush(ctx context.Context) {
	if !s.a.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	_ = s.a.nc.FlushWithContext(ctx)
}

func (s *subscriber) stop() {
	close(s.done)
	s.running.Wait()
	s.unsubscribe()
}

func (s *subscriber) unsubscribe() {
	for _, sub := range s.subs {
		_ = sub.Unsubscribe() // fails on a closed connection only, where nothing is left to end
	}
	s.a.nc.RemoveStatusListener(s.connected)
}
