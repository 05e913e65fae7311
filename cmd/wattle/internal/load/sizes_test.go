// Sizes and payloads, schedules far out, and what a run refuses.

package load

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

func TestParseSizes(t *testing.T) {
	for text, want := range map[string]Sizes{
		"900":           {{900, 1}},
		"0":             {{0, 1}},
		"1k":            {{1024, 1}},
		"1k:9,32k:1":    {{1024, 9}, {32 << 10, 1}},
		"8m:1000000":    {{8 << 20, 1_000_000}},
		"1:1,1:2,8192k": {{1, 1}, {1, 2}, {8 << 20, 1}},
	} {
		if got, err := ParseSizes(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: wanted %v, found %v (%v)", text, want, got, err)
		}
	}
	for _, text := range []string{"", ",", "1k,", "k", "-1", "+1", "1.5k", "1K", "1 k", " 1", "1k:", "1k:0", "1k:-1", "1k:1000001", "1k:1:1", "1k:x",
		"8388609", "9m", "8193k", "99999999999999999999", "1g", strings.Repeat("1,", maxSizes) + "1"} {
		if got, err := ParseSizes(text); !errors.Is(err, eventstore.ErrInvalid) || !strings.Contains(err.Error(), "--sizes") {
			t.Errorf("%q: wanted it refused, found %v (%v)", text, got, err)
		}
	}
}

func TestPayloads(t *testing.T) {
	sizes := Sizes{{1000, 9}, {32000, 1}, {0, 2}}
	some := func(seed, log uint64) (all [][]byte) {
		p := newPayloads(seed, log, sizes, noiseOf(seed, sizes))
		for range 12000 {
			all = append(all, p.next())
		}
		return all
	}
	first := some(1, 0)
	if !slices.EqualFunc(first, some(1, 0), bytes.Equal) {
		t.Error("wanted the same payloads of the same seed")
	}
	for _, other := range [][][]byte{some(2, 0), some(1, 1)} {
		if slices.EqualFunc(first, other, bytes.Equal) {
			t.Error("wanted other payloads of another seed or log")
		}
	}
	count := map[int]int{}
	for _, data := range first {
		count[len(data)]++
	}
	for _, s := range sizes {
		if got, want := count[s.Bytes], 1000*s.Weight; math.Abs(float64(got-want)) > 200 {
			t.Errorf("wanted about %d of %d bytes, found %d", want, s.Bytes, got)
		}
	}
}

// A schedule neither drifts nor loses sends to rounding, far out as at the start.
func TestSchedule(t *testing.T) {
	start := time.Now()
	for _, rps := range []float64{0.1, 1, 3, 7, 300, 1000, 33333.3} {
		for _, step := range []int64{1, 3, 16} {
			s := &schedule{start: start, rps: rps, first: step - 1, step: step, all: 1e15}
			for _, n := range []int64{0, 1, 2, 99, 1000, 86_399, 7_000_001} {
				at := s.at(n)
				want := time.Duration(math.Round(float64(step-1+n*step) / rps * 1e9))
				if off := at.Sub(start) - want; off < -time.Microsecond || off > time.Microsecond {
					t.Errorf("send %d of %v/s: wanted after %v, found %v", n, rps, want, at.Sub(start))
				}
				if due, before := s.due(at), s.due(at.Add(-1)); due != n+1 || before != n {
					t.Errorf("send %d of %v/s: wanted %d and %d due around it, found %d and %d", n, rps, n, n+1, before, due)
				}
			}
		}
	}
	for _, d := range []struct {
		d    time.Duration
		rps  float64
		want int64
	}{{time.Second, 100, 100}, {time.Second, 3, 3}, {time.Millisecond, 0.5, 1}, {1001 * time.Millisecond, 100, 101}, {30 * time.Second, 1000, 30_000}, {time.Second, 1.5, 2}} {
		if got := sendsIn(d.d, d.rps); got != d.want {
			t.Errorf("%v at %v/s: wanted %d sends, found %d", d.d, d.rps, d.want, got)
		}
		sum := int64(0)
		for log := range int64(7) {
			sum += (&schedule{first: log, step: 7, all: d.want}).total()
		}
		if sum != d.want {
			t.Errorf("wanted %d sends over all logs, found %d", d.want, sum)
		}
	}
}

func TestRefused(t *testing.T) {
	for want, bend := range map[string]func(*Config){
		"category":           func(c *Config) { c.Prefix = "a-b" },
		"--sizes":            func(c *Config) { c.Sizes = nil },
		"--rps of 0 to":      func(c *Config) { c.RPS = -1 },
		"--rps":              func(c *Config) { c.RPS = math.NaN() },
		"--rps of 0":         func(c *Config) { c.RPS = math.Inf(1) },
		"--logs of 1 to":     func(c *Config) { c.Logs = 0 },
		"--logs":             func(c *Config) { c.Logs = MaxLogs + 1 },
		"--batch of 1 to":    func(c *Config) { c.Batch = 0 },
		"--batch of --sizes": func(c *Config) { c.Batch, c.Sizes = 5, Sizes{{8 << 20, 1}} },
		"--retain":           func(c *Config) { c.Retain = -1 },
		"--duration":         func(c *Config) { c.Duration = 0 },
		"--interval":         func(c *Config) { c.Interval = time.Millisecond },
		"at most 2^63-1":     func(c *Config) { c.Epoch = math.MaxUint64 },
	} {
		c := config(eventstore.New(memlog.New(nil), nil))
		bend(&c)
		if f, err := Run(t.Context(), c); f != nil || !errors.Is(err, eventstore.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("wanted it refused for %s, found %v", want, err)
		}
	}
}
