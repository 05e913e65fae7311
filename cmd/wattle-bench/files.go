// The other campaign: the file store beside other embedded stores, no server.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// filePeer is a row of the table.
type filePeer struct {
	name   string
	module string // whose version is told; empty: written here
	about  string
	open   func(dir string, writers int) (fileStore, error)
}

// fileStore is a participant opened in a directory of its own. It returns from append
// when the event is durable.
type fileStore interface {
	append(ctx context.Context, writer int, data []byte) error
	count(ctx context.Context) (int64, error)
	close() error
}

// filePeers in the order of the table, the product first.
var filePeers = []filePeer{
	{name: productName, open: openFileWattle,
		about: "eventstore.Store over filelog: a stream a writer; expected version, epoch and last ID checked, event ID, type, time and metadata kept, one feed over all"},
	{name: "bbolt", module: "go.etcd.io/bbolt", open: openBolt(false),
		about: "db.Batch, for concurrent writers as its documentation says, with MaxBatchSize set to their number so that it waits for nobody; a key a writer and event, nothing checked"},
	{name: "bbolt-update", module: "go.etcd.io/bbolt", open: openBolt(true), about: "the same with db.Update: a transaction an event"},
	{name: "tidwall-wal", module: "github.com/tidwall/wal", open: openTidwall,
		about: "Log.Write under a mutex, as its API demands: the caller gives the next index; bytes only, nothing checked"},
	{name: "tidwall-wal-grouped", module: "github.com/tidwall/wal", open: openTidwallGrouped,
		about: "the same behind a goroutine, written here, that puts what waits into one Log.WriteBatch"},
	{name: "nats-server", module: "github.com/nats-io/nats-server/v2", open: openNATS,
		about: "JetStream's file store with SyncAlways in this process, a subject a writer, published with acks by nats.go over an in-process connection; nothing checked"},
}

type filesReport struct {
	Began       time.Time         `json:"began"`
	Cores       int               `json:"cores"`
	LoadAverage string            `json:"load_average_at_start"`
	Versions    map[string]string `json:"versions"`
	Seconds     float64           `json:"seconds"`
	Repeats     int               `json:"repeats"`
	Rows        []*filesRow       `json:"rows"`
	Ahead       []string          `json:"ahead"` // who is ahead of the product, where, how many times
}

// filesRow are the medians of a participant; its ratios are to the product in the same repeat.
type filesRow struct {
	Participant string  `json:"participant"`
	Payload     int     `json:"payload_bytes"`
	Writers     int     `json:"writers"`
	Rate        float64 `json:"appends_per_second"`
	P50         float64 `json:"p50_us"`
	P99         float64 `json:"p99_us"`
	Ratio       *ratio  `json:"rate_by_wattle"`
	runs        []sample
}

// filesBench is a campaign.
type filesBench struct {
	seconds  float64
	repeats  int
	writers  []int
	payloads []int
	dir      string
	log      io.Writer
}

func runFiles(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	b := &filesBench{log: stderr}
	flags := flag.NewFlagSet("wattle-bench files", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Float64Var(&b.seconds, "seconds", 0.5, "seconds of each measurement")
	flags.IntVar(&b.repeats, "repeats", 5, "interleaved repeats; medians are printed")
	writers := flags.String("writers", "1,16,64", "numbers of writers")
	payloads := flags.String("payloads", "256,900", "bytes of an event's data, a JSON object")
	dir := flags.String("dir", "", "an existing directory on the disk to measure; without it the system's for temporary files")
	file := flags.String("json", "", "write the figures to this file too, as JSON")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	var err, bad error
	b.writers, err = numbers("-writers", *writers, 1)
	b.payloads, bad = numbers("-payloads", *payloads, minPayload)
	if b.seconds <= 0 || b.repeats < 1 {
		err = errors.Join(err, fmt.Errorf("wanted -seconds above 0 and -repeats of 1 or more"))
	}
	if err = errors.Join(err, bad); err != nil {
		fmt.Fprintln(stderr, "wattle-bench files:", err)
		return 2
	}
	if b.dir, err = os.MkdirTemp(*dir, "wattle-bench-"); err == nil {
		defer os.RemoveAll(b.dir)
		err = b.all(ctx, stdout, *file)
	}
	if err != nil {
		fmt.Fprintln(stderr, "wattle-bench files:", err)
		return 1
	}
	return 0
}

func numbers(name, list string, least int) (all []int, err error) {
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < least {
			return nil, fmt.Errorf("%s: wanted numbers from %d with commas between, found %q", name, least, list)
		}
		all = append(all, n)
	}
	return all, nil
}

