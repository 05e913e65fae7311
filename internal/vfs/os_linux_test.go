// The real file system at its edges: modes, links that lead out, a full disk, locks
// between processes.

package vfs

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// children are what this program does when a test runs it again.
var children = map[string]func(dir string){"lock": lockChild, "limit": limitChild}

func TestMain(m *testing.M) {
	flag.Parse()
	if child := children[os.Getenv("VFS_TEST_CHILD")]; child != nil {
		child(os.Getenv("VFS_TEST_DIR"))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(name, dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "VFS_TEST_CHILD="+name, "VFS_TEST_DIR="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

func open(t *testing.T, dir string, o *OSOptions) FS {
	t.Helper()
	d, err := OS(dir, o)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

// TestModes: whatever the umask, nobody else gets in.
func TestModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "above", "d")
	d := open(t, dir, nil)
	create(t, d, "file")
	_, err := d.Lock("lock")
	must(t, err)
	for path, want := range map[string]fs.FileMode{
		dir: fs.ModeDir | 0o700, filepath.Dir(dir): fs.ModeDir | 0o700, filepath.Join(dir, "file"): 0o600, filepath.Join(dir, "lock"): 0o600,
	} {
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode() != want {
			t.Errorf("%s is %v, want %v", path, info.Mode(), want)
		}
	}
}

func TestEscape(t *testing.T) {
	top := t.TempDir()
	secret := filepath.Join(top, "secret")
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	dir := filepath.Join(top, "d")
	d := open(t, dir, nil)
	must(t, os.Symlink(secret, filepath.Join(dir, "absolute")))
	must(t, os.Symlink("../secret", filepath.Join(dir, "relative")))
	must(t, os.Symlink("../fresh", filepath.Join(dir, "dangling")))
	must(t, os.Symlink("..", filepath.Join(dir, "up")))
	names := []string{"absolute", "relative", "dangling", "up/secret", "../secret", secret, "..", ".", "", "a\\b", "a\x00b", "c:d", rep("n", 256)}
	for _, d := range []FS{d, open(t, dir, &OSOptions{ReadOnly: true})} {
		for _, name := range names {
			if _, err := d.Open(name); err == nil {
				t.Errorf("open %q worked", name)
			}
			if _, err := d.Lock(name); err == nil {
				t.Errorf("lock %q worked", name)
			}
			if _, err := d.Create(name); err == nil {
				t.Errorf("create %q worked", name)
			}
		}
	}
	for _, name := range []string{"../secret", secret, "up/secret"} {
		if err := d.Rename(name, "mine"); err == nil {
			t.Errorf("rename %q worked", name)
		}
		if err := d.Remove(name); err == nil {
			t.Errorf("remove %q worked", name)
		}
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("outside there is %q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(top, "fresh")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was made outside: %v", err)
	}
}

func TestReadOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if _, err := OS(dir, &OSOptions{ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is missing: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
	write(t, create(t, open(t, dir, nil), "a"), 0, "data")
	d := open(t, dir, &OSOptions{ReadOnly: true})
	f, err := d.Open("a")
	must(t, err)
	_, createErr := d.Create("b")
	_, lockErr := d.Lock("lock")
	_, writeErr := f.WriteAt([]byte("x"), 0)
	for _, err := range []error{createErr, lockErr, writeErr, d.Rename("a", "b"), d.Remove("a"), f.Truncate(0), f.Allocate(0, 100)} {
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("a change: %v", err)
		}
	}
	must(t, errors.Join(f.Sync(), d.SyncDir()))
	m, err := f.Map(4)
	must(t, err)
	if string(m.Bytes()) != "data" || fmt.Sprint(files(t, d)) != "map[a:data]" {
		t.Errorf("mapped %q, read %v", m.Bytes(), files(t, d))
	}
	must(t, m.Close())
}

// TestList leaves out directories and shows all else.
func TestList(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, nil)
	must(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o700))
	for _, name := range []string{"b", "a", "c"} {
		create(t, d, name)
	}
	must(t, os.Symlink("a", filepath.Join(dir, "link")))
	if names, err := d.List(); err != nil || strings.Join(names, " ") != "a b c link" {
		t.Errorf("%q, %v", names, err)
	}
}

