// Bounds on what is read. Connect has its own, which say no more than that a resource was
// exhausted and read on to the end; these end sooner and say what was too large.

package connectcarrier

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/handler"
)

const (
	// wallBytes is what a message may claim to have before Connect itself refuses it.
	wallBytes = 64 << 20
	// frameBytes is what the protocols put around a message, and more.
	frameBytes = 1 << 10
	// compressBytes is the size from which on messages are compressed.
	compressBytes = 1 << 10
)

// tooLarge is the error of who has read more than he may.
func tooLarge(what string, most int) error {
	return detailed(connect.CodeResourceExhausted, &handler.Failure{Code: handler.CodeTooLarge,
		Message: fmt.Sprintf("wanted a %s of at most %d bytes, found more", what, most)})
}

// body is that of an HTTP request, which must come in time.
type body struct {
	io.ReadCloser
	left    int // bytes
	most    int
	control *http.ResponseController
}

func bounded(w http.ResponseWriter, r *http.Request, most int, timeout time.Duration) *body {
	b := &body{ReadCloser: r.Body, left: most + frameBytes, most: most, control: http.NewResponseController(w)}
	_ = b.control.SetReadDeadline(time.Now().Add(timeout)) // not every server can; all have timeouts of their own
	return b
}

// Read ends the deadline of reading with the body: who calls then waits for the reply.
func (b *body) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, tooLarge("request", b.most)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return n, tooLarge("request", b.most)
	}
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// unzip is a gzip reader that gives at most so many bytes.
type unzip struct {
	gzip.Reader
	what string
	most int
	left int
}

func newUnzip(what string, most int) func() connect.Decompressor {
	return func() connect.Decompressor { return &unzip{what: what, most: most} }
}

// Reset begins anew.
func (u *unzip) Reset(from io.Reader) error {
	u.left = u.most
	return u.Reader.Reset(from)
}

func (u *unzip) Read(p []byte) (int, error) {
	if u.left < 0 {
		return 0, tooLarge(u.what, u.most)
	}
	n, err := u.Reader.Read(p[:min(len(p), u.left+1)])
	if u.left -= n; u.left < 0 {
		return n, tooLarge(u.what, u.most)
	}
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
