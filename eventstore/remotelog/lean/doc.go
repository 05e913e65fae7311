// Package lean is a client of the service of package remotelog for programs that must be
// small: an eventstore.Log over Connect's plain form, a POST of JSON, without Connect and
// without Protocol Buffers. On js it uses the host's fetch, as Node.js, browsers and
// Cloudflare Workers have it, else net/http. It has no streams of messages: projectors
// poll.
//
// Its answers are those of remotelog's client, errors and their facts included.
package lean
