// The one way in and out: Encode and Decode.

package schema

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
)

// Encode returns the event to append for e: Type, Version, ContentType and Data.
// The error is an *Error of kind ErrEncode, or that of Err.
func (r *Registry[E]) Encode(e E) (eventstore.Event, error) {
	if err := r.Err(); err != nil {
		return eventstore.Event{}, err
	}
	if r.raw {
		return r.encodeRaw(any(e).(Raw))
	}
	t := reflect.TypeOf(e)
	w := r.byType[t]
	if w == nil {
		return eventstore.Event{}, r.notRegistered(t)
	}
	data, err := r.codec.Encode(e)
	if err != nil {
		return eventstore.Event{}, &Error{Kind: ErrEncode, Type: typeName(t), Err: err}
	}
	return eventstore.Event{Type: w.name, Version: w.version, ContentType: r.codec.ContentType(), Data: data}, nil
}

// Decode returns the Go value of an entry. It is the only decode path there is:
// aggregates and projectors both come through here. An entry that has no place yet
// may leave Stream and Seqno empty; the error then names none.
//
// The error is an *Error of kind ErrUnknownType or ErrDecode that names stream,
// seqno, wire name, version and what is registered, or that of Err.
func (r *Registry[E]) Decode(e eventstore.Entry) (E, error) {
	var none E
	if err := r.Err(); err != nil {
		return none, err
	}
	w := r.byWire[wireKey{e.Type, e.Version}]
	if w == nil {
		return none, r.unknownType(e)
	}
	if r.raw {
		return any(decodeRaw(e)).(E), nil
	}
	// Upcasting goes here: e's data from an older version to that of a wire.
	codec := r.codecs[e.ContentType]
	if codec == nil {
		return none, r.undecodable(e, fmt.Errorf("no codec for content type %q", e.ContentType))
	}
	v, err := w.decode(codec, e.Data)
	if err != nil {
		return none, r.undecodable(e, err)
	}
	return v.(E), nil // notEvent saw to it
}

func (r *Registry[E]) undecodable(e eventstore.Entry, err error) error {
	return &Error{Kind: ErrDecode, Stream: e.Stream, Seqno: e.Seqno, Type: e.Type, Version: e.Version, Err: err}
}

func (r *Registry[E]) notRegistered(t reflect.Type) error {
	err := &Error{Kind: ErrEncode, Type: "nil", Hint: "events are values of registered types"}
	if t == nil {
		return err
	}
	err.Type = typeName(t)
	if t.Kind() == reflect.Pointer && r.byType[t.Elem()] != nil {
		err.Hint = "events are values: give a " + typeName(t.Elem()) + ", not a pointer to it"
		return err
	}
	err.Hint = "register it with schema.Wire"
	return err
}

// unknownType tells what is registered: the versions of the entry's name if there
// are any, else all names.
func (r *Registry[E]) unknownType(e eventstore.Entry) error {
	var versions, all []string
	for _, l := range r.List() {
		all = append(all, fmt.Sprintf("%s/%d", quoteOdd(l.Name), l.Version))
		if l.Name == e.Type {
			versions = append(versions, all[len(all)-1])
		}
	}
	known := versions
	if known == nil {
		known = all
	}
	const most = 20
	if n := len(known) - most; n > 0 {
		known = append(known[:most:most], fmt.Sprintf("and %d more", n))
	}
	return &Error{Kind: ErrUnknownType, Stream: e.Stream, Seqno: e.Seqno, Type: e.Type, Version: e.Version,
		Known: strings.Join(known, ", "), Hint: "register the type under this name and version, or run the code that wrote it"}
}
