// Every bound and default of timers, in one place.

package timer

import "time"

// Bounds and defaults. Poll interval and retries have theirs in eventstore.
const (
	DefaultCategory   = "timer"
	DefaultKeep       = time.Hour // how long a timer that is over stays on disk
	DefaultMaxPending = 200_000   // timers of one clock that a scheduler has in memory, some 150 bytes each

	MaxPayloadBytes = 256 << 10 // a payload is kept twice, in the set and in the fired entry
	RememberedIDs   = 16        // request IDs that a timer's last entry remembers, some 70 bytes each
	FireSide        = 16        // firings that a scheduler has under way side by side

	// MinBackoff and MaxBackoff bound the pause of Run after a failure. It doubles from
	// the one to the other and half of it is random.
	MinBackoff = 50 * time.Millisecond
	MaxBackoff = 2 * time.Second

	minMaxPending = 16                   // below it a window is no use
	minLook       = 5 * time.Millisecond // between two looks
	fireRound     = 4 * FireSide         // firings between two looks at the feed
	tidyPage      = 200                  // entries that are looked at, so trims that are made, in one go
	tidyInterval  = time.Second          // between two goes that found nothing to do
	leaseRenewals = 3                    // in the time that a lease lasts
	epochTries    = 3                    // claims of one firing, should somebody fence the stream meanwhile
	// After a refusal a change waits a random time below refusedWait, doubled with each
	// further one up to refusedWaitMost; after a lost answer likewise.
	refusedWait     = time.Millisecond
	refusedWaitMost = 250 * time.Millisecond
	unknownWait     = 10 * time.Millisecond
	unknownWaitMost = 2 * time.Second
)

// maxDue is the last time that can be written down (RFC 3339 has years of four digits).
var maxDue = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
