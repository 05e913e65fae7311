// Package foreign has tests of a wattle serve with clients that others wrote: curl, Node
// with generated code of @connectrpc, and, in a module of its own, grpcurl. What they see
// is what everybody sees who has the protobuf files and no Go.
package foreign
