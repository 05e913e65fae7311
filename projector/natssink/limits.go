// Every bound and default of the package, in one place.

package natssink

import "time"

const (
	// DefaultPrefix is the first token of all subjects where none is named. Announcements
	// have another one.
	DefaultPrefix = "events"
	// MaxPrefixBytes bounds Options.Prefix.
	MaxPrefixBytes = 128
	// DefaultKeys is how many messages wait for their acknowledgement at once.
	DefaultKeys = 128
	// DefaultMinWindow is the duplicate window that a server gives to a stream that does
	// not name one. A projector that takes over, or comes back from an outage, has to be
	// at work within it.
	DefaultMinWindow = 2 * time.Minute
	// DefaultTimeout is how long an acknowledgement is waited for.
	DefaultTimeout = 5 * time.Second
)
