// What a reactor does for entries that are quiet: nothing.

package projector

import (
	"context"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// plainly decodes an entry as its type.
type plainly struct{}

func (plainly) Decode(e eventstore.Entry) (string, error) { return e.Type, nil }

func TestReactorIsQuiet(t *testing.T) {
	store := eventstore.New(memlog.New(nil), nil)
	var reacted, issued []eventstore.Position
	p := NewReactor(store, "shipping", "order", &MemoryCheckpoints{}, ReactorOptions[string, eventstore.Position]{
		Events: plainly{},
		React: func(e Event[string]) ([]eventstore.Position, error) {
			reacted = append(reacted, e.Position)
			return []eventstore.Position{e.Position}, nil
		},
		Issue: func(_ context.Context, c Command[eventstore.Position]) error {
			issued = append(issued, c.Value)
			return nil
		},
	})
	if p.mistake != nil {
		t.Fatal(p.mistake)
	}
	var batch []eventstore.Entry
	for i := range 4 {
		batch = append(batch, eventstore.Entry{Event: eventstore.Event{ID: eventstore.NewUUID(), Type: "ordered"},
			Stream: "order-1", Seqno: eventstore.Seqno(i + 1), Position: eventstore.Position(i + 1)})
	}
	at := Checkpoint{}
	for _, step := range []struct {
		name string
		q    quiet
		want int // issued so far
	}{
		{"in the shadow", quiet{role: Shadow}, 0},
		{"live, behind what the old version did", quiet{role: Live, places: []uint64{3}}, 1},
		{"live", quiet{}, 5},
	} {
		to := Checkpoint{Epoch: at.Epoch + 1, Holder: eventstore.UUID{1}, Position: 4}
		ctx := context.WithValue(t.Context(), quietKey{}, step.q)
		if err := p.handler.Handle(ctx, Step{Key: p.key, From: at, To: to, Batch: batch}); err != nil {
			t.Fatal(step.name, err)
		}
		at = to
		if len(issued) != step.want || len(reacted) != step.want {
			t.Fatalf("%s: reacted to %v, issued %v; want %d each", step.name, reacted, issued, step.want)
		}
	}
	if issued[0] != 4 {
		t.Fatalf("issued %v; want the one at 4 first", issued)
	}
}
