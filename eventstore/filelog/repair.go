// Repair: from a damaged store to one that opens, without losing anything in silence.
//
// Every valid record of every segment is kept. What lies between was lost, and whatever
// follows from that is made visible instead of guessed: a stream that has a hole is
// trimmed through it, so reading it from before is ErrTrimmed and never a shorter
// history, and so is the feed of its category; the entries before the hole, which are
// sound and can no longer be reached, are written to a file. Damaged files are kept under
// other names. The new files are made beside the old ones and take their place with a new
// manifest, so a repair that is interrupted has changed nothing.

package filelog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/vfs"
)

// RepairOptions say how a store is repaired.
type RepairOptions struct {
	DryRun bool // only tell what would be done
}

// epochStep is added to every epoch when the registry was lost, and with it, perhaps,
// grants that no entry shows: none of those may be granted again.
const epochStep = 1 << 32

// Repair makes the store in a directory one that opens and verifies, whatever is damaged,
// and returns what was lost (SeverityFault), what was put aside and what was changed. It
// takes the directory's lock. A store that is sound is not changed. See the comment of the
// file for what it keeps and how; run Verify first, and make a copy of the directory.
func Repair(ctx context.Context, dir string, o *RepairOptions) ([]eventstore.Finding, error) {
	files, err := vfs.OS(dir, &vfs.OSOptions{ReadOnly: o != nil && o.DryRun})
	if err != nil {
		return nil, unavailable("repair", "", err)
	}
	defer files.Close()
	return repairFS(ctx, files, dir, o)
}

func repairFS(ctx context.Context, files vfs.FS, dir string, o *RepairOptions) ([]eventstore.Finding, error) {
	r := &repairer{ctx: ctx, log: newLog(files, dir, &Options{ReadOnly: true}), runs: map[uint32]*seenRun{},
		trimmedBefore: map[uint32]eventstore.Seqno{}}
	if o != nil {
		r.o = *o
	}
	if !r.o.DryRun {
		lock, err := files.Lock(lockName)
		if err != nil {
			return nil, locked(dir, err)
		}
		defer lock.Close()
	}
	defer r.log.release()
	err := r.run()
	return r.found, err
}

type repairer struct {
	ctx     context.Context
	o       RepairOptions
	log     *Log
	old     *manifest // nil: damaged or absent
	reg     *registry
	rebuilt bool // the registry is made of records alone
	parts   []*part
	runs    map[uint32]*seenRun
	found   []eventstore.Finding
	changed bool

	trimmedBefore map[uint32]eventstore.Seqno // of the streams that were trimmed through a hole
}

// part is one segment and what of it is sound.
type part struct {
	*segment
	holes bool
	end   uint64 // last position of its records
}

// seenRun is the last run of entries of a stream that has no hole.
type seenRun struct {
	first, last eventstore.Seqno
	position    eventstore.Position // of first
}

func (r *repairer) note(severity eventstore.Severity, f eventstore.Finding) {
	f.Severity = severity
	r.found = append(r.found, f)
	r.changed = true
}

func (r *repairer) lost(f eventstore.Finding) { r.note(eventstore.SeverityFault, f) }

func (r *repairer) run() error {
	for _, step := range []func() error{r.findSegments, r.findRegistry, r.replay, r.cover} {
		if err := step(); err != nil {
			return err
		}
	}
	if !r.changed || r.o.DryRun {
		return nil
	}
	return r.write()
}

// findSegments reads the manifest, or finds the segments by their names.
func (r *repairer) findSegments() error {
	m, err := r.log.readManifest()
	switch {
	case err == nil && m != nil:
		r.old = m
	case err == nil, errors.Is(err, eventstore.ErrCorrupt):
		r.note(eventstore.SeverityWarning, eventstore.Finding{Check: "manifest", Wanted: "a manifest", Found: "none, or a damaged one", Hint: "it was made from the segments"})
		if m, err = r.guessManifest(); err != nil {
			return err
		}
	default:
		return err
	}
	r.log.manifest, r.log.incarnation = m, m.incarnation
	for i, e := range m.segments {
		p := &part{segment: r.log.segmentOf(e), end: e.end}
		f, err := p.use()
		if absent(err) {
			r.lost(eventstore.Finding{Check: "segment", Position: eventstore.Position(e.base), Wanted: "file " + e.name(), Found: "none"})
			continue
		}
		if err != nil {
			return unavailable("repair", "", err)
		}
		if i == len(m.segments)-1 || r.old == nil {
			p.size, err = f.Size()
		}
		p.release()
		if err != nil {
			return unavailable("repair", "", err)
		}
		r.parts = append(r.parts, p)
	}
	return nil
}

