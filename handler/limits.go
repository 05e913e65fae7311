// Every bound of the contract, in one place.

package handler

import "time"

// Defaults of Limits.
const (
	DefaultRequestBytes = 1 << 20 // 1 MiB
	DefaultReplyBytes   = 4 << 20 // 4 MiB
	DefaultEvents       = 1000    // events of one decision
	DefaultBatch        = 500     // entries of one request
	DefaultTimeout      = 5 * time.Second
	DefaultRetries      = 2
)

// Bounds that are not for setting.
const (
	MaxDepth        = 128     // nesting of a JSON value
	MaxDocumentKey  = 512     // bytes of a document's key
	MaxDocumentKeys = 10_000  // documents that one batch reads, or changes
	MaxIssues       = 1000    // commands of one batch, and timers of one
	MaxMessageBytes = 4 << 10 // of a rejection's or failure's text; what is longer is cut
	MaxCodeBytes    = 64      // of its code
	MaxWires        = 1024    // wire names and versions of a handler
)

// Limits bound what a host sends and accepts. Zero fields mean the defaults.
type Limits struct {
	RequestBytes int // of one request; what is longer is sent in several where it can be: DefaultRequestBytes
	ReplyBytes   int // of what one reply carries: DefaultReplyBytes
	Events       int // that one command may have: DefaultEvents
	Batch        int // entries of one request: DefaultBatch
}

func (l Limits) orDefault() Limits {
	or := func(n *int, otherwise int) {
		if *n <= 0 {
			*n = otherwise
		}
	}
	or(&l.RequestBytes, DefaultRequestBytes)
	or(&l.ReplyBytes, DefaultReplyBytes)
	or(&l.Events, DefaultEvents)
	or(&l.Batch, DefaultBatch)
	return l
}
