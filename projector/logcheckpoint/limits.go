// Every bound and default of the package, in one place.

package logcheckpoint

import (
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

const (
	// DefaultCategory holds the streams where none is named.
	DefaultCategory eventstore.Category = "checkpoint"
	// Keep is how many entries of a lane's stream stay, for the proof of a lost answer. As
	// many again can be there before they are trimmed.
	Keep = 16
	// MaxUpdateStreams bounds the streams that one Update changes, and those that must stay
	// as they are. A lane has two, what it keeps and what it has parked, so the versions of
	// one projector have some 120 lanes together; more are eventstore.ErrTooLarge.
	MaxUpdateStreams = eventstore.MaxAppendBatches

	maxKnown    = 4096                 // lanes whose last entry is remembered
	maxTries    = 20                   // of a Save, an Update or a consistent read against others
	maxResends  = 10                   // of an append whose answer was lost
	patience    = 2 * time.Second      // how long a lane waits for an Update that has frozen it
	firstPause  = 2 * time.Millisecond // doubles up to longPause, half of it random
	longPause   = 50 * time.Millisecond
	skippedPage = 500 // records read at a time
)
