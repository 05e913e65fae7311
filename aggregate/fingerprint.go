// The fingerprint of snapshots: which code can read a state back and go on with it.

package aggregate

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// fingerprint returns the fingerprint of snapshots of state type t: the form of the
// envelope, the user's version, and a hash of the type's structure. Snapshots with
// another one are left out and the events replayed. The error says what of the type
// JSON would lose; such a state has no snapshots.
//
// The registry's wires are no part of it. A new event type or version cannot be in
// the history that an older snapshot stands for, so it makes no snapshot wrong; yet
// with it in the fingerprint, registering one would leave every trimmed stream
// without a usable snapshot, for ever. What events mean to Evolve is
// Snapshots.Version.
func fingerprint(t reflect.Type, version int) (string, error) {
	var d structure
	d.typ(t, "State", nil)
	sum := sha256.Sum256([]byte(d.text.String()))
	return fmt.Sprintf("wattle1/%d/%s", version, hex.EncodeToString(sum[:16])), errors.Join(d.lost...)
}

// structure describes a type as far as JSON shows it: kinds, fields in order with
// their names and tags, elements. Names of types are left out, since renaming one
// changes nothing, except of those that marshal themselves: there the name is all
// that can be known.
type structure struct {
	text strings.Builder
	lost []error
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// typ describes t, which stands at path, inside the types of outer.
func (d *structure) typ(t reflect.Type, path string, outer []reflect.Type) {
	for i, o := range outer {
		if o == t { // a cycle: it is described already, up there
			fmt.Fprintf(&d.text, "^%d", len(outer)-i)
			return
		}
	}
	if marshalsItself(t) {
		fmt.Fprintf(&d.text, "%s.%s", t.PkgPath(), t.Name())
		return
	}
	inner := append(outer[:len(outer):len(outer)], t)
	switch t.Kind() {
	case reflect.Struct:
		d.fields(t, path, inner)
	case reflect.Pointer:
		d.text.WriteString("*")
		d.typ(t.Elem(), path, inner)
	case reflect.Slice:
		d.text.WriteString("[]")
		d.typ(t.Elem(), path+"[]", inner)
	case reflect.Array:
		fmt.Fprintf(&d.text, "[%d]", t.Len())
		d.typ(t.Elem(), path+"[]", inner)
	case reflect.Map:
		d.text.WriteString("map[")
		d.typ(t.Key(), path+" key", inner)
		d.text.WriteString("]")
		d.typ(t.Elem(), path+"[]", inner)
	default:
		d.plain(t, path)
	}
}

// plain describes a type that has no elements, or notes why it cannot be kept.
func (d *structure) plain(t reflect.Type, path string) {
	switch k := t.Kind(); k {
	case reflect.Interface:
		if t.NumMethod() > 0 {
			d.lose(path, "an interface with methods cannot be read back")
		}
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128:
		d.lose(path, "JSON has no "+k.String())
	}
	d.text.WriteString(t.Kind().String())
}

func (d *structure) fields(t reflect.Type, path string, inner []reflect.Type) {
	d.text.WriteString("{")
	for i := range t.NumField() {
		f := t.Field(i)
		at := path + "." + f.Name
		switch tag := f.Tag.Get("json"); {
		case f.Name == "_":
			continue
		case tag == "-":
			d.lose(at, `it is tagged json:"-"`)
			continue
		case !f.IsExported() && !embedsStruct(f):
			d.lose(at, "it is not exported")
			continue
		default:
			fmt.Fprintf(&d.text, "%s %q ", f.Name, tag)
		}
		d.typ(f.Type, at, inner)
		d.text.WriteString(";")
	}
	d.text.WriteString("}")
}

func (d *structure) lose(path, why string) {
	d.lost = append(d.lost, fmt.Errorf("a snapshot would lose %s: %s", path, why))
}

// embedsStruct says if JSON looks through an unexported field for exported ones.
func embedsStruct(f reflect.StructField) bool {
	return f.Anonymous && f.Type.Kind() == reflect.Struct
}

func marshalsItself(t reflect.Type) bool {
	if t.Kind() == reflect.Interface || t.Kind() == reflect.Pointer {
		return false
	}
	p := reflect.PointerTo(t)
	return p.Implements(jsonMarshaler) || p.Implements(textMarshaler)
}
