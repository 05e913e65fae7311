// Command wattle-bench measures Wattle beside other event stores on one PostgreSQL
// server: the same payloads, the same durability, interleaved runs, medians, and for
// each the ratio to a bare INSERT in the same repeat. It is a module of its own so
// that what the others depend on stays out of the product's go.mod.
//
//	make bench-peers                             # all
//	make bench-peers PEERS='-only floor,wattle'  # some; floor, wattle, pgnotch and watermill need no Node.js
//	make bench-peers PEERS='-list'
//
// With "files" as its first argument it measures the file store beside other embedded
// stores instead, and needs no server: see files.go.
//
// It starts a PostgreSQL of its own, or uses -dsn, where it makes databases named
// wattle_bench_… and drops them. Peers that npm has are fetched at run time into a
// cache folder (WATTLE_PEERS_CACHE).
//
// The rates are those of a machine that runs the clients too, and the clients are not
// equal: Emmett's is Node.js, the others' is this process. The columns of CPU time tell
// them apart.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options of a campaign.
type options struct {
	dsn         string
	chosen      []participant
	appends     bool
	reads       bool
	writers     []int
	payload     int // bytes of an event's data
	seconds     float64
	repeats     int
	streams     int // of each writer
	readStreams int // of the reading
	readEntries int // of each of them
}

func (o *options) duration() time.Duration { return time.Duration(o.seconds * float64(time.Second)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "files" {
		return runFiles(ctx, args[1:], stdout, stderr)
	}
	o := &options{}
	flags := flag.NewFlagSet("wattle-bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	list := flags.Bool("list", false, "list the participants and end")
	only := flags.String("only", "", "participants, as floor,wattle; without it all")
	measure := flags.String("measure", "appends,reads", "what to measure")
	writers := flags.String("writers", "1,4,16,32", "numbers of writers")
	format := flags.String("o", "table", "table or json")
	file := flags.String("json", "", "write the figures to this file too, as JSON")
	flags.StringVar(&o.dsn, "dsn", "", "a server to use instead of a throwaway one; the role must be allowed to create databases")
	flags.IntVar(&o.payload, "payload", 900, "bytes of an event's data, a JSON object")
	flags.Float64Var(&o.seconds, "seconds", 1, "seconds of each measurement")
	flags.IntVar(&o.repeats, "repeats", 5, "interleaved repeats")
	flags.IntVar(&o.streams, "streams", 1, "streams of each writer, appended to in turn")
	flags.IntVar(&o.readStreams, "read-streams", 500, "streams that the reading finds")
	flags.IntVar(&o.readEntries, "read-entries", 20, "events of each of them")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *list {
		for _, p := range participants {
			fmt.Fprintf(stdout, "%-14s %s\n", p.name, p.about)
		}
		return 0
	}
	if err := errors.Join(o.choose(*only), o.parse(*measure, *writers, *format)); err != nil {
		fmt.Fprintln(stderr, "wattle-bench:", err)
		return 2
	}
	if err := measureAll(ctx, o, *format, *file, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "wattle-bench:", err)
		return 1
	}
	return 0
}

// choose takes the participants that -only names, in their own order.
func (o *options) choose(only string) error {
	if only == "" {
		o.chosen = participants
		return nil
	}
	names := strings.Split(only, ",")
	for _, name := range names {
		if !slices.ContainsFunc(participants, func(p participant) bool { return p.name == name }) {
			return fmt.Errorf("-only: no participant is named %q (-list)", name)
		}
	}
	for _, p := range participants {
		if slices.Contains(names, p.name) {
			o.chosen = append(o.chosen, p)
		}
	}
	return nil
}

func (o *options) parse(measure, writers, format string) error {
	for m := range strings.SplitSeq(measure, ",") {
		switch m {
		case "appends":
			o.appends = true
		case "reads":
			o.reads = true
		default:
			return fmt.Errorf("-measure: wanted appends, reads or both with a comma between, found %q", m)
		}
	}
	for w := range strings.SplitSeq(writers, ",") {
		n, err := strconv.Atoi(w)
		if err != nil || n < 1 || n > 100 {
			return fmt.Errorf("-writers: wanted numbers from 1 to 100 with commas between, found %q", writers)
		}
		o.writers = append(o.writers, n)
	}
	if format != "table" && format != "json" {
		return fmt.Errorf("-o: wanted table or json, found %q", format)
	}
	for name, n := range map[string]int{"repeats": o.repeats, "streams": o.streams, "read-streams": o.readStreams, "read-entries": o.readEntries} {
		if n < 1 {
			return fmt.Errorf("-%s: wanted 1 or more, found %d", name, n)
		}
	}
	if o.payload < minPayload {
		return fmt.Errorf("-payload: wanted %d bytes or more, found %d", minPayload, o.payload)
	}
	if o.seconds <= 0 {
		return fmt.Errorf("-seconds: wanted more than 0, found %v", o.seconds)
	}
	return nil
}

func measureAll(ctx context.Context, o *options, format, file string, stdout, stderr io.Writer) error {
	r, err := campaign(ctx, o, stderr)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if file != "" {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	if format == "json" {
		_, err = stdout.Write(text)
		return err
	}
	r.print(stdout)
	return nil
}
