// The rules for handlers that project.

package conformance

import (
	"bytes"
	"maps"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

var projects = []handler.Op{handler.Project}

// projections are tried on the entries of Options.Entries.
var projections = []rule{
	{"documents are the same in whatever batches their entries come", projects, anyBatches},
	{"commands and timers are those of their entries in whatever batches these come", projects, sameEffects},
	{"the documents are those wanted", projects, wantedDocuments},
	{"equal batches have equal replies", projects, pureBatches},
	{"only documents that it asked for are changed", []handler.Op{handler.Project, handler.Keys}, onlyNamed},
	{"quiet entries change documents and nothing else", projects, quietEntries},
	{"a batch of nothing changes nothing", projects, emptyBatch},
}

// maxCalls bounds how many calls one way through the entries takes.
const maxCalls = 500

// projection is a handler's way through entries.
type projection struct {
	r    *run
	docs map[string][]byte
	// seen looks at each request and its reply.
	seen func(q *handler.Request, reply *handler.Reply)
}

// through projects entries in batches of a size, and returns the documents.
func (p *projection) through(entries []handler.Entry, size int) (map[string][]byte, bool) {
	p.docs = map[string][]byte{}
	for batch := range slices.Chunk(entries, max(1, size)) {
		if !p.step(batch) {
			return nil, false
		}
	}
	return p.docs, true
}

// step is one batch: what a host does with it, but for the store.
func (p *projection) step(batch []handler.Entry) bool {
	q := &handler.Request{Op: handler.Project, Projector: "conformance", ProjectorVersion: 1, Events: batch, Docs: map[string][]byte{}}
	if p.r.result.Description.Can(handler.Keys) {
		named := *q
		named.Op, named.Docs = handler.Keys, nil
		keys := p.r.call("", &named)
		if keys == nil {
			return false
		}
		for _, k := range keys.Keys {
			if doc, ok := p.docs[k]; ok {
				q.Docs[k] = doc
			}
		}
		p.see(&named, keys)
	} else {
		q.Docs = maps.Clone(p.docs)
	}
	reply := p.r.call("", q)
	if reply == nil {
		return false
	}
	p.see(q, reply)
	for _, k := range reply.Delete {
		delete(p.docs, k)
	}
	maps.Copy(p.docs, reply.Put)
	return true
}

func (p *projection) see(q *handler.Request, reply *handler.Reply) {
	if p.seen != nil {
		p.seen(q, reply)
	}
}

// some are as many of the entries as are gone through one by one.
func (r *run) some() []handler.Entry { return r.o.Entries[:min(len(r.o.Entries), maxCalls)] }

func anyBatches(r *run) {
	entries := r.some()
	whole, ok := (&projection{r: r}).through(entries, r.caller.Limits().Batch)
	for _, size := range []int{1, 7} {
		if !ok {
			return
		}
		var docs map[string][]byte
		if docs, ok = (&projection{r: r}).through(entries, size); ok {
			r.compare(docs, whole)
		}
	}
}

// sameEffects compares what each entry calls for: an ID follows from the entry and from the
// place among those of the same entry, so neither may depend on the batch.
func sameEffects(r *run) {
	entries := r.some()
	alone, ok := r.effects(entries, 1)
	for _, size := range []int{2, 7, r.caller.Limits().Batch} {
		if !ok {
			return
		}
		var found map[eventstore.Position]string
		if found, ok = r.effects(entries, size); !ok {
			return
		}
		for _, e := range entries {
			if found[e.Position] != alone[e.Position] {
				r.found("", "wanted of the entry at position %v %s, found in batches of %d %s", e.Position, alone[e.Position], size, found[e.Position])
				return
			}
		}
	}
}

// effects are the commands and timers of each entry, in their order.
func (r *run) effects(entries []handler.Entry, size int) (map[eventstore.Position]string, bool) {
	by := map[eventstore.Position]*handler.Reply{}
	of := func(p eventstore.Position) *handler.Reply {
		if by[p] == nil {
			by[p] = &handler.Reply{}
		}
		return by[p]
	}
	p := &projection{r: r, seen: func(_ *handler.Request, reply *handler.Reply) {
		for _, c := range reply.Commands {
			of(c.Position).Commands = append(of(c.Position).Commands, c)
		}
		for _, t := range reply.Timers {
			of(t.Position).Timers = append(of(t.Position).Timers, t)
		}
	}}
	_, ok := p.through(entries, size)
	all := map[eventstore.Position]string{}
	for _, e := range entries {
		all[e.Position] = string(handler.AppendReply(nil, of(e.Position)))
	}
	return all, ok
}

func wantedDocuments(r *run) {
	if r.o.Documents == nil {
		return
	}
	if docs, ok := (&projection{r: r}).through(r.o.Entries, r.caller.Limits().Batch); ok {
		r.compare(docs, r.o.Documents)
	}
}

// compare notes the first documents that differ.
func (r *run) compare(docs, wanted map[string][]byte) {
	for _, k := range slices.Sorted(maps.Keys(wanted)) {
		if got, ok := docs[k]; !ok || !sameJSON(got, wanted[k]) {
			r.found(k, "wanted the document %s, found %s", wanted[k], or(got))
			return
		}
	}
	for _, k := range slices.Sorted(maps.Keys(docs)) {
		if _, ok := wanted[k]; !ok {
			r.found(k, "wanted no document, found %s", docs[k])
			return
		}
	}
}

func or(doc []byte) []byte {
	if doc == nil {
		return []byte("none")
	}
	return doc
}

func pureBatches(r *run) {
	p := &projection{r: r}
	n := 0
	p.seen = func(q *handler.Request, reply *handler.Reply) {
		if n++; n > 50 {
			return
		}
		again := r.call("", q)
		if again == nil {
			return
		}
		again.Key = reply.Key
		if a, b := handler.AppendReply(nil, reply), handler.AppendReply(nil, again); !bytes.Equal(a, b) {
			r.found("", "wanted %s, found %s", a, b)
		}
	}
	p.through(r.some(), 5)
}

func onlyNamed(r *run) {
	p := &projection{r: r}
	var named []string
	p.seen = func(q *handler.Request, reply *handler.Reply) {
		if q.Op == handler.Keys {
			named = reply.Keys
			return
		}
		changed := append(slices.Collect(maps.Keys(reply.Put)), reply.Delete...)
		slices.Sort(changed)
		for _, k := range changed {
			if !slices.Contains(named, k) {
				r.found(k, "wanted changes of %d documents that were asked for, found one of this", len(named))
				return
			}
		}
	}
	p.through(r.some(), 5)
}

func quietEntries(r *run) {
	loud := r.some()
	quiet := slices.Clone(loud)
	for i := range quiet {
		quiet[i].Quiet = true
	}
	p := &projection{r: r}
	p.seen = func(_ *handler.Request, reply *handler.Reply) {
		if n := len(reply.Commands) + len(reply.Timers); n > 0 {
			r.found("", "wanted no command and no timer, found %d", n)
		}
	}
	a, ok := p.through(quiet, 5)
	if !ok {
		return
	}
	if b, ok := (&projection{r: r}).through(loud, 5); ok {
		r.compare(a, b)
	}
}

func emptyBatch(r *run) {
	p := &projection{r: r, docs: map[string][]byte{}}
	if p.step(nil) && len(p.docs) > 0 {
		r.found("", "wanted no document, found %d", len(p.docs))
	}
}
