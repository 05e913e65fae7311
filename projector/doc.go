// Package projector follows the entries of a store in order, feeds them to a
// handler and keeps how far it came.
//
// # The pieces
//
// A [Projector] reads pages of the feed (of some categories) or of one stream.
// A [Handler] applies a page's entries to a read model and replaces the
// [Checkpoint] in the same step, as far as the place where the read model lives
// allows it: pgcheckpoint does it in one PostgreSQL transaction, [Memory] under
// one lock, [Sink] one after the other (effect first). [Projector.Run] works
// until it is told to stop, [Projector.CatchUp] for a bounded while, and
// [Projector.Wait] lets a reader wait for its own writes.
//
// # One write, compared and swapped
//
// Everything that a projector writes is one call, Handle(from, to, entries):
// apply the entries and replace the checkpoint from by to, or change nothing
// because the kept checkpoint is not from. The checkpoint carries an epoch and
// the UUID of the instance (holder) that was granted it, so the same call
//
//   - claims: to has from's epoch plus one and the claimer as holder;
//   - fences: whoever still works from an older epoch is refused ([eventstore.ErrFenced]);
//   - proves: after a lost answer the kept checkpoint tells whether the step landed.
//
// Run claims at its start, so the newest instance works and the one before it
// stops. CatchUp claims with its first write, so calls that overlap do not keep
// each other from working: one that loses has lost to progress.
//
// # What is kept in memory
//
// Nothing that matters. After every failed step the checkpoint is loaded anew
// and compared with the store again:
//
//	failure                        what is kept          next
//	while reading                  from                  read again
//	in the handler, before commit  from                  the same entries again
//	commit, answer lost            from or to            loading tells which
//	panic in the handler           from                  as an error of the handler
//	fenced by another instance     the other's           stop, ErrFenced
//
// # Resuming
//
// A checkpoint names a place and the ID of the entry there. Before it is used
// the entry is read again, and the store's incarnation compared: a store that
// was restored, made anew or lost its end answers [eventstore.ErrDiverged] and
// the projector stops instead of idling or skipping. When the PostgreSQL
// timeline has changed (a failover) one mark proves nothing below itself, since
// commits need not come in the order of positions; so the checkpoint also
// carries a digest of the entries before it, which is compared then.
//
// # Several backends
//
// Behind an [eventstore.Route] the categories of one projector may lie in several
// backends. There is a feed and a checkpoint for each then, worked on side by side:
// the order of entries is that of each stream, as always, and that of the feed inside
// a backend; there is none from one backend to another, and a handler that takes
// several calls at once gets one from each. [Projector.Wait] goes by the token's
// incarnation. [Projector.Status] is that of the worst.
//
// The backend of the category given to [New] keeps the key that a projector on one
// backend has; in another one the projector's name has "/" and the backend's name
// behind it, for the handler too, so (projector, version, position) still tells
// effects apart. Categories and backends can so be added and nothing is handled again.
// What would begin a backend anew that was followed before is refused.
//
// Announcements only wake: losing, repeating or inventing them changes latency
// and nothing else. The package imports the standard library, the OpenTelemetry
// API and eventstore, so it builds for GOOS=js and GOOS=wasip1.
package projector
