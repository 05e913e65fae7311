// Reading streams: a page, a head, a load.
//
// A read takes what it needs of the registry and of the active segment's index under
// the lock, then looks into sealed segments and reads files without it. What a trim has
// removed meanwhile is looked at once more in the end: nobody sees a hole.

package filelog

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/vfs"
)

// Head returns the head of a stream.
func (l *Log) Head(ctx context.Context, s eventstore.Stream) (eventstore.Head, error) {
	if err := l.begin(ctx, "head", s); err != nil {
		return eventstore.Head{}, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, st, err := l.reg.find("head", s)
	return headOf(st), err
}

// begin is enter for a call that reads.
func (l *Log) begin(ctx context.Context, op string, s eventstore.Stream) error {
	if err := l.enter(ctx, op, s); err != nil {
		return err
	}
	if l.readOnly {
		return l.follower.follow(l)
	}
	return nil
}

// ReadFrom returns the entries of a stream after a seqno. Their data shares memory with
// what else was read at once, 256 KiB at most or one record: copy what is kept for long.
func (l *Log) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	if err := l.begin(ctx, "read", s); err != nil {
		return eventstore.Page{}, err
	}
	return l.page("read", s, after, limit)
}

func (l *Log) page(op string, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	for try := 0; ; try++ {
		v, err := l.viewStream(op, s, after, limit)
		if err != nil {
			return eventstore.Page{}, err
		}
		p, err := v.page(after, limit)
		if again, err := l.retry(err, try); !again {
			return p, err
		}
	}
}

// maxRereads bounds how often a read-only log begins a read anew while its owner goes on
// replacing what it was about to read.
const maxRereads = 1000

// retry says if a read is to be tried again, with a new view: it met a segment that was
// replaced. A log that was opened read-only looks for the files of its owner first.
func (l *Log) retry(err error, try int) (again bool, _ error) {
	switch {
	case !errors.Is(err, errGone):
		return false, err
	case !l.readOnly:
		return true, nil
	case try == maxRereads:
		return false, unavailable("read", "", err)
	}
	err = l.follower.follow(l)
	return err == nil, err
}

