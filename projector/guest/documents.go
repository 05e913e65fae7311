// Documents: where projections keep what they make, with their checkpoints beside it.

package guest

import (
	"context"
	"iter"

	"github.com/wattle-es/wattle/projector"
)

// Documents keeps JSON documents by projector, version and key, and moves a projector's
// checkpoint together with them. [MemoryDocuments] and pgdocuments.Documents are such.
// All methods may be called from several goroutines and processes at once.
//
// A projector's documents are the same for all its lanes and, where it follows several
// backends, for the parts in all of them: what stands behind a slash in Key.Projector is
// no part of their name.
type Documents interface {
	// Keeps returns the checkpoints that Step moves.
	Keeps() projector.Checkpoints

	// Step does a step as projector.Handler's Handle does, and in the same transaction
	// what f does through tx. The checkpoint comes first: if it is not the Same as From
	// the answer is ErrFenced and f is not called. f may be called several times, for
	// transactions that had to be begun anew. Its error is returned, maybe wrapped, and
	// then nothing has changed; so it is when it panics.
	Step(ctx context.Context, s projector.Step, f func(ctx context.Context, tx Tx) error) error

	// Get returns one document as it was last committed, to the byte as it was written.
	Get(ctx context.Context, name string, version int, key string) (doc []byte, found bool, err error)

	// All yields the documents of a version, ordered by key, as of one moment. The loop may
	// call any method but Step. An error ends the sequence.
	All(ctx context.Context, name string, version int) iter.Seq2[Document, error]

	// Clear removes the documents of a version, as before it is reset or when it is dropped.
	Clear(ctx context.Context, name string, version int) error
}

// Document is a JSON document and its key: 1 to handler.MaxDocumentKey bytes of UTF-8
// without a zero byte.
type Document struct {
	Key  string
	Data []byte
}

// Tx are the documents of the step's projector and version inside the transaction. It is
// used by one goroutine.
type Tx interface {
	// Read returns those of the documents that exist. Until the transaction ends nobody
	// else changes, makes or removes any of them: it waits for those who are about to, or
	// is begun anew when they were faster. It is called once at most.
	Read(ctx context.Context, keys []string) (map[string][]byte, error)
	// Write puts and removes documents; no key is in both. One that was not read is
	// replaced whatever it is. What it refers to is copied. It is called once at most.
	Write(ctx context.Context, put map[string][]byte, remove []string) error
}
