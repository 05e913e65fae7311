// The rules by which an append is let through or refused: pure, and the same for
// every backend. The store-wide step (who may write now) is the backend's.

package eventstore

import (
	"errors"
	"fmt"
)

// Passes says if a batch may be written to a stream with this head. It is the
// rule that a backend checks in the same atomic step in which it writes.
func (b *Batch) Passes(h Head) bool {
	owns := b.Epoch == h.Epoch && b.Holder == h.Holder
	if b.Claim {
		owns = b.Epoch > h.Epoch
	}
	return owns && b.After.Seqno == h.Last.Seqno &&
		(b.After.ID == h.Last.ID || b.After.ID.IsZero() && b.After.Seqno > 0)
}

// Seen is what a backend saw of a batch's stream when it did not pass.
type Seen struct {
	Head Head
	// Around are the entries still there with seqnos After.Seqno … Last+1, in order.
	Around []Entry
}

// Judge says what becomes of a batch that does not pass: proved (a receipt) or
// refused (an error with the facts it was decided on).
func (b *Batch) Judge(s Seen) (Receipt, error) {
	switch b.prove(s) {
	case proved:
		return b.receipt(s.Head, true), nil
	case reused:
		return Receipt{}, b.refusal(ErrBatchIDReused, s.Head, "the same content under the same batch ID", "other content",
			"give every batch an ID of its own; resend a batch unchanged")
	case unprovable:
		e := b.refusal(ErrUnknown, s.Head, "proof that batch "+b.ID.String()+" is there or absent",
			fmt.Sprintf("entries through %d trimmed", s.Head.Trimmed), "load the stream and look for the command's ID before deciding again")
		e.Unprovable = true
		return Receipt{}, e
	}
	return Receipt{}, b.rank(s)
}

// Written is the receipt of a batch that was written just now.
func (b *Batch) Written() Receipt {
	return b.receipt(Head{Epoch: b.Epoch, Holder: b.Holder}, false)
}

func (b *Batch) receipt(h Head, replays bool) Receipt {
	return Receipt{
		Stream: b.Stream, First: b.After.Seqno + 1,
		Last:    Mark{Seqno: b.Last(), ID: b.Events[len(b.Events)-1].ID},
		Fenced:  h.Epoch != b.Epoch || h.Holder != b.Holder,
		Replays: replays,
	}
}

type proof int

const (
	absent proof = iota
	proved
	reused
	unprovable
)

// prove looks for the batch at After+1…n: it is there if exactly these entries
// carry its ID and its content.
func (b *Batch) prove(s Seen) proof {
	if s.Head.Last.Seqno <= b.After.Seqno {
		return absent
	}
	ours := make([]Event, 0, len(b.Events))
	foreign, outside := false, false
	for _, e := range s.Around {
		inside := e.Seqno > b.After.Seqno && e.Seqno <= b.Last()
		switch {
		case inside && e.BatchID == b.ID:
			ours = append(ours, e.Event)
		case inside:
			foreign = true
		case e.BatchID == b.ID:
			outside = true
		}
	}
	trimmed := s.Head.Trimmed > b.After.Seqno
	switch {
	case foreign && len(ours) == 0 && !outside:
		return absent
	case foreign || outside:
		return reused
	case s.Head.Last.Seqno < b.Last():
		// Too short for the batch: if it holds entries of ours they are another batch.
		if len(ours) > 0 {
			return reused
		}
		return absent
	case len(ours) == 0 && s.Head.Last.Seqno == b.Last() && s.Head.Last.ID != b.Events[len(b.Events)-1].ID:
		return absent // the registry keeps the last entry's ID through a trim
	case trimmed:
		return unprovable
	case Digest(b.Stream, b.After, ours) == Digest(b.Stream, b.After, b.Events):
		return proved
	}
	return reused
}

