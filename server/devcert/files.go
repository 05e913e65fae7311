// Pairs in files: name.crt and name.key.

package devcert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Files are the paths of a pair's files in a directory.
func Files(dir, name string) (cert, key string) {
	return filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
}

// Save writes a pair to name.crt and name.key in a directory, which it creates; the key is
// for its owner alone (0600). Where one of the files is there it is an error for which
// errors.Is says fs.ErrExist, and nothing is written, unless force is given.
func (p Pair) Save(dir, name string, force bool) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	cert, key := Files(dir, name)
	for _, file := range []string{cert, key} {
		if _, err := os.Lstat(file); err == nil && !force {
			return fmt.Errorf("devcert: %s: %w", file, fs.ErrExist)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := write(key, p.Key, 0o600, force); err != nil {
		return err
	}
	return write(cert, p.Cert, 0o644, force)
}

// write puts a whole file in place. Without force it never replaces one that has appeared
// meanwhile: a link does not.
func write(file string, data []byte, mode fs.FileMode, force bool) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".new-*") // for its owner alone
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if force {
		return os.Rename(f.Name(), file)
	}
	return os.Link(f.Name(), file)
}

// Load reads a pair back.
func Load(dir, name string) (p Pair, err error) {
	cert, key := Files(dir, name)
	if p.Cert, err = os.ReadFile(cert); err != nil {
		return Pair{}, err
	}
	p.Key, err = os.ReadFile(key)
	return p, err
}
