// Every bound of the carrier, in one place. Sizes of requests and replies are the
// contract's: handler.DefaultRequestBytes and DefaultReplyBytes.

package httpcarrier

import "time"

// Defaults.
const (
	DefaultGzipOver    = 4 << 10          // bytes: what is longer is compressed
	DefaultReadTimeout = 10 * time.Second // for a request's body to come
	DefaultTolerance   = 5 * time.Minute  // between a signature's time and the verifier's clock, either way
	DefaultRemembered  = 10_000           // keys that a ReplayGuard keeps
)

// Bounds that are not for setting.
const (
	// MaxGzipRatio is how much longer than it came a body may become, once it is over
	// gzipFloor. JSON of events, the same over and over, gets to 50.
	MaxGzipRatio = 200
	// MaxAttributes and MaxAttributeBytes bound what a CloudEvent has beside its data.
	MaxAttributes     = 64
	MaxAttributeBytes = 16 << 10
	// MaxKeys is how many keys sign, or are accepted, at a time.
	MaxKeys = 4
	// MaxHeaderBytes bounds the headers of a reply.
	MaxHeaderBytes = 64 << 10

	maxSignatures = 8        // in one webhook-signature: who signs nothing can have that many checked
	gzipFloor     = 64 << 10 // bytes
	drainBytes    = 64 << 10 // of a reply that is not wanted, to keep the connection
)
