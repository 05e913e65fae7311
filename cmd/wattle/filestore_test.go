// Stores in files: the demo's own, who writes and who reads beside, what is refused.

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/cmd/wattle/internal/load"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/examples/loan"
)

func TestStateDir(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for _, d := range []struct {
		goos string
		env  map[string]string
		want string // below home; "": an error
	}{
		{"linux", map[string]string{"HOME": home}, ".local/state"},
		{"linux", map[string]string{"HOME": home, "XDG_STATE_HOME": home + "/xdg"}, "xdg"},
		{"freebsd", map[string]string{"XDG_STATE_HOME": home + "/xdg"}, "xdg"},
		{"linux", map[string]string{"HOME": home, "XDG_STATE_HOME": "relative"}, ".local/state"},
		{"linux", nil, ""},
		{"linux", map[string]string{"HOME": "relative"}, ""},
		{"darwin", map[string]string{"HOME": home, "XDG_STATE_HOME": home + "/xdg"}, "Library/Application Support"},
		{"darwin", nil, ""},
		{"windows", map[string]string{"LocalAppData": home + "/AppData/Local", "HOME": home}, "AppData/Local"},
		{"windows", map[string]string{"HOME": home}, ""},
	} {
		got, err := stateDir(d.goos, func(name string) string { return d.env[name] })
		if d.want == "" {
			if codeOf(err) != exitUsage || !strings.Contains(err.Error(), "--store") {
				t.Errorf("%s, %v: wanted a usage error that names --store, found %q, %v", d.goos, d.env, got, err)
			}
		} else if want := filepath.Join(home, filepath.FromSlash(d.want)); got != want || err != nil {
			t.Errorf("%s, %v: wanted %s, found %q, %v", d.goos, d.env, want, got, err)
		}
	}
}

// totals counts what is in several logs that are made up.
func totals(cases int, seeds ...uint64) (applications, events int) {
	for _, seed := range seeds {
		for c := range loan.Generate(seed, cases) {
			applications, events = applications+1, events+len(c.Events)
		}
	}
	return applications, events
}

// The demo goes on with what it finds, and reports on all of it, however little it adds.
func TestDemoGoesOn(t *testing.T) {
	t.Parallel()
	env := atHome(t.TempDir())
	demo := func(args ...string) result {
		t.Helper()
		return wattleIn(t, env, "", append([]string{"demo", "--cases", "10", "--json"}, args...)...).wants(t, 0)
	}
	first := demo()
	if want, _ := expiredReportOf(t, 1, 10); first.out != want {
		t.Fatalf("wanted\n%sfound\n%s", want, first.out)
	}
	cases, events := totals(10, 1, 2)
	_, one := reportAt(t, 1, 10, endOf(1, 10))
	_, two := reportAt(t, 2, 10, endOf(2, 10))
	_, later := reportAt(t, 2, 10, endOf(1, 10)) // the first log ends later, so with it more of the second expires
	events += one + two
	for _, args := range [][]string{{"--seed", "2"}, {"--cases", "0"}, {"--cases", "1"}, nil} {
		if args == nil {
			events += later - two
		}
		if r := demo(args...); !strings.HasPrefix(r.out, fmt.Sprintf(`{"cases":%d,"events":%d,`, cases, events)) {
			t.Errorf("%q: wanted %d applications and %d events, found %s", args, cases, events, r.out)
		}
	}
	if r := demo("--fresh"); r.out != first.out || !strings.Contains(r.err, "new events go to") {
		t.Errorf("wanted it begun anew, found %s%s", r.out, r.err)
	}
}

// A log that says something else is refused, and the way out is named.
func TestDemoOtherLogAtHome(t *testing.T) {
	t.Parallel()
	env := atHome(t.TempDir())
	file, _ := xesFile(t, 1, 10, func(c *loan.Case) { c.Events[1].Resource = "somebody else" })
	wattleIn(t, env, "", "demo", "--cases", "10").wants(t, 0)
	wattleIn(t, env, "", "demo", "--xes", file).wants(t, exitRefused, "somebody else", "--fresh")
	wattleIn(t, env, "", "demo", "--xes", file, "--fresh").wants(t, 0, "10 applications")
}

