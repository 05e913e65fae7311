// A scanner for the contract's JSON: one pass, strict, and without encoding/json, which
// in a WebAssembly guest takes longer than everything else together. Values that belong
// to the domain are checked and passed on as the bytes they are.

package handler

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxFields bounds the fields of one object of the contract; none has as many.
const maxFields = 32

// scanner reads one JSON text. It gives parts of it, not copies, except where a string
// holds escapes.
type scanner struct {
	b     []byte
	i     int
	depth int
}

// syntax is the error of a text that is not what was wanted at the scanner's place.
func (s *scanner) syntax(wanted string) error {
	if s.i >= len(s.b) {
		return fmt.Errorf("JSON, byte %d: wanted %s, found the end", s.i, wanted)
	}
	return fmt.Errorf("JSON, byte %d: wanted %s, found %q", s.i, wanted, s.b[s.i])
}

// space passes over white space.
func (s *scanner) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\n' || s.b[s.i] == '\t' || s.b[s.i] == '\r') {
		s.i++
	}
}

// next passes over white space and returns the byte behind it, 0 at the end.
func (s *scanner) next() byte {
	s.space()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// expect takes one byte.
func (s *scanner) expect(c byte) error {
	if s.next() != c {
		return s.syntax(strconv.Quote(string(rune(c))))
	}
	s.i++
	return nil
}

// whole reads one value that is the whole text.
func (s *scanner) whole(value func() error) error {
	if err := value(); err != nil {
		return err
	}
	if s.space(); s.i < len(s.b) {
		return s.syntax("the end")
	}
	return nil
}

// members reads what stands between two brackets: values that member takes, with commas.
func (s *scanner) members(begin, end byte, member func() error) error {
	if err := s.expect(begin); err != nil {
		return err
	}
	if s.depth++; s.depth > MaxDepth {
		return fmt.Errorf("JSON, byte %d: wanted at most %d levels", s.i, MaxDepth)
	}
	defer func() { s.depth-- }()
	if s.next() == end {
		s.i++
		return nil
	}
	for {
		if err := member(); err != nil {
			return err
		}
		switch s.next() {
		case ',':
			s.i++
		case end:
			s.i++
			return nil
		default:
			return s.syntax(fmt.Sprintf("%q or %q", ',', end))
		}
	}
}

// fields reads an object of the contract: field takes the value of each name, which
// stands once.
func (s *scanner) fields(field func(name []byte) error) error {
	var seen [maxFields][]byte
	n := 0
	return s.object(func(name []byte) error {
		for _, other := range seen[:n] {
			if bytes.Equal(other, name) {
				return fmt.Errorf("the field %q stands twice", cut(string(name), MaxCodeBytes))
			}
		}
		if n == maxFields {
			return fmt.Errorf("wanted at most %d fields", maxFields)
		}
		seen[n], n = name, n+1
		err := field(name)
		if errors.Is(err, errNoField) {
			return fmt.Errorf("there is no field %q", cut(string(name), MaxCodeBytes))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}

// errNoField: an object of the contract has no such field.
var errNoField = errors.New("no such field")

// object reads any object.
func (s *scanner) object(field func(name []byte) error) error {
	return s.members('{', '}', func() error {
		name, err := s.textBytes()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return field(name)
	})
}

// list reads an array.
func (s *scanner) list(element func() error) error { return s.members('[', ']', element) }

// raw takes any value as its bytes.
func (s *scanner) raw() ([]byte, error) {
	s.space()
	from := s.i
	if err := s.skip(); err != nil {
		return nil, err
	}
	return s.b[from:s.i:s.i], nil
}

// skip passes over any value, checking it.
func (s *scanner) skip() error {
	switch c := s.next(); {
	case c == '{':
		return s.object(func([]byte) error { return s.skip() })
	case c == '[':
		return s.list(s.skip)
	case c == '"':
		_, _, err := s.quoted()
		return err
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	}
	return s.syntax("a value")
}

func (s *scanner) word(w string) error {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return s.syntax(w)
	}
	s.i += len(w)
	return nil
}

func (s *scanner) number() error {
	if s.b[s.i] == '-' {
		s.i++
	}
	switch {
	case s.i < len(s.b) && s.b[s.i] == '0':
		s.i++
	case s.digits() == 0:
		return s.syntax("a digit")
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if s.digits() == 0 {
			return s.syntax("a digit")
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if s.digits() == 0 {
			return s.syntax("a digit")
		}
	}
	return nil
}

// digits passes over digits and says how many there were.
func (s *scanner) digits() int {
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i - from
}

// quoted takes a string: what stands between its quotes, and if that holds escapes.
func (s *scanner) quoted() (inner []byte, escaped bool, err error) {
	if err := s.expect('"'); err != nil {
		return nil, false, err
	}
	from, ascii := s.i, true
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			inner = s.b[from:s.i:s.i]
			s.i++
			if !ascii && !utf8.Valid(inner) {
				s.i = from
				return nil, false, s.syntax("UTF-8")
			}
			return inner, escaped, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return nil, false, err
			}
			continue
		case c < ' ':
			return nil, false, s.syntax("no control character in a string")
		case c >= utf8.RuneSelf:
			ascii = false
		}
		s.i++
	}
	return nil, false, s.syntax("the end of a string")
}

// escape passes over one escape.
func (s *scanner) escape() error {
	s.i++
	if s.i >= len(s.b) {
		return s.syntax("an escape")
	}
	switch s.b[s.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i++
		return nil
	case 'u':
		if _, ok := hex4(s.b[s.i+1:]); ok {
			s.i += 5
			return nil
		}
	}
	return s.syntax("an escape")
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// textBytes takes a string's value.
func (s *scanner) textBytes() ([]byte, error) {
	inner, escaped, err := s.quoted()
	if err != nil || !escaped {
		return inner, err
	}
	return unescape(inner), nil
}

// text takes a string's value.
func (s *scanner) text() (string, error) {
	b, err := s.textBytes()
	return string(b), err
}

// unescape undoes escapes that are known to be right. Halves of a pair that stand alone
// become U+FFFD.
func unescape(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			out = append(out, b[i])
			continue
		}
		i++
		switch c := b[i]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, _ := hex4(b[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				low := rune(utf8.RuneError)
				if i+2 < len(b) && b[i+1] == '\\' && b[i+2] == 'u' {
					low, _ = hex4(b[i+3:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					i += 6
				}
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
	}
	return out
}

// count takes a whole number from 0 to the largest int32.
func (s *scanner) count() (int, error) {
	s.space()
	from := s.i
	if s.digits() == 0 || s.b[from] == '0' && s.i > from+1 {
		s.i = from
		return 0, s.syntax("a whole number")
	}
	n, err := strconv.ParseInt(string(s.b[from:s.i]), 10, 32)
	if err != nil || s.i < len(s.b) && (s.b[s.i] == '.' || s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i = from
		return 0, s.syntax("a whole number below 2147483648")
	}
	return int(n), nil
}

// truth takes true or false.
func (s *scanner) truth() (bool, error) {
	switch s.next() {
	case 't':
		return true, s.word("true")
	case 'f':
		return false, s.word("false")
	}
	return false, s.syntax("true or false")
}

// base64 takes a string of base64.
func (s *scanner) base64() ([]byte, error) {
	b, err := s.textBytes()
	if err != nil {
		return nil, err
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(len(b)))
	n, err := base64.StdEncoding.Strict().Decode(out, b)
	return out[:n], err
}

// isJSON says if b is one JSON value and nothing else, without space around it.
func isJSON(b []byte) bool {
	s := scanner{b: b}
	return len(b) > 0 && b[0] > ' ' && s.skip() == nil && s.i == len(b)
}
