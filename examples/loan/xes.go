// Reading an XES log as a stream: one case in memory, every fault with its line.

package loan

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"
)

// Case is one loan application of a log, its events in the order of the file.
type Case struct {
	Key             string    // the trace's concept:name
	RegDate         time.Time // the trace's REG_DATE in UTC; zero when it has none
	AmountRequested int64     // the trace's AMOUNT_REQ, whole euros
	Customer        string    // the trace's customer; empty when it has none, as in the real log
	Events          []CaseEvent
}

// CaseEvent is one event of a case.
type CaseEvent struct {
	Name       string    // concept:name, required
	Transition string    // lifecycle:transition, "" when the file has none
	Resource   string    // org:resource, "" when the file has none
	Time       time.Time // time:timestamp in UTC, required
	Line       int       // line of the event's tag in the uncompressed file, from 1; 0 when not from a file
}

// ErrXES is what errors.Is finds in every *XESError.
var ErrXES = errors.New("loan: damaged XES log")

// XESError says where a log is not what it should be.
type XESError struct {
	Line   int // in the uncompressed file, from 1
	Wanted string
	Found  string
	Err    error // the cause, where another package found the fault; else nil
}

func (e *XESError) Error() string {
	return fmt.Sprintf("loan: XES log, line %d: wanted %s, found %s; the cases before it are read, repair the file and read it again",
		e.Line, e.Wanted, e.Found)
}

// Unwrap is the cause.
func (e *XESError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrXES) true.
func (e *XESError) Is(target error) bool { return target == ErrXES }

// ReadXES reads the cases of an XES log, plain or gzip (told by the first bytes),
// in the order of the file. It holds one case in memory and reads on only when
// the loop body asks for the next. The first fault ends the sequence with an
// *XESError and no case; every whole case before it has been yielded. The last
// case is followed by a check that the file is whole to its last byte.
// The loop body may keep the cases. The sequence can be used once.
func ReadXES(r io.Reader) iter.Seq2[Case, error] {
	return func(yield func(Case, error) bool) {
		x, err := newXESReader(r)
		for err == nil {
			var c Case
			if c, err = x.next(); err == nil && !yield(c, nil) {
				return
			}
		}
		if err != io.EOF {
			yield(Case{}, x.fault(err))
		}
	}
}

// xesReader is the position in one log.
type xesReader struct {
	src    *tokenSource
	dec    *xml.Decoder
	depth  int // open elements
	line   int // where the last token began
	rooted bool
}

func newXESReader(r io.Reader) (*xesReader, error) {
	x := &xesReader{line: 1}
	br := bufio.NewReaderSize(r, 64<<10)
	if magic, _ := br.Peek(2); string(magic) == "\x1f\x8b" {
		unzipped, err := gzip.NewReader(br)
		if err != nil {
			return x, err
		}
		br = bufio.NewReaderSize(unzipped, 64<<10)
	}
	if bom, _ := br.Peek(3); string(bom) == "\ufeff" {
		_, _ = br.Discard(3)
	}
	x.src = &tokenSource{Reader: br}
	x.dec = xml.NewDecoder(x.src)
	return x, nil
}

// next is the next case, or io.EOF after the end of a whole log.
func (x *xesReader) next() (Case, error) {
	for {
		t, err := x.token()
		if err == io.EOF && !x.rooted {
			return Case{}, x.wrong("an XES log with the element <log>", "the end of the file")
		}
		if err != nil {
			return Case{}, err
		}
		start, ok := t.(xml.StartElement)
		if !ok {
			continue
		}
		switch name := start.Name.Local; {
		case x.depth == 1 && (x.rooted || name != "log"):
			return Case{}, x.wrong("one element <log> and nothing else", quote("<"+name+">"))
		case x.depth == 1:
			x.rooted = true
		case name == "trace":
			return x.readTrace()
		default:
			if err := x.skip(); err != nil {
				return Case{}, err
			}
		}
	}
}

// token is the next token. It counts depth and remembers the line the token began on.
func (x *xesReader) token() (xml.Token, error) {
	x.line, _ = x.dec.InputPos()
	x.src.left = MaxTokenBytes
	t, err := x.dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case xml.StartElement:
		x.depth++
	case xml.EndElement:
		x.depth--
	case xml.CharData:
		if text := bytes.TrimSpace(t); x.depth == 0 && len(text) > 0 {
			return nil, x.wrong("no text outside the element <log>", quote(string(text)))
		}
	}
	if x.depth > MaxDepth {
		return nil, x.wrong(fmt.Sprintf("elements at most %d deep", MaxDepth), "more")
	}
	return t, nil
}