// --fresh removes the demo's store, and nothing else whatever it finds in its place.
func TestDemoFresh(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	env, dir := atHome(home), demoDir(t, home)
	fresh := []string{"demo", "--cases", "3", "--fresh"}
	wattleIn(t, env, "", fresh...).wants(t, 0, "new events go to") // there is none yet
	mine := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	wattleIn(t, env, "", fresh...).wants(t, exitRefused, "nothing but a store", "notes.txt", "nothing was removed")
	wattleIn(t, env, "", "demo", "--cases", "3").wants(t, 0, "going on with", "3 applications")
	if b, err := os.ReadFile(mine); err != nil || string(b) != "mine" {
		t.Errorf("the file beside holds %q, %v", b, err)
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	wattleIn(t, env, "", fresh...).wants(t, 0, "new events go to")
	if err := os.WriteFile(filepath.Join(dir, "MANIFEST"), []byte("include README.md\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wattleIn(t, env, "", fresh...).wants(t, exitRefused, "no manifest of one")
	named := func(name string) string { return map[string]string{storeVariable: "file:" + dir}[name] }
	wattleIn(t, named, "", fresh...).wants(t, exitUsage, "--fresh", storeVariable)
}

// While one process writes, a second writer is refused by name, and those who read
// work beside it.
func TestFilesOwned(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	env, dir := atHome(home), demoDir(t, home)
	wattleIn(t, env, "", "demo", "--cases", "10").wants(t, 0)
	store := "file:" + dir
	withStore(t, store, func(owner *eventstore.Store) {
		const another = "that has it open"
		wattleIn(t, env, "", "demo", "--cases", "10").wants(t, exitUnavailable, "wanted to own "+dir, another, "commands that only read work beside it")
		wattleIn(t, env, "", "demo", "--fresh").wants(t, exitUnavailable, dir, another)
		for _, args := range [][]string{{"bench", "append"}, {"category", "create", "b"}, {"category", "delete", "application", "--yes"},
			{"stream", "create", "b-1"}, {"stream", "drop", "b-1", "--yes"}, {"migrate", "down", "--yes"}} {
			wattle(t, append(args, "--store", store)...).wants(t, exitUnavailable, dir, another)
		}
		if err := owner.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "new"}); err != nil {
			t.Fatal(err)
		}
		wattle(t, "category", "list", "--store", store).wants(t, 0, "application", "new")
		wattle(t, "read", "application-g1x000001", "--store", store).wants(t, 0, "loan.submitted")
		wattle(t, "tail", "application", "--store", store).wants(t, 0, "loan.submitted")
		wattle(t, "migrate", "up", "--store", store).wants(t, 0, "nothing to migrate")
		wattle(t, "doctor", "--store", store).wants(t, 0, "  owner ", "segments")
	})
	wattle(t, "category", "create", "b", "--store", store).wants(t, 0)
}

// A tail follows what another process appends.
func TestFilesFollowed(t *testing.T) {
	t.Parallel()
	store := filed(t)
	withStore(t, store, func(owner *eventstore.Store) {
		if err := owner.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "a"}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		var out, errs buffer
		code := make(chan int, 1)
		go func() {
			code <- run(ctx, []string{"tail", "a", "-f", "--poll", "5ms", "--store", store}, strings.NewReader(""), &out, &errs, noEnv)
		}()
		for i := range 3 {
			b := eventstore.Batch{Stream: eventstore.Stream(fmt.Sprintf("a-%d", i)), Claim: true, Epoch: 1, Holder: eventstore.NewUUID(),
				Events: []eventstore.Event{{Type: "came", Data: []byte("1")}}}
			if _, err := owner.Append(t.Context(), eventstore.Append{Batches: []eventstore.Batch{b}}); err != nil {
				t.Fatal(err)
			}
			until(t, "the entry to be printed", func() bool { return strings.Contains(out.String(), string(b.Stream)) })
		}
		cancel(interruption{os.Interrupt})
		if got := <-code; got != 0 || errs.String() != "" {
			t.Errorf("wanted exit code 0, found %d: %s", got, errs.String())
		}
	})
}

// Only what is to write makes a store; what reads a wrong directory says so and leaves
// nothing there.
func TestFilesMissing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "none")
	store := "file:" + dir
	for _, args := range [][]string{{"category", "list"}, {"read", "a-1"}, {"tail", "a"}, {"tail", "a", "-f"}, {"verify"}, {"migrate", "status"},
		{"category", "delete", "a", "--yes"}, {"stream", "create", "a-1"}, {"stream", "drop", "a-1", "--yes"},
		{"topic", "list"}, {"topic", "describe", "a"}, {"topic", "delete", "a", "--yes"}, {"publish", "a", "x"}, {"consume", "a"}} {
		wattle(t, append(args, "--store", store)...).wants(t, exitNotMigrated, "wanted a store in "+dir, "wattle migrate up")
	}
	wattle(t, "doctor", "--store", store).wants(t, exitFound, "fault ", "wanted a store in "+dir, "found 1 fault")
	wattle(t, "migrate", "down", "--yes", "--store", store).wants(t, 0)
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("it was made: %v", err)
	}
	wattle(t, "category", "create", "a", "--store", store).wants(t, 0)
	wattle(t, "category", "list", "--store", "file://"+filepath.ToSlash(dir)).wants(t, 0, "a ")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wattle(t, "category", "list", "--store", "file:"+file).wants(t, exitUnavailable, "not a directory")
}

// A relative path is one from where the user is.
func TestFilesRelative(t *testing.T) {
	t.Chdir(t.TempDir())
	wattle(t, "category", "create", "a", "--store", "file:data/store").wants(t, 0)
	wattle(t, "category", "list", "--store", "file:./data/store").wants(t, 0, "a ")
	if found, err := filelog.IsStore("data/store"); err != nil || !found {
		t.Errorf("wanted it there, found %v, %v", found, err)
	}
}

