// Docs: what Apply sees and changes, an entry at a time.

package guest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

// Docs are the documents that an entry concerns, as the entries before it left them, and
// what else the entry calls for. It is of use during one call of Apply and to one
// goroutine. A wrong call makes the entry fail, whatever Apply returns.
type Docs struct {
	batch    *batch
	entry    *handler.Entry
	named    []string
	changed  map[string][]byte // nil: removed
	commands []handler.Issue
	timers   []handler.Timer
	mistake  error // the first
}

// batch is what the entries of a request come to.
type batch struct {
	request *handler.Request
	docs    map[string][]byte              // as changed so far; nil: removed
	failed  map[string]eventstore.Position // by stream key: the first that failed
	reply   handler.Reply
}

// take keeps what an entry that went well has changed.
func (b *batch) take(d *Docs) {
	maps.Copy(b.docs, d.changed)
	b.reply.Commands = append(b.reply.Commands, d.commands...)
	b.reply.Timers = append(b.reply.Timers, d.timers...)
}

func (b *batch) fail(e *handler.Entry, err error) {
	if _, failed := b.failed[e.Stream.Key()]; !failed {
		b.failed[e.Stream.Key()] = e.Position
	}
	b.reply.Failed = append(b.reply.Failed, handler.EntryFailure{Position: e.Position, Message: err.Error()})
}

// done is the reply. A document that came back to what it was is not written.
func (b *batch) done() *handler.Reply {
	b.reply.Key = b.request.Key
	for key, doc := range b.docs {
		was, there := b.request.Docs[key]
		switch {
		case doc == nil && there:
			b.reply.Delete = append(b.reply.Delete, key)
		case doc != nil && !(there && bytes.Equal(doc, was)):
			if b.reply.Put == nil {
				b.reply.Put = map[string][]byte{}
			}
			b.reply.Put[key] = doc
		}
	}
	slices.Sort(b.reply.Delete)
	return &b.reply
}

func (d *Docs) wrong(err error) {
	if d.mistake == nil {
		d.mistake = err
	}
}

// may says if a document was named.
func (d *Docs) may(key string) bool {
	if slices.Contains(d.named, key) {
		return true
	}
	d.wrong(fmt.Errorf("document %q: wanted one of those that Keys names, %q", key, d.named))
	return false
}

// Get puts a document into the value that into points to, as json.Unmarshal does, and
// says if there is one.
func (d *Docs) Get(key string, into any) (found bool) {
	if !d.may(key) {
		return false
	}
	doc, changed := d.changed[key]
	if !changed {
		doc, changed = d.batch.docs[key]
	}
	if !changed {
		doc = d.batch.request.Docs[key]
	}
	if doc == nil {
		return false
	}
	if err := json.Unmarshal(doc, into); err != nil {
		d.wrong(fmt.Errorf("document %q: %w", key, err))
		return false
	}
	return true
}

// Put replaces a document, or makes it, as json.Marshal writes it.
func (d *Docs) Put(key string, doc any) {
	if data, ok := d.marshal("document "+key, doc); ok && d.may(key) {
		d.set(key, data)
	}
}

// Delete removes a document, if there is one.
func (d *Docs) Delete(key string) {
	if d.may(key) {
		d.set(key, nil)
	}
}

func (d *Docs) set(key string, data []byte) {
	if d.changed == nil {
		d.changed = map[string][]byte{}
	}
	d.changed[key] = data
}

func (d *Docs) marshal(what string, v any) ([]byte, bool) {
	data, err := json.Marshal(v)
	if err != nil {
		d.wrong(fmt.Errorf("%s: %w", what, err))
		return nil, false
	}
	return data, true
}

// Quiet says that only documents may change: what the entry calls for elsewhere was done,
// or will be, by another version of the projection. Issue, SetTimer and CancelTimer do
// nothing then.
func (d *Docs) Quiet() bool { return d.entry.Quiet }

// Issue has a command executed on a stream, under an ID that follows from the entry and
// from how many the entry has issued before. name is the command's wire name.
func (d *Docs) Issue(stream eventstore.Stream, name string, command any) {
	data, ok := d.marshal("command "+name, command)
	if !ok || d.Quiet() {
		return
	}
	if stream == "" || name == "" {
		d.wrong(fmt.Errorf("command: wanted a stream and a name, found %q and %q", stream, name))
		return
	}
	d.commands = append(d.commands, handler.Issue{Position: d.entry.Position, Stream: stream, Command: handler.Command{Type: name, Data: data}})
}

// SetTimer sets a durable timer, in the place of one of the same name. data comes back
// when it fires, as JSON.
func (d *Docs) SetTimer(name string, due time.Time, data any) {
	payload, ok := d.marshal("timer "+name, data)
	if !ok || d.Quiet() {
		return
	}
	if name == "" || due.IsZero() {
		d.wrong(fmt.Errorf("timer: wanted a name and a due time, found %q and %v", name, due))
		return
	}
	d.timers = append(d.timers, handler.Timer{Position: d.entry.Position, Name: name, Due: due, Data: payload})
}

// CancelTimer ends a timer. One that has fired, or was never set, is as well.
func (d *Docs) CancelTimer(name string) {
	switch {
	case name == "":
		d.wrong(fmt.Errorf("timer: wanted a name, found none"))
	case !d.Quiet():
		d.timers = append(d.timers, handler.Timer{Position: d.entry.Position, Name: name, Cancel: true})
	}
}
