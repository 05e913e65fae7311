// The server: made, filled with services, serving, drained.

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/wattle-es/wattle/internal/wire"
	"github.com/wattle-es/wattle/server/policy"
)

// Server serves the services that are mounted on it. All methods may be called from
// several goroutines at once.
type Server struct {
	limits    Limits
	policy    *policy.Current
	keys      *keys
	tokens    *tokenFile
	proxy     *Proxy
	proxies   map[string]bool
	anonymous bool
	insecure  bool
	logger    *slog.Logger
	metrics   *metrics
	budget    budget
	reading   chan struct{} // as many as may read a page at once
	streams   streams
	ready     readiness
	handling  []connect.HandlerOption
	writer    *connect.ErrorWriter
	known     map[string]*procedure
	http      *http.Server

	mu       sync.Mutex
	mounted  map[string]http.Handler // by service
	public   map[string]http.Handler // for which nobody need be known
	started  bool
	broken   map[string]string // what was said of files last
	notReady string            // why it was not, when that was asked last
	draining atomic.Bool
	calls    atomic.Int64
	conns    atomic.Int64
	stop     context.CancelFunc
	loop     sync.WaitGroup
}

// New makes a server. It reads the files that o names; an error names the one that is
// wrong.
func New(o Options) (*Server, error) {
	s := &Server{limits: o.Limits.withDefaults(), policy: o.Policy, proxy: o.Proxy, proxies: map[string]bool{}, anonymous: o.Anonymous, insecure: o.Insecure,
		logger: o.Logger, mounted: map[string]http.Handler{}, public: map[string]http.Handler{}, known: procedures(services())}
	if s.policy == nil {
		s.policy = policy.Fixed(nil)
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	s.budget.most = s.limits.InFlightBytes
	s.streams.all, s.streams.of = map[*stream]struct{}{}, map[string]int{}
	s.ready.probe = o.Ready
	if err := s.checkProxy(); err != nil {
		return nil, err
	}
	var err error
	if s.keys, err = openKeys(o.TLS); err != nil {
		return nil, err
	}
	if s.tokens, err = openTokens(o.Tokens); err != nil {
		return nil, err
	}
	if err := s.instrument(o); err != nil {
		return nil, err
	}
	s.writer = connect.NewErrorWriter(s.handling...)
	s.mountOwn(o.Reflection)
	s.http = s.newHTTP()
	return s, nil
}

func (s *Server) checkProxy() error {
	if s.proxy == nil {
		return nil
	}
	s.proxy = &Proxy{Header: http.CanonicalHeaderKey(s.proxy.Header), Identities: slices.Clone(s.proxy.Identities)}
	if s.proxy.Header == "" || s.proxy.Header == "Authorization" || strings.ContainsAny(s.proxy.Header, " \r\n:") || len(s.proxy.Identities) == 0 {
		return errors.New("server: proxy: wanted the name of a header and identities of proxies")
	}
	for _, identity := range s.proxy.Identities {
		if err := checkName(identity); err != nil || !strings.Contains(identity, ":") {
			return fmt.Errorf("server: proxy: wanted identities as uri:spiffe://edge/proxy, found %.100q", identity)
		}
		s.proxies[identity] = true
	}
	return nil
}

// instrument makes the options of all handlers: limits, codecs, and the interceptors.
func (s *Server) instrument(o Options) error {
	if o.MeterProvider == nil {
		o.MeterProvider = metricnoop.NewMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = tracenoop.NewTracerProvider()
	}
	telling := []otelconnect.Option{otelconnect.WithTracerProvider(o.TracerProvider), otelconnect.WithMeterProvider(o.MeterProvider),
		otelconnect.WithPropagator(propagation.TraceContext{}), otelconnect.WithoutServerPeerAttributes(), otelconnect.WithoutTraceEvents()}
	if !o.DistrustTraces {
		telling = append(telling, otelconnect.WithTrustRemote())
	}
	telemetry, err := otelconnect.NewInterceptor(telling...)
	if err != nil {
		return err
	}
	if s.metrics, err = s.newMetrics(o.MeterProvider); err != nil {
		return err
	}
	s.reading = make(chan struct{}, s.limits.Reads)
	decoding := make(turns, decodersPerCore*runtime.GOMAXPROCS(0))
	s.handling = []connect.HandlerOption{
		// Ours come first: what Connect itself refuses has no detail, and so its client
		// cannot know that nothing was done.
		connect.WithReadMaxBytes(max(s.limits.MessageBytes, wire.MaxRequestBytes) + envelopeBytes),
		connect.WithCompression("gzip", s.newUnzip, newZip), connect.WithCompressMinBytes(compressBytes),
		connect.WithCodec(protoCodec{s.limits.Elements, decoding}),
		connect.WithCodec(jsonCodec{"json", s.limits.Elements, decoding}), connect.WithCodec(jsonCodec{"json; charset=utf-8", s.limits.Elements, decoding}),
		connect.WithInterceptors(telemetry, interceptor{s}),
	}
	return nil
}

// HandlerOptions are what the handlers of all services are to be made with: without them
// nothing is authorized.
func (s *Server) HandlerOptions() []connect.HandlerOption { return slices.Clone(s.handling) }

// Mount adds a service before the first Serve: the path and the handler as the generated
// functions return them, made with HandlerOptions.
func (s *Server) Mount(path string, h http.Handler) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := false
	for _, p := range s.known {
		known = known || p.service == path
	}
	switch {
	case !known:
		return fmt.Errorf("server: mount: wanted the path of a service in the table of accesses, found %.100q", path)
	case s.mounted[path] != nil:
		return fmt.Errorf("server: mount: %s is there already", path)
	case s.started:
		return errors.New("server: mount: the server serves already")
	}
	s.mounted[path] = h
	return nil
}

