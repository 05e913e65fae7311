// How many there may be of what, and how slow: connections, streams, headers, senders, readers.

package server

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

// Streams of one identity, calls of all, connections of all.
func TestCounts(t *testing.T) {
	o := usual(t)
	o.Limits.StreamsPerIdentity, o.Limits.Calls = 3, 5
	s := start(t, o, fakes{logs: logs{follow: endless(nil)}})
	var ends []func() error
	for range 3 {
		ends = append(ends, openStream(t, s, way{"grpc", true, false}, "teller", false))
	}
	f, err := s.client(t, way{"connect", true, false}, "teller").Follow(within(t), &wattlev1.FollowRequest{Stream: "account-1"})
	if err != nil {
		t.Fatal(err)
	}
	if f.Receive() || kind(t, f.Err()) != wattlev1.ErrorKind_ERROR_KIND_OVERLOADED {
		t.Errorf("a fourth stream: %v", f.Err())
	}
	_ = f.Close()
	for range 2 {
		ends = append(ends, openStream(t, s, way{"grpc", true, false}, "ops", false))
	}
	for _, w := range ways {
		if _, err := s.client(t, w, "ops").Read(t.Context(), &wattlev1.ReadRequest{Stream: "a-1"}); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_OVERLOADED {
			t.Errorf("a sixth call: %v", err)
		}
	}
	endsAs(t, s, ends, wattlev1.ErrorKind_ERROR_KIND_GOING_AWAY)
	if len(s.streams.of) > 0 {
		t.Errorf("left over: %v", s.streams.of)
	}
}

func TestConnections(t *testing.T) {
	o := usual(t)
	o.Limits.Connections = 5
	s := start(t, o, fakes{})
	var idle []io.Closer
	for range 5 {
		idle = append(idle, dial(t, s.addr))
	}
	until(t, "all are accepted", func() bool { return s.conns.Load() == 5 })
	for range 50 {
		c := dial(t, s.addr)
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("served")
		}
		_ = c.Close()
	}
	for _, c := range idle {
		_ = c.Close()
	}
	until(t, "there is room again", func() bool {
		_, err := s.client(t, ways[0], "ops").Read(t.Context(), &wattlev1.ReadRequest{Stream: "a-1"})
		return connect.CodeOf(err) == connect.CodeUnimplemented
	})
}

// Headers without end, over both protocols.
func TestEndlessHeaders(t *testing.T) {
	s := start(t, usual(t), fakes{})
	grew := heap(func() {
		c := dial(t, s.addr)
		_, _ = io.WriteString(c, "POST /wattle.v1.LogService/Read HTTP/1.1\r\nHost: x\r\n")
		sent := endlessly(c, []byte("X-"+strings.Repeat("x", 1000)+": y\r\n"))
		if sent > 20<<20 {
			t.Errorf("HTTP/1.1 takes %d bytes", sent)
		}
		c = dial(t, s.addr)
		_, _ = c.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 0, 0, nil)...))
		_, _ = c.Write(frame(1, 0, 1, field(nil, ":method", "POST")))
		sent = endlessly(c, frame(9, 0, 1, field(nil, "x-"+strings.Repeat("x", 1000), "y"))) // CONTINUATION
		if sent > 20<<20 {
			t.Errorf("HTTP/2 takes %d bytes", sent)
		}
	})
	if grew > 50 {
		t.Errorf("%.0f MiB", grew)
	}
	r := raw{method: "POST", target: "/wattle.v1.LogService/Read", contentType: "application/proto", token: tokenOf("ops"), header: [][2]string{{"X-Big", strings.Repeat("x", 50<<10)}}}
	if status := r.http1(t, s.addr); !strings.HasPrefix(status, "431") {
		t.Errorf("a header of 50 KiB: %q", status)
	}
	if r.http2(t, s.addr); len(s.takeReached()) > 0 {
		t.Error("a header of 50 KiB over HTTP/2")
	}
}

// endlessly writes until the other side has enough, at most 64 MiB.
func endlessly(c io.WriteCloser, piece []byte) (sent int) {
	defer func() { _ = c.Close() }()
	piece = bytes.Repeat(piece, 1)
	for sent < 64<<20 {
		n, err := c.Write(piece)
		sent += n
		if err != nil {
			break
		}
	}
	return sent
}

// 10,000 streams on one connection: those over the limit are refused one by one.
func TestManyStreams(t *testing.T) {
	o := usual(t)
	o.Limits.StreamsPerConnection = 50
	s := start(t, o, fakes{logs: logs{follow: endless(nil)}})
	follow := services()[0].Methods().ByName("Follow")
	contentType, body := asBytes(t, follow, sample(follow, "account", "account-1"), way{"grpc", true, false})
	block := field(field(field(field(nil, ":method", "POST"), ":scheme", "http"), ":path", "/wattle.v1.LogService/Follow"), "content-type", contentType)
	block = field(field(block, "te", "trailers"), "authorization", "Bearer "+tokenOf("ops"))
	var most int
	grew := heap(func() {
		c := dial(t, s.addr)
		defer func() { _ = c.Close() }()
		go func() { _, _ = io.Copy(io.Discard, c) }()
		w := bufio.NewWriter(c)
		_, _ = w.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 0, 0, nil)...))
		for i := range 10_000 {
			id := uint32(2*i + 1)
			if _, err := w.Write(append(frame(1, 4, id, block), frame(0, 1, id, body)...)); err != nil {
				break // it has enough
			}
			most = max(most, len(s.streams.list()))
		}
		_ = w.Flush()
	})
	if most > 50 || grew > 100 {
		t.Errorf("%d streams at once, %.0f MiB", most, grew)
	}
	until(t, "the streams end with their connection", func() bool { return len(s.streams.list()) == 0 })
	t.Logf("%d streams at once, the heap grew by %.0f MiB", most, grew)
}

