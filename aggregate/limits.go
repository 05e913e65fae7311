// Bounds and waiting times of the package, in one place. The defaults that users
// set are in eventstore's limits.

package aggregate

import (
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

const (
	// MaxKeys bounds the streams of one ExecuteMulti: each becomes a batch or a guard.
	MaxKeys = min(eventstore.MaxAppendBatches, eventstore.MaxAppendGuards)

	// SearchedEntries is how many entries of a stream are looked through, beyond
	// the remembered IDs, for a command whose ID says that it may be that old.
	SearchedEntries = 10_000

	// After a refusal the next try waits a random time of up to refusedWait, doubled
	// with each further one up to refusedWaitMost: enough for contenders on one
	// stream to fall out of step, little beside a request's time.
	refusedWait     = time.Millisecond
	refusedWaitMost = 250 * time.Millisecond

	// After a lost answer the store may be failing over, which takes seconds.
	unknownWait     = 10 * time.Millisecond
	unknownWaitMost = 2 * time.Second

	// loadTries is how often a load is begun anew when the stream is trimmed under it.
	loadTries = 3

	// What a cached state is said to take beside itself: the entry, and one command ID.
	cacheEntryBytes = 512
	commandBytes    = 64
)
