// CloudEvents in structured mode: one JSON object.

package httpcarrier

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"strconv"
	"strings"
	"unicode/utf8"
)

// AppendStructured appends an event in structured mode to dst. Data that is JSON, by its
// type and in truth, goes as it is; other data, and blanks around JSON, would not come out
// to the byte and go in base64.
func AppendStructured(dst []byte, e *CloudEvent) ([]byte, error) {
	if err := e.Check(); err != nil {
		return dst, err
	}
	dst = append(dst, '{')
	e.attributes(func(name, value string) { dst = appendText(dst, name, value) })
	if e.DataContentType != "" {
		dst = appendText(dst, "datacontenttype", e.DataContentType)
	}
	if e.Data != nil {
		if isJSONType(e.DataContentType) && json.Valid(e.Data) && utf8.Valid(e.Data) && len(bytes.Trim(e.Data, " \t\r\n")) == len(e.Data) {
			dst = append(append(dst, `,"data":`...), e.Data...)
		} else {
			dst = append(dst, `,"data_base64":"`...)
			dst = append(base64.StdEncoding.AppendEncode(dst, e.Data), '"')
		}
	}
	return append(dst, '}'), nil
}

func appendText(dst []byte, name, value string) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	text, _ := json.Marshal(value) // a string always can be
	return append(append(append(append(dst, '"'), name...), `":`...), text...)
}

// isJSONType says if data of a media type is JSON; of none given it is.
func isJSONType(contentType string) bool {
	if contentType == "" {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (strings.HasSuffix(t, "/json") || strings.HasSuffix(t, "+json"))
}

// ParseStructured reads an event in structured mode.
func ParseStructured(body []byte) (*CloudEvent, error) {
	if !utf8.Valid(body) {
		return nil, &EventError{"", "UTF-8", "other bytes"}
	}
	fields, err := members(body)
	if err != nil {
		return nil, err
	}
	e := &CloudEvent{}
	for name, raw := range fields {
		if name == "data" || name == "data_base64" || string(raw) == "null" {
			continue
		}
		value, err := attributeValue(name, raw)
		if err == nil {
			err = e.set(name, value)
		}
		if err != nil {
			return nil, err
		}
	}
	if v := fields["specversion"]; v == nil || string(v) == "null" {
		return nil, &EventError{"specversion", specVersion, "none"}
	}
	if err := e.takeData(fields["data"], fields["data_base64"]); err != nil {
		return nil, err
	}
	return e, e.Check()
}

// members are the fields of an object, each once.
func members(body []byte) (map[string]json.RawMessage, error) {
	wrong := func(err error) error {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return &EventError{"", "a JSON object", err.Error()}
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if start, err := d.Token(); err != nil {
		return nil, wrong(err)
	} else if start != json.Delim('{') {
		return nil, &EventError{"", "a JSON object", fmt.Sprintf("%.20v", start)}
	}
	fields := map[string]json.RawMessage{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, wrong(err)
		}
		name, _ := key.(string)
		if _, twice := fields[name]; twice {
			return nil, &EventError{short(name), "it once", "it twice"}
		}
		if len(fields) > MaxAttributes+10 {
			return nil, &EventError{"", fmt.Sprintf("at most %d extensions", MaxAttributes), "more"}
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, wrong(err)
		}
		fields[name] = raw
	}
	if _, err := d.Token(); err != nil {
		return nil, wrong(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, &EventError{"", "nothing behind the object", "more"}
	}
	return fields, nil
}

// attributeValue is an attribute's text. Only extensions may be numbers or truths.
func attributeValue(name string, raw json.RawMessage) (string, error) {
	if raw[0] == '"' {
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	}
	switch text := string(raw); {
	case known(name):
	case text == "true", text == "false":
		return text, nil
	default:
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			return strconv.FormatInt(n, 10), nil
		}
	}
	return "", &EventError{short(name), "a string (an extension may be a truth or an integer of 32 bits too)", short(string(raw))}
}

func (e *CloudEvent) takeData(data, inBase64 json.RawMessage) error {
	var text string
	switch {
	case data != nil && inBase64 != nil:
		return &EventError{"data", "data or data_base64", "both"}
	case inBase64 != nil:
		if err := json.Unmarshal(inBase64, &text); err != nil || inBase64[0] != '"' {
			return &EventError{"data_base64", "a string", short(string(inBase64))}
		}
		decoded, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil {
			return &EventError{"data_base64", "base64", err.Error()}
		}
		e.Data = decoded
	case data == nil:
	case isJSONType(e.DataContentType):
		e.Data = data
	default:
		if err := json.Unmarshal(data, &text); err != nil || data[0] != '"' {
			return &EventError{"data", "a string, as data of the type " + e.DataContentType + " is", short(string(data))}
		}
		e.Data = []byte(text)
	}
	return nil
}
