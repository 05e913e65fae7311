// Recovery: from the files to a registry, and to a file that can be appended to.

package filelog

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/vfs"
)

// recover reads the store. The owner also removes what a crash has left.
func (l *Log) recover() error {
	m, err := l.readManifest()
	if err != nil {
		return err
	}
	if m == nil {
		if m, err = l.create(); err != nil {
			return err
		}
	}
	l.manifest, l.incarnation = m, m.incarnation
	if !l.readOnly {
		// Whoever renamed this manifest may have been killed before he synced the directory.
		if err := l.fs.SyncDir(); err != nil {
			return unavailable("open", "", err)
		}
	}
	if err := l.checkFiles(); err != nil {
		return err
	}
	if l.reg, err = l.readRegistry(m); err != nil {
		return err
	}
	for _, e := range m.segments {
		l.segments = append(l.segments, l.segmentOf(e))
	}
	l.current = l.segments[len(l.segments)-1]
	proven, err := l.replay()
	if err != nil {
		return err
	}
	again, err := l.settle(proven)
	if err != nil {
		return err
	}
	if !again {
		return l.prepareActive()
	}
	for _, s := range l.segments {
		s.retire()
	}
	l.segments = nil
	return l.recover()
}

func (l *Log) segmentOf(e segmentEntry) *segment {
	return &segment{header: header{generation: e.generation, incarnation: l.incarnation, base: e.base, salt: e.salt},
		files: l.files, size: e.size, end: e.end, live: unknownLive}
}

// readManifest returns the manifest, nil if there is no store.
func (l *Log) readManifest() (*manifest, error) {
	b, err := readFile(l.fs, manifestName)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable("open", "", err)
	}
	m, err := decodeManifest(b)
	if err != nil {
		return nil, corruptFile("open", manifestName, err)
	}
	return m, nil
}

// create makes an empty store. A crash before the manifest is there leaves a segment
// without a record, which the next attempt removes; one with records means that a
// manifest is missing.
func (l *Log) create() (*manifest, error) {
	names, err := l.fs.List()
	if err != nil {
		return nil, unavailable("open", "", err)
	}
	for _, name := range names {
		if !ours(name) {
			continue
		}
		if err := l.checkLeftover(name); err != nil {
			return nil, err
		}
	}
	if l.readOnly {
		return nil, &eventstore.Error{Kind: eventstore.ErrNotMigrated, Op: "open", Wanted: "a store in " + l.dir, Found: "no manifest",
			Hint: "open it for writing to create one"}
	}
	m := &manifest{incarnation: eventstore.NewUUID(), edition: 1}
	h := l.newHeader(m.incarnation, 1)
	if err := l.createSegment(h); err != nil {
		return nil, unavailable("create", "", err)
	}
	m.segments = []segmentEntry{{base: h.base, salt: h.salt, size: segmentHeader}}
	if err := replaceManifest(l.fs, m); err != nil {
		return nil, unavailable("create", "", err)
	}
	return m, nil
}

// checkLeftover removes a file of a store that was never finished.
func (l *Log) checkLeftover(name string) error {
	if name != segmentName(1, 0) && name != manifestNew {
		return corrupt("open", manifestName, 0, 0, fmt.Errorf("%w: it is not there, but %s is", errDamaged, name))
	}
	if name == segmentName(1, 0) {
		b, err := readFile(l.fs, name)
		if err != nil {
			return unavailable("open", "", err)
		}
		if len(b) > segmentHeader && slices.ContainsFunc(b[segmentHeader:], func(c byte) bool { return c != 0 }) {
			return corrupt("open", manifestName, 0, 0, fmt.Errorf("%w: it is not there, but %s holds records", errDamaged, name))
		}
	}
	if l.readOnly {
		return nil
	}
	if err := l.fs.Remove(name); err != nil {
		return unavailable("open", "", err)
	}
	return nil
}

