// What is too much is refused or cut, in every protocol, before memory grows.

package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

// heap returns by how many MiB the heap was larger than before at most, while f ran.
func heap(f func()) float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, most := m.HeapAlloc, m.HeapAlloc
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
		}
	}()
	f()
	close(done)
	<-stopped
	return float64(most-before) / (1 << 20)
}

// zipped are n times 1 MiB of zeros, packed by about 1000 to 1: members of gzip one behind
// the other, which is one stream to whoever unpacks it.
func zipped(t testing.TB, n int) []byte { return bytes.Repeat(packed(t, make([]byte, 1<<20)), n) }

func packed(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// post sends a body to a procedure as it is.
func (s *site) post(t testing.TB, w way, name, contentType, encoding string, body io.Reader) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.addr+"/wattle.v1.LogService/"+name, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	switch {
	case encoding == "":
	case w.protocol == "connect":
		req.Header.Set("Content-Encoding", encoding)
	default:
		req.Header.Set("Grpc-Encoding", encoding)
	}
	resp, err := httpClient(t, w.http2, "ops").Do(req)
	if err != nil {
		return "", err
	}
	return answered(t, resp), nil
}

func enveloped(flags byte, claim int, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(claim)), data...)
}

// Bombs: 1 GiB in 1 MiB, 10 GiB in 30 KiB, and many at once.
func TestBombs(t *testing.T) {
	o := usual(t)
	o.Limits.InFlightBytes = 80 << 20
	s := start(t, o, fakes{})
	bomb := zipped(t, 1<<10)
	double := packed(t, bytes.Repeat(bomb, 10)) // 10 GiB, for who unpacks until nothing is packed
	t.Logf("1 GiB in %d bytes, and 10 in %d", len(bomb), len(double))
	grew := heap(func() {
		for _, w := range []way{{"connect", false, false}, {"connect", true, false}, {"grpc", true, false}, {"grpc-web", false, false}} {
			for _, data := range [][]byte{bomb, double, append(packed(t, []byte("small")), bomb...)} {
				contentType, body := "application/proto", data
				if w.protocol != "connect" {
					contentType, body = "application/"+w.protocol+"+proto", enveloped(1, len(data), data)
				}
				code, err := s.post(t, w, "Append", contentType, "gzip", bytes.NewReader(body))
				if err != nil || code != "invalid_argument" {
					t.Errorf("%v: %s %v", w, code, err)
				}
			}
		}
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				if code, err := s.post(t, ways[0], "Append", "application/proto", "gzip", bytes.NewReader(bomb)); err != nil || code != "invalid_argument" && code != "resource_exhausted" {
					t.Errorf("%s %v", code, err)
				}
			})
		}
		wg.Wait()
	})
	if len(s.takeReached()) > 0 || grew > 1000 { // live are some 100; the rest waits for the collector
		t.Errorf("%.0f MiB", grew)
	}
	if !strings.Contains(told.String(), "packed by at most 200 to 1") {
		t.Error("the ratio was not looked at")
	}
	if used := s.budget.used.Load(); used != 0 {
		t.Errorf("%d bytes are taken for ever", used)
	}
	t.Logf("the heap grew by %.0f MiB", grew)
}

// Packed within the ratio, but too large; and packed in another way.
func TestUnpacked(t *testing.T) {
	o := usual(t)
	o.Limits.MessageBytes, o.Limits.Ratio = 128<<10, 1_000_000
	s := start(t, o, fakes{})
	for encoding, want := range map[string]string{"gzip": "invalid_argument", "zstd": "unimplemented", "br": "unimplemented", "deflate": "unimplemented", "gzip, gzip": "unimplemented", "GZIP": "unimplemented"} {
		code, err := s.post(t, ways[0], "Append", "application/proto", encoding, bytes.NewReader(zipped(t, 2)))
		if err != nil || code != want {
			t.Errorf("%s: %s %v", encoding, code, err)
		}
	}
	for _, w := range ways {
		small := &wattlev1.AppendRequest{Batches: []*wattlev1.Batch{{Stream: "a-1", Events: []*wattlev1.Event{{Data: make([]byte, 120<<10)}}}}}
		large := &wattlev1.AppendRequest{Batches: []*wattlev1.Batch{{Stream: "a-1", Events: []*wattlev1.Event{{Data: make([]byte, 128<<10)}}}}}
		if w.json {
			small.Batches[0].Events[0].Data = make([]byte, 90<<10)
		}
		for _, o := range [][]connect.ClientOption{nil, {connect.WithSendGzip()}} {
			c := wattlev1.NewLogServiceClient(httpClient(t, w.http2, "ops"), "http://"+s.addr, append(w.options(), o...)...)
			if _, err := c.Append(t.Context(), small); connect.CodeOf(note(err)) != connect.CodeUnimplemented {
				t.Errorf("%v: %v", w, err)
			}
			if _, err := c.Append(t.Context(), large); connect.CodeOf(note(err)) != connect.CodeInvalidArgument && connect.CodeOf(err) != connect.CodeResourceExhausted {
				t.Errorf("%v: %v", w, err)
			}
		}
	}
}

