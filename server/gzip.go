// What a request unpacks to: bounded in size and in ratio, and counted against what all
// requests may have. Connect's own bound would read a bomb to its end.

package server

import (
	"compress/gzip"
	"fmt"
	"io"

	"connectrpc.com/connect"
)

// unzip is a gzip reader that ends early.
type unzip struct {
	s      *Server
	packed countingReader
	zip    gzip.Reader
	out    int64 // bytes given so far
	taken  int64 // of the budget
}

type countingReader struct {
	io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

func (s *Server) newUnzip() connect.Decompressor { return &unzip{s: s} }

// Reset begins anew.
func (u *unzip) Reset(from io.Reader) error {
	u.packed, u.out = countingReader{Reader: from}, 0
	return u.zip.Reset(&u.packed)
}

// Close gives back what was taken: from here on the decoded message is counted.
func (u *unzip) Close() error {
	u.s.budget.give(u.taken)
	u.taken = 0
	return u.zip.Close()
}

func (u *unzip) Read(p []byte) (int, error) {
	most := int64(u.s.limits.MessageBytes)
	n, err := u.zip.Read(p[:min(int64(len(p)), most-u.out+1)])
	u.out += int64(n)
	switch {
	case u.out > most:
		return 0, tooLarge(fmt.Sprintf("a message of at most %d bytes, unpacked", most), "more")
	case u.out > ratioFrom && u.out > u.packed.n*int64(u.s.limits.Ratio):
		return 0, tooLarge(fmt.Sprintf("a large message packed by at most %d to 1", u.s.limits.Ratio), "more")
	case !u.s.budget.take(int64(n)):
		return 0, u.s.budget.full()
	}
	u.taken += int64(n)
	return n, err
}

// newZip is for the speed of a local network: what is gained by more is time lost.
func newZip() connect.Compressor {
	w, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is one of those there are
	}
	return w
}
