// Every bound and default of a projector, in one place.

package projector

import (
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Bounds and defaults. Page size and poll interval have theirs in eventstore.
const (
	MaxNameBytes         = 200                    // a projector's name; the rest of a hold's name is ours
	MaxLanes             = eventstore.Slots       // of one version
	MinLeaseTTL          = 100 * time.Millisecond // of lanes
	DefaultTries         = 5                      // how often an entry is given to a handler that fails, before its key is parked
	DefaultMaxParked     = 100                    // keys that a lane parks before it waits for help
	DefaultMaxBehind     = 10_000                 // positions that a version may lack when it becomes live
	DefaultHealthEntries = 1000                   // entries not handled that Health looks at
	DefaultMaxRebuilds   = 2                      // versions of all projectors of a store that are built at once

	MaxCauseBytes = 4 << 10  // why a key is parked
	MaxStackBytes = 16 << 10 // of a panic
	MaxNoteBytes  = 1 << 10  // why an entry was skipped

	// MaxSinkKeys bounds how many keys a ConcurrentSink works on at once.
	MaxSinkKeys = 1024

	// MinBackoff and MaxBackoff bound the pause after a failure. It doubles from
	// the one to the other and half of it is random. The higher one is part of the
	// promise that everything proceeds by itself within lease TTL + 5 s.
	MinBackoff = 50 * time.Millisecond
	MaxBackoff = 2 * time.Second

	holdInterval   = 5 * time.Second        // a hold moves no more often
	passInterval   = time.Second            // a checkpoint that only passes entries over at the tail is kept no more often
	listenInterval = 5 * time.Second        // between attempts to subscribe to announcements
	minLook        = 5 * time.Millisecond   // between two looks that find nothing; also the first pause of Wait
	maxConflicts   = 10                     // lost races for an unclaimed checkpoint that one CatchUp takes
	maxLinks       = 128                    // links of one span: what the SDK keeps by default
	maxUntrimmed   = 10_000                 // streams whose trim a Snapshotter remembers to try again
	tidyInterval   = 5 * time.Second        // between what a snapshotter does beside, with nothing to read
	restInterval   = 5 * time.Second        // between looks at a lane that is paused
	passLanes      = 16                     // so many lanes pass entries over at passInterval, twice as many at twice that
	herdInterval   = time.Second            // within which everybody looks after announcements may have been lost
	coverInterval  = 100 * time.Millisecond // between two reads of what lies before a token, while that is more than a page
	maxBeat        = 4 * time.Second        // between two looks at the leases; part of the promise that lanes move within TTL + 5 s
	eagerInterval  = time.Second            // the same, while this worker has less or more than its share
	leaveInterval  = 200 * time.Millisecond // how long a beat waits for lanes to be left
	giveUpTimeout  = 2 * time.Second        // for releasing leases at the end
	switchInterval = 5 * time.Second        // how soon a switch, or a new version, is seen at the latest
	nearPages      = 4                      // lanes so many pages apart are read together
	replayPage     = 100                    // entries read at a time of what waits under a parked key
	maxPageLanes   = 4                      // a page for several lanes is at most so many times Options.PageSize
	maxBegun       = 100_000                // streams of which a session remembers that they were begun
	digestReach    = 20_000                 // positions that a digest made anew reaches back
	settleTimeout  = 5 * time.Second        // for a ConcurrentSink to keep what it has done when its context has ended
	maxReasons     = 16                     // that Health gives
	maxHoldMoves   = 4                      // how often setting one hold runs after a moving trim
)

// MaxCommands bounds the commands that a reactor issues because of one entry.
const MaxCommands = 1000
