// Package projector follows the entries of a store in order, feeds them to a
// handler and keeps how far it came.
//
// # The pieces
//
// A [Projector] reads pages of the feed (of some categories) or of one stream.
// A [Handler] applies a page's entries to a read model and replaces the
// [Checkpoint] in the same step, as far as the place where the read model lives
// allows it: pgcheckpoint does it in one PostgreSQL transaction, [Memory] under
// one lock, [Sink] and [ConcurrentSink] one after the other (effect first). [Projector.Run] works
// until it is told to stop, [Projector.CatchUp] for a bounded while, and
// [Projector.Wait] lets a reader wait for its own writes.
//
// # One write, compared and swapped
//
// Everything that a projector writes is one call, Handle with a [Step]: apply the
// entries and replace the checkpoint From by To, or change nothing because the kept
// checkpoint is not From. The checkpoint carries an epoch and the UUID of the instance
// (holder) that was granted it, so the same call
//
//   - claims: To has From's epoch plus one and the claimer as holder;
//   - fences: whoever still works from an older epoch is refused ([eventstore.ErrFenced]);
//   - proves: after a lost answer the kept checkpoint tells whether the step landed.
//
// CatchUp claims with its first write, so calls that overlap do not keep each other
// from working: one that loses has lost to progress.
//
// # Lanes and workers
//
// The work of a version is divided into lanes by the slots of stream keys ([LaneOf]), so
// everything under one key is handled in order. Each lane has its checkpoint. Where the
// handler has [Control], any number of processes may Run a projector at once: they share
// the lanes evenly, under leases on the store's clock that are renewed together in one
// round trip, and take over within the TTL + 5 s what a worker leaves or loses. Whoever
// gets a lane claims it before it works, so a lease that has run out unnoticed does no
// harm. A worker reads the feed once for all its lanes. Without Control there is one lane,
// and the newest instance works: the one before it stops with ErrFenced.
//
//	worker A ── lanes 0–7 ───▶ checkpoint 0 … 7      one read of the feed for all of them
//	worker B ── lanes 8–15 ──▶ checkpoint 8 … 15
//
// # Poison
//
// An entry that its handler cannot take, for reasons of the entry and not of store or
// link, is tried Options.Tries times. A batch that fails without saying which entry was
// at fault is halved until it is known. Then its key is parked ([Parked]): the checkpoint
// passes the entry, in one step with a record of it, and so it does with all that comes
// behind it under the same key. What waits stays in the log, under a hold. [Admin.Retry]
// and [Admin.Skip] have the lane's worker handle it, in order, from the log.
//
// # Versions
//
// A version that is registered while another one is live is its shadow: it never
// overtakes the live one, and its handler is told to keep [Quiet]. [Admin.Switch] makes it
// live in one step; it then has the effects behind the place where the old one stood, and
// the old one becomes the shadow. What is parked has had none, so no version with parked
// keys is left, nor taken, unless that is asked for. [Reader] follows; [Versioned] runs all there are.
//
// Every change from outside ([Admin], [Projector.SetLanes]) is one atomic update that
// fences the lanes it concerns; workers lose the step they are at, load anew, and find
// what is wanted.
//
// # Health
//
// [Admin.Health] tells of a version, in any process, how far each lane is and who has it,
// and if it is ready: everything that was in the store when the look began is handled,
// each lane has a worker that claimed it, nothing is paused, nothing parked. It is strict
// unless [HealthOptions] say otherwise, and what cannot be read is not ready.
// [Projector.Health] adds the errors that this process knows of. [Projector.Run] reports
// metrics ([MetricLag] and those beside it) to the store's MeterProvider; there is a
// series for each version at work in a process, none for lanes, keys or streams.
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
//	fenced by another instance     the other's           leave the lane; without Control: stop, ErrFenced
//	fenced by a change             as changed            load anew, go on
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
// # Trimmed streams
//
// With Options.Snapshots a version can be built although streams were trimmed: each
// begins with its snapshot, which the handler puts in the place of what it has of the
// stream. What is handed over follows from the checkpoint and the store alone, so crashes,
// and snapshots that advance meanwhile, change nothing.
//
// Announcements only wake: losing, repeating or inventing them changes latency
// and nothing else. The package imports the standard library, the OpenTelemetry
// API and eventstore, so it builds for GOOS=js and GOOS=wasip1.
package projector
