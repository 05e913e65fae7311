// A log that was opened read-only follows what its owner writes.

package filelog

import (
	"errors"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/vfs"
)

// follower keeps calls that read from following side by side.
type follower struct{ mu sync.Mutex }

// maxReopens bounds how often a read-only log tries to take the files of one edition of
// the manifest while its owner goes on to the next.
const maxReopens = 20

// follow takes in what the owner has written since the last call. Records are shown when
// they are durable: the follower syncs them itself.
func (f *follower) follow(l *Log) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, err := l.readManifest()
	if err != nil || m == nil {
		return err
	}
	if m.edition != l.manifest.edition {
		return f.reopen(l)
	}
	return l.extend()
}

// reopen goes over to the files of another edition.
func (f *follower) reopen(l *Log) error {
	next, err := recoverReadOnly(l.fs, l.dir, &l.o)
	if err != nil {
		return err
	}
	if next.incarnation != l.incarnation {
		return &eventstore.Error{Kind: eventstore.ErrDiverged, Op: "read", Wanted: "store " + l.incarnation.String(),
			Found: "store " + next.incarnation.String() + " in its place", Hint: "open it again"}
	}
	l.mu.Lock()
	old := l.segments
	l.reg, l.segments, l.current, l.active, l.files = next.reg, next.segments, next.current, next.active, next.files
	l.mu.Unlock()
	l.manifest = next.manifest
	for _, s := range old {
		s.retire()
	}
	return nil
}

// recoverReadOnly reads the store beside its owner, who may remove files meanwhile:
// then it begins again with the next manifest.
func recoverReadOnly(fs vfs.FS, dir string, o *Options) (*Log, error) {
	for try := 0; ; try++ {
		l := newLog(fs, dir, o)
		err := l.recover()
		if err == nil {
			return l, nil
		}
		for _, s := range l.segments {
			s.retire()
		}
		now, merr := l.readManifest()
		if merr != nil || now == nil || l.manifest == nil || now.edition == l.manifest.edition || try == maxReopens {
			return nil, unavailable("open", "", err)
		}
	}
}

// extend reads the records behind the last one of the active segment.
func (l *Log) extend() error {
	s := l.activeSegment()
	f, err := s.use()
	if err != nil {
		return unavailable("read", "", err)
	}
	defer s.release()
	bytes, err := f.Size()
	if err != nil {
		return unavailable("read", "", err)
	}
	type found struct {
		body   body
		head   recordHead
		offset int64
	}
	var all []found
	r := scanner{segment: s, file: f, to: bytes}
	for at := s.size; at < bytes; {
		h, b, err := r.record(at)
		if errors.Is(err, eventstore.ErrCorrupt) {
			break // not written yet, or not wholly
		}
		if err != nil {
			return err
		}
		content, err := decodeBody(h.kind, append([]byte(nil), b...))
		if err != nil {
			return corrupt("read", s.name(), at, h.position, err)
		}
		all = append(all, found{content, h, at})
		at += h.size()
	}
	if len(all) == 0 {
		return nil
	}
	if err := l.syncRead(f); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range all {
		if err := l.reg.apply(r.body, r.head.position, spanOf(r.body)); err != nil {
			return corrupt("read", s.name(), r.offset, l.reg.position, err)
		}
		l.active.add(r.body, r.head.position, r.offset, r.head.size())
		s.size = r.offset + r.head.size()
	}
	return nil
}

// syncRead makes what was read durable, for its owner may not have done so yet. Where a
// file that is open for reading cannot be synced, reads show what a crash of the machine
// may take back.
func (l *Log) syncRead(f vfs.File) error {
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return unavailable("read", "", err)
	}
	return nil
}