// What is announced is not believed: no memory is made for it.
func TestHugeClaims(t *testing.T) {
	s := start(t, usual(t), fakes{})
	grew := heap(func() {
		for _, length := range []string{"41943041000", "9223372036854775807"} {
			c := dial(t, s.addr)
			fmt.Fprintf(c, "POST /wattle.v1.LogService/Append HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/proto\r\nContent-Length: %s\r\n\r\n", tokenOf("ops"), length)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			if code := answered(t, resp); code != "invalid_argument" {
				t.Errorf("%s: %s", length, code)
			}
			_ = c.Close()
		}
		for _, w := range []way{{"grpc", true, false}, {"grpc-web", false, false}} {
			for _, claim := range []int{1<<32 - 1, 65 << 20} {
				code, err := s.post(t, w, "Append", "application/"+w.protocol+"+proto", "", bytes.NewReader(enveloped(0, claim, make([]byte, 100))))
				if err != nil || code == "ok" || code == "unimplemented" {
					t.Errorf("%v, %d claimed: %s %v", w, claim, code, err)
				}
			}
		}
		for _, length := range []string{"-1", "1e3", "18446744073709551616", "5, 6"} {
			r := raw{method: "POST", target: "/wattle.v1.LogService/Append", contentType: "application/proto", token: tokenOf("ops"), header: [][2]string{{"Content-Length", length}}}
			if status := r.http1(t, s.addr); !strings.HasPrefix(status, "400") {
				t.Errorf("%s: %s", length, status)
			}
		}
	})
	if len(s.takeReached()) > 0 || grew > 100 {
		t.Errorf("%.0f MiB", grew)
	}
}

// A few bytes that become many messages are counted before they do.
func TestManyParts(t *testing.T) {
	s := start(t, usual(t), fakes{})
	var many []byte
	for range 1_000_000 {
		many = append(many, 0x0a, 0) // an empty batch
	}
	var inner []byte
	for range 500_000 {
		inner = append(inner, 0x3a, 0) // an empty event of one batch
	}
	nested := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), inner)
	numbers := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType),
		protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), make([]byte, 1<<20)))
	grew := heap(func() {
		for name, c := range map[string]struct {
			procedure string
			data      []byte
			json      bool
		}{
			"batches": {"Append", many, false}, "events": {"Append", nested, false}, "slots": {"ReadFeed", numbers, false},
			"JSON": {"Append", []byte(`{"batches":[{}` + strings.Repeat(",{}", 400_000) + `]}`), true},
		} {
			contentType := map[bool]string{false: "application/proto", true: "application/json"}[c.json]
			code, err := s.post(t, ways[0], c.procedure, contentType, "", bytes.NewReader(c.data))
			if err != nil || code != "invalid_argument" || !strings.Contains(told.String(), "a message of at most 400000 parts") {
				t.Errorf("%s: %s %v", name, code, err)
			}
		}
	})
	if len(s.takeReached()) > 0 || grew > 150 {
		t.Errorf("%.0f MiB", grew)
	}
	full := &wattlev1.AppendRequest{Batches: []*wattlev1.Batch{{Stream: "a-1"}}}
	for i := range 10_000 {
		e := &wattlev1.Event{Id: "018f0000-0000-7000-8000-000000000000", Type: "x", Version: 1, ContentType: "a/b", Data: []byte("{}"), Metadata: map[string]string{}}
		for j := range 7 {
			e.Metadata[fmt.Sprint(i, j)] = "v"
		}
		full.Batches[0].Events = append(full.Batches[0].Events, e)
	}
	left := DefaultElements
	if !countParts(marshal(t, full), full.ProtoReflect().Descriptor(), &left) {
		t.Error("a full append has too many parts")
	}
}

