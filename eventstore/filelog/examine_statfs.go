// Linux and macOS: room on the file system.

//go:build linux || darwin

package filelog

import "syscall"

// freeBytes is what the user may still write where a directory is.
func freeBytes(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
