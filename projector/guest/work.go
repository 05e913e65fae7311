// What a batch does inside the transaction, and what it has done elsewhere.

package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/timer"
)

// ErrEntry: a handler says that it cannot apply an entry. It is a kind of handler.Error,
// as the cause of the projector.EntryError that names the entry.
var ErrEntry = errors.New("entry cannot be applied")

// work is one attempt of a step.
type work struct {
	*host
	key     projector.Key
	tx      Tx
	docs    map[string][]byte // that were read, as they are now
	put     map[string][]byte
	removed map[string]bool
	effects []effect
}

// effect is what an entry calls for outside of the documents.
type effect struct {
	entry    eventstore.Entry
	commands []handler.Issue
	timers   []handler.Timer
}

func (w *work) do(ctx context.Context, calls []call) (err error) {
	var keys []string
	for i := range calls {
		keys = append(keys, calls[i].keys...)
	}
	slices.Sort(keys)
	if keys = slices.Compact(keys); len(keys) > 0 {
		if w.docs, err = w.tx.Read(ctx, keys); err != nil {
			return err
		}
	}
	for i := range calls {
		if err := w.project(ctx, &calls[i]); err != nil {
			return err
		}
	}
	if len(w.put)+len(w.removed) > 0 {
		var remove []string
		for key := range w.removed {
			remove = append(remove, key)
		}
		slices.Sort(remove)
		if err := w.tx.Write(ctx, w.put, remove); err != nil {
			return err
		}
	}
	// Last, so that as little as can be is done in vain; before the checkpoint, which says
	// that it was done.
	for i := range w.effects {
		if err := w.have(ctx, &w.effects[i]); err != nil {
			return err
		}
	}
	return nil
}

// project makes one call and takes in what it answers.
func (w *work) project(ctx context.Context, c *call) error {
	r := request(handler.Project, w.key, c)
	size := c.bytes
	for _, key := range c.keys {
		if doc, ok := w.docs[key]; ok {
			if r.Docs == nil {
				r.Docs = map[string][]byte{}
			}
			r.Docs[key] = doc
			size += documentBytes + escapedBytes*len(key) + len(doc)
		}
	}
	if most := w.caller.Limits().RequestBytes; size > most {
		return &callFailure{c.batch, &handler.Error{Kind: eventstore.ErrTooLarge, Op: r.Op, Target: w.caller.Description().Name, Stream: c.batch[0].Stream,
			Wanted: fmt.Sprintf("entries and their documents within %d bytes", most), Found: fmt.Sprintf("%d bytes in %d documents and %d entries", size, len(r.Docs), len(c.entries))}}
	}
	reply, err := w.caller.Call(ctx, r)
	if err == nil {
		err = w.check(c, reply)
	}
	if err != nil {
		return &callFailure{c.batch, err}
	}
	if i := firstFailed(c, reply); i >= 0 {
		return &callFailure{c.batch[i : i+1], w.entryError(c, reply, i)}
	}
	w.change(reply)
	w.gather(c, reply)
	return nil
}

// check checks what needs to be known of the documents.
func (w *work) check(c *call, reply *handler.Reply) error {
	of := func(key string) error {
		if w.named {
			if _, ok := slices.BinarySearch(c.keys, key); !ok {
				return w.badReply(handler.Project, "documents to be changed that were named by keys", fmt.Sprintf("%q", key))
			}
		}
		return w.checkKey(handler.Project, key)
	}
	for key, doc := range reply.Put {
		if err := of(key); err != nil {
			return err
		}
		if !json.Valid(doc) {
			return w.badReply(handler.Project, "documents of JSON", fmt.Sprintf("document %q", key))
		}
	}
	for _, key := range reply.Delete {
		if err := of(key); err != nil {
			return err
		}
	}
	return nil
}

// firstFailed returns which entry of the call is the first that failed, -1 if none.
func firstFailed(c *call, reply *handler.Reply) int {
	return slices.IndexFunc(c.entries, func(e handler.Entry) bool {
		return slices.ContainsFunc(reply.Failed, func(f handler.EntryFailure) bool { return f.Position == e.Position })
	})
}

func (w *work) entryError(c *call, reply *handler.Reply, i int) error {
	e := &handler.Error{Kind: ErrEntry, Op: handler.Project, Target: w.caller.Description().Name, Stream: c.entries[i].Stream}
	for _, f := range reply.Failed {
		if f.Position == c.entries[i].Position {
			e.Found = f.Message
		}
	}
	return e
}

// change makes the documents those that the call has left.
func (w *work) change(reply *handler.Reply) {
	if w.docs == nil {
		w.docs = map[string][]byte{}
	}
	for key, doc := range reply.Put {
		w.docs[key], w.put[key] = doc, doc
		delete(w.removed, key)
	}
	for _, key := range reply.Delete {
		delete(w.docs, key)
		delete(w.put, key)
		w.removed[key] = true
	}
}

// gather notes what the entries of the call want done elsewhere, in their order.
func (w *work) gather(c *call, reply *handler.Reply) {
	if len(reply.Commands)+len(reply.Timers) == 0 {
		return
	}
	by := map[eventstore.Position]*effect{}
	for i, e := range c.batch {
		if !c.entries[i].Quiet {
			by[e.Position] = &effect{entry: e}
		}
	}
	for _, cmd := range reply.Commands {
		if f := by[cmd.Position]; f != nil {
			f.commands = append(f.commands, cmd)
		}
	}
	for _, t := range reply.Timers {
		if f := by[t.Position]; f != nil {
			f.timers = append(f.timers, t)
		}
	}
	for _, e := range c.batch {
		if f := by[e.Position]; f != nil && len(f.commands)+len(f.timers) > 0 {
			w.effects = append(w.effects, *f)
		}
	}
}

// have has an effect, once for its ID wherever IDs are known.
func (w *work) have(ctx context.Context, f *effect) error {
	name := w.key.Name()
	one := []eventstore.Entry{f.entry}
	for i, c := range f.commands {
		if w.o.Issue == nil {
			return w.cannot("Options.Issue", "a command, "+c.Type)
		}
		cmd := projector.Command[handler.Issue]{ID: projector.CommandUUID(name, f.entry, i), Entry: f.entry, Value: c}
		if err := projector.Contain(one, func() error { return w.o.Issue(ctx, cmd) }); err != nil {
			return err
		}
	}
	for i, t := range f.timers {
		if w.o.Timers == nil {
			return w.cannot("Options.Timers", "a timer, "+t.Name)
		}
		id := projector.CommandUUID(name+timersOf, f.entry, i)
		if err := projector.Contain(one, func() error { return w.set(ctx, t, id, f.entry) }); err != nil {
			return err
		}
	}
	return nil
}

// timersOf makes the IDs of timers others than those of commands.
const timersOf = "/timers"

func (w *work) set(ctx context.Context, t handler.Timer, id eventstore.UUID, e eventstore.Entry) (err error) {
	options := []timer.Option{timer.ID(id), timer.CausedBy(e)}
	if !t.Cancel {
		_, err = w.o.Timers.Set(ctx, t.Name, t.Due, t.Data, options...)
		return err
	}
	if _, err = w.o.Timers.Cancel(ctx, t.Name, options...); errors.Is(err, timer.ErrFired) || errors.Is(err, timer.ErrNoTimer) {
		return nil // it is over, as was wanted
	}
	return err
}

func (w *work) cannot(wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "project " + w.key.String(), Wanted: wanted + " for what the handler calls for", Found: found}
}
