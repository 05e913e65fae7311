// What the tests share: a server on loopback with services that note who reached them, all
// ways to speak to it, and a log of everything, in which no secret may stand.

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/server/policy"
)

// Secrets that no log and no answer may hold.
const (
	canaryToken   = "c4n4ry-Of-A-Token-4711"
	canaryPayload = "c4n4ry-of-a-payload"
	canaryDSN     = "postgres://app:c4n4ry-of-a-dsn@db.example/bank"
)

// told is all that servers of this package have logged and answered.
var told lockedBuffer

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestMain(m *testing.M) {
	code := m.Run()
	text := told.String()
	for _, canary := range []string{canaryToken, canaryPayload, "c4n4ry-of-a-dsn"} {
		if i := strings.Index(text, canary); i >= 0 {
			fmt.Printf("--- FAIL: TestCanaries\n%s was told: …%.300s\n", canary, text[max(0, i-200):])
			code = 1
		}
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println("goleak:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// site is a server that serves, and what has reached its services.
type site struct {
	*Server
	addr   string
	log    *lockedBuffer
	served chan error

	mu      sync.Mutex
	reached []string // procedures, one for each message
}

func (s *site) reach(procedure string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reached = append(s.reached, procedure)
}

// takeReached returns what has been reached since it was called last.
func (s *site) takeReached() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.reached
	s.reached = nil
	return all
}

// Unary and stream interceptors that stand behind those of the server.
func (s *site) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		s.reach(r.Spec().Procedure)
		return next(ctx, r)
	}
}

func (s *site) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (s *site) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return next(ctx, noted{conn, s})
	}
}

type noted struct {
	connect.StreamingHandlerConn
	s *site
}

func (n noted) Receive(m any) error {
	err := n.StreamingHandlerConn.Receive(m)
	if err == nil {
		n.s.reach(n.Spec().Procedure)
	}
	return err
}

// fakes are services of which the tests say what some procedures do; the others are not
// implemented, which is an answer too.
type fakes struct {
	logs
	wattlev1.UnimplementedAdminServiceHandler
	wattlev1.UnimplementedLeaseServiceHandler
	wattlev1.UnimplementedTopicServiceHandler
}

type logs struct {
	wattlev1.UnimplementedLogServiceHandler
	read    func(context.Context, *wattlev1.ReadRequest) (*wattlev1.ReadResponse, error)
	append  func(context.Context, *wattlev1.AppendRequest) (*wattlev1.AppendResponse, error)
	produce func(context.Context, *connect.BidiStream[wattlev1.ProduceRequest, wattlev1.ProduceResponse]) error
	follow  func(context.Context, *wattlev1.FollowRequest, *connect.ServerStream[wattlev1.FollowResponse]) error
}

func (l logs) Read(ctx context.Context, r *wattlev1.ReadRequest) (*wattlev1.ReadResponse, error) {
	if l.read == nil {
		return l.UnimplementedLogServiceHandler.Read(ctx, r)
	}
	return l.read(ctx, r)
}

func (l logs) Append(ctx context.Context, r *wattlev1.AppendRequest) (*wattlev1.AppendResponse, error) {
	if l.append == nil {
		return l.UnimplementedLogServiceHandler.Append(ctx, r)
	}
	return l.append(ctx, r)
}

func (l logs) Produce(ctx context.Context, b *connect.BidiStream[wattlev1.ProduceRequest, wattlev1.ProduceResponse]) error {
	if l.produce == nil {
		return l.UnimplementedLogServiceHandler.Produce(ctx, b)
	}
	return l.produce(ctx, b)
}

func (l logs) Follow(ctx context.Context, r *wattlev1.FollowRequest, s *connect.ServerStream[wattlev1.FollowResponse]) error {
	if l.follow == nil {
		return l.UnimplementedLogServiceHandler.Follow(ctx, r, s)
	}
	return l.follow(ctx, r, s)
}

func (f fakes) PublishStream(_ context.Context, b *connect.BidiStream[wattlev1.PublishStreamRequest, wattlev1.PublishStreamResponse]) error {
	if _, err := b.Receive(); err != nil {
		return err
	}
	return connect.NewError(connect.CodeUnimplemented, errors.New("read"))
}

// endless is a Follow that sends heartbeats until its context ends, and says then why.
func endless(why chan<- error) func(context.Context, *wattlev1.FollowRequest, *connect.ServerStream[wattlev1.FollowResponse]) error {
	return func(ctx context.Context, _ *wattlev1.FollowRequest, s *connect.ServerStream[wattlev1.FollowResponse]) error {
		for {
			if err := s.Send(&wattlev1.FollowResponse{}); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				if why != nil {
					why <- context.Cause(ctx)
				}
				return ctx.Err()
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
}

// echo is a Produce that answers each message.
func echo(_ context.Context, b *connect.BidiStream[wattlev1.ProduceRequest, wattlev1.ProduceResponse]) error {
	for {
		if _, err := b.Receive(); err != nil {
			return err
		}
		if err := b.Send(&wattlev1.ProduceResponse{}); err != nil {
			return err
		}
	}
}

// tokensFile writes tokens of the form "NAME", whose token is token(NAME).
func tokensFile(t testing.TB, names ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	writeTokens(t, file, names...)
	return file
}

func writeTokens(t testing.TB, file string, names ...string) {
	t.Helper()
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "%s %s\n", name, tokenOf(name))
	}
	writeFile(t, file, b.String())
}

