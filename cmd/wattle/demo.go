// wattle demo: the loan process of a bank, end to end.

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/examples/loan/bankpg"
)

// maxCases bounds --cases.
const maxCases = 10_000_000

// demo is what the flags of demo say.
type demo struct {
	xes     string
	cases   int
	seed    uint64
	nats    string
	json    bool
	writers int
	workers int
	rebuild bool
	fresh   bool
	worker  bool // be a worker, and nothing else
	parent  bool // end when stdin does
}

func (a *app) demoCommand() *cobra.Command {
	var d demo
	c := &cobra.Command{
		Use:   "demo",
		Short: "run the loan process of a bank and print its report",
		Long: `Demo runs the main job of Wattle: loan applications are aggregates, each event of a log is one
command that a Decider decides, the events are projected into a read model as they come, and
the report is made of that.

The log is made up (--cases, --seed), or that of a real bank: --xes takes an XES file, plain or
gzip, or - for stdin, as the BPI Challenge 2012 has one.

Without --store and ` + storeVariable + ` the store is one in files, wattle/demo in the user's state folder
($XDG_STATE_HOME or ~/.local/state; on macOS ~/Library/Application Support, on Windows
%LocalAppData%). It says where. --fresh removes that store first, and never anything else. Of a
store in files the read model is in memory, made anew from the events at each start. In
PostgreSQL the demo migrates the store's schema if it is missing and keeps the read model in a
schema of its own, named like the store's with _loan behind. The report is over all applications
in the store.

Of applications that are made up, those expire whose offers nobody has answered for 30 days when
the last event of the log happens: a process manager sets a timer for each offer, on the log's
clock, and cancels offer and application when it fires. In PostgreSQL a customer can have one
open application at most, by a table that is written in the transaction of the submission. With
--xes neither is done, since there the bank decided.

--workers says how many workers make the report. They share the 16 lanes of its projector, and
those that are left take over the lanes of one that is killed or frozen. In memory and in files
all are part of this process; in PostgreSQL all but the first are processes of their own, and
--worker has this process be a further one, here or on another machine, until it is interrupted.
wattle projector shows the lanes of the projector loan-report, rebuilds, switches and rolls back.

It may be killed and run again at any time, also with the same log: what is recorded is not
executed again, and compared with the log. A rule of the domain that refuses an event ends it
with exit code 4, a damaged file with 7; what was imported until then is consistent and stays.

The report is tables, or with --json (or -o json) one JSON object and nothing else on stdout:
cases, events, outcomes, months (Europe/Amsterdam), amount (whole euros), hours (from
submission to outcome), work (hours), nostart (completions without a start).`,
		Example: `  wattle demo
  wattle demo --fresh --cases 1000 --seed 7 --json
  wattle demo --store mem:
  wattle demo --xes bpic2012.xes.gz --store 'postgres://app@localhost/bank?schema=wattle'
  wattle demo --workers 8 --store 'postgres://app@localhost/bank?schema=wattle'
  wattle demo --worker --store 'postgres://app@localhost/bank?schema=wattle'
  zcat bpic2012.xes.gz | wattle demo --xes - --json
  wattle read application-173688 --store 'postgres://app@localhost/bank?schema=wattle'`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := d.check(c); err != nil {
				return err
			}
			if d.worker {
				return a.demoWorker(c.Context(), d)
			}
			return a.demo(c.Context(), d)
		},
	}
	f := c.Flags()
	f.StringVar(&d.xes, "xes", "", "XES `FILE` to replay, plain or gzip; - for stdin")
	f.IntVar(&d.cases, "cases", 200, "how many applications to make up")
	f.Uint64Var(&d.seed, "seed", 1, "what to make them up from: the same gives the same")
	f.StringVar(&d.nats, "nats", "", "`URL` of a NATS server to announce appends on")
	f.BoolVar(&d.json, "json", false, "the same as -o json")
	f.IntVar(&d.writers, "writers", bank.DefaultWriters, "how many applications to work on at once")
	f.IntVar(&d.workers, "workers", 1, "how many workers make the report")
	f.BoolVar(&d.worker, flagWorker, false, "be one more worker of the report of a store in PostgreSQL, and nothing else")
	f.BoolVar(&d.parent, flagParent, false, "end when stdin does")
	_ = f.MarkHidden(flagParent)
	f.BoolVar(&d.rebuild, "rebuild", false, "make the read model in PostgreSQL anew from the store, and look at all deadlines again")
	f.BoolVar(&d.fresh, "fresh", false, "remove what an earlier demo has left, if it is in the state folder")
	_ = c.MarkFlagFilename("xes", "xes", "gz")
	return c
}

func (d *demo) check(c *cobra.Command) error {
	if d.xes != "" {
		for _, flag := range []string{"cases", "seed"} {
			if c.Flags().Changed(flag) {
				return &usageError{"--xes or --" + flag, "both", "a file is not made up"}
			}
		}
	}
	if d.worker {
		for _, flag := range []string{"xes", "cases", "seed", "writers", "workers", "rebuild", "fresh", "json"} {
			if c.Flags().Changed(flag) {
				return &usageError{"--" + flagWorker + " or --" + flag, "both", "a worker imports nothing and prints no report"}
			}
		}
	}
	return cmp.Or(checkRange("--cases", d.cases, 0, maxCases), checkRange("--writers", d.writers, 1, bank.MaxWriters),
		checkRange("--workers", d.workers, 1, bank.MaxWorkers))
}

