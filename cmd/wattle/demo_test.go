// The demo end to end: the same figures on every store, twice is once, and what
// becomes of bad logs.

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
)

var update = flag.Bool("update", false, "write the golden files anew")

// cut is how many generated applications most tests take.
const cut = 40

func TestDemoTables(t *testing.T) {
	t.Parallel()
	const golden = "testdata/demo.txt"
	r := wattle(t, "demo", "--store", "mem:").wants(t, 0)
	if r.err != "" {
		t.Errorf("wanted nothing on stderr without a terminal, found %q", r.err)
	}
	home := t.TempDir()
	for _, say := range []string{"new events go to ", "going on with "} { // twice is once
		files := wattleIn(t, atHome(home), "", "demo").wants(t, 0, say+"file:"+demoDir(t, home))
		if files.out != r.out || strings.Count(files.err, "\n") != 1 {
			t.Errorf("in files: wanted\n%sfound\n%s%s", r.out, files.out, files.err)
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(r.out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if r.out != string(want) {
		t.Errorf("wanted\n%sfound\n%s", want, r.out)
	}
}

// reportOf computes the report of generated cases straight from their commands,
// without store, executor or projector.
func reportOf(t testing.TB, seed uint64, cases int) string {
	t.Helper()
	report, _ := reportAt(t, seed, cases, time.Time{})
	return report
}

// expiredReportOf is that of a log that was made up: offers that are unanswered at its end
// have expired. expired is by how many events it is longer.
func expiredReportOf(t testing.TB, seed uint64, cases int) (report string, expired int) {
	t.Helper()
	return reportAt(t, seed, cases, endOf(seed, cases))
}

// endOf is when the last event of a log happened.
func endOf(seed uint64, cases int) (end time.Time) {
	for c := range loan.Generate(seed, cases) {
		if last := c.Events[len(c.Events)-1].Time; last.After(end) {
			end = last
		}
	}
	return end
}

func reportAt(t testing.TB, seed uint64, cases int, end time.Time) (text string, expired int) {
	t.Helper()
	report := loan.Summarize(func(yield func(loan.Application) bool) {
		for c := range loan.Generate(seed, cases) {
			var a loan.Application
			state, due := loan.Initial(), end.Add(1)
			for _, e := range decided(t, c) {
				a, state = loan.Apply(a, e), loan.Evolve(state, e)
				if sent, ok := e.(loan.OfferSent); ok {
					due = sent.At.Add(30 * 24 * time.Hour)
				}
			}
			if o := state.Offers; !due.After(end) && state.Outcome == loan.OutcomeOpen && o.Sent > o.Cancelled && o.Returned == 0 {
				for range o.Sent - o.Cancelled {
					a = loan.Apply(a, loan.OfferCancelled{Occurred: loan.Occurred{At: due}})
				}
				if due.Before(state.Last) {
					due = state.Last
				}
				a = loan.Apply(a, loan.Cancelled{Occurred: loan.Occurred{At: due}})
				expired += o.Sent - o.Cancelled + 1
			}
			if !yield(a) {
				return
			}
		}
	})
	b, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n", expired
}

func decided(t testing.TB, c loan.Case) []loan.Event {
	t.Helper()
	state, all := loan.Initial(), []loan.Event{}
	for i := range c.Events {
		command, err := loan.CommandFor(c, i)
		if err != nil {
			t.Fatal(err)
		}
		events, err := loan.Decide(state, command)
		if err != nil {
			t.Fatal(err)
		}
		state = loan.Evolve(state, events[0])
		all = append(all, events...)
	}
	return all
}

func TestDemoFiguresAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	file, _ := xesFile(t, 1, cut, nil)
	plain := reportOf(t, 1, cut)
	expired, _ := expiredReportOf(t, 1, cut)
	if plain == expired {
		t.Fatal("no offer expires")
	}
	nats := natsURL(t)
	for _, d := range []struct {
		name, kind string
		args       []string
	}{
		{"memory, generated", "memory", []string{"--cases", fmt.Sprint(cut)}},
		{"memory, file", "memory", []string{"--xes", file}},
		{"memory, one writer", "memory", []string{"--xes", file, "--writers", "1"}},
		{"memory, NATS", "memory", []string{"--xes", file, "--nats", nats}},
		{"files, generated", "files", []string{"--cases", fmt.Sprint(cut), "-o", "json"}},
		{"files, one writer", "files", []string{"--xes", file, "--writers", "1"}},
		{"files, NATS", "files", []string{"--xes", file, "--nats", nats}},
		{"postgres, generated", "postgres", []string{"--cases", fmt.Sprint(cut), "-o", "json"}},
		{"postgres, one writer", "postgres", []string{"--xes", file, "--writers", "1"}},
		{"postgres, NATS", "postgres", []string{"--xes", file, "--nats", nats}},
	} {
		t.Run(d.name, func(t *testing.T) {
			store, first, again := "mem:", "", ""
			switch d.kind {
			case "files":
				store, first, again = "file:"+t.TempDir()+"/demo", "new events go to file:", "going on with file:"
			case "postgres":
				store, first = storeURL(t), "not migrated: doing it"
			}
			want := plain // where a log says what happened
			if slices.Contains(d.args, "--cases") {
				want = expired
			}
			args := append([]string{"demo", "--json", "--store", store}, d.args...)
			r := wattle(t, args...).wants(t, 0)
			if r.out != want {
				t.Errorf("wanted\n%sfound\n%s", want, r.out)
			}
			if !strings.Contains(r.err, first) || first == "" && r.err != "" {
				t.Errorf("wanted it to say %q, found %q", first, r.err)
			}
			if d.kind == "memory" {
				return
			}
			// Again, with the other kind of writers: nothing changes.
			before := entries(t, store)
			r = wattle(t, "demo", "--json", "--store", store, "--xes", file, "--writers", "7").wants(t, 0)
			if after := entries(t, store); r.out != want || !strings.Contains(r.err, again) || again == "" && r.err != "" || !slices.EqualFunc(before, after, sameEntry) {
				t.Errorf("the second time: wanted\n%sfound\n%s%s%d entries became %d", want, r.out, r.err, len(before), len(after))
			}
		})
	}
}

func sameEntry(a, b eventstore.Entry) bool {
	return a.ID == b.ID && a.Position == b.Position && a.Stream == b.Stream && a.Seqno == b.Seqno && bytes.Equal(a.Data, b.Data)
}

// entries are all of the category, read through the store; each stream is checked
// to be without a gap and without a command that was executed twice.
func entries(t testing.TB, store string) (all []eventstore.Entry) {
	t.Helper()
	withStore(t, store, func(s *eventstore.Store) { all = checkedEntries(t, s) })
	return all
}

// withStore opens a store beside the command's.
func withStore(t testing.TB, store string, f func(*eventstore.Store)) {
	t.Helper()
	target, err := open.Parse(store)
	if err != nil {
		t.Fatal(err)
	}
	s, err := target.Open(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f(s.Store)
}

func checkedEntries(t testing.TB, s *eventstore.Store) (all []eventstore.Entry) {
	t.Helper()
	last, commands := map[eventstore.Stream]eventstore.Seqno{}, map[string]eventstore.UUID{}
	for e, err := range s.Feed(context.Background(), 0, eventstore.Filter{Categories: []eventstore.Category{bank.Category}}) {
		if err != nil {
			t.Fatal(err)
		}
		command := e.Metadata[eventstore.MetaCommand]
		if batch, known := commands[command]; e.Seqno != last[e.Stream]+1 || command == "" || known && batch != e.BatchID {
			t.Fatalf("%s: entry %d of command %q follows %d", e.Stream, e.Seqno, command, last[e.Stream])
		}
		last[e.Stream], commands[command] = e.Seqno, e.BatchID
		all = append(all, e)
	}
	return all
}

func TestDemoFromStdin(t *testing.T) {
	t.Parallel()
	file, _ := xesFile(t, 1, 20, nil)
	plain, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(plain)
	_ = z.Close()
	want := reportOf(t, 1, 20)
	for _, in := range []string{string(plain), zipped.String()} {
		if r := wattleIn(t, noEnv, in, "demo", "--store", "mem:", "--xes", "-", "--json").wants(t, 0); r.out != want {
			t.Errorf("wanted\n%sfound\n%s", want, r.out)
		}
	}
	if r := wattle(t, "demo", "--store", "mem:", "--cases", "0", "--json").wants(t, 0); !strings.HasPrefix(r.out, `{"cases":0,"events":0,`) {
		t.Errorf("wanted an empty report, found %s", r.out)
	}
}

// A damaged file is an error with its line and nothing on stdout. What stands
// before the damage is imported, and the whole file completes it.
func TestDemoDamagedFile(t *testing.T) {
	t.Parallel()
	const cases = 20
	file, events := xesFile(t, 1, cases, nil)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	middle := bytes.LastIndex(whole[:len(whole)/2], []byte("<trace>"))
	for name, damaged := range map[string][]byte{
		"cut off":          whole[:len(whole)/2],
		"unknown activity": slices.Concat(whole[:middle], bytes.Replace(whole[middle:], []byte(`value="A_SUBMITTED"`), []byte(`value="A_SUBMITTEN"`), 1)),
		"bad case name":    slices.Concat(whole[:middle], bytes.Replace(whole[middle:], []byte(`concept:name" value="g1x`), []byte(`concept:name" value="&#x9;g1x`), 1)),
	} {
		t.Run(name, func(t *testing.T) {
			store := storeURL(t)
			bad := t.TempDir() + "/bad.xes"
			if err := os.WriteFile(bad, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"demo", "--json", "--writers", "4", "--store", store, "--xes"}
			wattle(t, "migrate", "up", "--store", store).wants(t, 0)
			if r := wattle(t, append(args, bad)...).wants(t, exitBadInput, "XES log, line ", "read it again"); r.out != "" {
				t.Errorf("wanted nothing on stdout, found %q", r.out)
			}
			// Whole cases, as if each had been executed alone.
			n := len(entries(t, store))
			if n == 0 || n >= events {
				t.Errorf("wanted some of %d events imported, found %d", events, n)
			}
			if r := wattle(t, append(args, file)...).wants(t, 0); r.out != reportOf(t, 1, cases) {
				t.Errorf("wanted\n%sfound\n%s", reportOf(t, 1, cases), r.out)
			}
			if n := len(entries(t, store)); n != events {
				t.Errorf("wanted %d entries, found %d", events, n)
			}
		})
	}
	wattle(t, "demo", "--store", "mem:", "--xes", t.TempDir()+"/none.xes").wants(t, exitBadInput, "none.xes", "no such file")
	wattle(t, "demo", "--store", "mem:", "--xes", t.TempDir()).wants(t, exitBadInput, "is a directory")
	wattleIn(t, noEnv, "", "demo", "--store", "mem:", "--xes", "-").wants(t, exitBadInput, "line 1", "end of the file")
}

// A rule of the domain refuses: the case and the line are named, nothing is
// written for the event, and the rest of the log can be imported.
func TestDemoRefusal(t *testing.T) {
	t.Parallel()
	file, _ := xesFile(t, 1, 10, func(c *loan.Case) {
		if c.Key == "g1x000007" { // the submission once more
			c.Events = append(c.Events, c.Events[0])
			c.Events[len(c.Events)-1].Time = c.Events[len(c.Events)-2].Time
		}
	})
	store := migrated(t)
	r := wattle(t, "demo", "--writers", "4", "--store", store, "--xes", file).wants(t, exitRefused, `"g1x000007"`, "(line ", string(loan.RuleSubmittedOnce))
	if r.out != "" {
		t.Errorf("wanted nothing on stdout, found %q", r.out)
	}
	entries(t, store)
	want, _ := expiredReportOf(t, 1, 10)
	if r := wattle(t, "demo", "--writers", "4", "--cases", "10", "--json", "--store", store).wants(t, 0); r.out != want {
		t.Errorf("wanted\n%sfound\n%s", want, r.out)
	}
}

// A log that says something else about what is recorded is refused.
func TestDemoOtherLog(t *testing.T) {
	t.Parallel()
	file, _ := xesFile(t, 1, 10, func(c *loan.Case) {
		if c.Key == "g1x000007" {
			c.Events[1].Resource = "somebody else"
		}
	})
	store := migrated(t)
	wattle(t, "demo", "--writers", "4", "--cases", "10", "--store", store).wants(t, 0)
	before := len(entries(t, store))
	wattle(t, "demo", "--xes", file, "--store", store).wants(t, exitRefused, `"g1x000007"`, "event 2", "somebody else")
	if after := len(entries(t, store)); after != before {
		t.Errorf("wanted %d entries, found %d", before, after)
	}
}

// The read model follows the store that it was made from, and no other.
func TestDemoOnAnotherStore(t *testing.T) {
	t.Parallel()
	store := storeURL(t) + "&default_query_exec_mode=exec&pool_max_conns=3" // as behind PgBouncer
	demo := []string{"demo", "--cases", "10", "--json", "--writers", "4", "--store", store}
	want, _ := expiredReportOf(t, 1, 10)
	check := func(when string, args ...string) {
		t.Helper()
		if r := wattle(t, append(demo, args...)...).wants(t, 0); r.out != want {
			t.Errorf("%s: wanted\n%sfound\n%s", when, want, r.out)
		}
	}
	check("at first")
	wattle(t, "migrate", "down", "--yes", "--store", store).wants(t, 0)
	check("after the store was made anew")
	check("rebuilt", "--rebuild")
	wattle(t, "category", "delete", "application", "--yes", "--store", store).wants(t, 0)
	wattle(t, demo...).wants(t, exitRefused, "history diverged", "--rebuild")
	check("after the category was deleted", "--rebuild")
}

func TestDemoProgress(t *testing.T) {
	t.Parallel()
	file, events := xesFile(t, 1, 20, nil)
	for _, args := range [][]string{{"demo", "--store", "mem:", "--cases", "20", "--json"}, {"demo", "--store", "mem:", "--xes", file, "--json"},
		{"demo", "--store", "file:" + t.TempDir(), "--xes", file, "--json"}} {
		r := asked(t, "", args...)
		want := reportOf(t, 1, 20)
		if slices.Contains(args, "--cases") {
			want, _ = expiredReportOf(t, 1, 20)
		}
		if r.code != 0 || r.out != want {
			t.Fatalf("wanted the report and nothing else on stdout, found %d:\n%s", r.code, r.out)
		}
		if !strings.Contains(r.err, "%  ") || !strings.Contains(r.err, "\r\x1b[K") || !strings.Contains(r.err, fmt.Sprintf("20 applications, %d events in ", events)) {
			t.Errorf("wanted progress and a summary, found %q", r.err)
		}
	}
}
