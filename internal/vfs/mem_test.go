// What is durable in Mem, by random histories against a plain account of them, and what
// the next process finds.

package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// account is what a test remembers of a file: the contents it has had since its last
// Sync, and which bytes were written.
type account struct {
	file  File
	since [][]byte
	dirty map[int]bool
}

// admits says if a crash may leave this content.
func (a *account) admits(image string) bool {
	least, most := len(a.since[0]), 0
	for _, s := range a.since {
		least, most = min(least, len(s)), max(most, len(s))
	}
	if len(image) < least || len(image) > most {
		return false
	}
	for i := range len(image) {
		had := slices.ContainsFunc(a.since, func(s []byte) bool {
			return i < len(s) && s[i] == image[i] || i >= len(s) && image[i] == 0
		})
		if !had && !a.dirty[i] {
			return false
		}
	}
	return true
}

// disk is what a test remembers of the names: what each has meant since the last SyncDir.
type disk struct {
	m     *Mem
	files []*account
	since map[string][]*account
}

func (d *disk) now(name string) *account {
	all := d.since[name]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

func (d *disk) set(name string, a *account) {
	if len(d.since[name]) == 0 {
		d.since[name] = []*account{nil}
	}
	d.since[name] = append(d.since[name], a)
}

// do carries out a random operation and keeps the account.
func (d *disk) do(t *testing.T, rng *rand.Rand) {
	names := []string{"a", "b", "c"}
	name, to := names[rng.IntN(3)], names[rng.IntN(3)]
	ino := d.now(name)
	switch rng.IntN(12) {
	case 0, 1:
		if ino == nil {
			a := &account{file: create(t, d.m, name), since: [][]byte{{}}, dirty: map[int]bool{}}
			d.files = append(d.files, a)
			d.set(name, a)
		}
	case 2:
		if ino != nil && name != to {
			must(t, d.m.Rename(name, to))
			d.set(name, nil)
			d.set(to, ino)
		}
	case 3:
		if ino != nil {
			must(t, d.m.Remove(name))
			d.set(name, nil)
		}
	case 4:
		must(t, d.m.SyncDir())
		for name := range d.since {
			d.since[name] = []*account{d.now(name)}
		}
	default:
		if len(d.files) > 0 {
			d.files[rng.IntN(len(d.files))].change(t, rng)
		}
	}
}

func (a *account) change(t *testing.T, rng *rand.Rand) {
	off, n := rng.IntN(1500), 1+rng.IntN(1200)
	switch rng.IntN(6) {
	case 0:
		must(t, a.file.Truncate(int64(off)))
	case 1:
		must(t, a.file.Allocate(int64(off), int64(off+n)))
	case 2:
		must(t, a.file.Sync())
		a.since, a.dirty = nil, map[int]bool{}
	default:
		write(t, a.file, int64(off), rep(string(rune('A'+rng.IntN(26))), n))
		for i := range n {
			a.dirty[off+i] = true
		}
	}
	a.since = append(a.since, []byte(content(t, a.file)))
}

func TestDurable(t *testing.T) {
	crashes := 0
	eachSeed(t, func(t *testing.T, rng *rand.Rand) {
		d := &disk{m: NewMem(), since: map[string][]*account{}}
		for range 60 {
			d.do(t, rng)
			for title, image := range d.m.Images(12, rng) {
				crashes++
				d.check(t, title, files(t, image))
			}
		}
	})
	t.Logf("%d images of %d histories from seed %d", crashes, *histories, *seedFlag)
}

func (d *disk) check(t *testing.T, title string, image map[string]string) {
	t.Helper()
	for name, meant := range d.since {
		got, there := image[name]
		ok := slices.ContainsFunc(meant, func(a *account) bool {
			return a == nil && !there || a != nil && there && a.admits(got)
		})
		if !ok {
			t.Fatalf("%s: %s is there: %v, %d bytes, which no past of it admits", title, name, there, len(got))
		}
		delete(image, name)
	}
	if len(image) > 0 {
		t.Fatalf("%s: files that never were: %v", title, image)
	}
}

func TestSnapshot(t *testing.T) {
	m, f := durable(t, "a", "old")
	lock, err := m.Lock("lock")
	must(t, err)
	write(t, f, 0, "new")
	must(t, m.Close())
	next := m.Snapshot()
	write(t, f, 0, "own")
	must(t, f.Sync())
	if got := files(t, next); got["a"] != "new" {
		t.Errorf("the next process sees %q", got)
	}
	if got := files(t, next.Crash(Choice{Pick: LoseAll})); len(got) != 1 || got["a"] != "old" {
		t.Errorf("durable is %q", got)
	}
	if _, err := next.Lock("lock"); err != nil {
		t.Errorf("lock of a process that ended: %v", err)
	}
	if _, err := next.Lock("lock"); !errors.Is(err, ErrLocked) {
		t.Errorf("a second lock: %v", err)
	}
	must(t, lock.Close())
	if _, err := m.Lock("lock"); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("lock after Close: %v", err)
	}
	g, err := next.Open("a")
	must(t, err)
	must(t, g.Sync())
	if got := files(t, next.Crash(Choice{Pick: LoseAll})); got["a"] != "new" {
		t.Errorf("what the process before wrote and this one synced is %q", got)
	}
}

