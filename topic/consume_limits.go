// Bounds and defaults of consuming.

package topic

import "time"

// Bounds of consumers.
const (
	// MaxConsumerBytes bounds the name of a consumer: 1 to 256 bytes of UTF-8 without
	// control characters.
	MaxConsumerBytes = 256
	// MaxConsumers is how many named consumers a topic may have.
	MaxConsumers = 1000
	// MaxDeliveryBytes is about how much payload one Delivery carries: it ends with the
	// message that passes this mark.
	MaxDeliveryBytes = 1 << 20
	// DefaultHeartbeat is how long Consume is silent at most: then it yields a sign of life.
	DefaultHeartbeat = 5 * time.Second
)

const (
	pageEntries    = 500         // of a partition that are read at a time, as its turn
	pollPartitions = 16          // of a topic whose heads are looked at in one poll
	eagerInterval  = time.Second // the same, while it has more or less than its share
	acquireAtOnce  = 32          // partitions that a member takes up between two looks
	sideBySide     = 8           // calls to the store for the partitions of one call of ours
	maxRaises      = 1000        // of a lease below the epoch of its position
	commitTries    = 5           // of one Commit against others
	unknownTries   = 3           // of an append whose outcome is not known
	keptPositions  = 64          // entries of a position before the old ones are trimmed
	keptIDs        = 1024        // of messages delivered, by which a commit needs no read
	proveAfter     = time.Second // in which no store fails over to a copy, and that copy grows
	minRetryPause  = 50 * time.Millisecond
	maxRetryPause  = time.Second
)