// Who sends slowly, or not at all, is cut off: header, body, handshake.
func TestSlowSenders(t *testing.T) {
	o := usual(t)
	o.Limits.HeaderTimeout, o.Limits.ReadTimeout = 300*time.Millisecond, 300*time.Millisecond
	s := start(t, o, fakes{})
	head := "POST /wattle.v1.LogService/Read HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + tokenOf("ops") + "\r\nContent-Type: application/proto\r\nContent-Length: 100\r\n"
	preface := string(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 0, 0, nil)...))
	block := field(field(field(field(nil, ":method", "POST"), ":scheme", "http"), ":path", "/wattle.v1.LogService/Read"), "content-type", "application/grpc+proto")
	block = field(field(block, "te", "trailers"), "authorization", "Bearer "+tokenOf("ops"))
	for name, text := range map[string]string{
		"nothing": "", "half a header": head[:40], "no body": head + "\r\n", "half a body": head + "\r\n" + "12345",
		"half a stream": preface + string(frame(1, 4, 1, block)) + string(frame(0, 0, 1, []byte{0, 0, 0, 0, 100, 1, 2, 3})),
	} {
		c := dial(t, s.addr)
		_, _ = io.WriteString(c, text)
		began := time.Now()
		if strings.HasPrefix(text, preface) {
			awaitEnd(c, 1)
		} else {
			_, _ = io.Copy(io.Discard, c)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: cut off after %v", name, took)
		}
		_ = c.Close()
	}
	if len(s.takeReached()) > 0 {
		t.Error("reached")
	}
}

// Who does not read is cut off: the service is not held up for ever.
func TestSlowReader(t *testing.T) {
	o := usual(t)
	o.Limits.WriteTimeout = 300 * time.Millisecond
	ended := make(chan error, 1)
	s := start(t, o, fakes{logs: logs{follow: func(ctx context.Context, _ *wattlev1.FollowRequest, st *connect.ServerStream[wattlev1.FollowResponse]) error {
		big := &wattlev1.FollowResponse{Entries: []*wattlev1.Entry{{Event: &wattlev1.Event{Data: noise(1 << 20)}}}}
		for {
			if err := st.Send(big); err != nil {
				ended <- err
				return err
			}
		}
	}}})
	for _, w := range []way{{"connect", false, false}, {"grpc", true, false}} {
		f, err := s.client(t, w, "ops").Follow(within(t), &wattlev1.FollowRequest{Stream: "a-1"})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-time.After(8 * time.Second): // before the client ends
			t.Errorf("%v: it writes for ever", w)
		}
		_ = f.Close()
	}
}

// A unary call has an end.
func TestUnaryTimeout(t *testing.T) {
	o := usual(t)
	o.Limits.UnaryTimeout = 100 * time.Millisecond
	s := start(t, o, fakes{logs: logs{read: func(ctx context.Context, _ *wattlev1.ReadRequest) (*wattlev1.ReadResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}})
	for _, w := range ways {
		began := time.Now()
		_, err := s.client(t, w, "ops").Read(t.Context(), &wattlev1.ReadRequest{Stream: "a-1"})
		if connect.CodeOf(note(err)) != connect.CodeDeadlineExceeded || time.Since(began) > 10*time.Second {
			t.Errorf("%v: %v", w, err)
		}
	}
}

// FuzzCountParts: what is counted within the bound can be parsed or not, and what is not
// has more parts than that.
func FuzzCountParts(f *testing.F) {
	f.Add(marshal(f, produce("a-1")))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m wattlev1.AppendRequest
		left := 1 << 20
		if !countParts(data, m.ProtoReflect().Descriptor(), &left) && len(data) < 1<<18 {
			t.Fatal("more parts than bytes")
		}
		if proto.Unmarshal(data, &m) == nil {
			parts := len(m.GetBatches()) + len(m.GetGuards())
			for _, b := range m.GetBatches() {
				parts += len(b.GetEvents())
			}
			if used := 1<<20 - left; used < parts {
				t.Fatalf("%d parts counted, there are %d", used, parts)
			}
		}
	})
}

// The time for reading is that of a request, not of a stream.
func TestStreamsOutliveTheReadTimeout(t *testing.T) {
	o := usual(t)
	o.Limits.ReadTimeout = 500 * time.Millisecond
	s := start(t, o, fakes{logs: logs{follow: endless(nil), produce: echo}})
	var ends []func() error
	for _, w := range streamWays {
		ends = append(ends, openStream(t, s, w.w, "teller", w.bidi))
	}
	b, err := s.client(t, http2Ways[2], "teller").Produce(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := b.Send(produce("account-1")); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Receive(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(700 * time.Millisecond) // longer than it may take to read a request
	}
	if n := len(s.streams.list()); n != len(ends)+1 {
		t.Errorf("%d streams are left of %d", n, len(ends)+1)
	}
	_ = b.CloseRequest()
	_ = b.CloseResponse()
	endsAs(t, s, ends, wattlev1.ErrorKind_ERROR_KIND_GOING_AWAY)
}
