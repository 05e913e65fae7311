// Linux: which process holds a lock.

package filelog

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// holder names the process that holds the lock of a file, "" if none does. Taking the
// lock to see would keep its next owner out; the kernel lists locks by inode, and by
// device, which on some file systems is another one than that of the file. So the
// process's open files decide, where they may be looked at.
func holder(path string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	inode := fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino)
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return "", err
	}
	defer locks.Close()
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234567 0 EOF
		f := strings.Fields(lines.Text())
		if len(f) < 6 || f[1] != "FLOCK" || f[3] != "WRITE" || f[5][strings.LastIndexByte(f[5], ':')+1:] != inode {
			continue
		}
		if hasOpen(f[4], info) {
			name, _ := os.ReadFile("/proc/" + f[4] + "/comm") // without a name the number will do
			return strings.TrimSuffix(fmt.Sprintf("process %s (%s", f[4], name), "\n") + ")", nil
		}
	}
	return "", nil
}

// hasOpen says if a process has a file open, true if it cannot be told.
func hasOpen(pid string, file fs.FileInfo) bool {
	dir := "/proc/" + pid + "/fd"
	names, err := os.ReadDir(dir)
	if err != nil {
		return true
	}
	for _, n := range names {
		if open, err := os.Stat(filepath.Join(dir, n.Name())); err == nil && os.SameFile(open, file) {
			return true
		}
	}
	return false
}
