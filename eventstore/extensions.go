// The other small interfaces of a backend. Every backend of ours implements all but
// BackwardReader, which is an extension: Store has a fallback for it.

package eventstore

import (
	"context"
	"crypto/sha256"
	"time"
)

// Categories administers categories.
type Categories interface {
	// CreateCategory creates a category. It is idempotent: nil if it exists with
	// the same spec, ErrInvalid naming both if with another.
	CreateCategory(ctx context.Context, spec CategorySpec) error
	// DeleteCategory removes a category with all its streams, entries, snapshots
	// and holds. ErrNoSuchCategory if there is none.
	DeleteCategory(ctx context.Context, c Category) error
	// ListCategories returns all categories ordered by name.
	ListCategories(ctx context.Context) ([]CategorySpec, error)
}

// Layout is how a category is kept.
type Layout uint8

const (
	// Shared is for any number of streams: created by their first append or fence,
	// and all of them in the feed. The default.
	Shared Layout = iota
	// Dedicated is for few, busy, forward-read streams. They are created explicitly
	// (see [Streams]) and are not in the feed: their entries have no Position, an
	// append to them gives no Token, and they are followed with ReadFrom. Their Holds
	// and checkpoints are seqnos.
	Dedicated
)

// String returns "shared" or "dedicated".
func (l Layout) String() string {
	if l == Dedicated {
		return "dedicated"
	}
	return "shared"
}

// CategorySpec says what a category is.
type CategorySpec struct {
	Name   Category
	Layout Layout
	// TrimFreely lets Trim go past the last durable snapshot. Without it (the
	// default) a stream is only trimmed behind a snapshot, as aggregates need it.
	TrimFreely bool
}

// Streams creates and drops the streams of dedicated categories. Every operation on
// one that does not exist answers ErrNoSuchStream and creates nothing.
type Streams interface {
	// CreateStreams creates streams, empty and at epoch 0; one that exists stays as
	// it is, so calling it again is safe. ErrNoSuchCategory, and ErrInvalid if a
	// category is not dedicated, before anything is created; if it fails on the way
	// some of many may have been created.
	CreateStreams(ctx context.Context, streams []Stream) error
	// DropStream removes a stream with its entries, snapshot and holds.
	// ErrNoSuchStream if there is none. A stream created anew under its name begins
	// at seqno 1 and epoch 0.
	DropStream(ctx context.Context, s Stream) error
}

// Snapshots keeps the newest snapshot of each stream.
type Snapshots interface {
	// SaveSnapshot keeps sn if it is newer than the one kept, or replaces one at
	// the same seqno; an older one is dropped in silence. ErrDiverged if the entry
	// at its mark is another one or lies above the head.
	SaveSnapshot(ctx context.Context, sn Snapshot) error
	// Load returns head, usable snapshot and the entries behind it, as of one
	// moment, in one round trip. A snapshot is usable if it has the fingerprint,
	// stands at an entry of this history and has its checksum; else it is left
	// out, Skipped says why, and the entries are those from the first on
	// (ErrTrimmed if they are gone). Fingerprint "" asks for no snapshot,
	// AnyFingerprint for one with any.
	Load(ctx context.Context, s Stream, fingerprint string, limit int) (Loaded, error)
}

// AnyFingerprint asks Load for the snapshot that is kept, whichever code made it: for who
// looks at its Fingerprint himself. No snapshot has it as its own.
const AnyFingerprint = "*"

// TrimmedStreams tells which streams a feed no longer shows.
type TrimmedStreams interface {
	// ListTrimmed returns streams of a category that were trimmed through their last
	// entry, in no order that means anything. It looks at no more than limit streams,
	// behind those of the page whose Next after is ("": from the first on), in the slots
	// given (empty: all). A stream that is so from the first page to the last is listed
	// once; one that becomes so meanwhile may be left out.
	ListTrimmed(ctx context.Context, c Category, slots []Slot, after string, limit int) (TrimmedPage, error)
}

// TrimmedPage is a piece of what ListTrimmed goes through.
type TrimmedPage struct {
	Streams []Stream
	Next    string // what the next page is asked for with, to be kept as it is; "": this is the last one
}

