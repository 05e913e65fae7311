// Checkpoint, the words around it, and the two interfaces that keep it.

package projector

import (
	"context"
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
)

// Key names a checkpoint: one lane, from 0, of one version of one projector.
type Key struct {
	Projector string
	Version   int
	Lane      int
}

// String returns "projector/version/lane".
func (k Key) String() string { return fmt.Sprintf("%s/%d/%d", k.Projector, k.Version, k.Lane) }

// Checkpoint is how far a projector has come. The zero Checkpoint stands for one
// that has not been written yet.
type Checkpoint struct {
	Epoch       eventstore.Epoch // rises with every claim; 0: nobody has claimed it
	Holder      eventstore.UUID  // the instance that was granted Epoch
	Incarnation eventstore.UUID  // of the store; zero when a stream is followed
	Timeline    uint64           // of the store's PostgreSQL server, see FeedPage; 0 elsewhere
	// Position of the last entry that was passed, handled or not.
	Position eventstore.Position
	// Mark of the last entry that was passed: the same position, with the ID that
	// is looked up before going on. Zero if Position came from Options.StartAt.
	Mark eventstore.PositionMark
	// Seqno of the last entry that was passed, if one stream is followed; else 0.
	Seqno eventstore.Seqno
	// Recent is a digest of the entries handled before Mark, to keep as it is. At
	// most MaxRecentBytes; empty where Timeline is 0.
	Recent []byte
}

// Same says if two checkpoints have owner and place in common: what Handle
// compares.
func (c Checkpoint) Same(o Checkpoint) bool {
	return c.Epoch == o.Epoch && c.Holder == o.Holder && c.Position == o.Position && c.Seqno == o.Seqno
}

// Past returns the checkpoint of a handler that has come from c past the entry e
// on its way to to: the owner of to, the place of e. It is for handlers whose
// effects cannot be taken back: they keep it for the last entry that succeeded.
func (c Checkpoint) Past(e eventstore.Entry, to Checkpoint) Checkpoint {
	next := to
	if e.Position == 0 && to.Seqno == 0 { // a snapshot at an entry that is gone
		next.Position, next.Mark, next.Recent = c.Position, c.Mark, c.Recent
		return next
	}
	next.Position, next.Mark = e.Position, e.PositionMark()
	if to.Seqno > 0 {
		next.Seqno = e.Seqno
	}
	if len(to.Recent) > 0 {
		next.Recent = recentPast(c, to.Recent, e)
	}
	return next
}

func (c Checkpoint) String() string {
	place := c.Mark.String()
	if c.Seqno > 0 {
		place = eventstore.Mark{Seqno: c.Seqno, ID: c.Mark.ID}.String()
	} else if c.Mark.ID.IsZero() {
		place = c.Position.String()
	}
	return fmt.Sprintf("%s at epoch %d of holder %v", place, c.Epoch, c.Holder)
}

// Step is one move of a lane's checkpoint and what goes with it, all or nothing.
type Step struct {
	Key      Key
	From, To Checkpoint
	Batch    []eventstore.Entry // to be applied, in order
	// What the step does to the lane's parked keys. A handler whose Checkpoints are no
	// Control never sees any.
	Park    []Parked // put, or replace, by StreamKey
	Unpark  []string // remove, by StreamKey
	Skipped []Parked // entries that are given up: keep a record of each

	gaps bool // the batch may lack entries that To's digest has
}

// Handler applies entries to a read model and keeps the checkpoint beside it.
//
// Both methods may be called from several goroutines and processes at once, also
// for one key. Errors that name a kind of eventstore decide what the projector
// does: see [Projector.Run].
type Handler interface {
	// Load returns the checkpoint as it is durably kept, the zero Checkpoint if
	// there is none. It claims nothing.
	Load(ctx context.Context, key Key) (Checkpoint, error)

	// Handle applies the step's batch and replaces its checkpoint From by To. The batch
	// is in order and may be empty: then only the checkpoint, and what is parked, changes.
	//
	// When it returns nil all of it is durable. If the kept checkpoint is not the Same
	// as From (From zero: there is one), it answers ErrFenced and nothing has
	// changed. After any other error either nothing has changed, or all of it has
	// and the answer was lost, or, where effects cannot be taken back, those of
	// the first entries stand and the kept checkpoint is Past the last of them.
	// An entry that cannot be handled is named by an *EntryError.
	Handle(ctx context.Context, s Step) error
}

// Checkpoints keeps checkpoints alone, for effects that live elsewhere ([Sink],
// [NewSnapshotter]). Load and the rule of Save are those of [Handler].
type Checkpoints interface {
	Load(ctx context.Context, key Key) (Checkpoint, error)
	// Save does a step without its batch, or answers ErrFenced.
	Save(ctx context.Context, s Step) error
}

// FencedError is the ErrFenced of a handler that finds another checkpoint than
// the one it came from.
func FencedError(key Key, from, found Checkpoint) error {
	return &eventstore.Error{Kind: eventstore.ErrFenced, Op: "project " + key.String(),
		Wanted: "checkpoint " + from.String(), Found: found.String(),
		Hint: "another instance works on this projection; stop this one"}
}
