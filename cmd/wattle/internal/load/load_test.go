// Runs in memory, on a clock that the tests hold: schedules, latencies and counts to
// the last one.

package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// bentLog is a log in memory whose appends are slow, lost or refused.
type bentLog struct {
	*memlog.Log
	mu    sync.Mutex
	n     int // appends so far
	began []time.Time
	trims time.Duration // what a trim takes
	bend  func(ctx context.Context, n int, write func() (eventstore.Appended, error)) (eventstore.Appended, error)
}

func (l *bentLog) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	l.mu.Lock()
	n := l.n
	l.n++
	l.began = append(l.began, time.Now())
	l.mu.Unlock()
	return l.bend(ctx, n, func() (eventstore.Appended, error) { return l.Log.Append(ctx, a) })
}

// Trim takes its time, and nothing is trimmed if ctx ends before.
func (l *bentLog) Trim(ctx context.Context, s eventstore.Stream, through eventstore.Seqno, dry bool) (eventstore.TrimResult, error) {
	if !sleep(ctx, l.trims) {
		return eventstore.TrimResult{}, ctx.Err()
	}
	return l.Log.Trim(ctx, s, through, dry)
}

// takes makes every append take as long as it says for the n-th.
func takes(long func(n int) time.Duration) *bentLog {
	return &bentLog{Log: memlog.New(nil), bend: func(ctx context.Context, n int, write func() (eventstore.Appended, error)) (eventstore.Appended, error) {
		if !sleep(ctx, long(n)) {
			return eventstore.Appended{}, &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "append", Err: ctx.Err()}
		}
		return write()
	}}
}

func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func config(s *eventstore.Store) Config {
	return Config{Store: s, Prefix: "bench", Logs: 1, Batch: 1, Sizes: Sizes{{100, 1}}, Duration: time.Second, Seed: 1}
}

// must runs and wants no error.
func must(t *testing.T, c Config) *Figures {
	t.Helper()
	f, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// about says if a latency is d, as far as the histogram's three digits tell.
func about(us int64, d time.Duration) bool {
	want := d.Microseconds()
	return us >= want-want/1000-1 && us <= want+want/500+1
}

// kept reads a log back, and wants its seqnos without a gap.
func kept(t *testing.T, s *eventstore.Store, log int) (entries []eventstore.Entry) {
	t.Helper()
	stream := eventstore.Stream(fmt.Sprintf("bench-%d", log))
	h, err := s.Head(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range s.Read(t.Context(), stream, h.Trimmed) {
		if err != nil {
			t.Fatal(err)
		}
		if want := h.Trimmed + eventstore.Seqno(len(entries)) + 1; e.Seqno != want {
			t.Fatalf("%s: wanted seqno %d, found %d", stream, want, e.Seqno)
		}
		entries = append(entries, e)
	}
	if h.Last.Seqno-h.Trimmed != eventstore.Seqno(len(entries)) {
		t.Fatalf("%s: wanted entries from %d to %d, found %d", stream, h.Trimmed+1, h.Last.Seqno, len(entries))
	}
	return entries
}

// balanced wants every send that was due to be in one of three places.
func balanced(t *testing.T, f *Figures) {
	t.Helper()
	if f.Scheduled != f.Appends+f.Failed+f.Skipped {
		t.Errorf("%d sends were due, but %d appended, %d failed and %d skipped", f.Scheduled, f.Appends, f.Failed, f.Skipped)
	}
}

// A stall is charged to everything that had to wait for it: 30 of 100 sends were due
// while one append took 300 ms.
func TestLatencyCountsFromWhenASendWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := takes(func(n int) time.Duration {
			if n == 50 {
				return 300 * time.Millisecond
			}
			return 0
		})
		c := config(eventstore.New(log, nil))
		c.RPS = 100
		f := must(t, c)
		if f.Appends != 100 || f.Skipped != 0 || f.Failed != 0 || f.Ended != EndedByTime {
			t.Errorf("wanted 100 appends, found %+v", f)
		}
		balanced(t, f)
		if f.P50 != 0 || !about(f.P99, 290*time.Millisecond) || !about(f.P999, 300*time.Millisecond) || !about(f.Max, 300*time.Millisecond) {
			t.Errorf("wanted 0, 290, 300 and 300 ms, found %d, %d, %d and %d µs", f.P50, f.P99, f.P999, f.Max)
		}
		if f.Seconds != 0.99 {
			t.Errorf("wanted the last answer after 0.99 s, found %v s", f.Seconds)
		}
	})
}

// Sends are due where the start says, however long the ones before took.
func TestScheduleDoesNotDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := takes(func(n int) time.Duration { return time.Duration(n%4) * time.Millisecond })
		c := config(eventstore.New(log, nil))
		c.RPS, c.Duration = 300, 3*time.Second
		start := time.Now()
		f := must(t, c)
		if f.Appends != 900 || f.Scheduled != 900 {
			t.Fatalf("wanted 900 appends, found %+v", f)
		}
		for i, at := range log.began {
			want := time.Duration(i) * time.Second / 300
			if off := at.Sub(start) - want; off < -time.Microsecond || off > time.Microsecond {
				t.Fatalf("send %d: wanted after %v, found %v", i, want, at.Sub(start))
			}
		}
	})
}

