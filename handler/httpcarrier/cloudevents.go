// CloudEvents 1.0.2: an event in HTTP's binary mode, and in JSON. Both codecs are strict:
// what the specification does not allow is refused, never mended.

package httpcarrier

import (
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Content types.
const (
	JSONType       = "application/json"
	StructuredType = "application/cloudevents+json"

	batchType   = "application/cloudevents-batch"
	eventsType  = "application/cloudevents"
	specVersion = "1.0"
	attrPrefix  = "Ce-" // in the canonical form of a header's name
)

// CloudEvent is one event. ID, Source and Type are required; Extensions have names of
// a-z and 0-9 that are no attribute's. Values are text, whatever their type: true, -3,
// 2026-11-30T12:00:00Z.
type CloudEvent struct {
	ID              string
	Source          string // URI reference
	Type            string
	Subject         string
	Time            time.Time
	DataContentType string // empty: application/json where it is JSON that carries the event
	DataSchema      string // URI
	Extensions      map[string]string
	Data            []byte // nil: none
}

// EventError says what no CloudEvent may be.
type EventError struct {
	Attribute string // or data, or the empty string for the event as a whole
	Wanted    string
	Found     string
}

// Error returns one line.
func (e *EventError) Error() string {
	what := ""
	if e.Attribute != "" {
		what = " " + e.Attribute
	}
	return fmt.Sprintf("CloudEvent%s: wanted %s, found %s", what, e.Wanted, e.Found)
}

// Check says what is wrong with an event, as an *EventError.
func (e *CloudEvent) Check() error {
	for _, a := range []struct {
		name, value string
		required    bool
	}{{"id", e.ID, true}, {"source", e.Source, true}, {"type", e.Type, true}, {"subject", e.Subject, false}, {"dataschema", e.DataSchema, false}, {"datacontenttype", e.DataContentType, false}} {
		if a.required && a.value == "" {
			return &EventError{a.name, "a text that is not empty", "none"}
		}
		if err := checkText(a.name, a.value); err != nil {
			return err
		}
	}
	if err := e.checkForms(); err != nil {
		return err
	}
	size := len(e.ID) + len(e.Source) + len(e.Type) + len(e.Subject) + len(e.DataSchema)
	for name, value := range e.Extensions {
		if err := checkName(name); err != nil {
			return err
		}
		if known(name) {
			return &EventError{name, "extensions whose names are no attribute's", "this one"}
		}
		if err := checkText(name, value); err != nil {
			return err
		}
		size += len(name) + len(value)
	}
	if len(e.Extensions) > MaxAttributes || size > MaxAttributeBytes {
		return &EventError{"", fmt.Sprintf("at most %d extensions and %d bytes of attributes", MaxAttributes, MaxAttributeBytes), fmt.Sprintf("%d and %d", len(e.Extensions), size)}
	}
	return nil
}

func (e *CloudEvent) checkForms() error {
	if _, err := url.Parse(e.Source); err != nil || strings.Contains(e.Source, " ") { // which Parse lets through
		return &EventError{"source", "a URI reference", short(e.Source)}
	}
	if e.DataSchema != "" {
		if u, err := url.Parse(e.DataSchema); err != nil || !u.IsAbs() {
			return &EventError{"dataschema", "a URI", short(e.DataSchema)}
		}
	}
	if e.DataContentType != "" {
		if _, _, err := mime.ParseMediaType(e.DataContentType); err != nil {
			return &EventError{"datacontenttype", "a media type", short(e.DataContentType)}
		}
	}
	return nil
}

// known says if a name is an attribute's of the specification, or taken otherwise.
func known(name string) bool {
	switch name {
	case "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data":
		return true
	}
	return false
}

func checkName(name string) error {
	ok := name != "" && strings.IndexFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }) < 0
	if !ok {
		return &EventError{short(name), "a name of the characters a-z and 0-9", "another"}
	}
	return nil
}

// checkText refuses what the type String may not hold.
func checkText(name, s string) error {
	if !utf8.ValidString(s) {
		return &EventError{name, "UTF-8", "other bytes"}
	}
	bad := strings.IndexFunc(s, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe
	})
	if bad >= 0 {
		return &EventError{name, "text without control characters", fmt.Sprintf("%q", s[bad:bad+1])}
	}
	return nil
}

