// Unix: mmap and flock.

//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// control makes a system call on a file, again if a signal interrupts it.
func control(f *os.File, call func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = c.Control(func(fd uintptr) {
		for callErr = call(int(fd)); callErr == syscall.EINTR; {
			callErr = call(int(fd))
		}
	})
	if err != nil {
		return fs.ErrClosed // it has no other, and this one is not exported
	}
	return callErr
}

func syncDir(dir *os.File) error { return dir.Sync() }

// lockFile uses flock: it belongs to the open file, so it keeps out other opens in
// this process too, and the kernel ends it with the process.
func lockFile(root *os.Root, name string) (io.Closer, error) {
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = control(f, func(fd int) error { return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) })
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = ErrLocked
	default:
		err = &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	return nil, errors.Join(err, f.Close())
}

type mapping struct{ bytes []byte }

func (f *osFile) mmap(size int) (Mapping, error) {
	m := &mapping{}
	err := control(f.File, func(fd int) (err error) {
		m.bytes, err = syscall.Mmap(fd, 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "mmap", Path: f.Name(), Err: err}
	}
	return m, nil
}

func (m *mapping) Bytes() []byte { return m.bytes }

func (m *mapping) Close() error {
	b := m.bytes
	if b == nil {
		return fs.ErrClosed
	}
	m.bytes = nil
	return os.NewSyscallError("munmap", syscall.Munmap(b))
}
