// Backup: a consistent copy of a store that is in use.
//
// Sealed segments and registry files never change, so they are copied one by one as a
// manifest names them; the active segment is copied last, through its last valid record.
// What was copied is the store as it was at one moment. Should the owner have rewritten a
// file meanwhile, the copy goes on with the manifest that names the new one.

package filelog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/vfs"
)

// BackupProgress is how far a backup has come, in bytes.
type BackupProgress struct{ Done, Total int64 }

// Backup copies the store in a directory, which may be in use, into another directory,
// which must be empty or absent. The copy holds everything that was acked when Backup
// was called, perhaps some of what came later, and opens like any store; it has the same
// incarnation. Every record is checked on its way: a damaged store is ErrCorrupt, and
// what was copied so far stays without a manifest. When it returns nil the copy is
// durable. progress may be nil.
func Backup(ctx context.Context, dir, to string, progress func(BackupProgress)) error {
	files, err := vfs.OS(dir, &vfs.OSOptions{ReadOnly: true})
	if err != nil {
		return unavailable("backup", "", err)
	}
	defer files.Close()
	target, err := vfs.OS(to, nil)
	if err != nil {
		return unavailable("backup", "", err)
	}
	defer target.Close()
	return backupFS(ctx, files, target, to, progress)
}

// Backup is the function Backup on the store of a log that is open.
func (l *Log) Backup(ctx context.Context, to string, progress func(BackupProgress)) error {
	if err := l.enter(ctx, "backup", ""); err != nil {
		return err
	}
	target, err := vfs.OS(to, nil)
	if err != nil {
		return unavailable("backup", "", err)
	}
	defer target.Close()
	return backupFS(ctx, l.fs, target, to, progress)
}

type copier struct {
	ctx      context.Context
	from, to vfs.FS
	progress func(BackupProgress)
	done     BackupProgress
	copied   map[string]int64 // files that are there, and their size
}

func backupFS(ctx context.Context, from, to vfs.FS, name string, progress func(BackupProgress)) error {
	names, err := to.List()
	if err != nil {
		return unavailable("backup", "", err)
	}
	if len(names) > 0 {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "backup", Wanted: "an empty directory", Found: fmt.Sprintf("%s, in which %s is", name, names[0]),
			Hint: "name another one"}
	}
	if progress == nil {
		progress = func(BackupProgress) {}
	}
	c := &copier{ctx: ctx, from: from, to: to, progress: progress, copied: map[string]int64{}}
	for try := 0; ; try++ {
		err := c.store()
		if !errors.Is(err, fs.ErrNotExist) || try == maxReopens {
			return unavailableBut(err)
		}
	}
}

// unavailableBut keeps errors of ours and of the context.
func unavailableBut(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return unavailable("backup", "", err)
}

// store copies what one manifest names.
func (c *copier) store() error {
	l := newLog(c.from, "", &Options{ReadOnly: true})
	m, err := l.readManifest()
	if err != nil {
		return err
	}
	if m == nil {
		return &eventstore.Error{Kind: eventstore.ErrNotMigrated, Op: "backup", Wanted: "a store", Found: "no manifest"}
	}
	l.incarnation = m.incarnation
	c.done = BackupProgress{}
	for _, e := range m.segments {
		c.done.Total += e.size
	}
	for i := range m.segments {
		if err := c.segment(l, &m.segments[i]); err != nil {
			return err
		}
	}
	if m.registry > 0 {
		if err := c.registry(l, m); err != nil {
			return err
		}
	}
	if err := c.removeOthers(m); err != nil {
		return err
	}
	if err := c.to.SyncDir(); err != nil {
		return err
	}
	return replaceManifest(c.to, m)
}

func (c *copier) registry(l *Log, m *manifest) error {
	name := registryName(m.registry)
	if _, ok := c.copied[name]; ok {
		return nil
	}
	b, err := readFile(c.from, name)
	if err != nil {
		return err
	}
	if _, err := decodeRegistry(b, l.incarnation); err != nil {
		return corruptFile("backup", name, err)
	}
	c.copied[name] = int64(len(b))
	return writeFile(c.to, name, b)
}

// segment copies a segment; of the active one it notes how much there was.
func (c *copier) segment(l *Log, e *segmentEntry) error {
	if n, ok := c.copied[e.name()]; ok && e.end > 0 && n == e.size {
		c.step(e.size)
		return nil
	}
	s := l.segmentOf(*e)
	f, err := s.use()
	if err != nil {
		return err
	}
	defer s.retire()
	defer s.release()
	if err := l.checkHeader(s); err != nil {
		return err
	}
	size := e.size
	if e.end == 0 {
		if size, err = f.Size(); err != nil {
			return err
		}
		if err := l.syncRead(f); err != nil {
			return err
		}
	}
	if err := c.to.Remove(e.name()); err != nil && !absent(err) {
		return err
	}
	out, err := c.to.Create(e.name())
	if err != nil {
		return err
	}
	defer out.Close()
	if e.size, err = c.records(s, f, out, size); err != nil {
		return err
	}
	c.copied[e.name()] = e.size
	return out.Sync()
}

// records copies the head and the valid records of a segment and returns their size.
func (c *copier) records(s *segment, f, out vfs.File, size int64) (int64, error) {
	head := make([]byte, segmentHeader)
	if _, err := f.ReadAt(head, 0); err != nil {
		return 0, s.readError(err, 0)
	}
	if _, err := out.WriteAt(head, 0); err != nil {
		return 0, err
	}
	c.step(segmentHeader)
	r := scanner{segment: s, file: f, to: size}
	b, at, written := []byte(nil), int64(segmentHeader), int64(segmentHeader)
	flush := func() error {
		_, err := out.WriteAt(b, written)
		written += int64(len(b))
		c.step(int64(len(b)))
		b = b[:0]
		return err
	}
	for at < size {
		if err := c.ctx.Err(); err != nil {
			return 0, err
		}
		h, _, err := r.record(at)
		if errors.Is(err, eventstore.ErrCorrupt) && s.end == 0 && at >= s.size {
			break // what is being written
		}
		if err != nil {
			return 0, err
		}
		record, err := r.bytes(at, h.size())
		if err != nil {
			return 0, err
		}
		b = append(b, record...)
		if at += h.size(); len(b) >= scanChunk {
			if err := flush(); err != nil {
				return 0, err
			}
		}
	}
	return at, flush()
}

func (c *copier) step(n int64) {
	c.done.Done += n
	c.done.Total = max(c.done.Total, c.done.Done)
	c.progress(c.done)
}

// removeOthers removes copies of what an earlier manifest named.
func (c *copier) removeOthers(m *manifest) error {
	wanted := m.wanted()
	for name := range c.copied {
		if wanted[name] {
			continue
		}
		if err := c.to.Remove(name); err != nil {
			return err
		}
		delete(c.copied, name)
	}
	return nil
}
