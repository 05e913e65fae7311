// Which images there are: counted by hand, and what a protocol may rely on.

package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// images returns what Images yields: description and contents.
func images(t *testing.T, m *Mem, limit int, seed uint64) (titles []string, all []map[string]string) {
	t.Helper()
	for title, image := range m.Images(limit, rand.New(rand.NewPCG(seed, 0))) {
		titles, all = append(titles, title), append(all, files(t, image))
	}
	return titles, all
}

func TestCount(t *testing.T) {
	synced := func(n int, then func(*Mem, File)) func(*testing.T) *Mem {
		return func(t *testing.T) *Mem {
			m, f := durable(t, "a", rep("s", n))
			then(m, f)
			return m
		}
	}
	fresh := func(then func(*testing.T, *Mem)) func(*testing.T) *Mem {
		return func(t *testing.T) *Mem { m := NewMem(); then(t, m); return m }
	}
	for _, c := range []struct {
		name string
		disk func(*testing.T) *Mem
		want int
	}{
		{"nothing", fresh(func(*testing.T, *Mem) {}), 1},
		{"one name", fresh(func(t *testing.T, m *Mem) { create(t, m, "a") }), 2},
		{"two names are independent", fresh(func(t *testing.T, m *Mem) { create(t, m, "a"); create(t, m, "b") }), 4},
		{"a rename needs its creation", fresh(func(t *testing.T, m *Mem) { create(t, m, "a"); must(t, m.Rename("a", "b")) }), 3},
		{"none, a, b, both, renamed", fresh(func(t *testing.T, m *Mem) {
			create(t, m, "a")
			create(t, m, "b")
			must(t, m.Rename("a", "b"))
		}), 5},
		{"a name used again", synced(0, func(m *Mem, _ File) { must(t, m.Rename("a", "b")); create(t, m, "a") }), 3},
		{"removed", synced(9, func(m *Mem, _ File) { must(t, m.Remove("a")) }), 2},
		{"a lock is a name", fresh(func(t *testing.T, m *Mem) { _, err := m.Lock("a"); must(t, err) }), 2},
		{"synced, but no name", fresh(func(t *testing.T, m *Mem) { f := create(t, m, "a"); write(t, f, 0, "x"); must(t, f.Sync()) }), 2},
		{"no name, or a size of 0, or 100 bytes of 3 kinds", fresh(func(t *testing.T, m *Mem) { write(t, create(t, m, "a"), 0, rep("x", 100)) }), 1 + 1 + 3},
		{"size 0, 512 and 600", synced(0, func(_ *Mem, f File) { write(t, f, 0, rep("x", 600)) }), 1 + 3 + 9},
		{"size 100, 512 and 612", synced(100, func(_ *Mem, f File) { write(t, f, 100, rep("x", 512)) }), 1 + 3 + 9},
		{"after a gap: size 10 and 1100", synced(10, func(_ *Mem, f File) { write(t, f, 1030, rep("x", 70)) }), 1 + 3},
		{"in place: two sectors", synced(1024, func(_ *Mem, f File) { write(t, f, 100, rep("x", 600)) }), 9},
		{"in place: two writes of a sector", synced(512, func(_ *Mem, f File) { write(t, f, 0, "x"); write(t, f, 1, "y") }), 9},
		{"allocated", synced(10, func(_ *Mem, f File) { must(t, f.Allocate(0, 1000)) }), 2},
		{"allocated where there is something", synced(10, func(_ *Mem, f File) { must(t, f.Allocate(0, 10)) }), 1},
		{"size 0, or 1000 with a write", synced(0, func(_ *Mem, f File) { must(t, f.Allocate(0, 1000)); write(t, f, 5, "x") }), 1 + 3},
		{"cut", synced(1000, func(_ *Mem, f File) { must(t, f.Truncate(200)) }), 2},
		{"size 1000 with a write, 200, 300 with it", synced(1000, func(_ *Mem, f File) { must(t, f.Truncate(200)); write(t, f, 200, rep("x", 100)) }), 3 + 1 + 3},
		{"written, then cut through", synced(1000, func(_ *Mem, f File) { write(t, f, 0, rep("x", 100)); must(t, f.Truncate(50)) }), 3 + 3},
		{"written, cut away, lengthened: size 600, 0, 700", synced(600, func(_ *Mem, f File) {
			write(t, f, 0, "x")
			must(t, f.Truncate(0))
			must(t, f.Truncate(700))
		}), 3 + 1 + 1},
		{"removed with a write", synced(9, func(m *Mem, f File) { write(t, f, 0, "x"); must(t, m.Remove("a")) }), 3 + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.disk(t)
			distinct := map[string]bool{}
			var titles []string
			for title, image := range m.Images(100, rand.New(rand.NewPCG(1, 1))) {
				ids := map[string]int{}
				for name, ino := range image.names {
					ids[name] = ino.id
				}
				distinct[fmt.Sprint(files(t, image), ids)] = true
				titles = append(titles, title)
			}
			if len(titles) != c.want || len(distinct) != c.want {
				t.Errorf("%d images, %d distinct; want %d:\n%s", len(titles), len(distinct), c.want, strings.Join(titles, "\n"))
			}
			if _, few := images(t, m, c.want, 1); len(few) != c.want {
				t.Errorf("%d images at a limit of %d", len(few), c.want)
			}
		})
	}
}