// guessManifest makes a manifest of the segments that are there. Of several generations
// the newest that is whole counts, with all that it covers.
func (r *repairer) guessManifest() (*manifest, error) {
	names, err := r.log.fs.List()
	if err != nil {
		return nil, unavailable("repair", "", err)
	}
	m := &manifest{}
	for _, name := range names {
		e, h, ok := r.guessSegment(name)
		if !ok {
			continue
		}
		if m.incarnation.IsZero() {
			m.incarnation = h.incarnation
		}
		m.segments = append(m.segments, e)
	}
	if len(m.segments) == 0 {
		return nil, &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: "repair", Wanted: "at least one segment with a head", Found: "none", Hint: "restore a backup"}
	}
	slices.SortFunc(m.segments, func(a, b segmentEntry) int {
		if a.base != b.base {
			return int(int64(a.base) - int64(b.base))
		}
		return int(b.generation) - int(a.generation)
	})
	m.segments = withoutCovered(m.segments)
	for _, name := range names {
		n, isRegistry := strings.CutSuffix(name, ".reg")
		if p, err := strconv.ParseUint(n, 10, 64); isRegistry && err == nil {
			m.registry = max(m.registry, p)
		}
	}
	if b, err := readFile(r.log.fs, registryName(m.registry)); err == nil && len(b) >= registryHeader {
		m.registrySum = registryChecksum(b)
	}
	return m, nil
}

// guessSegment reads what a segment's file says of itself.
func (r *repairer) guessSegment(name string) (e segmentEntry, h header, ok bool) {
	if !strings.HasSuffix(name, ".log") {
		return e, h, false
	}
	f, err := r.log.fs.Open(name)
	if err != nil {
		return e, h, false
	}
	defer f.Close()
	b := make([]byte, segmentHeader)
	if _, err := f.ReadAt(b, 0); err != nil {
		return e, h, false
	}
	h, err = decodeHeader(b)
	size, serr := f.Size()
	if err != nil || serr != nil || segmentName(h.base, h.generation) != name {
		r.lost(eventstore.Finding{Check: "segment", Wanted: "the head of " + name, Found: "a damaged one, and no manifest that knows its salt"})
		return e, h, false
	}
	s := r.log.segmentOf(segmentEntry{base: h.base, generation: h.generation, salt: h.salt, size: size})
	e = segmentEntry{base: h.base, generation: h.generation, salt: h.salt, size: size, end: h.base}
	for p, err := range salvage(s, f, size) {
		if err == nil && p.body != nil {
			e.end = p.head.position + spanOf(p.body) - 1
		}
	}
	return e, h, true
}

// withoutCovered leaves out older generations of what a newer one holds.
func withoutCovered(all []segmentEntry) (out []segmentEntry) {
	for _, e := range all {
		covered := slices.ContainsFunc(all, func(o segmentEntry) bool {
			return o.generation > e.generation && o.base <= e.base && o.end >= e.end
		})
		if !covered {
			out = append(out, e)
		}
	}
	return out
}

// findRegistry reads the registry file; without it the registry is made of records.
func (r *repairer) findRegistry() error {
	position := r.log.manifest.registry
	if position == 0 {
		r.reg = newRegistry()
		return nil
	}
	reg, err := r.log.readRegistry(r.log.manifest)
	if err == nil {
		r.reg = reg
		return nil
	}
	if !errors.Is(err, eventstore.ErrCorrupt) && !absent(err) {
		return err
	}
	r.reg, r.rebuilt = newRegistry(), true
	r.lost(eventstore.Finding{Check: "registry", Position: eventstore.Position(position), Wanted: "file " + registryName(position), Found: "none, or a damaged one",
		Hint: "it was made from the records; holds, leases and grants whose records had been reclaimed are lost, so every epoch was raised by 2^32"})
	return nil
}

