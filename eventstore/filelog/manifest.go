// The manifest: which files make up the store. A file that it does not name is none of
// the store's; one that it names and that is not there is damage.
//
//	head, 64 bytes  magic "wattleMF" · u32 format · u32 zero · incarnation ·
//	                u64 edition · u64 position of the registry file, 0 for none ·
//	                u32 its checksum · zeros · u32 CRC-32C of the whole file but these four bytes
//	segments        count, then for each: u64 base · u32 generation · u32 salt ·
//	                u64 size · u64 last position
//
// The last segment is the active one: its last position is 0, its size how much of it
// was durable at least when the manifest was written. A new edition is written beside
// the old one, synced, and renamed over it.

package filelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/vfs"
)

const (
	manifestName   = "MANIFEST"
	newSuffix      = ".new" // of a file that will be renamed when it is whole
	manifestNew    = manifestName + newSuffix
	manifestMagic  = "wattleMF"
	manifestHeader = 64
)

type manifest struct {
	incarnation eventstore.UUID
	edition     uint64
	registry    uint64
	registrySum uint32
	segments    []segmentEntry
}

type segmentEntry struct {
	base       uint64
	generation uint32
	salt       uint32
	size       int64
	end        uint64
}

func (s segmentEntry) name() string { return segmentName(s.base, s.generation) }

func (m *manifest) clone() *manifest {
	c := *m
	c.segments = slices.Clone(m.segments)
	return &c
}

func (m *manifest) active() *segmentEntry { return &m.segments[len(m.segments)-1] }

func (m *manifest) encode() []byte {
	e := encoder{}
	e.b = append(e.b, manifestMagic...)
	e.u32(FormatVersion)
	e.u32(0)
	e.uuid(m.incarnation)
	e.u64(m.edition)
	e.u64(m.registry)
	e.u32(m.registrySum)
	e.b = append(e.b, make([]byte, manifestHeader-len(e.b))...)
	e.uint(uint64(len(m.segments)))
	for _, s := range m.segments {
		e.u64(s.base)
		e.u32(s.generation)
		e.u32(s.salt)
		e.u64(uint64(s.size))
		e.u64(s.end)
	}
	binary.LittleEndian.PutUint32(e.b[manifestHeader-4:], manifestChecksum(e.b))
	return e.b
}

func manifestChecksum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:manifestHeader-4], castagnoli), castagnoli, b[manifestHeader:])
}

func decodeManifest(b []byte) (*manifest, error) {
	if len(b) < manifestHeader || !bytes.HasPrefix(b, []byte(manifestMagic)) {
		return nil, fmt.Errorf("%w: not a manifest", errDamaged)
	}
	if manifestChecksum(b) != binary.LittleEndian.Uint32(b[manifestHeader-4:]) {
		return nil, fmt.Errorf("%w: checksum of the manifest", errDamaged)
	}
	d := &decoder{b: b[len(manifestMagic):manifestHeader]}
	if v := d.u32(); v > FormatVersion {
		return nil, errNewer{v}
	}
	d.u32()
	m := &manifest{incarnation: d.uuid(), edition: d.u64(), registry: d.u64(), registrySum: d.u32()}
	d = &decoder{b: b[manifestHeader:]}
	m.segments = make([]segmentEntry, d.count(32))
	for i := range m.segments {
		m.segments[i] = segmentEntry{d.u64(), d.u32(), d.u32(), int64(d.u64()), d.u64()}
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return m, m.check()
}

// check demands that segments stand in order and do not overlap.
func (m *manifest) check() error {
	if len(m.segments) == 0 {
		return fmt.Errorf("%w: no segment", errDamaged)
	}
	behind := uint64(0)
	for i, s := range m.segments {
		active := i == len(m.segments)-1
		if s.base <= behind || s.size < segmentHeader || active != (s.end == 0) || !active && s.end < s.base {
			return fmt.Errorf("%w: segment %s, size %d, last position %d, behind position %d", errDamaged, s.name(), s.size, s.end, behind)
		}
		behind = s.end
	}
	return nil
}

// readFile returns a whole file.
func readFile(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return nil, err
	}
	return b, nil
}

// writeFile writes a file that is not there, and syncs it. What a failure leaves is
// removed. The name is durable with the next SyncDir.
func writeFile(fs vfs.FS, name string, b []byte) error {
	f, err := fs.Create(name)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(b, 0); err == nil {
		err = f.Sync()
	}
	f.Close()
	if err != nil {
		fs.Remove(name)
	}
	return err
}

// replaceManifest makes m the manifest. What failed before the rename changed nothing
// (errUnwritten), nor did a rename for which there was no room.
func replaceManifest(fs vfs.FS, m *manifest) error {
	if err := fs.Remove(manifestNew); err != nil && !absent(err) {
		return errUnwritten{err}
	}
	if err := writeFile(fs, manifestNew, m.encode()); err != nil {
		return errUnwritten{err}
	}
	if err := fs.Rename(manifestNew, manifestName); err != nil {
		if noSpace(err) {
			return errUnwritten{err}
		}
		return err
	}
	return fs.SyncDir()
}

// publish changes the manifest. Changes by several goroutines come one behind the other.
// When it is not known which manifest a crash would leave nothing may be written any
// more, for what one of them names must stay.
func (l *Log) publish(change func(*manifest)) error {
	l.manifestMu.Lock()
	defer l.manifestMu.Unlock()
	if err := l.failure(); err != nil {
		return errUnwritten{failed("write", err)}
	}
	m := l.manifest.clone()
	change(m)
	m.edition++
	if err := replaceManifest(l.fs, m); err != nil {
		if _, ok := errors.AsType[errUnwritten](err); !ok {
			l.fail(err)
		}
		return err
	}
	l.manifest = m
	return nil
}
