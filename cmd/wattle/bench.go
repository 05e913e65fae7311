// wattle bench: loading a store, and what that takes.

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/load"
	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
)

// benchConnections bounds the connections that logs are worked with: beyond a few,
// appends of different logs go together.
const benchConnections = 16

// benchAppend is what the flags of bench append say.
type benchAppend struct {
	load.Config
	sizes, layout string
	epoch         uint64
}

func (a *app) benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "load a store and measure it",
		Long:  `Bench puts load on a store and says what became of it. It writes to a category of its own.`,
	}
	group(c)
	c.AddCommand(a.benchAppendCommand())
	return c
}

func (a *app) benchAppendCommand() *cobra.Command {
	var b benchAppend
	c := &cobra.Command{
		Use:   "append",
		Short: "append to many logs at a rate, and print latencies and costs",
		Long: `Append makes category PREFIX with the streams PREFIX-1, PREFIX-2 and so on if they are missing,
fences each of them and appends to it, going on where it was left off.

With --rps it is an open loop: the times of all sends are fixed at the start, the logs take
turns, and latency is measured from when a send was due. A log has one append in flight, for
its owner waits for the answer before the next. What is late is made up afterwards, in order.
Given up, and counted as skipped, are the oldest when more than ` + fmt.Sprint(load.DefaultMaxLate) + ` sends of a log are late, and
what has not been sent ` + load.DefaultGrace.String() + ` after the end. Then answers are waited for, ` + load.DefaultGrace.String() + ` at the most.

With --rps 0 it is a closed loop: each log appends as fast as it is answered. Latency is that
of the call then, and says nothing about what would have waited.

An append whose outcome is unknown is sent again until it is proved. Other failures are
counted, and the last one is printed. When a log was taken over, by a run with a higher
--epoch or without one, or is not what this run left, the run ends with its figures and exit
code 4. An interrupt ends it with its figures and exit code 130. If every append failed the
exit code is that of the last error.

With --retain N a log is trimmed, beside the appends, when it holds a quarter (or a batch)
more than N entries, and to N in the end.

A store in files is made if there is none. While it runs no other process writes to it.

Payloads do not compress; the same --seed gives the same ones. Latencies are those of the
appends that were acknowledged. Bytes of WAL are all that the server wrote meanwhile, trims
and other users included; round trips are those of the appends alone, with the preparing of
statements. Figures that a store does not have are null with -o json.

On stderr there is a line each --interval: time, appends/s, latencies of the interval, how many
sends are late, failures.`,
		Example: `  wattle bench append --store file:/tmp/bench --logs 16 --sizes 900 --duration 30s
  wattle bench append --rps 1000 --logs 16 --sizes 1k:9,32k:1 -o json
  wattle bench append --rps 2000 --logs 64 --batch 10 --retain 10000 --duration 10m --prefix clicks`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := b.parse(); err != nil {
				return err
			}
			return a.benchAppend(c.Context(), b.Config)
		},
	}
	f := c.Flags()
	f.Float64Var(&b.RPS, "rps", 0, "appends per second over all logs; 0: as fast as each log is answered")
	f.IntVar(&b.Logs, "logs", 16, "how many logs to append to")
	f.IntVar(&b.Batch, "batch", 1, "events of one append")
	f.StringVar(&b.sizes, "sizes", "1k", "payload `SIZES`, each with its weight, as 1k:9,32k:1")
	f.IntVar(&b.Retain, "retain", 0, "entries that a log keeps, the category trims freely then; 0: all")
	f.DurationVar(&b.Duration, "duration", 30*time.Second, "how long to send")
	layoutFlag(c, &b.layout)
	f.StringVar(&b.Prefix, "prefix", "bench", "`NAME` of the category, and of its streams before the number")
	f.Uint64Var(&b.epoch, "epoch", 0, "epoch to own the logs at; 0: the next one of each")
	f.DurationVar(&b.Interval, "interval", time.Second, "how often to print a line")
	f.Uint64Var(&b.Seed, "seed", 1, "what payloads are made from: the same gives the same")
	return c
}

// parse reads the flags that are text. What the numbers may be is for package load.
func (b *benchAppend) parse() (err error) {
	if b.Layout, err = parseLayout(b.layout); err != nil {
		return err
	}
	b.Epoch = eventstore.Epoch(b.epoch)
	b.Sizes, err = load.ParseSizes(b.sizes)
	return err
}

