// Announcements at the client: one Watch for all who subscribe.

package remotelog

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
)

// watching is the Announcer of a Log: it keeps one Watch open while there are subscribers,
// for the categories they ask for.
type watching struct {
	open      func(context.Context, *wattlev1.WatchRequest) (receiver[wattlev1.WatchResponse], error)
	wrong     func(error) error
	heartbeat time.Duration
	local     *Hub

	mu     sync.Mutex
	closed bool
	wanted map[eventstore.Category]int // by how many; "": all
	change chan struct{}               // of the goroutine there is; holds one: wanted is not what it was
	stop   context.CancelFunc
	done   chan struct{}
}

// Announce does nothing: the server announces what it appends.
func (w *watching) Announce(context.Context, []eventstore.Announcement) error { return nil }

// Subscribe calls f with the hints of the categories (none: all), one at a time, until
// stop is called, which waits for a running f to return. f gets the empty hint after each
// connection that is made, the first among them. Without a connection it succeeds all the
// same, and goes on trying.
func (w *watching) Subscribe(ctx context.Context, categories []eventstore.Category, f func(eventstore.Announcement)) (stop func(), err error) {
	if err := checkWatched(categories); err != nil {
		return nil, err
	}
	end, err := w.local.Subscribe(ctx, categories, f)
	if err != nil {
		return nil, err
	}
	keys := slices.Clone(categories)
	if len(keys) == 0 {
		keys = []eventstore.Category{""}
	}
	if err := w.want(keys); err != nil {
		end()
		return nil, err
	}
	return sync.OnceFunc(func() {
		end()
		w.unwant(keys)
	}), nil
}

func (w *watching) want(keys []eventstore.Category) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return &eventstore.Error{Kind: eventstore.ErrClosed, Op: "subscribe"}
	}
	more := len(w.wanted) == 0
	for _, c := range keys {
		more = more || w.wanted[c] == 0
		w.wanted[c]++
	}
	switch {
	case w.stop == nil:
		ctx, cancel := context.WithCancel(context.Background())
		w.stop, w.done, w.change = cancel, make(chan struct{}), make(chan struct{}, 1)
		go w.run(ctx, w.change, w.done)
	case more:
		select {
		case w.change <- struct{}{}:
		default:
		}
	}
	return nil
}

func (w *watching) unwant(keys []eventstore.Category) {
	w.mu.Lock()
	for _, c := range keys {
		if w.wanted[c]--; w.wanted[c] <= 0 {
			delete(w.wanted, c)
		}
	}
	var done chan struct{}
	if len(w.wanted) == 0 {
		done = w.end()
	}
	w.mu.Unlock()
	if done != nil {
		<-done
	}
}

// end has the goroutine return, under the mutex.
func (w *watching) end() (done chan struct{}) {
	if w.stop != nil {
		w.stop()
		done = w.done
		w.stop = nil
	}
	return done
}

// close ends everything.
func (w *watching) close() {
	w.mu.Lock()
	w.closed = true
	done := w.end()
	w.mu.Unlock()
	if done != nil {
		<-done
	}
}

// run keeps a Watch open, and begins another one when more is wanted.
func (w *watching) run(ctx context.Context, change, done chan struct{}) {
	defer close(done)
	for ctx.Err() == nil {
		inner, cancel := context.WithCancel(ctx)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			select {
			case <-change:
				cancel()
			case <-inner.Done():
			}
		}()
		w.watch(inner)
		cancel()
		<-watched
	}
}

func (w *watching) watch(ctx context.Context) {
	t := tail[wattlev1.WatchResponse]{wrong: w.wrong, silence: silentBeats * w.heartbeat, patient: true, opened: w.local.lost}
	t.open = func(ctx context.Context) (receiver[wattlev1.WatchResponse], error) { return w.open(ctx, w.request()) }
	_ = t.each(ctx, func(m *wattlev1.WatchResponse) error { // ctx has ended
		for _, a := range m.GetAnnouncements() {
			if hint, err := wire.ToAnnouncement(a); err == nil {
				w.local.announce(hint)
			}
		}
		return nil
	})
}

func (w *watching) request() *wattlev1.WatchRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &wattlev1.WatchRequest{Heartbeat: durationpb.New(w.heartbeat)}
	if w.wanted[""] == 0 && len(w.wanted) <= eventstore.MaxFilterNames {
		for c := range w.wanted {
			m.Categories = append(m.Categories, string(c))
		}
	}
	return m
}