// TestApart: what is done to a disk does not show in copies of it, nor the other way.
func TestApart(t *testing.T) {
	m, f := durable(t, "a", rep("s", 5))
	buffer := []byte("0")
	for i := range int64(3) { // an odd number leaves room behind the list of operations
		_, err := f.WriteAt(buffer, i)
		must(t, err)
		buffer[0]++
	}
	m.Crash(Choice{Pick: KeepAll})
	next := m.Snapshot()
	g, err := next.Open("a")
	must(t, err)
	last := 0
	next.OnOp(func(o Op) { last = o.N })
	write(t, g, 3, "g")
	write(t, f, 3, "f")
	for _, c := range []struct {
		m    *Mem
		pick func(Point) int
		want string
	}{
		{m, KeepAll, "012fs"}, {next, KeepAll, "012gs"}, {m, LoseAll, "sssss"}, {next, LoseAll, "sssss"},
	} {
		image := c.m.Crash(Choice{Pick: c.pick})
		if got := files(t, image)["a"]; got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		h, err := image.Open("a")
		must(t, err)
		write(t, h, 0, "image")
		must(t, h.Sync())
	}
	if last != 8 {
		t.Errorf("operation 8 of this disk is number %d", last)
	}
}

// TestMapping: bytes used after Close are seen to be wrong, not silently right.
func TestMapping(t *testing.T) {
	_, f := durable(t, "a", "content")
	m, err := f.Map(7)
	must(t, err)
	b := m.Bytes()
	if must(t, f.Close()); string(b) != "content" {
		t.Errorf("mapped %q", b)
	}
	if must(t, m.Close()); bytes.Contains(b, []byte("con")) || m.Bytes() != nil {
		t.Errorf("after Close %q", b)
	}
}

func TestOnOp(t *testing.T) {
	m := NewMem()
	var seen []string
	m.OnOp(func(o Op) { seen = append(seen, o.String()) })
	must(t, replace(m, "data", true, true))
	f, err := m.Open("a")
	must(t, err)
	must(t, f.Truncate(2))
	must(t, f.Allocate(1, 9))
	want := "[1:create tmp 2:write tmp 0+4 3:sync tmp 4:rename tmp to a 5:syncdir  6:truncate a at 2 7:allocate a 1+8]"
	if fmt.Sprint(seen) != want {
		t.Errorf("seen %v\nwant %s", seen, want)
	}
}

// TestConcurrent has something to say under -race.
func TestConcurrent(t *testing.T) {
	m, f := durable(t, "a", rep("s", 4096))
	var group sync.WaitGroup
	for i := range int64(4) {
		group.Go(func() {
			for range 50 {
				write(t, f, i*1024, rep("x", 100))
				must(t, f.Sync())
				if got := content(t, f); got[i*1024:i*1024+100] != rep("x", 100) {
					t.Errorf("read %q", got)
				}
			}
		})
	}
	group.Go(func() {
		for range 50 {
			for _, image := range m.Images(4, rand.New(rand.NewPCG(1, 1))) {
				f, err := image.Open("a")
				must(t, err)
				write(t, f, 0, "changed")
			}
		}
	})
	group.Wait()
}
