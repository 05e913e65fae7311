// Field for field: a value of the contract that has all of them set is the same behind
// messages and JSON, and a message that was made of it has all of its own set.

package connectcarrier

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/connectcarrier/handlerv1"
)

// filler sets every field of a value, each to another value than all before.
type filler struct {
	t *testing.T
	n int
}

// leaves are types whose values have a form.
var leaves = map[reflect.Type]func(n int) any{
	reflect.TypeFor[time.Time]():       func(n int) any { return time.Unix(int64(n), int64(n)).UTC() },
	reflect.TypeFor[eventstore.UUID](): func(n int) any { return eventstore.NameUUID(fmt.Sprint(n)) },
	reflect.TypeFor[eventstore.Token](): func(n int) any {
		return eventstore.Token{Incarnation: eventstore.NameUUID("i"), Position: eventstore.Position(n)}
	},
	reflect.TypeFor[eventstore.Stream]():   func(n int) any { return eventstore.Stream(fmt.Sprint("stream-", n)) },
	reflect.TypeFor[eventstore.Category](): func(n int) any { return eventstore.Category(fmt.Sprint("category", n)) },
	reflect.TypeFor[[]byte]():              func(n int) any { return fmt.Append(nil, n) }, // JSON, where it has to be
}

func (f *filler) fill(path string, v reflect.Value) {
	f.n++
	if leaf := leaves[v.Type()]; leaf != nil {
		v.Set(reflect.ValueOf(leaf(f.n)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(path, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			f.fill(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		f.fill(path+"[]", value)
		v.SetMapIndex(reflect.ValueOf(fmt.Sprint("key", f.n)).Convert(v.Type().Key()), value)
	case reflect.String:
		v.SetString(fmt.Sprint("text ", f.n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(int64(f.n))
	case reflect.Uint64:
		v.SetUint(uint64(f.n))
	default:
		f.t.Fatalf("%s: wanted a type that this test can fill, found %v", path, v.Type())
	}
}

// differ names the fields that are not the same.
func differ(path string, a, b reflect.Value) (paths []string) {
	if reflect.DeepEqual(a.Interface(), b.Interface()) {
		return nil
	}
	switch k := a.Kind(); {
	case leaves[a.Type()] != nil:
	case k == reflect.Struct:
		for i := range a.NumField() {
			paths = append(paths, differ(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))...)
		}
	case k == reflect.Pointer && !a.IsNil() && !b.IsNil():
		return differ(path, a.Elem(), b.Elem())
	case k == reflect.Slice && a.Len() == b.Len():
		for i := range a.Len() {
			paths = append(paths, differ(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i))...)
		}
	}
	if paths == nil {
		paths = []string{path}
	}
	return paths
}

// unset names the fields of a message, and of those in it, that are not set.
func unset(m protoreflect.Message) (names []string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case !m.Has(f):
			names = append(names, string(f.FullName()))
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for j := range m.Get(f).List().Len() {
				names = append(names, unset(m.Get(f).List().Get(j).Message())...)
			}
		default:
			names = append(names, unset(m.Get(f).Message())...)
		}
	}
	return names
}

func TestTwin(t *testing.T) {
	twin(t, encodeRequest, decodeRequest, &handlerv1.Request{}, &handlerv1.Request{}, func(r *handler.Request) (*handler.Request, error) {
		return handler.ParseRequest(handler.AppendRequest(nil, r))
	})
	twin(t, encodeReply, decodeReply, &handlerv1.Reply{}, &handlerv1.Reply{}, func(r *handler.Reply) (*handler.Reply, error) {
		return handler.ParseReply(handler.AppendReply(nil, r))
	})
}

func twin[T any, M proto.Message](t *testing.T, encode func(*T) M, decode func(M) (*T, error), into, other M, inJSON func(*T) (*T, error)) {
	t.Helper()
	full := new(T)
	name := reflect.TypeFor[T]().Name()
	(&filler{t: t}).fill(name, reflect.ValueOf(full).Elem())
	m := encode(full)
	if names := unset(m.ProtoReflect()); names != nil {
		t.Errorf("fields of the message that nothing is written to: %q", names)
	}
	for how, back := range map[string]func() (*T, error){
		"messages": func() (*T, error) { return decode(wired(t, m, into, other)) },
		"JSON":     func() (*T, error) { return inJSON(full) },
	} {
		switch got, err := back(); {
		case err != nil:
			t.Errorf("%s as %s: %v", name, how, err)
		case !reflect.DeepEqual(got, full):
			t.Errorf("fields that are lost or changed as %s: %q", how, differ(name, reflect.ValueOf(full).Elem(), reflect.ValueOf(got).Elem()))
		}
	}
}