// skip reads to the end of the element just opened.
func (x *xesReader) skip() error {
	for outside := x.depth - 1; x.depth > outside; {
		if _, err := x.token(); err != nil {
			return err
		}
	}
	return nil
}

// children calls child for every element directly inside the one just opened,
// with the line it began on, and reads to its end. child may read the element
// itself.
func (x *xesReader) children(child func(xml.StartElement) error) error {
	inside := x.depth
	for {
		t, err := x.token()
		if err != nil {
			return err
		}
		if x.depth < inside {
			return nil
		}
		start, ok := t.(xml.StartElement)
		if !ok {
			continue
		}
		if err := child(start); err != nil {
			return err
		}
		if x.depth > inside {
			if err := x.skip(); err != nil {
				return err
			}
		}
	}
}

func (x *xesReader) readTrace() (Case, error) {
	var c Case
	line := x.line
	seen := fields{}
	err := x.children(func(start xml.StartElement) error {
		if start.Name.Local != "event" {
			return x.traceAttribute(&c, seen, start)
		}
		if len(c.Events) == MaxEventsPerCase {
			return x.wrong(fmt.Sprintf("at most %d events in a case", MaxEventsPerCase), "more")
		}
		e, err := x.readEvent()
		c.Events = append(c.Events, e)
		return err
	})
	if err != nil {
		return Case{}, err
	}
	return c, seen.require(line, "trace", keyName, keyAmount)
}

func (x *xesReader) readEvent() (CaseEvent, error) {
	e := CaseEvent{Line: x.line}
	seen := fields{}
	err := x.children(func(start xml.StartElement) error { return x.eventAttribute(&e, seen, start) })
	if err != nil {
		return CaseEvent{}, err
	}
	return e, seen.require(e.Line, "event", keyName, keyTime)
}

// The attributes a log is read for.
const (
	keyName       = "concept:name"
	keyAmount     = "AMOUNT_REQ"
	keyRegDate    = "REG_DATE"
	keyCustomer   = "customer" // ours
	keyTime       = "time:timestamp"
	keyTransition = "lifecycle:transition"
	keyResource   = "org:resource"
)

func (x *xesReader) traceAttribute(c *Case, seen fields, start xml.StartElement) (err error) {
	key, value := attribute(start)
	switch key {
	case keyName:
		c.Key, err = x.text(key, value)
	case keyAmount:
		c.AmountRequested, err = x.amount(value)
	case keyRegDate:
		c.RegDate, err = x.time(key, value)
	case keyCustomer:
		c.Customer, err = x.text(key, value)
	default:
		return nil
	}
	return cmp.Or(seen.mark(x.line, key), err)
}

func (x *xesReader) eventAttribute(e *CaseEvent, seen fields, start xml.StartElement) (err error) {
	key, value := attribute(start)
	switch key {
	case keyName:
		e.Name, err = x.text(key, value)
	case keyTransition:
		e.Transition, err = x.text(key, value)
	case keyResource:
		e.Resource, err = x.text(key, value)
	case keyTime:
		e.Time, err = x.time(key, value)
	default:
		return nil
	}
	return cmp.Or(seen.mark(x.line, key), err)
}

// text is a value that is kept, within its bound.
func (x *xesReader) text(key, value string) (string, error) {
	if len(value) > MaxValueBytes {
		return "", x.wrong(fmt.Sprintf("a value of %s within %d bytes", key, MaxValueBytes), quote(value))
	}
	if value == "" && key == keyName {
		return "", x.wrong("a value of "+key, "an empty one")
	}
	return value, nil
}

// time takes only times with a zone: without one an instant would be a guess.
func (x *xesReader) time(key, value string) (time.Time, error) {
	t, err := time.ParseInLocation(time.RFC3339, value, time.UTC)
	t = t.UTC()
	if err != nil || !inYears(t) {
		return time.Time{}, x.wrong("a time of "+key+" like 2011-10-01T00:38:44.546+02:00", quote(value))
	}
	return t, nil
}

// amount takes whole euros; other logs of the same process write them as 5000.0.
func (x *xesReader) amount(value string) (int64, error) {
	whole, fraction, _ := strings.Cut(value, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || strings.Trim(fraction, "0") != "" {
		return 0, x.wrong("a whole number of euros in "+keyAmount, quote(value))
	}
	return n, nil
}

func attribute(start xml.StartElement) (key, value string) {
	for _, a := range start.Attr {
		switch a.Name.Local {
		case "key":
			key = a.Value
		case "value":
			value = a.Value
		}
	}
	return key, value
}

func (x *xesReader) wrong(wanted, found string) error {
	return &XESError{Line: x.line, Wanted: wanted, Found: found}
}
