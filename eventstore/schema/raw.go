// Raw events: for code that passes events on and does not know their Go types.

package schema

import (
	"reflect"

	"github.com/wattle-es/wattle/eventstore"
)

// Raw is an event as it is stored.
type Raw struct {
	Name        string // wire name
	Version     int
	ContentType string // empty: application/json
	Data        []byte // never copied nor looked at
}

// RawWire is a wire name and version.
type RawWire struct {
	Name    string
	Version int
}

// NewRaw returns a registry of events whose data stays as it is, as for a handler that
// is another program. Names and versions are known and checked as in any registry.
func NewRaw(wires ...RawWire) *Registry[Raw] {
	r := New[Raw]()
	r.raw, r.mistakes = true, nil
	if len(wires) == 0 {
		r.mistake("no event type is registered")
	}
	for _, k := range wires {
		w := &wire{wireKey: wireKey{k.Name, k.Version}, goType: reflect.TypeFor[Raw]()}
		r.byType = map[reflect.Type]*wire{} // one Go type for all
		if r.byWire[w.wireKey] != nil {
			r.mistake("%q version %d is registered twice", k.Name, k.Version)
			continue
		}
		r.add(w)
	}
	return r
}

func (r *Registry[E]) encodeRaw(raw Raw) (eventstore.Event, error) {
	if r.byWire[wireKey{raw.Name, raw.Version}] == nil {
		err := r.unknownType(eventstore.Entry{Event: eventstore.Event{Type: raw.Name, Version: raw.Version}}).(*Error)
		err.Kind = ErrEncode
		return eventstore.Event{}, err
	}
	return eventstore.Event{Type: raw.Name, Version: raw.Version, ContentType: raw.ContentType, Data: raw.Data}, nil
}

func decodeRaw(e eventstore.Entry) Raw {
	return Raw{Name: e.Type, Version: e.Version, ContentType: e.ContentType, Data: e.Data}
}