// JSON is read as strictly as the binary form.
func TestStrictJSON(t *testing.T) {
	s := start(t, usual(t), fakes{})
	for text, want := range map[string]string{
		`{"stream":"account-1"}`: "unimplemented", `{"stream":"account-1","strem":"x"}`: "invalid_argument", `{"stream":"account-1","stream":"loan-1"}`: "invalid_argument",
		`{"stream":"account-1","after":"9007199254740993"}`: "unimplemented", `{"stream":"account-1","after":1.5}`: "invalid_argument", `{"stream":"account-1","after":-1}`: "invalid_argument",
		`{"stream":"account-1","after":18446744073709551616}`: "invalid_argument", "{\"stream\":\"\xff\"}": "invalid_argument", `{"stream":"account-1"}x`: "invalid_argument",
		strings.Repeat(`{"a":`, 20_000): "invalid_argument", strings.Repeat(`[`, 200_000): "invalid_argument", ``: "invalid_argument", `null`: "invalid_argument",
	} {
		for _, contentType := range []string{"application/json", "application/json; charset=utf-8"} {
			if code, err := s.post(t, ways[0], "Read", contentType, "", strings.NewReader(text)); err != nil || code != want {
				t.Errorf("%.60s: %s %v", text, code, err)
			}
		}
	}
	for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/xml"} {
		if code, err := s.post(t, ways[0], "Read", contentType, "", strings.NewReader(`{"stream":"account-1"}`)); err != nil || code != "415" {
			t.Errorf("%q: %s %v", contentType, code, err)
		}
	}
}

// Over the room for all requests a call is refused before its body is read, and the room
// comes back.
func TestInFlightBytes(t *testing.T) {
	o := usual(t)
	o.Limits.InFlightBytes = 512 << 10
	release, entered := make(chan struct{}), make(chan struct{}, 10)
	s := start(t, o, fakes{logs: logs{append: func(ctx context.Context, r *wattlev1.AppendRequest) (*wattlev1.AppendResponse, error) {
		entered <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return &wattlev1.AppendResponse{}, nil
	}, produce: echo}})
	appending := func(w way, n int) error {
		_, err := s.client(t, w, "ops").Append(within(t), &wattlev1.AppendRequest{Batches: []*wattlev1.Batch{{Stream: "a-1", Events: []*wattlev1.Event{{Data: make([]byte, n)}}}}})
		return note(err)
	}
	done := make(chan error, 3)
	for range 3 {
		go func() { done <- appending(ways[0], 128<<10) }()
	}
	for range 3 {
		<-entered
	}
	for _, w := range ways {
		if err := appending(w, 192<<10); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_OVERLOADED || connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Fatalf("%v: %v", w, err)
		}
	}
	// Packed, its size is not known before; and a stream's messages come one by one.
	c := wattlev1.NewLogServiceClient(httpClient(t, true, "ops"), "http://"+s.addr, connect.WithGRPC(), connect.WithSendGzip())
	if _, err := c.Append(t.Context(), &wattlev1.AppendRequest{Batches: []*wattlev1.Batch{{Stream: "a-1", Events: []*wattlev1.Event{{Data: noise(192 << 10)}}}}}); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_OVERLOADED {
		t.Errorf("packed: %v", err)
	}
	b, err := s.client(t, http2Ways[2], "ops").Produce(within(t))
	if err != nil {
		t.Fatal(err)
	}
	message := &wattlev1.ProduceRequest{Batches: []*wattlev1.Batch{{Stream: "a-1", Events: []*wattlev1.Event{{Data: make([]byte, 80<<10)}}}}}
	for range 10 { // two of them are more than there is room for
		if err := b.Send(message); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Receive(); err != nil {
			t.Fatal(err)
		}
	}
	message.Batches[0].Events[0].Data = make([]byte, 192<<10)
	if err := b.Send(message); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if _, err := b.Receive(); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_OVERLOADED {
		t.Errorf("a message of a stream: %v", err)
	}
	_ = b.CloseRequest()
	_ = b.CloseResponse()
	close(release)
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if err := appending(ways[2], 192<<10); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	until(t, "all room is back", func() bool { return s.budget.used.Load() == 0 })
}