// The logs take turns, and late sends are made up in order.
func TestLogsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := eventstore.New(takes(always(25*time.Millisecond)), nil)
		c := config(s)
		c.RPS, c.Logs, c.Batch, c.Duration = 100, 3, 2, 505*time.Millisecond
		f := must(t, c)
		if f.Appends != 51 || f.Entries != 102 || f.Bytes != 10200 || f.Logs != 3 {
			t.Errorf("wanted 51 appends of 2 entries, found %+v", f)
		}
		for log := 1; log <= 3; log++ {
			if got := len(kept(t, s, log)); got != 34 {
				t.Errorf("log %d: wanted 34 entries, found %d", log, got)
			}
		}
		if !about(f.Max, 25*time.Millisecond) {
			t.Errorf("wanted nobody to wait for another log, found %d µs", f.Max)
		}
	})
}

// A store too slow: what is not sent within the grace is skipped, and counted.
func TestSkippedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(eventstore.New(takes(always(90*time.Millisecond)), nil))
		c.RPS, c.Duration, c.Grace = 100, 2*time.Second, time.Second
		f := must(t, c)
		balanced(t, f)
		if f.Scheduled != 200 || f.Appends != 34 || f.Skipped != 166 { // begun at 0, 90, … 2970 ms
			t.Errorf("wanted 34 of 200 appended, found %+v", f)
		}
		if !about(f.Max, 3060*time.Millisecond-330*time.Millisecond) { // the last one was due at 330 ms
			t.Errorf("wanted 2730 ms, found %d µs", f.Max)
		}
	})
}

// A queue too long: the oldest are skipped, so the rest is no later than it may be.
func TestSkippedWhenTooManyAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(eventstore.New(takes(always(90*time.Millisecond)), nil))
		c.RPS, c.Duration, c.MaxLate = 100, 2*time.Second, 5
		f := must(t, c)
		balanced(t, f)
		if f.Scheduled != 200 || f.Skipped < 150 || f.Appends < 20 {
			t.Errorf("wanted most of 200 skipped, found %+v", f)
		}
		// Five are late when the run ends, and each waits for those before it.
		if limit := (6*90 + 50) * time.Millisecond; f.Max > limit.Microseconds() {
			t.Errorf("wanted at most %v, found %d µs", limit, f.Max)
		}
	})
}

func TestIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(eventstore.New(takes(func(n int) time.Duration {
			if n == 35 { // begun after 350 ms
				return 195 * time.Millisecond
			}
			return time.Millisecond
		}), nil))
		c.RPS, c.Duration, c.Interval = 100, 1005*time.Millisecond, 100*time.Millisecond
		var all []Interval
		c.Live = func(i Interval) { all = append(all, i) }
		f := must(t, c)
		if len(all) != 10 || f.Appends != 101 {
			t.Fatalf("wanted 10 intervals, found %+v", all)
		}
		sum := 0.0
		for i, in := range all {
			sum += in.PerSec / 10
			if in.Elapsed != time.Duration(i+1)*100*time.Millisecond {
				t.Errorf("interval %d ended after %v", i, in.Elapsed)
			}
		}
		// At 500 ms the sends due at 360 … 500 ms wait; the one at 1000 ms has just begun.
		if all[4].Late < 14 || all[4].Late > 15 || all[4].PerSec != 0 || sum != 100 || all[0].Late > 1 || all[9].Late > 1 {
			t.Errorf("wanted 14 or 15 late at 500 ms and 100 appends in all, found %v and %+v", sum, all)
		}
		if p := all[5].P99.Microseconds(); !about(p, 195*time.Millisecond) {
			t.Errorf("wanted 195 ms in the sixth interval, found %d µs", p)
		}
	})
}

// An interrupt ends the sending at once, and the figures are those of what was due.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(eventstore.New(takes(always(time.Millisecond)), nil))
		c.RPS = 100
		ctx, cancel := context.WithTimeout(t.Context(), 495*time.Millisecond)
		defer cancel()
		f, err := Run(ctx, c)
		if err != nil || f.Ended != EndedByInterrupt || f.Appends != 50 || f.Scheduled != 50 || f.Skipped != 0 {
			t.Errorf("wanted the 50 sends due in 495 ms, found %+v (%v)", f, err)
		}
	})
}

// An append that is not answered holds the end up for the grace, not for ever.
func TestInterruptedWhileStuck(t *testing.T) {
	for _, rps := range []float64{0, 100} {
		synctest.Test(t, func(t *testing.T) {
			c := config(eventstore.New(takes(always(time.Hour)), nil))
			c.RPS, c.Grace, c.Duration = rps, 2*time.Second, time.Minute
			ctx, cancel := context.WithTimeout(t.Context(), 495*time.Millisecond)
			defer cancel()
			start := time.Now()
			f, err := Run(ctx, c)
			if !errors.Is(err, eventstore.ErrUnknown) || f == nil || f.Failed != 1 || f.Appends != 0 || time.Since(start) != 2495*time.Millisecond {
				t.Fatalf("wanted an end after 2.495 s, found %v: %+v (%v)", time.Since(start), f, err)
			}
			if rps > 0 && (f.Scheduled != 50 || f.Skipped != 49) {
				t.Errorf("wanted 49 of 50 skipped, found %+v", f)
			}
		})
	}
}
