// Errors: what goes wrong with files, as the kinds of the contract.

package filelog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/vfs"
)

// ErrOwned is found by errors.Is in the ErrUnavailable of a directory that another
// process, or another Log of this one, has open for writing.
var ErrOwned = vfs.ErrLocked

// errDamaged says that bytes are not what was written.
var errDamaged = errors.New("damaged")

// errNewer says that files are of a format that this package does not know.
type errNewer struct{ version uint32 }

func (e errNewer) Error() string {
	return fmt.Sprintf("format %d, newer than %d", e.version, FormatVersion)
}

// corrupt is the ErrCorrupt of a place in a file.
func corrupt(op, file string, offset int64, position uint64, err error) error {
	found := fmt.Sprintf("%s at byte %d", file, offset)
	if position > 0 {
		found += fmt.Sprintf(", behind position %d", position)
	}
	return &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: op, Wanted: "what was written", Found: found, Err: err,
		Hint: "wattle verify tells what is damaged; restore a backup, or wattle verify --repair"}
}

// corruptFile is the ErrCorrupt of a whole file, or the ErrNotMigrated of one that is
// of a newer format.
func corruptFile(op, file string, err error) error {
	if e, ok := errors.AsType[errNewer](err); ok {
		return &eventstore.Error{Kind: eventstore.ErrNotMigrated, Op: op, Wanted: fmt.Sprintf("files of format %d or older", FormatVersion),
			Found: fmt.Sprintf("%s of format %d", file, e.version), Hint: "use a newer version of Wattle"}
	}
	return corrupt(op, file, 0, 0, err)
}

// unavailable is the error of files that could not be read: no word on what is in them.
func unavailable(op string, s eventstore.Stream, err error) error {
	if _, ok := errors.AsType[*eventstore.Error](err); ok {
		return err
	}
	return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: op, Stream: s, Wanted: "to read the store's files", Err: err}
}

// noSpace says if an error means that there is no room, or that too many files are open:
// nothing was written, and it may pass.
func noSpace(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// full is the error of a write for which there was no room: nothing was written.
func full(op string, err error) error {
	return &eventstore.Error{Kind: eventstore.ErrReadOnly, Op: op, Wanted: "room for what is to be written", Found: "none", Err: err,
		Hint: "make room: writes then go on by themselves; nothing was written, reads go on"}
}

// failed is the error of everything that writes after a write or a sync has failed.
func failed(op string, cause error) error {
	return &eventstore.Error{Kind: eventstore.ErrReadOnly, Op: op, Wanted: "a log whose writes have all succeeded", Found: "an earlier one failed",
		Err: cause, Hint: "what was acked is safe; close the log and open it again"}
}

// unknown is the error of a write that failed on its way.
func unknown(op string, s eventstore.Stream, cause error) error {
	return &eventstore.Error{Kind: eventstore.ErrUnknown, Op: op, Stream: s, Wanted: "an answer of the disk", Found: "a write that failed",
		Err: cause, Hint: "open the log again and send the same batch"}
}

// locked is the error of a directory that has an owner.
func locked(dir string, err error) error {
	if !errors.Is(err, vfs.ErrLocked) {
		return unavailable("open", "", fmt.Errorf("%s: %w", dir, err))
	}
	who, unseen := holder(filepath.Join(dir, lockName))
	if unseen != nil || who == "" {
		who = "another process"
	}
	return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "open", Wanted: "to own " + dir, Found: who + " that has it open", Err: err,
		Hint: "one process owns a directory: end that one, or open read-only beside it"}
}

// absent says if a file is not there.
func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