func (s *Server) newHTTP() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	h := &http.Server{
		Handler: s, Protocols: &protocols,
		ReadHeaderTimeout: s.limits.HeaderTimeout, IdleTimeout: s.limits.IdleTimeout, MaxHeaderBytes: s.limits.HeaderBytes,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: s.limits.StreamsPerConnection, MaxReceiveBufferPerStream: receivePerStream,
			MaxReceiveBufferPerConnection: receivePerConn, SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: s.limits.WriteTimeout},
		ErrorLog: slog.NewLogLogger(quiet{s.logger.Handler()}, slog.LevelDebug),
	}
	if s.keys != nil {
		h.TLSConfig = s.keys.config()
	}
	return h
}

// Serve answers on a listener until Shutdown, and returns nil then; when ctx ends it shuts
// down by itself, within Limits.DrainTimeout. The listener is closed. It may be called for
// several listeners. Without TLS, and unless Insecure, one that can be reached from other
// machines is refused.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if s.keys == nil && !s.insecure && !local(l.Addr()) {
		_ = l.Close()
		return fmt.Errorf("server: wanted a loopback address for connections without TLS, found %s (give a certificate, or ask for it)", l.Addr())
	}
	if err := s.start(); err != nil {
		_ = l.Close()
		return err
	}
	drained := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.DrainTimeout)
		defer cancel()
		drained <- s.Shutdown(bounded)
	})
	limited := &limitedListener{l, s}
	var err error
	if s.keys != nil {
		err = s.http.ServeTLS(limited, "", "")
	} else {
		err = s.http.Serve(limited)
	}
	if !stop() {
		err = errors.Join(<-drained)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// start looks after the files from the first Serve on.
func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining.Load() {
		return errors.New("server: it was shut down")
	}
	if s.started {
		return nil
	}
	s.started = true
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	s.loop.Go(func() { s.lookAfterFiles(ctx) })
	return nil
}

// Shutdown ends the server: readiness goes red, new calls are refused, streams end with
// GOING_AWAY, calls in flight are answered, and all is closed. When ctx ends first what is
// left is cut off, and it returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining.Store(true)
	stop := s.stop
	s.mu.Unlock()
	s.endAll(goingAway())
	err := s.waitForCalls(ctx)
	if err == nil {
		err = s.http.Shutdown(ctx)
	}
	if err != nil {
		_ = s.http.Close()
	}
	if stop != nil {
		stop()
	}
	s.loop.Wait()
	s.ready.stop()
	return err
}

func (s *Server) waitForCalls(ctx context.Context) error {
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for s.calls.Load() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
