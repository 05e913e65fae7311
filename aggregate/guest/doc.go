// Package guest has the two sides of an aggregate whose Decider is not part of the
// process that appends.
//
// On the far side [New] makes a Decider a handler.Handler, which any carrier serves:
// HTTP, NATS, Connect, or as a WebAssembly guest with one line, [Export]. It is a pure
// function: the request brings state, events since and the command, the reply takes
// events and the new state away.
//
// On the host's side [NewExecutor] makes an Executor over a handler.Caller. It is an
// aggregate.Executor in everything: it loads, claims, appends under the fence, retries and
// proves lost answers as any other; only the decision is made elsewhere. A handler that
// dies, answers late or twice, or is decided on by two hosts at once costs tries and
// nothing else.
//
// [NewService] is the other way round: a whole Executor as a handler of the operation
// execute, for callers that have no store. It is not pure, but goes by the command's ID:
// asked again it answers what became of the command.
package guest
