// Forms of a path over raw sockets, where Go's client would clean them: only the path of a
// procedure as it stands reaches one.

package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// forms are a path as somebody might send it to slip past a rule.
func forms(path string) []string {
	_, service, _ := strings.Cut(path, "/")
	method := path[strings.LastIndexByte(path, '/')+1:]
	return []string{
		service,    // CVE-2026-33186 of grpc-go: no leading slash
		"/" + path, // doubled slash
		"/" + strings.Replace(service, "/", "//", 1), // doubled between
		strings.ToLower(path), strings.ToUpper(path), // other case
		path + "/", path + "/x", path + "x", path + " x", path[1:], // trailing data
		path + "%00", path + "%20", path + ";x=1", path + "%2F", path + ".", path + "\x00", path + "\t",
		"/." + path, "/x/.." + path, path + "/.", path + "/x/..", "/%2e" + path, // dot segments
		strings.Replace(path, "Service/", "Service/./", 1), strings.Replace(path, "Service/", "Service/../wattle.v1.LogService/", 1),
		"/" + strings.Replace(service, "/", "%2F", 1), "/%77" + path[2:], // percent-encoding
		"/" + strings.Replace(service, method, fmt.Sprintf("%%%02x%s", method[0], method[1:]), 1),
		"\\" + service, strings.ReplaceAll(path, "/", "\\"), "*", "", "/", "//", "http:" + path, "//host" + path, "/http://host" + path,
		"/" + strings.Replace(service, ".", "。", 1), path + "#x", "#" + path, "?" + path, "/?" + path, "http://host@host/" + path,
	}
}

// raw is one request on a connection of its own, over HTTP/1.1 or HTTP/2.
type raw struct {
	method, target, contentType, token string
	body                               []byte
	header                             [][2]string
}

// http1 returns the status line, "" if the server just ends the connection.
func (r raw) http1(t testing.TB, addr string) string {
	t.Helper()
	c := dial(t, addr)
	defer func() { _ = c.Close() }()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d\r\n", r.method, r.target, r.contentType, len(r.body))
	if r.token != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", r.token)
	}
	for _, h := range r.header {
		fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
	}
	b.WriteString("\r\n")
	b.Write(r.body)
	_, _ = c.Write(b.Bytes()) // who was refused early has closed already
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	_ = resp.Body.Close()
	_, _ = told.Write(text)
	return resp.Status
}

// http2 writes frames by hand, and returns when the server has ended the stream.
func (r raw) http2(t testing.TB, addr string) {
	t.Helper()
	c := dial(t, addr)
	defer func() { _ = c.Close() }()
	block := field(nil, ":method", r.method)
	block = field(block, ":scheme", "http")
	block = field(block, ":authority", "x")
	block = field(block, ":path", r.target)
	block = field(block, "content-type", r.contentType)
	block = field(block, "te", "trailers")
	if r.token != "" {
		block = field(block, "authorization", "Bearer "+r.token)
	}
	for _, h := range r.header {
		block = field(block, strings.ToLower(h[0]), h[1])
	}
	out := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 0, 0, nil)...) // SETTINGS
	out = append(out, frame(1, 4, 1, block)...)                                       // HEADERS, END_HEADERS
	out = append(out, frame(0, 1, 1, r.body)...)                                      // DATA, END_STREAM
	_, _ = c.Write(out)
	awaitEnd(bufio.NewReader(c), 1)
}

// awaitEnd reads until a stream or the connection has ended.
func awaitEnd(r io.Reader, id uint32) {
	for {
		var head [9]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		payload := make([]byte, n)
		if _, err := io.ReadFull(r, payload); err != nil {
			return
		}
		_, _ = told.Write(payload)
		of := binary.BigEndian.Uint32(head[5:]) & 0x7fffffff
		switch kind, flags := head[3], head[4]; {
		case kind == 7: // GOAWAY
			return
		case of == id && (kind == 3 || kind <= 1 && flags&1 != 0): // RST_STREAM, or the end of DATA or HEADERS
			return
		}
	}
}

func frame(kind, flags byte, id uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	b = binary.BigEndian.AppendUint32(b, id)
	return append(b, payload...)
}

