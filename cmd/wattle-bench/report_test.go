// What is made of the figures: medians, ratios within a repeat, the best, who is ahead; tables and JSON.

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func itself(v float64) float64 { return v }

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2}, {[]float64{1, 1, 100, 1, 100}, 1}} {
		if got := median(c.in, itself); got != c.want {
			t.Errorf("median of %v: wanted %v, found %v", c.in, c.want, got)
		}
	}
}

// The floor halves from repeat to repeat; within each the other is at 0.8 of it, which a ratio of medians would miss.
func TestRatioIsWithinARepeat(t *testing.T) {
	floor, other := []float64{1000, 500, 250}, []float64{800, 250, 225}
	got := ratioOf(other, floor, itself, itself)
	if want := (ratio{Median: 0.8, Min: 0.5, Max: 0.9}); got == nil || *got != want {
		t.Errorf("wanted %v, found %v", want, got)
	}
	if got := ratioOf(other, nil, itself, itself); got != nil {
		t.Errorf("without a base: wanted none, found %v", got)
	}
}

func TestQuantiles(t *testing.T) {
	var times []time.Duration
	for i := 100; i >= 1; i-- {
		times = append(times, time.Duration(i)*time.Microsecond)
	}
	if p50, p99 := quantiles(times); p50 != 50 || p99 != 99 {
		t.Errorf("of 1…100 µs: wanted 50 and 99, found %v and %v", p50, p99)
	}
	if p50, p99 := quantiles(nil); p50 != 0 || p99 != 0 {
		t.Errorf("of none: found %v and %v", p50, p99)
	}
}

// someReport has message-db ahead in rate with one writer, the product ahead with four, and the floor ahead of both.
func someReport(t *testing.T) *report {
	t.Helper()
	o := &options{chosen: participants, payload: 900, seconds: 1, repeats: 2, streams: 1, readStreams: 5, readEntries: 20}
	r := newReport(o)
	r.LoadAverage, r.Settings = "0.1", map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
	add := func(name string, writers int, rates ...float64) {
		for _, rate := range rates {
			r.append(participants[place(name)], writers, figures{Rate: rate, P50: 1e6 / rate, P99: 2e6 / rate, WAL: 1000})
		}
	}
	add("message-db", 4, 1000, 1100)
	add("message-db", 1, 900, 950)
	add(productName, 1, 800, 850)
	add(productName, 4, 2000, 2200)
	add(floorName, 1, 1000, 1000)
	add(floorName, 4, 4000, 4400)
	r.read(participants[place("message-db")], readFigures{Load: 10, LoadP50: 7, LoadP99: 9, Feed: 300, Scan: 600})
	r.read(participants[place(productName)], readFigures{Load: 20, LoadP50: 3, LoadP99: 5, Feed: 200, Scan: 800})
	r.read(participants[place("pgnotch")], readFigures{Load: 5, LoadP50: 8, LoadP99: 10, Scan: 900})
	r.finish()
	return r
}

func (r *report) rowOf(t *testing.T, name string, writers int) *appendRow {
	t.Helper()
	i := slices.IndexFunc(r.Appends, func(row *appendRow) bool { return row.Participant == name && row.Writers == writers })
	if i < 0 {
		t.Fatalf("no row of %s with %d writers", name, writers)
	}
	return r.Appends[i]
}

func TestReportTellsWhoIsAhead(t *testing.T) {
	r := someReport(t)
	var order []string
	for _, row := range r.Appends {
		order = append(order, row.Participant)
	}
	if want := []string{"floor", "wattle", "message-db", "floor", "wattle", "message-db"}; !slices.Equal(order, want) {
		t.Errorf("rows: wanted %v, found %v", want, order)
	}
	if got := r.rowOf(t, "message-db", 1); !slices.Contains(got.Best, "rate") || got.Ratio.Median != 0.9 {
		t.Errorf("message-db with 1 writer: wanted best in rate and 0.9 of the floor, found %v and %v", got.Best, got.Ratio)
	}
	if got := r.rowOf(t, productName, 4); !slices.Contains(got.Best, "rate") || got.Ratio.Median != 0.5 {
		t.Errorf("wattle with 4 writers: wanted best in rate and 0.5 of the floor, found %v and %v", got.Best, got.Ratio)
	}
	if got := r.rowOf(t, floorName, 1); got.Best != nil {
		t.Errorf("the floor is no participant of the contest, found best in %v", got.Best)
	}
	text := strings.Join(r.Ahead, "\n")
	for _, want := range []string{"message-db with 1 writer: rate 1.12×, p50 1.12×, p99 1.12×\n", "message-db: feed 1.50×"} {
		if !strings.Contains(text, want) {
			t.Errorf("wanted %q in\n%s", want, text)
		}
	}
	for _, wrong := range []string{"4 writers", "floor", "loads", "pgnotch"} {
		if strings.Contains(text, wrong) {
			t.Errorf("did not want %q in\n%s", wrong, text)
		}
	}
	if r.Warnings != nil {
		t.Errorf("wanted no warnings, found %q", r.Warnings)
	}
}

func TestWarnings(t *testing.T) {
	r := someReport(t)
	r.LoadAverage, r.Cores = "3.5", 2
	r.Settings["fsync"] = "off"
	for _, row := range r.Appends {
		row.Median.Others = 0.4
	}
	r.warn()
	text := strings.Join(r.Warnings, "\n")
	for _, want := range []string{"load average 3.5 on 2 cores", "noisy: others used 40 %", "fsync is off, not on"} {
		if !strings.Contains(text, want) {
			t.Errorf("wanted %q in\n%s", want, text)
		}
	}
}

func TestPrintedReport(t *testing.T) {
	var out strings.Builder
	r := someReport(t)
	r.Versions["message-db"] = "message-db 1.2.3"
	r.print(&out)
	for _, want := range []string{
		"fsync=on synchronous_commit=on full_page_writes=on",
		"message-db: message-db 1.2.3",
		"| message-db  |       1 |       900 |    0.90 | 0.90…0.95 |",
		"Who is ahead of wattle, in what, how many times:\n- message-db with 1 writer: rate",
		"watermill: watermill-sql, a queue: no streams, no expected version",
		"| pgnotch     |       5 |           8 |          10 |             - |           900 |           - |         - |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("wanted %q in\n%s", want, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "| ") && !strings.HasSuffix(line, " |\n") {
			t.Errorf("a row that does not end: %q", line)
		}
	}
}

func TestJSON(t *testing.T) {
	r := someReport(t)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if got := back.rowOf(t, "message-db", 1); got.Median != r.rowOf(t, "message-db", 1).Median || *got.Ratio != (ratio{0.9, 0.9, 0.95}) || len(got.Runs) != 2 {
		t.Errorf("found %+v, ratio %v", got, got.Ratio)
	}
	for _, key := range []string{"appends_per_second", "wal_bytes_per_append", "rate_by_floor", "feed_by_scan", "load_average_at_start", "settings", "ahead"} {
		if !strings.Contains(string(text), `"`+key+`"`) {
			t.Errorf("no %q", key)
		}
	}
}
