// wattle read and wattle tail: what they print of a store, and following it.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// loaded is a store with the events of 10 generated applications, and these in
// the order of the feed.
func loaded(t *testing.T) (store string, all []eventstore.Entry) {
	store = migrated(t)
	wattle(t, "demo", "--writers", "4", "--xes", logOf(t, 10), "--store", store).wants(t, 0)
	return store, entries(t, store)
}

// seqnos of the first column of a table, or of JSON lines.
func seqnos(t *testing.T, r result) (all []int) {
	t.Helper()
	for i, line := range strings.Split(strings.TrimSuffix(r.out, "\n"), "\n") {
		var n int
		if strings.HasPrefix(line, "{") {
			var e entryJSON
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			n = int(e.Seqno)
		} else if i == 0 {
			if !strings.HasPrefix(line, "SEQNO ") {
				t.Fatalf("wanted a header, found %q", line)
			}
			continue
		} else if _, err := fmt.Sscan(line, &n); err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

func numbers(from, to int) (all []int) {
	step := 1
	if from > to {
		step = -1
	}
	for n := from; n != to+step; n += step {
		all = append(all, n)
	}
	return all
}

// One store for those that change nothing.
func TestLoaded(t *testing.T) {
	t.Parallel()
	store, all := loaded(t)
	t.Run("read", func(t *testing.T) { testRead(t, store) })
	t.Run("history", func(t *testing.T) { testReadHistory(t, store, all) })
	t.Run("tail", func(t *testing.T) { testTail(t, store, all) })
}

func testRead(t *testing.T, store string) {
	const stream = "application-g1x000001" // of 28 events
	for _, d := range []struct {
		args     []string
		from, to int
	}{
		{nil, 1, 28},
		{[]string{"--from", "0"}, 1, 28},
		{[]string{"--from", "1"}, 1, 28},
		{[]string{"--from", "20"}, 20, 28},
		{[]string{"--from", "28", "-o", "json"}, 28, 28},
		{[]string{"--last", "3"}, 26, 28},
		{[]string{"--last", "1000"}, 1, 28},
		{[]string{"--backward"}, 28, 1},
		{[]string{"--backward", "--last", "2"}, 28, 27},
		{[]string{"--backward", "--from", "5"}, 5, 1},
		{[]string{"--backward", "--from", "5", "--last", "2", "-o", "json"}, 5, 4},
		{[]string{"--backward", "--from", "1000", "--last", "1"}, 28, 28},
	} {
		r := wattle(t, append([]string{"read", stream, "--store", store}, d.args...)...).wants(t, 0)
		if got, want := fmt.Sprint(seqnos(t, r)), fmt.Sprint(numbers(d.from, d.to)); got != want {
			t.Errorf("%q: wanted %s, found %s", d.args, want, got)
		}
	}
	if r := wattle(t, "read", stream, "--from", "29", "--store", store).wants(t, 0); r.out != "" {
		t.Errorf("wanted nothing behind the last, found %q", r.out)
	}
	wattle(t, "read", "application-none", "--store", store).wants(t, exitNotFound, "no such stream", "wattle tail application")
}

// The whole history of one case, as the golden file has it but for the times.
func testReadHistory(t *testing.T, store string, all []eventstore.Entry) {
	r := wattle(t, "read", "application-g1x000002", "--store", store).wants(t, 0)
	var lines []string
	for _, line := range strings.Split(r.out, "\n") {
		if fields := strings.Fields(line); len(fields) > 1 {
			line = strings.Replace(line, fields[1], "…", 1)
		}
		lines = append(lines, line)
	}
	got := strings.Join(lines, "\n")
	const golden = "testdata/read.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("wanted\n%sfound\n%s", want, got)
	}

	r = wattle(t, "read", "application-g1x000002", "--last", "1", "-o", "json", "--store", store).wants(t, 0)
	var last eventstore.Entry
	for _, e := range all {
		if e.Stream == "application-g1x000002" {
			last = e
		}
	}
	line, err := json.Marshal(toJSON(last))
	if err != nil {
		t.Fatal(err)
	}
	if r.out != string(line)+"\n" {
		t.Errorf("wanted %s found %s", line, r.out)
	}
}

func testTail(t *testing.T, store string, all []eventstore.Entry) {
	middle := len(all) / 2
	printed := func(args ...string) []entryJSON {
		t.Helper()
		r := wattle(t, append([]string{"tail", "application", "-o", "json", "--store", store}, args...)...).wants(t, 0)
		return jsonLines(t, r.out)
	}
	same := func(what string, got []entryJSON, want []eventstore.Entry) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: wanted %d entries, found %d", what, len(want), len(got))
		}
		for i, e := range want {
			if got[i].ID != e.ID || got[i].Position != e.Position {
				t.Fatalf("%s: wanted entry %v at %d, found %v", what, e.PositionMark(), i, got[i])
			}
		}
	}
	same("all", printed(), all)
	same("from 0", printed("--from", "0"), all)
	same("from the middle", printed("--from", all[middle].Position.String()), all[middle:])
	same("from behind", printed("--from", (all[len(all)-1].Position+1).String()), nil)
	same("from the end", printed("--from", "end"), nil)
	var some []eventstore.Entry
	for _, e := range all {
		if e.Type == "loan.declined" || e.Type == "loan.approved" {
			some = append(some, e)
		}
	}
	same("some types", printed("--types", "loan.declined,loan.approved"), some)
	r := wattle(t, "tail", "application", "--from", all[len(all)-1].Position.String(), "--store", store).wants(t, 0, "POSITION", string(all[len(all)-1].Stream))
	if n := strings.Count(r.out, "\n"); n != 2 {
		t.Errorf("wanted a header and an entry, found\n%s", r.out)
	}
}

