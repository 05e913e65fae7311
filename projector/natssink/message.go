// Messages: subject, headers and the ID by which the server knows a repeat.

package natssink

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// Headers of a message beside those of NATS and the W3C's traceparent and tracestate.
const (
	HeaderID          = "Wattle-Event-Id"      // UUID of the entry
	HeaderType        = "Wattle-Event-Type"    // wire name, percent-encoded
	HeaderVersion     = "Wattle-Event-Version" // of the schema of the data
	HeaderContentType = "Content-Type"         // of the data
	HeaderStream      = "Wattle-Stream"        // "category-key", percent-encoded
	HeaderSeqno       = "Wattle-Seqno"         // in the stream
	HeaderPosition    = "Wattle-Position"      // in the store; 0 in the dedicated layout
	HeaderTime        = "Wattle-Time"          // of the append, RFC 3339, UTC
)

// MessageID returns the Nats-Msg-Id of an entry: "projector/version/position/entry-id",
// the projector's name percent-encoded, with the backend's behind it if there is one.
func MessageID(key projector.Key, e eventstore.Entry) string {
	name := strings.ReplaceAll(url.PathEscape(key.Projector), "%2F", "/")
	return name + "/" + strconv.Itoa(key.Version) + "/" + e.Position.String() + "/" + e.ID.String()
}

func (s *sink) subject(e *eventstore.Entry) string {
	return s.o.Prefix + "." + string(e.Stream.Category())
}

func (s *sink) message(key projector.Key, e *eventstore.Entry) *nats.Msg {
	h := nats.Header{}
	for _, pair := range [][2]string{
		{nats.MsgIdHdr, MessageID(key, *e)},
		{nats.ExpectedStreamHdr, s.stream},
		{HeaderID, e.ID.String()},
		{HeaderType, url.PathEscape(e.Type)},
		{HeaderVersion, strconv.Itoa(e.Version)},
		{HeaderContentType, e.ContentType},
		{HeaderStream, url.PathEscape(string(e.Stream))},
		{HeaderSeqno, e.Seqno.String()},
		{HeaderPosition, e.Position.String()},
		{HeaderTime, e.Time.UTC().Format(time.RFC3339Nano)},
	} {
		h[pair[0]] = []string{pair[1]}
	}
	parent, state := e.Metadata[eventstore.MetaTraceparent], e.Metadata[eventstore.MetaTracestate]
	if _, valid := eventstore.ParseTraceparent(parent, state); valid {
		h[eventstore.MetaTraceparent] = []string{parent}
		if state != "" {
			h[eventstore.MetaTracestate] = []string{state}
		}
	}
	return &nats.Msg{Subject: s.subject(e), Header: h, Data: e.Data}
}
