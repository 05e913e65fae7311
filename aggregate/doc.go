// Package aggregate decides commands over streams of events.
//
// A Decider is three pure functions: Initial, Decide, Evolve. A Type binds it to a
// category of streams, a registry of events and a policy of snapshots. An Executor
// does the rest: it loads the stream's state, lets the Decider decide, and appends
// the events; if somebody else was faster it loads and decides again.
//
//	exec, err := aggregate.NewExecutor(ctx, store, accounts, nil)
//	res, err := exec.Execute(ctx, "alice", Deposit{Amount: 500})
//
// # Claim by append
//
// Nothing is locked in the store and no lease is held. Each append carries the
// epoch and the mark of the last entry that was folded; the log lets it through
// only if both are still true, in one atomic step.
//
//   - Cold: one read (snapshot and tail), then an append that claims the epoch
//     above the loaded one.
//   - Warm: the state is in the cache, so an append and nothing else, under the
//     epoch claimed before. If another process has claimed since, the append is
//     refused as fenced, and the Executor loads and decides again.
//
// So a process that was frozen, duplicated or cut off cannot do harm: what it
// decided on an old state is refused.
//
// # What becomes of a command
//
//   - Its events are appended once, and Execute returns them.
//   - Decide refuses it: Execute returns that error as it is. Nothing was written.
//   - Decide answers no events: accepted, nothing to write.
//   - The log refuses (fenced, already written, a guard): decided again on what is
//     there now, up to Options.Retries times, with jitter between.
//   - The history that was folded is no longer there: eventstore.ErrDiverged, at
//     once; whoever sees it must look before going on.
//   - The answer got lost: the same batch is sent again until the log proves that
//     it is there or absent. A command is not decided again before that. If no
//     proof comes in time: eventstore.ErrUnknown.
//   - Anything else (unavailable, overloaded, read-only, a context that ended): the
//     error, at once. Nothing was written.
//
// A refusal and an empty answer are true for the log, not only for the cache: when
// they were decided on a cached state, one small read of the stream's head makes
// sure that it is still the last one.
//
// # Commands with an ID
//
// With [CommandID] or [CommandKey] a command may be executed any number of times
// and takes effect once: one whose ID is in the history is not decided again but
// answered with what it wrote then. The ID alone says which command it is; what
// the command holds is not compared. Refusals and empty answers leave nothing
// behind, so such a command is decided anew.
//
// The IDs of the last commands (eventstore.DefaultRememberedIDs, or
// [Snapshots].RememberedIDs) go into snapshots and so survive a trim. Beyond them,
// an ID that carries its time (UUIDv7) is looked for in the SearchedEntries entries
// before; if these do not settle it, the answer is [ErrForgotten]. An ID of any
// other version carries no time, and beyond the remembered ones it is taken for new.
//
// # What is folded
//
// The events of a decision are encoded, decoded and folded before they are
// appended. So a warm state is what a load would give, field for field, and an
// event that could not be read back, or on which Evolve panics, is never written.
//
// # Panics
//
// A panic in Decide or Evolve goes through to the caller. The stream's state is
// taken out of the cache while a command is worked on and put back only when all
// went well, so nothing half done stays behind, and other commands go on.
//
// The package imports no backend and builds for GOOS=js and GOOS=wasip1. It starts
// no goroutine and keeps no connection, so a process may be frozen between calls.
package aggregate