func (b *filesBench) all(ctx context.Context, stdout io.Writer, file string) error {
	r := &filesReport{Began: time.Now().UTC().Truncate(time.Second), Cores: runtime.NumCPU(), LoadAverage: loadAverage(), Versions: versions(),
		Seconds: b.seconds, Repeats: b.repeats}
	for _, payload := range b.payloads {
		for _, n := range b.writers {
			fmt.Fprintf(b.log, "files: %d bytes, %d writers\n", payload, n)
			rows, err := b.measure(ctx, payload, n)
			if err != nil {
				return err
			}
			r.add(rows)
		}
	}
	r.print(stdout)
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// versions of the participants' modules, as they were linked.
func versions() map[string]string {
	all := map[string]string{}
	info, ok := debug.ReadBuildInfo()
	for _, p := range filePeers {
		if p.module == "" || !ok {
			continue
		}
		for _, d := range info.Deps {
			if d.Path == p.module {
				all[d.Path] = d.Version
			}
		}
	}
	return all
}

// measure lets n writers append to each participant in turn, in another order every repeat.
func (b *filesBench) measure(ctx context.Context, payload, n int) (rows []*filesRow, err error) {
	data := payloads(payload)
	var stores []fileStore
	defer func() {
		for _, s := range stores {
			err = errors.Join(err, s.close())
		}
	}()
	for _, p := range filePeers {
		s, err := p.open(filepath.Join(b.dir, fmt.Sprintf("%s-%d-%d", p.name, payload, n)), n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		stores = append(stores, s)
		rows = append(rows, &filesRow{Participant: p.name, Payload: payload, Writers: n})
	}
	d := time.Duration(b.seconds * float64(time.Second))
	acked := make([]int64, len(stores))
	run := func(i int, d time.Duration) (sample, error) {
		s, err := drive(ctx, n, 1, d, func(ctx context.Context, w int) error { return stores[i].append(ctx, w, data[w%len(data)]) })
		acked[i] += int64(s.events)
		if err != nil {
			err = fmt.Errorf("%s: %w", rows[i].Participant, err)
		}
		return s, err
	}
	for repeat := range b.repeats {
		for k := range stores {
			i := (k + repeat) % len(stores)
			if repeat == 0 { // opens files, makes streams
				if _, err := run(i, d/5); err != nil {
					return nil, err
				}
			}
			s, err := run(i, d)
			if err != nil {
				return nil, err
			}
			rows[i].runs = append(rows[i].runs, s)
		}
	}
	for i, s := range stores {
		found, err := s.count(ctx)
		if err == nil && found != acked[i] {
			err = fmt.Errorf("%d appends were acknowledged, %d events are there", acked[i], found)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rows[i].Participant, err)
		}
	}
	return rows, nil
}

// add takes the rows of one payload and number of writers, the product's first.
func (r *filesReport) add(rows []*filesRow) {
	for _, row := range rows {
		var rates, ratios, p50, p99 []float64
		for i, s := range row.runs {
			rates = append(rates, rateOf(s))
			ratios = append(ratios, rateOf(s)/rateOf(rows[0].runs[i]))
			a, b := quantiles(s.times)
			p50, p99 = append(p50, a), append(p99, b)
		}
		middle := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
		row.Rate, row.P50, row.P99 = middle(rates), middle(p50), middle(p99)
		row.Ratio = &ratio{Median: middle(ratios), Min: ratios[0], Max: ratios[len(ratios)-1]}
		if row.Ratio.Median > 1 {
			r.Ahead = append(r.Ahead, fmt.Sprintf("%s at %s of %d bytes, %.2f times", row.Participant, counted(row.Writers, "writer"), row.Payload, row.Ratio.Median))
		}
	}
	r.Rows = append(r.Rows, rows...)
}

func (r *filesReport) print(w io.Writer) {
	fmt.Fprintf(w, "%d cores, load average %s at the start; %v s × %d interleaved repeats, medians\n", r.Cores, r.LoadAverage, r.Seconds, r.Repeats)
	t := &table{title: "Appends of one event, each durable before it returns, in files",
		rows: [][]string{{"participant", "bytes", "writers", "appends/s", "× wattle", "min…max", "p50 µs", "p99 µs"}}}
	for _, row := range r.Rows {
		t.row(row.Participant, fmt.Sprint(row.Payload), fmt.Sprint(row.Writers), number(row.Rate), row.Ratio.text(), row.Ratio.spread(), number(row.P50), number(row.P99))
	}
	t.print(w)
	fmt.Fprintln(w)
	for _, p := range filePeers {
		fmt.Fprintf(w, "%s: %s\n", strings.TrimSpace(p.name+" "+r.Versions[p.module]), p.about)
	}
	if len(r.Ahead) == 0 {
		fmt.Fprintf(w, "\nNobody is ahead of %s.\n", productName)
		return
	}
	fmt.Fprintf(w, "\nAhead of %s:\n", productName)
	for _, s := range r.Ahead {
		fmt.Fprintf(w, "- %s\n", s)
	}
}
