// Measuring: goroutines that work for a time, medians, and what /proc tells.

package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// sample is one measurement.
type sample struct {
	n     int // operations
	took  time.Duration
	cpu   time.Duration // of this process
	times []time.Duration
}

func (s sample) rate() float64 { return float64(s.n) / s.took.Seconds() }

func (s sample) cpuEach() float64 { return micros(s.cpu) / float64(max(s.n, 1)) }

// drive calls do from n goroutines for d. Each call is so many operations.
func drive(n int, d time.Duration, each int, do func(worker int) error) (sample, error) {
	var mu sync.Mutex
	var out sample
	var failed error
	var all sync.WaitGroup
	start, cpu := time.Now(), ownCPU()
	for w := range n {
		all.Go(func() {
			var mine []time.Duration
			var err error
			for last := start; err == nil && last.Sub(start) < d; {
				err = do(w)
				now := time.Now()
				mine, last = append(mine, now.Sub(last)), now
			}
			mu.Lock()
			defer mu.Unlock()
			out.times = append(out.times, mine...)
			failed = errors.Join(failed, err)
		})
	}
	all.Wait()
	out.n, out.took, out.cpu = len(out.times)*each, time.Since(start), ownCPU()-cpu
	slices.Sort(out.times)
	return out, failed
}

// quantile of the times, in µs.
func (s sample) quantile(q float64) float64 {
	if len(s.times) == 0 {
		return 0
	}
	return micros(s.times[int(q*float64(len(s.times)-1))])
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func median(all []float64) float64 { return ratioOf(slices.Clone(all)).Median }

// pair is a floor and the product, measured in turn.
type pair struct{ product, floor []sample }

// inTurn measures both, several times, the other one first every second time.
func inTurn(repeats int, product, floor func() (sample, error)) (p pair, err error) {
	for i := range repeats {
		order := []func() error{
			func() error { s, err := floor(); p.floor = append(p.floor, s); return err },
			func() error { s, err := product(); p.product = append(p.product, s); return err }}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, measure := range order {
			if err := measure(); err != nil {
				return p, err
			}
		}
	}
	return p, nil
}

func medianOf(all []sample, of func(sample) float64) float64 {
	var values []float64
	for _, s := range all {
		values = append(values, of(s))
	}
	return median(values)
}

// ratio of the product to the floor, by a figure of which more is better.
func (p pair) ratio(of func(sample) float64) *ratio {
	var all []float64
	for i := range p.product {
		all = append(all, of(p.product[i])/of(p.floor[i]))
	}
	return ratioOf(all)
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// loadAverage of the last minute, as /proc tells it; empty elsewhere.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(text), " ")
	return one
}

// residentBytes of this process, 0 where /proc does not tell.
func residentBytes() int64 {
	text, _ := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// openFiles counts the open files of a directory that this process has.
func openFiles(dir string) (n int) {
	names, _ := filepath.Glob("/proc/self/fd/*") // the only error is a malformed pattern
	for _, name := range names {
		if to, err := os.Readlink(name); err == nil && strings.HasPrefix(to, dir+"/") {
			n++
		}
	}
	return n
}
