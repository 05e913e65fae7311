// Projection: the far side, a projection in Go that answers describe, keys and project.

package guest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
)

// Projection turns events E into documents. Keys and Apply are pure: they look at nothing
// but what they are given, keep nothing, and do the same each time.
type Projection[E any] struct {
	Name     string              // for people and metrics
	Release  string              // of this code, for people; may be empty
	Category eventstore.Category // whose entries it projects
	// Events decodes them. Types whose names it does not have are none of its business:
	// they are not sent to it, or passed over where it is joined with a handler that has
	// them. A version that it does not have of a name that it has is a failure.
	Events *schema.Registry[E]
	// Keys names the documents that an event concerns: no others can be looked at or
	// changed when it is applied. Nil: one, named as the event's stream.
	Keys func(e projector.Event[E]) []string
	// Apply changes the documents as an event says. Where it returns an error or panics,
	// nothing of it stands, and the entries behind it under the same stream key are not
	// applied; the others are. Where projector.Options.Snapshots is set an event may stand
	// for a snapshot, see projector.Event.Snapshot.
	Apply func(e projector.Event[E], docs *Docs) error
	// Metadata has events come with their metadata.
	Metadata bool
}

// New returns the handler of a projection. Mistakes in it are the ErrBadRequest of every
// call.
func New[E any](p Projection[E]) handler.Handler {
	f := &far[E]{Projection: p, names: map[string]bool{}}
	for _, name := range p.Events.Names() {
		f.names[name] = true
	}
	switch err := p.Events.Err(); {
	case err != nil:
		f.mistake = err
	case p.Apply == nil:
		f.mistake = errors.New("wanted a function Apply, found nil")
	}
	return f
}

// far answers requests with a projection.
type far[E any] struct {
	Projection[E]
	names   map[string]bool // of types
	mistake error
}

// foreign says if an entry is none of the projection's business.
func (f *far[E]) foreign(e *handler.Entry) bool {
	return !f.names[e.Type] && e.Type != projector.SnapshotType
}

func (f *far[E]) Handle(_ context.Context, r *handler.Request) (*handler.Reply, error) {
	if f.mistake != nil {
		return nil, &handler.Error{Kind: handler.ErrBadRequest, Op: r.Op, Target: f.Name, Err: f.mistake}
	}
	switch r.Op {
	case handler.Describe:
		return &handler.Reply{Key: r.Key, Description: f.describe()}, nil
	case handler.Keys:
		return f.named(r)
	case handler.Project:
		return f.project(r)
	}
	return nil, handler.Unsupported(r, handler.Describe, handler.Keys, handler.Project)
}

func (f *far[E]) describe() *handler.Description {
	d := &handler.Description{Name: f.Name, Release: f.Release, Category: f.Category,
		Capabilities: []string{string(handler.Keys), string(handler.Project)}}
	if f.Metadata {
		d.Capabilities = append(d.Capabilities, handler.CapabilityMeta)
	}
	for _, w := range f.Events.List() {
		d.Events = append(d.Events, handler.Wire{Name: w.Name, Version: w.Version})
	}
	return d
}

// named answers which documents the entries concern. Of an entry whose documents cannot
// be told Project says why.
func (f *far[E]) named(r *handler.Request) (*handler.Reply, error) {
	reply := &handler.Reply{Key: r.Key}
	for i := range r.Events {
		if f.foreign(&r.Events[i]) {
			continue
		}
		e, err := f.event(&r.Events[i])
		if err != nil {
			continue
		}
		if keys, err := f.keys(e); err == nil {
			reply.Keys = append(reply.Keys, keys...)
		}
	}
	slices.Sort(reply.Keys)
	reply.Keys = slices.Compact(reply.Keys)
	if n := len(reply.Keys); n > handler.MaxDocumentKeys && len(r.Events) > 1 {
		return nil, tooLarge(r, fmt.Sprintf("at most %d documents", handler.MaxDocumentKeys), n)
	}
	return reply, nil
}

// tooLarge has the host send fewer entries at a time.
func tooLarge(r *handler.Request, wanted string, found int) error {
	return &handler.Error{Kind: eventstore.ErrTooLarge, Op: r.Op, Wanted: wanted, Found: fmt.Sprint(found)}
}

// project applies the entries, each by itself.
func (f *far[E]) project(r *handler.Request) (*handler.Reply, error) {
	b := &batch{request: r, docs: map[string][]byte{}, failed: map[string]eventstore.Position{}}
	for i := range r.Events {
		e := &r.Events[i]
		if f.foreign(e) {
			continue
		}
		if first, behind := b.failed[e.Stream.Key()]; behind {
			b.fail(e, fmt.Errorf("it comes behind the entry at position %v under the same key, which failed", first))
			continue
		}
		if err := f.apply(b, e); err != nil {
			b.fail(e, err)
		}
	}
	if n := max(len(b.reply.Commands), len(b.reply.Timers)); n > handler.MaxIssues && len(r.Events) > 1 {
		return nil, tooLarge(r, fmt.Sprintf("at most %d commands and timers each", handler.MaxIssues), n)
	}
	return b.done(), nil
}

// apply applies one entry, or changes nothing.
func (f *far[E]) apply(b *batch, entry *handler.Entry) error {
	e, err := f.event(entry)
	if err != nil {
		return err
	}
	docs := &Docs{batch: b, entry: entry}
	if docs.named, err = f.keys(e); err != nil {
		return err
	}
	if err := contained(func() error { return f.Apply(e, docs) }); err != nil {
		return err
	}
	if docs.mistake != nil {
		return docs.mistake
	}
	b.take(docs)
	return nil
}

func (f *far[E]) keys(e projector.Event[E]) (keys []string, err error) {
	if f.Keys == nil {
		return []string{string(e.Stream)}, nil
	}
	err = contained(func() error {
		keys = f.Keys(e)
		return nil
	})
	for _, k := range keys {
		if k == "" || len(k) > handler.MaxDocumentKey {
			return nil, fmt.Errorf("wanted keys of documents of 1 to %d bytes, found %d", handler.MaxDocumentKey, len(k))
		}
	}
	return keys, err
}

// event decodes an entry.
func (f *far[E]) event(e *handler.Entry) (projector.Event[E], error) {
	entry := eventstore.Entry{Event: eventstore.Event{ID: e.ID, Type: e.Type, Version: e.Version, ContentType: e.ContentType, Data: e.Data, Metadata: e.Metadata},
		Stream: e.Stream, Seqno: e.Seqno, Position: e.Position, Time: e.Time}
	if entry.ContentType == "" {
		entry.ContentType = schema.JSON.ContentType()
	}
	events, err := projector.Decode(f.Events, []eventstore.Entry{entry})
	if err != nil {
		return projector.Event[E]{}, errors.Unwrap(err) // the host knows which entry it is
	}
	return events[0], nil
}

// contained calls f and returns its error or its panic.
func contained(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return f()
}
