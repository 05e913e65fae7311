// What the tests of several backends share: a store over two, and a read model that
// keeps each checkpoint under its key and commits like a database.

package projector_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector"
)

// routed is a store over two backends: red holds account and item, blue order; third
// is empty.
type routed struct {
	*env
	red, blue *bentLog
}

func newRouted(t testing.TB, o *eventstore.Options) *routed {
	t.Helper()
	r := &routed{red: &bentLog{Log: memlog.New(nil)}, blue: &bentLog{Log: memlog.New(nil)}}
	r.env = &env{t: t, marks: map[eventstore.Stream]eventstore.Mark{}}
	r.store = eventstore.New(r.route(), o)
	for _, c := range []eventstore.Category{"account", "item", "order"} {
		r.ok(r.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c, TrimFreely: true}))
	}
	return r
}

func (r *routed) route() *eventstore.Route {
	r.t.Helper()
	route, err := eventstore.NewRoute([]eventstore.Backend{{Name: "red", Log: r.red}, {Name: "blue", Log: r.blue}, {Name: "third", Log: memlog.New(nil)}},
		&eventstore.RouteOptions{Default: "third", Table: map[eventstore.Category]string{"account": "red", "item": "red", "order": "blue"}})
	r.ok(err)
	return route
}

// over returns a projector of account and order.
func (r *routed) over(h projector.Handler, o ...projector.Options) *projector.Projector {
	var with projector.Options
	if len(o) > 0 {
		with = o[0]
	}
	with.Categories = append(with.Categories, "order")
	return projector.New(r.store, "p", "account", h, &with)
}

func (r *routed) down(log *bentLog, err error) { log.set(func(l *bentLog) { l.down = err }) }

// The keys of the checkpoints in red and in blue.
var (
	keyRed  = projector.Key{Projector: "p", Version: 1}
	keyBlue = projector.Key{Projector: "p/blue", Version: 1}
)

// tables is a read model of several checkpoints: effects of a batch and its checkpoint
// become visible together.
type tables struct {
	mu    sync.Mutex
	kept  map[projector.Key]projector.Checkpoint
	model map[projector.Key][]eventstore.Entry // handled, in order
	fail  func(key projector.Key, point string) error
}

func (d *tables) point(key projector.Key, name string) error {
	d.mu.Lock()
	fail := d.fail
	d.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(key, name)
}

func (d *tables) Load(ctx context.Context, key projector.Key) (projector.Checkpoint, error) {
	if err := d.point(key, "load"); err != nil {
		return projector.Checkpoint{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept[key], ctx.Err()
}

func (d *tables) Handle(ctx context.Context, s projector.Step) error {
	key, from, to, batch := s.Key, s.From, s.To, s.Batch
	if err := d.point(key, "handle"); err != nil || ctx.Err() != nil {
		return cmpErr(err, ctx.Err())
	}
	if err := d.commit(key, from, to, batch); err != nil {
		return err
	}
	return d.point(key, "handled")
}

func (d *tables) commit(key projector.Key, from, to projector.Checkpoint, batch []eventstore.Entry) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.kept[key].Same(from) {
		return projector.FencedError(key, from, d.kept[key])
	}
	if d.kept == nil {
		d.kept, d.model = map[projector.Key]projector.Checkpoint{}, map[projector.Key][]eventstore.Entry{}
	}
	d.kept[key], d.model[key] = to, append(d.model[key], batch...)
	return nil
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *tables) failing(f func(key projector.Key, point string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = f
}

// handled is how many entries were handled under a key.
func (d *tables) handled(key projector.Key) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.model[key])
}

func (d *tables) checkpoint(key projector.Key) projector.Checkpoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept[key]
}

// check holds the model against the logs: under each key exactly the entries of its
// backend's categories through its checkpoint, each once and in order.
func (d *tables) check(r *routed) {
	r.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	logs := map[projector.Key]*bentLog{keyRed: r.red, keyBlue: r.blue}
	categories := map[projector.Key]eventstore.Category{keyRed: "account", keyBlue: "order"}
	for _, key := range slices.Collect(maps.Keys(d.kept)) {
		if logs[key] == nil {
			r.t.Fatalf("a checkpoint under %v", key)
		}
		var want []eventstore.UUID
		f := eventstore.Filter{Categories: []eventstore.Category{categories[key]}}
		for e, err := range eventstore.New(logs[key].Log, nil).Feed(context.Background(), 0, f) {
			if r.ok(err); e.Position <= d.kept[key].Position {
				want = append(want, e.ID)
			}
		}
		var got []eventstore.UUID
		for _, e := range d.model[key] {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, want) {
			r.t.Fatalf("%v at %v has handled %d entries, want %d", key, d.kept[key], len(got), len(want))
		}
	}
}

func order(i int) eventstore.Stream { return eventstore.Stream(fmt.Sprintf("order-%d", i)) }
