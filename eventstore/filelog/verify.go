// Verify: everything that is stored, looked at once from end to end.

package filelog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/vfs"
)

// Verify checks everything that is stored; see [eventstore.Verifier]. It reads the files
// as a read-only log does. Space is not reclaimed meanwhile.
func (l *Log) Verify(ctx context.Context, progress func(eventstore.Progress)) iter.Seq2[eventstore.Finding, error] {
	return func(yield func(eventstore.Finding, error) bool) {
		if err := l.enter(ctx, "verify", ""); err != nil {
			yield(eventstore.Finding{}, err)
			return
		}
		l.reclaiming.Lock()
		defer l.reclaiming.Unlock()
		verifyFS(ctx, l.fs, l.dir, progress, yield)
	}
}

// Verify checks the store in a directory, which may be too damaged to be opened, and may
// be in use by its owner. See [eventstore.Verifier].
func Verify(ctx context.Context, dir string, progress func(eventstore.Progress)) iter.Seq2[eventstore.Finding, error] {
	return func(yield func(eventstore.Finding, error) bool) {
		files, err := vfs.OS(dir, &vfs.OSOptions{ReadOnly: true})
		if err != nil {
			yield(eventstore.Finding{}, unavailable("verify", "", err))
			return
		}
		defer files.Close()
		verifyFS(ctx, files, dir, progress, yield)
	}
}

// What a finding advises.
const (
	hintRepair = "restore a backup, or let wattle verify --repair save what can be saved"
	hintIndex  = "nothing: it is made again when it is needed"
)

// verifier is one examination.
type verifier struct {
	ctx      context.Context
	log      *Log // read-only; its registry is nil if that could not be built
	yield    func(eventstore.Finding, error) bool
	ended    bool // whoever ranges wants no more
	progress func(eventstore.Progress)
	done     eventstore.Progress
	streams  map[uint32]*seenStream
	snaps    map[uint64]bool // positions of snapshots that were read and are sound
	position uint64          // of the last record looked at
	seen     uint64          // records up to here were looked at in files that are gone
}

// seenStream is what the records said of a stream so far.
type seenStream struct {
	first, last eventstore.Mark
	epoch       eventstore.Epoch
	time        int64
}

func verifyFS(ctx context.Context, files vfs.FS, dir string, progress func(eventstore.Progress), yield func(eventstore.Finding, error) bool) {
	if progress == nil {
		progress = func(eventstore.Progress) {}
	}
	v := &verifier{ctx: ctx, yield: yield, progress: progress, streams: map[uint32]*seenStream{}, snaps: map[uint64]bool{}}
	if err := v.run(files, dir); err != nil && !v.ended {
		yield(eventstore.Finding{}, err)
	}
	if v.log != nil {
		v.log.release()
	}
}

// errEnough ends an examination whose reader has had enough.
var errEnough = errors.New("enough")

func (v *verifier) run(files vfs.FS, dir string) error {
	l, err := recoverReadOnly(files, dir, &Options{ReadOnly: true})
	if err != nil {
		if l, err = v.unopened(files, dir, err); err != nil {
			return err
		}
	}
	v.log = l
	v.count()
	if err := v.aside(); err != nil {
		return err
	}
	if err := v.segments(); err != nil || v.log.reg == nil {
		return err
	}
	if err := v.registry(); err != nil {
		return err
	}
	return v.holds()
}

// count says how much there is to do.
func (v *verifier) count() {
	if v.log.reg == nil {
		return
	}
	for _, st := range v.log.reg.ordinals {
		if st != nil {
			v.done.Total += int64(st.head.Last.Seqno - st.head.Trimmed)
		}
	}
}

