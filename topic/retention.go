// Retention: the owner of a partition trims what its topic need not keep.

package topic

import (
	"context"
	"errors"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// sizes is how much payload a log has, in pieces: what MaxBytes is kept by. It knows what
// was appended since the log was fenced, and the rest once that has been weighed.
// A partition's mu guards it.
type sizes struct {
	piece  int64 // so much goes into one; 0: nobody wants to know
	pieces []piece
	total  int64
}

type piece struct {
	last  eventstore.Seqno
	bytes int64
}

func (s *sizes) add(last eventstore.Seqno, bytes int64) {
	if s.piece == 0 {
		return
	}
	s.total += bytes
	if n := len(s.pieces); n > 0 && s.pieces[n-1].bytes+bytes <= s.piece {
		s.pieces[n-1].last, s.pieces[n-1].bytes = last, s.pieces[n-1].bytes+bytes
		return
	}
	s.pieces = append(s.pieces, piece{last, bytes})
}

// over is through which seqno to trim so that at most so many bytes are left.
func (s *sizes) over(most int64) (through eventstore.Seqno) {
	total := s.total
	for _, piece := range s.pieces {
		if total <= most {
			break
		}
		through, total = piece.last, total-piece.bytes
	}
	return through
}

// trimmed forgets the pieces that are gone.
func (s *sizes) trimmed(through eventstore.Seqno) {
	for len(s.pieces) > 0 && s.pieces[0].last <= through {
		s.total -= s.pieces[0].bytes
		s.pieces = s.pieces[1:]
	}
}

// tidier trims one partition.
type tidier struct {
	p       *partition
	r       Retention
	trimmed eventstore.Seqno
	oldest  time.Time // not after the time of the first entry that is left; zero: not known
	stopped eventstore.Seqno
	since   time.Time // when a trim through stopped was stopped
}

// tidy trims the partition until ctx ends. While nothing is to be trimmed it reads
// nothing but, for Consumed, the consumers' positions.
func (p *partition) tidy(ctx context.Context) {
	t := &tidier{p: p, r: p.known.spec.Retention}
	if t.r == (Retention{}) {
		return
	}
	for started := false; ; {
		err := error(nil)
		if !started {
			err = t.start(ctx)
			started = err == nil
		}
		if err == nil {
			err = t.look(ctx)
		}
		if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Kind == eventstore.ErrTrimmed {
			t.trimmed, t.oldest = e.First-1, time.Time{} // somebody else trims too
		} else if err != nil && ctx.Err() == nil {
			p.b.logger.WarnContext(ctx, "cannot see to a topic's retention; trying again", "stream", p.stream, "error", err)
		}
		if !pause(ctx, p.b.tidyEvery) {
			return
		}
	}
}

// start learns where the log begins and, for MaxBytes, how much stands in it.
func (t *tidier) start(ctx context.Context) error {
	p := t.p
	h, err := p.b.store.Head(ctx, p.stream)
	if err != nil {
		return err
	}
	t.trimmed = h.Trimmed
	if t.r.MaxBytes == 0 {
		return nil
	}
	old := sizes{piece: max(t.r.MaxBytes/sizeChunks, 1)}
	for at := h.Trimmed; at < p.taken; {
		page, err := t.page(ctx, at)
		if err != nil {
			return err
		}
		if len(page.Entries) == 0 {
			return t.lost(ctx, p.taken)
		}
		for i := range page.Entries {
			old.add(page.Entries[i].Seqno, int64(sizeOf(&page.Entries[i].Event)))
		}
		at = page.Entries[len(page.Entries)-1].Seqno
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sizes.pieces = append(old.pieces, p.sizes.pieces...)
	p.sizes.total += old.total
	return nil
}

// page reads what is to be weighed, when it is this partition's turn.
func (t *tidier) page(ctx context.Context, after eventstore.Seqno) (eventstore.Page, error) {
	p := t.p
	select {
	case p.b.reading <- struct{}{}:
		defer func() { <-p.b.reading }()
		return p.b.store.ReadFrom(ctx, p.stream, after, int(min(p.taken-after, recallPage)))
	case <-ctx.Done():
		return eventstore.Page{}, ctx.Err()
	}
}

// lost is the error of a log that ends before an entry that was there.
func (t *tidier) lost(ctx context.Context, last eventstore.Seqno) error {
	h, err := t.p.b.store.Head(ctx, t.p.stream)
	if err != nil {
		return err
	}
	return eventstore.DivergedError("trim", t.p.stream, eventstore.Mark{Seqno: last}, h)
}

// look trims what is over one of the bounds, but for what is younger than keepYoung, the
// last entry before that, and the last of all: by these a new owner knows what may have
// been published lately.
func (t *tidier) look(ctx context.Context) error {
	p := t.p
	p.mu.Lock()
	now, _ := p.term.clock.Now()
	last, lapsed := p.head.Seqno, p.lapsed()
	through := eventstore.Seqno(0)
	if t.r.MaxBytes > 0 {
		through = p.sizes.over(t.r.MaxBytes)
	}
	p.mu.Unlock()
	if lapsed || last == 0 || last <= t.trimmed {
		return nil
	}
	if t.r.MaxAge > 0 {
		old, err := t.older(ctx, now.Add(-t.r.MaxAge), last)
		if err != nil {
			return err
		}
		through = max(through, old)
	}
	if t.r.Consumed {
		slowest, named, err := p.b.slowest(ctx, p.place.topic, p.place.n)
		if err != nil {
			return err
		}
		if named {
			through = slowest // what is over a bound and needed stays, what is needed by nobody goes
		}
	}
	if through = min(through, last-1); through <= t.trimmed {
		return nil
	}
	rested, err := t.older(ctx, now.Add(-p.b.keepYoung), last)
	if rested > t.trimmed {
		rested-- // what is younger tells nothing of the time before it: one that is older stays
	}
	if through = min(through, rested); err != nil || through <= t.trimmed {
		return err
	}
	return t.cut(ctx, through)
}

// cut trims. What a Hold stops is tried again after a while.
func (t *tidier) cut(ctx context.Context, through eventstore.Seqno) error {
	p := t.p
	if t.stopped == through && time.Since(t.since) < holdPatience {
		return nil
	}
	got, err := p.b.store.Trim(ctx, p.stream, through, false)
	if err != nil {
		return err
	}
	if got.Trimmed < through {
		t.stopped, t.since = through, time.Now()
	}
	if got.Trimmed > t.trimmed {
		t.trimmed, t.oldest = got.Trimmed, time.Time{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sizes.trimmed(got.Trimmed)
	return nil
}

// older is the highest seqno of an entry from before a time, t.trimmed if there is none.
// Times never fall along a log, so it takes few looks; none while the oldest is younger.
func (t *tidier) older(ctx context.Context, before time.Time, last eventstore.Seqno) (eventstore.Seqno, error) {
	if !t.oldest.IsZero() && !t.oldest.Before(before) {
		return t.trimmed, nil
	}
	low, high := t.trimmed, last // low is older, or gone; what is above high is not
	for first := true; low < high; first = false {
		at := low + (high-low+1)/2
		if first {
			at = low + 1
		}
		page, err := t.p.b.store.ReadFrom(ctx, t.p.stream, at-1, 1)
		if err != nil {
			return 0, err
		}
		if len(page.Entries) == 0 {
			return 0, t.lost(ctx, last)
		}
		when := page.Entries[0].Time
		if first {
			t.oldest = when
		}
		if when.Before(before) {
			low = at
		} else {
			high = at - 1
		}
	}
	return low, nil
}
