// Windows: no mapping, no sync of directories; a lock is a file opened without sharing.

package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// syncDir does nothing: Windows has no such call; NTFS journals its names.
func syncDir(*os.File) error { return nil }

func (f *osFile) mmap(int) (Mapping, error) { return nil, errors.ErrUnsupported }

const errorSharingViolation = syscall.Errno(32)

func lockFile(root *os.Root, name string) (io.Closer, error) {
	path := filepath.Join(root.Name(), name)
	p, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(p, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS,
		syscall.FILE_ATTRIBUTE_NORMAL|syscall.FILE_FLAG_OPEN_REPARSE_POINT, 0)
	if err == errorSharingViolation {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}
