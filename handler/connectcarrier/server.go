// The far side.

package connectcarrier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/connectcarrier/handlerv1"
	"github.com/wattle-es/wattle/handler/internal/farside"
)

const (
	headerContract    = "Wattle-Contract"
	headerKey         = "Wattle-Key"
	headerTraceparent = "Traceparent"
	headerTracestate  = "Tracestate"

	maxTracestate = 512 // bytes; a longer one stays in the message alone
)

// ServerOptions are the options of NewHandler; nil and zero fields are the defaults.
type ServerOptions struct {
	// Running bounds how many calls run at once, Waiting how many more wait for their
	// turn or are being read; what is over both is refused at once, unread. 0: 64 and
	// 256. Negative Waiting: none.
	Running, Waiting int
	// Timeout bounds every call, and separately the reading of its request; where the
	// caller waits less long, that counts. 0: handler.DefaultTimeout.
	Timeout        time.Duration
	Limits         handler.Limits          // RequestBytes and ReplyBytes count here, of messages uncompressed
	TracerProvider trace.TracerProvider    // nil: no spans; else one of kind server around each call
	Logger         *slog.Logger            // for panics of the handler; nil: nobody is told
	Options        []connect.HandlerOption // of Connect, behind ours: interceptors, say
}

// NewHandler returns a path and what to serve below it: h by Connect, gRPC and gRPC-Web,
// with messages in the binary form or JSON, plain or in gzip. A panic of h is an error of
// that call. To stop without losing calls use the Shutdown of the http.Server.
func NewHandler(h handler.Handler, o *ServerOptions) (path string, served http.Handler) {
	if o == nil {
		o = &ServerOptions{}
	}
	s := &server{h: farside.Contain(h, o.Logger), gate: farside.NewGate(o.Running, o.Waiting), timeout: o.Timeout,
		requestBytes: handler.DefaultRequestBytes, replyBytes: handler.DefaultReplyBytes}
	if s.timeout <= 0 {
		s.timeout = handler.DefaultTimeout
	}
	if o.Limits.RequestBytes > 0 {
		s.requestBytes = o.Limits.RequestBytes
	}
	if o.Limits.ReplyBytes > 0 {
		s.replyBytes = o.Limits.ReplyBytes
	}
	if o.TracerProvider != nil {
		s.h = handler.Traced(s.h, o.TracerProvider)
	}
	options := append([]connect.HandlerOption{
		connect.WithReadMaxBytes(max(wallBytes, s.requestBytes)), // how much is sent message says
		connect.WithCompression("gzip", newUnzip("request", s.requestBytes), newZip), connect.WithCompressMinBytes(compressBytes),
		connect.WithCodec(strictJSON{"json"}), connect.WithCodec(strictJSON{"json; charset=utf-8"}),
	}, o.Options...)
	s.writer = connect.NewErrorWriter(options...)
	path, s.next = handlerv1.NewHandlerServiceHandler(s, options...)
	return path, s
}

type server struct {
	h                        handler.Handler
	gate                     *farside.Gate
	timeout                  time.Duration
	requestBytes, replyBytes int
	writer                   *connect.ErrorWriter
	next                     http.Handler
}

// ServeHTTP refuses what there is no room for before it is read.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	known := &handler.Request{}
	if err := s.gate.Enter(known); err != nil {
		_ = s.writer.Write(w, r, asError(known, err)) // who cannot be told has gone
		return
	}
	defer s.gate.Leave()
	r.Body = bounded(w, r, s.requestBytes, s.timeout)
	s.next.ServeHTTP(w, r)
}

// Handle implements the service.
func (s *server) Handle(ctx context.Context, m *handlerv1.Request) (*handlerv1.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	r, err := s.request(ctx, m)
	if err != nil {
		return nil, asError(r, err)
	}
	done, err := s.gate.Turn(ctx)
	if err != nil {
		return nil, asError(r, &handler.Error{Kind: handler.ErrFailed, Op: r.Op, Stream: r.Stream, Wanted: "a turn in time", Found: "none", Err: err})
	}
	defer done()
	reply, err := s.h.Handle(ctx, r)
	if _, refused := errors.AsType[*handler.Rejected](err); err != nil && !refused {
		return nil, asError(r, err)
	}
	answered := handler.Func(func(context.Context, *handler.Request) (*handler.Reply, error) { return reply, err })
	return s.message(r, handler.Answer(ctx, answered, r, nil))
}

// message makes a reply one, if it is not too large.
func (s *server) message(r *handler.Request, reply *handler.Reply) (*handlerv1.Reply, error) {
	m := encodeReply(reply)
	if n := proto.Size(m); n > s.replyBytes {
		return nil, asError(r, &handler.Error{Kind: eventstore.ErrTooLarge, Op: r.Op, Stream: r.Stream,
			Wanted: fmt.Sprintf("a reply of at most %d bytes", s.replyBytes), Found: fmt.Sprint(n)})
	}
	return m, nil
}

// request reads a request. Where it cannot it says so, and gives as much as it knows.
func (s *server) request(ctx context.Context, m *handlerv1.Request) (*handler.Request, error) {
	known := &handler.Request{Op: handler.Op(m.GetOp())}
	if n := proto.Size(m); n > s.requestBytes {
		return known, &handler.Error{Kind: eventstore.ErrTooLarge, Op: known.Op, Wanted: fmt.Sprintf("a request of at most %d bytes", s.requestBytes), Found: fmt.Sprint(n)}
	}
	bad := &handler.Error{Kind: handler.ErrBadRequest, Op: known.Op}
	r, err := decodeRequest(m)
	if err != nil {
		bad.Err = err
		return known, bad
	}
	call, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return r, nil
	}
	header := call.RequestHeader()
	if key := header.Get(headerKey); key != "" && key != m.GetKey() {
		bad.Wanted, bad.Found = "the key of the header, "+key, m.GetKey()
		return known, bad
	}
	if r.Traceparent == "" {
		r.Traceparent, r.Tracestate = header.Get(headerTraceparent), header.Get(headerTracestate)
	}
	return r, nil
}
