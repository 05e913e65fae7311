// Bounds and defaults of topics.

package topic

import "time"

// Bounds and defaults.
const (
	MaxPartitions      = 256
	DefaultPartitions  = 4
	MaxKeyBytes        = 512 // a Publication's Key
	DefaultDedupWindow = 10 * time.Minute
	MaxDedupWindow     = 24 * time.Hour
	MinDedupWindow     = time.Minute // that a full memory may leave of a topic's
	MaxAddressBytes    = 2048        // of a broker

	DefaultQueuePublications = 10_000   // that wait in one partition
	DefaultQueueBytes        = 32 << 20 // the same
	DefaultRemembered        = 1 << 20  // publications of one partition known by their ID, some 100 MiB when full

	// MaxAhead is how far a publisher's clock may be ahead of the store's: a publication
	// that was first tried later than that is refused with ErrInvalid.
	MaxAhead = 10 * time.Second
)

const (
	ahead        = MaxAhead + 5*time.Second // by which an entry may be older than its publication says; the rest is for clocks that step
	maxBeat      = 4 * time.Second          // between two looks at the leases; part of the promise that partitions move within TTL + 5 s
	eagerBeat    = 500 * time.Millisecond   // the same, while this broker has less or more than its share
	staleAfter   = time.Second              // a broker that does not run looks for topics and owners again after this
	adminPause   = 50 * time.Millisecond    // between two looks whether another one has done creating or deleting a topic
	resendMin    = 20 * time.Millisecond    // between two tries of an append whose outcome is not known
	resendMax    = time.Second
	leaveWithin  = 200 * time.Millisecond // how long a beat waits for partitions that are to be given up
	leaveAtEnd   = 5 * time.Second        // the same, when the broker ends
	fenceTries   = 64                     // epochs that a lease is raised by at once to come above its log's
	recallPage   = 1000                   // entries read back at a time
	recallPages  = 4                      // pages that all partitions together read at once, of 8 MiB at most
	sizeChunks   = 64                     // MaxBytes is kept to one part in so many
	holdPatience = time.Minute            // before a trim that something stopped is tried again
	tidyInterval = 5 * time.Second        // between two looks at what is to be trimmed
	keepYoung    = 2 * ahead              // what is younger is not trimmed: a new owner tells new publications from resent ones by it
)

// CategoryName is the category in which is written what topics and brokers there are.
const CategoryName = "wattle_topics"

// Keys of the metadata of a topic's messages.
const (
	MetaKey  = "topic_key"  // the publication's key; left out if it is empty
	MetaPart = "topic_part" // the message's place in its publication, from 0; left out for 0
)
