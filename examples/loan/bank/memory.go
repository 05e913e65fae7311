// MemoryView: the read model in the memory of this process.

package bank

import (
	"context"
	"iter"
	"maps"
	"sync"

	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/projector"
)

// MemoryView keeps the read model in memory. The zero value is ready.
type MemoryView struct {
	mu   sync.Mutex
	docs map[string]loan.Application
}

// Handler folds events into the model. Its checkpoint is in memory too, so both
// begin anew with the process.
func (v *MemoryView) Handler(events *schema.Registry[loan.Event]) projector.Handler {
	return projector.MemoryBatch(events, func(_ context.Context, batch []projector.Event[loan.Event]) error {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.docs == nil {
			v.docs = map[string]loan.Application{}
		}
		for _, e := range batch {
			key := e.Stream.Key()
			v.docs[key] = loan.Apply(v.docs[key], e.Value)
		}
		return nil
	})
}

// Version is 1: every process builds the model anew.
func (v *MemoryView) Version() int { return 1 }

// Applications yields the model as of one moment.
func (v *MemoryView) Applications(context.Context) iter.Seq2[loan.Application, error] {
	return func(yield func(loan.Application, error) bool) {
		v.mu.Lock()
		docs := maps.Clone(v.docs)
		v.mu.Unlock()
		for _, a := range docs {
			if !yield(a, nil) {
				return
			}
		}
	}
}
