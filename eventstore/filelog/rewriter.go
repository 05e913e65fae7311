// Rewriting segments: what is live goes into a new file.

package filelog

import (
	"context"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/vfs"
)

// rewriter writes one new segment.
type rewriter struct {
	log    *Log
	header header
	index  *memIndex
	file   vfs.File
	b      []byte // not yet written
	size   int64  // of the file, with what is not yet written
}

func (r *rewriter) name() string { return segmentName(r.header.base, r.header.generation) }

// write copies what is live of some segments. It makes no file if nothing is.
func (r *rewriter) write(ctx context.Context, run []*segment) (kept bool, err error) {
	for _, s := range run {
		if err := r.copy(ctx, s); err != nil {
			return false, err
		}
	}
	return r.finish()
}

// finish makes the file durable. There is none if nothing was added.
func (r *rewriter) finish() (kept bool, err error) {
	if r.size == 0 {
		return false, nil
	}
	if err := r.flush(); err != nil {
		return false, err
	}
	if err := r.file.Sync(); err != nil {
		return false, err
	}
	err = r.file.Close()
	r.file = nil
	if err == nil {
		err = r.log.fs.SyncDir()
	}
	return true, err
}

func (r *rewriter) copy(ctx context.Context, s *segment) error {
	f, err := s.use()
	if err != nil {
		return err
	}
	defer s.release()
	return s.scan(f, segmentHeader, s.size, func(h recordHead, b []byte, offset int64) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		body, err := r.log.liveBody(h, b)
		if err != nil {
			return corrupt("reclaim", s.name(), offset, h.position, err)
		}
		if body == nil {
			return nil
		}
		return r.add(h, body)
	})
}

// liveBody returns what of a record can still be read, nil for nothing.
func (l *Log) liveBody(h recordHead, b []byte) (body, error) {
	if h.kind != kindAppend && h.kind != kindSnapshot {
		return nil, nil
	}
	content, err := decodeBody(h.kind, b)
	if err != nil {
		return nil, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if h.kind == kindSnapshot {
		if !l.reg.snapshots[h.position] {
			return nil, nil
		}
		return content, nil
	}
	a := content.(appendBody)
	a.batches = slices.DeleteFunc(a.batches, func(b batch) bool { return l.reg.at(b.ordinal) == nil })
	for i := range a.batches {
		a.batches[i].trim(l.reg.at(a.batches[i].ordinal).head.Trimmed)
	}
	a.batches = slices.DeleteFunc(a.batches, func(b batch) bool { return b.count == 0 })
	if len(a.batches) == 0 {
		return nil, nil
	}
	return a, nil
}

// trim removes the first events of a batch, through a seqno.
func (b *batch) trim(through eventstore.Seqno) {
	if through < b.first {
		return
	}
	n := int(min(through-b.first+1, eventstore.Seqno(b.count)))
	b.events = b.events[n:]
	b.count -= n
	b.first += eventstore.Seqno(n)
	if b.position > 0 {
		b.position += eventstore.Position(n)
	}
}

// add writes a record, under the position it had.
func (r *rewriter) add(h recordHead, content body) error {
	if r.file == nil {
		if err := r.create(); err != nil {
			return err
		}
	}
	e := encoder{make([]byte, recordHeader)}
	content.encode(&e)
	record := seal(e.b, recordHead{salt: r.header.salt, kind: h.kind, position: h.position, synced: segmentHeader}, r.size)
	r.index.add(content, h.position, r.size, int64(len(record)))
	r.b = append(r.b, record...)
	r.size += int64(len(record))
	if len(r.b) < scanChunk {
		return nil
	}
	return r.flush()
}

func (r *rewriter) create() error {
	// A file of that name is of an attempt that failed, or whose manifest did.
	if err := r.log.fs.Remove(r.name()); err != nil && !absent(err) {
		return err
	}
	f, err := r.log.fs.Create(r.name())
	if err != nil {
		return err
	}
	r.file, r.b, r.size = f, r.header.encode(), segmentHeader
	return nil
}

func (r *rewriter) flush() error {
	_, err := r.file.WriteAt(r.b, r.size-int64(len(r.b)))
	r.b = r.b[:0]
	return err
}

// discard removes the file: the manifest does not name it.
func (r *rewriter) discard() {
	if r.file != nil {
		r.file.Close()
	}
	r.log.fs.Remove(r.name())
}
