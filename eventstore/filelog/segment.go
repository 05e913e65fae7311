// Segments: the files that records stand in, opened when they are read and closed when
// too many are open.

package filelog

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/wattle-es/wattle/internal/vfs"
)

// segmentName returns the name of a segment's file: base and generation, so that names
// sort as positions do.
func segmentName(base uint64, generation uint32) string {
	return fmt.Sprintf("%019d.%d.log", base, generation)
}

func indexName(base uint64, generation uint32) string {
	return fmt.Sprintf("%019d.%d.idx", base, generation)
}

// segment is one segment. Base, generation and salt do not change; those of a rewritten
// one are another segment's.
type segment struct {
	header
	files *files
	size  int64  // bytes of valid records, the head included; of the active one under the log's lock
	end   uint64 // last position of its records; 0 while it is active
	live  int64  // bytes of records that can still be read, about; the reclaimer's

	mu      sync.Mutex
	uses    int      // reads under way
	file    vfs.File // nil: not open
	mapping vfs.Mapping
	index   index // nil: not looked at yet
	gone    bool  // replaced or deleted: closed with the last use
}

func (s *segment) name() string { return segmentName(s.base, s.generation) }

// errGone says that a segment was replaced while somebody was about to read it.
var errGone = errors.New("segment replaced")

// use makes sure that the segment's file stays open until release. errGone if the
// segment has been replaced.
func (s *segment) use() (vfs.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return nil, errGone
	}
	if s.file == nil {
		f, err := s.files.fs.Open(s.name())
		if absent(err) && s.files.follows {
			return nil, fmt.Errorf("%w, or lost: %w", errGone, err) // a read looks again, a tool looks at the manifest
		}
		if err != nil {
			return nil, unavailable("read", "", err)
		}
		s.file = f
		s.files.opened(s)
	}
	s.uses++
	return s.file, nil
}

func (s *segment) release() {
	s.mu.Lock()
	s.uses--
	if s.gone && s.uses == 0 {
		s.close()
	}
	s.mu.Unlock()
	s.files.trim()
}

// retire marks the segment as replaced. Its files may be removed from the directory;
// reads under way end in peace.
func (s *segment) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	if s.uses == 0 {
		s.close()
	}
}

// close closes what is open. The caller holds s.mu.
func (s *segment) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
		s.files.closed(s)
	}
	if s.mapping != nil {
		s.mapping.Close()
		s.mapping, s.index = nil, nil
	}
}

// files bounds how many segment files are open.
type files struct {
	fs      vfs.FS
	max     int
	follows bool // somebody else owns them, and may remove some

	mu   sync.Mutex
	open map[*segment]bool
}

func (f *files) opened(s *segment) {
	f.mu.Lock()
	f.open[s] = true
	f.mu.Unlock()
}

func (f *files) closed(s *segment) {
	f.mu.Lock()
	delete(f.open, s)
	f.mu.Unlock()
}

// trim closes files that nobody uses until there are few enough, any of them: which was
// used last is not worth a lock around every read.
func (f *files) trim() {
	f.mu.Lock()
	var idle []*segment
	if len(f.open) > f.max {
		for s := range f.open {
			if idle = append(idle, s); len(idle) == f.max/4+1 {
				break
			}
		}
	}
	f.mu.Unlock()
	for _, s := range idle {
		s.mu.Lock()
		if s.uses == 0 && s.file != nil && s.end > 0 {
			s.file.Close()
			s.file = nil
			f.closed(s)
		}
		s.mu.Unlock()
	}
}

// read returns the body of a record at an offset, checked.
func (s *segment) read(f vfs.File, offset, size uint32) (recordHead, []byte, error) {
	b := make([]byte, size)
	if _, err := f.ReadAt(b, int64(offset)); err != nil {
		return recordHead{}, nil, s.readError(err, int64(offset))
	}
	h, body, err := parseRecord(b, int64(offset), s.salt)
	if err != nil {
		return h, nil, corrupt("read", s.name(), int64(offset), 0, err)
	}
	return h, body, nil
}

