// From a request to its procedure, and what is refused before any of it is read.

package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"connectrpc.com/connect"
)

// ServeHTTP answers a request on any protocol.
func (s *Server) ServeHTTP(plain http.ResponseWriter, r *http.Request) {
	w := newWriter(plain, s.limits.WriteTimeout)
	defer w.timer.Stop()
	defer s.containHTTP(w, r)
	if r.Body != nil && r.Body != http.NoBody { // whoever answers, and without reading it too
		_ = http.NewResponseController(plain).SetReadDeadline(time.Now().Add(s.limits.ReadTimeout))
	}
	if s.keys == nil && !s.insecure && foreign(r) {
		http.Error(w, "wanted a request to localhost, found one to another name, as a web page makes that had its name lead here; --insecure accepts it", http.StatusMisdirectedRequest)
		return
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		s.serveHealth(w, r)
		return
	}
	// The path is what a caller may choose: it must be that of a procedure as it stands.
	p := s.known[r.URL.Path]
	if p == nil || r.URL.EscapedPath() != p.path || r.URL.Opaque != "" {
		s.serveOpen(w, r)
		return
	}
	h := s.mounted[p.service]
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case h == nil:
		s.notFound(w, r)
	default:
		s.serveCall(w, r, p, h)
	}
}

// foreign says that a request was made to a name in the DNS, or by a web page from elsewhere.
// Without TLS a server is for this machine; a page in a browser on it could reach it all
// the same, under a name of its own that it has lead to 127.0.0.1.
func foreign(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host == "" || inDomain(u.Host) {
			return true
		}
	}
	return inDomain(r.Host)
}

// inDomain says that a host is a name in a domain: no address, and not localhost or the like.
func inDomain(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return net.ParseIP(strings.Trim(host, "[]")) == nil && strings.Contains(strings.TrimSuffix(host, "."), ".")
}

// serveOpen serves what nobody need be known for: gRPC health.
func (s *Server) serveOpen(w *writer, r *http.Request) {
	h := s.public[r.URL.Path]
	if h == nil || r.URL.EscapedPath() != r.URL.Path || r.Method != http.MethodPost {
		s.notFound(w, r)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, healthBytes)
	h.ServeHTTP(w, r)
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.logger.Debug("wattle: no such procedure", "path", clean(r.URL.Path), "remote", r.RemoteAddr)
	if r.Method == http.MethodPost && s.writer.IsSupported(r) {
		_ = s.writer.Write(w, r, connect.NewError(connect.CodeUnimplemented, fmt.Errorf("no such procedure")))
		return
	}
	http.Error(w, "not found", http.StatusNotFound)
}

// serveCall lets in what there is room for, from somebody who is known.
func (s *Server) serveCall(w *writer, r *http.Request, p *procedure, h http.Handler) {
	c := &call{proc: p, account: account{b: &s.budget}, control: http.NewResponseController(w), began: time.Now()}
	defer s.logCall(r, w, c)
	now := s.calls.Add(1)
	defer s.calls.Add(-1)
	defer func() { c.account.keep(0) }()
	if err := s.admit(c, r, now); err != nil {
		c.end(err)
		if r.ProtoMajor == 1 && r.ContentLength != 0 { // its body is not waited for
			w.Header().Set("Connection", "close")
		}
		_ = s.writer.Write(w, r, err) // who cannot be told has gone
		return
	}
	if p.stream {
		defer s.streams.leave(c.caller.identity)
	}
	r.Body = &body{ReadCloser: r.Body, s: s, c: c, w: w, http1: r.ProtoMajor == 1, most: s.messageBytes(r), ahead: c.account.held.Load()}
	h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
}

// messageBytes is how much of a body one message may take.
func (s *Server) messageBytes(r *http.Request) int64 {
	most := int64(s.limits.MessageBytes)
	switch kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind {
	case "application/proto", "application/json":
		return most
	}
	return most + envelopeBytes
}

// admit says why a call is not let in. Nothing of its body has been read.
func (s *Server) admit(c *call, r *http.Request, calls int64) *connect.Error {
	if s.draining.Load() {
		return goingAway()
	}
	caller, err := s.authenticate(r)
	if err != nil {
		s.metrics.unknown()
		s.logUnauthenticated(c.proc.path, r.RemoteAddr, err.Error())
		return unauthenticated(err.Error())
	}
	c.caller = caller
	if calls > int64(s.limits.Calls) {
		s.metrics.overloaded()
		return overloaded(fmt.Sprintf("at most %d calls at once", s.limits.Calls), "more")
	}
	if !c.proc.pours {
		if r.ContentLength > s.messageBytes(r) {
			return tooLarge(fmt.Sprintf("a request of at most %d bytes", s.limits.MessageBytes), fmt.Sprint(r.ContentLength))
		}
		if r.ContentLength > 0 && !c.account.take(r.ContentLength) {
			s.metrics.overloaded()
			return s.budget.full()
		}
	}
	if c.proc.stream && !s.streams.enter(caller.identity, s.limits.StreamsPerIdentity) {
		s.metrics.overloaded()
		return overloaded(fmt.Sprintf("at most %d streams of one identity", s.limits.StreamsPerIdentity), "more")
	}
	return nil
}

func (s *Server) logUnauthenticated(procedure, who, why string) {
	s.logger.Warn("wattle: not authenticated", "procedure", procedure, "who", clean(who), "found", clean(why))
}

// logCall is the access log. It has no payloads and no headers.
func (s *Server) logCall(r *http.Request, w *writer, c *call) {
	if !s.logger.Enabled(r.Context(), slog.LevelDebug) {
		return
	}
	code, identity := "", ""
	if t := c.code.Load(); t != nil {
		code = *t
	}
	if c.caller != nil {
		identity = c.caller.identity
	}
	s.logger.Debug("wattle: call", "procedure", c.proc.path, "identity", clean(identity), "protocol", r.Proto, "status", w.status, "code", code,
		"sent", w.bytes, "took", time.Since(c.began))
}

// containHTTP is for panics outside of services: one call ends, the server does not.
func (s *Server) containHTTP(w *writer, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.metrics.panicked()
	s.logger.Error("wattle: a handler panicked", "path", clean(r.URL.Path), "type", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
	if w.status == 0 {
		_ = s.writer.Write(w, r, internal())
		return
	}
	panic(http.ErrAbortHandler) // it has begun to answer: cut it off
}
