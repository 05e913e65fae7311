// The report: medians, ratios within a repeat, who is best, who beats the product.

package main

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

type report struct {
	Began       time.Time         `json:"began"`
	Server      string            `json:"server"`
	Settings    map[string]string `json:"settings"`
	Cores       int               `json:"cores"`
	LoadAverage string            `json:"load_average_at_start"`
	Versions    map[string]string `json:"versions"`
	About       map[string]string `json:"about"`
	Payload     int               `json:"payload_bytes"`
	Seconds     float64           `json:"seconds"`
	Repeats     int               `json:"repeats"`
	Streams     int               `json:"streams_per_writer"`
	ReadStreams int               `json:"read_streams"`
	ReadEntries int               `json:"read_entries"`
	Appends     []*appendRow      `json:"appends"`
	Reads       []*readRow        `json:"reads"`
	Ahead       []string          `json:"ahead"`    // who is better than the product, in what, by how many times
	Warnings    []string          `json:"warnings"` // why the figures are rougher than they look
}

// appendRow is a participant with a number of writers.
type appendRow struct {
	Participant string    `json:"participant"`
	Writers     int       `json:"writers"`
	Runs        []figures `json:"runs"` // a repeat each
	Median      figures   `json:"median"`
	Ratio       *ratio    `json:"rate_by_floor"` // within the same repeat; absent without the floor
	Best        []string  `json:"best"`          // the measures in which none is better
	ours        bool
}

// readRow is a participant's reading.
type readRow struct {
	Participant string        `json:"participant"`
	Runs        []readFigures `json:"runs"`
	Median      readFigures   `json:"median"`
	Ratio       *ratio        `json:"feed_by_scan"` // within the same repeat; absent without a feed
	Best        []string      `json:"best"`
	ours        bool
}

// readFigures are those of one repeat; 0: not possible.
type readFigures struct {
	Load    float64 `json:"loads_per_second"`
	LoadP50 float64 `json:"load_p50_us"`
	LoadP99 float64 `json:"load_p99_us"`
	Feed    float64 `json:"feed_events_per_second"`
	Scan    float64 `json:"scan_events_per_second"`
}

// ratio over the repeats.
type ratio struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func newReport(o *options) *report {
	r := &report{Began: time.Now().UTC().Truncate(time.Second), Cores: runtime.NumCPU(), LoadAverage: loadAverage(), Versions: map[string]string{},
		About: map[string]string{}, Settings: map[string]string{}, Payload: o.payload, Seconds: o.seconds, Repeats: o.repeats,
		Streams: o.streams, ReadStreams: o.readStreams, ReadEntries: o.readEntries}
	for _, p := range o.chosen {
		r.About[p.name] = p.about
	}
	return r
}

// shownSettings are what decides durability and cost.
var shownSettings = []string{"fsync", "synchronous_commit", "full_page_writes", "wal_level", "wal_sync_method", "shared_buffers", "max_wal_size"}

// describe asks the server.
func (r *report) describe(ctx context.Context, control *pgxpool.Pool) error {
	if err := control.QueryRow(ctx, "SELECT version()").Scan(&r.Server); err != nil {
		return err
	}
	for _, name := range shownSettings {
		var value string
		if err := control.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return err
		}
		r.Settings[name] = value
	}
	return nil
}

func (r *report) append(p participant, writers int, f figures) {
	i := slices.IndexFunc(r.Appends, func(row *appendRow) bool { return row.Participant == p.name && row.Writers == writers })
	if i < 0 {
		i = len(r.Appends)
		r.Appends = append(r.Appends, &appendRow{Participant: p.name, Writers: writers, ours: p.ours})
	}
	r.Appends[i].Runs = append(r.Appends[i].Runs, f)
}

func (r *report) read(p participant, f readFigures) {
	i := slices.IndexFunc(r.Reads, func(row *readRow) bool { return row.Participant == p.name })
	if i < 0 {
		i = len(r.Reads)
		r.Reads = append(r.Reads, &readRow{Participant: p.name, ours: p.ours})
	}
	r.Reads[i].Runs = append(r.Reads[i].Runs, f)
}