// replay applies every record that is sound.
func (r *repairer) replay() error {
	for _, p := range r.parts {
		f, err := p.use()
		if err != nil {
			return unavailable("repair", "", err)
		}
		err = r.replayPart(p, f)
		p.release()
		if err != nil {
			return err
		}
	}
	if r.rebuilt {
		for _, st := range r.reg.ordinals {
			if st != nil {
				st.head.Epoch, st.head.Holder = st.head.Epoch+epochStep, eventstore.UUID{}
			}
		}
	}
	return nil
}

func (r *repairer) replayPart(p *part, f vfs.File) error {
	active := p == r.parts[len(r.parts)-1]
	if err := r.log.checkHeader(p.segment); err != nil {
		if !errors.Is(err, eventstore.ErrCorrupt) {
			return err
		}
		p.holes = true
		r.note(eventstore.SeverityWarning, eventstore.Finding{Check: "segment", Wanted: "the head of " + p.name(), Found: "a damaged one", Hint: "it was made anew"})
	}
	last := p.base - 1
	for piece, err := range salvage(p.segment, f, p.size) {
		if err == nil {
			err = r.ctx.Err()
		}
		if err != nil {
			return err
		}
		if piece.body == nil {
			if active && r.torn(p, f, piece) {
				p.size = piece.offset
				break
			}
			r.hole(p, piece, last)
			continue
		}
		if piece.head.position <= last {
			p.holes = true
			r.lost(eventstore.Finding{Check: "record", Position: eventstore.Position(piece.head.position), Wanted: fmt.Sprintf("a position above %d", last),
				Found: fmt.Sprintf("a record out of order at byte %d of %s", piece.offset, p.name())})
			continue
		}
		r.record(piece)
		last = piece.head.position + spanOf(piece.body) - 1
	}
	p.end = max(p.end, last)
	r.reg.position = max(r.reg.position, last)
	return nil
}

// torn says if a hole in the newest segment, and all behind it, is what opening cuts off
// too: nobody was told of it.
func (r *repairer) torn(p *part, f vfs.File, h piece) bool {
	floor := int64(segmentHeader)
	if r.old != nil {
		floor = r.old.active().size
	}
	r.log.reg = r.reg
	return r.log.judgeTail(&scanner{segment: p.segment, file: f, to: p.size}, h.offset, floor, errDamaged) == nil
}

// hole notes bytes that are no record.
func (r *repairer) hole(p *part, h piece, last uint64) {
	p.holes = true
	r.lost(eventstore.Finding{Check: "record", Position: eventstore.Position(last + 1), Wanted: "a record behind position " + strconv.FormatUint(last, 10),
		Found: fmt.Sprintf("%d bytes at byte %d of %s that are none", h.size, h.offset, p.name()),
		Hint:  "what stood there is lost if it was acked; its bytes are in " + p.name() + damagedSuffix})
}

// record applies a record, and what it shows must have been before it.
func (r *repairer) record(p piece) {
	span := spanOf(p.body)
	if a, ok := p.body.(appendBody); ok {
		for i := range a.batches {
			r.batch(&a.batches[i], p.head.position > r.reg.position)
		}
	}
	if p.head.position <= r.reg.position {
		return
	}
	if err := r.reg.change(p.body, p.head.position); err != nil {
		r.lost(eventstore.Finding{Check: "record", Position: eventstore.Position(p.head.position), Wanted: "a record that fits those before it", Found: err.Error()})
	}
	r.reg.position = p.head.position + span - 1
}

// batch notes which entries of a stream are there; missing says that the registry is to
// be made ready for the batch.
func (r *repairer) batch(b *batch, missing bool) {
	run := r.runs[b.ordinal]
	if run == nil || run.last+1 != b.first {
		run = &seenRun{first: b.first, position: b.position}
		r.runs[b.ordinal] = run
	}
	run.last = b.last()
	if !missing {
		return
	}
	if r.reg.numbers[b.category] == nil && r.reg.categories[b.name.Category()] == nil {
		spec := eventstore.CategorySpec{Name: b.name.Category()}
		if b.position == 0 {
			spec.Layout = eventstore.Dedicated
		}
		r.reg.createCategory(createCategoryBody{b.category, spec})
		r.lost(eventstore.Finding{Check: "category", Category: spec.Name, Wanted: "the record that created it", Found: "none", Hint: "it was created anew as: " + spec.String()})
	}
	if st, err := r.reg.reach(b.streamRef); err == nil && st.head.Last.Seqno+1 < b.first {
		st.head.Last = eventstore.Mark{Seqno: b.first - 1}
	}
}