func (l *Log) newHeader(incarnation eventstore.UUID, base uint64) header {
	var salt [4]byte
	rand.Read(salt[:])
	return header{incarnation: incarnation, base: base, salt: binary.LittleEndian.Uint32(salt[:]), created: l.now()}
}

// createSegment makes the file of a segment, durable with its name. One that is there is
// of an attempt that failed.
func (l *Log) createSegment(h header) error {
	return l.createFile(segmentName(h.base, h.generation), h.encode())
}

// createFile makes a file, durable with its name, in place of what an attempt that
// failed has left.
func (l *Log) createFile(name string, b []byte) error {
	if err := l.fs.Remove(name); err != nil && !absent(err) {
		return err
	}
	if err := writeFile(l.fs, name, b); err != nil {
		return err
	}
	return l.fs.SyncDir()
}

// ours says if a file name is one that a store uses: opening removes such files when the
// manifest does not name them, and no others.
func ours(name string) bool {
	name = strings.TrimSuffix(name, newSuffix)
	if name == manifestName {
		return true
	}
	number := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	base, rest, _ := strings.Cut(name, ".")
	generation, kind, _ := strings.Cut(rest, ".")
	return len(base) == 19 && number(base) && (rest == "reg" || number(generation) && (kind == "log" || kind == "idx"))
}

func registryName(position uint64) string { return fmt.Sprintf("%019d.reg", position) }

// wanted returns the files that a manifest names.
func (m *manifest) wanted() map[string]bool {
	w := map[string]bool{manifestName: true}
	for _, s := range m.segments {
		w[s.name()] = true
	}
	if m.registry > 0 {
		w[registryName(m.registry)] = true
	}
	return w
}

// checkFiles demands that all files are there. The owner removes those of unfinished
// work: nothing in them was acked, for an ack comes after the manifest.
func (l *Log) checkFiles() error {
	names, err := l.fs.List()
	if err != nil {
		return unavailable("open", "", err)
	}
	wanted := l.manifest.wanted()
	for _, name := range names {
		keep := wanted[name] || !ours(name) || strings.HasSuffix(name, ".idx") && wanted[strings.TrimSuffix(name, ".idx")+".log"]
		if !keep && !l.readOnly {
			if err := l.fs.Remove(name); err != nil {
				return unavailable("open", "", err)
			}
		}
		delete(wanted, name)
	}
	for name := range wanted {
		return corrupt("open", name, 0, 0, fmt.Errorf("%w: the manifest names it, and it is not there", errDamaged))
	}
	return nil
}

func (l *Log) readRegistry(m *manifest) (*registry, error) {
	if m.registry == 0 {
		return newRegistry(), nil
	}
	name := registryName(m.registry)
	b, err := readFile(l.fs, name)
	if err != nil {
		return nil, unavailable("open", "", err)
	}
	r, err := decodeRegistry(b, l.incarnation)
	if err == nil && (r.position != m.registry || registryChecksum(b) != m.registrySum) {
		err = fmt.Errorf("%w: a registry of another time, at position %d", errDamaged, r.position)
	}
	if err != nil {
		return nil, corruptFile("open", name, err)
	}
	return r, nil
}

// replay applies the records that the registry file does not hold, and looks at all of
// the active segment. It returns how much of that is known to be durable.
func (l *Log) replay() (proven int64, err error) {
	for _, s := range l.segments {
		active := s.end == 0
		if !active && s.end <= l.reg.position {
			continue
		}
		f, err := s.use()
		if err != nil {
			return 0, err
		}
		if err = l.checkHeader(s); err == nil && active {
			proven, err = l.replayActive(s, f)
		} else if err == nil {
			err = s.scan(f, segmentHeader, s.size, func(h recordHead, b []byte, offset int64) error {
				_, err := l.replayRecord(s, h, b, offset, nil)
				return err
			})
		}
		s.release()
		if err != nil {
			return 0, err
		}
		if !active && l.reg.position != s.end {
			return 0, corrupt("open", s.name(), s.size, l.reg.position, fmt.Errorf("%w: its last position should be %d", errDamaged, s.end))
		}
	}
	return proven, nil
}

