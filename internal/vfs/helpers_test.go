// What the tests share: seeds, short forms of operations, contents of a disk as text.

package vfs

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

var (
	seedFlag  = flag.Uint64("vfs.seed", 1, "the first seed of random histories")
	histories = flag.Int("vfs.histories", 60, "how many random histories")
)

// eachSeed runs a test on as many random sources as the flags say.
func eachSeed(t *testing.T, f func(t *testing.T, rng *rand.Rand)) {
	for seed := *seedFlag; seed < *seedFlag+uint64(*histories); seed++ {
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { f(t, rand.New(rand.NewPCG(seed, 0))) })
		if !ok {
			t.Fatalf("failed with -vfs.seed %d -vfs.histories 1", seed)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, d FS, name string) File {
	t.Helper()
	f, err := d.Create(name)
	must(t, err)
	return f
}

func write(t *testing.T, f File, off int64, data string) {
	t.Helper()
	if n, err := f.WriteAt([]byte(data), off); err != nil || n != len(data) {
		t.Fatalf("wrote %d of %d bytes at %d: %v", n, len(data), off, err)
	}
}

// content returns all of a file.
func content(t *testing.T, f File) string {
	t.Helper()
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n != len(b) || err != nil && err != io.EOF {
		t.Fatalf("read %d of %d bytes: %v", n, size, err)
	}
	return string(b)
}

// files returns the names on a disk and what is in them.
func files(t *testing.T, d FS) map[string]string {
	t.Helper()
	names, err := d.List()
	must(t, err)
	all := map[string]string{}
	for _, name := range names {
		f, err := d.Open(name)
		must(t, err)
		all[name] = content(t, f)
		must(t, f.Close())
	}
	return all
}

// durable makes a disk with one synced file.
func durable(t *testing.T, name, data string) (*Mem, File) {
	t.Helper()
	m := NewMem()
	f := create(t, m, name)
	write(t, f, 0, data)
	must(t, f.Sync())
	must(t, m.SyncDir())
	return m, f
}

func rep(s string, n int) string { return strings.Repeat(s, n) }
