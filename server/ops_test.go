// How it is, how it ends, and what it tells of itself and of its callers.

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

func get(t testing.TB, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := httpClient(t, false, "").Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = told.Write(text)
	return resp.StatusCode, string(text)
}

// Ready means that a write would go through now; alive that there is a process.
func TestReady(t *testing.T) {
	var answer atomic.Pointer[error]
	var asked atomic.Int64
	o := usual(t)
	o.Ready = func(context.Context) error {
		asked.Add(1)
		if e := answer.Load(); e != nil {
			return *e
		}
		return nil
	}
	s := start(t, o, fakes{})
	grpc := grpchealth.NewClient(httpClient(t, true, ""), "http://"+s.addr, connect.WithGRPC())
	check := func(err error, status int, why string) {
		t.Helper()
		answer.Store(&err)
		s.ready.mu.Lock()
		s.ready.asked = time.Time{} // its time is over
		s.ready.mu.Unlock()
		if code, text := get(t, "http://"+s.addr+"/readyz"); code != status || !strings.Contains(text, why) || strings.Contains(text, "c4n4ry") {
			t.Errorf("%v: %d %s", err, code, text)
		}
		if code, _ := get(t, "http://"+s.addr+"/healthz"); code != 200 {
			t.Errorf("alive: %d", code)
		}
		for _, service := range []string{"", "wattle.v1.LogService"} {
			got, err := grpc.Check(t.Context(), &grpchealth.CheckRequest{Service: service})
			if err != nil || (got.Status == grpchealth.StatusServing) != (status == 200) {
				t.Errorf("gRPC health of %q: %+v %v", service, got, err)
			}
		}
	}
	check(nil, 200, `{"ready":true}`)
	check(&eventstore.Error{Kind: eventstore.ErrReadOnly, Found: canaryDSN}, 503, `"why":"read-only"`)
	check(fmt.Errorf("%s: %w", canaryDSN, eventstore.ErrUnavailable), 503, `"why":"unavailable"`)
	check(errors.New(canaryDSN), 503, "cannot be written to")
	check(context.DeadlineExceeded, 503, "took too long")
	check(nil, 200, `{"ready":true}`)
	if !strings.Contains(s.log.String(), `not ready" why=read-only`) || !strings.Contains(s.log.String(), "ready again") {
		t.Error("not logged")
	}
	before := asked.Load()
	for range 50 {
		get(t, "http://"+s.addr+"/readyz")
	}
	if n := asked.Load() - before; n > 25 {
		t.Errorf("the store was asked %d times", n)
	}
	if _, err := grpc.Check(t.Context(), &grpchealth.CheckRequest{Service: "wattle.v1.Nothing"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Error(err)
	}
	for _, path := range []string{"/", "/metrics", "/readyz/", "/Healthz", "/debug/pprof/", "//healthz"} {
		if code, _ := get(t, "http://"+s.addr+path); code != 404 {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// A probe that does not come back is red, holds nobody up, and is not asked again meanwhile.
func TestProbeThatHangs(t *testing.T) {
	var asked atomic.Int64
	release := make(chan struct{})
	r := readiness{probe: func(context.Context) error {
		asked.Add(1)
		<-release
		return nil
	}}
	for range 3 {
		if err := r.now(); !errors.Is(err, errLate) {
			t.Error(err)
		}
		r.asked = time.Time{}
	}
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
	close(release)
	until(t, "it has come back", func() bool { return r.now() == nil })
	r.probe = func(context.Context) error { panic(canaryPayload) }
	r.asked = time.Time{}
	if err := note(r.now()); err == nil {
		t.Error("a panic is ready")
	}
}

func TestProbeStore(t *testing.T) {
	store := eventstore.New(memlog.New(nil), nil)
	probe := ProbeStore(store, "server/ready")
	for range 2 {
		if err := probe(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := ProbeStore(store, "server/ready")(t.Context()); err != nil {
		t.Errorf("held by another server: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := probe(t.Context()); err == nil {
		t.Error("a closed store is ready")
	}
}

// What is in flight is answered; what is new is refused; the rest ends in time.
func TestShutdown(t *testing.T) {
	entered, release := make(chan struct{}, 10), make(chan struct{})
	s := start(t, usual(t), fakes{logs: logs{follow: endless(nil), produce: echo, append: func(context.Context, *wattlev1.AppendRequest) (*wattlev1.AppendResponse, error) {
		entered <- struct{}{}
		<-release
		return &wattlev1.AppendResponse{Token: &wattlev1.Token{Position: 7}}, nil
	}}})
	done := make(chan error, len(ways))
	for _, w := range ways {
		c := s.client(t, w, "ops")
		go func() {
			r, err := c.Append(context.Background(), &wattlev1.AppendRequest{Batches: []*wattlev1.Batch{{Stream: "a-1"}}})
			if err == nil && r.GetToken().GetPosition() != 7 {
				err = errors.New("another answer")
			}
			done <- err
		}()
	}
	for range ways {
		<-entered
	}
	var ends []func() error
	for _, w := range streamWays {
		ends = append(ends, openStream(t, s, w.w, "ops", w.bidi))
	}
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		ended <- s.Shutdown(ctx)
	}()
	for _, end := range ends {
		if err := end(); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_GOING_AWAY || connect.CodeOf(err) != connect.CodeUnavailable {
			t.Error(err)
		}
	}
	for _, w := range ways {
		if _, err := s.client(t, w, "ops").Read(t.Context(), &wattlev1.ReadRequest{Stream: "a-1"}); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_GOING_AWAY || connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%v: %v", w, err)
		}
	}
	if code, text := get(t, "http://"+s.addr+"/readyz"); code != 503 || !strings.Contains(text, "draining") {
		t.Errorf("%d %s", code, text)
	}
	select {
	case err := <-ended:
		t.Fatalf("it has ended before what is in flight: %v", err)
	default:
	}
	close(release)
	for range ways {
		if err := <-done; err != nil {
			t.Errorf("in flight: %v", err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := s.Serve(t.Context(), &everywhere{closed: make(chan struct{})}); err == nil {
		t.Error("it serves again")
	}
}

// A service that does not end is cut off.
func TestShutdownIsBounded(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	s, err := New(Options{Policy: rules(t, "anonymous * *\n"), Anonymous: true, Limits: Limits{DrainTimeout: 200 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	path, h := wattlev1.NewLogServiceHandler(logs{read: func(context.Context, *wattlev1.ReadRequest) (*wattlev1.ReadResponse, error) {
		entered <- struct{}{}
		<-release
		return nil, nil
	}}, s.HandlerOptions()...)
	if err := s.Mount(path, h); err != nil {
		t.Fatal(err)
	}
	if err := s.Mount(path, h); err == nil {
		t.Error("mounted twice")
	}
	if err := s.Mount("/x.Y/", h); err == nil {
		t.Error("mounted what has no rows")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	called := make(chan error, 1)
	go func() {
		_, err := wattlev1.NewLogServiceClient(httpClient(t, true, ""), "http://"+l.Addr().String()).Read(context.Background(), &wattlev1.ReadRequest{Stream: "a-1"})
		called <- err
	}()
	<-entered
	cancel()
	if err := <-served; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if err := <-called; err == nil {
		t.Error("answered")
	}
	close(release)
	until(t, "the call has left", func() bool { return s.calls.Load() == 0 })
}

// A panic, and an error that is none of ours, end one call and tell nothing.
func TestNothingIsTold(t *testing.T) {
	for name, fail := range map[string]func() error{
		"panic":           func() error { panic(canaryPayload + canaryDSN) },
		"panic of error":  func() error { panic(errors.New(canaryDSN)) },
		"error":           func() error { return errors.New("dial " + canaryDSN) },
		"wrapped context": func() error { return fmt.Errorf("%s: %w", canaryDSN, context.DeadlineExceeded) },
	} {
		s := start(t, usual(t), fakes{logs: logs{
			read: func(context.Context, *wattlev1.ReadRequest) (*wattlev1.ReadResponse, error) { return nil, fail() },
			follow: func(context.Context, *wattlev1.FollowRequest, *connect.ServerStream[wattlev1.FollowResponse]) error {
				return fail()
			},
		}})
		want := connect.CodeInternal
		if name == "wrapped context" {
			want = connect.CodeDeadlineExceeded
		}
		for _, w := range ways {
			if _, err := s.client(t, w, "ops").Read(t.Context(), &wattlev1.ReadRequest{Stream: "a-1"}); connect.CodeOf(note(err)) != want {
				t.Errorf("%s, %v: %v", name, w, err)
			}
			f, err := s.client(t, w, "ops").Follow(t.Context(), &wattlev1.FollowRequest{Stream: "a-1"})
			if err == nil {
				if f.Receive() {
					t.Error("received")
				}
				err = f.Err()
				_ = f.Close()
			}
			if connect.CodeOf(note(err)) != want {
				t.Errorf("%s, stream, %v: %v", name, w, err)
			}
		}
		if name == "panic" && !strings.Contains(s.log.String(), "ops_test.go") {
			t.Error("the log has no stack")
		}
	}
}

// Every denial is in the log, on one line, whatever was asked for.
func TestDenialsAreLogged(t *testing.T) {
	s := start(t, usual(t), fakes{})
	c := s.client(t, ways[0], "teller")
	forged := "x\r\nlevel=INFO msg=forged\u2028\x1b[31m" + strings.Repeat("y", 5000) + "-1"
	for _, stream := range []string{"loan-1", forged} {
		if _, err := c.Read(t.Context(), &wattlev1.ReadRequest{Stream: stream}); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_DENIED || strings.ContainsAny(err.Error(), "\r\n\x1b") || len(err.Error()) > 1000 {
			t.Errorf("%v", err)
		}
	}
	if _, err := s.client(t, ways[0], "").Read(t.Context(), &wattlev1.ReadRequest{}); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_UNAUTHENTICATED {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimSpace(s.log.String()), "\n")
	denials := 0
	for _, line := range lines {
		if !strings.HasPrefix(line, "time=") || len(line) > 2500 || strings.HasPrefix(strings.TrimPrefix(line, "level="), "INFO msg=forged") {
			t.Errorf("%.300q", line)
		}
		if strings.Contains(line, `level=WARN msg="wattle: denied" identity=token:teller procedure=/wattle.v1.LogService/Read verb=read resource=`) && strings.Contains(line, "rule=") {
			denials++
		}
	}
	if denials != 2 || !strings.Contains(s.log.String(), `level=WARN msg="wattle: not authenticated" procedure=/wattle.v1.LogService/Read who=127.0.0.1`) {
		t.Errorf("%d denials in\n%s", denials, s.log.String())
	}
	if !strings.Contains(s.log.String(), `level=DEBUG msg="wattle: call" procedure=/wattle.v1.LogService/Read identity=token:teller protocol=HTTP/1.1 status=403 code=permission_denied`) {
		t.Errorf("no access log in\n%s", s.log.String())
	}
}

// One trace from the caller to the service, unless told otherwise; metrics for Prometheus.
func TestTelemetry(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, distrust := range []bool{false, true} {
		spans := tracetest.NewInMemoryExporter()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		m, err := NewMetrics()
		if err != nil {
			t.Fatal(err)
		}
		o := usual(t)
		o.TracerProvider, o.MeterProvider, o.DistrustTraces = provider, m.Provider(), distrust
		s := start(t, o, fakes{})
		c := httpClient(t, true, "teller")
		c.Transport = headed{c.Transport, "Traceparent", []string{parent}}
		for _, stream := range []string{"account-1", "loan-1"} {
			_, _ = wattlev1.NewLogServiceClient(c, "http://"+s.addr, connect.WithGRPC()).Read(t.Context(), &wattlev1.ReadRequest{Stream: stream})
		}
		until(t, "two spans", func() bool { return len(spans.GetSpans()) == 2 })
		for _, span := range spans.GetSpans() {
			if span.SpanKind != trace.SpanKindServer || (span.SpanContext.TraceID().String() == parent[3:35]) == distrust {
				t.Errorf("distrust %v: %v %v", distrust, span.SpanKind, span.SpanContext.TraceID())
			}
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- s.ServeOps(ctx, l, m) }()
		code, text := get(t, "http://"+l.Addr().String()+"/metrics")
		for _, want := range []string{`wattle_server_denied_total{`, `procedure="/wattle.v1.LogService/Read"`, "wattle_server_policy_generation", `wattle_server_broken{`, "rpc_server_", "wattle_server_draining"} {
			if !strings.Contains(text, want) {
				t.Errorf("%d, no %s in\n%.3000s", code, want, text)
			}
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, _ := get(t, "http://"+l.Addr().String()+path); code != 200 {
				t.Errorf("%s: %d", path, code)
			}
		}
		if code, _ := get(t, "http://"+l.Addr().String()+"/wattle.v1.LogService/Read"); code != 405 {
			t.Errorf("a call at the listener of operators: %d", code)
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := errors.Join(m.Close(t.Context()), provider.Shutdown(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// Reflection is off unless asked, and for those who are known then.
func TestReflection(t *testing.T) {
	for _, on := range []bool{false, true} {
		o := usual(t)
		o.Reflection = on
		s := start(t, o, fakes{})
		for name, want := range map[string]connect.Code{"ops": 0, "teller": 0, "stranger": connect.CodePermissionDenied, "": connect.CodeUnauthenticated} {
			if !on {
				want = connect.CodeUnimplemented
			}
			stream := grpcreflect.NewClient(httpClient(t, true, name), "http://"+s.addr, connect.WithGRPC()).NewStream(t.Context())
			names, err := stream.ListServices()
			if want == 0 && (err != nil || len(names) < 4) || want != 0 && connect.CodeOf(note(err)) != want {
				t.Errorf("reflection %v by %q: %v %v", on, name, names, err)
			}
			_, _ = stream.Close()
		}
	}
}
