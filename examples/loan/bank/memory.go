// MemoryView: the read model in the memory of this process.

package bank

import (
	"context"
	"errors"
	"iter"
	"maps"
	"sync"

	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/projector"
)

// MemoryView keeps the read model in memory, with its checkpoints: both begin anew with
// the process. The zero value is ready. Several workers of the process may share its
// lanes, since each lane has its applications to itself.
type MemoryView struct {
	// Fold returns that of a version; nil: loan.Apply is that of all.
	Fold func(version int) Fold

	kept   projector.MemoryCheckpoints
	mu     sync.Mutex // held through a step, so that model and checkpoint move as one
	models map[int]map[string]loan.Application
}

// Control keeps the versions, in memory.
func (v *MemoryView) Control() projector.Control { return &v.kept }

// Version is 1: every process builds the model anew.
func (v *MemoryView) Version() int { return 1 }

// Handler folds events into a version.
func (v *MemoryView) Handler(version int) (projector.Handler, error) {
	h := &memoryHandler{MemoryCheckpoints: &v.kept, view: v, version: version, events: Events(), fold: loan.Apply}
	if v.Fold != nil {
		h.fold = v.Fold(version)
	}
	return h, nil
}

type memoryHandler struct {
	*projector.MemoryCheckpoints
	view    *MemoryView
	version int
	events  *schema.Registry[loan.Event]
	fold    Fold
}

// Handle keeps the changed documents when the checkpoint has moved, and else nothing.
func (h *memoryHandler) Handle(ctx context.Context, s projector.Step) error {
	batch, err := projector.Decode(h.events, s.Batch)
	if err != nil {
		return err
	}
	h.view.mu.Lock()
	defer h.view.mu.Unlock()
	model := h.view.model(h.version)
	changed := map[string]loan.Application{}
	for _, e := range batch {
		key := e.Stream.Key()
		doc, ok := changed[key]
		switch {
		case e.Seqno == 1: // also when the version was reset
			doc = loan.Application{}
		case !ok:
			doc = model[key]
		}
		changed[key] = h.fold(doc, e.Value)
	}
	if err := h.Save(ctx, s); err != nil {
		return err
	}
	maps.Copy(model, changed)
	return nil
}

// model of a version; v.mu is held.
func (v *MemoryView) model(version int) map[string]loan.Application {
	if v.models == nil {
		v.models = map[int]map[string]loan.Application{}
	}
	if v.models[version] == nil {
		v.models[version] = map[string]loan.Application{}
	}
	return v.models[version]
}

// Applications yields the live version as of one moment.
func (v *MemoryView) Applications(ctx context.Context) iter.Seq2[loan.Application, error] {
	return func(yield func(loan.Application, error) bool) {
		live, err := projector.NewReader(nil, Projection, &v.kept).Live(ctx)
		if err != nil && !errors.Is(err, projector.ErrNotRegistered) {
			yield(loan.Application{}, err)
			return
		}
		v.mu.Lock()
		docs := maps.Clone(v.model(live))
		v.mu.Unlock()
		for _, a := range docs {
			if !yield(a, nil) {
				return
			}
		}
	}
}
