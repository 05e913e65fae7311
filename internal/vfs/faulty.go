// A file system that fails where it is told to.

package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"sync"
	"syscall"
)

// Faulty is an FS whose operations fail on demand. Errors are given back as the file
// system would: in a *fs.PathError that names the operation and the file.
type Faulty struct {
	inner  FS
	decide func(Op) error
	mu     sync.Mutex
	count  counter
}

// NewFaulty wraps a file system. decide is called before each operation, from whatever
// goroutines use the file system; if it returns an error the operation fails with it and
// is not carried out, except as ShortWrite and LostSync say. It may wait, too: that is a
// slow disk.
func NewFaulty(inner FS, decide func(Op) error) *Faulty { return &Faulty{inner: inner, decide: decide} }

// ShortWrite lets the first N bytes of a write or an allocation through, then fails with
// Err; nil is ENOSPC.
type ShortWrite struct {
	N   int
	Err error
}

func (e *ShortWrite) Error() string { return fmt.Sprintf("after %d bytes: %v", e.N, e.Unwrap()) }

// Unwrap returns what the operation fails with.
func (e *ShortWrite) Unwrap() error {
	if e.Err == nil {
		return syscall.ENOSPC
	}
	return e.Err
}

// LostSync fails a Sync as Linux does: what was not durable goes on showing until the
// next start, counts as clean, so that a second Sync succeeds, and is gone after a power
// loss. The loss takes place if the wrapped file system is a Mem. Err nil is EIO.
type LostSync struct{ Err error }

func (e *LostSync) Error() string { return fmt.Sprintf("writes lost: %v", e.Unwrap()) }

// Unwrap returns what the operation fails with.
func (e *LostSync) Unwrap() error {
	if e.Err == nil {
		return syscall.EIO
	}
	return e.Err
}

// FailNth returns a decide by which the nth operation of a kind, from 1, fails.
func FailNth(kind Kind, n int, err error) func(Op) error {
	return func(o Op) error {
		if o.Kind == kind && o.Nth == n {
			return err
		}
		return nil
	}
}

// Count returns how many operations of a kind there have been, failed ones included;
// of all kinds if it is 0.
func (f *Faulty) Count(kind Kind) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kind == 0 {
		return f.count.all
	}
	return f.count.kind[kind]
}

// begin numbers an operation and returns what it is to fail with: cause is what decide
// said, err what the caller is to see.
func (f *Faulty) begin(o Op) (cause, err error) {
	f.mu.Lock()
	f.count.number(&o)
	f.mu.Unlock()
	cause = f.decide(o)
	if cause == nil {
		return nil, nil
	}
	return cause, &fs.PathError{Op: o.Kind.String(), Path: o.Name, Err: cause}
}

// Create implements FS.
func (f *Faulty) Create(name string) (File, error) {
	return f.file(Op{Kind: OpCreate, Name: name}, f.inner.Create)
}

// Open implements FS.
func (f *Faulty) Open(name string) (File, error) {
	return f.file(Op{Kind: OpOpen, Name: name}, f.inner.Open)
}

func (f *Faulty) file(o Op, open func(string) (File, error)) (File, error) {
	if _, err := f.begin(o); err != nil {
		return nil, err
	}
	inner, err := open(o.Name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: inner, f: f, name: o.Name}, nil
}

// Rename implements FS.
func (f *Faulty) Rename(from, to string) error {
	if _, err := f.begin(Op{Kind: OpRename, Name: from, To: to}); err != nil {
		return err
	}
	return f.inner.Rename(from, to)
}

// Remove implements FS.
func (f *Faulty) Remove(name string) error {
	if _, err := f.begin(Op{Kind: OpRemove, Name: name}); err != nil {
		return err
	}
	return f.inner.Remove(name)
}

// List implements FS.
func (f *Faulty) List() ([]string, error) {
	if _, err := f.begin(Op{Kind: OpList}); err != nil {
		return nil, err
	}
	return f.inner.List()
}

// SyncDir implements FS.
func (f *Faulty) SyncDir() error {
	if _, err := f.begin(Op{Kind: OpSyncDir}); err != nil {
		return err
	}
	return f.inner.SyncDir()
}

// Lock implements FS.
func (f *Faulty) Lock(name string) (io.Closer, error) {
	if _, err := f.begin(Op{Kind: OpLock, Name: name}); err != nil {
		return nil, err
	}
	return f.inner.Lock(name)
}

// Close implements FS.
func (f *Faulty) Close() error { return f.inner.Close() }
