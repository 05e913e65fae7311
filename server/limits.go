// Every bound and default of the server, in one place.

package server

import (
	"time"

	"github.com/wattle-es/wattle/internal/wire"
)

// Bounds and defaults. Those that are fields of Limits can be set there.
const (
	// DefaultMessageBytes is what one message may have, unpacked: an append of
	// eventstore.MaxAppendBytes fits, in JSON too.
	DefaultMessageBytes = wire.MaxRequestBytes
	// DefaultRatio is how many times its size a packed message may have unpacked, from
	// ratioFrom on. Ordinary data is far below it; 16 MiB of zeros are not, and pass.
	DefaultRatio = 200
	// DefaultElements is how many messages, map entries and strings a message may hold. It
	// bounds what a few bytes become in memory: some 200 bytes each.
	DefaultElements = 400_000
	// DefaultInFlightBytes is what all requests together may have that are being read,
	// unpacked or handled, and what is read for them until it is sent.
	DefaultInFlightBytes = 256 << 20
	// DefaultReads is how many pages and snapshots may be made at once for unary calls; more
	// wait. What is made counts among the bytes in flight until it is sent.
	DefaultReads = 64
	// DefaultHeaderBytes is what the header of a request may have.
	DefaultHeaderBytes = 32 << 10
	// DefaultConnections is how many there may be; those over it are closed at once.
	DefaultConnections = 4096
	// DefaultStreamsPerConnection is how many calls an HTTP/2 connection may carry at once.
	DefaultStreamsPerConnection = 250
	// DefaultStreamsPerIdentity is how many streams (Follow, Consume…) one identity may
	// have open.
	DefaultStreamsPerIdentity = 1000
	// DefaultCalls is how many calls there may be at once, unary and streams.
	DefaultCalls = 16_384
	// DefaultHeaderTimeout bounds the handshake of TLS and the reading of a header.
	DefaultHeaderTimeout = 10 * time.Second
	// DefaultReadTimeout bounds the reading of a request, or of a stream's first message
	// where the client sends but one.
	DefaultReadTimeout = 30 * time.Second
	// DefaultWriteTimeout bounds one write: who has not read for so long is cut off.
	DefaultWriteTimeout = 30 * time.Second
	// DefaultIdleTimeout closes a connection without calls.
	DefaultIdleTimeout = 2 * time.Minute
	// DefaultUnaryTimeout bounds a unary call from its decoded request to its answer.
	DefaultUnaryTimeout = time.Minute
	// DefaultDrainTimeout bounds Shutdown when the context of Serve ends.
	DefaultDrainTimeout = 30 * time.Second
	// DefaultReloadInterval is how often the files are looked at.
	DefaultReloadInterval = 2 * time.Second
	// DefaultReadyInterval is for how long the answer of a probe is believed.
	DefaultReadyInterval = 2 * time.Second
	// DefaultReadyTimeout bounds a probe; one that takes longer has failed.
	DefaultReadyTimeout = 3 * time.Second

	maxIdentityBytes   = 256     // of an identity
	maxTokenBytes      = 512     // of a bearer token
	minTokenBytes      = 16      // of a bearer token
	maxTokens          = 1000    // in the file
	maxListBytes       = 1 << 20 // of the files with tokens, revoked certificates, authorities
	maxStreamAccesses  = 1024    // different ones that a stream remembers; with more a change of policy ends it
	maxLoggedBytes     = 200     // of what a log repeats of a request
	ratioFrom          = 16 << 20
	pingAfter          = 30 * time.Second // silence on an HTTP/2 connection
	pingTimeout        = 15 * time.Second
	pathShownBytes     = 100
	drainPoll          = 5 * time.Millisecond
	largeBytes         = 64 << 10 // of a message that waits for its turn to be decoded
	decodersPerCore    = 2
	compressBytes      = 1 << 10 // answers from here on are packed
	receivePerStream   = 1 << 20 // HTTP/2 windows: what is in memory before it is asked for
	receivePerConn     = 2 << 20
	envelopeBytes      = 5 // around a message, but in a unary call of Connect
	readinessBodyBytes = 4 << 10
)

// Limits are the bounds that can be set. Zero fields are the defaults of this file.
type Limits struct {
	MessageBytes         int
	Ratio                int
	Elements             int
	InFlightBytes        int64
	Reads                int
	HeaderBytes          int
	Connections          int
	StreamsPerConnection int
	StreamsPerIdentity   int
	Calls                int
	HeaderTimeout        time.Duration
	ReadTimeout          time.Duration
	WriteTimeout         time.Duration
	IdleTimeout          time.Duration
	UnaryTimeout         time.Duration
	DrainTimeout         time.Duration
}

func orDefault[T int | int64 | time.Duration](value *T, fallback T) {
	if *value <= 0 {
		*value = fallback
	}
}

// withDefaults fills in what is not set.
func (l Limits) withDefaults() Limits {
	orDefault(&l.MessageBytes, DefaultMessageBytes)
	orDefault(&l.Ratio, DefaultRatio)
	orDefault(&l.Elements, DefaultElements)
	orDefault(&l.InFlightBytes, DefaultInFlightBytes)
	orDefault(&l.Reads, DefaultReads)
	orDefault(&l.HeaderBytes, DefaultHeaderBytes)
	orDefault(&l.Connections, DefaultConnections)
	orDefault(&l.StreamsPerConnection, DefaultStreamsPerConnection)
	orDefault(&l.StreamsPerIdentity, DefaultStreamsPerIdentity)
	orDefault(&l.Calls, DefaultCalls)
	orDefault(&l.HeaderTimeout, DefaultHeaderTimeout)
	orDefault(&l.ReadTimeout, DefaultReadTimeout)
	orDefault(&l.WriteTimeout, DefaultWriteTimeout)
	orDefault(&l.IdleTimeout, DefaultIdleTimeout)
	orDefault(&l.UnaryTimeout, DefaultUnaryTimeout)
	orDefault(&l.DrainTimeout, DefaultDrainTimeout)
	return l
}
