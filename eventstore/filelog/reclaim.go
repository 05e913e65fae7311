// Reclaiming: the space of what was trimmed, replaced or deleted.
//
// Sealed segments that hold little that can still be read are rewritten, neighbours
// into one: what is live goes, in order and with its positions, into a new file, the
// manifest names that one instead, and the old ones are removed. A crash before the new
// manifest leaves an unnamed new file, one after it unnamed old ones; both are removed
// at the next opening. Records other than appends and snapshots live on in the registry
// file, so only segments that it covers are rewritten.

package filelog

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// unknownLive says that a segment's live bytes have not been counted.
const unknownLive = math.MaxInt64

// Reclaimed is what a call of Reclaim has done.
type Reclaimed struct {
	Segments int   // rewritten or removed
	Bytes    int64 // given back
}

// Reclaim gives back the space of what was trimmed, replaced or deleted, as far as that
// is half of a segment or more, the active one included: it is sealed first. It runs
// beside everything else; reading and rewriting take it about as long as copying the
// files would. A Log does the same by itself, sealed segments only, unless
// Options.ReclaimEvery is negative.
func (l *Log) Reclaim(ctx context.Context) (out Reclaimed, err error) {
	if err := l.enter(ctx, "reclaim", ""); err != nil {
		return out, err
	}
	if l.readOnly {
		return out, &eventstore.Error{Kind: eventstore.ErrReadOnly, Op: "reclaim", Wanted: "to write", Found: "a log that was opened read-only"}
	}
	if err := l.sealIfDead(); err != nil {
		return out, err
	}
	out, err = l.reclaim(ctx)
	if err != nil && ctx.Err() == nil {
		err = l.reclaimError(err)
	}
	return out, err
}

func (l *Log) reclaimError(err error) error {
	if noSpace(err) {
		return full("reclaim", err)
	}
	if _, told := errors.AsType[*eventstore.Error](err); !told { // those are of reads, and of a log that is closed
		l.fail(err)
	}
	return unavailable("reclaim", "", err)
}

// reclaimRound is what is done in the background.
func (l *Log) reclaimRound(ctx context.Context) {
	if l.failure() != nil || !l.dirtied.Swap(false) {
		return
	}
	began := time.Now()
	out, err := l.reclaim(ctx)
	if err != nil && ctx.Err() == nil && !errors.Is(err, eventstore.ErrClosed) {
		l.dirtied.Store(true) // another round tries again
		l.logger.Warn("space of trimmed entries not given back", "directory", l.dir, "error", l.reclaimError(err))
	}
	if out.Segments > 0 {
		l.logger.Info("gave back space", "directory", l.dir, "segments", out.Segments, "bytes", out.Bytes, "took", time.Since(began))
	}
}

// errand has the writer do something between two groups. False if it has ended.
func (l *Log) errand(f func(*writer)) bool {
	done := make(chan struct{})
	select {
	case l.errands <- func(w *writer) { defer close(done); f(w) }:
		<-done
		return true
	case <-l.finished:
		return false
	}
}

// sealIfDead seals the active segment if it is mostly dead.
func (l *Log) sealIfDead() (err error) {
	l.errand(func(w *writer) {
		s := w.activeSegment()
		if s.size == segmentHeader || 2*w.liveOf(w.active) >= s.size-segmentHeader {
			return
		}
		if err = w.failure(); err == nil {
			err = w.roll()
		}
		if err != nil {
			err = w.broken("reclaim", err)
		}
	})
	return err
}

// liveOf counts the bytes of an index's records that can still be read.
func (l *Log) liveOf(x index) (n int64) {
	const pause = 512 // rows after which writers get their turn
	l.mu.RLock()
	defer l.mu.RUnlock()
	rows := 0
	x.each(func(r row) {
		if st := l.reg.at(r.ordinal); st != nil && r.last() > st.head.Trimmed {
			n += int64(r.size)
		}
		if rows++; rows%pause == 0 {
			l.mu.RUnlock()
			l.mu.RLock()
		}
	})
	for _, p := range x.places(allSnapshots, 0, math.MaxInt32) {
		if l.reg.snapshots[p.position] {
			n += int64(p.size)
		}
	}
	return n
}

// reclaim rewrites what is mostly dead, oldest first. One goroutine does it at a time.
func (l *Log) reclaim(ctx context.Context) (out Reclaimed, err error) {
	l.reclaiming.Lock()
	defer l.reclaiming.Unlock()
	if err := l.enter(ctx, "reclaim", ""); err != nil { // it may have been closed meanwhile
		return out, err
	}
	if err := l.countLive(ctx); err != nil {
		return out, err
	}
	if err := l.coverSealed(); err != nil {
		return out, err
	}
	for {
		run := l.nextRun()
		if len(run) == 0 || ctx.Err() != nil {
			return out, ctx.Err()
		}
		if err := l.failure(); err != nil {
			return out, failed("reclaim", err)
		}
		saved, err := l.rewrite(ctx, run)
		if err != nil {
			return out, err
		}
		out.Segments += len(run)
		out.Bytes += saved
	}
}

