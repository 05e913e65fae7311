// What a call costs.

package carriertest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

// OneKiB is a decision on a state with a command of 1 KiB.
func OneKiB() *handler.Request {
	r := Decide(1)
	r.Key, r.State = eventstore.NameUUID("k"), []byte(`{"sum":3}`)
	r.Command.Data = []byte(`{"N":1,"note":"` + strings.Repeat("x", 1000) + `"}`)
	return r
}

// Benchmark measures calls of h, one after another.
func Benchmark(b *testing.B, h handler.Handler) {
	c, err := handler.NewCaller(b.Context(), h, nil)
	if err != nil {
		b.Fatal(err)
	}
	r := OneKiB()
	r.StateVersion = c.Description().StateVersion
	Measure(b, func() error {
		_, err := c.Call(b.Context(), r)
		return err
	})
}

// Measure reports the median and the 99th percentile of a call beside the mean.
func Measure(b *testing.B, call func() error) {
	took := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		if err := call(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}
