// Values as text: like %#v, but looking through pointers, so that what a pointer
// refers to can be compared and read.

package aggregatetest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// maxDepth ends values that contain themselves.
const maxDepth = 20

func render(v any) string {
	var b strings.Builder
	write(&b, reflect.ValueOf(v), 0)
	return b.String()
}

func write(b *strings.Builder, v reflect.Value, depth int) {
	switch {
	case !v.IsValid():
		b.WriteString("nil")
		return
	case depth > maxDepth:
		b.WriteString("…")
		return
	case v.CanInterface() && v.Kind() != reflect.Pointer && v.Kind() != reflect.Interface:
		if g, ok := v.Interface().(fmt.GoStringer); ok { // time.Time
			b.WriteString(g.GoString())
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			b.WriteString("nil")
			return
		}
		if v.Kind() == reflect.Pointer {
			b.WriteString("&")
		}
		write(b, v.Elem(), depth+1)
	case reflect.Struct:
		b.WriteString(v.Type().String() + "{")
		for i := range v.NumField() {
			separate(b, i)
			b.WriteString(v.Type().Field(i).Name + ": ")
			write(b, v.Field(i), depth+1)
		}
		b.WriteString("}")
	case reflect.Slice, reflect.Array:
		writeList(b, v, depth)
	case reflect.Map:
		writeMap(b, v, depth)
	case reflect.String:
		fmt.Fprintf(b, "%q", v.String())
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		b.WriteString(v.Type().String())
	default:
		fmt.Fprint(b, v)
	}
}

func writeList(b *strings.Builder, v reflect.Value, depth int) {
	if v.Kind() == reflect.Slice && v.IsNil() {
		b.WriteString("nil")
		return
	}
	b.WriteString(v.Type().String() + "{")
	for i := range v.Len() {
		separate(b, i)
		write(b, v.Index(i), depth+1)
	}
	b.WriteString("}")
}

func writeMap(b *strings.Builder, v reflect.Value, depth int) {
	if v.IsNil() {
		b.WriteString("nil")
		return
	}
	var pairs []string
	for iter := v.MapRange(); iter.Next(); {
		var p strings.Builder
		write(&p, iter.Key(), depth+1)
		p.WriteString(": ")
		write(&p, iter.Value(), depth+1)
		pairs = append(pairs, p.String())
	}
	slices.Sort(pairs)
	b.WriteString(v.Type().String() + "{" + strings.Join(pairs, ", ") + "}")
}

func separate(b *strings.Builder, i int) {
	if i > 0 {
		b.WriteString(", ")
	}
}