func (a *app) demo(ctx context.Context, d demo) error {
	in, err := a.input(d)
	if err != nil {
		return err
	}
	defer in.close()
	t, own, err := a.demoTarget(d)
	if err != nil {
		return err
	}
	s, err := a.demoStore(ctx, t, d)
	if err != nil {
		return err
	}
	defer s.Close()
	view, err := demoView(ctx, s, d)
	if err != nil {
		return err
	}
	service, err := bank.New(ctx, s.Store, view, d.options(s, view))
	if err != nil {
		return err
	}
	if deadlines := service.Deadlines(); deadlines != nil && d.rebuild {
		if err := deadlines.Reset(ctx); err != nil {
			return err
		}
	}
	if t.InFiles() {
		if err := a.catchUp(ctx, t, own, service); err != nil {
			return err
		}
	}
	if t.InPostgres() && d.workers > 1 {
		crew, err := a.startWorkers(d)
		if err != nil {
			return err
		}
		defer crew.stop()
	}
	count := &bank.Count{}
	began := time.Now()
	stop := a.console.progress(func() string { return in.line(count, time.Since(began)) })
	report, err := service.Replay(ctx, in.cases, &bank.ImportOptions{Writers: d.writers, Count: count})
	stop()
	if err != nil {
		return explained(err, own)
	}
	if a.console.live {
		a.console.say(summary(count, time.Since(began)))
	}
	if d.json || a.output == outputJSON {
		return a.printJSON(report)
	}
	return report.WriteTable(a.stdout)
}

// options of the service, by the kind of the store and of the log.
func (d demo) options(s *open.Store, view bank.View) *bank.Options {
	o := &bank.Options{Workers: d.workers, Deadlines: d.xes == ""}
	if v, ok := view.(*bankpg.View); ok {
		o.Workers = 1 // in this process
		if d.xes == "" {
			o.Append = v.Customers(s.Store)
		}
	}
	return o
}

// explained says what to do about errors that mean more here than elsewhere.
func explained(err error, own bool) error {
	if own && errors.Is(err, bank.ErrDiffers) {
		return fmt.Errorf("%w; give --fresh to begin anew, or --store for another store", err)
	}
	hints := map[error]string{
		eventstore.ErrDiverged: "the read model is of another history of the store; give --rebuild to make it anew",
		eventstore.ErrFenced:   "another demo projects on this store; what was imported stays, run this one again when the other has ended",
	}
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok || hints[e.Kind] == "" {
		return err
	}
	c := *e
	c.Hint = hints[e.Kind]
	return &c
}

// input is the log of a demo and how much of it there is.
type input struct {
	cases iter.Seq2[loan.Case, error]
	close func()
	done  func() float64 // share of the log that was read, 0 to 1; negative: unknown
}

func (a *app) input(d demo) (*input, error) {
	switch d.xes {
	case "":
		return generated(d), nil
	case "-":
		return &input{cases: loan.ReadXES(a.stdin), close: func() {}, done: func() float64 { return -1 }}, nil
	}
	f, err := os.Open(d.xes)
	if err != nil {
		return nil, &coded{fmt.Errorf("read the log: %w; give --xes the path of an XES file", err), exitBadInput}
	}
	in := &input{close: func() { _ = f.Close() }}
	r := &countingReader{r: f}
	in.cases = loan.ReadXES(r)
	size := int64(0)
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	in.done = func() float64 {
		if size == 0 {
			return -1
		}
		return float64(r.n.Load()) / float64(size)
	}
	return in, nil
}

func generated(d demo) *input {
	in := &input{close: func() {}}
	read := &countingReader{}
	in.cases = func(yield func(loan.Case, error) bool) {
		for c := range loan.Generate(d.seed, d.cases) {
			read.n.Add(1)
			if !yield(c, nil) {
				return
			}
		}
	}
	in.done = func() float64 { return float64(read.n.Load()) / float64(max(d.cases, 1)) }
	return in
}

// line is the progress of an import.
func (in *input) line(c *bank.Count, took time.Duration) string {
	share := ""
	if done := in.done(); done >= 0 {
		share = fmt.Sprintf("%3.0f%%  ", 100*done)
	}
	return share + summary(c, took)
}

func summary(c *bank.Count, took time.Duration) string {
	events := c.Events.Load()
	s := fmt.Sprintf("%d applications, %d events in %v: %.0f events/s", c.Cases.Load(), events, took.Round(100*time.Millisecond),
		float64(events)/max(took.Seconds(), 0.001))
	if known := c.Known.Load(); known > 0 {
		s += fmt.Sprintf(" (%d known)", known)
	}
	return s
}

// countingReader counts what was read. Any goroutine may look.
type countingReader struct {
	r io.Reader
	n atomic.Int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n.Add(int64(n))
	return n, err
}
