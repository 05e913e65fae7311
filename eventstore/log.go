// The contract that backends implement: Log, and what it answers.

package eventstore

import "context"

// Log is the core of a backend. Everybody else holds a [Store] around it.
//
// All methods may be called at once from any number of goroutines. Arguments are
// complete and valid (Store sees to it) and are not changed; a Log still must not
// be harmed by others. Every error is an *Error but one: a context that ends before
// the log has begun to write gives the context's error, nothing written. One that
// ends later gives ErrUnknown. After Close every method answers ErrClosed.
type Log interface {
	// Append writes all batches or none.
	//
	// When it returns nil every batch is durable and byte-equal through its last
	// seqno. Resending is safe: a batch whose entries After+1…n stand there with
	// its ID and its content is proved, nothing is written for it, and its receipt
	// says so. If all batches are proved the answer is nil.
	//
	// A refusal writes nothing at all. Its kind is the highest of these over all
	// batches that are not proved: ErrNoSuchCategory, ErrNoSuchStream,
	// ErrBatchIDReused, ErrFenced, ErrDiverged, ErrAlreadyWritten, ErrGap,
	// ErrUnknown (Unprovable), ErrGuard; among equals the first batch's. If nothing
	// is refused but only some batches are proved, it is ErrBatchIDReused.
	Append(ctx context.Context, a Append) (Appended, error)

	// ReadFrom returns the entries of a stream after a seqno, in order, at most
	// limit and at most about MaxPageBytes of them, and at least one if there is
	// one. It answers ErrTrimmed if the entry after+1 has been removed. A shared
	// stream that does not exist reads as empty, a dedicated one gives ErrNoSuchStream.
	ReadFrom(ctx context.Context, s Stream, after Seqno, limit int) (Page, error)

	// ReadFeed returns entries after a position, in position order, that match the
	// filter. It looks at no more than limit entries of the filter's categories
	// and nothing above the horizon, below which nothing can still appear. Dedicated
	// categories are not in it; naming one is ErrInvalid. It
	// answers ErrTrimmed if after lies below the trimmed-to position of one of the
	// categories, unless the filter takes snapshots.
	ReadFeed(ctx context.Context, after Position, f Filter, limit int) (FeedPage, error)

	// Fence grants holder an epoch and returns the head, which is final for all
	// lower epochs. at 0 grants the next one (the stream's plus one, another one
	// each time); otherwise at must be strictly greater than the stream's epoch, or
	// equal to it with the same holder, else ErrFenced. The grant is durable before
	// it is told. A shared stream that does not exist is created.
	Fence(ctx context.Context, s Stream, holder UUID, at Epoch) (Head, error)

	// Head returns what the registry knows of a stream; the zero Head for a shared
	// stream that does not exist.
	Head(ctx context.Context, s Stream) (Head, error)

	// Trim removes the entries of a stream up to and including a seqno, as far as
	// the head, the Holds and, in a category that demands snapshots, the last
	// durable snapshot allow. What is removed can no longer be read once it
	// returns; seqnos are never reused. With dry it only tells.
	Trim(ctx context.Context, s Stream, through Seqno, dry bool) (TrimResult, error)

	// Close releases what the log holds; appends in flight end first.
	Close() error
}

// Head is what the registry knows of a stream. It is zero for a shared stream
// that does not exist.
type Head struct {
	Epoch   Epoch
	Holder  UUID  // who was granted Epoch
	Last    Mark  // of the last entry, also when that has been trimmed
	Trimmed Seqno // highest seqno removed
}

// Page is a piece of one stream.
type Page struct {
	Entries []Entry
	End     bool // nothing stood behind Entries when they were read
}

// MaxPageBytes bounds the payload of one page: it ends with the entry that passes
// this mark (8 MiB).
const MaxPageBytes = 8 << 20

// Filter chooses what a feed returns. The zero Filter takes everything.
type Filter struct {
	Categories    []Category // empty: all
	Types         []string   // wire names; empty: all
	Slots         []Slot     // empty: all
	AcceptTrimmed bool       // the reader takes snapshots: skip what was trimmed
}

// FeedPage is a piece of the feed.
type FeedPage struct {
	Entries []Entry
	// Through is how far the page got: the mark of the last entry looked at,
	// matching or not; zero when none was. It is what a reader keeps, never the
	// horizon, which a crash can take back.
	Through PositionMark
	End     bool // nothing stood between Through and the horizon
	// Horizon is the position below which nothing can still appear. It answers
	// whether a Token has been passed and is used once, never kept: an append in
	// flight can make the next one lower.
	Horizon Position
	// Drawn is the highest position given out so far, committed or not: a place
	// above it is of another history.
	Drawn       Position
	Incarnation UUID // of the store
	// Timeline names the history of the PostgreSQL server: it changes with a failover,
	// and with a dump that was restored. Then a window below the checkpoint is
	// compared. 0 elsewhere.
	Timeline uint64
}

// TrimResult is the answer to Trim.
type TrimResult struct {
	Trimmed   Seqno  // highest seqno removed (with dry: that would be)
	StoppedBy string // what kept it from going further, as `hold "archive" at 5`; "" if nothing did
}
