// Control: what processes that work on one projector share beside its checkpoints.

package projector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Control keeps, beside checkpoints, which versions of a projector there are, their
// lanes and what they have parked. It is implemented by the [Checkpoints] of
// pgcheckpoint, of logcheckpoint and by [MemoryCheckpoints], and found by the projector
// in a [Handler], or in what its method Keeps() Checkpoints returns. With it lanes are leased over workers, keys parked, versions switched.
//
// A projector over several backends keeps a version for each, under "name/backend".
// They are changed together.
type Control interface {
	Checkpoints

	// Lane returns one lane of a version; [ErrNotRegistered] if there is no such version
	// or it has no such lane. What it returns beside the checkpoint is as of the same
	// moment or later.
	Lane(ctx context.Context, key Key) (Lane, error)

	// Versions returns the versions of a projector, and those of its backends, ordered
	// by Projector and Version, each as of one moment; all there are if the name is
	// empty. Recent of checkpoints may be left out.
	Versions(ctx context.Context, projector string) ([]Version, error)

	// Update changes the versions of a projector, and of its backends, at once. f gets
	// them as they are kept, as Versions orders them, while nobody can change them, and
	// returns what they become: missing ones are removed with all that is theirs, new
	// ones added, and lanes and parked keys replaced by those returned. f may be called
	// several times, may change what it is given, and must have no other effects. An
	// error of f is returned as it is and nothing has changed. A version that has
	// checkpoints without being registered, of a handler without Control or of a release
	// before, is among what f gets, see AdoptVersions, and so registered by it.
	// Workers register anew what is gone without the sign that [Admin.Drop] leaves.
	//
	// When Update returns nil the change is durable. Steps that were under way are
	// waited for. Who changes a version fences all its lanes; see [Version.Fence].
	Update(ctx context.Context, projector string, f func([]Version) ([]Version, error)) error

	// Skipped returns the records of entries that a version has given up, by time.
	Skipped(ctx context.Context, key Key) ([]Parked, error)
}

// ErrNotRegistered: there is no such version of a projector, or no such lane of it. A
// version is registered by its first Run or CatchUp.
var ErrNotRegistered = errors.New("projector not registered")

// NotRegistered is the ErrNotRegistered of a key.
func NotRegistered(key Key) error {
	return &eventstore.Error{Kind: ErrNotRegistered, Op: "project", Wanted: "projector " + key.String(), Found: "none of that name, version and lane",
		Hint: "it is registered when it first runs; wattle projector list shows all"}
}

// Role is what a version of a projector is for.
type Role uint8

const (
	// Live: readers use it and its effects are on.
	Live Role = iota
	// Shadow: it is built, or kept for a rollback, beside the live one, which it never
	// overtakes, and has no effects but on its own read model.
	Shadow
)

func (r Role) String() string {
	if r == Shadow {
		return "shadow"
	}
	return "live"
}

// Version is one version of a projector as it is kept.
type Version struct {
	Key   Key // of lane 0
	Role  Role
	Scope Scope
	// Quiet are the places through which another version has had all effects, by the
	// lanes of that one; empty: none.
	Quiet []uint64
	Lanes []Checkpoint // by number, at least one
	// Parked keys by StreamKey.
	Parked  []Parked
	Created time.Time // set by who keeps it
}

// Scope is what a version follows: categories through the feed, or one stream.
type Scope struct {
	Categories []eventstore.Category
	Types      []string // empty: all
	Stream     eventstore.Stream
}

// Fence raises the epoch of every lane under a holder, so that every step that was
// begun before is refused. The zero holder leaves the lanes to whoever claims them next.
func (v *Version) Fence(holder eventstore.UUID) {
	for i := range v.Lanes {
		v.Lanes[i].Epoch++
		v.Lanes[i].Holder = holder
	}
}

// Lane is one lane of a version, and what the version says of it.
type Lane struct {
	Checkpoint
	Lanes  int // of the version
	Role   Role
	Quiet  []uint64
	Parked []Parked // the lane's, by StreamKey
}

// LaneOf returns which of so many lanes handles a slot: lane i of n has the slots s with
// s·n/1024 = i, one range without a gap.
func LaneOf(s eventstore.Slot, lanes int) int { return int(s) * lanes / eventstore.Slots }

// slotsOf returns the slots of a lane; nil: all.
func slotsOf(lane, lanes int) []eventstore.Slot {
	if lanes <= 1 {
		return nil
	}
	var all []eventstore.Slot
	for s := first(lane, lanes); s < eventstore.Slots && LaneOf(eventstore.Slot(s), lanes) == lane; s++ {
		all = append(all, eventstore.Slot(s))
	}
	return all
}

// Request is what is wanted of a parked key.
type Request uint8

const (
	// Wait leaves it parked.
	Wait Request = iota
	// Retry has its entries handled again, from the one at fault on.
	Retry
	// Skip gives up the entry at fault, with a record, and has those behind it handled.
	Skip
)

func (r Request) String() string {
	return [...]string{"wait", "retry", "skip"}[min(r, Skip)]
}

// Parked is a key whose entries wait because one of them could not be handled: those
// of all streams with that key in the followed categories, in order.
type Parked struct {
	StreamKey string
	// The entry at fault.
	Stream   eventstore.Stream
	Seqno    eventstore.Seqno
	Position eventstore.Position
	ID       eventstore.UUID
	Type     string
	// Queue is where the waiting entries of each stream begin, by Stream.
	Queue   []Queued
	Through eventstore.Position // of the last entry that waits
	Count   uint64              // of entries that wait, the one at fault among them

	Cause    string    // at most MaxCauseBytes
	Stack    string    // of a panic, at most MaxStackBytes
	Attempts int       // made in all
	Trace    string    // traceparent of the last attempt, or of the entry; may be empty
	Since    time.Time // set by who keeps it, if it is zero
	Request  Request
	Note     string // why it was skipped, and by whom; at most MaxNoteBytes
}

// Queued is where the waiting entries of a stream begin.
type Queued struct {
	Stream eventstore.Stream
	From   eventstore.Seqno
}

// Slot of the key's streams.
func (k Parked) Slot() eventstore.Slot { return k.Stream.Slot() }

func (k Parked) String() string {
	return fmt.Sprintf("key %q parked at entry %d of %q (%q, position %d), %d waiting: %s", k.StreamKey, k.Seqno, k.Stream, k.Type, k.Position, k.Count, k.Cause)
}

// pausedHolder holds the lanes of a projector that is paused. Being a holder like any
// other it fences whoever was at work, and nobody claims from it.
var pausedHolder = eventstore.UUID{'p', 'a', 'u', 's', 'e', 'd'}

// Paused says if the lane is not to be worked on until it is resumed.
func (c Checkpoint) Paused() bool { return c.Holder == pausedHolder }

// nobody says if no instance was granted the epoch: the lane was changed from outside.
func (c Checkpoint) nobody() bool { return c.Holder.IsZero() || c.Paused() }

// Name is the projector's name, without the backend's that may stand behind it where
// categories lie in several.
func (k Key) Name() string {
	name, _, _ := strings.Cut(k.Projector, "/")
	return name
}

// Of says if the key is of a projector, or of one of its backends.
func (k Key) Of(projector string) bool { return projector == "" || k.Name() == projector }
