// The listener for those who run the server: health and metrics, apart from the calls.

package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// ServeOps answers /healthz, /readyz and, if m is not nil, /metrics on a listener of its
// own until ctx ends. There is no TLS and nobody need be known: nothing that it shows
// comes from a store or a caller, and it belongs on a network of its own or on loopback.
func (s *Server) ServeOps(ctx context.Context, l net.Listener, m *Metrics) error {
	h := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method != http.MethodGet && r.Method != http.MethodHead:
				w.Header().Set("Allow", "GET, HEAD")
				http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			case r.URL.Path == "/metrics" && m != nil:
				m.ServeHTTP(w, r)
			default:
				s.serveHealth(w, r)
			}
		}),
		ReadHeaderTimeout: s.limits.HeaderTimeout, ReadTimeout: s.limits.ReadTimeout, WriteTimeout: s.limits.WriteTimeout, IdleTimeout: s.limits.IdleTimeout,
		MaxHeaderBytes: s.limits.HeaderBytes,
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if h.Shutdown(bounded) != nil {
			_ = h.Close()
		}
	})
	err := h.Serve(l)
	if !stop() {
		<-closed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
