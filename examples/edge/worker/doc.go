// Package worker runs an http.Handler as a Cloudflare Worker, and opens connections from
// there: what worker.mjs is to the runtime it is to Go. It is built for GOOS=js only.
package worker