// rank gives the refusal of a batch that is proved absent: fenced before diverged
// before already written before gap.
func (b *Batch) rank(s Seen) error {
	h, after := s.Head, b.After
	if b.Claim && b.Epoch <= h.Epoch || !b.Claim && (b.Epoch != h.Epoch || b.Holder != h.Holder) {
		return b.refusal(ErrFenced, h, b.epochWanted(), fmt.Sprintf("epoch %d of holder %v", h.Epoch, h.Holder),
			"load the stream again; a claim needs an epoch above the stream's")
	}
	wanted := "the last entry to be " + after.String()
	found := "head " + h.Last.String()
	switch {
	case after.Seqno > h.Last.Seqno && !after.ID.IsZero(), b.markedIsOther(s):
		return b.refusal(ErrDiverged, h, wanted, found, "history was lost or rewritten; stop and look, do not retry")
	case after.Seqno > h.Last.Seqno:
		return b.refusal(ErrGap, h, wanted, found, "append after the head")
	}
	return b.refusal(ErrAlreadyWritten, h, wanted, found, "load the stream and decide again")
}

// markedIsOther says if the entry at After is known to be another one.
func (b *Batch) markedIsOther(s Seen) bool {
	after := b.After
	if after.ID.IsZero() || after.Seqno > s.Head.Last.Seqno {
		return false
	}
	if after.Seqno == 0 || after.Seqno == s.Head.Last.Seqno {
		return after.Seqno == s.Head.Last.Seqno && after.ID != s.Head.Last.ID
	}
	for _, e := range s.Around {
		if e.Seqno == after.Seqno {
			return e.ID != after.ID
		}
	}
	return false // trimmed: nothing known
}

func (b *Batch) epochWanted() string {
	if b.Claim {
		return fmt.Sprintf("to claim epoch %d for holder %v", b.Epoch, b.Holder)
	}
	return fmt.Sprintf("epoch %d of holder %v", b.Epoch, b.Holder)
}

func (b *Batch) refusal(kind error, h Head, wanted, found, hint string) *Error {
	return &Error{Kind: kind, Op: "append", Stream: b.Stream, Wanted: wanted, Found: found, Hint: hint, Head: &h}
}

// Passes says if a guarded stream is still at its mark.
func (g Guard) Passes(h Head) bool { return g.At == h.Last }

// Refusal is the error of a guard that does not pass.
func (g Guard) Refusal(h Head) error {
	return &Error{Kind: ErrGuard, Op: "append", Stream: g.Stream, Head: &h,
		Wanted: "the last entry to be " + g.At.String(), Found: "head " + h.Last.String(), Hint: "load the stream and decide again"}
}

// ranking is the order in which refusals of one append are reported. A guard comes
// behind an unprovable batch: "guard failed" would read as "nothing was written".
var ranking = []error{ErrNoSuchCategory, ErrNoSuchStream, ErrBatchIDReused, ErrFenced, ErrDiverged,
	ErrAlreadyWritten, ErrGap, ErrUnknown, ErrGuard}

// Verdict gathers what became of the batches and guards of an append and gives
// the one answer.
type Verdict struct {
	refusal, guard error  // the highest refusal of a batch, of a guard
	proved         *Batch // the first one
	head           Head   // of its stream
	passing        bool
}

// Pass notes a batch that may be written.
func (v *Verdict) Pass() { v.passing = true }

// Prove notes a batch that is there already, and the head of its stream.
func (v *Verdict) Prove(b *Batch, h Head) {
	if v.proved == nil {
		v.proved, v.head = b, h
	}
}

// Refuse notes the refusal of a batch; the highest counts, among equals the first.
func (v *Verdict) Refuse(err error) { v.refusal = higher(v.refusal, err) }

// RefuseGuard notes the refusal of a guard.
func (v *Verdict) RefuseGuard(err error) { v.guard = higher(v.guard, err) }

// Settle returns whether the batches are to be written now; if not and err is
// nil, all of them are proved. Guards of a proved append are not looked at: it
// went through when they held.
func (v *Verdict) Settle() (write bool, err error) {
	switch refusal := higher(v.refusal, v.guard); {
	case v.proved == nil && refusal == nil:
		return true, nil
	case v.proved != nil && v.refusal == nil && !v.passing:
		return false, nil
	case refusal != nil:
		return false, refusal
	}
	// A batch that is there and one that is not were never sent together.
	return false, v.proved.refusal(ErrBatchIDReused, v.head, "all batches of one append there, or none",
		"only some: batch "+v.proved.ID.String()+" was written by another append", "resend an append unchanged")
}

// higher returns the refusal that ranks higher, a if they are equal.
func higher(a, b error) error {
	if a == nil || b != nil && rankOf(b) < rankOf(a) {
		return b
	}
	return a
}