func TestFilesMigrate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "bank")
	store := "file:" + dir
	for range 2 {
		wattle(t, "migrate", "up", "--store", store).wants(t, 0, "nothing to migrate")
	}
	if r := wattle(t, "migrate", "status", "-o", "json", "--store", store).wants(t, 0); r.out != "[]\n" {
		t.Errorf("wanted no migration, found %s", r.out)
	}
	wattle(t, "category", "create", "a", "--store", store).wants(t, 0)
	wattle(t, "migrate", "down", "--store", store).wants(t, exitRefused, "DESTROYS EVERY LOG", "no terminal")
	if r := asked(t, "yes\n", "migrate", "down", "--store", store); r.code != exitRefused || !strings.Contains(r.err, "Type bank to go on") {
		t.Errorf("wanted a refusal, found %d: %s", r.code, r.err)
	}
	wattle(t, "category", "list", "--store", store).wants(t, 0, "a ")
	if r := asked(t, "bank\n", "migrate", "down", "--store", store); r.code != 0 {
		t.Errorf("wanted it done, found %d: %s", r.code, r.err)
	}
	wattle(t, "category", "list", "--store", store).wants(t, exitNotMigrated)
}

// Both kinds of load, trimmed beside, and a second run that goes on.
func TestBenchFiles(t *testing.T) {
	t.Parallel()
	store := "file:" + t.TempDir() + "/bench"
	common := []string{"--logs", "2", "--duration", "300ms", "-o", "json"}
	paced := figuresOf(t, wattle(t, quiet(store, append(common, "--rps", "100")...)...).wants(t, 0).out)
	if paced.Scheduled != 30 || paced.Scheduled != paced.Appends+paced.Skipped+paced.Failed || paced.Failed != 0 || paced.WALPerAppend != nil || paced.TripsPerAppend != nil {
		t.Errorf("wanted 30 sends, found %+v", paced)
	}
	loop := figuresOf(t, wattle(t, quiet(store, common...)...).wants(t, 0).out)
	if loop.Epoch != 2 || loop.Appends == 0 || loop.Failed != 0 || loop.Ended != load.EndedByTime {
		t.Errorf("wanted a second run, found %+v", loop)
	}
	if got := seqnosIn(t, store, "bench-1", "bench-2"); got != paced.Entries+loop.Entries {
		t.Errorf("wanted %d and %d entries, found %d", paced.Entries, loop.Entries, got)
	}
	kept := figuresOf(t, wattle(t, quiet(store, append(common, "--prefix", "short", "--retain", "5", "--layout", "dedicated", "--rps", "200")...)...).wants(t, 0).out)
	if kept.Trims == 0 || kept.TrimsFailed != 0 || kept.Failed != 0 {
		t.Errorf("found %+v", kept)
	}
	all := seqnos(t, wattle(t, "read", "short-1", "--store", store, "-o", "json").wants(t, 0))
	if last := int(kept.Entries / 2); !slices.Equal(all, numbers(last-4, last)) {
		t.Errorf("wanted the last 5 of %d, found %v", last, all)
	}
}

func TestDoctorFiles(t *testing.T) {
	t.Parallel()
	store := filed(t)
	sound := unmarshal[examinedJSON](t, wattle(t, "doctor", "-o", "json", "--store", store).wants(t, 0))
	if sound.Store != store || sound.Faults != 0 || len(sound.Findings) < 8 {
		t.Errorf("of a sound store: %+v", sound)
	}
	dir := strings.TrimPrefix(store, "file:")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wattle(t, "doctor", "--store", store).wants(t, 0, "warning   modes", "0755", "note      others", "notes.txt")
	segments, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("wanted one segment, found %q, %v", segments, err)
	}
	if err := os.Truncate(segments[0], 10); err != nil {
		t.Fatal(err)
	}
	wattle(t, "doctor", "--store", store).wants(t, exitFound, "fault     open", "wattle verify")
	wattle(t, "category", "list", "--store", store).wants(t, exitFailure, "corrupt", filepath.Base(segments[0]))
}

// The owner is named where the system tells who it is.
func TestFilesOwnerIsNamed(t *testing.T) {
	t.Parallel()
	store := filed(t)
	withStore(t, store, func(*eventstore.Store) {
		r := wattle(t, "category", "create", "a", "--store", store).wants(t, exitUnavailable)
		d := wattle(t, "doctor", "--store", store).wants(t, 0)
		me, doctors := fmt.Sprintf("process %d (", os.Getpid()), "owner"
		if runtime.GOOS == "linux" {
			doctors = me
		} else {
			me = "another process"
		}
		if !strings.Contains(r.err, me) || !strings.Contains(d.out, doctors) {
			t.Errorf("wanted %q in %s%s", me, r.err, d.out)
		}
	})
}
