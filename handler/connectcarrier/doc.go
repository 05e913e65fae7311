// Package connectcarrier carries the handler contract over Connect, gRPC and gRPC-Web:
// [NewHandler] is an http.Handler that serves a handler in all three, [NewClient] is the
// handler behind a URL.
//
// The service is wattle.handler.v1.HandlerService, described in
// proto/wattle/handler/v1/handler.proto for those who write it in other languages:
// the contract's requests and replies field for field. Payloads are bytes and arrive as
// the bytes they are. As in JSON, a field that is not known is refused.
//
// A refusal by the domain is part of a reply. Errors have codes, and a Failure as detail,
// by whose code a client of ours knows the kind exactly; without it the code counts:
//
//	ErrBadRequest                  invalid_argument (also read from: out_of_range, unimplemented)
//	ErrOverloaded, ErrTooLarge     resource_exhausted (without detail: ErrOverloaded)
//	ErrDenied                      permission_denied (also read from: unauthenticated)
//	ErrStateVersion                failed_precondition with detail
//	ErrAlreadyWritten              aborted with detail
//	eventstore's ErrUnknown        unknown with detail
//	ErrFailed                      internal, deadline_exceeded, canceled; also read from: all others
//
// The caller's deadline is Connect's timeout. The headers traceparent and tracestate count
// where the message has none; Wattle-Contract, Wattle-Key are for those on the way.
//
// gRPC wants HTTP/2: TLS, or http.Protocols with UnencryptedHTTP2 on both sides. Whoever
// reaches the handler has commands decided and executed: put what authenticates callers
// around it.
//
// The package builds for js and wasip1. On js its client uses fetch where net/http does.
package connectcarrier

//go:generate make -C ../.. generate
