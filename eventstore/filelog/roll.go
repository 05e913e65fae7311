// Rolling: the active segment is sealed and another one begun; index and registry files.

package filelog

import (
	"errors"
	"slices"

	"github.com/wattle-es/wattle/internal/vfs"
)

// rollIfFull begins a new segment if the active one is full.
func (w *writer) rollIfFull() error {
	s := w.activeSegment()
	if s.size+int64(len(w.group.b)) < w.o.SegmentBytes && w.active.count < maxIndexRows {
		return nil
	}
	w.commit()
	if err := w.failure(); err != nil {
		return err
	}
	if s.size == segmentHeader {
		return nil
	}
	return w.roll()
}

// roll seals the active segment. What fails before the new manifest is there changes
// nothing, and the next append tries again.
func (w *writer) roll() error {
	if w.dirty {
		if err := w.sync(); err != nil {
			return err
		}
	}
	old := w.activeSegment()
	h := w.newHeader(w.incarnation, w.reg.position+1)
	entry := segmentEntry{base: h.base, salt: h.salt, size: segmentHeader}
	if err := w.createSegment(h); err != nil {
		return err
	}
	file, err := w.fs.Open(entry.name())
	if err != nil {
		err = unavailable("roll", "", err)
	} else {
		err = w.publish(func(m *manifest) {
			m.active().size, m.active().end = old.size, w.reg.position
			m.segments = append(m.segments, entry)
		})
	}
	if err != nil {
		if file != nil {
			file.Close()
		}
		if _, ok := errors.AsType[errUnwritten](err); ok || file == nil {
			w.fs.Remove(entry.name()) // else the manifest may name it
		}
		return err
	}
	w.switchTo(old, entry, h, file)
	return nil
}

// switchTo shows readers the sealed segment and the new one.
func (w *writer) switchTo(old *segment, entry segmentEntry, h header, file vfs.File) {
	w.file.Truncate(old.size) // what was allocated and not used; it does no harm if it stays
	w.file.Close()
	w.file, w.allocated = file, segmentHeader
	sealed := w.segmentOf(segmentEntry{old.base, old.generation, old.salt, old.size, w.reg.position})
	sealed.index = w.active
	next := w.segmentOf(entry)
	next.created = h.created

	w.mu.Lock()
	w.current, w.active = next, newMemIndex()
	next.index = w.active
	w.segments = append(slices.Clone(w.segments[:len(w.segments)-1]), sealed, next)
	w.mu.Unlock()
	w.synced.Store(next.size)
	old.retire()
	w.background.sealed(w, sealed, sealed.index.(*memIndex))
}

// writeIndex writes the index file of a sealed segment from the index in memory, and
// lets readers go over to it.
func (l *Log) writeIndex(s *segment, x *memIndex) error {
	name := indexName(s.base, s.generation)
	if err := l.fs.Remove(name + newSuffix); err != nil && !absent(err) {
		return err
	}
	if err := writeFile(l.fs, name+newSuffix, encodeIndex(s.header, s.size, x)); err != nil {
		return err
	}
	if err := l.fs.Rename(name+newSuffix, name); err != nil { // who reads beside us sees all of it, or none
		return err
	}
	// The name need not be durable: an index that is missing is made again.
	mapping, made, err := l.files.openIndex(s)
	if err != nil {
		return unavailable("read", "", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || s.mapping != nil {
		if mapping != nil {
			mapping.Close()
		}
		return nil
	}
	s.mapping, s.index = mapping, made
	return nil
}

// writeRegistry writes the registry file of a position and makes the manifest name it.
func (l *Log) writeRegistry(position uint64, b []byte) error {
	if err := l.failure(); err != nil {
		return failed("write", err)
	}
	l.registryMu.Lock()
	defer l.registryMu.Unlock()
	l.manifestMu.Lock()
	before := l.manifest.registry
	l.manifestMu.Unlock()
	if before >= position {
		return nil
	}
	name := registryName(position)
	if err := l.fs.Remove(name); err != nil && !absent(err) {
		return err
	}
	if err := writeFile(l.fs, name, b); err != nil {
		return errUnwritten{err}
	}
	if err := l.fs.SyncDir(); err != nil {
		return err
	}
	if err := l.publish(func(m *manifest) { m.registry, m.registrySum = position, registryChecksum(b) }); err != nil {
		if _, ok := errors.AsType[errUnwritten](err); ok {
			l.fs.Remove(name)
		}
		return err
	}
	if before > 0 {
		l.fs.Remove(registryName(before))
	}
	return nil
}

// conclude writes the registry and cuts the active file to size, when the writer has
// ended: the next opening has nothing to replay, and knows how much was durable.
func (l *Log) conclude() error {
	if err := l.failure(); err != nil {
		return failed("close", err)
	}
	s := l.activeSegment()
	if err := l.file.Truncate(s.size); err != nil {
		return unavailable("close", "", err)
	}
	if err := l.file.Sync(); err != nil {
		return unavailable("close", "", err)
	}
	if l.manifest.registry == l.reg.position && l.manifest.active().size == s.size {
		return nil
	}
	if err := l.publish(func(m *manifest) { m.active().size = s.size }); err != nil {
		return unavailable("close", "", err)
	}
	if l.reg.position == 0 {
		return nil
	}
	if err := l.writeRegistry(l.reg.position, encodeRegistry(l.reg, l.incarnation)); err != nil {
		return unavailable("close", "", err)
	}
	return nil
}
