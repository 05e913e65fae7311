// NewHandler: a handler as an http.Handler.

package httpcarrier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/internal/farside"
)

// Default paths.
const (
	HealthPath = "/healthz"
	ReadyPath  = "/readyz"
)

// ServerOptions of NewHandler; nil and zero fields are the defaults.
type ServerOptions struct {
	// Verifier refuses requests that nobody signed. Nil: anybody may call.
	Verifier *Verifier
	// Replay refuses a key that was another request's. Nil: nobody does.
	Replay *ReplayGuard
	// Commands is the category of commands that come as CloudEvents of their own: for a
	// handler of the operation execute. Empty: such events are refused.
	Commands eventstore.Category
	// Hints is a path, as "/hints", at which any POST has Projector catch up, whatever it
	// holds: for a handler of the operation catchup. Where more is left than was done the
	// answer is 503, so that whoever pushes comes again. A signature does not cover the path:
	// what is signed as a hint and is a command too can be sent to another path as one. Empty:
	// there is none.
	Hints     string
	Projector string
	// Ready says why requests cannot be answered now, to GET /readyz; nil: they can.
	Ready func(context.Context) error
	// Running is how many calls are answered at once, Waiting how many may be read and wait
	// beside them; what is over that is answered 429 at once, unread. 0: 64 and 256; a
	// negative Waiting: nobody waits.
	Running, Waiting int
	// RequestBytes bounds a request, as it comes and decompressed, ReplyBytes a reply before
	// it is compressed. 0: the contract's defaults.
	RequestBytes, ReplyBytes int
	GzipOver                 int                  // bytes over which replies are compressed for those who accept that; 0: DefaultGzipOver; negative: never
	ReadTimeout              time.Duration        // for a body to come; 0: DefaultReadTimeout; negative: none
	TracerProvider           trace.TracerProvider // spans of kind server, under the caller's; nil: none
	Logger                   *slog.Logger         // is told of panics, stack and all; nil: nobody
}

type server struct {
	h    handler.Handler
	o    ServerOptions
	gate *farside.Gate
}

// NewHandler returns an http.Handler that answers POSTs with h, at any path:
//
//	decider, err := guest.New(loans, guest.CommandsOf(commands), nil)
//	http.ListenAndServe(":"+os.Getenv("PORT"), httpcarrier.NewHandler(decider, nil))
//
// GET /healthz answers 200, GET /readyz what ServerOptions.Ready says. It keeps nothing
// between calls, starts no goroutine and holds no connection, so it may be frozen, and
// http.Server.Shutdown ends it as it should. A request's deadline is that of the context.
// A panic of h is a Failure; nobody outside learns more of it.
func NewHandler(h handler.Handler, o *ServerOptions) http.Handler {
	s := &server{}
	if o != nil {
		s.o = *o
	}
	s.gate = farside.NewGate(s.o.Running, s.o.Waiting)
	if s.o.RequestBytes <= 0 {
		s.o.RequestBytes = handler.DefaultRequestBytes
	}
	if s.o.ReplyBytes <= 0 {
		s.o.ReplyBytes = handler.DefaultReplyBytes
	}
	if s.o.GzipOver == 0 {
		s.o.GzipOver = DefaultGzipOver
	}
	if s.o.ReadTimeout == 0 {
		s.o.ReadTimeout = DefaultReadTimeout
	}
	if s.o.Logger == nil {
		s.o.Logger = slog.New(slog.DiscardHandler)
	}
	s.h = farside.Contain(h, s.o.Logger)
	if s.o.TracerProvider != nil {
		s.h = handler.Traced(s.h, s.o.TracerProvider)
	}
	return s
}

// ServeHTTP answers one request.
func (s *server) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	switch {
	case q.Method == http.MethodPost:
		s.post(w, q)
	case (q.Method == http.MethodGet || q.Method == http.MethodHead) && q.URL.Path == HealthPath:
		_, _ = io.WriteString(w, "ok\n")
	case (q.Method == http.MethodGet || q.Method == http.MethodHead) && q.URL.Path == ReadyPath:
		s.ready(w, q)
	default:
		w.Header().Set("Allow", http.MethodPost)
		s.refuse(w, &call{}, http.StatusMethodNotAllowed, &handler.Error{Kind: handler.ErrBadRequest, Wanted: "POST", Found: short(q.Method)})
	}
}