// readError is the error of a read that failed: what is not there was cut off, anything
// else says nothing about the data.
func (s *segment) readError(err error, offset int64) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return corrupt("read", s.name(), offset, 0, fmt.Errorf("%w: the file ends before the record", errDamaged))
	}
	return unavailable("read", "", fmt.Errorf("%s at byte %d: %w", s.name(), offset, err))
}

// scanChunk is how much a scan reads at once.
const scanChunk = 1 << 20

// scan calls f for every record from an offset on, in order, until the segment's size
// is reached. Bodies are valid during the call only.
func (s *segment) scan(file vfs.File, from, to int64, f func(h recordHead, body []byte, offset int64) error) error {
	r := scanner{segment: s, file: file, to: to}
	for at := from; at < to; {
		h, b, err := r.record(at)
		if err != nil {
			return err
		}
		if err := f(h, b, at); err != nil {
			return err
		}
		at += h.size()
	}
	return nil
}

// scanner reads records one behind the other, in large pieces.
type scanner struct {
	*segment
	file vfs.File
	to   int64
	b    []byte // of the file, from at on
	at   int64
}

// record returns the record at an offset.
func (r *scanner) record(offset int64) (recordHead, []byte, error) {
	b, err := r.bytes(offset, recordHeader)
	if err != nil {
		return recordHead{}, nil, err
	}
	if len(b) == recordHeader { // less where the file ends
		if h := decodeHead(b); h.plausible(r.salt) && h.size() <= r.to-offset {
			if b, err = r.bytes(offset, h.size()); err != nil {
				return h, nil, err
			}
		}
	}
	h, body, err := parseRecord(b, offset, r.salt)
	if err != nil {
		return h, nil, corrupt("read", r.name(), offset, 0, err)
	}
	return h, body, nil
}

// bytes returns n bytes at an offset, less only where the scan ends.
func (r *scanner) bytes(offset, n int64) ([]byte, error) {
	n = min(n, r.to-offset)
	if offset >= r.at && offset+n <= r.at+int64(len(r.b)) {
		return r.b[offset-r.at : offset-r.at+n], nil
	}
	size := min(max(n, scanChunk), r.to-offset)
	if int64(cap(r.b)) < size {
		r.b = make([]byte, size)
	}
	r.b, r.at = r.b[:size], offset
	if k, err := r.file.ReadAt(r.b, offset); int64(k) < n {
		r.b = r.b[:0]
		return nil, r.readError(err, offset+int64(k))
	} else {
		r.b = r.b[:k]
	}
	return r.b[:n], nil
}

// lookup returns the index of a segment that is in use. One that has none, or a
// damaged one, or another segment's, gets a new one from its records.
func (s *segment) lookup(file vfs.File) (index, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index != nil {
		return s.index, nil
	}
	mapping, x, err := s.files.openIndex(s)
	if err == nil {
		s.mapping, s.index = mapping, x
		return x, nil
	}
	made, err := s.makeIndex(file)
	if err != nil {
		return nil, err
	}
	s.index = made
	return made, nil
}

// makeIndex reads the whole segment and returns its index.
func (s *segment) makeIndex(file vfs.File) (*memIndex, error) {
	x := newMemIndex()
	err := s.scan(file, segmentHeader, s.size, func(h recordHead, b []byte, offset int64) error {
		body, err := decodeBody(h.kind, b)
		if err != nil {
			return corrupt("read", s.name(), offset, h.position, err)
		}
		x.add(body, h.position, offset, h.size())
		return nil
	})
	return x, err
}

// openIndex maps the index file of a segment, or reads it where that is not possible,
// and checks it once from end to end.
func (f *files) openIndex(s *segment) (vfs.Mapping, index, error) {
	file, err := f.fs.Open(indexName(s.base, s.generation))
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, nil, err
	}
	b := make([]byte, size)
	if _, err := file.ReadAt(b, 0); err != nil && size > 0 {
		return nil, nil, err
	}
	x, err := decodeIndex(b, s.header, s.size)
	if err != nil {
		return nil, nil, err
	}
	mapping, err := file.Map(size)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, x, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return mapping, x.in(mapping.Bytes()), nil
}
