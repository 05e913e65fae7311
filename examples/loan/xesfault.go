// What can be wrong with a log, told in its words: required attributes, bounded
// tokens, broken XML and broken gzip.

package loan

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
)

// fields are the attributes of one element seen so far.
type fields map[string]bool

// mark refuses a second attribute of one key: which of the two holds is a guess.
func (f fields) mark(line int, key string) error {
	if f[key] {
		return &XESError{Line: line, Wanted: "one attribute " + key, Found: "a second one"}
	}
	f[key] = true
	return nil
}

func (f fields) require(line int, element string, keys ...string) error {
	for _, key := range keys {
		if !f[key] {
			return &XESError{Line: line, Wanted: "an attribute " + key + " in the " + element, Found: "none"}
		}
	}
	return nil
}

// errTokenTooLarge is seen by xesReader.fault only.
var errTokenTooLarge = errors.New("token too large")

// tokenSource feeds the XML decoder byte by byte and stops it within a token
// that is too large: the decoder itself would buffer any size. Its Read is there
// because xml.NewDecoder asks for an io.Reader, which then reads by ReadByte.
type tokenSource struct {
	*bufio.Reader
	left int // bytes the current token may still take
}

func (s *tokenSource) ReadByte() (byte, error) {
	if s.left == 0 {
		return 0, errTokenTooLarge
	}
	s.left--
	return s.Reader.ReadByte()
}

// fault makes every error of reading an *XESError.
func (x *xesReader) fault(err error) *XESError {
	if known, ok := errors.AsType[*XESError](err); ok {
		return known
	}
	if syntax, ok := errors.AsType[*xml.SyntaxError](err); ok {
		return &XESError{Line: syntax.Line, Wanted: "well-formed XML to the end of <log>", Found: syntax.Msg, Err: err}
	}
	if x.dec != nil {
		x.line, _ = x.dec.InputPos()
	}
	wanted := "a readable file"
	switch {
	case err == errTokenTooLarge:
		return &XESError{Line: x.line, Wanted: fmt.Sprintf("an XML token within %d bytes", MaxTokenBytes), Found: "a larger one"}
	case isGzip(err):
		wanted = "whole gzip data"
	}
	return &XESError{Line: x.line, Wanted: wanted, Found: err.Error(), Err: err}
}

func isGzip(err error) bool {
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	return corrupt || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF)
}