func tokenOf(name string) string { return canaryToken + "-" + name }

func writeFile(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".next", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".next", file); err != nil {
		t.Fatal(err)
	}
}

func rules(t testing.TB, text string) *policy.Current {
	t.Helper()
	p, err := policy.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return policy.Fixed(p)
}

// usual are options under which token "ops" may do all and "teller" something.
func usual(t testing.TB) Options {
	return Options{Tokens: tokensFile(t, "ops", "teller", "stranger"), Policy: rules(t, "token:ops * *\ntoken:teller read,append account\n")}
}

// start serves all services until the end of the test.
func start(t testing.TB, o Options, f fakes) *site {
	t.Helper()
	s := &site{log: &lockedBuffer{}, served: make(chan error, 1)}
	o.Logger = slog.New(slog.NewTextHandler(io.MultiWriter(s.log, &told), &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if s.Server, err = New(o); err != nil {
		t.Fatal(err)
	}
	options := append(s.HandlerOptions(), connect.WithInterceptors(s))
	for _, mount := range []func() (string, http.Handler){
		func() (string, http.Handler) { return wattlev1.NewLogServiceHandler(f, options...) },
		func() (string, http.Handler) { return wattlev1.NewAdminServiceHandler(f, options...) },
		func() (string, http.Handler) { return wattlev1.NewLeaseServiceHandler(f, options...) },
		func() (string, http.Handler) { return wattlev1.NewTopicServiceHandler(f, options...) },
	} {
		if err := s.Mount(mount()); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	go func() { s.served <- s.Serve(context.Background(), l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-s.served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s
}

// way is one way to speak to a server.
type way struct {
	protocol string // connect, grpc, grpc-web
	http2    bool
	json     bool
}

func (w way) String() string {
	return fmt.Sprintf("%s over HTTP/%s, JSON %v", w.protocol, map[bool]string{false: "1.1", true: "2"}[w.http2], w.json)
}

var ways = []way{{"connect", false, false}, {"connect", true, true}, {"grpc", true, false}, {"grpc-web", false, true}, {"grpc-web", true, false}, {"connect", false, true}}

func (w way) options() (list []connect.ClientOption) {
	switch w.protocol {
	case "grpc":
		list = append(list, connect.WithGRPC())
	case "grpc-web":
		list = append(list, connect.WithGRPCWeb())
	}
	if w.json {
		list = append(list, connect.WithProtoJSON())
	}
	return list
}

// httpClient speaks HTTP/1.1 or HTTP/2 without TLS, with a token if there is a name.
func httpClient(t testing.TB, http2 bool, name string) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	transport := &http.Transport{Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: bearing{transport, name}}
}

// bearing adds a token.
type bearing struct {
	http.RoundTripper
	name string
}

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.name != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+tokenOf(b.name))
	}
	return b.RoundTripper.RoundTrip(r)
}

func (s *site) client(t testing.TB, w way, name string) wattlev1.LogServiceClient {
	return wattlev1.NewLogServiceClient(httpClient(t, w.http2, name), "http://"+s.addr, w.options()...)
}

// note keeps what a client was told, for the canaries.
func note(err error) error {
	if err != nil {
		_, _ = fmt.Fprintln(&told, err)
	}
	return err
}

// kind is that of an error's detail.
func kind(t testing.TB, err error) wattlev1.ErrorKind {
	t.Helper()
	_ = note(err)
	if d := detail(err); d != nil {
		return d.GetKind()
	}
	return wattlev1.ErrorKind_ERROR_KIND_UNSPECIFIED
}

func detail(err error) *wattlev1.ErrorDetail {
	var ce *connect.Error
	if e, ok := err.(*connect.Error); ok {
		ce = e
	} else {
		return nil
	}
	for _, d := range ce.Details() {
		if v, err := d.Value(); err == nil {
			if e, ok := v.(*wattlev1.ErrorDetail); ok {
				return e
			}
		}
	}
	return nil
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("waited in vain: " + what)
		}
	}
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// everywhere is a listener that other machines could reach, if it were one.
type everywhere struct {
	closed chan struct{}
	once   sync.Once
}

func (e *everywhere) Accept() (net.Conn, error) { return nil, errors.New("nobody comes") }
func (e *everywhere) Addr() net.Addr            { return &net.TCPAddr{IP: net.IPv4zero, Port: 1} }
func (e *everywhere) Close() error {
	e.once.Do(func() { close(e.closed) })
	return nil
}

// within bounds a stream that is to end: one that does not fails its test.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}
