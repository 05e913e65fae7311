// Package load is the machine of wattle bench append: it appends to logs of its own
// and measures what that takes.
//
// # Open loop and closed loop
//
// With a rate, send i is due at start + i/rate, fixed before the first one is sent, and
// the logs take turns. Latency is measured from when a send was due, so a store that
// stalls is charged for everything that had to wait. Every log has one append in
// flight, since an owner's next batch names the entry that the last one ended with: a
// send that finds it busy is late, and is made up as soon as it is answered, in order.
// Sends are given up, and counted as skipped, when more than MaxLate of a log are late
// (the oldest), or when they have not begun Grace after the end. Every send that was due
// ends as one of appended, failed or skipped.
//
// Without a rate each log appends as soon as it is answered, and latency is that of the
// call.
//
// # Owning the logs
//
// At the start each log is fenced and read up to its head; seqnos go on from there. An
// append whose answer was lost is sent again until it is proved. A run ends when a log
// answers that it is somebody else's (a run with a higher epoch took it over) or not
// what its owner left; other failures are counted and it goes on.
package load

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Bounds and defaults of a run.
const (
	MaxLogs     = 10_000
	MaxRPS      = 1_000_000
	MinInterval = 10 * time.Millisecond

	DefaultMaxLate = 10_000          // sends of one log that may be late
	DefaultGrace   = 5 * time.Second // for late sends after the end, then for answers
)

// Config says what to do. Store, Prefix, Logs, Batch, Sizes and Duration must be there.
type Config struct {
	Store *eventstore.Store
	// Aside is the same store for trims, if its calls are to be apart. Nil: Store.
	Aside *eventstore.Store
	// Reclaim gives back the space of what was trimmed, for about budget. Nil: nothing does.
	Reclaim func(ctx context.Context, budget time.Duration) error
	// Trips counts the round trips of Store so far. Nil: they are not known.
	Trips func() int64
	// WAL is how much the store's server has written to its log so far, in bytes, for
	// whomever. Nil, or an error: it is not known.
	WAL func(context.Context) (int64, error)
	// Rows is how many rows an entry with a payload of this size takes. Nil: one.
	Rows func(size int) int
	// Live is called every Interval, by one goroutine. Nil: nobody.
	Live     func(Interval)
	Interval time.Duration

	Prefix   string // the category's name; its streams are numbered from 1
	Layout   eventstore.Layout
	Logs     int
	Epoch    eventstore.Epoch // 0: each log's next one
	RPS      float64          // appends a second over all logs; 0: closed loop
	Batch    int              // events of an append
	Sizes    Sizes
	Retain   int // entries that a log keeps; 0: all
	Duration time.Duration
	Seed     uint64
	MaxLate  int           // 0: DefaultMaxLate
	Grace    time.Duration // 0: DefaultGrace
}

// Check answers ErrInvalid, in the words of the command line. Run does it too, but needs
// a store first.
func (c *Config) Check() error {
	_, err := eventstore.ParseCategory(c.Prefix)
	if err == nil && len(c.Sizes) == 0 {
		err = invalid("--sizes", "none")
	}
	number := func(flag string, n, least, most int) error {
		if n >= least && n <= most {
			return nil
		}
		return invalid(fmt.Sprintf("%s of %d to %d", flag, least, most), fmt.Sprint(n))
	}
	atLeast := func(flag string, d, least time.Duration) error {
		if d >= least {
			return nil
		}
		return invalid(fmt.Sprintf("%s of at least %v", flag, least), d.String())
	}
	rps := invalid(fmt.Sprintf("--rps of 0 to %d", MaxRPS), fmt.Sprint(c.RPS))
	if c.RPS >= 0 && c.RPS <= MaxRPS {
		rps = nil
	}
	bytes := invalid(fmt.Sprintf("--batch of --sizes in at most %d MiB", eventstore.MaxAppendBytes>>20), fmt.Sprintf("%d of up to %d bytes", c.Batch, c.Sizes.most()))
	if c.Batch*c.Sizes.most() <= eventstore.MaxAppendBytes {
		bytes = nil
	}
	return cmp.Or(err, rps, number("--logs", c.Logs, 1, MaxLogs), number("--batch", c.Batch, 1, eventstore.MaxBatchEvents),
		number("--retain", c.Retain, 0, math.MaxInt32), bytes, atLeast("--duration", c.Duration, time.Millisecond), atLeast("--interval", c.Interval, MinInterval))
}

// Run appends as c says. It returns figures unless it could not begin. An error beside
// them ended the run early, or is the last one where nothing at all was appended; that
// ctx has ended is none, and shows in Figures.Ended.
func Run(ctx context.Context, c Config) (*Figures, error) {
	c.MaxLate, c.Grace, c.Interval = cmp.Or(c.MaxLate, DefaultMaxLate), cmp.Or(c.Grace, DefaultGrace), cmp.Or(c.Interval, time.Second)
	if err := c.Check(); err != nil {
		return nil, err
	}
	r := &run{Config: &c, meter: newMeter(c.Rows)}
	if err := r.own(ctx); err != nil {
		return nil, err
	}
	wal, walKnown := r.wal(ctx)
	trips := r.trips()
	r.work(ctx)
	trips = r.trips() - trips
	f := r.figures
	if c.Trips != nil {
		f.TripsPerAppend = f.perAppend(trips)
	}
	if now, known := r.wal(ctx); known && walKnown {
		f.WALPerAppend = f.perAppend(now - wal)
	}
	return f, r.reason()
}

func invalid(wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "bench append", Wanted: wanted, Found: found}
}
