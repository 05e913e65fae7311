// Package server is what stands between a socket and the services of wattle.v1: it knows
// who asks, decides what may be done, bounds what it costs, and tells how it is.
//
// # Way of a call
//
// A connection is accepted while there is room for it, with TLS 1.3 unless told otherwise.
// A request's path must be that of a procedure, byte for byte; nothing is cleaned or
// decoded for it. Then, before any of its body is read: is the server draining, who asks
// (below), is there room for the call and for the bytes it announces. Its body is counted
// while it is read, against a limit of its own and one for the whole process; what it
// unpacks to is counted too. The message is then decoded, and an interceptor asks the
// policy about every access that it needs: those of an append on each batch's category
// and each guard's, say. On a stream each message is asked about. Only what is allowed
// reaches the service. A procedure without a row in the table of accesses is denied.
//
// All of this is the same for gRPC, gRPC-Web, Connect, JSON, HTTP/1.1 and HTTP/2.
//
// # Who asks
//
// With TLS, whoever has a client certificate that an authority of ours has signed, for the
// use of clients, and that is not on the list of revoked ones: its identity is "uri:" and
// its only URI; if it has none "dns:" and its only host name; if it has none of those
// "email:" and its only e-mail address. Two of the kind that counts are none. The common
// name never counts. Without a certificate, "token:" and the name of the token sent as
// bearer, where tokens are configured: they are for development. Where a proxy is
// configured and its certificate's identity is the caller's, a header names the real one,
// which is then "proxy:" and what the header says; from anybody else that header counts
// for nothing. Else, if the server was told so, "anonymous". Else nobody: UNAUTHENTICATED.
//
// # Changes
//
// Policy, certificate, key, authorities, tokens and revoked certificates are read again
// when their files change, without a restart. A broken file changes nothing: it is logged
// and shown by /readyz and the metrics. A change is in force for the next call at once, and
// ends the streams that it forbids: with DENIED, or with UNAUTHENTICATED when who opened it
// is no longer known. A stream also ends when its certificate expires.
//
// # Shutdown
//
// Readiness goes red, new calls are refused with GOING_AWAY, calls in flight are answered,
// streams end with GOING_AWAY, and within a bounded time everything is closed.
package server