// segments checks all segments. If the owner has rewritten some meanwhile, it goes on
// with those that are there now, behind the last position it has seen.
func (v *verifier) segments() error {
	for i := 0; i < len(v.log.segments); {
		s := v.log.segments[i]
		if s.end > 0 && s.end <= v.seen {
			i++
			continue
		}
		err := v.segment(s)
		if !errors.Is(err, errGone) {
			if err != nil {
				return err
			}
			i++
			continue
		}
		next, err := recoverReadOnly(v.log.fs, v.log.dir, &v.log.o)
		if err != nil {
			return err
		}
		v.log.release()
		v.log, v.seen, i = next, v.position, 0
	}
	return nil
}

// missing reports a segment whose file is not there, unless another manifest names
// others.
func (v *verifier) missing(s *segment) error {
	if m, err := v.log.readManifest(); err == nil && m != nil && m.edition != v.log.manifest.edition && v.log.reg != nil {
		return errGone
	}
	return v.fault(eventstore.Finding{Check: "segment", Wanted: "file " + s.name(), Found: "none"})
}

// unopened reports why a store could not be opened and returns what there is of it.
func (v *verifier) unopened(files vfs.FS, dir string, cause error) (*Log, error) {
	if !errors.Is(cause, eventstore.ErrCorrupt) {
		return nil, cause
	}
	e, _ := errors.AsType[*eventstore.Error](cause)
	if err := v.fault(eventstore.Finding{Check: "open", Wanted: "a store that opens", Found: e.Found + ": " + fmt.Sprint(e.Err)}); err != nil {
		return nil, err
	}
	l := newLog(files, dir, &Options{ReadOnly: true})
	m, err := l.readManifest()
	if err != nil || m == nil {
		return l, nil
	}
	l.manifest, l.incarnation = m, m.incarnation
	for _, e := range m.segments {
		l.segments = append(l.segments, l.segmentOf(e))
	}
	return l, nil
}

// find reports something. It fails when nobody wants to hear more.
func (v *verifier) find(f eventstore.Finding) error {
	if !v.yield(f, nil) {
		v.ended = true
		return errEnough
	}
	return nil
}

func (v *verifier) fault(f eventstore.Finding) error {
	f.Severity = eventstore.SeverityFault
	if f.Hint == "" {
		f.Hint = hintRepair
	}
	return v.find(f)
}

// aside reports what repairs have put aside. Files of unfinished work are none of its
// business: the owner may be at it.
func (v *verifier) aside() error {
	names, err := v.log.fs.List()
	if err != nil {
		return unavailable("verify", "", err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, damagedSuffix) {
			continue
		}
		err := v.find(eventstore.Finding{Check: "aside", Severity: eventstore.SeverityNote, Wanted: "no damaged files", Found: name,
			Hint: "a repair has put it aside; remove it when you do not need it any more"})
		if err != nil {
			return err
		}
	}
	return nil
}

// damagedSuffix ends the names of files that a repair has put aside.
const damagedSuffix = ".damaged"

// segment checks every record of a segment, and its index.
func (v *verifier) segment(s *segment) error {
	f, err := s.use()
	if errors.Is(err, fs.ErrNotExist) {
		return v.missing(s)
	}
	if err != nil {
		return unavailable("verify", "", err)
	}
	defer s.release()
	if err := v.log.checkHeader(s); err != nil {
		if !errors.Is(err, eventstore.ErrCorrupt) {
			return err
		}
		if err := v.fault(eventstore.Finding{Check: "segment", Wanted: "the head of segment " + s.name(), Found: err.Error()}); err != nil {
			return err
		}
	}
	x := newMemIndex()
	whole := true
	size, err := v.sizeOf(s, f)
	if err != nil {
		return err
	}
	for p, err := range salvage(s, f, size) {
		if err == nil && p.body == nil {
			whole = false
			err = v.fault(eventstore.Finding{Check: "record", Position: eventstore.Position(v.position + 1), Wanted: "a record",
				Found: fmt.Sprintf("%d bytes at byte %d of %s that are none", p.size, p.offset, s.name())})
		} else if err == nil && p.head.position > v.seen {
			x.add(p.body, p.head.position, p.offset, p.size)
			err = v.record(s, p, whole)
		}
		if err != nil {
			return err
		}
	}
	if s.end > 0 && v.position > s.end {
		if err := v.fault(eventstore.Finding{Check: "position", Position: eventstore.Position(v.position), Wanted: fmt.Sprintf("none above %d in %s", s.end, s.name()),
			Found: fmt.Sprint(v.position)}); err != nil {
			return err
		}
	}
	if s.end > 0 && whole && v.seen < s.base {
		return v.index(s, x)
	}
	return nil
}