// ListTrimmed returns streams of which no entry is left, in the order of their ordinals.
func (l *Log) ListTrimmed(ctx context.Context, name eventstore.Category, slots []eventstore.Slot, after string, limit int) (p eventstore.TrimmedPage, err error) {
	const op = "list trimmed streams"
	if err := l.begin(ctx, op, ""); err != nil {
		return p, err
	}
	behind := uint64(0)
	if after != "" {
		if behind, err = strconv.ParseUint(after, 10, 32); err != nil {
			return p, &eventstore.Error{Kind: eventstore.ErrInvalid, Op: op, Category: name, Wanted: "Next of a page", Found: strconv.Quote(after)}
		}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.released {
		return p, closedError(op, "")
	}
	c, err := l.reg.category(op, name, "")
	if err != nil {
		return p, err
	}
	for _, st := range l.reg.ordinals[min(int(behind)+1, len(l.reg.ordinals)):] {
		if st == nil || st.category != c {
			continue
		}
		if limit--; limit < 0 {
			p.Next = strconv.FormatUint(behind, 10)
			return p, nil
		}
		behind = uint64(st.ordinal)
		if st.head.Trimmed > 0 && st.head.Trimmed == st.head.Last.Seqno && (len(slots) == 0 || slices.Contains(slots, st.slot)) {
			p.Streams = append(p.Streams, st.name)
		}
	}
	return p, nil
}

// streamView is what a read of a stream works on.
type streamView struct {
	log      *Log
	op       string
	name     eventstore.Stream
	stream   *stream // nil: none; only its fields that never change
	head     eventstore.Head
	snapshot *snapshotRef
	segments []*segment
	newest   []row // of the active segment
}

// viewStream takes what is needed under the lock.
func (l *Log) viewStream(op string, s eventstore.Stream, after eventstore.Seqno, limit int) (*streamView, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.released {
		return nil, closedError(op, s)
	}
	_, st, err := l.reg.find(op, s)
	if err != nil {
		return nil, err
	}
	v := &streamView{log: l, op: op, name: s, stream: st, head: headOf(st), segments: l.segments}
	if st == nil {
		return v, nil
	}
	v.snapshot = st.snapshot
	v.newest = l.active.rows(st.ordinal, after, max(limit, 0))
	return v, nil
}

// page reads entries behind a seqno.
func (v *streamView) page(after eventstore.Seqno, limit int) (eventstore.Page, error) {
	if after < v.head.Trimmed {
		return eventstore.Page{}, eventstore.TrimmedError(v.op, v.name, after+1, v.head)
	}
	if after >= v.head.Last.Seqno || limit <= 0 {
		return eventstore.Page{End: after >= v.head.Last.Seqno}, nil
	}
	r := streamReader{view: v, after: after, limit: limit, decoder: decoder{names: map[string]string{}}}
	if err := r.run(); err != nil {
		return eventstore.Page{}, unavailable(v.op, v.name, err)
	}
	if err := v.stillThere(); err != nil {
		return eventstore.Page{}, err
	}
	r.out.End = r.after == v.head.Last.Seqno
	return r.out, nil
}

// stillThere says errGone if something was trimmed since the view was taken: then it is
// taken anew, for nobody may see a hole, and a snapshot may have come with the trim.
func (v *streamView) stillThere() error {
	if v.stream == nil {
		return nil
	}
	v.log.mu.RLock()
	defer v.log.mu.RUnlock()
	if v.stream.head.Trimmed != v.head.Trimmed {
		return errGone
	}
	return nil
}

// streamReader gathers the entries of one stream behind a seqno.
type streamReader struct {
	view    *streamView
	after   eventstore.Seqno // last one gathered
	limit   int
	bytes   int
	out     eventstore.Page
	decoder decoder
}

func (r *streamReader) full() bool {
	return len(r.out.Entries) >= r.limit || r.bytes >= eventstore.MaxPageBytes || r.after >= r.view.head.Last.Seqno
}

func (r *streamReader) run() error {
	v := r.view
	sealed := v.segments[:len(v.segments)-1]
	if len(v.newest) > 0 && v.newest[0].first <= r.after+1 {
		sealed = nil // the active segment has it all
	}
	for _, s := range sealed {
		if err := r.segment(s, nil); err != nil {
			return err
		}
		if r.full() {
			return nil
		}
	}
	if err := r.segment(v.segments[len(v.segments)-1], v.newest); err != nil || r.full() {
		return err
	}
	return corrupt(v.op, "index", 0, 0, errMissing{v.name, r.after + 1})
}

// errMissing says that an entry that must be there was not found.
type errMissing struct {
	stream eventstore.Stream
	seqno  eventstore.Seqno
}

func (e errMissing) Error() string {
	return "no entry " + e.seqno.String() + " of " + string(e.stream) + " in any segment"
}

func (e errMissing) Unwrap() error { return errDamaged }

// segment gathers what stands in one segment; rows nil: as its index says.
func (r *streamReader) segment(s *segment, rows []row) error {
	f, err := s.use()
	if err != nil {
		return err
	}
	defer s.release()
	if rows == nil {
		if s.end == 0 {
			return nil
		}
		if rows, err = s.rows(f, r.view.stream.ordinal, r.after, r.limit-len(r.out.Entries)); err != nil {
			return err
		}
	}
	spans := make([]span, len(rows))
	for i, row := range rows {
		spans[i] = span{int64(row.offset), int64(row.size)}
	}
	reader := spanReader{segment: s, file: f, spans: spans}
	for _, row := range rows {
		if r.full() {
			return nil
		}
		_, b, err := reader.next()
		if err != nil {
			return err
		}
		if err := r.record(s, row, b); err != nil {
			return err
		}
	}
	return nil
}

// record gathers the entries of the stream from the body of a record.
func (r *streamReader) record(s *segment, row row, body []byte) error {
	d := &r.decoder
	d.b, d.err = body, nil
	for range d.count(40) {
		var b batch
		d.batchHead(&b)
		if b.ordinal != row.ordinal {
			for range b.count {
				d.skipEvent()
			}
			continue
		}
		for j := range b.count {
			n := b.first + eventstore.Seqno(j)
			if n <= r.after || r.full() {
				d.skipEvent()
				continue
			}
			if n != r.after+1 {
				return corrupt(r.view.op, s.name(), int64(row.offset), 0, errMissing{r.view.name, r.after + 1})
			}
			r.out.Entries = append(r.out.Entries, eventstore.Entry{})
			e := &r.out.Entries[len(r.out.Entries)-1]
			d.event(&e.Event)
			b.place(e, r.view.name, j)
			r.bytes += len(e.Data)
			r.after = n
		}
	}
	if err := d.end(); err != nil {
		return corrupt(r.view.op, s.name(), int64(row.offset), 0, err)
	}
	return nil
}

// rows is index.rows of a sealed segment in use.
func (s *segment) rows(f vfs.File, ordinal uint32, after eventstore.Seqno, limit int) (rows []row, err error) {
	x, err := s.lookup(f)
	if err != nil {
		return nil, err
	}
	defer catchFault(s, &err)()
	return x.rows(ordinal, after, limit), nil
}

// catchFault turns a page of a mapped index that cannot be read into an error.
func catchFault(s *segment, err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if v := recover(); v != nil {
			const firstPage = 4096 // a nil pointer is ours
			if fault, ok := v.(interface{ Addr() uintptr }); !ok || fault.Addr() < firstPage {
				panic(v)
			}
			*err = unavailable("read", "", errUnmapped{indexName(s.base, s.generation)})
		}
	}
}

