// Group commit: one goroutine decides, writes and syncs; what comes in while it is at
// it goes together as the next group.
//
// Within a group every request is decided for itself, on the registry and on what the
// group has staged before it. Records reach the registry, and so readers, only when
// they are durable; then the answers go out, in order. A request that would need to see
// more of a staged change than heads (errStaged) ends the group and begins the next.

package filelog

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Bounds of the queue before the writer and of a group.
const (
	maxQueued      = 10_000    // requests that wait
	maxQueuedBytes = 256 << 20 // of payload that waits
	maxGroupBytes  = 8 << 20   // of records in one group, but for its last one
	maxGather      = 500 * time.Microsecond
)

// request is a change that somebody waits for.
type request struct {
	op     string
	stream eventstore.Stream
	bytes  int
	// decide returns the record to write, nil if there is nothing to write. It runs in
	// the writer's goroutine, more than once if it returns errStaged, and never after its
	// caller has left: what it looks at is the caller's.
	decide func(*group) (body, error)
	done   chan error

	mu      sync.Mutex
	decided bool // whatever comes now, the caller must wait for the outcome
	left    bool // the caller has gone
}

// leave takes a request back, if it has not been decided.
func (r *request) leave() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = !r.decided
	return r.left
}

// errStaged says that a decision needs what the group has staged to be applied first.
var errStaged = errors.New("staged")

// queue is what waits for the writer.
type queue struct {
	mu     sync.Mutex
	all    []*request
	bytes  int
	closed bool
	filled chan struct{} // has a token while something may wait
}

func (q *queue) put(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return closedError(r.op, r.stream)
	}
	if len(q.all) >= maxQueued || q.bytes+r.bytes > maxQueuedBytes && len(q.all) > 0 {
		return &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: r.op, Stream: r.stream, Wanted: "a place in the queue",
			Found: "it is full", Hint: "send less at a time, or try again later"}
	}
	q.all = append(q.all, r)
	q.bytes += r.bytes
	select {
	case q.filled <- struct{}{}:
	default:
	}
	return nil
}

// take returns all that waits.
func (q *queue) take(into []*request) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	into = append(into[:0], q.all...)
	clear(q.all)
	q.all, q.bytes = q.all[:0], 0
	return into
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.all)
}

// change sends a request to the writer and waits for its outcome. A context that ends
// first takes the request back if it can still be taken back.
func (l *Log) change(ctx context.Context, op string, s eventstore.Stream, bytes int, decide func(*group) (body, error)) error {
	if err := l.enter(ctx, op, s); err != nil {
		return err
	}
	if l.readOnly {
		return &eventstore.Error{Kind: eventstore.ErrReadOnly, Op: op, Stream: s, Wanted: "to write", Found: "a log that was opened read-only"}
	}
	r := &request{op: op, stream: s, bytes: bytes, decide: decide, done: make(chan error, 1)}
	if err := l.queue.put(r); err != nil {
		return err
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
	}
	if r.leave() {
		return ctx.Err()
	}
	select { // the answer may be there already
	case err := <-r.done:
		return err
	default:
	}
	return unknown(op, s, ctx.Err())
}

// writer owns everything that writes: it is the only one to change registry, segments
// and the active file.
type writer struct {
	*Log
	group    *group
	requests []*request
	lastSync time.Duration // how long the last one took
	ended    time.Time     // when the last group was answered
	expected int           // requests that may come soon: as many as were answered last, or waited then
	dirty    bool          // written and not synced: with Options.MayLose only
	timer    *time.Timer   // of the sync that is due
}

// run commits groups until the log is closed and nothing waits any more.
func (w *writer) run() {
	defer close(w.finished)
	for {
		select {
		case <-w.queue.filled:
			w.gather()
			w.commit()
		case <-w.timer.C:
			w.syncDue()
		case f := <-w.errands:
			f(w)
		case <-w.closing:
			w.stageQueued()
			w.commit()
			w.syncDue()
			return
		}
	}
}

// gather stages what waits, and for a moment what comes: those who were answered just
// now are about to come again, and a group that left without them would make two groups
// of them for ever, each waiting for the sync of the other. It waits half a sync at most,
// ends when nobody has come for a sixteenth of one, and waits for nobody when the writer
// was idle, or does not sync.
func (w *writer) gather() {
	limit, staged := min(w.lastSync/2, maxGather), w.stageQueued()
	if w.expected < 2 || w.o.MayLose > 0 || time.Since(w.ended) > w.lastSync {
		return
	}
	for began, last := time.Now(), time.Now(); staged < w.expected; runtime.Gosched() {
		n, now := w.stageQueued(), time.Now()
		if n > 0 {
			staged, last = staged+n, now
		}
		if now.Sub(began) > limit || now.Sub(last) > w.lastSync/16 {
			return
		}
	}
}

// stageQueued stages all that waits, in as many groups as it takes: the last one is left
// to be committed. It says how many requests that were.
func (w *writer) stageQueued() int {
	w.requests = w.queue.take(w.requests)
	for _, r := range w.requests {
		w.stage(r)
	}
	clear(w.requests)
	return len(w.requests)
}

// stage decides a request and adds its record to the group.
func (w *writer) stage(r *request) {
	if w.group.full() {
		w.commit()
	}
	a, again := w.decide(r)
	if again {
		w.commit()
		a, _ = w.decide(r)
	}
	if a.request != nil {
		w.group.answers = append(w.group.answers, a)
	}
}

