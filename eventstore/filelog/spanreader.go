// Reading records that an index names, those that stand close together at once.

package filelog

import "github.com/wattle-es/wattle/internal/vfs"

// How much is read at once, and how much between two records is read and thrown away
// rather than read around.
const (
	maxRead = 256 << 10
	maxSkip = 8 << 10
)

// span is where a record stands.
type span struct{ offset, size int64 }

// spanReader reads records one behind the other. The bodies it returns stay valid.
type spanReader struct {
	*segment
	file  vfs.File
	spans []span // those to come
	b     []byte // of the file, from at on
	at    int64
}

// next returns the next record.
func (r *spanReader) next() (recordHead, []byte, error) {
	s := r.spans[0]
	if s.offset < r.at || s.offset+s.size > r.at+int64(len(r.b)) {
		if err := r.fill(); err != nil {
			return recordHead{}, nil, err
		}
	}
	r.spans = r.spans[1:]
	h, body, err := parseRecord(r.b[s.offset-r.at:s.offset-r.at+s.size], s.offset, r.salt)
	if err != nil {
		return h, nil, corrupt("read", r.name(), s.offset, 0, err)
	}
	return h, body, nil
}

// fill reads the next record, and those behind it that stand close.
func (r *spanReader) fill() error {
	first := r.spans[0]
	end := first.offset + first.size
	for _, s := range r.spans[1:] {
		if s.offset-end > maxSkip || s.offset+s.size-first.offset > maxRead {
			break
		}
		end = s.offset + s.size
	}
	r.b, r.at = make([]byte, end-first.offset), first.offset // entries share it: it is not used again
	if n, err := r.file.ReadAt(r.b, r.at); n < len(r.b) {
		return r.readError(err, r.at+int64(n))
	}
	return nil
}