// median of f over all of runs; of an even number the lower one, which was really measured.
func median[T any](runs []T, f func(T) float64) float64 {
	values := make([]float64, len(runs))
	for i, run := range runs {
		values[i] = f(run)
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// medians of a struct of figures, each field's by itself.
func medians[T any](runs []T) (out T) {
	fields := reflect.ValueOf(&out).Elem()
	for i := range fields.NumField() {
		fields.Field(i).SetFloat(median(runs, func(run T) float64 { return reflect.ValueOf(run).Field(i).Float() }))
	}
	return out
}

// ratioOf is f by the base in the same repeat. The floor moves with the machine from repeat to repeat, so medians are not
// divided but ratios taken first.
func ratioOf[T any](runs, base []T, f, of func(T) float64) *ratio {
	var all []float64
	for i := range min(len(runs), len(base)) {
		if of(base[i]) > 0 {
			all = append(all, f(runs[i])/of(base[i]))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &ratio{Median: median(all, func(v float64) float64 { return v }), Min: slices.Min(all), Max: slices.Max(all)}
}

// measureOf is a figure that participants are compared by.
type measureOf[T any] struct {
	name string
	less bool // smaller is better
	of   func(T) float64
}

var appendMeasures = []measureOf[figures]{
	{"rate", false, func(f figures) float64 { return f.Rate }},
	{"p50", true, func(f figures) float64 { return f.P50 }},
	{"p99", true, func(f figures) float64 { return f.P99 }},
	{"WAL", true, func(f figures) float64 { return f.WAL }},
	{"server CPU", true, func(f figures) float64 { return f.ServerCPU }},
	{"client CPU", true, func(f figures) float64 { return f.ClientCPU }},
}

var readMeasures = []measureOf[readFigures]{
	{"loads", false, func(f readFigures) float64 { return f.Load }},
	{"load p50", true, func(f readFigures) float64 { return f.LoadP50 }},
	{"load p99", true, func(f readFigures) float64 { return f.LoadP99 }},
	{"feed", false, func(f readFigures) float64 { return f.Feed }},
}

// better says by how many times a is better than b; 0 where one of them has no figure.
func (m measureOf[T]) better(a, b T) float64 {
	x, y := m.of(a), m.of(b)
	if m.less {
		x, y = y, x
	}
	if x <= 0 || y <= 0 {
		return 0
	}
	return x / y
}

// finish works out medians, ratios, the best of each, and what the product loses.
func (r *report) finish() {
	slices.SortStableFunc(r.Appends, func(a, b *appendRow) int {
		return cmp.Or(cmp.Compare(a.Writers, b.Writers), cmp.Compare(place(a.Participant), place(b.Participant)))
	})
	slices.SortStableFunc(r.Reads, func(a, b *readRow) int { return cmp.Compare(place(a.Participant), place(b.Participant)) })
	for _, row := range r.Appends {
		row.Median = medians(row.Runs)
		if i := slices.IndexFunc(r.Appends, func(f *appendRow) bool { return f.Participant == floorName && f.Writers == row.Writers }); i >= 0 {
			rate := func(f figures) float64 { return f.Rate }
			row.Ratio = ratioOf(row.Runs, r.Appends[i].Runs, rate, rate)
		}
	}
	for _, row := range r.Reads {
		if row.Median = medians(row.Runs); row.Median.Feed > 0 {
			row.Ratio = ratioOf(row.Runs, row.Runs, func(f readFigures) float64 { return f.Feed }, func(f readFigures) float64 { return f.Scan })
		}
	}
	r.compare()
	r.warn()
}

// place is a participant's place in the tables.
func place(name string) int {
	return slices.IndexFunc(participants, func(p participant) bool { return p.name == name })
}

// compare names the best of each group, the floor aside, and says of whom the product loses to.
func (r *report) compare() {
	var writers []int
	for _, row := range r.Appends {
		writers = append(writers, row.Writers)
	}
	for _, n := range slices.Compact(writers) {
		var group []entrant[figures]
		for _, row := range r.Appends {
			if row.Writers == n && row.Participant != floorName {
				group = append(group, entrant[figures]{row.Participant, row.ours, row.Median, &row.Best})
			}
		}
		r.Ahead = append(r.Ahead, contest(group, appendMeasures, " with "+counted(n, "writer"))...)
	}
	var group []entrant[readFigures]
	for _, row := range r.Reads {
		group = append(group, entrant[readFigures]{row.Participant, row.ours, row.Median, &row.Best})
	}
	r.Ahead = append(r.Ahead, contest(group, readMeasures, "")...)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// entrant is a participant of a contest.
type entrant[T any] struct {
	name   string
	ours   bool
	median T
	best   *[]string
}

// tie is the lead that is none.
const tie = 1.01

// contest notes the best in each measure and tells who is ahead of the product in what.
func contest[T any](group []entrant[T], measures []measureOf[T], where string) (ahead []string) {
	for _, m := range measures {
		var best *entrant[T]
		for i := range group {
			if m.of(group[i].median) > 0 && (best == nil || m.better(group[i].median, best.median) > 1) {
				best = &group[i]
			}
		}
		if best != nil {
			*best.best = append(*best.best, m.name)
		}
	}
	i := slices.IndexFunc(group, func(e entrant[T]) bool { return e.name == productName })
	if i < 0 {
		return nil
	}
	for _, e := range group {
		var in []string
		for _, m := range measures {
			if times := m.better(e.median, group[i].median); !e.ours && times >= tie {
				in = append(in, fmt.Sprintf("%s %.2f×", m.name, times))
			}
		}
		if in != nil {
			ahead = append(ahead, e.name+where+": "+strings.Join(in, ", "))
		}
	}
	return ahead
}

// noisy is the share of the machine above which others are in the way.
const noisy = 0.10

func (r *report) warn() {
	if load, err := strconv.ParseFloat(r.LoadAverage, 64); err == nil && load > float64(r.Cores)/4 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the machine was not idle at the start: load average %s on %d cores", r.LoadAverage, r.Cores))
	}
	if len(r.Appends) > 0 {
		if others := median(r.Appends, func(row *appendRow) float64 { return row.Median.Others }); others > noisy {
			r.Warnings = append(r.Warnings, fmt.Sprintf("noisy: others used %.0f %% of the machine (median over the runs)", others*100))
		}
	}
	for name, want := range map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"} {
		if got := r.Settings[name]; got != "" && got != want {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s is %s, not %s", name, got, want))
		}
	}
}
