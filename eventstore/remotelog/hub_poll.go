// The backstop of followers: one look at each category that is followed, however many
// follow it. It finds what was not announced.

package remotelog

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

const (
	pollHeads  = 64 // streams whose heads are asked for; where more are followed, the feed is read
	pollPages  = 8  // pages of one look; where more is behind them, everybody is woken
	pollErrors = 16 // times the interval: the longest pause after errors
)

// poller looks at what is followed. Its methods may be called from several goroutines.
type poller struct {
	store *eventstore.Store
	hub   *Hub
	every time.Duration

	mu     sync.Mutex
	groups map[eventstore.Category]*pollGroup // "": the whole feed
	wg     sync.WaitGroup
}

// pollGroup is what is followed in one category. A goroutine belongs to it while there is
// anybody in it.
type pollGroup struct {
	p       *poller
	of      eventstore.Category
	users   int
	streams map[eventstore.Stream]int // followed, by how many
	stop    context.CancelFunc

	// The goroutine's own.
	at        eventstore.Position
	began     bool
	dedicated bool
	heads     map[eventstore.Stream]eventstore.Mark // of a dedicated category
}

// join has the categories (none: the whole feed) looked at until leave is called; of a
// follower of one stream, with its name.
func (p *poller) join(stream eventstore.Stream, categories ...eventstore.Category) (leave func()) {
	if len(categories) == 0 {
		categories = []eventstore.Category{""}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range categories {
		p.enter(c, stream)
	}
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range categories {
			p.exit(c, stream)
		}
	})
}

func (p *poller) enter(c eventstore.Category, stream eventstore.Stream) {
	g := p.groups[c]
	if g == nil {
		ctx, stop := context.WithCancel(context.Background())
		g = &pollGroup{p: p, of: c, streams: map[eventstore.Stream]int{}, stop: stop, heads: map[eventstore.Stream]eventstore.Mark{}}
		p.groups[c] = g
		p.wg.Go(func() { g.run(ctx) })
	}
	g.users++
	if stream != "" {
		g.streams[stream]++
	}
}

func (p *poller) exit(c eventstore.Category, stream eventstore.Stream) {
	g := p.groups[c]
	if g.streams[stream]--; g.streams[stream] <= 0 {
		delete(g.streams, stream)
	}
	if g.users--; g.users == 0 {
		g.stop()
		delete(p.groups, c)
	}
}

// wait returns when nobody is looked out for any more.
func (p *poller) wait() { p.wg.Wait() }

func (g *pollGroup) run(ctx context.Context) {
	pause := g.p.every
	for {
		err := g.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			pause = g.p.every
		} else {
			g.wakeAll() // each learns by itself what is the matter
			pause = min(2*pause, pollErrors*g.p.every)
		}
		if !sleep(ctx, pause/2+rand.N(pause)) {
			return
		}
	}
}

// look wakes whoever has something to read.
func (g *pollGroup) look(ctx context.Context) error {
	if g.dedicated {
		return g.lookAtHeads(ctx)
	}
	err := g.lookAtFeed(ctx)
	switch {
	case g.of == "" && errors.Is(err, eventstore.ErrCrossBackend):
		return nil // there is no feed of all of it, so nobody follows it
	case g.of != "" && errors.Is(err, eventstore.ErrInvalid):
		g.dedicated = true
		return g.lookAtHeads(ctx)
	}
	return err
}

// lookAtFeed asks for one entry behind what was there the last time. If there is any, those
// who follow the feed are woken as far as they are behind, and the streams are looked at.
func (g *pollGroup) lookAtFeed(ctx context.Context) error {
	f := eventstore.Filter{AcceptTrimmed: true}
	if g.of != "" {
		f.Categories = []eventstore.Category{g.of}
	}
	page, err := g.p.store.ReadFeed(ctx, g.at, f, 1)
	if err != nil {
		return err
	}
	from, to := g.at, min(page.Horizon, page.Drawn)
	switch {
	case !g.began, page.Drawn < from:
		g.began, g.at = true, to
		g.wakeAll()
		return nil
	case page.Through.Position == 0:
		g.at = max(from, to)
		return nil
	}
	g.p.hub.wake(eventstore.Announcement{Category: g.of, Position: max(to, page.Through.Position)}, string(g.of))
	switch followed := g.followed(); {
	case len(followed) > pollHeads:
		err = g.readFeed(ctx, f, to)
	case len(followed) > 0:
		err = g.lookAtHeads(ctx)
	}
	if err == nil {
		g.at = max(from, to)
	}
	return err
}

// readFeed wakes those whose streams have entries behind what was there the last time.
func (g *pollGroup) readFeed(ctx context.Context, f eventstore.Filter, to eventstore.Position) error {
	at := g.at
	for range pollPages {
		page, err := g.p.store.ReadFeed(ctx, at, f, eventstore.DefaultPageEntries)
		if err != nil {
			return err
		}
		for i := range page.Entries {
			g.found(&page.Entries[i])
		}
		if at = page.Through.Position; page.End || at == 0 || at >= to {
			return nil
		}
	}
	g.wakeAll()
	return nil
}

func (g *pollGroup) found(e *eventstore.Entry) {
	a := eventstore.Announcement{Category: e.Stream.Category(), Slot: e.Stream.Slot(), Stream: e.Stream, Seqno: e.Seqno, Position: e.Position}
	g.p.hub.wake(a, string(e.Stream))
}

// lookAtHeads looks at each stream that is followed: they are few, or of a dedicated
// category, which has no feed.
func (g *pollGroup) lookAtHeads(ctx context.Context) error {
	followed := g.followed()
	for s := range g.heads {
		if !followed[s] {
			delete(g.heads, s)
		}
	}
	for s := range followed {
		h, err := g.p.store.Head(ctx, s)
		if err != nil {
			g.p.hub.wake(eventstore.Announcement{}, string(s))
			if errors.Is(err, eventstore.ErrNoSuchStream) {
				continue
			}
			return err
		}
		switch old, known := g.heads[s]; {
		case known && old == h.Last:
			continue
		case !known, h.Last.Seqno <= old.Seqno:
			g.p.hub.wake(eventstore.Announcement{}, string(s))
		default:
			g.p.hub.wake(eventstore.Announcement{Category: g.of, Stream: s, Seqno: h.Last.Seqno}, string(s))
		}
		g.heads[s] = h.Last
	}
	return nil
}

func (g *pollGroup) followed() map[eventstore.Stream]bool {
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	all := make(map[eventstore.Stream]bool, len(g.streams))
	for s := range g.streams {
		all[s] = true
	}
	return all
}

// wakeAll wakes all followers of the group.
func (g *pollGroup) wakeAll() {
	g.p.hub.wake(eventstore.Announcement{}, string(g.of), streamsOf(g.of))
}

// sleep says if the time has passed before ctx ended.
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
