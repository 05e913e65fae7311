// The puller: one reader of the feed for all lanes that a worker has.

package projector

import (
	"context"
	"sync"
	"time"
)

// puller reads the feed for the lanes that are attached to it. Lanes that have come
// about as far are read together, in one query; one that lags behind (it was acquired
// just now, or its handler failed for a while) is read by itself until it has caught up
// with others. A lane whose box is full is not read for, so a slow lane holds up nobody.
type puller struct {
	p    *Projector
	wake chan struct{} // holds at most one

	mu     sync.Mutex
	boxes  map[int]*box
	prompt bool          // look now, whenever the last look was
	eager  time.Duration // pause before the next look for what was hinted at; 0: nothing was
}

// box is what was read for a lane and not taken yet.
type box struct {
	pl     *puller
	ready  chan struct{} // holds at most one: something is in it
	cursor cursor        // behind what was put in
	l      look          // of what was put in
	news   bool          // l was not taken
	err    error
	end    bool // nothing stood behind cursor
	looked time.Time
	taking bool // the lane waits
}

func (p *Projector) newPuller() *puller {
	return &puller{p: p, wake: make(chan struct{}, 1), boxes: map[int]*box{}}
}

// attach has a lane read from a cursor on.
func (pl *puller) attach(c cursor) *box {
	b := &box{pl: pl, ready: make(chan struct{}, 1), cursor: c}
	pl.mu.Lock()
	pl.boxes[c.lane] = b
	pl.mu.Unlock()
	pl.nudge()
	return b
}

func (pl *puller) detach(b *box) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.boxes[b.cursor.lane] == b {
		delete(pl.boxes, b.cursor.lane)
	}
}

// look has the feed read without waiting for the poll.
func (pl *puller) look() {
	pl.mu.Lock()
	pl.prompt = true
	pl.mu.Unlock()
	pl.nudge()
}

func (pl *puller) nudge() { signal(pl.wake) }

// run reads until ctx ends.
func (pl *puller) run(ctx context.Context) {
	ear := &ear{p: pl.p, pl: pl}
	defer ear.close()
	failures := 0
	for ctx.Err() == nil {
		ear.listen(ctx)
		due, pause := pl.due()
		if len(due) == 0 {
			if failures > 0 && !pl.wanted() { // whom it failed for has been left
				pl.p.stuckOn(nil)
				failures = 0
			}
			pl.wait(ctx, pause)
			continue
		}
		err := pl.read(ctx, due)
		if err == nil {
			failures = 0
			continue
		}
		pl.p.stuckOn(err)
		pause = backoff(failures)
		if ctx.Err() == nil {
			pl.p.logger.WarnContext(ctx, "projector cannot read; trying again", "pause", pause, "error", err)
		}
		_ = sleep(ctx, pause)
		failures++
	}
}

// wait waits for a nudge, or until it is time to look anyhow.
func (pl *puller) wait(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-pl.wake:
	}
}

// due returns the boxes to read for now, or how long nothing is to be read.
func (pl *puller) due() (due []*box, pause time.Duration) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	now, poll := time.Now(), pl.pollInterval()
	pause = pl.p.o.PollInterval
	var leader *box
	for _, b := range pl.boxes {
		if !b.open() {
			continue
		}
		if b.end {
			if wait := poll - now.Sub(b.looked); wait > 0 {
				pause = min(pause, wait)
				continue
			}
		}
		if leader == nil || b.looked.Before(leader.looked) {
			leader = b
		}
	}
	if leader == nil {
		return nil, pause
	}
	pl.prompt = false
	return pl.near(leader), 0
}

// pollInterval is how long after a look that came to the end the next one is due.
func (pl *puller) pollInterval() time.Duration {
	switch {
	case pl.prompt:
		return minLook // a flood of hints is no flood of queries
	case pl.eager > 0:
		return min(pl.eager, pl.p.o.PollInterval)
	}
	return pl.p.o.PollInterval
}

// near returns the boxes that are read together with one.
func (pl *puller) near(leader *box) []*box {
	at := func(b *box) uint64 { return pl.p.source.place(b.cursor.at) }
	reach := uint64(nearPages * pl.p.o.PageSize)
	due := []*box{leader}
	for _, b := range pl.boxes {
		if b != leader && b.open() && b.cursor.lanes == leader.cursor.lanes && at(b) < at(leader)+reach && at(leader) < at(b)+reach {
			due = append(due, b)
		}
	}
	return due
}

// open says if there is room in a box, and something to be read for it.
func (b *box) open() bool {
	return b.err == nil && len(b.l.entries) < b.pl.p.o.PageSize && b.pl.p.beneath(b.cursor)
}

// wanted says if something is to be read for some lane, now or later.
func (pl *puller) wanted() bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	for _, b := range pl.boxes {
		if b.open() {
			return true
		}
	}
	return false
}

// still says if there is nothing to read for any lane, because each is a shadow's that has
// come to where the live version was when that was last looked at.
func (pl *puller) still() bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	for _, b := range pl.boxes {
		if b.err != nil || pl.p.beneath(b.cursor) {
			return false
		}
	}
	return len(pl.boxes) > 0
}

