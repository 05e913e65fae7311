// Package documentstest is what every guest.Documents must do.
//
//	func TestDocuments(t *testing.T) {
//		documentstest.Run(t, func(t *testing.T) guest.Documents { return &guest.MemoryDocuments{} })
//	}
package documentstest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
)

// Run runs the suite. open returns documents without any content.
func Run(t *testing.T, open func(t *testing.T) guest.Documents) {
	for _, c := range []struct {
		rule string
		f    func(*env)
	}{
		{"a document comes back to the byte", bytesStay},
		{"documents and checkpoint move as one", asOne},
		{"a step from another checkpoint is fenced, and its function is not called", fenced},
		{"versions and projectors are apart, backends of one are not", apart},
		{"what a step parks is parked with it", parks},
		{"Read returns what there is, Write removes and makes", readAndWrite},
		{"steps of several lanes on the same documents lose nothing", lanes},
		{"any history agrees with a map", histories},
	} {
		t.Run(c.rule, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			t.Cleanup(cancel)
			c.f(&env{T: t, ctx: ctx, docs: open(t), at: map[projector.Key]projector.Checkpoint{}})
		})
	}
}

// env is one case's documents, and the checkpoints that it believes in.
type env struct {
	*testing.T
	ctx  context.Context
	docs guest.Documents
	at   map[projector.Key]projector.Checkpoint
}

var key = projector.Key{Projector: "p", Version: 1}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// next is a step from the last checkpoint of a key.
func (e *env) next(key projector.Key) projector.Step {
	from := e.at[key]
	to := projector.Checkpoint{Epoch: max(from.Epoch, 1), Holder: eventstore.UUID{1}, Position: from.Position + 1}
	to.Mark = eventstore.PositionMark{Position: to.Position, ID: eventstore.UUID{2}}
	return projector.Step{Key: key, From: from, To: to, Batch: []eventstore.Entry{{Stream: "a-1", Seqno: 1, Position: to.Position}}}
}

// do does the next step of a key.
func (e *env) do(key projector.Key, f func(ctx context.Context, tx guest.Tx) error) error {
	s := e.next(key)
	err := e.docs.Step(e.ctx, s, f)
	if err == nil {
		e.at[key] = s.To
	}
	return err
}

func (e *env) put(key projector.Key, docs map[string]string) {
	e.Helper()
	e.ok(e.do(key, func(ctx context.Context, tx guest.Tx) error { return tx.Write(ctx, asBytes(docs), nil) }))
}

func asBytes(docs map[string]string) map[string][]byte {
	b := map[string][]byte{}
	for k, v := range docs {
		b[k] = []byte(v)
	}
	return b
}

// want holds what is kept of a version against what it is to be.
func (e *env) want(name string, version int, want map[string]string) {
	e.Helper()
	var keys []string
	got := map[string]string{}
	for d, err := range e.docs.All(e.ctx, name, version) {
		e.ok(err)
		keys = append(keys, d.Key)
		got[d.Key] = string(d.Data)
	}
	if !maps.Equal(got, want) || !slices.IsSorted(keys) {
		e.Fatalf("documents of %s/%d: %q in the order %q, want %q", name, version, got, keys, want)
	}
	for k, doc := range want {
		one, found, err := e.docs.Get(e.ctx, name, version, k)
		if e.ok(err); !found || string(one) != doc {
			e.Fatalf("document %q: %q, %v, want %q", k, one, found, doc)
		}
	}
}

func bytesStay(e *env) {
	docs := map[string]string{}
	for i, d := range []string{`{}`, `null`, `0`, `""`, ` { "b" : 1.50 ,	"a":1e400, "b":[ ]}` + "\n", `{"a":1,"a":2}`, `"\u0000\ud800 \u00e9 é \/"`,
		`12345678901234567890.123456789012345678901234567890`, `[[[[[[[[[[[[]]]]]]]]]]]]`, `"'; drop table x; --"`} {
		docs[fmt.Sprint("doc ", i)] = d
	}
	docs["ké'\"\\\n\t%_ "] = `"odd key"`
	docs["a b"], docs["A"], docs["ab"], docs["\U0010ffff"] = "1", "2", "3", "4"
	long := make([]byte, handler.MaxDocumentKey)
	for i := range long {
		long[i] = 'x'
	}
	docs[string(long)] = `"` + string(make([]byte, 0)) + `"`
	e.put(key, docs)
	e.want("p", 1, docs)
	e.ok(e.do(key, func(ctx context.Context, tx guest.Tx) error {
		read, err := tx.Read(ctx, slices.Collect(maps.Keys(docs)))
		for k, d := range docs {
			if string(read[k]) != d {
				e.Errorf("read %q: %q, want %q", k, read[k], d)
			}
		}
		return err
	}))
}

var errCase = errors.New("error of the case")

