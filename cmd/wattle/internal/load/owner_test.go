// Owners and trims in memory: failures, lost answers, logs resumed and taken over.

package load

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

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
