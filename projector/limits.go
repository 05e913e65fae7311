// Every bound and default of a projector, in one place.

package projector

import "time"

// Bounds and defaults. Page size and poll interval have theirs in eventstore.
const (
	MaxNameBytes = 200 // a projector's name; the rest of a hold's name is ours
	DefaultTries = 5   // how often a batch is given to a handler that fails, before Run stops

	// MinBackoff and MaxBackoff bound the pause after a failure. It doubles from
	// the one to the other and half of it is random. The higher one is part of the
	// promise that everything proceeds by itself within lease TTL + 5 s.
	MinBackoff = 50 * time.Millisecond
	MaxBackoff = 2 * time.Second

	holdInterval   = 5 * time.Second      // a hold moves no more often
	passInterval   = time.Second          // a checkpoint that only passes entries over at the tail is kept no more often
	listenInterval = 5 * time.Second      // between attempts to subscribe to announcements
	minLook        = 5 * time.Millisecond // between two looks that find nothing; also the first pause of Wait
	maxConflicts   = 10                   // lost races for an unclaimed checkpoint that one CatchUp takes
	maxLinks       = 128                  // links of one span: what the SDK keeps by default
	maxUntrimmed   = 10_000               // streams whose trim a Snapshotter remembers to try again
	maxHoldMoves   = 4                    // how often setting one hold runs after a moving trim
)