func (a *app) benchAppend(ctx context.Context, c load.Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	trips := &open.Trips{}
	return a.opened(ctx, open.Options{Connections: min(c.Logs, benchConnections), Trips: trips, Create: true}, func(s *open.Store) error {
		c.Store, c.Aside, c.Reclaim, c.Rows, c.Live = s.Store, s.Aside, s.Reclaim, s.RowsOf(c.Layout), a.benchLine
		if s.Pool != nil {
			c.Trips, c.WAL = trips.Count, s.WAL
		}
		f, err := load.Run(ctx, c)
		a.benchDone()
		if f == nil {
			return explainedLoad(err)
		}
		if e := a.printFigures(f); e != nil {
			return e
		}
		if err == nil {
			err = ctx.Err()
		}
		return explainedLoad(err)
	})
}

// explainedLoad says what to do about errors that mean more here than elsewhere.
func explainedLoad(err error) error {
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok {
		return err
	}
	c := *e
	switch {
	case e.Kind == eventstore.ErrFenced:
		c.Hint = "another run took the log over, or had a higher epoch already: give a higher --epoch, or another --prefix"
	case e.Kind == eventstore.ErrInvalid && e.Op == "create category":
		c.Hint = strings.TrimPrefix(e.Hint+"; or give another --prefix", "; ")
		return &coded{&c, exitRefused}
	}
	return &c
}

// benchLine prints how it goes: in place on a terminal, else line by line.
func (a *app) benchLine(i load.Interval) {
	line := fmt.Sprintf("%6.1fs  %8.0f appends/s  p50 %8s  p99 %8s  %d late  %d failed",
		i.Elapsed.Seconds(), i.PerSec, millis(i.P50.Microseconds()), millis(i.P99.Microseconds()), i.Late, i.Failed)
	if a.console.live {
		a.console.show(line)
		return
	}
	a.console.say(line)
}

func (a *app) benchDone() {
	if a.console.live {
		a.console.show("")
	}
}

func millis(us int64) string { return fmt.Sprintf("%.2f ms", float64(us)/1000) }

func (a *app) printFigures(f *load.Figures) error {
	if a.output == outputJSON {
		return a.printJSON(f)
	}
	rate := func(n float64, unit string) string { return fmt.Sprintf("%.1f %s", n, unit) }
	rows := [][]string{
		{"load", fmt.Sprintf("%d %s logs of %s, batch %d, seed %d", f.Logs, f.Layout, f.Category, f.Batch, f.Seed), "highest epoch " + str(f.Epoch)},
		{"appends", str(f.Appends), rate(f.AppendsPerSecond, "appends/s")},
		{"entries", str(f.Entries), rate(f.EntriesPerSecond, "entries/s")},
		{"payload", rate(float64(f.Bytes)/(1<<20), "MiB"), rate(f.MiBPerSecond, "MiB/s")},
		{"p50", millis(f.P50)}, {"p99", millis(f.P99)}, {"p99.9", millis(f.P999)}, {"max", millis(f.Max)},
		{"skipped", str(f.Skipped)}, {"failed", str(f.Failed)}, {"resends", str(f.Resends)},
	}
	if f.RPS > 0 {
		rows = append(rows, []string{"scheduled", str(f.Scheduled), rate(f.RPS, "appends/s")})
	}
	if f.TripsPerAppend != nil {
		rows = append(rows, []string{"round trips", fmt.Sprintf("%.3f", *f.TripsPerAppend), "per append"})
	}
	if f.WALPerAppend != nil {
		rows = append(rows, []string{"WAL", fmt.Sprintf("%.0f bytes", *f.WALPerAppend), "per append"})
	}
	if f.Rows != nil {
		rows = append(rows, []string{"rows", str(*f.Rows), str(*f.ChunkCuts) + " chunk cuts"})
	}
	if f.Trims > 0 {
		rows = append(rows, []string{"trims", str(f.Trims), str(f.TrimsFailed) + " failed"})
	}
	rows = append(rows, []string{"ended", fmt.Sprintf("%s after %.1f s", f.Ended, f.Seconds)})
	if err := a.printRows(rows); err != nil || f.LastError == "" {
		return err
	}
	_, err := fmt.Fprintf(a.stdout, "last error: %s\n", printable(f.LastError)) // too long for a column
	return err
}
