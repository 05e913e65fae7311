// Encoding requests and replies. The form is described in CONTRACT.md.

package handler

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/wattle-es/wattle/eventstore"
)

// writer appends the fields of objects.
type writer struct {
	b []byte
}

// open begins an object or array.
func (w *writer) open(c byte) { w.b = append(w.b, c) }

// shut ends one.
func (w *writer) shut(c byte) { w.b = append(w.b, c) }

// comma stands before all but the first in an object or array.
func (w *writer) comma() {
	if c := w.b[len(w.b)-1]; c != '{' && c != '[' {
		w.b = append(w.b, ',')
	}
}

// name begins a field whose name needs no escapes.
func (w *writer) name(name string) {
	w.comma()
	w.b = append(append(append(w.b, '"'), name...), '"', ':')
}

// text is a field that is left out when empty.
func (w *writer) text(name, s string) {
	if s != "" {
		w.name(name)
		w.string(s)
	}
}

// plain is text that is known to need no escapes.
func (w *writer) plain(name, s string) {
	w.name(name)
	w.b = append(append(append(w.b, '"'), s...), '"')
}

func (w *writer) uuid(name string, u eventstore.UUID) {
	if !u.IsZero() {
		w.plain(name, u.String())
	}
}

// digits is a number that may be over 2^53, so a string.
func (w *writer) digits(name string, n uint64) {
	w.name(name)
	w.b = append(strconv.AppendUint(append(w.b, '"'), n, 10), '"')
}

func (w *writer) count(name string, n int) {
	if n != 0 {
		w.name(name)
		w.b = strconv.AppendInt(w.b, int64(n), 10)
	}
}

func (w *writer) time(name string, t time.Time) {
	if !t.IsZero() {
		w.name(name)
		w.b = append(t.UTC().AppendFormat(append(w.b, '"'), time.RFC3339Nano), '"')
	}
}

func (w *writer) flag(name string, v bool) {
	if v {
		w.name(name)
		w.b = append(w.b, "true"...)
	}
}

// raw is JSON, left out when nil.
func (w *writer) raw(name string, v []byte) {
	if v != nil {
		w.name(name)
		w.b = append(w.b, v...)
	}
}

// data is an event's: as it is where it is JSON as the contract's scanner reads it, else
// in base64.
func (w *writer) data(contentType string, data []byte) {
	if (contentType == "" || contentType == jsonType) && isJSON(data) {
		w.raw("data", data)
		return
	}
	w.name("data64")
	w.b = append(base64.StdEncoding.AppendEncode(append(w.b, '"'), data), '"')
}

const jsonType = "application/json"

// typed is what events and commands have in common.
func (w *writer) typed(name string, version int, contentType string, data []byte) {
	w.text("type", name)
	w.count("version", version)
	if contentType != jsonType {
		w.text("contentType", contentType)
	}
	w.data(contentType, data)
}

func (w *writer) metadata(m eventstore.Metadata) {
	if len(m) == 0 {
		return
	}
	w.name("meta")
	w.open('{')
	for _, k := range slices.Sorted(maps.Keys(m)) {
		w.key(k)
		w.string(m[k])
	}
	w.shut('}')
}

// key begins a field of any name.
func (w *writer) key(k string) {
	w.comma()
	w.string(k)
	w.b = append(w.b, ':')
}

// documents is an object of JSON values, in the order of their keys.
func (w *writer) documents(name string, docs map[string][]byte) {
	if len(docs) == 0 {
		return
	}
	w.name(name)
	w.open('{')
	for _, k := range slices.Sorted(maps.Keys(docs)) {
		w.key(k)
		w.b = append(w.b, docs[k]...)
	}
	w.shut('}')
}

func (w *writer) texts(name string, list []string) {
	if len(list) == 0 {
		return
	}
	w.name(name)
	w.open('[')
	for _, s := range list {
		w.comma()
		w.string(s)
	}
	w.shut(']')
}

// objects is an array of objects.
func objects[T any](w *writer, name string, list []T, fields func(*T)) {
	if len(list) == 0 {
		return
	}
	w.name(name)
	w.open('[')
	for i := range list {
		w.comma()
		w.open('{')
		fields(&list[i])
		w.shut('}')
	}
	w.shut(']')
}

// object is a field that is an object.
func (w *writer) object(name string, fields func()) {
	w.name(name)
	w.open('{')
	fields()
	w.shut('}')
}

func (w *writer) mark(name string, m eventstore.Mark) {
	if m != (eventstore.Mark{}) {
		w.object(name, func() {
			w.digits("seqno", uint64(m.Seqno))
			w.uuid("id", m.ID)
		})
	}
}

