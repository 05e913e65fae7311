// Package handler is the contract between domain code and whatever runs it: one request,
// one reply, pure functions, so that it makes no difference whether the code is part of
// the process, a function behind HTTP, a service on NATS or Connect, or a WebAssembly
// guest.
//
// A [Handler] answers a [Request] with a [Reply]. It decides commands on a state and
// events, folds events into a state, and turns entries into changes of documents. It
// never sees an epoch, a connection or a clock: the host loads, calls, checks the reply,
// and appends under the fence. So a handler may be frozen, killed, called twice or answer
// late, and the worst that happens is that an answer is not used.
//
// # Who does what
//
// On the far side, domain code is made a Handler by aggregate/guest and projector/guest,
// and served by a carrier. On the host's side a carrier's client is a Handler too; a
// [Caller] adds what a host owes: a key that stays the same over all tries of a call, a
// deadline, the trace, retries with pauses, and [Check] on every reply. The Executor of a
// remote Decider (aggregate/guest) and the projector of a remote projection
// (projector/guest) are made of that.
//
// # Outcomes
//
// Three kinds of bad news stay apart. A [*Rejected] is the domain's answer, final. An
// [ErrBadReply] is a bug of the handler, final too. [ErrFailed] says nothing: a pure call
// may be made again, and a command is never decided anew before the log has said what
// became of its batch.
//
// Requests and replies in JSON, for handlers in other languages, are described in
// CONTRACT.md beside this file. [ParseRequest], [ParseReply], [AppendRequest] and
// [AppendReply] read and write it; payloads pass as the bytes they are.
package handler
