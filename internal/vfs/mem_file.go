// An open file of Mem.

package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"
)

type memFile struct {
	m      *Mem
	name   string
	ino    *inode
	closed bool
}

// lock takes the disk's lock if the file is open and the request, of op, makes sense.
func (f *memFile) lock(op string, valid bool) error {
	f.m.mu.Lock()
	var err error
	switch {
	case f.closed:
		err = fs.ErrClosed
	case !valid:
		err = syscall.EINVAL
	default:
		return nil
	}
	f.m.mu.Unlock()
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.lock("read", off >= 0); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	live := f.ino.live.b
	n := copy(p, live[min(off, int64(len(live))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// change carries out and remembers an operation on the content.
func (f *memFile) change(o Op, data []byte) error {
	o.Name = f.name
	o = f.m.begin(o)
	if err := f.lock(o.Kind.String(), o.Off >= 0 && o.Len >= 0); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	if o.Len == 0 && o.Kind != OpTruncate {
		return nil
	}
	op := dataOp{o, slices.Clone(data)}
	f.ino.live.apply(op)
	f.ino.ops = append(f.ino.ops, op)
	return nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.change(Op{Kind: OpWrite, Off: off, Len: int64(len(p))}, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *memFile) Truncate(size int64) error { return f.change(Op{Kind: OpTruncate, Off: size}, nil) }

func (f *memFile) Allocate(from, to int64) error {
	return f.change(Op{Kind: OpAllocate, Off: from, Len: to - from}, nil)
}

func (f *memFile) Size() (int64, error) {
	if err := f.lock("size", true); err != nil {
		return 0, err
	}
	defer f.m.mu.Unlock()
	return int64(len(f.ino.live.b)), nil
}

func (f *memFile) Sync() error {
	f.m.begin(Op{Kind: OpSync, Name: f.name})
	if err := f.lock("sync", true); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	for _, o := range f.ino.ops {
		f.ino.base.apply(o)
	}
	f.ino.ops = nil
	return nil
}

// loseUnsynced is what a failed fsync does on Linux: the pages count as clean and still
// show, but nothing will write them any more.
func (f *memFile) loseUnsynced() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.ino.ops = nil
}

func (f *memFile) Map(size int64) (Mapping, error) {
	if err := f.lock("map", true); err != nil {
		return nil, err
	}
	defer f.m.mu.Unlock()
	if have := int64(len(f.ino.live.b)); size < 1 || size > have {
		return nil, &fs.PathError{Op: "map", Path: f.name, Err: fmt.Errorf("%d bytes of %d: %w", size, have, syscall.EINVAL)}
	}
	return &memMapping{slices.Clone(f.ino.live.b[:size])}, nil
}

func (f *memFile) Close() error {
	if err := f.lock("close", true); err != nil {
		return err
	}
	defer f.m.mu.Unlock()
	f.closed = true
	return nil
}

type memMapping struct{ bytes []byte }

func (m *memMapping) Bytes() []byte { return m.bytes }

func (m *memMapping) Close() error {
	if m.bytes == nil {
		return fs.ErrClosed
	}
	for i := range m.bytes {
		m.bytes[i] = 0xdb
	}
	m.bytes = nil
	return nil
}
