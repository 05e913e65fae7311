// Bad replies, bad requests, connections and servers that go away, in every protocol.

package connectcarrier_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/connectcarrier"
	"github.com/wattle-es/wattle/handler/connectcarrier/handlerv1"
	"github.com/wattle-es/wattle/handler/internal/carriertest"
)

// liar is a service whose replies to decide are spoilt on their way out.
type liar struct {
	url   string // of a right one, which it asks
	spoil func(*handlerv1.Reply) (*handlerv1.Reply, error)
	calls *int
}

func (l liar) Handle(ctx context.Context, m *handlerv1.Request) (*handlerv1.Reply, error) {
	right := handlerv1.NewHandlerServiceClient(http.DefaultClient, l.url)
	reply, err := right.Handle(ctx, m)
	if m.GetOp() == string(handler.Decide) && err == nil {
		*l.calls++
		return l.spoil(reply)
	}
	return reply, err
}

// lies serves a liar, whose spoil may be changed.
func lies(t testing.TB) (site, *liar) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	l := &liar{url: serve(t, carriertest.Decider(t), nil).url, calls: new(int)}
	path, served := handlerv1.NewHandlerServiceHandler(l, connect.WithCompressMinBytes(1<<30)) // bounds of what is compressed are others
	return host(t, path, served), l
}

// Replies that no right service gives: each is a bug of the handler, and asked for once.
func TestBadReplies(t *testing.T) {
	s, l := lies(t)
	for _, w := range plainWays() {
		c := w.caller(t, s, nil)
		for name, spoil := range map[string]func(*handlerv1.Reply){
			"other key":      func(m *handlerv1.Reply) { m.Key = eventstore.NewUUID().String() },
			"no key":         func(m *handlerv1.Reply) { m.Key = "" },
			"other stream":   func(m *handlerv1.Reply) { m.Stream = "counter-b" },
			"no stream":      func(m *handlerv1.Reply) { m.Stream = "x" },
			"older contract": func(m *handlerv1.Reply) { m.V = 0 },
			"newer contract": func(m *handlerv1.Reply) { m.V = 2 },
			"unknown field":  func(m *handlerv1.Reply) { m.ProtoReflect().SetUnknown([]byte{0xfa, 0x3f, 1, 7}) },
			"no JSON":        func(m *handlerv1.Reply) { m.State = []byte("{") },
			"unknown type":   func(m *handlerv1.Reply) { m.Events[0].Type = "removed" },
			"no data":        func(m *handlerv1.Reply) { m.Events[0].Data = nil },
			"too many":       func(m *handlerv1.Reply) { m.Events = bulk(m.Events[0], 1001) },
			"both":           func(m *handlerv1.Reply) { m.Rejected = &handlerv1.Rejected{Code: "no"} },
			"other op":       func(m *handlerv1.Reply) { m.More = true },
			"empty":          func(m *handlerv1.Reply) { proto.Reset(m) },
		} {
			*l.calls, l.spoil = 0, func(m *handlerv1.Reply) (*handlerv1.Reply, error) {
				spoil(m)
				return m, nil
			}
			if _, err := c.Call(t.Context(), carriertest.Decide(1)); !errors.Is(err, handler.ErrBadReply) || *l.calls != 1 {
				t.Errorf("%v: %s: %v after %d calls", w, name, err, *l.calls)
			}
		}
	}
}

func bulk(e *handlerv1.Event, n int) (all []*handlerv1.Event) {
	for range n {
		all = append(all, e)
	}
	return all
}

// The codes of services that are not ours: none is a refusal.
func TestCodes(t *testing.T) {
	s, l := lies(t)
	want := map[connect.Code]error{
		connect.CodeInvalidArgument: handler.ErrBadRequest, connect.CodeOutOfRange: handler.ErrBadRequest, connect.CodeUnimplemented: handler.ErrBadRequest,
		connect.CodeResourceExhausted: eventstore.ErrOverloaded, connect.CodeUnauthenticated: handler.ErrDenied, connect.CodePermissionDenied: handler.ErrDenied,
	}
	for _, w := range plainWays() {
		c := w.caller(t, s, &handler.Options{Retries: -1})
		for code := connect.CodeCanceled; code <= connect.CodeUnauthenticated; code++ {
			l.spoil = func(*handlerv1.Reply) (*handlerv1.Reply, error) {
				return nil, connect.NewError(code, errors.New("rejected: no"))
			}
			kind := want[code]
			if kind == nil {
				kind = handler.ErrFailed
			}
			_, err := c.Call(t.Context(), carriertest.Decide(1))
			if _, refused := errors.AsType[*handler.Rejected](err); !errors.Is(err, kind) || refused {
				t.Errorf("%v: %v: %v, want %v", w, code, err, kind)
			}
		}
	}
}

