// An open file of Faulty.

package vfs

import "errors"

// faultyFile passes on Size and Close.
type faultyFile struct {
	File
	f    *Faulty
	name string
}

func (f *faultyFile) begin(kind Kind, off, n int64) (cause, err error) {
	return f.f.begin(Op{Kind: kind, Name: f.name, Off: off, Len: n})
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if _, err := f.begin(OpRead, off, int64(len(p))); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	cause, err := f.begin(OpWrite, off, int64(len(p)))
	var short *ShortWrite
	if errors.As(cause, &short) {
		_, innerErr := f.File.WriteAt(p[:min(short.N, len(p))], off)
		return 0, errors.Join(err, innerErr) // 0 is what os.File says then
	}
	if err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultyFile) Truncate(size int64) error {
	if _, err := f.begin(OpTruncate, size, 0); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultyFile) Allocate(from, to int64) error {
	cause, err := f.begin(OpAllocate, from, to-from)
	var short *ShortWrite
	if errors.As(cause, &short) {
		return errors.Join(err, f.File.Allocate(from, min(to, from+int64(short.N))))
	}
	if err != nil {
		return err
	}
	return f.File.Allocate(from, to)
}

func (f *faultyFile) Sync() error {
	cause, err := f.begin(OpSync, 0, 0)
	var lost *LostSync
	if mem, ok := f.File.(*memFile); ok && errors.As(cause, &lost) {
		mem.loseUnsynced()
	}
	if err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) Map(size int64) (Mapping, error) {
	if _, err := f.begin(OpMap, 0, size); err != nil {
		return nil, err
	}
	return f.File.Map(size)
}