func asOne(e *env) {
	e.put(key, map[string]string{"a": "1"})
	for name, f := range map[string]func(ctx context.Context, tx guest.Tx) error{
		"error": func(context.Context, guest.Tx) error { return errCase },
		"panic": func(context.Context, guest.Tx) error { panic(errCase) },
	} {
		err := caught(func() error {
			return e.do(key, func(ctx context.Context, tx guest.Tx) error {
				if err := tx.Write(ctx, asBytes(map[string]string{"b": "2"}), []string{"a"}); err != nil {
					return err
				}
				return f(ctx, tx)
			})
		})
		if !errors.Is(err, errCase) {
			e.Fatalf("%s: %v", name, err)
		}
		e.want("p", 1, map[string]string{"a": "1"})
		kept, err := e.docs.Keeps().Load(e.ctx, key)
		if e.ok(err); !kept.Same(e.at[key]) {
			e.Fatalf("%s: checkpoint %v, want %v", name, kept, e.at[key])
		}
	}
	e.put(key, map[string]string{"a": "3"})
	kept, err := e.docs.Keeps().Load(e.ctx, key)
	if e.ok(err); kept.Position != 2 {
		e.Fatalf("checkpoint %v, want position 2", kept)
	}
	ctx, cancel := context.WithCancel(e.ctx)
	err = e.docs.Step(ctx, e.next(key), func(ctx context.Context, tx guest.Tx) error {
		defer cancel()
		return tx.Write(ctx, asBytes(map[string]string{"a": "4"}), nil)
	})
	if err == nil {
		e.Fatal("a step whose context ended went through")
	}
	e.want("p", 1, map[string]string{"a": "3"})
}

// caught returns f's error or what it panics with.
func caught(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	return f()
}

func fenced(e *env) {
	e.put(key, map[string]string{"a": "1"})
	stale := e.next(key)
	stale.From.Epoch++
	for _, s := range []projector.Step{stale, {Key: key, To: stale.To, Batch: stale.Batch}} {
		err := e.docs.Step(e.ctx, s, func(context.Context, guest.Tx) error {
			e.Error("called")
			return nil
		})
		if !errors.Is(err, eventstore.ErrFenced) {
			e.Errorf("from %v: %v", s.From, err)
		}
	}
	e.want("p", 1, map[string]string{"a": "1"})
}

func apart(e *env) {
	two, q, part := projector.Key{Projector: "p", Version: 2}, projector.Key{Projector: "q", Version: 1}, projector.Key{Projector: "p/east", Version: 1}
	e.put(key, map[string]string{"a": "1"})
	e.put(two, map[string]string{"a": "2"})
	e.put(q, map[string]string{"b": "3"})
	e.put(part, map[string]string{"c": "4"})
	e.want("p", 1, map[string]string{"a": "1", "c": "4"})
	e.want("p", 2, map[string]string{"a": "2"})
	e.want("q", 1, map[string]string{"b": "3"})
	e.ok(e.docs.Clear(e.ctx, "p", 1))
	e.want("p", 1, map[string]string{})
	e.want("p", 2, map[string]string{"a": "2"})
	if _, found, err := e.docs.Get(e.ctx, "p", 1, "a"); found || err != nil {
		e.Errorf("%v, %v", found, err)
	}
}

func parks(e *env) {
	control, ok := e.docs.Keeps().(projector.Control)
	if !ok {
		e.Fatalf("%T is no projector.Control", e.docs.Keeps())
	}
	e.ok(control.Update(e.ctx, "p", func([]projector.Version) ([]projector.Version, error) {
		return []projector.Version{{Key: key, Lanes: make([]projector.Checkpoint, 1), Scope: projector.Scope{Categories: []eventstore.Category{"a"}}}}, nil
	}))
	s := e.next(key)
	s.Park = []projector.Parked{{StreamKey: "1", Stream: "a-1", Seqno: 1, Position: 1, Type: "x", Queue: []projector.Queued{{Stream: "a-1", From: 1}}, Through: 1, Count: 1}}
	e.ok(e.docs.Step(e.ctx, s, func(ctx context.Context, tx guest.Tx) error {
		return tx.Write(ctx, asBytes(map[string]string{"a": "1"}), nil)
	}))
	lane, err := control.Lane(e.ctx, key)
	if e.ok(err); len(lane.Parked) != 1 || lane.Parked[0].StreamKey != "1" {
		e.Errorf("parked %v", lane.Parked)
	}
	e.want("p", 1, map[string]string{"a": "1"})
}

