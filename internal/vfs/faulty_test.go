// Faults: each kind comes where it is asked for, and does what it says to the disk.

package vfs

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
)

// TestFailEach fails each kind of operation once: nothing is carried out, and the same
// again works.
func TestFailEach(t *testing.T) {
	for kind := OpCreate; kind <= OpLock; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			m, _ := durable(t, "a", "data")
			armed := Kind(0)
			d := NewFaulty(m, func(o Op) error {
				if o.Kind == armed {
					armed = 0
					return syscall.EIO
				}
				return nil
			})
			f, err := d.Open("a")
			must(t, err)
			write(t, f, 4, "more")
			armed = kind
			err = call(d, f, kind)
			var path *fs.PathError
			if !errors.Is(err, syscall.EIO) || !errors.As(err, &path) || path.Op != kind.String() {
				t.Fatalf("got %v", err)
			}
			if got := files(t, m); len(got) != 1 || got["a"] != "datamore" {
				t.Errorf("the disk has %q", got)
			}
			if got := files(t, m.Crash(Choice{Pick: LoseAll})); got["a"] != "data" {
				t.Errorf("durable is %q", got)
			}
			if err := call(d, f, kind); err != nil {
				t.Errorf("the next one: %v", err)
			}
			if before := d.Count(kind); d.Count(0) < 4 || before < 2 {
				t.Errorf("counted %d of %d", before, d.Count(0))
			}
		})
	}
}

func call(d FS, f File, kind Kind) (err error) {
	switch kind {
	case OpCreate:
		_, err = d.Create("b")
	case OpOpen:
		_, err = d.Open("a")
	case OpRead:
		_, err = f.ReadAt(make([]byte, 1), 0)
	case OpWrite:
		_, err = f.WriteAt([]byte("x"), 0)
	case OpTruncate:
		err = f.Truncate(1)
	case OpAllocate:
		err = f.Allocate(0, 100)
	case OpSync:
		err = f.Sync()
	case OpRename:
		err = d.Rename("a", "b")
	case OpRemove:
		err = d.Remove("a")
	case OpList:
		_, err = d.List()
	case OpSyncDir:
		err = d.SyncDir()
	case OpMap:
		_, err = f.Map(1)
	case OpLock:
		_, err = d.Lock("lock")
	}
	return err
}

func TestShortWrite(t *testing.T) {
	m := NewMem()
	d := NewFaulty(m, FailNth(OpWrite, 2, &ShortWrite{N: 3}))
	f := create(t, d, "a")
	write(t, f, 0, "one")
	n, err := f.WriteAt([]byte("second"), 3)
	if n != 0 || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "write a: after 3 bytes") {
		t.Errorf("wrote %d: %v", n, err)
	}
	write(t, f, 6, "ond")
	if got := files(t, m)["a"]; got != "onesecond" {
		t.Errorf("the disk has %q", got)
	}
	d = NewFaulty(m, FailNth(OpAllocate, 1, &ShortWrite{N: 20, Err: syscall.EDQUOT}))
	f, err = d.Open("a")
	must(t, err)
	if err := f.Allocate(0, 100); !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("allocate: %v", err)
	}
	if size, err := f.Size(); size != 20 || err != nil {
		t.Errorf("size %d: %v", size, err)
	}
}

// TestLostSync: after the failure all seems well, until the power goes.
func TestLostSync(t *testing.T) {
	m, _ := durable(t, "a", "durable")
	d := NewFaulty(m, FailNth(OpSync, 1, &LostSync{}))
	f, err := d.Open("a")
	must(t, err)
	write(t, f, 0, "DUR")
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("sync: %v", err)
	}
	write(t, f, 7, "!")
	must(t, f.Sync())
	if got := content(t, f); got != "DURable!" {
		t.Errorf("reads %q", got)
	}
	for title, image := range m.Images(100, rand.New(rand.NewPCG(1, 1))) {
		if got := files(t, image)["a"]; got != "durable!" {
			t.Errorf("%s: %q", title, got)
		}
	}
}
