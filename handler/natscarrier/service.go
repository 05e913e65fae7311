// The service: what it is registered as, its bounds, its end.

package natscarrier

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/internal/farside"
)

// ServeOptions of a Service; nil and zero fields are the defaults.
type ServeOptions struct {
	// Prefix of the subjects: one or more tokens. "": DefaultPrefix and Name, as
	// "handler.loan".
	Prefix string
	// Name of the service among others on this NATS: letters, digits, - and _. "": what
	// the handler calls itself, made to fit.
	Name string
	// QueueGroup whose members share the calls. "": that of micro services, "q".
	QueueGroup string
	// Running bounds how many calls run at once, Waiting how many more wait for their
	// turn; what is over both is refused at once. 0: 64 and 256. Negative Waiting: none.
	Running, Waiting int
	// Timeout bounds every call; where the caller waits less long, that counts. 0:
	// handler.DefaultTimeout.
	Timeout        time.Duration
	Limits         handler.Limits       // RequestBytes and ReplyBytes count here
	TracerProvider trace.TracerProvider // nil: no spans; else one of kind server around each call
	Logger         *slog.Logger         // for panics of the handler and replies that could not be sent; nil: nobody is told
}

// Service is a handler that is served. Its methods may be called from several goroutines
// at once.
type Service struct {
	nc           *nats.Conn
	micro        micro.Service
	h            handler.Handler
	gate         *farside.Gate
	stop         context.CancelFunc
	prefix       string
	timeout      time.Duration
	requestBytes int
	replyBytes   int
	logger       *slog.Logger
	tallies      map[handler.Op]*tally
}

// Serve asks a handler what it is and serves it as a NATS micro service with an endpoint
// for each of its operations, until Stop or the end of the connection, which stays the
// caller's. ctx bounds the beginning alone. The service is known to the NATS server when
// Serve returns.
//
// A panic of the handler is a Failure of that call. What is wrong with the options or the
// handler's description is an *handler.Error: eventstore.ErrInvalid, or what asking the
// handler came to.
func Serve(ctx context.Context, nc *nats.Conn, h handler.Handler, o *ServeOptions) (*Service, error) {
	if o == nil {
		o = &ServeOptions{}
	}
	s := &Service{nc: nc, gate: farside.NewGate(o.Running, o.Waiting), timeout: o.Timeout, logger: o.Logger, tallies: map[handler.Op]*tally{},
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
	s.h = farside.Contain(h, o.Logger)
	if o.TracerProvider != nil {
		s.h = handler.Traced(s.h, o.TracerProvider)
	}
	answered := func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		return handler.Answer(ctx, farside.Contain(h, o.Logger), r, nil), nil
	}
	asked, err := handler.NewCaller(ctx, handler.Func(answered), &handler.Options{Limits: o.Limits, Timeout: s.timeout})
	if err != nil {
		return nil, err
	}
	if err := s.register(ctx, asked.Description(), o); err != nil {
		return nil, err
	}
	return s, nil
}

// register makes the micro service.
func (s *Service) register(ctx context.Context, d handler.Description, o *ServeOptions) error {
	name := serviceName(o.Name, d)
	if s.prefix = o.Prefix; s.prefix == "" {
		s.prefix = DefaultPrefix + "." + name
	}
	bad := &handler.Error{Kind: eventstore.ErrInvalid, Op: handler.Describe, Target: s.prefix}
	switch {
	case s.nc == nil:
		bad.Wanted, bad.Found = "a NATS connection", "nil"
		return bad
	case !validSubject(s.prefix):
		bad.Wanted, bad.Found = fmt.Sprintf("a prefix of at most %d bytes: tokens without blanks, * and >, joined by dots", MaxPrefixBytes), fmt.Sprintf("%.200q", s.prefix)
		return bad
	}
	base, stop := context.WithCancel(context.Background())
	s.stop = stop
	for _, op := range operations(&d) {
		s.tallies[op] = &tally{}
	}
	m, err := micro.AddService(s.nc, micro.Config{Name: name, Version: semver(d.Release), QueueGroup: o.QueueGroup,
		Description:  "Wattle handler " + oneLine(d.Name, maxReasonBytes),
		Metadata:     metadata(&d),
		StatsHandler: func(e *micro.Endpoint) any { return s.tallies[handler.Op(e.Name)].data(s.gate) }})
	if err != nil {
		stop()
		bad.Err = err
		return bad
	}
	s.micro = m
	if err := s.listen(ctx, base, &d); err != nil {
		stop()
		_ = m.Stop() // the error that matters is the first
		return &handler.Error{Kind: handler.ErrFailed, Op: handler.Describe, Target: s.prefix, Wanted: "the endpoints of a service", Err: err}
	}
	return nil
}