// sizeOf returns how much of a segment is to be checked: of an active one that could not
// be read to its end, all that is not zero.
func (v *verifier) sizeOf(s *segment, f vfs.File) (int64, error) {
	if s.end > 0 || v.log.reg != nil {
		return s.size, nil
	}
	n, err := f.Size()
	if err != nil {
		return 0, unavailable("verify", "", err)
	}
	b := make([]byte, scanChunk)
	for n > segmentHeader {
		from := max(n-scanChunk, segmentHeader)
		if _, err := f.ReadAt(b[:n-from], from); err != nil {
			return 0, s.readError(err, from)
		}
		if left := len(bytes.TrimRight(b[:n-from], "\x00")); left > 0 {
			return (from + int64(left) + recordAlign - 1) &^ (recordAlign - 1), nil
		}
		n = from
	}
	return n, nil
}

// index compares a segment's index with its records.
func (v *verifier) index(s *segment, x *memIndex) error {
	name := indexName(s.base, s.generation)
	b, err := readFile(v.log.fs, name)
	if absent(err) {
		return nil
	}
	if err != nil {
		return unavailable("verify", "", err)
	}
	f := eventstore.Finding{Check: "index", Severity: eventstore.SeverityWarning, Wanted: "the index of segment " + s.name(), Hint: hintIndex}
	if _, err := decodeIndex(b, s.header, s.size); err != nil {
		f.Found = fmt.Sprintf("%s: %v", name, err)
		return v.find(f)
	}
	if !bytes.Equal(b, encodeIndex(s.header, s.size, x)) {
		f.Severity, f.Found, f.Hint = eventstore.SeverityFault, name+" with other content", "remove the file: it is made again"
		return v.find(f)
	}
	return nil
}

// record checks one record. Behind a hole only what does not depend on it is known.
func (v *verifier) record(s *segment, p piece, whole bool) error {
	if err := v.ctx.Err(); err != nil {
		return err
	}
	h := p.head
	if h.position <= v.position || s.generation == 0 && whole && v.position >= s.base && h.position != v.position+1 {
		err := v.fault(eventstore.Finding{Check: "position", Position: eventstore.Position(h.position), Wanted: fmt.Sprint(v.position + 1),
			Found: fmt.Sprintf("%d at byte %d of %s", h.position, p.offset, s.name())})
		if err != nil {
			return err
		}
	}
	v.position = h.position + spanOf(p.body) - 1
	switch b := p.body.(type) {
	case appendBody:
		for i := range b.batches {
			if err := v.batch(&b.batches[i]); err != nil {
				return err
			}
		}
		v.progress(v.done)
	case snapshotBody:
		v.snaps[h.position] = sha256.Sum256(b.snapshot.Data) == b.snapshot.Checksum
	}
	return nil
}

