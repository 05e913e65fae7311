// When a log sends: at times that were fixed at the start, or as soon as it is answered.

package load

import (
	"context"
	"sync/atomic"
	"time"
)

// pacer says when the sends of one log are due. next is for its owner alone; the
// rest may be asked by any goroutine.
type pacer interface {
	// next waits until a send is due and returns when it was; false: there is none
	// any more, or ctx has ended.
	next(ctx context.Context) (due time.Time, ok bool)
	// late is how many sends are due at t and neither begun nor given up.
	late(t time.Time) int64
	// end gives up what is late at t, and returns how many sends were begun or given up,
	// and how many of these given up. The owner must have ended.
	end(t time.Time) (scheduled, skipped int64)
}

// closed sends as soon as the one before was answered. Nothing is ever late: that is
// what a closed loop does not see.
type closed struct{}

func (closed) next(ctx context.Context) (time.Time, bool) { return time.Now(), ctx.Err() == nil }
func (closed) late(time.Time) int64                       { return 0 }
func (closed) end(time.Time) (int64, int64)               { return 0, 0 }

// schedule is the sends of one log in an open loop. Send i of all logs is due at start
// + i/rps, and the logs take turns: this one has first, first+step, … below all. Times
// are computed from the start, so they do not drift.
type schedule struct {
	start       time.Time
	rps         float64
	first, step int64
	all         int64 // sends of all logs
	most        int64 // how many sends of this log may be late

	taken atomic.Int64 // begun or given up
	given atomic.Int64 // of these, given up
}

// total is how many sends this log has.
func (s *schedule) total() int64 { return max(0, (s.all-s.first+s.step-1)/s.step) }

// at is when send n of this log is due.
func (s *schedule) at(n int64) time.Time {
	i := float64(s.first + n*s.step)
	return s.start.Add(time.Duration(i / s.rps * float64(time.Second)))
}

// due is how many sends are due at t. It counts by the same arithmetic as at, so that a
// send whose time has come is always among them.
func (s *schedule) due(t time.Time) int64 {
	i := t.Sub(s.start).Seconds() * s.rps
	n := min(max(0, (int64(i)-s.first)/s.step), s.total())
	for n < s.total() && !s.at(n).After(t) {
		n++
	}
	for n > 0 && s.at(n-1).After(t) {
		n--
	}
	return n
}

func (s *schedule) late(t time.Time) int64 { return max(0, s.due(t)-s.taken.Load()) }

func (s *schedule) next(ctx context.Context) (time.Time, bool) {
	if over := s.late(time.Now()) - s.most; over > 0 {
		s.skip(over)
	}
	n := s.taken.Load()
	if n >= s.total() || !sleepUntil(ctx, s.at(n)) {
		return time.Time{}, false
	}
	s.taken.Add(1)
	return s.at(n), true
}

func (s *schedule) end(t time.Time) (scheduled, skipped int64) {
	s.skip(s.late(t))
	return s.taken.Load(), s.given.Load()
}

// skip gives up the oldest: those behind them have the better chance to be in time.
func (s *schedule) skip(n int64) {
	s.taken.Add(n)
	s.given.Add(n)
}

// sleepUntil returns false if ctx ends first.
func sleepUntil(ctx context.Context, t time.Time) bool {
	return ctx.Err() == nil && sleep(ctx, time.Until(t))
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
