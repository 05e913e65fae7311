// Watch at the server: announcements, for who reads by pages.

package remotelog

import (
	"context"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// watchHints bounds the announcements of one message.
const watchHints = 256

// watcher keeps the hints for one Watch.
type watcher struct {
	inbox
	ready chan struct{} // holds one: take
}

func (w *watcher) hear(a eventstore.Announcement) {
	w.put(a)
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// watch sends the announcements of the categories until ctx ends, and only returns an
// error. The first message comes at once, and is empty.
func (s *streams) watch(ctx context.Context, categories []eventstore.Category, heartbeat time.Duration, send func([]eventstore.Announcement) error) error {
	const op = "watch"
	leave, err := s.enter(op)
	if err != nil {
		return err
	}
	defer leave()
	out := s.sender(ctx, op)
	defer out.Close()
	w := &watcher{ready: make(chan struct{}, 1)}
	defer s.hub.add(w, categoryKeys(categories)...)()
	unlink, err := s.hub.connect(ctx)
	if err != nil {
		return err
	}
	defer unlink()
	heartbeat = s.beat(heartbeat)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.draining:
			return goingAway(op)
		case <-w.ready:
		case <-timer.C:
		}
		for all := w.take(watchHints); ; all = w.take(watchHints) {
			if err := out.send(ctx, func() error { return send(all) }); err != nil {
				return err
			}
			if len(all) < watchHints {
				break
			}
		}
		timer.Reset(heartbeat)
	}
}
