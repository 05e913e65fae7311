// Command carrier measures a decision of the loan process through each carrier beside the
// native call, in one run: added latency, allocations, bytes. The figures to quote are the
// ratios.
//
//	go run ./internal/bench/carrier -calls 2000
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/examples/loan/wire/wiretest"
	"github.com/wattle-es/wattle/handler"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("carrier", flag.ContinueOnError)
	flags.SetOutput(stderr)
	calls := flags.Int("calls", 2000, "calls through each carrier, interleaved in ten rounds")
	only := flags.String("only", "", "carriers to measure beside native, comma-separated; without it all")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := measure(context.Background(), stdout, max(*calls/rounds, 1), *only); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

const rounds = 10

// way is one way to have the same command decided.
type way struct {
	name   string
	decide func(ctx context.Context) error
	times  []time.Duration
	allocs uint64
	bytes  uint64  // allocated
	perSec float64 // with a caller for each core
}

// carried is a handler with what its carrier needs closed.
type carried struct {
	name  string
	start func(ctx context.Context, s *site) (handler.Handler, error)
}

func measure(ctx context.Context, out io.Writer, calls int, only string) error {
	r, state, command, err := request()
	if err != nil {
		return err
	}
	s, err := newSite()
	if err != nil {
		return err
	}
	defer s.close()
	native := func(context.Context) error {
		_, err := loan.Decide(state, command)
		return err
	}
	ways := []*way{{name: "native call", decide: native}}
	for _, c := range carriers {
		if only != "" && !slices.Contains(strings.Split(only, ","), c.name) {
			continue
		}
		h, err := c.start(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		ways = append(ways, &way{name: c.name, decide: func(ctx context.Context) error {
			reply, err := h.Handle(ctx, r)
			switch {
			case err != nil:
				return err
			case len(reply.Events) != 1:
				return fmt.Errorf("wanted an event, found %+v", reply)
			}
			return nil
		}})
	}
	for range rounds { // interleaved, so that a slow moment of the machine is everybody's
		for _, w := range ways {
			if err := w.round(ctx, calls); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	for _, w := range ways {
		if err := w.together(ctx, calls*rounds); err != nil {
			return err
		}
	}
	return report(out, ways, len(handler.AppendRequest(nil, r)))
}

// request is the decision that is measured: a step of a long application, the state before
// it as JSON.
func request() (*handler.Request, loan.State, loan.Command, error) {
	state := loan.Initial()
	var command loan.Command
	for app := range loan.Generate(7, 1) {
		for i := range app.Events {
			c, err := loan.CommandFor(app, i)
			if err != nil {
				return nil, state, nil, err
			}
			command = c
			if i == len(app.Events)-1 {
				break
			}
			events, err := loan.Decide(state, c)
			if err != nil {
				return nil, state, nil, err
			}
			for _, e := range events {
				state = loan.Evolve(state, e)
			}
		}
	}
	wired, err := wiretest.Command(command)
	if err != nil {
		return nil, state, nil, err
	}
	data, err := jsonOf(state)
	return &handler.Request{Op: handler.Decide, Key: eventstore.NewUUID(), Stream: eventstore.Stream(wire.Category + "-1"), State: data, StateVersion: 1,
		Command: &wired, Now: time.Unix(0, 0), ID: eventstore.NewUUID()}, state, command, err
}

// round makes calls one after another.
func (w *way) round(ctx context.Context, calls int) error {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		from := time.Now()
		if err := w.decide(ctx); err != nil {
			return err
		}
		w.times = append(w.times, time.Since(from))
	}
	runtime.ReadMemStats(&after)
	w.allocs += after.Mallocs - before.Mallocs
	w.bytes += after.TotalAlloc - before.TotalAlloc
	return nil
}

// together makes calls from as many callers as there are cores.
func (w *way) together(ctx context.Context, calls int) error {
	callers := runtime.GOMAXPROCS(0)
	from := time.Now()
	var wait sync.WaitGroup
	errs := make(chan error, callers)
	for range callers {
		wait.Go(func() {
			for range calls / callers {
				if err := w.decide(ctx); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wait.Wait()
	close(errs)
	w.perSec = float64(calls/callers*callers) / time.Since(from).Seconds()
	return <-errs
}

func report(out io.Writer, ways []*way, bytes int) error {
	_, err := fmt.Fprintf(out, "a decision of the loan process, request of %d bytes, %d cores, Go %s\n\n%-16s %10s %10s %10s %11s %11s %8s %10s %9s\n",
		bytes, runtime.GOMAXPROCS(0), strings.TrimPrefix(runtime.Version(), "go"),
		"carrier", "min", "p50", "p99", "added p50", "added p99", "allocs", "allocated", "calls/s")
	for _, w := range ways {
		slices.Sort(w.times)
	}
	n := uint64(len(ways[0].times))
	for _, w := range ways {
		at := func(w *way, q float64) time.Duration { return w.times[int(q*float64(len(w.times)-1))] }
		if err == nil {
			_, err = fmt.Fprintf(out, "%-16s %10s %10s %10s %11s %11s %8d %8d B %9.0f\n", w.name, short(at(w, 0)), short(at(w, 0.5)), short(at(w, 0.99)),
				short(at(w, 0.5)-at(ways[0], 0.5)), short(at(w, 0.99)-at(ways[0], 0.99)), w.allocs/n, w.bytes/n, w.perSec)
		}
	}
	return err
}

func short(d time.Duration) string {
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.2f µs", float64(d)/1e3)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.0f µs", float64(d)/1e3)
	}
	return fmt.Sprintf("%.1f ms", float64(d)/1e6)
}
