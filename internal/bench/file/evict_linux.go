// What is read next comes from the disk.

package main

import (
	"errors"
	"os"
	"syscall"
)

// evict drops the segments of a directory from the page cache.
func evict(dir string) error {
	names, err := logs(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		const dontNeed = 4 // POSIX_FADV_DONTNEED
		if err = syscall.Fdatasync(int(f.Fd())); err == nil {
			if _, _, errno := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0); errno != 0 {
				err = errno
			}
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
