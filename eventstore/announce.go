// Announcements: hints that something new was written.

package eventstore

import "context"

// Announcement is a hint that a stream has grown. It carries no truth: loss,
// repeat, reordering and delay change latency only. Whoever gets one reads the
// log to learn what is there.
type Announcement struct {
	Category    Category
	Slot        Slot
	Stream      Stream
	Seqno       Seqno    // of the last entry written
	Position    Position // of the append
	Traceparent string   // W3C trace context of the append, may be empty
}

// Announcer carries announcements, as natsannounce does over NATS.
// Both methods may be called from several goroutines at once.
type Announcer interface {
	// Announce sends hints. It must not block for long; an error is logged by the
	// Store and changes nothing else.
	Announce(ctx context.Context, hints []Announcement) error
	// Subscribe calls f, from a goroutine of the announcer, with the hints of the
	// categories (none: all) until stop is called. An empty Announcement means that
	// some may have been lost: look now. f must not block.
	Subscribe(ctx context.Context, categories []Category, f func(Announcement)) (stop func(), err error)
}