// sealedSegments returns the segments but the active one.
func (l *Log) sealedSegments() []*segment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.segments[:len(l.segments)-1]
}

// countLive counts the live bytes of every sealed segment.
func (l *Log) countLive(ctx context.Context) error {
	for _, s := range l.sealedSegments() {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := s.use()
		if err != nil {
			return err
		}
		x, err := s.lookup(f)
		if err == nil {
			err = func() (err error) {
				defer catchFault(s, &err)()
				s.live = min(l.liveOf(x), s.size)
				return nil
			}()
		}
		s.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// mostlyDead is false while the live bytes are not known.
func (s *segment) mostlyDead() bool { return s.live < s.size-s.live }

// coverSealed sees to it that the registry file covers the segments to be rewritten.
func (l *Log) coverSealed() error {
	l.manifestMu.Lock()
	covered := l.manifest.registry
	l.manifestMu.Unlock()
	sealed := l.sealedSegments()
	if !slices.ContainsFunc(sealed, func(s *segment) bool { return s.mostlyDead() && s.end > covered }) {
		return nil
	}
	var b []byte
	var position uint64
	if !l.errand(func(w *writer) {
		w.syncDue() // no registry may know of more than the log
		b, position = encodeRegistry(w.reg, w.incarnation), w.reg.position
	}) {
		return closedError("reclaim", "")
	}
	return l.writeRegistry(position, b)
}

// nextRun returns neighbours to be rewritten into one segment: mostly dead ones, and
// small ones beside them.
func (l *Log) nextRun() (run []*segment) {
	l.manifestMu.Lock()
	covered := l.manifest.registry
	l.manifestMu.Unlock()
	live := int64(0)
	for _, s := range l.sealedSegments() {
		fits := live+s.live <= l.o.SegmentBytes
		takes := s.end <= covered && fits && (s.mostlyDead() || len(run) > 0 && s.size < l.o.SegmentBytes/2)
		if !takes {
			if slices.ContainsFunc(run, (*segment).mostlyDead) {
				break
			}
			run, live = nil, 0
			if s.end > covered || !s.mostlyDead() {
				continue
			}
		}
		run = append(run, s)
		live += s.live
	}
	return run
}

// rewrite puts what is live of neighbours into one new segment in their place.
func (l *Log) rewrite(ctx context.Context, run []*segment) (saved int64, err error) {
	generation := uint32(0)
	for _, s := range run {
		generation = max(generation, s.generation+1)
		saved += s.size
	}
	h := l.newHeader(l.incarnation, run[0].base)
	h.generation = generation
	out := &rewriter{log: l, header: h, index: newMemIndex()}
	kept, err := out.write(ctx, run)
	if err != nil {
		out.discard()
		return 0, err
	}
	// What was left out was trimmed by records that with Options.MayLose may not be durable.
	if !l.errand((*writer).syncDue) {
		out.discard()
		return 0, closedError("reclaim", "")
	}
	var next []*segment
	if kept {
		s := l.segmentOf(segmentEntry{h.base, h.generation, h.salt, out.size, run[len(run)-1].end})
		s.index, s.live = out.index, out.size
		next = []*segment{s}
		saved -= out.size
	}
	if err := l.replace(run, next); err != nil {
		if _, ok := errors.AsType[errUnwritten](err); ok {
			out.discard()
		}
		return 0, err
	}
	for _, s := range next {
		l.report("index file not written; it is made again when it is needed", l.writeIndex(s, out.index))
	}
	return saved, nil
}

// replace makes the manifest, and readers, see other segments in place of some.
func (l *Log) replace(run, next []*segment) error {
	err := l.publish(func(m *manifest) {
		i := slices.IndexFunc(m.segments, func(e segmentEntry) bool { return e.base == run[0].base })
		var entries []segmentEntry
		for _, s := range next {
			entries = append(entries, segmentEntry{s.base, s.generation, s.salt, s.size, s.end})
		}
		m.segments = slices.Replace(m.segments, i, i+len(run), entries...)
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	i := slices.Index(l.segments, run[0])
	l.segments = slices.Replace(slices.Clone(l.segments), i, i+len(run), next...)
	l.mu.Unlock()
	for _, s := range run {
		s.retire()
		// They are none of the store's any more: should they stay, the next opening removes them.
		l.fs.Remove(s.name())
		l.fs.Remove(indexName(s.base, s.generation))
	}
	return nil
}
