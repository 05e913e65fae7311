// What a run measures: latencies and counts, and the figures made of them.

package load

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The histograms hold 1 µs to an hour at three significant digits; what takes longer
// counts as an hour.
const (
	mostMicros = int64(time.Hour / time.Microsecond)
	digits     = 3
)

// Figures are what a run has measured. Latency is in µs, from when a send was due (in
// a closed loop: begun) to its answer; it is that of appends that were acknowledged,
// resends included.
type Figures struct {
	Seed     uint64  `json:"seed"`
	Category string  `json:"category"`
	Layout   string  `json:"layout"`
	Logs     int     `json:"logs"`
	Epoch    uint64  `json:"epoch"` // the highest of the logs
	RPS      float64 `json:"rps"`   // asked for; 0: closed loop
	Batch    int     `json:"batch"`
	Seconds  float64 `json:"seconds"` // from the first send to the last answer
	Ended    string  `json:"ended"`   // by what

	Scheduled int64 `json:"scheduled"` // sends due in an open loop: appends, failed and skipped
	Appends   int64 `json:"appends"`   // acknowledged
	Entries   int64 `json:"entries"`   // in these
	Bytes     int64 `json:"bytes"`     // of payload in these
	Skipped   int64 `json:"skipped"`   // given up without being sent
	Failed    int64 `json:"failed"`    // sent and not acknowledged
	Resends   int64 `json:"resends"`   // of batches whose outcome was unknown

	P50  int64 `json:"p50_us"`
	P99  int64 `json:"p99_us"`
	P999 int64 `json:"p999_us"`
	Max  int64 `json:"max_us"`

	AppendsPerSecond float64 `json:"appends_per_second"`
	EntriesPerSecond float64 `json:"entries_per_second"`
	MiBPerSecond     float64 `json:"mib_per_second"`

	WALPerAppend   *float64 `json:"wal_bytes_per_append"`   // null: the store has none, or nothing was appended
	TripsPerAppend *float64 `json:"round_trips_per_append"` // null likewise
	Rows           *int64   `json:"rows"`                   // of the entries; null: the layout has one an entry
	ChunkCuts      *int64   `json:"chunk_cuts"`             // rows beyond one an entry; null likewise

	Trims       int64  `json:"trims"`
	TrimsFailed int64  `json:"trims_failed"`
	LastError   string `json:"last_error"` // of an append or trim that failed; empty: none
}

// The ways a run ends.
const (
	EndedByTime      = "duration"
	EndedByInterrupt = "interrupted"
	EndedByRefusal   = "refused" // a log was taken over, or is not what its owner left
)

// Interval is the time since the last one.
type Interval struct {
	Elapsed  time.Duration // since the start
	PerSec   float64       // appends acknowledged
	P50, P99 time.Duration // of these
	Late     int64         // sends that are due and not begun, now
	Failed   int64         // appends, since the start
}

// meter takes what the owners measure. It may be used from several goroutines at once.
type meter struct {
	rows func(size int) int // nil: one

	mu       sync.Mutex
	all      *hdrhistogram.Histogram
	interval *hdrhistogram.Histogram
	began    time.Time // the interval
	sum      Figures   // its counts
	cut      int64     // rows
	last     error     // of an append
}

func newMeter(rows func(int) int) *meter {
	return &meter{rows: rows, all: hdrhistogram.New(1, mostMicros, digits), interval: hdrhistogram.New(1, mostMicros, digits)}
}

func (m *meter) acked(took time.Duration, sizes []int) {
	micros := min(max(took.Microseconds(), 0), mostMicros)
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = m.all.RecordValue(micros) // it lies in the range
	_ = m.interval.RecordValue(micros)
	m.sum.Appends++
	m.sum.Entries += int64(len(sizes))
	for _, n := range sizes {
		m.sum.Bytes += int64(n)
		if m.rows != nil {
			m.cut += int64(m.rows(n))
		}
	}
}

func (m *meter) failed(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sum.Failed++
	m.sum.LastError, m.last = err.Error(), err
}

// lastFailure is the last error of an append, nil if there was none.
func (m *meter) lastFailure() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

func (m *meter) resent() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sum.Resends++
}

func (m *meter) trimmed(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sum.Trims++
	if err != nil {
		m.sum.TrimsFailed++
		m.sum.LastError = err.Error()
	}
}

// begin begins the first interval.
func (m *meter) begin(t time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began = t
}

// next ends an interval and begins another.
func (m *meter) next(t time.Time) Interval {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := func(q float64) time.Duration { return time.Duration(m.interval.ValueAtQuantile(q)) * time.Microsecond }
	i := Interval{PerSec: per(m.interval.TotalCount(), t.Sub(m.began).Seconds()), P50: at(50), P99: at(99), Failed: m.sum.Failed}
	m.interval.Reset()
	m.began = t
	return i
}

// figures are those of everything that lasted took.
func (m *meter) figures(took time.Duration) *Figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.sum
	f.Seconds = took.Seconds()
	f.P50, f.P99, f.P999, f.Max = m.all.ValueAtQuantile(50), m.all.ValueAtQuantile(99), m.all.ValueAtQuantile(99.9), m.all.Max()
	f.AppendsPerSecond, f.EntriesPerSecond = per(f.Appends, f.Seconds), per(f.Entries, f.Seconds)
	f.MiBPerSecond = per(f.Bytes, f.Seconds) / (1 << 20)
	if m.rows != nil {
		f.Rows, f.ChunkCuts = new(m.cut), new(m.cut-f.Entries)
	}
	return &f
}

func per(n int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}

// perAppend is nil where nothing was appended.
func (f *Figures) perAppend(n int64) *float64 {
	if f.Appends == 0 {
		return nil
	}
	return new(float64(n) / float64(f.Appends))
}