func TestTorn(t *testing.T) {
	m, f := durable(t, "a", rep("s", 1024))
	write(t, f, 510, "xxxx")
	kinds := map[string]int{}
	for _, image := range m.Images(9, rand.New(rand.NewPCG(1, 1))) {
		got := files(t, image)["a"]
		if got[:510] != rep("s", 510) || got[514:] != rep("s", 510) {
			t.Fatalf("what is synced around the write is %q", got)
		}
		kind := func(s string) string {
			if s == "ss" || s == "xx" {
				return s
			}
			return "garbage"
		}
		kinds[kind(got[510:512])+" "+kind(got[512:514])]++
	}
	for _, a := range []string{"ss", "xx", "garbage"} {
		for _, b := range []string{"ss", "xx", "garbage"} {
			if kinds[a+" "+b] != 1 {
				t.Errorf("%s %s comes %d times", a, b, kinds[a+" "+b])
			}
		}
	}
}

// TestCut: what was cut off does not come back when the file grows again.
func TestCut(t *testing.T) {
	m, f := durable(t, "a", rep("s", 600))
	write(t, f, 0, "x")
	must(t, f.Truncate(10))
	must(t, f.Truncate(700))
	for title, image := range m.Images(100, rand.New(rand.NewPCG(1, 1))) {
		got := files(t, image)["a"]
		if want := (rep("s", 10) + rep("\x00", 690))[1:]; len(got) == 700 && got[1:] != want {
			t.Errorf("%s: %q", title, got)
		}
	}
	if got := content(t, f); got != "x"+rep("s", 9)+rep("\x00", 690) {
		t.Errorf("live is %q", got)
	}
}

func TestSample(t *testing.T) {
	m, f := durable(t, "a", rep("s", 8*sector))
	write(t, f, 0, rep("x", 8*sector))
	write(t, create(t, m, "b"), 0, rep("y", 3*sector))
	titles, all := images(t, m, 200, 7)
	again, same := images(t, m, 200, 7)
	other, _ := images(t, m, 200, 8)
	if len(all) != 200 || fmt.Sprint(all) != fmt.Sprint(same) || !slices.Equal(titles, again) || slices.Equal(titles, other) {
		t.Error("200 images that depend on the seed alone are wanted")
	}
	if got := all[0]; len(got) != 1 || got["a"] != rep("s", 8*sector) {
		t.Errorf("all lost: %q", got)
	}
	if fmt.Sprint(all[1]) != fmt.Sprint(files(t, m)) {
		t.Errorf("all kept: %q", all[1])
	}
	for i := range 8 {
		lost, garbage := false, false
		for _, image := range all {
			a := image["a"]
			at := a[i*sector : (i+1)*sector]
			if a[:i*sector]+a[(i+1)*sector:] == rep("x", 7*sector) && image["b"] == rep("y", 3*sector) {
				lost = lost || at == rep("s", sector)
				garbage = garbage || at != rep("s", sector) && at != rep("x", sector)
			}
		}
		if !lost || !garbage {
			t.Errorf("sector %d alone: lost %v, garbage %v", i, lost, garbage)
		}
	}
}

// TestImageDurable crashes an image again: nothing changes.
func TestImageDurable(t *testing.T) {
	m, f := durable(t, "a", "old")
	write(t, f, 1, "new")
	create(t, m, "b")
	for title, image := range m.Images(100, rand.New(rand.NewPCG(1, 1))) {
		if _, again := images(t, image, 100, 1); len(again) != 1 || fmt.Sprint(again[0]) != fmt.Sprint(files(t, image)) {
			t.Fatalf("%s: then %d images: %q", title, len(again), again)
		}
	}
}

// replace puts a new content in the place of a file, leaving out what it is told to.
func replace(d FS, data string, sync, syncDir bool) error {
	f, err := d.Create("tmp")
	if err != nil {
		return err
	}
	if _, err := f.WriteAt([]byte(data), 0); err != nil {
		return err
	}
	if sync {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close(), d.Rename("tmp", "a"))
	if syncDir {
		err = errors.Join(err, d.SyncDir())
	}
	return err
}

// TestReplace crashes the replacement of a file before each operation and at its end. It
// may be trusted with both syncs, and an image shows what is wrong without either.
func TestReplace(t *testing.T) {
	before, after := rep("old", 300), rep("new", 400)
	for _, c := range []struct{ sync, syncDir, torn, undone bool }{
		{sync: true, syncDir: true},
		{sync: true, undone: true},
		{syncDir: true, torn: true, undone: true},
	} {
		m, _ := durable(t, "a", before)
		torn, undone, prefixes := false, false, 0
		look := func(acked bool) {
			prefixes++
			for _, image := range m.Images(300, rand.New(rand.NewPCG(1, 1))) {
				got := files(t, image)["a"]
				torn = torn || got != before && got != after
				undone = undone || acked && got != after
			}
		}
		m.OnOp(func(Op) { look(false) })
		must(t, replace(m, after, c.sync, c.syncDir))
		m.OnOp(nil)
		look(true)
		want := 4 // create, write, rename, and the end
		for _, b := range []bool{c.sync, c.syncDir} {
			if b {
				want++
			}
		}
		if torn != c.torn || undone != c.undone || prefixes != want {
			t.Errorf("%+v: torn %v, undone %v, at %d places", c, torn, undone, prefixes)
		}
	}
}

func TestGarbageDiffers(t *testing.T) {
	at := func(seed uint64, id, n int, off int64) []byte {
		return garbage(seed, id, n, part{off: off, end: off + 64})
	}
	base := at(1, 1, 1, 0)
	for _, other := range [][]byte{at(2, 1, 1, 0), at(1, 2, 1, 0), at(1, 1, 2, 0), at(1, 1, 1, 512)} {
		if bytes.Equal(base, other) || len(other) != 64 {
			t.Errorf("the same garbage, or %d bytes of it", len(other))
		}
	}
}
