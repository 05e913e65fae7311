package wire

import (
	"runtime"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

// kept keeps what was decoded from being collected.
var kept []any

// inMemory is by how much the live heap grows by f.
func inMemory(f func()) int {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int(after.HeapAlloc) - int(before.HeapAlloc)
}

// The weight of a message bounds what it is in memory with what is made of it, and is not
// many times that; that of an ordinary one is about its size.
func TestWeight(t *testing.T) {
	events := func(n int, e *wattlev1.Event) (all []*wattlev1.Event) {
		for range n {
			all = append(all, proto.CloneOf(e))
		}
		return all
	}
	batch := func(n int, e *wattlev1.Event) []*wattlev1.Batch {
		return []*wattlev1.Batch{{Id: eventstore.NewUUID().String(), Stream: "account-a", Events: events(n, e)}}
	}
	for name, d := range map[string]struct {
		m    proto.Message
		most float64 // times what it is
	}{
		"empty events":  {&wattlev1.AppendRequest{Batches: batch(10_000, &wattlev1.Event{})}, 3},
		"small events":  {&wattlev1.ProduceRequest{Batches: batch(10_000, &wattlev1.Event{Type: "t", Data: []byte("{}")})}, 3},
		"metadata":      {&wattlev1.PublishRequest{Events: events(1000, &wattlev1.Event{Type: "t", Metadata: map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}})}, 3},
		"one large":     {&wattlev1.AppendRequest{Batches: batch(1, &wattlev1.Event{Type: "t", Data: make([]byte, 4<<20)})}, 1.1},
		"empty batches": {&wattlev1.AppendRequest{Batches: make([]*wattlev1.Batch, 5000)}, 3},
		"names":         {&wattlev1.ReadFeedRequest{Filter: &wattlev1.Filter{Types: slices.Repeat([]string{"t"}, 10_000)}}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			if r, ok := d.m.(*wattlev1.AppendRequest); ok {
				for i, b := range r.GetBatches() {
					if b == nil {
						r.Batches[i] = &wattlev1.Batch{}
					}
				}
			}
			data, err := proto.Marshal(d.m)
			if err != nil {
				t.Fatal(err)
			}
			weight := Weight(d.m)
			is := inMemory(func() {
				m := d.m.ProtoReflect().New().Interface()
				if err := proto.Unmarshal(data, m); err != nil {
					t.Fatal(err)
				}
				kept = append(kept, m)
				if r, ok := m.(interface {
					GetBatches() []*wattlev1.Batch
					GetGuards() []*wattlev1.Guard
				}); ok {
					a, _ := ToAppend(r.GetBatches(), r.GetGuards()) // what is refused takes less
					kept = append(kept, a)
				}
			})
			kept = nil
			t.Logf("%d bytes, %d in memory, weight %d", len(data), is, weight)
			if is > 64<<10 && (weight < is || float64(weight) > d.most*float64(is)) {
				t.Errorf("weight %d of what takes %d", weight, is)
			}
		})
	}
}
