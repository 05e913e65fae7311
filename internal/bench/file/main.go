// Command file measures filelog against what the machine gives: appends against one
// writer that knows nothing but pwrite and fdatasync, readers against a sequential
// read of the same bytes. Floor and product are interleaved in one run on one
// directory; the figures to quote are the ratios.
//
//	go run ./internal/bench/file                            # about four minutes, 4 GB of disk
//	go run ./internal/bench/file -entries 200000            # smaller
//	go run ./internal/bench/file -only appends,feed -json F
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

type part struct {
	name string
	run  func(*bench) error
}

// parts of the bench, in the order they run.
var parts = []part{{"appends", (*bench).appends}, {"feed", (*bench).feed}, {"scale", (*bench).scale}}

type bench struct {
	d       time.Duration // of one measurement of appends or loads
	repeats int
	writers []int
	entries int // of the big store; streams are a tenth
	dir     string
	report  report
	log     io.Writer // progress
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == childFlag {
		return runChild(args[1:], stdout, stderr)
	}
	flags := flag.NewFlagSet("file", flag.ContinueOnError)
	flags.SetOutput(stderr)
	seconds := flags.Float64("seconds", 0.5, "seconds of each measurement of appends and loads")
	repeats := flags.Int("repeats", 5, "interleaved repeats; medians are printed")
	entries := flags.Int("entries", 10_000_000, "entries of the big store, which has a tenth as many streams; a fiftieth are in each store of the feed part")
	only := flags.String("only", "appends,feed,scale", "parts to run")
	dir := flags.String("dir", "", "an existing directory on the disk to measure; without it the system's for temporary files")
	file := flags.String("json", "", "write the figures to this file too, as JSON")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	b := &bench{d: time.Duration(*seconds * float64(time.Second)), repeats: *repeats, writers: []int{1, 16, 64}, entries: *entries, dir: *dir, log: stderr}
	err := b.check(*only)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	if err = b.all(*only, stdout); err == nil && *file != "" {
		err = writeJSON(*file, b.report)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func (b *bench) check(only string) error {
	for name := range strings.SplitSeq(only, ",") {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("-only: wanted appends, feed, scale with commas between, found %q", only)
		}
	}
	if b.repeats < 1 || b.d <= 0 || b.entries < minEntries {
		return fmt.Errorf("wanted -repeats of 1 or more, -seconds above 0, -entries of %d or more", minEntries)
	}
	return nil
}

func (b *bench) all(only string, stdout io.Writer) (err error) {
	b.dir, err = os.MkdirTemp(b.dir, "wattle-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	b.report = report{Began: time.Now(), Cores: runtime.NumCPU(), LoadBefore: loadAverage(), Seconds: b.d.Seconds(), Repeats: b.repeats}
	b.report.head(stdout)
	for _, p := range parts {
		if !slices.Contains(strings.Split(only, ","), p.name) {
			continue
		}
		done := len(b.report.Rows)
		if err := p.run(b); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		printRows(stdout, b.report.Rows[done:])
	}
	b.report.LoadAfter, b.report.Took = loadAverage(), time.Since(b.report.Began).Seconds()
	_, err = fmt.Fprintf(stdout, "\n%.0f s; load average %s at the end\n", b.report.Took, b.report.LoadAfter)
	return err
}

func writeJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}