// string is a JSON string. What is not UTF-8 becomes U+FFFD.
func (w *writer) string(s string) {
	const hex = "0123456789abcdef"
	w.b = append(w.b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				w.b = append(append(w.b, s[from:i]...), "\uFFFD"...)
				from = i + 1
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		w.b = append(w.b, s[from:i]...)
		switch c {
		case '"', '\\':
			w.b = append(w.b, '\\', c)
		case '\n':
			w.b = append(w.b, '\\', 'n')
		default:
			w.b = append(w.b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		from = i
	}
	w.b = append(append(w.b, s[from:]...), '"')
}

// AppendRequest appends the encoded request to dst. State and Docs must be JSON.
func AppendRequest(dst []byte, r *Request) []byte {
	w := &writer{b: dst}
	w.open('{')
	w.count("v", Version)
	w.text("op", string(r.Op))
	w.uuid("key", r.Key)
	w.time("deadline", r.Deadline)
	w.text("traceparent", r.Traceparent)
	w.text("tracestate", r.Tracestate)
	w.time("now", r.Now)
	w.uuid("id", r.ID)
	w.text("stream", string(r.Stream))
	w.mark("after", r.After)
	w.count("stateVersion", r.StateVersion)
	w.raw("state", r.State)
	w.text("projector", r.Projector)
	w.count("projectorVersion", r.ProjectorVersion)
	objects(w, "events", r.Events, w.entry)
	if c := r.Command; c != nil {
		w.object("command", func() {
			w.typed(c.Type, c.Version, c.ContentType, c.Data)
			w.metadata(c.Metadata)
		})
	}
	w.documents("docs", r.Docs)
	w.shut('}')
	return w.b
}

// position is left out when it is 0: there is none.
func (w *writer) position(p eventstore.Position) {
	if p != 0 {
		w.digits("position", uint64(p))
	}
}

func (w *writer) entry(e *Entry) {
	w.text("stream", string(e.Stream))
	w.digits("seqno", uint64(e.Seqno))
	w.position(e.Position)
	w.uuid("id", e.ID)
	w.time("time", e.Time)
	w.typed(e.Type, e.Version, e.ContentType, e.Data)
	w.metadata(e.Metadata)
	w.flag("quiet", e.Quiet)
}

// AppendReply appends the encoded reply to dst. State and Put must be JSON.
func AppendReply(dst []byte, r *Reply) []byte {
	w := &writer{b: dst}
	w.open('{')
	w.count("v", Version)
	w.uuid("key", r.Key)
	if f := r.Failure; f != nil {
		w.object("error", func() { w.coded(f.Code, f.Message) })
	}
	if j := r.Rejected; j != nil {
		w.object("rejected", func() { w.coded(j.Code, j.Message) })
	}
	w.description(r.Description)
	w.text("stream", string(r.Stream))
	w.raw("state", r.State)
	objects(w, "events", r.Events, func(e *Event) { w.typed(e.Type, e.Version, e.ContentType, e.Data) })
	w.projected(r)
	w.mark("mark", r.Mark)
	if r.Token != (eventstore.Token{}) {
		w.plain("token", r.Token.String())
	}
	w.flag("replayed", r.Replayed)
	w.flag("more", r.More)
	w.shut('}')
	return w.b
}

func (w *writer) coded(code, message string) {
	w.text("code", code)
	w.text("message", message)
}

// projected are the fields of Keys and Project.
func (w *writer) projected(r *Reply) {
	w.texts("keys", r.Keys)
	w.documents("put", r.Put)
	w.texts("delete", r.Delete)
	objects(w, "commands", r.Commands, func(c *Issue) {
		w.position(c.Position)
		w.text("stream", string(c.Stream))
		w.typed(c.Type, c.Version, c.ContentType, c.Data)
		w.metadata(c.Metadata)
	})
	objects(w, "timers", r.Timers, func(t *Timer) {
		w.position(t.Position)
		w.text("name", t.Name)
		w.time("due", t.Due)
		w.raw("data", t.Data)
		w.flag("cancel", t.Cancel)
	})
	objects(w, "failed", r.Failed, func(f *EntryFailure) {
		w.digits("position", uint64(f.Position))
		w.text("message", f.Message)
	})
}

// AppendDescription appends an encoded description to dst.
func AppendDescription(dst []byte, d *Description) []byte {
	w := &writer{b: dst}
	w.open('{')
	w.described(d)
	w.shut('}')
	return w.b
}

func (w *writer) description(d *Description) {
	if d != nil {
		w.object("description", func() { w.described(d) })
	}
}

func (w *writer) described(d *Description) {
	wires := func(name string, list []Wire) {
		objects(w, name, list, func(v *Wire) {
			w.text("name", v.Name)
			w.count("version", v.Version)
		})
	}
	w.text("name", d.Name)
	w.text("release", d.Release)
	w.text("category", string(d.Category))
	w.texts("capabilities", d.Capabilities)
	wires("events", d.Events)
	wires("commands", d.Commands)
	w.count("stateVersion", d.StateVersion)
}
