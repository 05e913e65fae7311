// Every bound and default of the contract, in one place.

package eventstore

import "time"

// Bounds of names and of what one event carries.
const (
	MaxCategoryBytes    = 64       // a Category
	MaxKeyBytes         = 512      // the key of a Stream
	MaxTypeBytes        = 128      // an Event's Type
	MaxContentTypeBytes = 128      // an Event's ContentType
	MaxMetadataKeys     = 64       // keys in one event's Metadata
	MaxMetadataKeyBytes = 128      // one key of Metadata
	MaxMetadataBytes    = 16 << 10 // keys and values of one event's Metadata together
	MaxNameBytes        = 256      // names of holds, leases, fingerprints
)

// Bounds of one call. A Store may be given lower ones (Limits), never higher:
// backends and wire formats rely on them.
const (
	MaxEventBytes      = 8 << 20  // Data of one event: 8 MiB
	MaxBatchEvents     = 10_000   // events of one batch
	MaxAppendBytes     = 32 << 20 // Data and Metadata of one append together: 32 MiB
	MaxAppendBatches   = 256      // batches, so streams, of one append
	MaxAppendGuards    = 256      // guards of one append
	MaxPageEntries     = 10_000   // entries of one page
	MaxSnapshotBytes   = 32 << 20 // Data of one snapshot
	MaxFilterNames     = 256      // categories or types of one Filter
	MaxLeases          = 4096     // names of one LeaseUpdate
	MaxLeaseTTL        = 24 * time.Hour
	MinLeaseTTL        = 10 * time.Millisecond
	defaultContentType = "application/json"
)

// Defaults of what is not said. They are the figures a user meets first; each
// can be set where it is used.
const (
	DefaultPageEntries     = 500                    // entries a reader asks for at a time
	DefaultLeaseTTL        = 10 * time.Second       // how long a silent holder is believed
	DefaultPollInterval    = 250 * time.Millisecond // how often a projector looks when nothing announces
	DefaultCacheBytes      = 64 << 20               // states an Executor keeps warm
	DefaultRetries         = 10                     // decisions of one command before it gives up
	DefaultRememberedIDs   = 200                    // command IDs that a snapshot carries, some 140 bytes each
	DefaultAnnounceTimeout = time.Second            // an announcement that takes longer is dropped
)

// Limits are the bounds a Store puts on what it is given. Zero fields, and a
// field above its constant, mean the constant of that name.
type Limits struct {
	EventBytes    int // MaxEventBytes
	BatchEvents   int // MaxBatchEvents
	AppendBytes   int // MaxAppendBytes
	AppendBatches int // MaxAppendBatches
}

func (l Limits) orDefault() Limits {
	bound := func(n, most int) int {
		if n <= 0 || n > most {
			return most
		}
		return n
	}
	return Limits{
		EventBytes:    bound(l.EventBytes, MaxEventBytes),
		BatchEvents:   bound(l.BatchEvents, MaxBatchEvents),
		AppendBytes:   bound(l.AppendBytes, MaxAppendBytes),
		AppendBatches: bound(l.AppendBatches, MaxAppendBatches),
	}
}