// checkHeader demands that the head of a segment's file says what the manifest does.
func (l *Log) checkHeader(s *segment) error {
	f, err := s.use()
	if err != nil {
		return err
	}
	defer s.release()
	b := make([]byte, segmentHeader)
	if _, err := f.ReadAt(b, 0); err != nil {
		return s.readError(err, 0)
	}
	h, err := decodeHeader(b)
	if err == nil {
		s.created = h.created
		h.created = s.created
		if h != s.header {
			err = fmt.Errorf("%w: the head of another segment", errDamaged)
		}
	}
	if err != nil {
		return corruptFile("open", s.name(), err)
	}
	return nil
}

// replayRecord applies a record and notes it in an index, if there is one. It returns
// its last position.
func (l *Log) replayRecord(s *segment, h recordHead, b []byte, offset int64, x *memIndex) (uint64, error) {
	body, err := decodeBody(h.kind, b)
	if err == nil && h.position > l.reg.position {
		if h.position != l.reg.position+1 {
			err = fmt.Errorf("%w: position %d", errDamaged, h.position)
		} else {
			err = l.reg.apply(body, h.position, spanOf(body))
		}
	}
	if err != nil {
		return 0, corrupt("open", s.name(), offset, l.reg.position, err)
	}
	if x != nil {
		x.add(body, h.position, offset, h.size())
	}
	return h.position + spanOf(body) - 1, nil
}

// replayActive looks at every record of the active segment, and finds its end. It
// returns up to where the manifest and its records prove it durable.
func (l *Log) replayActive(s *segment, f vfs.File) (proven int64, err error) {
	bytes, err := f.Size()
	if err != nil {
		return 0, unavailable("open", "", err)
	}
	floor := s.size // durable for sure
	proven = floor
	covered, last := l.reg.position, s.base-1
	l.active = newMemIndex()
	s.index = l.active
	r := scanner{segment: s, file: f, to: bytes}
	at := int64(segmentHeader)
	for at < bytes {
		h, b, err := r.record(at)
		if errors.Is(err, eventstore.ErrCorrupt) {
			err = l.judgeTail(&r, at, floor, err)
			if err != nil && l.readOnly {
				// Its owner may have written it since it was read.
				r.b = nil
				if _, _, again := r.record(at); again == nil {
					continue
				}
			}
			if err != nil {
				return 0, err
			}
			break
		}
		if err == nil {
			last, err = l.replayRecord(s, h, b, at, l.active)
		}
		if err != nil {
			return 0, err
		}
		at += h.size()
		proven = max(proven, int64(h.synced))
	}
	if at < floor {
		return 0, corrupt("open", s.name(), at, l.reg.position, fmt.Errorf("%w: %d bytes were durable", errDamaged, floor))
	}
	if last < covered { // what a registry file holds was durable before it
		return 0, corrupt("open", s.name(), at, last, fmt.Errorf("%w: the registry file goes through position %d", errDamaged, covered))
	}
	s.size = at
	return proven, nil
}

// prepareActive makes the active file ready for writing: what stands behind its last
// record is cut off, and all before it is made durable, for a crash of the process alone
// may have left records that nobody has synced, and readers are about to see them.
func (l *Log) prepareActive() error {
	s := l.activeSegment()
	f, err := l.fs.Open(s.name())
	if err != nil {
		return unavailable("open", "", err)
	}
	if l.readOnly {
		defer f.Close()
		return l.syncRead(f)
	}
	bytes, err := f.Size()
	if err == nil && bytes > s.size {
		err = f.Truncate(s.size)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		f.Close()
		return unavailable("open", "", err)
	}
	l.file, l.allocated = f, s.size
	l.synced.Store(s.size)
	return nil
}