func jsonLines(t *testing.T, out string) (all []entryJSON) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var e entryJSON
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// following runs tail -f in the background; stop interrupts it and returns its
// exit code.
func following(t *testing.T, args ...string) (out, err *buffer, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	out, err = &buffer{}, &buffer{}
	code := make(chan int, 1)
	go func() { code <- run(ctx, append([]string{"tail"}, args...), strings.NewReader(""), out, err, noEnv) }()
	ended := false
	stop = func() int {
		cancel(interruption{os.Interrupt})
		if ended {
			return 0
		}
		ended = true
		select {
		case c := <-code:
			return c
		case <-time.After(30 * time.Second):
			t.Fatal("tail does not end")
			return -1
		}
	}
	t.Cleanup(func() { stop() })
	return out, err, stop
}

// Following by polling, and by announcements alone.
func TestTailFollows(t *testing.T) {
	t.Parallel()
	nats := natsURL(t)
	for name, args := range map[string][]string{
		"polling":   {"--poll", "10ms"},
		"announced": {"--poll", "1h", "--nats", nats},
	} {
		t.Run(name, func(t *testing.T) {
			store, all := loaded(t)
			out, errs, stop := following(t, append([]string{"application", "-f", "-o", "json", "--store", store}, args...)...)
			lines := func() int { return strings.Count(out.String(), "\n") }
			until(t, "what is there", func() bool { return lines() == len(all) })

			demo := []string{"demo", "--writers", "4", "--xes", logOf(t, 14), "--store", store}
			if name == "announced" {
				demo = append(demo, "--nats", nats)
			}
			wattle(t, demo...).wants(t, 0)
			now := entries(t, store)
			until(t, "what has come", func() bool { return lines() >= len(now) })
			if code := stop(); code != 0 || errs.String() != "" {
				t.Errorf("wanted exit code 0 by interruption, found %d: %s", code, errs.String())
			}
			for i, e := range jsonLines(t, out.String()) {
				if e.ID != now[i].ID {
					t.Fatalf("entry %d: wanted %v, found %v", i, now[i].ID, e.ID)
				}
			}
		})
	}
}

// An outage of the store is told once and waited out.
func TestTailSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t)
	store := server.DSN() + "&schema=outage"
	wattle(t, "demo", "--writers", "4", "--xes", logOf(t, 5), "--store", store).wants(t, 0)
	out, errs, stop := following(t, "application", "-f", "-o", "json", "--poll", "10ms", "--store", store)
	n := len(entries(t, store))
	until(t, "what is there", func() bool { return strings.Count(out.String(), "\n") == n })

	server.Stop(t)
	until(t, "the outage to be told", func() bool { return strings.Contains(errs.String(), "going on when it is back") })
	server.Start(t)
	wattle(t, "demo", "--writers", "4", "--xes", logOf(t, 8), "--store", store).wants(t, 0)
	n = len(entries(t, store))
	until(t, "what has come", func() bool { return strings.Count(out.String(), "\n") >= n })
	if code := stop(); code != 0 || strings.Count(out.String(), "\n") != n || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("wanted exit code 0, %d entries and one line of warning, found %d, %d and %q", n, code, strings.Count(out.String(), "\n"), errs.String())
	}
}

// What was trimmed is left out without --from, and an error with it.
func TestTrimmed(t *testing.T) {
	t.Parallel()
	store, all := loaded(t)
	stream := all[0].Stream
	trim(t, store, stream, 3)
	wattle(t, "read", string(stream), "--from", "2", "--store", store).wants(t, exitNotFound, "trimmed", "read after 3")
	r := wattle(t, "read", string(stream), "--store", store).wants(t, 0)
	if got := seqnos(t, r); got[0] != 4 {
		t.Errorf("wanted the history from 4 on, found %v", got)
	}
	wattle(t, "tail", "application", "--from", "1", "--store", store).wants(t, exitNotFound, "trimmed")
	r = wattle(t, "tail", "application", "-o", "json", "--store", store).wants(t, 0)
	if n := len(jsonLines(t, r.out)); n != len(all)-3 {
		t.Errorf("wanted %d entries, found %d", len(all)-3, n)
	}
}

// trim removes entries of a stream without asking for snapshots or holds.
func trim(t *testing.T, store string, stream eventstore.Stream, through eventstore.Seqno) {
	t.Helper()
	withStore(t, store, func(s *eventstore.Store) {
		holds, err := s.ListHolds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range holds {
			if err := s.ReleaseHold(t.Context(), h.Name, h.Category, h.Stream); err != nil {
				t.Fatal(err)
			}
		}
		page, err := s.ReadFrom(t.Context(), stream, through-1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SaveSnapshot(t.Context(), eventstore.Snapshot{Stream: stream, At: page.Entries[0].Mark(), Fingerprint: "test"}); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Trim(t.Context(), stream, through, false); err != nil || r.Trimmed != through {
			t.Fatalf("wanted entries through %d trimmed, found %+v, %v", through, r, err)
		}
	})
}