type errUnmapped struct{ file string }

func (e errUnmapped) Error() string { return e.file + ": a page of it cannot be read" }

// Load returns head, usable snapshot and the entries behind it.
func (l *Log) Load(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error) {
	if err := l.begin(ctx, "load", s); err != nil {
		return eventstore.Loaded{}, err
	}
	for try := 0; ; try++ {
		out, err := l.load(s, fingerprint, limit)
		if again, err := l.retry(err, try); !again {
			return out, err
		}
	}
}

func (l *Log) load(s eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error) {
	v, err := l.viewStream("load", s, 0, 0)
	if err != nil {
		return eventstore.Loaded{}, err
	}
	out := eventstore.Loaded{Head: v.head, Incarnation: l.incarnation}
	after := eventstore.Seqno(0)
	if v.snapshot != nil && fingerprint != "" {
		sn, skipped, err := v.usable(fingerprint)
		if err != nil {
			return eventstore.Loaded{}, err
		}
		if out.Skipped = skipped; skipped == "" {
			out.Snapshot, after = sn, sn.At.Seqno
		}
	}
	l.mu.RLock()
	if v.stream != nil {
		v.newest = l.active.rows(v.stream.ordinal, after, max(limit, 0))
	}
	v.segments = l.segments
	l.mu.RUnlock()
	p, err := v.page(after, limit)
	out.Entries, out.End = p.Entries, p.End
	return out, err
}

// usable reads the snapshot and says why it cannot be used.
func (v *streamView) usable(fingerprint string) (*eventstore.Snapshot, string, error) {
	sn, err := v.readSnapshot()
	if errors.Is(err, eventstore.ErrCorrupt) {
		return nil, "it is damaged: " + err.Error(), nil
	}
	if err != nil {
		return nil, "", err
	}
	at, err := v.log.idAt(v.op, v.name, sn.At.Seqno)
	if err != nil {
		return nil, "", err
	}
	return sn, sn.Usable(fingerprint, v.head, at), v.stillThere()
}

// readSnapshot reads the kept snapshot.
func (v *streamView) readSnapshot() (*eventstore.Snapshot, error) {
	s := segmentAt(v.segments, v.snapshot.position)
	if s == nil {
		return nil, corrupt(v.op, "index", 0, v.snapshot.position, errDamaged)
	}
	f, err := s.use()
	if err != nil {
		return nil, err
	}
	defer s.release()
	p, err := v.log.places(s, f, allSnapshots, v.snapshot.position-1, 1)
	if err != nil {
		return nil, err
	}
	if len(p) == 0 || p[0].position != v.snapshot.position {
		return nil, corrupt(v.op, s.name(), 0, v.snapshot.position, errDamaged)
	}
	h, b, err := s.read(f, p[0].offset, p[0].size)
	if err != nil {
		return nil, err
	}
	content, err := decodeBody(h.kind, b)
	if sn, ok := content.(snapshotBody); err == nil && ok && sn.ordinal == v.stream.ordinal {
		return &sn.snapshot, nil
	}
	return nil, corrupt(v.op, s.name(), int64(p[0].offset), v.snapshot.position, errMalformed)
}

// segmentAt returns the segment that may hold a position.
func segmentAt(segments []*segment, position uint64) *segment {
	for i := len(segments) - 1; i >= 0; i-- {
		if segments[i].base <= position {
			return segments[i]
		}
	}
	return nil
}

// places is index.places of a segment in use.
func (l *Log) places(s *segment, f vfs.File, category uint32, after uint64, limit int) (all []place, err error) {
	l.mu.RLock()
	if s == l.activeSegment() {
		all = l.active.places(category, after, limit)
		l.mu.RUnlock()
		return all, nil
	}
	l.mu.RUnlock()
	x, err := s.lookup(f)
	if err != nil {
		return nil, err
	}
	defer catchFault(s, &err)()
	return x.places(category, after, limit), nil
}

// idAt returns the ID of an entry, zero if it is not there.
func (l *Log) idAt(op string, s eventstore.Stream, n eventstore.Seqno) (eventstore.UUID, error) {
	if n == 0 {
		return eventstore.UUID{}, nil
	}
	p, err := l.page(op, s, n-1, 1)
	switch {
	case errors.Is(err, eventstore.ErrTrimmed):
		return eventstore.UUID{}, nil
	case err != nil || len(p.Entries) == 0:
		return eventstore.UUID{}, err
	}
	return p.Entries[0].ID, nil
}
