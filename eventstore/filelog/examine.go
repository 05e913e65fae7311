// Examine: what surrounds the files of a store.

package filelog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/wattle-es/wattle/eventstore"
)

// lowSpace is how much room Examine wants on the file system: a segment being written,
// one being rewritten, and their indexes.
const lowSpace = 4 * DefaultSegmentBytes

// Examine looks at the directory of a store, which Open may refuse and another process
// may have open: whether it can be opened, who has it open, who else may read it, what
// else is in it, and space, on the file system and in the segments. It changes nothing
// and locks nothing. See [eventstore.Doctor] for the findings.
func Examine(ctx context.Context, dir string) ([]eventstore.Finding, error) {
	x := &examination{dir: dir}
	found, err := IsStore(dir)
	if err != nil {
		return nil, err
	}
	x.want(found, "store", eventstore.SeverityFault, "a store in "+dir, either(found, "there", "none"), "is it the right directory? opening it for writing makes a store there; where files of one are left, see wattle verify --repair")
	if !found {
		return x.found, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, unavailable("examine", "", err)
	}
	x.owner()
	x.modes(entries)
	x.others(entries)
	x.segments(ctx)
	x.room()
	return x.found, ctx.Err()
}

// examination is one run of Examine.
type examination struct {
	dir   string
	found []eventstore.Finding
}

func (x *examination) add(check string, s eventstore.Severity, wanted, found, hint string) {
	x.found = append(x.found, eventstore.Finding{Check: check, Severity: s, Wanted: wanted, Found: found, Hint: hint})
}

func (x *examination) ok(check, found string) { x.add(check, eventstore.SeverityOK, "", found, "") }

// want adds a finding that is of a severity unless it is as it should be.
func (x *examination) want(is bool, check string, s eventstore.Severity, wanted, found, hint string) {
	if is {
		x.ok(check, found)
		return
	}
	x.add(check, s, wanted, found, hint)
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// unseen says that a check could not be made.
func (x *examination) unseen(check string, err error) {
	if errors.Is(err, errors.ErrUnsupported) {
		x.add(check, eventstore.SeverityNote, "to look at it", "no way to on "+runtime.GOOS, "")
		return
	}
	x.add(check, eventstore.SeverityWarning, "to look at it", err.Error(), "the check was not made")
}

// owner tells who has the store open for writing.
func (x *examination) owner() {
	who, err := holder(filepath.Join(x.dir, lockName))
	switch {
	case err != nil:
		x.unseen("owner", err)
	case who == "":
		x.ok("owner", "no process has it open for writing")
	default:
		x.ok("owner", who+" has it open for writing")
	}
}

// modes checks that nobody but the user reads or writes the files.
func (x *examination) modes(entries []fs.DirEntry) {
	if runtime.GOOS == "windows" { // permissions are not in the mode there
		return
	}
	var open []string
	look := func(name string, info fs.FileInfo, err error) {
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			open = append(open, fmt.Sprintf("%s with mode %04o", name, info.Mode().Perm()))
		}
	}
	info, err := os.Stat(x.dir)
	look(".", info, err)
	for _, e := range entries {
		if ours(e.Name()) || e.Name() == lockName {
			info, err := e.Info() // a file that is gone by now has no mode
			look(e.Name(), info, err)
		}
	}
	x.want(len(open) == 0, "modes", eventstore.SeverityWarning, "the directory with mode 0700 and files with 0600", either(len(open) == 0, "as they should be", some(open)),
		"others may read events, or change them: chmod -R go= "+x.dir)
}

// others names what is none of the store's.
func (x *examination) others(entries []fs.DirEntry) {
	var names []string
	for _, e := range entries {
		if name := e.Name(); !ours(name) && name != lockName && !(e.IsDir() && name == "lost+found") {
			names = append(names, name)
		}
	}
	x.want(len(names) == 0, "others", eventstore.SeverityNote, "a directory of the store's own", either(len(names) == 0, "nothing but the store's files", some(names)),
		"the store leaves them alone, and is not removed while they are there")
}

// segments opens the store and measures it.
func (x *examination) segments(ctx context.Context) {
	const damaged = "wattle verify tells what is damaged"
	l, err := Open(x.dir, &Options{ReadOnly: true})
	if err != nil {
		severity := eventstore.SeverityWarning
		if errors.Is(err, eventstore.ErrCorrupt) || errors.Is(err, eventstore.ErrNotMigrated) {
			severity = eventstore.SeverityFault
		}
		x.add("open", severity, "a store that can be opened", err.Error(), damaged)
		return
	}
	defer l.Close()
	x.ok("open", fmt.Sprintf("format %d, incarnation %v", FormatVersion, l.incarnation))
	s, err := l.Space(ctx)
	if err != nil {
		x.unseen("segments", err)
		return
	}
	x.ok("segments", fmt.Sprintf("%d of %s, %s of it dead", s.Segments, size(s.Bytes), size(s.Dead)))
	x.want(s.Reclaimable < max(s.Bytes/4, lowSpace), "reclaimable", eventstore.SeverityNote, "little that could be given back", size(s.Reclaimable),
		"whoever has it open gives it back by and by; or call Reclaim")
}

// room is what the file system has left.
func (x *examination) room() {
	free, err := freeBytes(x.dir)
	if err != nil {
		x.unseen("free-space", err)
		return
	}
	x.want(free >= lowSpace, "free-space", eventstore.SeverityWarning, "at least "+size(lowSpace)+" free", size(free),
		"without room writes are refused (ErrReadOnly) until there is some; nothing that was acked is lost")
}

// size is a number of bytes in words.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
