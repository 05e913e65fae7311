// The forms of messages: binary and JSON, each bounded where it is made.

package wire

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore"
)

// MaxRequestBytes bounds a request, uncompressed, in either form: an append of
// MaxAppendBytes in JSON, whose base64 takes a third more, and half of that again for
// names and identifiers.
const MaxRequestBytes = 64 << 20

// ClientCodecs are options for a client: what cannot be made a message, or would be over
// MaxRequestBytes, is an *eventstore.Error of kind ErrInvalid or ErrTooLarge, before
// anything is sent.
func ClientCodecs(json bool) []connect.ClientOption {
	if json {
		return []connect.ClientOption{connect.WithCodec(codec{"json", protojson.MarshalOptions{}.MarshalAppend, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal})}
	}
	return []connect.ClientOption{connect.WithCodec(codec{"proto", proto.MarshalOptions{}.MarshalAppend, proto.Unmarshal})}
}

// codec is one form.
type codec struct {
	name      string
	marshal   func([]byte, proto.Message) ([]byte, error)
	unmarshal func([]byte, proto.Message) error
}

var errNoMessage = errors.New("wanted a message of Protocol Buffers")

func (c codec) Name() string { return c.name }

func (c codec) Marshal(v any) ([]byte, error) { return c.MarshalAppend(nil, v) }

func (c codec) MarshalAppend(to []byte, v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, errNoMessage
	}
	data, err := c.marshal(to, m)
	if err != nil {
		return nil, &eventstore.Error{Kind: eventstore.ErrInvalid, Wanted: "text in valid UTF-8", Found: clean(err.Error())}
	}
	if n := len(data) - len(to); n > MaxRequestBytes {
		return nil, &eventstore.Error{Kind: eventstore.ErrTooLarge, Wanted: fmt.Sprintf("a request of at most %d bytes", MaxRequestBytes),
			Found: fmt.Sprintf("%d bytes", n), Hint: "append it in parts"}
	}
	return data, nil
}

func (c codec) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return errNoMessage
	}
	return c.unmarshal(data, m)
}