// batch checks the entries of one stream in one record.
func (v *verifier) batch(b *batch) error {
	st := v.streams[b.ordinal]
	if st == nil {
		st = &seenStream{first: eventstore.Mark{Seqno: b.first}}
		v.streams[b.ordinal] = st
		v.done.Streams++
	}
	at := eventstore.Finding{Stream: b.name, Seqno: b.first, Position: b.position}
	report := func(check, wanted, found string) error {
		f := at
		f.Check, f.Wanted, f.Found = check, wanted, found
		return v.fault(f)
	}
	var err error
	switch trimmed := v.trimmedOf(b.ordinal); {
	case st.last.Seqno > 0 && b.first != st.last.Seqno+1 && b.first > trimmed+1:
		err = report("gap", fmt.Sprintf("seqno %d", st.last.Seqno+1), fmt.Sprint(b.first))
	case b.epoch < st.epoch:
		err = report("epoch", fmt.Sprintf("at least %d", st.epoch), fmt.Sprint(b.epoch))
	case b.time < st.time:
		err = report("time", fmt.Sprintf("no earlier than %d µs", st.time), fmt.Sprint(b.time))
	}
	for j := 0; j < len(b.events) && err == nil; j++ {
		v.done.Entries++
		if e := eventstore.CheckEvent(&b.events[j], len(b.events[j].Data)); e != nil {
			at.Seqno = b.first + eventstore.Seqno(j)
			err = report("event", "a valid event", e.Error())
		}
	}
	st.last, st.epoch, st.time = eventstore.Mark{Seqno: b.last(), ID: b.lastID}, b.epoch, b.time
	return err
}

func (v *verifier) trimmedOf(ordinal uint32) eventstore.Seqno {
	if v.log.reg == nil {
		return 0
	}
	return headOf(v.log.reg.at(ordinal)).Trimmed
}

// registry compares the registry with what the records have shown.
func (v *verifier) registry() error {
	for _, st := range v.log.reg.ordinals {
		if st == nil {
			continue
		}
		h, seen := st.head, v.streams[st.ordinal]
		f := eventstore.Finding{Stream: st.name, Seqno: h.Last.Seqno}
		var err error
		switch {
		case h.Trimmed > h.Last.Seqno:
			f.Check, f.Wanted, f.Found = "watermark", "at most "+h.Last.Seqno.String(), h.Trimmed.String()
		case h.Last.Seqno > h.Trimmed && (seen == nil || seen.last != h.Last):
			f.Check, f.Wanted, f.Found = "head", "entry "+h.Last.String(), "none, or another one"
		case h.Last.Seqno > h.Trimmed && seen.first.Seqno > h.Trimmed+1:
			f.Check, f.Seqno, f.Wanted, f.Found = "gap", h.Trimmed+1, "entry "+(h.Trimmed+1).String(), "the first one is "+seen.first.Seqno.String()
		case seen != nil && seen.epoch > h.Epoch:
			f.Check, f.Wanted, f.Found = "epoch", fmt.Sprintf("at least %d", seen.epoch), fmt.Sprint(h.Epoch)
		case st.snapshot != nil && st.snapshot.at.Seqno > h.Last.Seqno:
			f.Check, f.Wanted, f.Found = "snapshot", "at or below the head", st.snapshot.at.String()
		case st.snapshot != nil && !v.snaps[st.snapshot.position]:
			f.Check, f.Wanted, f.Found, f.Hint = "snapshot", "the snapshot at "+st.snapshot.at.String(), "none, or one whose checksum does not match", "loads replay around it; save another one"
		default:
			continue
		}
		if err = v.fault(f); err != nil {
			return err
		}
	}
	return nil
}

// holds checks that what is held is there.
func (v *verifier) holds() error {
	for _, h := range v.log.reg.holds {
		f := eventstore.Finding{Check: "hold", Category: h.Category, Stream: h.Stream, Wanted: fmt.Sprintf("hold %q to keep what it covers", h.Name)}
		c := v.log.reg.categories[h.Category]
		switch st := v.log.reg.streams[h.Stream]; {
		case c == nil:
			f.Found = "no such category"
		case h.Stream != "" && st != nil && st.head.Trimmed > 0 && h.Seqno <= st.head.Trimmed:
			f.Found = "trimmed through " + st.head.Trimmed.String()
		case h.Stream == "" && c.trimmedTo > 0 && h.Position <= c.trimmedTo:
			f.Found = "trimmed to position " + c.trimmedTo.String()
		default:
			continue
		}
		if err := v.fault(f); err != nil {
			return err
		}
	}
	return nil
}
