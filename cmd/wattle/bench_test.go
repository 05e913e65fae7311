// wattle bench append: its figures, how it ends, and what it prints meanwhile.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wattle-es/wattle/cmd/wattle/internal/load"
	"github.com/wattle-es/wattle/eventstore"
)

// quiet is a bench that prints no line meanwhile.
func quiet(store string, args ...string) []string {
	return append([]string{"bench", "append", "--store", store, "--interval", "1h"}, args...)
}

// figuresOf reads the one object that a bench prints with -o json.
func figuresOf(t *testing.T, out string) (f load.Figures) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil || d.More() {
		t.Fatalf("wanted one object, found %q (%v)", out, err)
	}
	return f
}

// seqnosIn counts what the streams of a bench hold.
func seqnosIn(t *testing.T, store string, streams ...string) (n int64) {
	t.Helper()
	for _, stream := range streams {
		all := seqnos(t, wattle(t, "read", stream, "--store", store, "-o", "json").wants(t, 0))
		if !slices.Equal(all, numbers(1, len(all))) {
			t.Errorf("%s: wanted seqnos 1 to %d, found %v", stream, len(all), all)
		}
		n += int64(len(all))
	}
	return n
}

// The dedicated layout: streams are created, large payloads cut, what is trimmed comes
// back, and another run goes on.
func TestBenchDedicated(t *testing.T) {
	t.Parallel()
	store := migrated(t)
	entries := int64(0)
	for run := range 2 {
		f := figuresOf(t, wattle(t, quiet(store, "--layout", "dedicated", "--logs", "2", "--sizes", "100:1,20000:1", "--retain", "10",
			"--rps", "100", "--duration", "400ms", "-o", "json")...).wants(t, 0).out)
		if f.Layout != "dedicated" || f.Appends != 40 || f.Epoch != uint64(run+1) || f.Rows == nil || *f.Rows <= f.Entries || *f.ChunkCuts != *f.Rows-f.Entries || f.TrimsFailed != 0 {
			t.Errorf("run %d: found %+v", run, f)
		}
		entries += f.Entries
	}
	for _, stream := range []string{"bench-1", "bench-2"} {
		all := seqnos(t, wattle(t, "read", stream, "--store", store, "-o", "json", "--from", str(entries/2-9)).wants(t, 0))
		if len(all) != 10 || all[9] != int(entries/2) {
			t.Errorf("%s holds %v, want the last 10 through %d", stream, all, entries/2)
		}
	}
}

func TestBenchFigures(t *testing.T) {
	t.Parallel()
	store := migrated(t)
	common := []string{"--logs", "2", "--batch", "2", "--sizes", "100:1,1k:1", "--duration", "200ms", "-o", "json"}
	paced := figuresOf(t, wattle(t, quiet(store, append(common, "--rps", "100", "--seed", "9")...)...).wants(t, 0).out)
	if paced.Scheduled != 20 || paced.Scheduled != paced.Appends+paced.Skipped+paced.Failed || paced.Seed != 9 || paced.RPS != 100 || paced.Ended != load.EndedByTime {
		t.Errorf("wanted 20 sends, found %+v", paced)
	}
	r := wattle(t, quiet(store, common...)...).wants(t, 0)
	loop := figuresOf(t, r.out)
	if loop.Epoch != 2 || loop.Appends == 0 || loop.Seed != 1 || loop.Scheduled != 0 || loop.Skipped != 0 || loop.Category != "bench" || loop.Logs != 2 || loop.Layout != "shared" {
		t.Errorf("wanted a second run, found %+v", loop)
	}
	for _, f := range []load.Figures{paced, loop} {
		if f.Failed != 0 || f.LastError != "" || f.Entries != 2*f.Appends || f.P50 <= 0 || f.P50 > f.P99 || f.P99 > f.P999 || f.P999 > f.Max ||
			f.Seconds <= 0 || f.WALPerAppend == nil || *f.WALPerAppend < 200 || f.TripsPerAppend == nil || *f.TripsPerAppend <= 0 {
			t.Errorf("found %+v", f)
		}
		if got := f.AppendsPerSecond * f.Seconds; got < float64(f.Appends)-0.5 || got > float64(f.Appends)+0.5 {
			t.Errorf("wanted %d appends by their rate, found %v", f.Appends, got)
		}
	}
	if got := seqnosIn(t, store, "bench-1", "bench-2"); got != paced.Entries+loop.Entries {
		t.Errorf("wanted %d and %d entries, found %d", paced.Entries, loop.Entries, got)
	}
	for _, field := range []string{"appends", "entries", "skipped", "failed", "resends", "p50_us", "p99_us", "p999_us", "max_us", "wal_bytes_per_append",
		"round_trips_per_append", "last_error", "seed", "layout", "logs", "rps", "seconds", "rows", "chunk_cuts"} {
		if !strings.Contains(r.out, `"`+field+`":`) {
			t.Errorf("wanted %s in %s", field, r.out)
		}
	}
	wattle(t, quiet(store, "--retain", "5", "--duration", "100ms")...).wants(t, exitRefused, "bench", "--prefix")
	wattle(t, quiet(store, "--epoch", "1", "--duration", "100ms")...).wants(t, exitRefused, "fenced", "higher --epoch")
}