// read looks once. An outage is the error; what concerns the lanes is theirs to deal with.
func (pl *puller) read(ctx context.Context, due []*box) error {
	pl.mu.Lock()
	at := make([]cursor, len(due))
	for i, b := range due {
		at[i] = b.cursor
	}
	pl.mu.Unlock()
	looks, err := pl.p.source.read(ctx, at)
	if err != nil && (outage(err) || ctx.Err() != nil) {
		return err
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	for i, b := range due {
		if pl.boxes[b.cursor.lane] != b {
			continue // it was left meanwhile: its lane is another's to tell of
		}
		if err != nil {
			b.err = err
			signal(b.ready)
		} else {
			b.put(pl.p.cut(at[i], looks[i]))
		}
	}
	if err == nil {
		pl.hope(due)
	}
	return nil
}

// put adds what was read to a box.
func (b *box) put(l look) {
	if len(l.entries) > 0 || !l.end {
		b.pl.p.looked(b.cursor.lane, l)
	} else {
		b.pl.p.saw(l.horizon)
	}
	moved := b.pl.p.source.place(l.next) != b.pl.p.source.place(b.cursor.at)
	b.cursor.at, b.end, b.looked = l.next, l.end, time.Now()
	if !b.news && b.taking && len(l.entries) == 0 {
		b.pl.p.stepped(b.cursor.lane, l.next, l.end)
	}
	if !b.news && !moved && len(l.entries) == 0 {
		return
	}
	if b.news {
		l.entries = append(b.l.entries, l.entries...)
		l.gone = max(l.gone, b.l.gone)
	}
	b.l, b.news = l, true
	signal(b.ready)
}

// hope looks a few times soon for what was hinted at and did not stand there yet: it is
// not below the horizon, or does not exist.
func (pl *puller) hope(read []*box) {
	for _, b := range read {
		if b.end && pl.p.hintedBehind(b.cursor.at) {
			if pl.eager = max(minLook, 2*pl.eager); pl.eager >= pl.p.o.PollInterval {
				pl.p.forgetHint()
				pl.eager = 0
			}
			return
		}
	}
	pl.eager = 0
}

// take returns what was read for a lane, as soon as there are entries or the end of the
// feed has been passed. If entries were only passed over at the end, it waits until the
// time is ripe. It returns an empty look with ok false when until has come.
func (b *box) take(ctx context.Context, poke, leave <-chan struct{}, ripe, until time.Time) (l look, ok bool, err error) {
	for {
		l, ok, err = b.get(ripe)
		if ok || err != nil {
			b.pl.nudge() // there is room again
			return l, ok, err
		}
		next := until
		if b.waiting() && ripe.Before(next) {
			next = ripe
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-poke:
			err = errChanged
		case <-leave:
			err = errLeft
		case <-b.ready:
		case <-timer.C:
		}
		timer.Stop()
		if err != nil {
			return l, false, err
		}
		if now := time.Now(); !now.Before(until) && !(b.waiting() && !now.Before(ripe)) {
			return l, false, nil
		}
	}
}

// waiting says if there is something that was passed over only.
func (b *box) waiting() bool {
	b.pl.mu.Lock()
	defer b.pl.mu.Unlock()
	return b.news
}

func (b *box) get(ripe time.Time) (l look, ok bool, err error) {
	b.pl.mu.Lock()
	defer b.pl.mu.Unlock()
	if b.err != nil {
		return l, false, b.err
	}
	if b.news && (len(b.l.entries) > 0 || !b.l.end || !time.Now().Before(ripe)) {
		l, b.l, b.news, b.taking = b.l, look{}, false, false
		return l, true, nil
	}
	b.taking = true
	return l, false, nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// beneath says if a lane may be read further: a shadow does not overtake the live one.
func (p *Projector) beneath(c cursor) bool {
	top, ok := p.top(c)
	return !ok || p.source.place(c.at) < p.source.place(top)
}

// cut ends a look where the live version has come to.
func (p *Projector) cut(from cursor, l look) look {
	top, ok := p.top(from)
	if !ok || p.source.place(l.next) <= p.source.place(top) {
		return l
	}
	return p.cutAt(from.at, l, top)
}

// cutAt ends a look at a checkpoint.
func (p *Projector) cutAt(from Checkpoint, l look, top Checkpoint) look {
	next, n := from, 0
	next.Incarnation, next.Timeline = l.next.Incarnation, l.next.Timeline
	for ; n < len(l.entries) && p.source.placeOf(&l.entries[n]) <= p.source.place(top); n++ {
		next = next.Past(l.entries[n], l.next)
	}
	if p.source.place(next) < p.source.place(top) {
		next.Position, next.Mark, next.Seqno = top.Position, top.Mark, top.Seqno
	}
	next.Epoch, next.Holder = from.Epoch, from.Holder
	return look{entries: l.entries[:n], next: next, end: true, horizon: l.horizon, gone: l.gone}
}