// What a handler returns arrives as the kind it is, with a code that fits.
func TestKindsOfErrors(t *testing.T) {
	var kind error
	s := serve(t, on(handler.Decide, carriertest.Decider(t), func(context.Context, *handler.Request) (*handler.Reply, error) { return nil, kind }), nil)
	var code connect.Code
	watch := connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			resp, err := next(ctx, r)
			code = 0
			if err != nil {
				code = connect.CodeOf(err)
			}
			return resp, err
		}
	}))
	for _, w := range ways() {
		c, err := handler.NewCaller(t.Context(), w.client(t, s, connectcarrier.ClientOptions{Options: []connect.ClientOption{watch}}), &handler.Options{Retries: -1})
		if err != nil {
			t.Fatal(err)
		}
		for want, as := range map[error]connect.Code{handler.ErrFailed: connect.CodeInternal, handler.ErrBadRequest: connect.CodeInvalidArgument,
			handler.ErrStateVersion: connect.CodeFailedPrecondition, handler.ErrDenied: connect.CodePermissionDenied, eventstore.ErrTooLarge: connect.CodeResourceExhausted,
			eventstore.ErrOverloaded: connect.CodeResourceExhausted, eventstore.ErrUnknown: connect.CodeUnknown, eventstore.ErrAlreadyWritten: connect.CodeAborted} {
			kind = &handler.Error{Kind: want, Op: handler.Decide, Found: "größe\x00"}
			if _, err := c.Call(t.Context(), carriertest.Decide(1)); !errors.Is(err, want) || code != as {
				t.Errorf("%v: %v, code %v; want %v, %v", w, err, code, want, as)
			}
		}
		kind = &handler.Rejected{Code: "no", Message: "because"}
		_, err = c.Call(t.Context(), carriertest.Decide(1))
		if refused, ok := errors.AsType[*handler.Rejected](err); !ok || *refused != (handler.Rejected{Code: "no", Message: "because"}) || code != 0 {
			t.Errorf("%v: %v, code %v", w, err, code)
		}
	}
}

// Sizes: over a limit of the client, of the server, of the reply, plain and in gzip.
func TestTooLarge(t *testing.T) {
	reply, reached := 0, 0
	h := carriertest.Decider(t)
	s := serve(t, on(handler.Decide, h, func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		reached++
		if reply > 0 {
			return nil, &handler.Rejected{Code: "long", Message: strings.Repeat("x", reply)}
		}
		return h.Handle(ctx, r)
	}), &connectcarrier.ServerOptions{Limits: handler.Limits{RequestBytes: 32 << 10, ReplyBytes: 48 << 10}})
	for _, w := range ways() {
		if w.json && w.gzip {
			continue
		}
		c := w.caller(t, s, &handler.Options{Retries: 1})
		for _, is := range []struct {
			request, reply, reached int
			says                    string
		}{{2 << 20, 0, 0, "a request of at most 1048576 bytes"}, {200 << 10, 0, 0, "a request of at most 32768 bytes"}, {40 << 10, 0, 0, "a request of at most 32768 bytes"},
			{1, 64 << 10, 1, "a reply of at most 49152 bytes"}} {
			reply, reached = is.reply, 0
			r := carriertest.Decide(1)
			r.Command.Metadata = eventstore.Metadata{"m": strings.Repeat("x", is.request)}
			if _, err := c.Call(t.Context(), r); !errors.Is(err, eventstore.ErrTooLarge) || !strings.Contains(err.Error(), is.says) || reached != is.reached {
				t.Errorf("%v: %+v: %v, reached %d times", w, is, err, reached)
			}
		}
		reply = 0
		r := carriertest.Decide(1)
		r.Command.Metadata = eventstore.Metadata{"m": strings.Repeat("x", 16<<10)}
		if _, err := c.Call(t.Context(), r); err != nil {
			t.Errorf("%v: %v", w, err)
		}
	}
}