// Snapshot is a state of a stream's aggregate at a mark.
type Snapshot struct {
	Stream      Stream
	At          Mark
	Fingerprint string // of the code whose fold made it; 1 to MaxNameBytes bytes
	ContentType string
	Data        []byte
	Checksum    [sha256.Size]byte // of Data; Store fills it in
	Time        time.Time         // when it was kept; set by the backend
}

// Loaded is what it takes to build the state of one stream.
type Loaded struct {
	Head     Head
	Snapshot *Snapshot // nil if there is no usable one
	Skipped  string    // why a snapshot that is there was left out
	Entries  []Entry   // those behind the snapshot, through Head.Last unless End is false
	End      bool      // Entries reach Head.Last

	Incarnation UUID // of the store
}

// Holds keeps floors under trimming.
type Holds interface {
	// SetHold registers or moves a hold. Registering and trimming exclude each
	// other: when it returns nil, everything from the mark on is there and stays.
	// ErrTrimmed if some of it is gone; its First (of a category: FirstPosition plus
	// one) is the lowest mark that can be held.
	SetHold(ctx context.Context, h Hold) error
	// ReleaseHold removes a hold; nil if there is none.
	ReleaseHold(ctx context.Context, name string, c Category, s Stream) error
	// ListHolds returns all holds ordered by name, category, stream.
	ListHolds(ctx context.Context) ([]Hold, error)
}

// Hold is a named floor under trimming: the marked entry and all behind it stay.
// It covers one Stream (by Seqno) or, when Stream is empty, a whole Category (by
// Position). Seqno or Position 0 holds everything.
type Hold struct {
	Name     string
	Category Category // of Stream when that is given
	Stream   Stream
	Seqno    Seqno
	Position Position
	ID       UUID // of the marked entry; may be zero
}

// Leases grants named leases. A lease is advice about liveness; the promise is
// the fence that its holder sets at the lease's epoch.
type Leases interface {
	// AcquireLease grants name to holder for ttl if nobody else holds it now, under
	// an epoch strictly above every earlier one, durable before it is told. It
	// returns the lease as it stands and whether holder was granted it.
	AcquireLease(ctx context.Context, name string, holder UUID, ttl time.Duration) (Lease, bool, error)
	// RenewLease prolongs a lease by ttl from now, keeping its epoch. ErrLeaseLost
	// if it has run out, was released or has another holder or epoch.
	RenewLease(ctx context.Context, l Lease, ttl time.Duration) (Lease, error)
	// ReleaseLease gives a lease back at once; nil if it is lost already. The name's
	// epoch is remembered.
	ReleaseLease(ctx context.Context, l Lease) error
	// UpdateLeases does many of these things for one holder in one round trip, each by
	// its own rule: what cannot be granted or is lost changes nothing and is no error.
	// It returns all leases whose names begin with u.Prefix, by name, as they stand then:
	// those of others may be a little older. Left is 0 for one that nobody holds.
	UpdateLeases(ctx context.Context, u LeaseUpdate) ([]Lease, error)
}

// LeaseUpdate is what one holder does with its leases at once. All names begin with
// Prefix, and each stands once; at most MaxLeases of them.
type LeaseUpdate struct {
	Holder  UUID
	TTL     time.Duration // of those renewed and acquired, from now
	Prefix  string        // what to list
	Renew   []Lease       // by name and epoch; they are Holder's
	Acquire []string
	Release []Lease // by name and epoch; they are Holder's
}

// Lease says who may act and until when, on the store's clock.
type Lease struct {
	Name   string
	Holder UUID
	Epoch  Epoch
	Until  time.Time     // on the store's clock
	Left   time.Duration // how much of it was left when the store answered
}

// BackwardReader is implemented by logs that can read a stream backward faster
// than Store can by forward pages.
type BackwardReader interface {
	// ReadBackward returns the entries of a stream with a seqno below before, newest
	// first; before 0 starts at the head. Limits and ErrTrimmed as in ReadFrom; End
	// means that the first entry still there was reached.
	ReadBackward(ctx context.Context, s Stream, before Seqno, limit int) (Page, error)
}
