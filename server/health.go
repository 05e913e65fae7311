// Alive and ready: over HTTP and gRPC.

package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/wattle-es/wattle/eventstore"
)

const healthBytes = 4 << 10 // of a request

// readiness is the answer of the probe, believed for a while. One probe runs at a time;
// who asks meanwhile waits for it.
type readiness struct {
	probe func(context.Context) error

	mu     sync.Mutex // held while the probe runs
	asked  time.Time
	answer error
	behind chan error // of a probe that was left behind
	ended  bool
}

var errLate = errors.New("the probe took too long")

// now is the answer. A probe that does not come back is left behind, and is not asked
// again before it has.
func (r *readiness) now() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.probe == nil || r.ended {
		return nil
	}
	if !r.asked.IsZero() && time.Since(r.asked) < DefaultReadyInterval {
		return r.answer
	}
	if r.behind != nil {
		select {
		case <-r.behind:
			r.behind = nil
		default:
			return errLate
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), DefaultReadyTimeout)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		defer func() {
			if recover() != nil {
				answer <- errors.New("the probe panicked")
			}
		}()
		answer <- r.probe(ctx)
	}()
	select {
	case r.answer = <-answer:
	case <-ctx.Done():
		r.answer, r.behind = errLate, answer
	}
	r.asked = time.Now()
	return r.answer
}

// stop asks no more. A probe that was left behind ends by itself: its context has ended.
func (r *readiness) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// report is what /readyz answers.
type report struct {
	Ready  bool     `json:"ready"`
	Why    string   `json:"why,omitempty"`    // why not: draining, unavailable, read-only…
	Broken []string `json:"broken,omitempty"` // files that changed and are not in force
}

// readyNow says if a call that writes would go through now. What is wrong is told in one
// word: what a store's error says is for the log.
func (s *Server) readyNow() report {
	var r report
	broken := s.brokenNow()
	for _, what := range []string{"policy", "tls", "tokens"} {
		if broken[what] {
			r.Broken = append(r.Broken, what)
		}
	}
	if s.draining.Load() {
		r.Why = "draining"
		return r
	}
	err := s.ready.now()
	s.tellReady(err)
	if r.Ready = err == nil; !r.Ready {
		r.Why = reason(err)
	}
	return r
}

// tellReady logs when it changes.
func (s *Server) tellReady(err error) {
	why := ""
	if err != nil {
		why = reason(err)
	}
	s.mu.Lock()
	changed := s.notReady != why
	s.notReady = why
	s.mu.Unlock()
	switch {
	case changed && why != "":
		s.logger.Error("wattle: not ready", "why", why)
	case changed:
		s.logger.Info("wattle: ready again")
	}
}

// reason is the kind of an error, for everybody to read.
func reason(err error) string {
	for _, kind := range []error{eventstore.ErrReadOnly, eventstore.ErrNotMigrated, eventstore.ErrOverloaded, eventstore.ErrIsolation,
		eventstore.ErrCorrupt, eventstore.ErrClosed, eventstore.ErrUnavailable, errLate} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errLate.Error()
	}
	return "the store cannot be written to"
}

// serveHealth answers /healthz and /readyz, for which nobody need be known.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case r.URL.Path == "/healthz":
		writeJSON(w, http.StatusOK, map[string]bool{"alive": true})
	case r.URL.Path == "/readyz":
		state := s.readyNow()
		status := http.StatusOK
		if !state.Ready {
			status = http.StatusServiceUnavailable
		}
		writeJSON(w, status, state)
	default:
		if s.known[r.URL.Path] != nil {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		s.notFound(w, r)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // who has gone is not told
}

// mountOwn adds the services of gRPC itself.
func (s *Server) mountOwn(reflection bool) {
	plain := []connect.HandlerOption{connect.WithReadMaxBytes(healthBytes), connect.WithCompression("gzip", nil, nil)}
	path, h := grpchealth.NewHandler(checker{s}, plain...)
	s.public[path+"Check"] = h
	if !reflection {
		return
	}
	var names []string
	for _, service := range services() {
		names = append(names, string(service.FullName()))
	}
	reflector := grpcreflect.NewStaticReflector(names...)
	for _, one := range []func(*grpcreflect.Reflector, ...connect.HandlerOption) (string, http.Handler){grpcreflect.NewHandlerV1, grpcreflect.NewHandlerV1Alpha} {
		path, h := one(reflector, s.handling...)
		s.mounted[path] = h
		p := &procedure{path: path + "ServerReflectionInfo", service: path, stream: true, pours: true}
		p.accesses = table[p.path]
		s.known[p.path] = p
	}
}

// checker is gRPC's health: of the whole server, and of each service that is mounted.
type checker struct{ s *Server }

// Check implements grpchealth.Checker.
func (c checker) Check(_ context.Context, r *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if r.Service != "" && (!protoreflect.FullName(r.Service).IsValid() || c.s.mounted["/"+r.Service+"/"] == nil) {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such service: "+clean(strings.TrimSpace(r.Service))))
	}
	if c.s.readyNow().Ready {
		return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
	}
	return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
}

// ProbeStore makes a probe for Options.Ready of a store: it takes a lease of its own, which
// only a store that can be written to grants or refuses.
func ProbeStore(store *eventstore.Store, name string) func(context.Context) error {
	holder := eventstore.NewUUID()
	return func(ctx context.Context) error {
		_, _, err := store.AcquireLease(ctx, name, holder, DefaultReadyInterval)
		return err
	}
}
