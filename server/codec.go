// Messages from bytes. A few bytes can become a large message: an empty one inside
// another takes two. So its parts are counted before anything is made of them. JSON is
// strict: a field that is not known is refused.

package server

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var errNoMessage = errors.New("wanted a message of Protocol Buffers")

// turns bounds how many large messages are decoded at once: what they become is counted
// only when it is there.
type turns chan struct{}

// of runs f, for a message of so many bytes, when it is its turn. f waits for nothing.
func (t turns) of(bytes int, f func() error) error {
	if bytes < largeBytes {
		return f()
	}
	t <- struct{}{}
	defer func() { <-t }()
	return f()
}

// protoCodec is the binary form.
type protoCodec struct {
	elements int
	turns    turns
}

func (protoCodec) Name() string   { return "proto" }
func (protoCodec) IsBinary() bool { return true }

func (protoCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, errNoMessage
	}
	return proto.Marshal(m)
}

// MarshalAppend saves Connect a copy.
func (protoCodec) MarshalAppend(dst []byte, v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, errNoMessage
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

// MarshalStable is for Connect's GET requests, of which there are none.
func (protoCodec) MarshalStable(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, errNoMessage
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

func (c protoCodec) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return errNoMessage
	}
	left := c.elements
	if !countParts(data, m.ProtoReflect().Descriptor(), &left) {
		return tooManyParts(c.elements)
	}
	return c.turns.of(len(data), func() error { return proto.Unmarshal(data, m) })
}

func tooManyParts(most int) *connect.Error {
	return tooLarge(fmt.Sprintf("a message of at most %d parts", most), "more")
}

// countParts takes from left one for each message, map entry, string and bytes in data. It
// says false as soon as there is nothing left. What it cannot read it leaves to the parser.
func countParts(data []byte, d protoreflect.MessageDescriptor, left *int) bool {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return true
		}
		data = data[n:]
		field := d.Fields().ByNumber(number)
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
				return true
			}
			// Groups are of no message of ours: what they hold is kept as bytes.
			if *left--; *left < 0 {
				return false
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return true
		}
		if *left--; *left < 0 {
			return false
		}
		if field != nil && field.Message() != nil && !countParts(value, field.Message(), left) {
			return false
		}
		if field != nil && field.IsPacked() { // each byte may be a number
			if *left -= len(value); *left < 0 {
				return false
			}
		}
		data = data[n:]
	}
	return true
}

// jsonCodec is the form for people.
type jsonCodec struct {
	name     string
	elements int
	turns    turns
}

func (c jsonCodec) Name() string   { return c.name }
func (c jsonCodec) IsBinary() bool { return false }

func (c jsonCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, errNoMessage
	}
	return protojson.Marshal(m)
}

// MarshalStable is for Connect's GET requests, of which there are none.
func (c jsonCodec) MarshalStable(v any) ([]byte, error) { return c.Marshal(v) }

func (c jsonCodec) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return errNoMessage
	}
	parts := 0
	for _, b := range data {
		if b == '{' || b == '[' || b == ',' {
			parts++
		}
	}
	if parts > c.elements {
		return tooManyParts(c.elements)
	}
	return c.turns.of(len(data), func() error { return protojson.Unmarshal(data, m) })
}
