// Stores of each released format, which every later version opens and reads alike.

package filelog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/internal/vfs"
)

var update = flag.Bool("update", false, "make the golden store of the format that is written now, if there is none")

const goldenStore = "testdata/v1/store"

// content of a store, as it stands in the golden file.
type goldenContent struct {
	Categories []eventstore.CategorySpec
	Streams    map[eventstore.Stream]goldenStream
	Feed       []eventstore.Entry
	Holds      []eventstore.Hold
	Leases     []eventstore.Lease
}

type goldenStream struct {
	Head     eventstore.Head
	Entries  []eventstore.Entry
	Snapshot *eventstore.Snapshot
}

// goldenScript has every kind of record, several of them behind the registry file, a
// segment that was rewritten, and a body that is masked.
func goldenScript() []step {
	s := []step{createStep(free), createStep(strict), createStep(dedicated), createStep(passing), appendStep(1, 3, "passing-p"), deleteStep("passing"),
		createStreamsStep("own-1", "own-2"), appendStep(2, 10, "own-1"), dropStep("own-2"), appendStep(3, 60, "free-a", "strict-b"), appendStep(1, 600, "free-c"),
		fenceStep("free-a"), claimStep("free-a"), snapshotStep("strict-b", 5), trimStep("free-c", 0), trimStep("free-a", 2), trimStep("strict-b", 0)}
	s = append(s, appendStep(1, 700, "free-c"), reclaimStep, zeros(1500, 800, 1))
	return append(s, createStep(passing), appendStep(2, 4, "free-a", "strict-b", "free-c"), createStreamsStep("own-3"), appendStep(1, 1, "own-3"), dropStep("own-3"), deleteStep("passing"),
		fenceStep("strict-d"), snapshotStep("strict-b", 7), trimStep("free-a", 3), holdStep(eventstore.Hold{Name: "archive", Category: "free", Position: 30}),
		holdStep(eventstore.Hold{Name: "gone", Category: "free", Stream: "free-a", Seqno: 9}), unholdStep("gone", "free", "free-a"), leaseStep("l"), keepStep("l", true), leaseStep("m"))
}

// makeGolden writes the store as a process that was killed leaves it.
func makeGolden(t *testing.T) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	disk, err := vfs.OS(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := openPlayer(disk, filelog.Options{SegmentBytes: filelog.MinSegmentBytes}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range goldenScript() {
		if err := p.play(i, s); err != nil {
			t.Fatal(err)
		}
	}
	copyStore(t, dir, goldenStore)
	writeGolden(t, p)
	if err := p.log.Close(); err != nil {
		t.Fatal(err)
	}
	if all, _ := filepath.Glob(filepath.Join(goldenStore, "*.1.log")); len(all) == 0 {
		t.Error("no segment was rewritten")
	}
}

func writeGolden(t *testing.T, p *player) {
	t.Helper()
	if err := os.WriteFile(goldenStore+".json", contentOf(t, p), 0o600); err != nil {
		t.Fatal(err)
	}
}

func copyStore(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(from, "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", from, len(names), err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err == nil && filepath.Base(name) != "LOCK" {
			err = os.WriteFile(filepath.Join(to, filepath.Base(name)), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// contentOf reads a store.
func contentOf(t *testing.T, p *player) []byte {
	t.Helper()
	c := goldenContent{Streams: map[eventstore.Stream]goldenStream{}, Leases: p.log.LeaseList()}
	var err, errs error
	note := func() { errs = errors.Join(errs, err) }
	c.Categories, err = p.store.ListCategories(p.ctx)
	note()
	c.Holds, err = p.store.ListHolds(p.ctx)
	note()
	for _, s := range p.log.StreamNames() {
		var g goldenStream
		g.Head, err = p.store.Head(p.ctx, s)
		note()
		for e, err := range p.store.Read(p.ctx, s, g.Head.Trimmed) {
			errs = errors.Join(errs, err)
			g.Entries = append(g.Entries, e)
		}
		if s.Category() == strict.Name {
			l, err := p.log.Load(p.ctx, s, "f", 10)
			errs = errors.Join(errs, err)
			g.Snapshot = l.Snapshot
		}
		c.Streams[s] = g
	}
	for e, err := range p.store.Feed(p.ctx, 0, eventstore.Filter{AcceptTrimmed: true}) {
		errs = errors.Join(errs, err)
		c.Feed = append(c.Feed, e)
	}
	out, err := json.MarshalIndent(c, "", " ")
	if err = errors.Join(errs, err); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestGolden opens the store of format 1, for reading and for writing, and once more
// after it was written to.
func TestGolden(t *testing.T) {
	if _, err := os.Stat(goldenStore); *update && os.IsNotExist(err) {
		makeGolden(t)
	}
	want, err := os.ReadFile(goldenStore + ".json")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copyStore(t, goldenStore, dir)
	for _, o := range []filelog.Options{{ReadOnly: true}, {ReclaimEvery: -1}, {ReclaimEvery: -1}} {
		log, err := filelog.Open(dir, &o)
		if err != nil {
			t.Fatal(err)
		}
		p := &player{ctx: t.Context(), log: log, store: eventstore.New(log, nil)}
		if got := contentOf(t, p); !bytes.Equal(got, want) {
			t.Errorf("%+v: %s", o, difference(string(got), string(want)))
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNewerFormat raises the version of each file of the golden store: it is refused,
// as files to be read by a newer version. An index is made again.
func TestNewerFormat(t *testing.T) {
	names, err := os.ReadDir(goldenStore)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, file := range names {
		dir := t.TempDir()
		copyStore(t, goldenStore, dir)
		path := filepath.Join(dir, file.Name())
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, filelog.OfVersion(file.Name(), b, filelog.FormatVersion+1), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = readDir(dir)
		switch {
		case errors.Is(err, eventstore.ErrNotMigrated):
			refused++
		case err != nil:
			t.Errorf("%s of a newer format: %v", file.Name(), err)
		case !strings.HasSuffix(file.Name(), ".idx") && !strings.HasSuffix(file.Name(), ".log"):
			t.Errorf("%s of a newer format was opened", file.Name())
		}
	}
	if refused < 3 {
		t.Errorf("%d files refused, want the manifest, the registry and the active segment", refused)
	}
}

func readDir(dir string) (string, error) {
	disk, err := vfs.OS(dir, nil)
	if err != nil {
		return "", err
	}
	return readAll(disk)
}