// decide decides a request, once there is room for its record. It says if that must
// wait until the group is written. There is no answer for one whose caller has left.
func (w *writer) decide(r *request) (a answer, again bool) {
	if err := w.failure(); err != nil {
		return answer{request: r, err: failed(r.op, err)}, false
	}
	if err := w.rollIfFull(); err != nil {
		return answer{request: r, err: w.broken(r.op, err)}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left {
		return answer{}, false
	}
	b, err := r.decide(w.group)
	if errors.Is(err, errStaged) {
		return answer{}, true
	}
	r.decided = true
	if b != nil && err == nil {
		w.group.add(b, w.activeSegment())
	}
	return answer{request: r, err: err, writes: b != nil && err == nil}, false
}

// commit makes the group durable, applies it and answers.
func (w *writer) commit() {
	g := w.group
	err := w.write(g)
	if err == nil {
		err = w.apply(g)
	}
	waiting := w.queue.length()
	for _, a := range g.answers {
		if err != nil {
			a.err = w.outcome(a, err)
		}
		a.request.done <- a.err
	}
	w.expected, w.ended = len(g.answers)+waiting, time.Now()
	g.reset()
}

// errUnwritten wraps an error that left nothing written.
type errUnwritten struct{ error }

func (e errUnwritten) Unwrap() error { return e.error }

// outcome is the answer to a request whose group was not written. What was refused was
// refused on what did not come to be, perhaps, so that is no answer any more.
func (w *writer) outcome(a answer, err error) error {
	e, unwritten := errors.AsType[errUnwritten](err)
	switch {
	case unwritten && noSpace(e.error):
		return full(a.request.op, e.error)
	case a.writes && !unwritten:
		return unknown(a.request.op, a.request.stream, err)
	}
	return failed(a.request.op, err)
}

// broken notes that a write failed and returns the error of a request for which nothing
// was written. What could only not be read is no such failure.
func (w *writer) broken(op string, err error) error {
	switch {
	case noSpace(err):
		return full(op, err)
	case errors.Is(err, eventstore.ErrUnavailable):
		return err
	}
	w.fail(err)
	return failed(op, err)
}

// fail makes the log ack nothing more. Anybody whose write or sync fails calls it: what
// the system has done with earlier writes is not known any more.
func (l *Log) fail(err error) {
	if l.cause.CompareAndSwap(nil, &err) {
		l.logger.Error("a write failed: the log acks nothing more", "directory", l.dir, "error", err)
	}
}

// failure is what made the log fail, nil if nothing did.
func (l *Log) failure() error {
	if err := l.cause.Load(); err != nil {
		return *err
	}
	return nil
}

// write writes the group's records behind the active segment's and syncs them.
func (w *writer) write(g *group) error {
	if len(g.b) == 0 {
		return nil
	}
	if err := w.failure(); err != nil {
		return errUnwritten{err}
	}
	s := w.activeSegment()
	if err := w.allocate(s, s.size+int64(len(g.b))); err != nil {
		if !noSpace(err) {
			w.fail(err)
		}
		return errUnwritten{err}
	}
	if _, err := w.file.WriteAt(g.b, s.size); err != nil {
		return w.takeBack(s, err)
	}
	if w.o.MayLose > 0 {
		w.syncLater()
		return nil
	}
	return w.sync()
}

// takeBack cuts off what a failed write has left. Only when there was no room, and what
// it left is gone for sure, the log goes on.
func (w *writer) takeBack(s *segment, cause error) error {
	if noSpace(cause) && !w.dirty {
		err := w.file.Truncate(s.size)
		if err == nil {
			err = w.file.Sync()
		}
		if err == nil {
			w.allocated = s.size
			return errUnwritten{cause}
		}
	}
	w.fail(cause)
	return cause
}

func (w *writer) sync() error {
	began := time.Now()
	if err := w.file.Sync(); err != nil {
		w.fail(err)
		return err
	}
	w.lastSync = time.Since(began)
	w.dirty = false
	return nil
}

// syncLater sees to it that what was written is synced in time.
func (w *writer) syncLater() {
	if !w.dirty {
		w.dirty = true
		w.timer.Reset(w.o.MayLose)
	}
}

func (w *writer) syncDue() {
	if w.dirty && w.failure() == nil && w.sync() == nil {
		w.synced.Store(w.activeSegment().size)
	}
}

// allocate makes room for the active file up to an offset, in steps that grow with it.
func (w *writer) allocate(s *segment, to int64) error {
	if to <= w.allocated {
		return nil
	}
	step := min(max(s.size, minAllocate), maxAllocate)
	to = max(to, min(w.allocated+step, max(w.o.SegmentBytes, to)))
	if err := w.file.Allocate(w.allocated, to); err != nil {
		return err
	}
	w.allocated = to
	return nil
}

// How far the active file is made longer at a time.
const (
	minAllocate = 64 << 10
	maxAllocate = 8 << 20
)

// apply shows the group to readers.
func (w *writer) apply(g *group) error {
	if len(g.records) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.activeSegment()
	for i := range g.records {
		r := &g.records[i]
		if err := w.reg.apply(r.body, r.position, r.span); err != nil {
			w.fail(err) // a decision that does not fit the registry: ours, and not to be built upon
			return err
		}
		w.active.add(r.body, r.position, s.size, r.size)
		s.size += r.size
	}
	if g.trims {
		w.dirtied.Store(true)
	}
	if w.o.MayLose <= 0 {
		w.synced.Store(s.size)
	}
	return nil
}
