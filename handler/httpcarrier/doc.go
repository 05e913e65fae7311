// Package httpcarrier carries a handler's requests over HTTP: a [Client] that is a
// handler.Handler, and [NewHandler], which makes any handler an http.Handler for Cloud
// Run, Knative, Lambda or a plain server.
//
// # Forms
//
// A request is a POST whose body is the contract's JSON, in one of three forms; the reply
// has the form of the request, or the one that Accept names:
//
//	plain       Content-Type: application/json
//	binary      the same, and the attributes of a CloudEvent 1.0 in ce-* headers
//	structured  Content-Type: application/cloudevents+json, the contract's JSON as its data
//
// A Client sends the binary form: ce-type is "wattle.<op>.v1", ce-id the request's key,
// ce-subject the stream; beside them traceparent, tracestate and wattle-deadline (RFC
// 3339). All of it stands in the body too, which alone is believed: a header that says
// otherwise is refused.
//
// With ServerOptions.Commands any producer of CloudEvents can send commands: the type is
// the command's wire name, the subject the key of its stream, id (with the source) the
// command's identity, and data the command. With ServerOptions.Hints any POST to a path
// has a projector catch up.
//
// # Status
//
//	200                        a reply
//	422 and a reply that says  the domain refuses the command: *handler.Rejected
//	  so; another 422 is 4xx
//	401, 403                   handler.ErrDenied
//	409                        the reply's code: state, or conflict
//	413; more than ReplyBytes  eventstore.ErrTooLarge
//	429                        eventstore.ErrOverloaded: nothing was done
//	408, 425, 5xx, no answer,  handler.ErrFailed: nothing is known, the same request may
//	  half of one              be sent again
//	3xx, other 4xx             handler.ErrBadRequest: final
//	2xx without a reply        handler.ErrBadReply: final
//
// A Client makes no tries of its own: a handler.Caller does, under the same key, and the
// Executor never decides a command anew before the log has told what became of it.
//
// # Signatures
//
// A [Signer] signs requests as Standard Webhooks has it, over webhook-id, webhook-timestamp
// and the body as it is sent; a [Verifier] checks that before anything of the body is
// read. webhook-id is the request's key, so a request that was caught is good for what it
// was made for and nothing else: sent again it is the same command. The address and other
// headers are not signed: give each server keys of its own. Since nothing that matters may
// stand where no signature covers it, a server with a Verifier takes commands only as
// structured CloudEvents, whatever form their replies are to have.
package httpcarrier
