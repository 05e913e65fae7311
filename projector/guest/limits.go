// Every bound of this package, in one place.

package guest

const (
	// entriesShare is the part of a request that entries may take; the rest is for the
	// documents, which are not known yet when a batch is cut.
	entriesShare = 2
	// Over-estimates of what an entry, a document and a request take beside their texts.
	entryBytes    = 320
	documentBytes = 8
	requestBytes  = 2048
	// An escaped byte of a text takes at most so many.
	escapedBytes = 6
)
