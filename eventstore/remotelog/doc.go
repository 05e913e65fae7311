// Package remotelog is a log at the other end of a network: a service over any
// eventstore.Store, and a client of it that is itself an eventstore.Log.
//
// The service speaks Connect, gRPC, gRPC-Web and plain HTTP with JSON; its messages are
// those of wattle.v1, in the folder proto. It carries errors with all their facts, so
// that the client answers as the log behind the server would.
//
// The client is for js too, where it goes over fetch: build with -tags nethttpomithttp2,
// which leaves out an HTTP/2 that fetch has itself.
package remotelog
