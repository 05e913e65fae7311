// Every bound of this package, in one place.

package loan

const (
	// MaxTokenBytes bounds one XML token (a tag with its attributes, a text, a
	// comment) of a log. The longest of the real log has under 6 KiB.
	MaxTokenBytes = 64 << 10
	// MaxValueBytes bounds a value that is kept: a key, a name, a transition, a
	// resource.
	MaxValueBytes = 1 << 10
	// MaxDepth bounds the nesting of a log's elements. The real log has 4.
	MaxDepth = 32
	// MaxEventsPerCase bounds one case, the only one held in memory. The longest
	// of the real log has 175 events.
	MaxEventsPerCase = 10_000
	// MaxAmount bounds a requested amount, in whole euros, so that the sums of a
	// report cannot overflow before 9 million cases.
	MaxAmount = 1_000_000_000_000
	// MaxYear bounds business time, in UTC. It leaves out 9999, as another zone's
	// year may be one more than UTC's, which JSON cannot carry.
	MaxYear = 9998
)
