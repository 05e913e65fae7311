// Runs in memory, on a clock that the tests hold: schedules, latencies and counts to
// the last one.

package load

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// Failures are counted and told; the run goes on.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "append", Found: "a server that starts"}
		log := takes(always(time.Millisecond))
		write := log.bend
		log.bend = func(ctx context.Context, n int, w func() (eventstore.Appended, error)) (eventstore.Appended, error) {
			if n >= 20 && n < 30 {
				return eventstore.Appended{}, down
			}
			return write(ctx, n, w)
		}
		s := eventstore.New(log, nil)
		c := config(s)
		c.RPS = 100
		f := must(t, c)
		balanced(t, f)
		if f.Failed != 10 || f.Appends != 90 || f.Resends != 0 || f.LastError != down.Error() || len(kept(t, s, 1)) != 90 {
			t.Errorf("wanted 10 failures, found %+v", f)
		}
		// In a closed loop failures do not spin.
		log.mu.Lock()
		log.n, c.RPS = 10, 0
		log.mu.Unlock()
		if f = must(t, c); f.Failed != 7 || f.Appends != 10 { // each pause twice the last: the next one would come after the end
			t.Errorf("wanted 7 failures, found %+v", f)
		}
	})
}

func TestAllFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := takes(always(0))
		log.bend = func(context.Context, int, func() (eventstore.Appended, error)) (eventstore.Appended, error) {
			return eventstore.Appended{}, &eventstore.Error{Kind: eventstore.ErrReadOnly, Op: "append"}
		}
		f, err := Run(t.Context(), config(eventstore.New(log, nil)))
		if !errors.Is(err, eventstore.ErrReadOnly) || f == nil || f.Failed < 2 || f.Failed > 20 || f.P50 != 0 || f.Max != 0 {
			t.Errorf("wanted a few failures and the last one as the error, found %+v (%v)", f, err)
		}
	})
}

// A lost answer is followed by the same batch until it is proved: also when what
// comes next is another failure, for the batch may stand there.
func TestUnknownIsResent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := takes(nil)
		log.bend = func(_ context.Context, n int, write func() (eventstore.Appended, error)) (eventstore.Appended, error) {
			switch n % 7 {
			case 1: // written, and the answer lost
				_, _ = write()
				return eventstore.Appended{}, &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "append"}
			case 2:
				return eventstore.Appended{}, &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "append"}
			case 4: // not written
				return eventstore.Appended{}, &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "append"}
			}
			return write()
		}
		s := eventstore.New(log, nil)
		c := config(s)
		c.RPS, c.Batch = 20, 3
		f := must(t, c)
		balanced(t, f)
		if f.Appends != 20 || f.Failed != 0 || f.Resends != int64(log.n-20) || f.Resends < 10 {
			t.Errorf("wanted 20 appends of %d tries, found %+v", log.n, f)
		}
		if got := len(kept(t, s, 1)); got != 60 {
			t.Errorf("wanted 60 entries, found %d", got)
		}
	})
}

// A log goes on where it was left off, under a higher epoch.
func TestResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := eventstore.New(takes(always(4*time.Millisecond)), nil)
		c := config(s)
		c.Logs, c.Batch = 2, 3
		first, second := must(t, c), must(t, c)
		if first.Epoch != 1 || second.Epoch != 2 || first.Appends < 490 || second.Appends < 490 {
			t.Errorf("found %+v and %+v", first, second)
		}
		all := 0
		for log := 1; log <= 2; log++ {
			entries := kept(t, s, log)
			all += len(entries)
			if entries[0].Epoch != 1 || entries[len(entries)-1].Epoch != 2 {
				t.Errorf("log %d: wanted epochs 1 and 2, found %d and %d", log, entries[0].Epoch, entries[len(entries)-1].Epoch)
			}
		}
		if want := first.Entries + second.Entries; int64(all) != want || want != 3*(first.Appends+second.Appends) {
			t.Errorf("wanted %d entries, found %d", want, all)
		}
	})
}