func TestBenchInMemory(t *testing.T) {
	t.Parallel()
	r := wattle(t, quiet("mem:", "--rps", "200", "--duration", "100ms", "--prefix", "clicks", "--retain", "3", "--logs", "2", "-o", "json")...).wants(t, 0)
	f := figuresOf(t, r.out)
	if f.Scheduled != 20 || f.Appends != 20 || f.Category != "clicks" || f.Trims == 0 || !strings.Contains(r.out, `"wal_bytes_per_append":null,"round_trips_per_append":null,"rows":null`) {
		t.Errorf("found %s", r.out)
	}
	r = wattle(t, "bench", "append", "--store", "mem:", "--rps", "100", "--duration", "300ms", "--interval", "50ms").wants(t, 0,
		"appends    30 ", "scheduled  30 ", "p99.9", "skipped    0\n", "16 shared logs of bench, batch 1, seed 1", "ended      duration after 0.")
	if lines := strings.Count(r.err, "appends/s  p50 "); lines < 2 || strings.Count(r.err, "\n") != lines || strings.Contains(r.err, "\r") {
		t.Errorf("wanted lines of how it goes, found %q", r.err)
	}
}

// On a terminal there is one line, which is gone in the end.
func TestBenchOnATerminal(t *testing.T) {
	t.Parallel()
	r := asked(t, "", "bench", "append", "--store", "mem:", "--rps", "100", "--duration", "300ms", "--interval", "50ms")
	if r.code != 0 || strings.Contains(r.err, "\n") || strings.Count(r.err, eraseLine) < 3 || !strings.HasSuffix(r.err, eraseLine) {
		t.Errorf("wanted one line erased in the end, found %d: %q", r.code, r.err)
	}
}

// A run that is taken over ends with its figures, a message and the code of a fence.
func TestBenchTakenOver(t *testing.T) {
	t.Parallel()
	store := migrated(t)
	var out, errs buffer
	code := make(chan int, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		code <- run(ctx, quiet(store, "--logs", "2", "--epoch", "10", "--duration", "5m", "-o", "json"), strings.NewReader(""), &out, &errs, noEnv)
	}()
	until(t, "the first run to append", func() bool {
		r := wattle(t, "read", "bench-1", "--store", store, "-o", "json")
		return r.code == 0 && r.out != ""
	})
	second := figuresOf(t, wattle(t, quiet(store, "--logs", "2", "--epoch", "11", "--duration", "200ms", "-o", "json")...).wants(t, 0).out)
	if got := <-code; got != exitRefused || !strings.HasPrefix(errs.String(), "wattle: append bench-") || !strings.Contains(errs.String(), "another run took the log over") {
		t.Errorf("wanted exit code %d, found %d: %s", exitRefused, got, errs.String())
	}
	first := figuresOf(t, out.String())
	if first.Ended != load.EndedByRefusal || first.Failed == 0 || !strings.Contains(first.LastError, "fenced") || first.Epoch != 10 || second.Epoch != 11 {
		t.Errorf("found %+v and %+v", first, second)
	}
	if got := seqnosIn(t, store, "bench-1", "bench-2"); got != first.Entries+second.Entries {
		t.Errorf("wanted %d and %d entries, found %d", first.Entries, second.Entries, got)
	}
}

func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	for _, d := range []struct {
		signal os.Signal
		code   int
	}{{os.Interrupt, 130}, {syscall.SIGTERM, 143}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		var out bytes.Buffer
		var errs buffer
		code := make(chan int, 1)
		go func() {
			code <- run(ctx, []string{"bench", "append", "--store", "mem:", "--rps", "100", "--duration", "5m", "--interval", "20ms", "-o", "json"},
				strings.NewReader(""), &out, &errs, noEnv)
		}()
		until(t, "it to append", func() bool { return strings.Count(errs.String(), "\n") > 2 })
		cancel(interruption{d.signal})
		if got := <-code; got != d.code || !strings.HasSuffix(errs.String(), "wattle: interrupted by "+d.signal.String()+"\n") {
			t.Errorf("wanted exit code %d, found %d: %s", d.code, got, errs.String())
		}
		if f := figuresOf(t, out.String()); f.Ended != load.EndedByInterrupt || f.Appends == 0 || f.Seconds > 60 || f.Scheduled != f.Appends+f.Skipped+f.Failed {
			t.Errorf("found %+v", f)
		}
	}
}

// Hints are those of a bench; what is not ours to explain stays as it is.
func TestBenchExplains(t *testing.T) {
	t.Parallel()
	if err := explainedLoad(nil); err != nil {
		t.Error(err)
	}
	other := errors.New("x")
	if err := explainedLoad(other); err != other {
		t.Error(err)
	}
	exists := explainedLoad(&eventstore.Error{Kind: eventstore.ErrInvalid, Op: "create category"})
	if codeOf(exists) != exitRefused || !strings.Contains(exists.Error(), "--prefix") {
		t.Errorf("found %v", exists)
	}
}
