// Command server measures the server beside the embedded store and beside NATS JetStream
// with a sync for each message, in one run: publishers that wait for their answers, what a
// call costs more than one in the process, and how soon a follower has what was acked. The
// figures to quote are the ratios.
//
//	go run ./internal/bench/server -duration 3s
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// settings are what the flags say.
type settings struct {
	duration   time.Duration
	publishers int
	bytes      int
	rounds     int
}

func run(args []string, stdout, stderr io.Writer) int {
	var s settings
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&s.duration, "duration", 2*time.Second, "of each measurement")
	flags.IntVar(&s.publishers, "publishers", 64, "publishers at once, each waiting for its answers")
	flags.IntVar(&s.bytes, "bytes", 1024, "data of a message")
	flags.IntVar(&s.rounds, "rounds", 3, "rounds, interleaved; the median counts")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := s.measure(context.Background(), stdout); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// way is one way to have messages written. publish writes one of a publisher and returns
// when it is durable.
type way struct {
	name    string
	publish func(ctx context.Context, publisher int, data []byte) error
	rates   []float64
	times   []time.Duration
}

func (s *settings) measure(ctx context.Context, out io.Writer) error {
	b, err := openBench(ctx, s.publishers)
	if err != nil {
		return err
	}
	defer b.close()
	fmt.Fprintf(out, "%d publishers, messages of %d bytes, %d rounds of %v, %d cores, %s\n\n", s.publishers, s.bytes, s.rounds, s.duration, runtime.GOMAXPROCS(0), runtime.Version())
	for range s.rounds {
		for _, w := range b.ways {
			if err := s.round(ctx, w); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	report(out, b.ways)
	if err := b.latencies(ctx, out); err != nil {
		return err
	}
	for _, x := range b.sites {
		if err := s.beside(ctx, x, out); err != nil {
			return err
		}
	}
	return nil
}

// round has all publishers publish for a time.
func (s *settings) round(ctx context.Context, w *way) error {
	data := make([]byte, s.bytes)
	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	n, began := 0, time.Now()
	for p := range s.publishers {
		all.Go(func() {
			var mine []time.Duration
			for at := time.Now(); time.Since(began) < s.duration; {
				if err := w.publish(ctx, p, data); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				now := time.Now()
				mine, at = append(mine, now.Sub(at)), now
			}
			mu.Lock()
			defer mu.Unlock()
			n += len(mine)
			w.times = append(w.times, mine...)
		})
	}
	all.Wait()
	w.rates = append(w.rates, float64(n)/time.Since(began).Seconds())
	return failed
}

func median[T float64 | time.Duration](all []T, q float64) T {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(q*float64(len(sorted)-1))]
}

// report prints the rates, those behind a server also as a part of the way before it, and
// all as a part of JetStream's, which is the last one.
func report(out io.Writer, ways []*way) {
	stream := median(ways[len(ways)-1].rates, 0.5)
	fmt.Fprintf(out, "%-34s %10s %10s %10s %10s %12s\n", "way", "messages/s", "p50", "p99", "× embedded", "× JetStream")
	embedded := 0.0
	for i, w := range ways {
		rate, of := median(w.rates, 0.5), "-"
		if i%2 == 0 {
			embedded = rate
		} else {
			of = fmt.Sprintf("%.2f", rate/embedded)
		}
		fmt.Fprintf(out, "%-34s %10.0f %10s %10s %10s %12.2f\n", w.name, rate, short(median(w.times, 0.5)), short(median(w.times, 0.99)), of, rate/stream)
	}
}

func short(d time.Duration) string {
	return d.Round(d / 100 / 10 * 10).Round(time.Microsecond).String()
}