// cover trims every stream through the last hole in it.
func (r *repairer) cover() error {
	for _, st := range r.reg.ordinals {
		if st == nil || st.head.Last.Seqno <= st.head.Trimmed {
			continue
		}
		run := r.runs[st.ordinal]
		to, position := st.head.Last.Seqno, eventstore.Position(r.reg.position)
		if run != nil && run.last == st.head.Last.Seqno {
			if run.first <= st.head.Trimmed+1 {
				continue
			}
			to, position = run.first-1, run.position-1
		}
		r.lost(eventstore.Finding{Check: "gap", Stream: st.name, Seqno: st.head.Trimmed + 1, Wanted: fmt.Sprintf("entries %d to %d", st.head.Trimmed+1, to),
			Found: "some of them", Hint: "the stream was trimmed through " + to.String() + "; what was left of them is in " + r.asideName()})
		r.trimmedBefore[st.ordinal] = st.head.Trimmed
		st.head.Trimmed = to
		if !st.category.dedicated() {
			st.category.trimmedTo = max(st.category.trimmedTo, position)
		}
	}
	r.moveHolds()
	return nil
}

// moveHolds moves holds over what was lost to what is left.
func (r *repairer) moveHolds() {
	for k, h := range r.reg.holds {
		was := h
		c := r.reg.categories[h.Category]
		if c == nil { // its record was lost, and every entry with it
			delete(r.reg.holds, k)
			r.lost(eventstore.Finding{Check: "hold", Category: h.Category, Stream: h.Stream, Wanted: fmt.Sprintf("what hold %q covers", h.Name), Found: "no such category",
				Hint: "the hold was released"})
			continue
		}
		if st := r.reg.streams[h.Stream]; st != nil && st.head.Trimmed > 0 && h.Seqno <= st.head.Trimmed {
			h.Seqno, h.ID = st.head.Trimmed+1, eventstore.UUID{}
		}
		if h.Stream == "" && c.trimmedTo > 0 && h.Position <= c.trimmedTo {
			h.Position, h.ID = c.trimmedTo+1, eventstore.UUID{}
		}
		if h == was {
			continue
		}
		r.reg.holds[k] = h
		r.lost(eventstore.Finding{Check: "hold", Category: h.Category, Stream: h.Stream, Seqno: was.Seqno, Position: was.Position,
			Wanted: fmt.Sprintf("what hold %q covers", h.Name), Found: "some of it is lost", Hint: "the hold was moved to what is left"})
	}
}

func (r *repairer) asideName() string {
	return fmt.Sprintf("entries-%d.jsonl%s", r.reg.position, damagedSuffix)
}

// write puts the new files in the place of the old ones.
func (r *repairer) write() error {
	if err := r.putAside(); err != nil {
		return unavailable("repair", "", err)
	}
	m := &manifest{incarnation: r.log.incarnation, edition: r.log.manifest.edition + 1}
	var replaced []string
	for _, p := range r.parts {
		e := segmentEntry{p.base, p.generation, p.salt, p.size, p.end}
		if p.holes || p == r.parts[len(r.parts)-1] {
			replaced = append(replaced, p.name())
			next, err := r.rewrite(p)
			if err != nil {
				return unavailable("repair", "", err)
			}
			if next == nil {
				continue
			}
			e = *next
		}
		m.segments = append(m.segments, e)
	}
	h := r.log.newHeader(m.incarnation, r.reg.position+1)
	if err := r.log.createSegment(h); err != nil {
		return unavailable("repair", "", err)
	}
	m.segments = append(m.segments, segmentEntry{base: h.base, salt: h.salt, size: segmentHeader})
	if err := r.writeRegistry(m); err != nil {
		return unavailable("repair", "", err)
	}
	if err := replaceManifest(r.log.fs, m); err != nil {
		return unavailable("repair", "", err)
	}
	wanted := m.wanted() // the new segment may have the name of one that was empty
	for _, name := range replaced {
		if !wanted[name] {
			r.log.fs.Remove(name) // a copy of it was put aside
		}
	}
	return nil
}

