// Package wire puts the words of eventstore into messages of wattle.v1 and back, for
// all that speaks them: remotelog, remotetopic, the server.
//
// From… makes a message, To… reads one. What a message says is never trusted: a number
// above 2^63-1, a UUID in another form, a part that is missing are an *eventstore.Error
// of kind ErrInvalid, on whichever side they come in. Names and sizes are checked by the
// Store behind, as for a call in the same process.
//
// Errors travel as a code of Connect with an ErrorDetail, which carries the kind and all
// facts. What caused an error stays where it is: it may hold SQL or a DSN. [Caller] is
// the other side of it: it tells an answer from a lost one.
package wire