// A reply over the limit of who reads it is too large on every way, and asked for once; so
// is a request whose JSON is over a limit that its binary form is not.
func TestTooLargeToRead(t *testing.T) {
	s, l := lies(t)
	for _, w := range ways() {
		c := w.caller(t, s, nil)
		*l.calls, l.spoil = 0, func(m *handlerv1.Reply) (*handlerv1.Reply, error) {
			m.Events[0].Data = make([]byte, handler.DefaultReplyBytes)
			return m, nil
		}
		if _, err := c.Call(t.Context(), carriertest.Decide(1)); !errors.Is(err, eventstore.ErrTooLarge) || errors.Is(err, handler.ErrBadReply) || *l.calls != 1 {
			t.Errorf("%v: %v after %d calls", w, err, *l.calls)
		}
		if *l.calls = 0; !w.json || w.gzip {
			continue
		}
		r := carriertest.Decide(1)
		r.Command.Data = make([]byte, handler.DefaultRequestBytes*9/10)
		if _, err := c.Call(t.Context(), r); !errors.Is(err, eventstore.ErrTooLarge) || *l.calls != 0 {
			t.Errorf("%v: a request: %v after %d calls", w, err, *l.calls)
		}
	}
}

// A limit is of the binary form: a reply within it is sent as JSON too, which is longer,
// to somebody who takes no gzip.
func TestLongerAsJSON(t *testing.T) {
	h := carriertest.Decider(t)
	s := serve(t, on(handler.Decide, h, func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
		return &handler.Reply{Key: r.Key, Events: []handler.Event{{Type: "added", Data: make([]byte, 45<<10)}}}, nil
	}), &connectcarrier.ServerOptions{Limits: handler.Limits{ReplyBytes: 48 << 10}})
	if said := (posted{"application/json", "", []byte(`{"v":1,"op":"decide"}`)}).post(t, s); !strings.Contains(said, `"events"`) {
		t.Errorf("%.300s", said)
	}
}

// bomb is zeros, so many MiB of them: one, again and again, which gzip allows.
func bomb(t testing.TB, mib int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(b.Bytes(), mib)
}

// framed is a message in the frame of gRPC, which claims a size.
func framed(flags byte, claim uint32, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, claim), data...)
}

// Claims of a GiB, by a frame or in gzip, on either side: refused, without the memory.
func TestHugeClaims(t *testing.T) {
	s, zipped := serve(t, carriertest.Decider(t), nil), bomb(t, 900)
	for name, r := range map[string]posted{
		"a frame":         {"application/grpc-web+proto", "", framed(0, 1<<30, make([]byte, 100))},
		"gzip":            {"application/proto", "gzip", zipped},
		"gzip in a frame": {"application/grpc-web+proto", "gzip", framed(1, uint32(len(zipped)), zipped)},
	} {
		cheaply(t, name, func() {
			if said := r.post(t, s); !strings.Contains(said, "resource_exhausted") && !strings.Contains(strings.ToLower(said), "grpc-status: 8") {
				t.Errorf("%s: %.500q", name, said)
			}
		})
	}
	cheaply(t, "a body without end", func() { endless(t, s) })
	for name, r := range map[string]posted{
		"a frame":         {"application/grpc-web+proto", "", framed(0, 1<<30, make([]byte, 100))},
		"gzip in a frame": {"application/grpc-web+proto", "gzip", framed(1, uint32(len(zipped)), zipped)},
		"gzip":            {"application/proto", "gzip", zipped},
	} {
		fake := host(t, "/", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, r.contentType, r.encoding, r.body) }))
		p := connectcarrier.GRPCWeb
		if r.contentType == "application/proto" {
			p = connectcarrier.Connect
		}
		cheaply(t, "reply: "+name, func() {
			_, err := way{protocol: p}.client(t, fake, connectcarrier.ClientOptions{}).Handle(t.Context(), carriertest.Decide(1))
			if !errors.Is(err, eventstore.ErrTooLarge) || errors.Is(err, handler.ErrBadReply) {
				t.Errorf("reply: %s: %v", name, err)
			}
		})
	}
}

// posted is a request made by hand.
type posted struct {
	contentType, encoding string
	body                  []byte
}

