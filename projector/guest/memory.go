// MemoryDocuments: documents in the memory of this process; the oracle for who keeps
// them elsewhere.

package guest

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/wattle-es/wattle/projector"
)

// MemoryDocuments keeps documents and checkpoints in memory, for the projectors of one
// process; they end with it. The zero value is ready. One step runs at a time.
type MemoryDocuments struct {
	kept projector.MemoryCheckpoints
	once sync.Once
	work chan struct{} // full through a step; not a mutex, so that who waits can give up
	mu   sync.RWMutex  // guards docs, never held for long
	docs map[of]map[string][]byte
}

// of names the documents of one version.
type of struct {
	name    string
	version int
}

func ofKey(key projector.Key) of { return of{key.Name(), key.Version} }

// Keeps returns the checkpoints, which are a projector.Control.
func (m *MemoryDocuments) Keeps() projector.Checkpoints { return &m.kept }

// Step does a step and what f does.
func (m *MemoryDocuments) Step(ctx context.Context, s projector.Step, f func(ctx context.Context, tx Tx) error) error {
	m.once.Do(func() { m.work = make(chan struct{}, 1) })
	select {
	case m.work <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-m.work }()
	kept, err := m.kept.Load(ctx, s.Key)
	if err != nil {
		return err
	}
	if !kept.Same(s.From) {
		return projector.FencedError(s.Key, s.From, kept)
	}
	tx := &memoryTx{m: m, of: ofKey(s.Key)}
	if err := f(ctx, tx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.kept.Save(ctx, s); err != nil {
		return err
	}
	m.write(tx)
	return nil
}

func (m *MemoryDocuments) write(tx *memoryTx) {
	if m.docs == nil {
		m.docs = map[of]map[string][]byte{}
	}
	if m.docs[tx.of] == nil {
		m.docs[tx.of] = map[string][]byte{}
	}
	maps.Copy(m.docs[tx.of], tx.put)
	for _, key := range tx.remove {
		delete(m.docs[tx.of], key)
	}
}

// memoryTx needs no locks of documents: there is one step at a time.
type memoryTx struct {
	m      *MemoryDocuments
	of     of
	put    map[string][]byte
	remove []string
}

func (tx *memoryTx) Read(ctx context.Context, keys []string) (map[string][]byte, error) {
	tx.m.mu.RLock()
	defer tx.m.mu.RUnlock()
	found := map[string][]byte{}
	for _, key := range keys {
		if doc, ok := tx.m.docs[tx.of][key]; ok {
			found[key] = bytes.Clone(doc)
		}
	}
	return found, ctx.Err()
}

func (tx *memoryTx) Write(ctx context.Context, put map[string][]byte, remove []string) error {
	tx.put = make(map[string][]byte, len(put))
	for key, doc := range put {
		tx.put[key] = bytes.Clone(doc)
	}
	tx.remove = slices.Clone(remove)
	return ctx.Err()
}

// Get returns one document.
func (m *MemoryDocuments) Get(ctx context.Context, name string, version int, key string) ([]byte, bool, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	doc, found := m.docs[of{name, version}][key]
	return bytes.Clone(doc), found, ctx.Err()
}

// All yields the documents of a version.
func (m *MemoryDocuments) All(ctx context.Context, name string, version int) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		m.mu.RLock()
		docs := maps.Clone(m.docs[of{name, version}]) // a document is replaced, never changed
		m.mu.RUnlock()
		for _, key := range slices.Sorted(maps.Keys(docs)) {
			if err := ctx.Err(); err != nil {
				yield(Document{}, err)
				return
			}
			if !yield(Document{key, bytes.Clone(docs[key])}, nil) {
				return
			}
		}
	}
}

// Clear removes the documents of a version.
func (m *MemoryDocuments) Clear(ctx context.Context, name string, version int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	delete(m.docs, of{name, version})
	return nil
}
