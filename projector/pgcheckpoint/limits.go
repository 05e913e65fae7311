// Every bound and default of this package, in one place.

package pgcheckpoint

import "time"

const (
	// maxAttempts of one batch that meets serialization failures or deadlocks; the
	// projector tries again after that, with longer pauses.
	maxAttempts     = 10
	attemptPause    = 5 * time.Millisecond // doubles with each attempt up to the longest, half of it random
	longestPause    = 100 * time.Millisecond
	rollbackTimeout = time.Second

	// DefaultExamples and MaxExamples are of differences that Compare returns.
	DefaultExamples = 5
	MaxExamples     = 1000
	maxExampleBytes = 1000 // of a row in an example; the rest is cut off
)
