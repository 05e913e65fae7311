// Compressed bodies, and how far they are let grow.

package httpcarrier

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
)

var writers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level is one there is
	return w
}}

var readers = sync.Pool{New: func() any { return new(gzip.Reader) }}

// compress returns data compressed.
func compress(data []byte) []byte {
	w := writers.Get().(*gzip.Writer)
	defer writers.Put(w)
	var b bytes.Buffer
	w.Reset(&b)
	_, _ = w.Write(data) // a Buffer takes all
	_ = w.Close()
	return b.Bytes()
}

// sizeError is a body over a limit.
type sizeError struct {
	wanted, found string
}

// errBomb is gzip that grows more than honest bodies do: how long it is nobody knows.
var errBomb = errors.New("gzip that grows too much")

func (e *sizeError) Error() string { return "wanted " + e.wanted + ", found " + e.found }

// Unwrap makes it eventstore.ErrTooLarge.
func (e *sizeError) Unwrap() error { return eventstore.ErrTooLarge }

// inflate returns what was compressed, at most so many bytes of it.
func inflate(data []byte, most int) ([]byte, error) {
	limit := min(most, max(len(data)*MaxGzipRatio, gzipFloor))
	r := readers.Get().(*gzip.Reader)
	defer readers.Put(r)
	if err := r.Reset(bytes.NewReader(data)); err != nil {
		return nil, unexpected(err)
	}
	out, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, unexpected(err)
	}
	switch {
	case len(out) <= limit:
		return out, nil
	case limit < most:
		return nil, fmt.Errorf("%w: wanted a body that grows at most %d times, found more", errBomb, MaxGzipRatio)
	}
	return nil, &sizeError{fmt.Sprintf("at most %d bytes", most), "more behind gzip"}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("gzip: %w", err)
}

// acceptsGzip reads an Accept-Encoding.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, parameters, _ := strings.Cut(part, ";")
		if c := strings.TrimSpace(coding); !strings.EqualFold(c, "gzip") && c != "*" {
			continue
		}
		q, given := strings.CutPrefix(strings.ReplaceAll(parameters, " ", ""), "q=")
		weight, err := strconv.ParseFloat(q, 64)
		return !given || err == nil && weight > 0
	}
	return false
}
