// Snapshots in the place of what was trimmed: a rebuild begins a stream with its snapshot.

package projector

import (
	"crypto/sha256"

	"github.com/wattle-es/wattle/eventstore"
)

// SnapshotType is the Type of entries that stand for a snapshot; see Options.Snapshots.
// They are made by the projector, so they have no BatchID and no Version: an event of
// that name is still an event.
const SnapshotType = "wattle.snapshot"

// metaFingerprint is the metadata key under which such an entry carries the fingerprint.
const metaFingerprint = "wattle-fingerprint"

// SnapshotOf returns the snapshot that an entry stands for, if it stands for one: the
// state of the stream through the entry's seqno, to be put in the place of all that a
// handler has of the stream. It is for handlers that get entries; see [Event.Snapshot].
func SnapshotOf(e eventstore.Entry) (eventstore.Snapshot, bool) {
	if !standsForSnapshot(&e) {
		return eventstore.Snapshot{}, false
	}
	return eventstore.Snapshot{Stream: e.Stream, At: e.Mark(), Fingerprint: e.Metadata[metaFingerprint], ContentType: e.ContentType,
		Data: e.Data, Checksum: sha256.Sum256(e.Data), Time: e.Time}, true
}

// Snapshot returns the snapshot that the event stands for, if it stands for one: then
// Value is zero, and the state, which is the stream's through Seqno, takes the place of
// all that the handler has of the stream. Options.Snapshots says when that is.
func (e Event[E]) Snapshot() (eventstore.Snapshot, bool) { return SnapshotOf(e.Entry) }

func standsForSnapshot(e *eventstore.Entry) bool {
	return e.Type == SnapshotType && e.BatchID.IsZero() && e.Version == 0
}

// entryOf is the entry that stands for a snapshot. at is the position of the entry at its
// mark, 0 if that is not known.
func entryOf(sn *eventstore.Snapshot, at eventstore.Position) eventstore.Entry {
	return eventstore.Entry{
		Event: eventstore.Event{ID: sn.At.ID, Type: SnapshotType, ContentType: sn.ContentType, Data: sn.Data,
			Metadata: eventstore.Metadata{metaFingerprint: sn.Fingerprint}},
		Stream: sn.Stream, Seqno: sn.At.Seqno, Position: at, Time: sn.Time,
	}
}

// What a lane hands over, whatever crashes and however snapshots move meanwhile:
//
// For a stream of which this session has handed over the entry before, the next entry is
// as good as any. Of any other entry but a first one head and snapshot are looked up. If
// the stream was never trimmed the entry is good. Else let m be the snapshot's seqno:
//
//	entry below m        passed over: the snapshot contains it
//	entry m              the snapshot goes in its place
//	entry above m        good, since the one before it has been passed; but if that was
//	                     trimmed (through m, then) the snapshot goes before it
//
// So nothing needs to be remembered: m only rises, what was passed over for the sake of
// one snapshot stays below any later one, and a snapshot that is handed over again
// changes nothing. It is never handed over before the entries below it have been passed,
// so the order over streams is that of the feed.
//
// A stream without an entry left is in no feed. As long as entries behind the checkpoint
// were trimmed (a strict read of the feed says so) a lane is in what is gone; before it
// keeps a checkpoint beyond that, it hands over the snapshots of all such streams. What
// is trimmed later was passed by then, or is held.

// begun is what a session knows of a stream.
type begun struct {
	through eventstore.Seqno // handed over so far
	until   eventstore.Seqno // if not 0: passed over up to here, where the snapshot goes
}

// next says if entry n follows what was handed over.
func (b begun) next(n eventstore.Seqno) bool { return b.until == 0 && n == b.through+1 }

// passes says if entry n is contained in what was handed over, or will be.
func (b begun) passes(n eventstore.Seqno) bool { return n <= b.through || n < b.until }

// plan is what entries come to when they are handed over.
type plan struct {
	batch []eventstore.Entry
	of    []int // by index in batch: for which of the entries it is; nil: the same
	took  int   // so many entries
	known map[eventstore.Stream]begun
}

// entry returns for which of the entries the one is that a handler could not take; -1 if
// it is not in the batch.
func (pl *plan) entry(bad *EntryError) int {
	for i := range pl.batch {
		if pl.batch[i].Stream == bad.Stream && pl.batch[i].Seqno == bad.Seqno {
			if pl.of == nil {
				return i
			}
			return pl.of[i]
		}
	}
	return -1
}

// before returns what is handed over for the first n entries.
func (pl *plan) before(n int) []eventstore.Entry {
	if pl.of == nil {
		return pl.batch[:n]
	}
	for i, of := range pl.of {
		if of >= n {
			return pl.batch[:i]
		}
	}
	return pl.batch
}

func (pl *plan) add(of int, e eventstore.Entry) {
	pl.batch, pl.of = append(pl.batch, e), append(pl.of, of)
}

// begins says if streams are begun with their snapshots in a feed.
func (p *Projector) begins() bool { return p.o.Snapshots && p.o.Stream == "" }