// writeRegistry writes the registry under a position of its own, so that no file of that
// name is in its way.
func (r *repairer) writeRegistry(m *manifest) error {
	m.registry = r.reg.position
	name := registryName(m.registry)
	if m.registry == 0 {
		return nil
	}
	if err := r.log.fs.Remove(name); err != nil && !absent(err) {
		return err
	}
	b := encodeRegistry(r.reg, m.incarnation)
	m.registrySum = registryChecksum(b)
	if err := writeFile(r.log.fs, name, b); err != nil {
		return err
	}
	return r.log.fs.SyncDir()
}

// rewrite copies the sound records of a segment into the next generation.
func (r *repairer) rewrite(p *part) (*segmentEntry, error) {
	h := r.log.newHeader(r.log.incarnation, p.base)
	h.generation = p.generation + 1
	out := &rewriter{log: r.log, header: h, index: newMemIndex()}
	f, err := p.use()
	if err != nil {
		return nil, err
	}
	defer p.release()
	last := p.base - 1
	for piece, err := range salvage(p.segment, f, p.size) {
		if err == nil && piece.body != nil && piece.head.position > last {
			last = piece.head.position + spanOf(piece.body) - 1
			err = out.add(piece.head, piece.body)
		}
		if err != nil {
			out.discard()
			return nil, err
		}
	}
	kept, err := out.finish()
	if err != nil || !kept {
		return nil, err
	}
	return &segmentEntry{h.base, h.generation, h.salt, out.size, p.end}, nil
}

// putAside copies damaged files, and writes down entries that can no longer be reached.
func (r *repairer) putAside() error {
	for _, p := range r.parts {
		if p.holes {
			if err := r.copyAside(p.name()); err != nil {
				return err
			}
		}
	}
	if r.old == nil {
		if err := r.copyAside(manifestName); err != nil && !absent(err) {
			return err
		}
	}
	if r.rebuilt {
		if err := r.copyAside(registryName(r.log.manifest.registry)); err != nil && !absent(err) {
			return err
		}
	}
	lines, err := r.unreachable()
	if err != nil || len(lines) == 0 {
		return err
	}
	return r.aside(r.asideName(), lines)
}

func (r *repairer) copyAside(name string) error {
	b, err := readFile(r.log.fs, name)
	if err != nil {
		return err
	}
	return r.aside(name+damagedSuffix, b)
}

// aside writes a file that is none of the store's, in place of one that a repair which
// was interrupted has left.
func (r *repairer) aside(name string, b []byte) error {
	if err := r.log.fs.Remove(name); err != nil && !absent(err) {
		return err
	}
	if err := writeFile(r.log.fs, name, b); err != nil {
		return err
	}
	r.note(eventstore.SeverityNote, eventstore.Finding{Check: "aside", Wanted: "nothing lost in silence", Found: name,
		Hint: "remove it when you do not need it any more"})
	return r.log.fs.SyncDir()
}

// unreachable returns, as lines of JSON, the sound entries that stand before a hole.
func (r *repairer) unreachable() (lines []byte, err error) {
	for _, p := range r.parts {
		f, err := p.use()
		if err != nil {
			return nil, err
		}
		for piece, err := range salvage(p.segment, f, p.size) {
			a, ok := piece.body.(appendBody)
			if err != nil {
				p.release()
				return nil, err
			}
			for i := 0; ok && i < len(a.batches); i++ {
				lines = r.unreachableOf(lines, &a.batches[i])
			}
		}
		p.release()
	}
	return lines, nil
}

func (r *repairer) unreachableOf(lines []byte, b *batch) []byte {
	before, ok := r.trimmedBefore[b.ordinal]
	if !ok {
		return lines
	}
	st := r.reg.at(b.ordinal)
	for j := range b.events {
		e := b.entry(j, b.events[j])
		if e.Seqno > st.head.Trimmed || e.Seqno <= before {
			continue
		}
		line, err := json.Marshal(e)
		if err != nil {
			continue // an entry is always JSON
		}
		lines = append(append(lines, line...), '\n')
	}
	return lines
}
