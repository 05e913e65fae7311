// Removing a store, and nothing else.

package filelog

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/vfs"
)

// Remove removes the store in a directory for good: its files, of which the manifest is
// the last. The directory stays, with its lock file. ErrInvalid, and nothing is removed,
// where there is no store, or anything beside its files; ErrUnavailable if a process has
// it open for writing. What a crash interrupts is a store that cannot be opened, and that
// can be removed; read-only logs on it answer errors from then on.
func Remove(dir string) error {
	if _, err := removable(dir); err != nil { // first, for what follows makes the directory
		return err
	}
	files, err := vfs.OS(dir, nil)
	if err != nil {
		return unavailable("remove", "", err)
	}
	defer files.Close()
	lock, err := files.Lock(lockName)
	if err != nil {
		return locked(dir, err)
	}
	defer lock.Close()
	names, err := removable(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err = files.Remove(name); err != nil {
			return unavailable("remove", "", err)
		}
	}
	err = files.SyncDir()
	if err == nil {
		err = files.Remove(manifestName)
	}
	if err == nil {
		err = files.SyncDir()
	}
	if err != nil {
		return unavailable("remove", "", err)
	}
	return nil
}

// removable returns the names of the store's files but manifest and lock, if nothing
// else is in the directory.
func removable(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, unavailable("remove", "", err)
	}
	var others []string
	store := false
	for _, e := range entries {
		switch name := e.Name(); {
		case name == manifestName:
			store = e.Type().IsRegular() && isManifest(filepath.Join(dir, name))
		case name == lockName, e.IsDir() && name == "lost+found": // of a mounted file system
		case e.Type().IsRegular() && ours(name):
			names = append(names, name)
		default:
			others = append(others, name)
		}
	}
	refuse := func(wanted, found string) error {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "remove", Wanted: wanted, Found: found, Hint: "nothing was removed; look at it yourself"}
	}
	if !store {
		return nil, refuse("a store in "+dir, "no manifest of one")
	}
	if len(others) > 0 {
		return nil, refuse("nothing but a store in "+dir, some(others))
	}
	return names, nil
}

// isManifest says if a file begins as a manifest does; it may be damaged behind that.
func isManifest(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	b := make([]byte, len(manifestMagic))
	n, _ := f.Read(b)
	return bytes.Equal(b[:n], []byte(manifestMagic))
}

// some names the first few of what may be many.
func some(names []string) string {
	const most = 3
	if len(names) > most {
		names = append(names[:most:most], "…")
	}
	return strings.Join(names, ", ")
}