// rankOf returns the place of an error in the ranking, behind all for others.
func rankOf(err error) int {
	for i, kind := range ranking {
		if errors.Is(err, kind) {
			return i
		}
	}
	return len(ranking)
}

// Grant returns the epoch that a fence grants on a stream with this head: the next
// one for at 0, else at itself if it is above the stream's, or equal to it with
// the same holder.
func (h Head) Grant(s Stream, holder UUID, at Epoch) (Epoch, error) {
	switch {
	case at == 0 && h.Epoch == MaxNumber:
		return 0, &Error{Kind: ErrInvalid, Op: "fence", Stream: s, Wanted: "an epoch above the stream's", Found: "the highest there is", Head: &h}
	case at == 0:
		return h.Epoch + 1, nil
	case at > h.Epoch || at == h.Epoch && holder == h.Holder:
		return at, nil
	}
	return 0, &Error{Kind: ErrFenced, Op: "fence", Stream: s, Head: &h,
		Wanted: fmt.Sprintf("epoch %d for holder %v", at, holder), Found: fmt.Sprintf("epoch %d of holder %v", h.Epoch, h.Holder),
		Hint: "fence at an epoch above the stream's"}
}

// TrimFloor works out how far a trim may go. To starts as what was asked for and
// is lowered by each rule; StoppedBy names the one that lowered it last.
type TrimFloor struct {
	To        Seqno
	StoppedBy string
}

func (f *TrimFloor) lower(to Seqno, by string) {
	if to < f.To {
		f.To, f.StoppedBy = to, by
	}
}

// Head keeps a trim from passing the last entry.
func (f *TrimFloor) Head(last Seqno) { f.lower(last, "head at "+last.String()) }

// Snapshot keeps a trim from passing the last durable snapshot, nil for none.
func (f *TrimFloor) Snapshot(sn *Snapshot) {
	if sn == nil {
		f.lower(0, "no snapshot yet")
		return
	}
	f.lower(sn.At.Seqno, "snapshot at "+sn.At.Seqno.String())
}

// Hold keeps a trim below the first seqno that a hold covers; 0 covers all.
func (f *TrimFloor) Hold(h Hold, first Seqno) {
	at := "position " + h.Position.String()
	if h.Stream != "" {
		at = h.Seqno.String()
	}
	f.lower(max(first, 1)-1, fmt.Sprintf("hold %q at %s", h.Name, at))
}

// DivergedError is the ErrDiverged of a mark that is not of the stream's history.
func DivergedError(op string, s Stream, at Mark, h Head) error {
	return &Error{Kind: ErrDiverged, Op: op, Stream: s, Wanted: "entry " + at.String(), Found: "another entry there, or none; head " + h.Last.String(),
		Hint: "history was lost or rewritten; stop and look", Head: &h}
}

// NoSuchStreamError is the ErrNoSuchStream of a dedicated stream.
func NoSuchStreamError(op string, s Stream) error {
	return &Error{Kind: ErrNoSuchStream, Op: op, Stream: s, Wanted: "stream " + string(s), Found: "none of that name in a dedicated category",
		Hint: "create it first (CreateStreams)"}
}

// NotDedicatedError refuses to create or drop a stream of a shared category.
func NotDedicatedError(op string, s Stream) error {
	return &Error{Kind: ErrInvalid, Op: op, Stream: s, Category: s.Category(), Wanted: "a stream of a dedicated category", Found: "one of a shared category",
		Hint: "a shared stream is created by its first append or fence"}
}

// NotInFeedError refuses a position or the feed of a dedicated category.
func NotInFeedError(op string, c Category) error {
	return &Error{Kind: ErrInvalid, Op: op, Category: c, Wanted: "a shared category: a dedicated one has no positions", Found: "category " + string(c) + ", layout dedicated",
		Hint: "follow its streams with ReadFrom, hold them by seqno"}
}

// SameSpec is nil if a category that exists is what is asked for, else ErrInvalid.
func SameSpec(have, want CategorySpec) error {
	if have == want {
		return nil
	}
	return &Error{Kind: ErrInvalid, Op: "create category", Category: want.Name, Wanted: want.String(), Found: "it exists as " + have.String(),
		Hint: "use the spec it was created with, or delete it first"}
}

// String returns one line for people.
func (c CategorySpec) String() string {
	return fmt.Sprintf("category %s, layout %v, trim freely %v", c.Name, c.Layout, c.TrimFreely)
}
