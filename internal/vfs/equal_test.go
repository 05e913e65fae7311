// Mem, and Faulty that does nothing, against the real file system by random histories.

//go:build linux

package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"
)

// side is one of two file systems that are to do the same.
type side struct {
	fs    FS
	files []File
	locks []io.Closer
}

// class is what callers may rely on of an error.
func class(err error) string {
	for _, known := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrClosed, ErrLocked, io.EOF} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return "invalid"
	}
	return "ok"
}

func TestEqual(t *testing.T) {
	eachSeed(t, func(t *testing.T, rng *rand.Rand) {
		dir := filepath.Join(t.TempDir(), "d")
		real, err := OS(dir, nil)
		must(t, err)
		mem := NewMem()
		sides := [2]*side{{fs: real}, {fs: mem}}
		for range 150 {
			if rng.IntN(30) == 0 {
				for _, s := range sides {
					s.end(t)
				}
				sides[0].fs, err = OS(dir, nil)
				must(t, err)
				mem = mem.Snapshot()
				sides[1].fs = mem
				if rng.IntN(2) == 0 {
					sides[1].fs = NewFaulty(mem, func(Op) error { return nil })
				}
				if a, b := files(t, sides[0].fs), files(t, mem); fmt.Sprint(a) != fmt.Sprint(b) {
					t.Fatalf("after a new start the real disk has %q, Mem %q", a, b)
				}
			}
			do, what := operation(rng, len(sides[0].files), len(sides[0].locks))
			if a, b := do(sides[0]), do(sides[1]); a != b {
				t.Fatalf("%s: the real disk says %q, Mem %q", what, a, b)
			}
		}
		for _, s := range sides {
			s.end(t)
		}
	})
}

// end gives all back.
func (s *side) end(t *testing.T) {
	for _, f := range s.files {
		must(t, f.Close())
	}
	for _, l := range s.locks {
		must(t, l.Close())
	}
	s.files, s.locks = nil, nil
	must(t, s.fs.Close())
	if _, err := s.fs.Open("a"); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("open after Close: %v", err)
	}
	if _, err := s.fs.List(); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("list after Close: %v", err)
	}
}

// operation returns one that can be done to both sides and tells what came of it.
func operation(rng *rand.Rand, files, locks int) (do func(*side) string, what string) {
	if files > 0 && rng.IntN(3) > 0 {
		return fileOperation(rng, rng.IntN(files))
	}
	names := []string{"a", "b", "c", "d", "..", "x/y", ""}
	a, b := names[rng.IntN(len(names))], names[rng.IntN(len(names))]
	opened := func(open func(FS) (File, error)) func(*side) string {
		return func(s *side) string {
			f, err := open(s.fs)
			if err == nil {
				s.files = append(s.files, f)
			}
			return class(err)
		}
	}
	switch rng.IntN(8) {
	case 0, 1:
		return opened(func(d FS) (File, error) { return d.Create(a) }), "create " + a
	case 2:
		return opened(func(d FS) (File, error) { return d.Open(a) }), "open " + a
	case 3:
		return func(s *side) string { return class(s.fs.Rename(a, b)) }, "rename " + a + " " + b
	case 4:
		return func(s *side) string { return class(s.fs.Remove(a)) }, "remove " + a
	case 5:
		return func(s *side) string {
			names, err := s.fs.List()
			return fmt.Sprint(names, class(err), class(s.fs.SyncDir()))
		}, "list"
	}
	if i := rng.IntN(locks + 1); i < locks {
		return func(s *side) string {
			err := s.locks[i].Close()
			s.locks = append(s.locks[:i:i], s.locks[i+1:]...)
			return class(err)
		}, "unlock"
	}
	return func(s *side) string {
		l, err := s.fs.Lock(a)
		if err == nil {
			s.locks = append(s.locks, l)
		}
		return class(err)
	}, "lock " + a
}

func fileOperation(rng *rand.Rand, i int) (do func(*side) string, what string) {
	off, n := rng.Int64N(3000)-5, rng.Int64N(1500)
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	on := func(f func(File) string) func(*side) string { return func(s *side) string { return f(s.files[i]) } }
	switch rng.IntN(12) {
	case 0, 1, 2:
		return on(func(f File) string { n, err := f.WriteAt(data, off); return fmt.Sprint(n, class(err)) }), fmt.Sprint("write ", off, n)
	case 3, 4, 5:
		return on(func(f File) string {
			b := make([]byte, n)
			n, err := f.ReadAt(b, off)
			return fmt.Sprint(n, class(err), b)
		}), fmt.Sprint("read ", off, n)
	case 6:
		return on(func(f File) string { return class(f.Truncate(off)) }), fmt.Sprint("truncate ", off)
	case 7:
		to := off + n - 5
		return on(func(f File) string { return class(f.Allocate(off, to)) }), fmt.Sprint("allocate ", off, to)
	case 8:
		return on(func(f File) string { size, err := f.Size(); return fmt.Sprint(size, class(err)) }), "size"
	case 9:
		return on(func(f File) string {
			m, err := f.Map(n)
			if err != nil {
				return class(err)
			}
			seen := fmt.Sprint(m.Bytes())
			return fmt.Sprint(seen, class(m.Close()), class(m.Close()))
		}), fmt.Sprint("map ", n)
	case 10:
		return on(func(f File) string { return class(f.Sync()) }), "sync"
	}
	return func(s *side) string {
		f := s.files[i]
		s.files = append(s.files[:i:i], s.files[i+1:]...)
		_, readErr := f.ReadAt(data, -1)
		err := f.Close()
		return fmt.Sprint(class(readErr), class(err), class(f.Sync()), class(f.Truncate(3)), class(f.Close()))
	}, "close"
}
