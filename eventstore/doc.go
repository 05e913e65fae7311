// Package eventstore is the contract of Wattle: the words, the Log that
// backends implement and the Store that users hold.
//
// A Log keeps streams. A stream is a gap-free sequence of entries, numbered
// 1, 2, 3… by their Seqno, and fenced: every append names the Epoch under which
// it writes, and once a higher epoch has been granted no lower one is accepted.
// Over all streams of a log the entries also have one total order, by Position,
// that agrees with the order of every stream; projectors follow it.
//
// The package is split as io/fs and log/slog are: Log is small and is for those
// who write a backend, Store is a struct and is for everybody else. What all
// backends need done in the same way (validation, limits, identifiers, spans,
// announcements) is written once, in Store.
//
// Backends: [github.com/wattle-es/wattle/eventstore/memlog] in memory,
// [github.com/wattle-es/wattle/eventstore/pglog] in PostgreSQL. A backend proves
// itself by passing [github.com/wattle-es/wattle/eventstore/logtest].
// A [Route] puts several side by side, a category in each; positions are those of one
// backend then.
//
// The package imports the standard library and the OpenTelemetry API only, so it
// builds for GOOS=js and GOOS=wasip1 and stays small there.
package eventstore
