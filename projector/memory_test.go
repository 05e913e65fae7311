// Checkpoints in memory: whoever comes from another one changes nothing.

package projector_test

import (
	"context"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

func TestMemoryIsFenced(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-a", 5)
	calls := 0
	for name, h := range map[string]projector.Handler{
		"events":  projector.Memory(events, func(context.Context, projector.Event[Event]) error { calls++; return nil }),
		"batches": projector.MemoryBatch(events, func(context.Context, []projector.Event[Event]) error { calls++; return nil }),
		"sink":    projector.Sink(&projector.MemoryCheckpoints{}, func(context.Context, projector.Key, []eventstore.Entry) error { calls++; return nil }),
	} {
		p := projector.New(e.store, "p", "account", h)
		if _, err := p.CatchUp(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		kept, err := h.Load(t.Context(), p.Key())
		e.ok(err)
		for what, bend := range map[string]func(*projector.Checkpoint){
			"epoch":    func(c *projector.Checkpoint) { c.Epoch-- },
			"holder":   func(c *projector.Checkpoint) { c.Holder = eventstore.NewUUID() },
			"position": func(c *projector.Checkpoint) { c.Position-- },
			"none":     func(c *projector.Checkpoint) { *c = projector.Checkpoint{} },
		} {
			from, to := kept, kept
			bend(&from)
			to.Epoch, to.Position = to.Epoch+1, to.Position+1
			calls = 0
			for _, batch := range [][]eventstore.Entry{nil, e.all("account")[:1]} {
				wantKind(t, h.Handle(t.Context(), projector.Step{Key: p.Key(), From: from, To: to, Batch: batch}), eventstore.ErrFenced)
			}
			if now, _ := h.Load(t.Context(), p.Key()); !now.Same(kept) || calls != 0 {
				t.Errorf("%s, from another %s: %d calls, kept %v, want %v", name, what, calls, now, kept)
			}
		}
	}
}