// post returns all that the server says.
func (p posted) post(t *testing.T, s site) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/wattle.handler.v1.HandlerService/Handle", bytes.NewReader(p.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", p.contentType)
	req.Header.Set("Accept-Encoding", "identity")
	if p.encoding != "" {
		req.Header.Set("Content-Encoding", p.encoding)
		req.Header.Set("Grpc-Encoding", p.encoding)
	}
	resp, err := httpClient(t, false).Do(req)
	if err != nil {
		t.Fatalf("%s: %v", p.contentType, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return fmt.Sprintf("%s grpc-status: %s%s", text, resp.Header.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Status"))
}

// endless writes a body until the server hangs up, which it does before long.
func endless(t *testing.T, s site) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, err = conn.Write([]byte("POST /wattle.handler.v1.HandlerService/Handle HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\nContent-Length: 1073741824\r\n\r\n"))
	written, chunk := 0, make([]byte, 64<<10)
	for n := 0; err == nil && written < 1<<30; written += n {
		n, err = conn.Write(chunk)
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || written > 64<<20 {
		t.Errorf("a body without end: %d MiB were taken, %v", written>>20, err)
	}
}

// cheaply checks that f needs little memory. What others of the process allocate counts
// too, so it has three tries.
func cheaply(t *testing.T, name string, f func()) {
	t.Helper()
	const most = 48 << 20
	var took uint64
	for range 3 {
		before := allocated()
		f()
		if took = allocated() - before; took <= most {
			return
		}
	}
	t.Errorf("%s: took %d MiB, want at most %d", name, took>>20, most>>20)
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func answer(w http.ResponseWriter, contentType, encoding string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	if encoding != "" {
		w.Header().Set("Content-Encoding", encoding)
		w.Header().Set("Grpc-Encoding", encoding)
	}
	_, _ = w.Write(body)
}

// Servers that are none of ours, or break off: never a reply, never a refusal.
func TestStrangeServers(t *testing.T) {
	right := serve(t, carriertest.Decider(t), nil)
	for name, f := range map[string]struct {
		answer http.HandlerFunc
		want   error
	}{
		"a web page": {func(w http.ResponseWriter, _ *http.Request) {
			answer(w, "text/html", "", []byte("<html>rejected</html>"))
		}, handler.ErrFailed},
		"502":        {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "rejected", http.StatusBadGateway) }, handler.ErrFailed},
		"429":        {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "slow down", http.StatusTooManyRequests) }, handler.ErrFailed},
		"401":        {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who?", http.StatusUnauthorized) }, handler.ErrDenied},
		"no message": {func(w http.ResponseWriter, _ *http.Request) { answer(w, "application/proto", "", []byte("\xff\xff")) }, handler.ErrBadReply},
		"empty":      {func(w http.ResponseWriter, _ *http.Request) { answer(w, "application/proto", "", nil) }, handler.ErrBadReply},
		"no gzip":    {func(w http.ResponseWriter, _ *http.Request) { answer(w, "application/proto", "gzip", []byte("x")) }, handler.ErrBadReply},
		"truncated":  {truncating(right, "application/proto"), handler.ErrFailed},
		"breaks off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, handler.ErrFailed},
		"never answers": {func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // a server hears of the end behind it
			<-r.Context().Done()
		}, handler.ErrFailed},
	} {
		s := host(t, "/", f.answer)
		client := way{}.client(t, s, connectcarrier.ClientOptions{Timeout: 300 * time.Millisecond})
		_, err := client.Handle(t.Context(), carriertest.Decide(1))
		if _, refused := errors.AsType[*handler.Rejected](err); !errors.Is(err, f.want) || refused {
			t.Errorf("%s: %v, want %v", name, err, f.want)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := site{nil, "http://" + l.Addr().String()}
	_ = l.Close()
	for _, w := range plainWays() {
		if _, err := w.client(t, nobody, connectcarrier.ClientOptions{}).Handle(t.Context(), carriertest.Decide(1)); !errors.Is(err, handler.ErrFailed) {
			t.Errorf("%v: nobody: %v", w, err)
		}
	}
}

// Two replies to one request are none.
func TestTwoReplies(t *testing.T) {
	replies := 0
	s := host(t, "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m handlerv1.Request
		if err != nil || proto.Unmarshal(body[5:], &m) != nil {
			panic(http.ErrAbortHandler)
		}
		data, err := proto.Marshal(&handlerv1.Reply{V: 1, Key: m.GetKey(), More: true})
		if err != nil {
			panic(err)
		}
		end := []byte("grpc-status: 0\r\n")
		all := bytes.Repeat(framed(0, uint32(len(data)), data), replies)
		answer(w, "application/grpc-web+proto", "", append(all, framed(0x80, uint32(len(end)), end)...))
	}))
	client := way{protocol: connectcarrier.GRPCWeb}.client(t, s, connectcarrier.ClientOptions{})
	for replies = range 3 {
		reply, err := client.Handle(t.Context(), &handler.Request{Op: handler.CatchUp, Key: eventstore.NameUUID("k")})
		if (err == nil) != (replies == 1) || (reply != nil) != (replies == 1) {
			t.Errorf("%d replies: %+v, %v", replies, reply, err)
		}
	}
}