func (s *server) ready(w http.ResponseWriter, q *http.Request) {
	if s.o.Ready != nil {
		if err := s.o.Ready(q.Context()); err != nil {
			s.o.Logger.WarnContext(q.Context(), "wattle: not ready", "error", err)
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
	}
	_, _ = io.WriteString(w, "ready\n")
}

// form is that of a request or a reply.
type form int

const (
	plain form = iota
	binary
	structured
)

// call is one request on its way.
type call struct {
	q      *http.Request
	raw    []byte // as it came
	body   []byte // decompressed
	signed string // the id that is signed, "" without a Verifier
	came   form   // where the attributes stood: in the body, which is signed, of a structured one alone
	goes   form   // of the reply, which Accept may choose; nothing else may hang on it
	hint   bool
	r      *handler.Request
}

// post reads, checks and answers a request.
func (s *server) post(w http.ResponseWriter, q *http.Request) {
	c := &call{q: q, hint: s.o.Hints != "" && q.URL.Path == s.o.Hints}
	if err := s.gate.Enter(&handler.Request{}); err != nil {
		w.Header().Set("Connection", "close") // the body is not read
		w.Header().Set("Retry-After", "1")
		s.refuse(w, c, http.StatusTooManyRequests, err)
		return
	}
	defer s.gate.Leave()
	if status, err := s.read(w, c); err != nil {
		s.refuse(w, c, status, err)
		return
	}
	if err := s.understand(c); err != nil {
		s.refuse(w, c, statusOfError(err), err)
		return
	}
	ctx, cancel := c.context()
	defer cancel()
	reply, failed := s.answer(ctx, c.r)
	status := statusOf(reply, failed)
	if c.hint && status == http.StatusOK && reply.More {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	s.write(w, c, status, reply)
}

// context ends when nobody waits any more.
func (c *call) context() (context.Context, context.CancelFunc) {
	if c.r.Deadline.IsZero() {
		return c.q.Context(), func() {}
	}
	return context.WithDeadline(c.q.Context(), c.r.Deadline)
}

// answer has the request answered when it is its turn.
func (s *server) answer(ctx context.Context, r *handler.Request) (reply *handler.Reply, failed error) {
	h := handler.Func(func(ctx context.Context, r *handler.Request) (reply *handler.Reply, _ error) {
		done, err := s.gate.Turn(ctx)
		if err != nil { // too late to begin
			failed = &handler.Error{Kind: handler.ErrFailed, Op: r.Op, Stream: r.Stream, Err: err}
			return nil, failed
		}
		defer done()
		reply, failed = s.h.Handle(ctx, r)
		return reply, failed
	})
	reply = handler.Answer(ctx, h, r, nil)
	return reply, failed
}

// refuse answers a request that got no further.
func (s *server) refuse(w http.ResponseWriter, c *call, status int, err error) {
	r := c.r
	if r == nil {
		r = &handler.Request{}
	}
	reply := handler.AsReply(r, err)
	if c.q == nil {
		c.q = &http.Request{Header: http.Header{}}
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "StandardWebhooks")
	}
	s.write(w, c, status, reply)
}

// statusOfError is the status of a request that is not understood.
func statusOfError(err error) int {
	switch {
	case errors.Is(err, eventstore.ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errMediaType):
		return http.StatusUnsupportedMediaType
	case errors.Is(err, ErrReused):
		return http.StatusForbidden
	}
	return http.StatusBadRequest
}

// write sends a reply in its form.
func (s *server) write(w http.ResponseWriter, c *call, status int, reply *handler.Reply) {
	body := handler.AppendReply(nil, reply)
	if len(body) > s.o.ReplyBytes {
		reply = handler.AsReply(&handler.Request{Key: reply.Key}, &sizeError{fmt.Sprintf("a reply of at most %d bytes", s.o.ReplyBytes), strconv.Itoa(len(body))})
		status, body = http.StatusRequestEntityTooLarge, handler.AppendReply(nil, reply)
	}
	h := w.Header()
	h.Set("Content-Type", JSONType)
	h.Set("Cache-Control", "no-store")
	body = c.dress(h, reply, body)
	if s.o.GzipOver > 0 && len(body) > s.o.GzipOver && acceptsGzip(c.q.Header.Get("Accept-Encoding")) {
		body = compress(body)
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Vary", "Accept, Accept-Encoding")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // whoever asked has gone, and will ask again
}

// dress gives a reply the form that it is to have.
func (c *call) dress(h http.Header, reply *handler.Reply, body []byte) []byte {
	if c.goes == plain || reply.Key.IsZero() {
		return body
	}
	e := &CloudEvent{ID: reply.Key.String(), Source: DefaultSource, Type: "wattle.reply.v" + strconv.Itoa(handler.Version), DataContentType: JSONType}
	if c.r != nil {
		e.Subject = string(c.r.Stream)
	}
	if c.goes == binary {
		_ = WriteBinary(h, e) // nothing in it can be wrong
		return body
	}
	e.Data = body
	all, err := AppendStructured(nil, e)
	if err != nil {
		return body
	}
	h.Set("Content-Type", StructuredType)
	return all
}