// TestWriteZeros: the way to allocate without a call for it.
func TestWriteZeros(t *testing.T) {
	f := create(t, open(t, t.TempDir(), nil), "a")
	write(t, f, 0, "data")
	must(t, f.(*osFile).writeZeros(2, 200_000))
	must(t, f.(*osFile).writeZeros(0, 100))
	if got := content(t, f); got != "data"+rep("\x00", 200_000-4) {
		t.Errorf("%d bytes that start with %q", len(got), got[:8])
	}
	must(t, f.(*osFile).writeZeros(200_010, 200_020))
	if got := content(t, f)[200_000:]; got != rep("\x00", 20) {
		t.Errorf("after a gap %q", got)
	}
}

func lockChild(dir string) {
	d, err := OS(dir, nil)
	if err == nil {
		_, err = d.Lock("lock")
	}
	fmt.Println("locked:", err)
	io.Copy(io.Discard, os.Stdin) // until killed
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	cmd := child("lock", dir)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	said, err := bufio.NewReader(stdout).ReadString('\n')
	if said != "locked: <nil>\n" {
		t.Errorf("the child says %q, %v", said, err)
	}
	d := open(t, dir, nil)
	if _, err := d.Lock("lock"); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), filepath.Join(dir, "lock")) {
		t.Errorf("while the child has it: %v", err)
	}
	must(t, cmd.Process.Kill())
	cmd.Wait()
	l, err := d.Lock("lock")
	must(t, err)
	if _, err := open(t, dir, nil).Lock("lock"); !errors.Is(err, ErrLocked) {
		t.Errorf("twice in one process: %v", err)
	}
	must(t, l.Close())
	l, err = d.Lock("lock")
	must(t, err)
	must(t, l.Close())
}

// fill writes and allocates up to a limit, meets the error, and goes on when space is
// back.
func fill(d FS, size int, full error) error {
	f, err := d.Create("a")
	if err != nil {
		return err
	}
	data := []byte(rep("x", size+4096))
	if n, err := f.WriteAt(data, 0); n > size || !errors.Is(err, full) {
		return fmt.Errorf("wrote %d of %d bytes: %w", n, len(data), err)
	}
	n, err := f.Size()
	if err != nil || n == 0 || n > int64(size) {
		return fmt.Errorf("the size is %d: %w", n, err)
	}
	if err := f.Allocate(0, int64(len(data))); !errors.Is(err, full) {
		return fmt.Errorf("allocated: %w", err)
	}
	got := make([]byte, n)
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != string(data[:n]) {
		return fmt.Errorf("what had been written is damaged: %w", err)
	}
	if err := f.Truncate(100); err != nil {
		return err
	}
	if err := f.Allocate(100, int64(size)/2); err != nil {
		return fmt.Errorf("with space back: %w", err)
	}
	_, err = f.WriteAt(data[:size/2], 0)
	return errors.Join(err, f.Sync())
}

func limitChild(dir string) {
	signal.Ignore(syscall.SIGXFSZ)
	err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10})
	d, osErr := OS(dir, nil)
	if err = errors.Join(err, osErr); err == nil {
		err = fill(d, 64<<10, syscall.EFBIG)
	}
	fmt.Print(err)
}

// TestLimit meets the limit of a file's size, which anybody can set.
func TestLimit(t *testing.T) {
	if out, err := child("limit", t.TempDir()).Output(); string(out) != "<nil>" || err != nil {
		t.Errorf("the child says %q, %v", out, err)
	}
}

// TestFull fills a real disk; who may not mount one meets a quota of the same kind in
// TestLimit alone.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700")
	if errors.Is(err, syscall.EPERM) {
		t.Log("no right to mount a small disk:", err)
		return
	}
	must(t, err)
	defer func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) }()
	must(t, fill(open(t, dir, nil), 1<<20, syscall.ENOSPC))
}
