// Codec: how the data of an event is written, and JSON, the codec by default.

package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Codec writes and reads the data of events of one content type. Its methods may
// be called from several goroutines at once, and must be inverses: an Executor
// folds what Decode gives for what Encode wrote, before it appends it.
type Codec interface {
	// ContentType names the format, as "application/json"; it is stored with each
	// event and chooses the codec that reads it. 1 to 128 bytes, always the same.
	ContentType() string
	// Encode returns the data of v, a value of a registered Go type.
	Encode(v any) ([]byte, error)
	// Decode reads data into the value that into points to, which is the zero value
	// of a registered Go type. It keeps no part of data.
	Decode(data []byte, into any) error
}

// JSON is the codec that a registry has unless it is given others: encoding/json,
// with numbers in fields of type any kept as json.Number and with <, > and &
// written as they are.
//
// As encoding/json does, it replaces invalid UTF-8 in strings by U+FFFD.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) ContentType() string { return "application/json" }

func (jsonCodec) Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func (jsonCodec) Decode(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("no JSON value")
		}
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something stands behind the JSON value")
	}
	return nil
}