// listen adds an endpoint for each operation. base is what the calls' contexts come from.
func (s *Service) listen(ctx, base context.Context, d *handler.Description) error {
	for _, op := range operations(d) {
		err := s.micro.AddEndpoint(string(op), micro.HandlerFunc(func(req micro.Request) { s.receive(base, op, req) }),
			micro.WithEndpointSubject(s.prefix+"."+string(op)), micro.WithEndpointMetadata(endpointMetadata(d, op)))
		if err != nil {
			return err
		}
	}
	return s.flush(ctx)
}

// flush waits for the server to have all that was sent, within bounds.
func (s *Service) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, handler.DefaultTimeout)
	defer cancel()
	return s.nc.FlushWithContext(ctx)
}

// Prefix of the service's subjects: what a client is made for.
func (s *Service) Prefix() string { return s.prefix }

// Info is what the service tells of itself on $SRV.INFO.
func (s *Service) Info() micro.Info { return s.micro.Info() }

// Stats is what the service tells on $SRV.STATS. micro counts a call when it has come in;
// what became of it is in the Data of an endpoint, a [Tally].
func (s *Service) Stats() micro.Stats { return s.micro.Stats() }

// Stop takes the service off the subjects, answers what has come in until then, and
// returns when the last reply is with the NATS server. When ctx ends sooner, so do the
// contexts of the calls that still run, and the error is ctx's. It may be called again.
func (s *Service) Stop(ctx context.Context) error {
	defer s.stop()
	if err := s.micro.Stop(); err != nil && !s.nc.IsClosed() {
		return &handler.Error{Kind: handler.ErrFailed, Target: s.prefix, Wanted: "to leave the subjects", Err: err}
	}
	if s.nc.IsConnected() {
		// What the server had sent before it heard of the end is here when it answers.
		_ = s.flush(ctx) // a connection that is lost brings nothing more either
		s.settle(ctx)
	}
	if err := s.gate.Close(ctx); err != nil {
		return err
	}
	if s.nc.IsConnected() {
		return s.flush(ctx)
	}
	return nil
}

// settle waits until what the connection has received was given to us: micro does not say
// when it was, so until nothing has come for a moment. What comes later still is refused
// with a reply.
func (s *Service) settle(ctx context.Context) {
	const moment, most = 2 * time.Millisecond, 100
	before := -1
	for range most {
		now := 0
		for _, t := range s.tallies {
			now += int(t.came.Load())
		}
		if now == before || ctx.Err() != nil {
			return
		}
		before = now
		time.Sleep(moment)
	}
}

// operations are those of a description that are served, describe first.
func operations(d *handler.Description) []handler.Op {
	ops := []handler.Op{handler.Describe}
	for _, op := range []handler.Op{handler.Decide, handler.Evolve, handler.Keys, handler.Project, handler.Execute, handler.CatchUp} {
		if d.Can(op) {
			ops = append(ops, op)
		}
	}
	return ops
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

func serviceName(given string, d handler.Description) string {
	if given != "" {
		return given
	}
	if name := strings.Trim(notInNames.ReplaceAllString(d.Name, "-"), "-"); name != "" {
		return name[:min(len(name), 64)]
	}
	return "handler"
}

var versions = regexp.MustCompile(`^v?((?:0|[1-9]\d{0,9})\.(?:0|[1-9]\d{0,9})\.(?:0|[1-9]\d{0,9}))$`)

// semver is the release where it is one; micro takes nothing else. The release as it is
// stands in the metadata.
func semver(release string) string {
	if m := versions.FindStringSubmatch(release); m != nil {
		return m[1]
	}
	return "0.0.0"
}

func metadata(d *handler.Description) map[string]string {
	return map[string]string{"wattle.contract": contract, "wattle.release": oneLine(d.Release, maxReasonBytes), "wattle.category": string(d.Category),
		"wattle.capabilities": oneLine(strings.Join(d.Capabilities, " "), maxReasonBytes), "wattle.stateVersion": strconv.Itoa(d.StateVersion)}
}

// endpointMetadata says what an operation takes and gives.
func endpointMetadata(d *handler.Description, op handler.Op) map[string]string {
	m := map[string]string{"wattle.contract": contract, "wattle.op": string(op), "format": "application/json"}
	switch op {
	case handler.Decide, handler.Execute:
		m["wattle.commands"], m["wattle.events"] = wires(d.Commands), wires(d.Events)
	case handler.Evolve, handler.Project, handler.Keys:
		m["wattle.events"] = wires(d.Events)
	}
	return m
}

// wires lists names and versions, as "opened/1 closed/2", as far as there is room for
// them in a message of all endpoints.
func wires(list []handler.Wire) string {
	const most = 4 << 10
	var b strings.Builder
	for i, w := range list {
		if b.Len() > most {
			fmt.Fprintf(&b, " and %d more", len(list)-i)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s/%d", oneLine(w.Name, eventstore.MaxTypeBytes), w.Version)
	}
	return b.String()
}
