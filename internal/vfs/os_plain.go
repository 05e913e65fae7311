// WebAssembly and other platforms without mmap and flock: one process is all there is.

//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly || windows)

package vfs

import (
	"errors"
	"io"
	"os"
)

func syncDir(dir *os.File) error { return dir.Sync() }

func (f *osFile) mmap(int) (Mapping, error) { return nil, errors.ErrUnsupported }

func lockFile(root *os.Root, name string) (io.Closer, error) {
	return root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
}
