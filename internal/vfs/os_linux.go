// Linux: fdatasync and fallocate.

package vfs

import (
	"errors"
	"io/fs"
	"syscall"
)

func (f *osFile) Sync() error {
	if err := control(f.File, syscall.Fdatasync); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

func (f *osFile) allocate(from, to int64) error {
	err := control(f.File, func(fd int) error { return syscall.Fallocate(fd, 0, from, to-from) })
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return f.writeZeros(from, to)
	}
	if err != nil {
		return &fs.PathError{Op: "fallocate", Path: f.Name(), Err: err}
	}
	return nil
}