// truncating promises a whole reply and ends half way.
func truncating(right site, contentType string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, right.url+r.URL.Path, r.Body)
		if err != nil {
			panic(err)
		}
		req.Header.Set("Content-Type", contentType)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			panic(err)
		}
		defer func() { _ = resp.Body.Close() }()
		data, _ := io.ReadAll(resp.Body)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(data[:len(data)/2])
	}
}

// A reply that comes after the deadline is no reply, and hurts no later call.
func TestLate(t *testing.T) {
	h, slow := carriertest.Decider(t), make(chan struct{}, 1)
	s := serve(t, on(handler.Decide, h, func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		select {
		case <-slow:
			<-ctx.Done()
			time.Sleep(20 * time.Millisecond)
		default:
		}
		return h.Handle(context.WithoutCancel(ctx), r)
	}), nil)
	for _, w := range plainWays() {
		client := w.client(t, s, connectcarrier.ClientOptions{})
		slow <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := client.Handle(ctx, carriertest.Decide(0)); !errors.Is(err, handler.ErrFailed) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: late: %v", w, err)
		}
		cancel()
		select { // a call that was too late even to be begun leaves it
		case <-slow:
		default:
		}
		for n := range 10 {
			reply, err := client.Handle(t.Context(), carriertest.Decide(n))
			if err != nil || len(reply.Events) != 1 || string(reply.Events[0].Data) != fmt.Sprintf(`{"N":%d}`, n) {
				t.Fatalf("%v: %d: %+v, %v", w, n, reply, err)
			}
		}
	}
}

// A server that is killed while it decides.
func TestKilledMidCall(t *testing.T) {
	for _, w := range plainWays() {
		entered := make(chan struct{})
		s := serve(t, on(handler.Decide, carriertest.Decider(t), func(ctx context.Context, _ *handler.Request) (*handler.Reply, error) {
			close(entered)
			<-ctx.Done()
			return nil, ctx.Err()
		}), nil)
		c := w.caller(t, s, &handler.Options{Retries: -1, Timeout: 20 * time.Second})
		done := make(chan error, 1)
		go func() {
			_, err := c.Call(t.Context(), carriertest.Decide(1))
			done <- err
		}()
		<-entered
		began := time.Now()
		_ = s.Close()
		if err := <-done; !errors.Is(err, handler.ErrFailed) {
			t.Errorf("%v: %v", w, err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%v: noticed after %v", w, took)
		}
	}
}

// Who sends his request too slowly is not waited for.
func TestSlowRequest(t *testing.T) {
	s := serve(t, carriertest.Decider(t), &connectcarrier.ServerOptions{Timeout: time.Second, Running: 1, Waiting: -1})
	client := way{}.client(t, s, connectcarrier.ClientOptions{Timeout: 10 * time.Second})
	call := func() error {
		_, err := client.Handle(t.Context(), carriertest.Decide(1))
		return err
	}
	until(t, func() bool {
		slowly(t, s)
		return errors.Is(call(), eventstore.ErrOverloaded) // it has the only place
	})
	until(t, func() bool { return call() == nil })
}

// slowly begins a request and does not go on.
func slowly(t *testing.T, s site) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, err = conn.Write([]byte("POST /wattle.handler.v1.HandlerService/Handle HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\nContent-Length: 100\r\n\r\nx"))
	if err != nil {
		t.Fatal(err)
	}
}