// Answers that nobody takes count too: who asks for much and reads nothing is refused.
func TestAnswersInFlight(t *testing.T) {
	o := usual(t)
	const size = 16 << 20 // more than the buffers of a connection
	o.Limits.InFlightBytes = 40 << 20
	s := start(t, o, fakes{logs: logs{read: func(context.Context, *wattlev1.ReadRequest) (*wattlev1.ReadResponse, error) {
		return &wattlev1.ReadResponse{Entries: []*wattlev1.Entry{{Event: &wattlev1.Event{Data: noise(size)}}}}, nil
	}}})
	c := dial(t, s.addr)
	fmt.Fprintf(c, "POST /wattle.v1.LogService/Read HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/proto\r\nContent-Length: 5\r\n\r\n\x0a\x03a-1", tokenOf("ops"))
	until(t, "an answer waits to be read", func() bool { return s.budget.used.Load() >= answerTimes*size })
	reading := func(w way) error {
		_, err := s.client(t, w, "ops").Read(within(t), &wattlev1.ReadRequest{Stream: "a-1"})
		return note(err)
	}
	for _, w := range ways {
		if err := reading(w); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_OVERLOADED || connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%v: %v", w, err)
		}
	}
	_ = c.Close()
	until(t, "its room is back", func() bool { return s.budget.used.Load() == 0 })
	if err := reading(ways[0]); err != nil {
		t.Error(err)
	}
}

// Reads wait for each other beyond a number, and nothing else waits for them.
func TestReadsAtOnce(t *testing.T) {
	o := usual(t)
	o.Limits.Reads = 2
	release, entered := make(chan struct{}), make(chan struct{}, 10)
	s := start(t, o, fakes{logs: logs{read: func(context.Context, *wattlev1.ReadRequest) (*wattlev1.ReadResponse, error) {
		entered <- struct{}{}
		<-release
		return &wattlev1.ReadResponse{}, nil
	}, append: func(context.Context, *wattlev1.AppendRequest) (*wattlev1.AppendResponse, error) {
		return &wattlev1.AppendResponse{}, nil
	}}})
	done := make(chan error, 5)
	for range 5 {
		go func() {
			_, err := s.client(t, ways[0], "ops").Read(within(t), &wattlev1.ReadRequest{Stream: "a-1"})
			done <- err
		}()
	}
	<-entered
	<-entered
	if _, err := s.client(t, ways[0], "ops").Append(within(t), &wattlev1.AppendRequest{Batches: []*wattlev1.Batch{{Stream: "a-1"}}}); note(err) != nil {
		t.Errorf("an append beside them: %v", err)
	}
	if n := len(entered); n != 0 {
		t.Errorf("%d more are read at once", n)
	}
	close(release)
	for range 5 {
		if err := <-done; note(err) != nil {
			t.Error(err)
		}
	}
}

// Few bytes that become many parts count as what they become.
func TestPartsInFlight(t *testing.T) {
	o := usual(t)
	o.Limits.InFlightBytes = 16 << 20
	s := start(t, o, fakes{logs: logs{append: func(context.Context, *wattlev1.AppendRequest) (*wattlev1.AppendResponse, error) {
		return &wattlev1.AppendResponse{}, nil
	}}})
	for _, w := range ways {
		r := &wattlev1.AppendRequest{Batches: []*wattlev1.Batch{{Stream: "a-1"}}}
		for range 100_000 {
			r.Batches[0].Events = append(r.Batches[0].Events, &wattlev1.Event{})
		}
		if _, err := s.client(t, w, "ops").Append(within(t), r); kind(t, note(err)) != wattlev1.ErrorKind_ERROR_KIND_OVERLOADED {
			t.Errorf("%v: %v", w, err)
		}
	}
	until(t, "all room is back", func() bool { return s.budget.used.Load() == 0 })
}

// noise cannot be packed.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}