func readAndWrite(e *env) {
	e.put(key, map[string]string{"a": "1", "b": "2"})
	e.ok(e.do(key, func(ctx context.Context, tx guest.Tx) error {
		docs, err := tx.Read(ctx, []string{"a", "b", "c", "d"})
		if len(docs) != 2 || string(docs["a"]) != "1" || string(docs["b"]) != "2" {
			e.Errorf("read %q", docs)
		}
		if err != nil {
			return err
		}
		return tx.Write(ctx, asBytes(map[string]string{"b": "3", "c": "4", "unread": "5"}), []string{"a", "d", "never"})
	}))
	e.want("p", 1, map[string]string{"b": "3", "c": "4", "unread": "5"})
	e.ok(e.do(key, func(ctx context.Context, tx guest.Tx) error { // nothing comes of it
		docs, err := tx.Read(ctx, []string{"b", "none", "never"})
		if len(docs) != 1 {
			e.Errorf("read %q", docs)
		}
		return err
	}))
	e.want("p", 1, map[string]string{"b": "3", "c": "4", "unread": "5"})
	e.put(key, map[string]string{"b": "6", "unread": "7"})
	e.want("p", 1, map[string]string{"b": "6", "c": "4", "unread": "7"})
}

// lanes counts on the same few documents from several lanes at once; now and then one is
// removed when its count is even, and begun again, with what it had in another one.
func lanes(e *env) {
	const lanes, steps = 6, 25
	var group sync.WaitGroup
	for lane := range lanes {
		group.Go(func() {
			mine := &env{T: e.T, ctx: e.ctx, docs: e.docs, at: map[projector.Key]projector.Checkpoint{}}
			r := rand.New(rand.NewPCG(7, uint64(lane)))
			k := projector.Key{Projector: "p", Version: 1, Lane: lane}
			for range steps {
				if err := mine.do(k, func(ctx context.Context, tx guest.Tx) error { return count(ctx, tx, r) }); err != nil {
					e.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	sum := 0
	for d, err := range e.docs.All(e.ctx, "p", 1) {
		e.ok(err)
		n, err := strconv.Atoi(string(d.Data))
		e.ok(err)
		sum += n
	}
	if sum != 2*lanes*steps {
		e.Errorf("counted %d, want %d", sum, 2*lanes*steps)
	}
}

func count(ctx context.Context, tx guest.Tx, r *rand.Rand) error {
	keys := []string{fmt.Sprint("n", r.IntN(3)), fmt.Sprint("n", 3+r.IntN(3)), "kept"}
	docs, err := tx.Read(ctx, keys)
	if err != nil {
		return err
	}
	n := map[string]int{}
	for _, k := range keys {
		n[k], _ = strconv.Atoi(string(docs[k]))
	}
	n[keys[0]]++
	n[keys[1]]++
	var remove []string
	if r.IntN(3) == 0 {
		n["kept"] += n[keys[0]]
		delete(n, keys[0])
		remove = append(remove, keys[0])
	}
	put := map[string][]byte{}
	for k, v := range n {
		put[k] = []byte(strconv.Itoa(v))
	}
	return tx.Write(ctx, put, remove)
}

func histories(e *env) {
	seed := rand.Uint64()
	e.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	model := map[projector.Key]map[string]string{}
	keys := []projector.Key{key, {Projector: "p", Version: 2}, {Projector: "q", Version: 1}}
	for range 60 {
		k := keys[r.IntN(len(keys))]
		if r.IntN(15) == 0 {
			e.ok(e.docs.Clear(e.ctx, k.Projector, k.Version))
			model[k] = map[string]string{}
		}
		next := maps.Clone(model[k])
		if next == nil {
			next = map[string]string{}
		}
		fail := r.IntN(4) == 0
		err := e.do(k, func(ctx context.Context, tx guest.Tx) error { return e.change(ctx, tx, r, next, fail) })
		if fail != errors.Is(err, errCase) || !fail && err != nil {
			e.Fatal(err)
		}
		if !fail {
			model[k] = next
		}
		e.want(k.Projector, k.Version, model[k])
	}
}

// change changes some documents and the model alike.
func (e *env) change(ctx context.Context, tx guest.Tx, r *rand.Rand, next map[string]string, fail bool) error {
	read := []string{}
	for i := range 6 {
		if r.IntN(2) == 0 {
			read = append(read, fmt.Sprint("d", i))
		}
	}
	docs, err := tx.Read(ctx, read)
	if err != nil {
		return err
	}
	for _, k := range read {
		if want, there := next[k]; string(docs[k]) != want || there != (docs[k] != nil) {
			e.Errorf("read %q: %q, want %q", k, docs[k], want)
		}
	}
	put, remove := map[string][]byte{}, []string(nil)
	for i := range 6 {
		k := fmt.Sprint("d", i)
		switch r.IntN(4) {
		case 0:
			next[k] = fmt.Sprintf(`{"n": %d}`, r.IntN(1000))
			put[k] = []byte(next[k])
		case 1:
			delete(next, k)
			remove = append(remove, k)
		}
	}
	if err := tx.Write(ctx, put, remove); err != nil {
		return err
	}
	if fail {
		return errCase
	}
	return nil
}
