// Registry: the list of wire names, versions and Go types, checked as a whole.

package schema

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/wattle-es/wattle/eventstore"
)

// Registry ties wire names and versions to Go types whose values are E, usually an
// interface. It does not change once made; all methods may be called from several
// goroutines at once, also on a nil Registry, which is one with a mistake.
type Registry[E any] struct {
	mistakes []string
	byWire   map[wireKey]*wire
	byType   map[reflect.Type]*wire
	codec    Codec            // writes
	codecs   map[string]Codec // read, by content type
	raw      bool             // E is Raw, and no codec is used
}

// Option is a part of a registry: a Wire, or the Codecs.
type Option func(*plan)

// plan is what the options say, before it is checked.
type plan struct {
	wires  []*wire
	codecs []Codec
}

type wireKey struct {
	name    string
	version int
}

type wire struct {
	wireKey
	goType reflect.Type
	decode func(Codec, []byte) (any, error)
}

// Wire registers Go type T under a wire name (1 to eventstore.MaxTypeBytes bytes of
// UTF-8 without control characters) and a version (from 1). Each type, and each
// name with its version, is registered once.
func Wire[T any](name string, version int) Option {
	w := &wire{
		wireKey: wireKey{name, version},
		goType:  reflect.TypeFor[T](),
		decode: func(c Codec, data []byte) (any, error) {
			var v T
			err := c.Decode(data, &v)
			return v, err
		},
	}
	return func(p *plan) { p.wires = append(p.wires, w) }
}

// Codecs sets how events are written, by the first codec, and read: by whichever
// has the content type of the entry. Without it there is JSON alone.
func Codecs(first Codec, others ...Codec) Option {
	return func(p *plan) { p.codecs = append(append(p.codecs, first), others...) }
}

// New returns the registry of the wires. It never fails: see Err.
func New[E any](options ...Option) *Registry[E] {
	var p plan
	for _, o := range options {
		if o != nil {
			o(&p)
		}
	}
	r := &Registry[E]{byWire: map[wireKey]*wire{}, byType: map[reflect.Type]*wire{}, codecs: map[string]Codec{}}
	if len(p.wires) == 0 {
		r.mistake("no event type is registered")
	}
	for _, w := range p.wires {
		r.add(w)
	}
	if p.codecs == nil {
		p.codecs = []Codec{JSON}
	}
	r.codec = p.codecs[0]
	for _, c := range p.codecs {
		r.addCodec(c)
	}
	return r
}

// Err returns nil for a registry without mistakes, else a *MistakesError with the
// full list. Encode and Decode answer it too.
func (r *Registry[E]) Err() error {
	switch event := typeName(reflect.TypeFor[E]()); {
	case r == nil:
		return &MistakesError{Event: event, Mistakes: []string{"there is no registry (nil)"}}
	case len(r.mistakes) > 0:
		return &MistakesError{Event: event, Mistakes: slices.Clone(r.mistakes)}
	}
	return nil
}

// Registered is one line of a registry.
type Registered struct {
	Name    string
	Version int
	Type    reflect.Type
}

// List returns what is registered, ordered by name and version.
func (r *Registry[E]) List() []Registered {
	if r == nil {
		return nil
	}
	list := make([]Registered, 0, len(r.byWire))
	for k, w := range r.byWire {
		list = append(list, Registered{Name: k.name, Version: k.version, Type: w.goType})
	}
	slices.SortFunc(list, func(a, b Registered) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return list
}

// Names returns the wire names, each once, in order: what an eventstore.Filter
// takes as Types.
func (r *Registry[E]) Names() []string {
	var names []string
	for _, l := range r.List() {
		names = append(names, l.Name)
	}
	return slices.Compact(names)
}

func (r *Registry[E]) mistake(format string, args ...any) {
	r.mistakes = append(r.mistakes, fmt.Sprintf(format, args...))
}

// add registers a wire, or notes everything that is wrong with it.
func (r *Registry[E]) add(w *wire) {
	before := len(r.mistakes)
	what := fmt.Sprintf("%s as %q version %d: ", typeName(w.goType), w.name, w.version)
	if why := badName(w.name); why != "" {
		r.mistake("%sthe wire name %s", what, why)
	}
	if w.version < 1 {
		r.mistake("%sversions begin at 1", what)
	}
	if why := notEvent(w.goType, reflect.TypeFor[E]()); why != "" {
		r.mistake("%s%s", what, why)
	}
	if other := r.byWire[w.wireKey]; other != nil {
		r.mistake("%sthat name and version are %s already", what, typeName(other.goType))
	}
	if other := r.byType[w.goType]; other != nil {
		r.mistake("%sthat type is %q version %d already", what, other.name, other.version)
	}
	if len(r.mistakes) == before {
		r.byWire[w.wireKey], r.byType[w.goType] = w, w
	}
}

func (r *Registry[E]) addCodec(c Codec) {
	if c == nil {
		r.mistake("a codec is nil")
		return
	}
	name := c.ContentType()
	switch {
	case badName(name) != "":
		r.mistake("codec %T: the content type %q %s", c, name, badName(name))
	case r.codecs[name] != nil:
		r.mistake("two codecs for %q: %T and %T", name, r.codecs[name], c)
	default:
		r.codecs[name] = c
	}
}

// badName is the contract's rule for wire names and content types, told here so
// that it fails at start-up and not at the first append.
func badName(s string) string {
	const most = min(eventstore.MaxTypeBytes, eventstore.MaxContentTypeBytes)
	switch {
	case s == "":
		return "is empty"
	case len(s) > most:
		return fmt.Sprintf("has %d bytes, %d are allowed", len(s), most)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return "holds a control character"
	}
	return ""
}

// notEvent says why values of type t cannot be registered as events of type e.
func notEvent(t, e reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return fmt.Sprintf("events are values: register %s, not a pointer to it", typeName(t.Elem()))
	case reflect.Interface:
		return "an interface cannot be decoded into: register the types that implement it"
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return fmt.Sprintf("a %s cannot be stored", t.Kind())
	}
	switch {
	case t.AssignableTo(e):
		return ""
	case e.Kind() == reflect.Interface && reflect.PointerTo(t).Implements(e):
		return fmt.Sprintf("only its pointer implements %s: give its methods value receivers", typeName(e))
	case e.Kind() == reflect.Interface:
		return "it does not implement " + typeName(e)
	}
	return fmt.Sprintf("events of this registry are %s", typeName(e))
}

func typeName(t reflect.Type) string {
	if s := t.String(); s != "interface {}" {
		return s
	}
	return "any"
}
