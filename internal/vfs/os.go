// The real file system: a directory opened so that no name and no symbolic link in it
// leads out of it. What differs between platforms is in os_*.go.

package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// OSOptions are the options of OS; nil is the zero value.
type OSOptions struct {
	// ReadOnly never creates or changes anything: what would fails with
	// fs.ErrPermission. It takes no lock either, so another process may be writing.
	ReadOnly bool
}

// OS opens a directory. Unless ReadOnly it is created, with what is missing above it,
// mode 0700, and its own name made durable; one that exists keeps its mode.
func OS(dir string, o *OSOptions) (FS, error) {
	if o == nil {
		o = &OSOptions{}
	}
	if !o.ReadOnly {
		if err := makeDir(dir); err != nil {
			return nil, err
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	self, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &osFS{root: root, self: self, readOnly: o.ReadOnly}, nil
}

// makeDir syncs the parent also of a directory that is there: whoever made it may have
// been killed before he did.
func makeDir(dir string) error {
	parent := filepath.Dir(filepath.Clean(dir))
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) && parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o700)
	}
	made := err == nil
	if !made && !errors.Is(err, fs.ErrExist) {
		return err
	}
	p, err := os.Open(parent)
	if err != nil {
		if made {
			return err
		}
		return nil // somebody else's: a mount point, or the root of a WASI guest
	}
	return errors.Join(syncDir(p), p.Close())
}

type osFS struct {
	root     *os.Root
	self     *os.File // the directory, for SyncDir
	readOnly bool
}

// checkName refuses what is not a plain file name on every platform.
func checkName(op, name string) error {
	if name == "" || name == "." || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\\:\x00") {
		return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("not a plain file name: %w", fs.ErrInvalid)}
	}
	return nil
}

// may checks names, and that changes are allowed.
func (d *osFS) may(op string, names ...string) error {
	for _, name := range names {
		if err := checkName(op, name); err != nil {
			return err
		}
		if d.readOnly {
			return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("opened read-only: %w", fs.ErrPermission)}
		}
	}
	return nil
}

func (d *osFS) Create(name string) (File, error) {
	if err := d.may("create", name); err != nil {
		return nil, err
	}
	return d.open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (d *osFS) Open(name string) (File, error) {
	if err := checkName("open", name); err != nil {
		return nil, err
	}
	if d.readOnly {
		return d.open(name, os.O_RDONLY)
	}
	return d.open(name, os.O_RDWR)
}

func (d *osFS) open(name string, flag int) (File, error) {
	f, err := d.root.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f, readOnly: d.readOnly}, nil
}

func (d *osFS) Rename(from, to string) error {
	if err := d.may("rename", from, to); err != nil {
		return err
	}
	return d.root.Rename(from, to)
}

func (d *osFS) Remove(name string) error {
	if err := d.may("remove", name); err != nil {
		return err
	}
	return d.root.Remove(name)
}

// List leaves out directories: a mounted one has a lost+found.
func (d *osFS) List() ([]string, error) {
	self, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	entries, err := self.ReadDir(-1)
	if err := errors.Join(err, self.Close()); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

func (d *osFS) SyncDir() error { return syncDir(d.self) }

func (d *osFS) Lock(name string) (io.Closer, error) {
	if err := d.may("lock", name); err != nil {
		return nil, err
	}
	c, err := lockFile(d.root, name)
	if err != nil && errors.Is(err, ErrLocked) {
		return nil, &fs.PathError{Op: "lock", Path: filepath.Join(d.root.Name(), name), Err: ErrLocked}
	}
	return c, err
}

func (d *osFS) Close() error { return errors.Join(d.self.Close(), d.root.Close()) }

// osFile has of os.File the methods that need nothing added.
type osFile struct {
	*os.File
	readOnly bool
}

func (f *osFile) may(op string) error {
	if f.readOnly {
		return &fs.PathError{Op: op, Path: f.Name(), Err: fmt.Errorf("opened read-only: %w", fs.ErrPermission)}
	}
	return nil
}

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.may("write"); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *osFile) Truncate(size int64) error {
	if err := f.may("truncate"); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *osFile) Allocate(from, to int64) error {
	if err := f.may("allocate"); err != nil {
		return err
	}
	if from < 0 || to < from {
		return &fs.PathError{Op: "allocate", Path: f.Name(), Err: syscall.EINVAL}
	}
	if from == to {
		return nil
	}
	return f.allocate(from, to)
}

// writeZeros is Allocate where the platform has no call for it. It writes past the end
// only, so a hole within the file stays one.
func (f *osFile) writeZeros(from, to int64) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	zeros := make([]byte, min(max(to-size, 0), 64<<10))
	for off := max(from, size); off < to; off += int64(len(zeros)) {
		if _, err := f.File.WriteAt(zeros[:min(int64(len(zeros)), to-off)], off); err != nil {
			return err
		}
	}
	return nil
}

func (f *osFile) Map(size int64) (Mapping, error) {
	have, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size < 1 || size > have || int64(int(size)) != size {
		return nil, &fs.PathError{Op: "map", Path: f.Name(), Err: fmt.Errorf("%d bytes of %d: %w", size, have, syscall.EINVAL)}
	}
	return f.mmap(int(size))
}
