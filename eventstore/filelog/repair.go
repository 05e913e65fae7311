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
	"errors"
	"fmt"
	"strconv"

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