// A run with a higher epoch ends the one before, which has its figures all the same
// and trims nothing any more.
func TestTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := eventstore.New(takes(always(4*time.Millisecond)), nil)
		c := config(s)
		c.Logs, c.Epoch, c.Retain, c.Duration = 4, 7, 50, time.Minute
		var first *Figures
		var err error
		var done sync.WaitGroup
		done.Go(func() { first, err = Run(t.Context(), c) })
		time.Sleep(500 * time.Millisecond)

		for _, epoch := range []eventstore.Epoch{6, 7} { // of another holder
			low := c
			low.Epoch = epoch
			if f, err := Run(t.Context(), low); f != nil || !errors.Is(err, eventstore.ErrFenced) {
				t.Errorf("epoch %d: wanted to be fenced, found %+v (%v)", epoch, f, err)
			}
		}
		second := c
		second.Epoch, second.Duration, second.Retain = 8, time.Second, 1000
		f := must(t, second)
		done.Wait()
		if !errors.Is(err, eventstore.ErrFenced) || first.Ended != EndedByRefusal || first.Failed == 0 || first.Epoch != 7 || first.Appends < 480 || first.Seconds > 1 {
			t.Errorf("wanted the first run to end fenced, found %+v (%v)", first, err)
		}
		if f.Epoch != 8 || f.Failed != 0 || f.Appends < 980 {
			t.Errorf("wanted the second run to go on, found %+v", f)
		}
	})
}

// Logs are kept short while the run lasts, and as short as asked for in the end.
func TestRetained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := takes(always(4 * time.Millisecond))
		log.trims = 15 * time.Millisecond
		s := eventstore.New(log, nil)
		c := config(s)
		c.Logs, c.Batch, c.Retain, c.Interval = 2, 3, 100, 10*time.Millisecond
		most := 0
		c.Live = func(Interval) {
			for _, stream := range []eventstore.Stream{"bench-1", "bench-2"} {
				h, err := s.Head(t.Context(), stream)
				if err != nil {
					t.Error(err)
				}
				most = max(most, int(h.Last.Seqno-h.Trimmed))
			}
		}
		f := must(t, c)
		// A quarter more and what is appended while two logs are trimmed.
		if most > 100+25+9*3 || most < 100 {
			t.Errorf("wanted about 125 entries at most, found %d", most)
		}
		if f.Trims < f.Entries/30/2 || f.TrimsFailed != 0 || f.LastError != "" {
			t.Errorf("wanted trims without failures, found %+v", f)
		}
		for log := 1; log <= 2; log++ {
			if got := len(kept(t, s, log)); got != 100 {
				t.Errorf("log %d: wanted 100 entries, found %d", log, got)
			}
		}
		// What stops a trim is told, and does not stop the run.
		if err := s.SetHold(t.Context(), eventstore.Hold{Name: "archive", Category: "bench"}); err == nil {
			t.Fatal("wanted a hold over what is trimmed to be refused")
		}
		head, err := s.Head(t.Context(), "bench-1")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetHold(t.Context(), eventstore.Hold{Name: "archive", Category: "bench", Stream: "bench-1", Seqno: head.Last.Seqno}); err != nil {
			t.Fatal(err)
		}
		c.Live = nil
		if f := must(t, c); f.TrimsFailed == 0 || f.LastError == "" || f.Failed != 0 || f.TrimsFailed == f.Trims {
			t.Errorf("wanted the trims of one log stopped, found %+v", f)
		}
	})
}

// A trim that the end of the run breaks off is made up for, also when nothing was
// appended since.
func TestTrimBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := takes(always(0))
		log.trims = 3 * time.Second
		log.bend = func(ctx context.Context, n int, write func() (eventstore.Appended, error)) (eventstore.Appended, error) {
			if n < 125 {
				return write()
			}
			return eventstore.Appended{}, &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "append"}
		}
		c := config(eventstore.New(log, nil))
		c.Retain, c.RPS = 100, 150
		if f := must(t, c); f.Appends != 125 || f.Trims != 1 || f.TrimsFailed != 0 || f.Seconds > 1 || len(kept(t, c.Store, 1)) != 100 {
			t.Errorf("wanted 100 of 125 entries kept by one trim, found %+v", f)
		}
	})
}

type withStreams struct{}

func (withStreams) CreateStreams(context.Context, ...eventstore.Stream) error { return nil }

func TestDedicatedNeedsAStoreThatMakesStreams(t *testing.T) {
	if _, err := creatorOf(withStreams{}); err != nil {
		t.Error(err)
	}
	if _, err := creatorOf(struct{}{}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "--layout dedicated") {
		t.Errorf("wanted it refused, found %v", err)
	}
}

// Rows come from a function, where a layout cuts.
func TestRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(eventstore.New(takes(always(time.Millisecond)), nil))
		c.RPS, c.Batch = 10, 2
		if f := must(t, c); f.Rows != nil || f.ChunkCuts != nil {
			t.Errorf("wanted no rows, found %+v", f)
		}
		c.Rows = func(size int) int { return size / 25 }
		if f := must(t, c); f.Rows == nil || *f.Rows != 80 || *f.ChunkCuts != 60 {
			t.Errorf("wanted 80 rows of 20 entries, found %+v", f)
		}
	})
}