// field appends a header in HPACK, literal and never indexed.
func field(b []byte, name, value string) []byte {
	b = append(b, 0x10)
	for _, s := range []string{name, value} {
		if len(s) < 127 {
			b = append(b, byte(len(s)))
		} else {
			b = append(b, 127)
			rest := len(s) - 127
			for ; rest >= 128; rest >>= 7 {
				b = append(b, byte(rest&127|128))
			}
			b = append(b, byte(rest))
		}
		b = append(b, s...)
	}
	return b
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFormsOfPaths(t *testing.T) {
	o := usual(t)
	s := start(t, o, fakes{logs: logs{produce: once}})
	cases := 0
	for _, service := range services() {
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			if i > 2 && m.Name() != "Follow" && m.Name() != "Fence" {
				continue
			}
			path := "/" + string(service.FullName()) + "/" + string(m.Name())
			cases += tryForms(t, s, m, path)
		}
	}
	if cases < 400 {
		t.Errorf("%d cases only", cases)
	}
	t.Logf("%d cases", cases)
}

func tryForms(t *testing.T, s *site, m protoreflect.MethodDescriptor, path string) (cases int) {
	for _, w := range []way{{"connect", false, false}, {"grpc", true, false}} {
		if !w.http2 && m.IsStreamingClient() {
			continue
		}
		contentType, body := asBytes(t, m, sample(m, "account", "account-1"), w)
		try := func(method, target, name string) []string {
			cases++
			r := raw{method: method, target: target, contentType: contentType, body: body}
			if name != "" {
				r.token = tokenOf(name)
			}
			if w.http2 {
				r.http2(t, s.addr)
			} else {
				r.http1(t, s.addr)
			}
			return s.takeReached()
		}
		for _, good := range []string{path, path + "?x=1"} {
			if reached := try("POST", good, "ops"); len(reached) != 1 || reached[0] != path {
				t.Errorf("%s over %v is not reached: %v", good, w, reached)
			}
			for _, name := range []string{"stranger", ""} {
				if reached := try("POST", good, name); len(reached) > 0 {
					t.Errorf("%s over %v by %q is reached", good, w, name)
				}
			}
		}
		for i, form := range forms(path) {
			name := []string{"ops", "stranger"}[i%2]
			if reached := try("POST", form, name); len(reached) > 0 {
				t.Errorf("%q over %v by %s reaches %v", form, w, name, reached)
			}
			if reached := try("POST", form, "stranger"); len(reached) > 0 {
				t.Errorf("%q over %v reaches %v", form, w, reached)
			}
		}
		for _, method := range []string{"GET", "PUT", "OPTIONS", "post", "CONNECT", "PRI"} {
			if reached := try(method, path, "ops"); len(reached) > 0 {
				t.Errorf("%s %s over %v reaches %v", method, path, w, reached)
			}
		}
	}
	return cases
}

// Headers that name a method, a path or somebody else count for nothing.
func TestHeadersThatLie(t *testing.T) {
	s := start(t, usual(t), fakes{})
	read := services()[0].Methods().ByName("Read")
	for _, w := range []way{{"connect", false, false}, {"grpc", true, false}} {
		contentType, body := asBytes(t, read, sample(read, "account", "account-1"), w)
		for _, h := range [][2]string{
			{"X-HTTP-Method-Override", "GET"}, {"X-Original-URL", "/healthz"}, {"X-Rewrite-URL", "/healthz"}, {"X-Forwarded-For", "127.0.0.1"},
			{"X-Forwarded-User", "ops"}, {"X-Forwarded-Client-Cert", "URI=spiffe://ops"}, {"X-Wattle-Identity", "token:ops"}, {"X-Remote-User", "ops"},
			{"Proxy-Authorization", "Bearer " + tokenOf("ops")}, {"Cookie", "authorization=Bearer " + tokenOf("ops")},
			{"Authorization", "Basic " + tokenOf("ops")}, {"Authorization", tokenOf("ops")}, {"Authorization", "Bearer  " + tokenOf("ops")},
			{"Authorization", "Bearer " + tokenOf("ops") + "x"}, {"Authorization", "Bearer " + tokenOf("ops")[:20]}, {"Authorization", "Bearer "},
			{"Authorization", "Bearer " + strings.ToLower(tokenOf("ops"))},
		} {
			r := raw{method: "POST", target: "/wattle.v1.LogService/Read", contentType: contentType, body: body, header: [][2]string{h}}
			if w.http2 {
				r.http2(t, s.addr)
			} else {
				r.http1(t, s.addr)
			}
			if reached := s.takeReached(); len(reached) > 0 {
				t.Errorf("%s over %v lets in", h, w)
			}
		}
		twice := raw{method: "POST", target: "/wattle.v1.LogService/Read", contentType: contentType, body: body, token: tokenOf("stranger"), header: [][2]string{{"Authorization", "Bearer " + tokenOf("ops")}}}
		if twice.http1(t, s.addr); len(s.takeReached()) > 0 {
			t.Error("two tokens let in")
		}
	}
}
