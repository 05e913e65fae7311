// Package natscarrier carries the handler contract over NATS requests: [Serve] makes a
// handler a micro service, [NewClient] is the handler behind one.
//
// Each operation is an endpoint of its own, with the subject
//
//	<prefix>.<operation>        as handler.loan.decide
//
// Body of request and reply are the contract's JSON. Headers repeat what those on the way
// may want to see, and what a caller without a clock to compare can say:
//
//	Wattle-Contract   1         the version of the contract
//	Wattle-Key        UUID      of the call: the same for every try of it
//	Wattle-Timeout    4987      milliseconds that the caller waits, from the sending on
//	traceparent, tracestate     W3C trace context, which counts if the body has none
//
// Where a header contradicts the body the request is refused. A reply whose body is a
// Failure has the headers of a micro service's error too (400 invalid, 409 state or
// conflict, 413 toolarge, 500 others), so that "nats micro stats" and the like show it.
// Errors without a body come from before the handler: 503 where there was no room, 403
// where the caller was denied.
//
// Copies of a service in one queue group share the calls. A copy that has no room says so
// at once ([eventstore.ErrOverloaded]), which a handler.Caller tries again, perhaps with
// another copy. NATS loses messages and never says so: a lost request or reply is a
// deadline that passes ([handler.ErrFailed]). Handlers are pure, or prove by the command's
// ID what became of it, so such a call is made again.
//
// Whoever may publish on the subjects has commands decided and executed. Give that right
// to hosts alone, and the right to subscribe to services, by the accounts and permissions
// of the NATS server.
package natscarrier
