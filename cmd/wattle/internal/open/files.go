// Stores in files: their URLs, opening them as their owner or beside it, making and
// removing them.

package open

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

// Files is the target of the store in a directory.
func Files(dir string) *Target {
	dir = filepath.Clean(dir)
	return &Target{name: "file:" + dir, dir: dir}
}

// InFiles says if the store is one in files.
func (t *Target) InFiles() bool { return t.dir != "" }

// InPostgres says if the store is one in PostgreSQL.
func (t *Target) InPostgres() bool { return t.config != nil }

// parseFiles takes file:DIR apart, where DIR is a path as it is, and file:///DIR, which
// is a URL and so percent-encoded.
func parseFiles(address string) (*Target, error) {
	const like = "file:DIR or file:///DIR"
	dir := strings.TrimPrefix(address, "file:")
	if strings.HasPrefix(dir, "//") {
		u, err := parse(address)
		if err != nil {
			return nil, invalid(like, "one that cannot be taken apart", encodeHint)
		}
		if u.Host != "" || u.User != nil {
			return nil, invalid(like, "a host", "the directory is one of this machine; a path that is relative is written file:DIR")
		}
		if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
			return nil, invalid(like, "something behind DIR", "it has no settings")
		}
		dir = u.Path
		if runtime.GOOS == "windows" { // file:///C:/data
			dir = strings.TrimPrefix(dir, "/")
		}
		return named(dir, like)
	}
	if strings.Contains(dir, "?") {
		return nil, invalid(like, "a ?", "it has no settings; in the name of a directory write file:///DIR with %3F")
	}
	if strings.HasPrefix(dir, "~") {
		return nil, invalid(like, "a ~ that the shell has left as it is", "write file:$HOME/…, or file:./~… for a directory of that name")
	}
	return named(dir, like)
}

func named(dir, like string) (*Target, error) {
	if dir == "" || strings.ContainsRune(dir, 0) {
		return nil, invalid(like, "no directory", "file:. is the one you are in")
	}
	return Files(filepath.FromSlash(dir)), nil
}

// Exists says if there is a store in the target's directory.
func (t *Target) Exists() (bool, error) { return filelog.IsStore(t.dir) }

// Remove removes the store in the target's directory for good; see filelog.Remove.
func (t *Target) Remove() error { return owned(filelog.Remove(t.dir)) }

// makeFiles makes the store if there is none.
func (t *Target) makeFiles() error {
	if found, err := t.Exists(); err != nil || found {
		return err
	}
	log, err := t.files(&Options{Create: true})
	if err != nil {
		return err
	}
	return log.Close()
}

// removeFiles is Remove where there may be none.
func (t *Target) removeFiles() error {
	found, err := t.Exists()
	if err != nil || !found {
		return err
	}
	return t.Remove()
}

// files opens the store, beside its owner if o says that nothing will be changed.
func (t *Target) files(o *Options) (*filelog.Log, error) {
	if o.ReadOnly || !o.Create {
		if err := t.mustExist("open"); err != nil {
			return nil, err
		}
	}
	log, err := filelog.Open(t.dir, &filelog.Options{ReadOnly: o.ReadOnly, Logger: o.Logger})
	return log, owned(err)
}

func (t *Target) mustExist(op string) error {
	found, err := t.Exists()
	if err == nil && !found {
		err = &eventstore.Error{Kind: eventstore.ErrNotMigrated, Op: op, Wanted: "a store in " + t.dir, Found: "none",
			Hint: "is it the right directory? wattle migrate up makes a store there"}
	}
	return err
}

// owned says what can be done about a directory that another process has open.
func owned(err error) error {
	e, ok := errors.AsType[*eventstore.Error](err)
	if !ok || !errors.Is(err, filelog.ErrOwned) {
		return err
	}
	c := *e
	c.Hint = "one process at a time writes to a store in files: wait for that one or end it; commands that only read work beside it"
	return &c
}

// reclaimFiles is Reclaim of a log in files.
func reclaimFiles(log *filelog.Log) func(context.Context, time.Duration) error {
	return func(ctx context.Context, budget time.Duration) error {
		within, cancel := context.WithTimeout(ctx, budget)
		defer cancel()
		_, err := log.Reclaim(within)
		if within.Err() != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return nil // the rest another time
		}
		return err
	}
}