func short(s string) string {
	if len(s) > 100 {
		return fmt.Sprintf("%q…", s[:100])
	}
	return strconv.Quote(s)
}

// set puts an attribute or extension into the event.
func (e *CloudEvent) set(name, value string) error {
	switch name {
	case "id":
		e.ID = value
	case "source":
		e.Source = value
	case "type":
		e.Type = value
	case "subject":
		e.Subject = value
	case "dataschema":
		e.DataSchema = value
	case "datacontenttype":
		e.DataContentType = value
	case "specversion":
		if value != specVersion {
			return &EventError{name, specVersion, short(value)}
		}
	case "time":
		t, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return &EventError{name, "a time as of RFC 3339", short(value)}
		}
		e.Time = t
	default:
		if e.Extensions == nil {
			e.Extensions = map[string]string{}
		}
		e.Extensions[name] = value
		return checkName(name)
	}
	if value == "" {
		return &EventError{name, "a text that is not empty", "an empty one"}
	}
	return nil
}

// attributes yields all but datacontenttype, in an order that stays the same.
func (e *CloudEvent) attributes(yield func(name, value string)) {
	yield("specversion", specVersion)
	yield("id", e.ID)
	yield("source", e.Source)
	yield("type", e.Type)
	if e.Subject != "" {
		yield("subject", e.Subject)
	}
	if !e.Time.IsZero() {
		yield("time", e.Time.UTC().Format(time.RFC3339Nano))
	}
	if e.DataSchema != "" {
		yield("dataschema", e.DataSchema)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Extensions)) {
		yield(name, e.Extensions[name])
	}
}

// IsBinary says if headers are those of a CloudEvent in binary mode.
func IsBinary(h http.Header) bool { return len(h["Ce-Specversion"]) > 0 }

// WriteBinary sets the headers of an event in binary mode. The body is its Data.
func WriteBinary(h http.Header, e *CloudEvent) error {
	if err := e.Check(); err != nil {
		return err
	}
	if e.DataContentType != "" {
		h.Set("Content-Type", e.DataContentType)
	}
	e.attributes(func(name, value string) { h.Set(attrPrefix+name, encodeHeader(value)) })
	return nil
}

// ParseBinary reads an event in binary mode; its Data is body.
func ParseBinary(h http.Header, body []byte) (*CloudEvent, error) {
	e := &CloudEvent{}
	for name, values := range h {
		suffix, ours := strings.CutPrefix(name, attrPrefix)
		if !ours {
			continue
		}
		attribute := strings.ToLower(suffix)
		if len(values) != 1 {
			return nil, &EventError{short(attribute), "one value", strconv.Itoa(len(values))}
		}
		if attribute == "datacontenttype" || attribute == "data" {
			return nil, &EventError{attribute, "it in Content-Type and body", "a header of its own"}
		}
		if len(values[0]) > 3*MaxAttributeBytes {
			return nil, &EventError{short(attribute), fmt.Sprintf("at most %d bytes", MaxAttributeBytes), strconv.Itoa(len(values[0]))}
		}
		value, err := decodeHeader(values[0])
		if err == nil {
			err = e.set(attribute, value)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(h["Ce-Specversion"]) == 0 {
		return nil, &EventError{"specversion", specVersion, "none"}
	}
	e.DataContentType = h.Get("Content-Type")
	if len(body) > 0 {
		e.Data = body
	}
	return e, e.Check()
}

// encodeHeader writes an attribute's value as a header's: all but printable ASCII, and
// blank, quote and percent, as percent and two digits.
func encodeHeader(s string) string {
	const hex = "0123456789ABCDEF"
	plain := func(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' }
	if i := strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf || !plain(byte(r)) }); i < 0 {
		return s
	}
	b := make([]byte, 0, len(s)+16)
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

// decodeHeader takes double quotes off, as older senders set them, and decodes percents
// once. What is not UTF-8 behind that is found by Check.
func decodeHeader(s string) (string, error) {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		s = unquote(s[1 : len(s)-1])
	}
	if strings.IndexByte(s, '%') < 0 {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", &EventError{"", "two hexadecimal digits behind each percent", short(s)}
		}
		n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", &EventError{"", "two hexadecimal digits behind each percent", short(s)}
		}
		b = append(b, byte(n))
		i += 2
	}
	return string(b), nil
}

func unquote(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b = append(b, s[i])
	}
	return string(b)
}
