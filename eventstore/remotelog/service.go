// The far side: a service over a store.

package remotelog

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
)

// ServiceOptions are the options of NewService; nil and zero fields are the defaults.
type ServiceOptions struct {
	// Visible says which categories a caller may know of: ListCategories, ListHolds and a
	// feed that names none leave the others out. Nil: all of them. It decides nothing else:
	// to refuse calls is for an interceptor.
	Visible func(ctx context.Context, c eventstore.Category) bool
	// Failed is told each error before its cause is left out, to log or to count it. The
	// cause may hold what belongs in no log. Nil: nobody is told.
	Failed func(ctx context.Context, op string, err error)
	// MaxRequestBytes bounds a request, uncompressed. 0: 64 MiB, in which an append of
	// eventstore.MaxAppendBytes fits.
	MaxRequestBytes int
	// Hub is the Announcer of the store: followers learn from it what is appended here, at
	// once. Nil: they learn of it from the store's own announcer, or by looking.
	Hub     *Hub
	Streams StreamOptions
	// Examine looks at what surrounds the store, where the store itself cannot. Nil: the
	// store's own.
	Examine func(ctx context.Context) ([]eventstore.Finding, error)
	Options []connect.HandlerOption // of Connect, behind ours: interceptors, say
}

// Service serves a store as the services Log, Admin and Lease of wattle.v1. What it
// answers is what the store has answered: an append whose caller has gone, or whose time
// was up, is carried out or refused as the store says. It keeps nothing of its own, and
// closing the store is for who has made it; once that is done calls are ErrUnavailable.
//
// What it does not bound is for the http.Server around it, and for interceptors: how many
// calls there are at once and how long they take, how large headers are.
type Service struct {
	store   *eventstore.Store
	o       ServiceOptions
	streams *streams
}

// NewService returns a service over a store.
func NewService(store *eventstore.Store, o *ServiceOptions) *Service {
	s := &Service{store: store}
	if o != nil {
		s.o = *o
	}
	if s.o.MaxRequestBytes <= 0 {
		s.o.MaxRequestBytes = wire.MaxRequestBytes
	}
	if s.o.Examine == nil {
		s.o.Examine = store.Examine
	}
	s.streams = newStreams(store, s.o.Hub, s.o.Streams)
	return s
}

// Handler is what to serve below a path.
type Handler struct {
	Path string // as "/wattle.v1.LogService/"
	http.Handler
}

// Handlers returns one for each of the services: by Connect, gRPC, gRPC-Web and plain
// HTTP, in the binary form or JSON.
func (s *Service) Handlers() []Handler {
	options := append([]connect.HandlerOption{connect.WithReadMaxBytes(s.o.MaxRequestBytes), connect.WithCompressMinBytes(compressBytes)}, s.o.Options...)
	var all []Handler
	add := func(path string, h http.Handler) { all = append(all, Handler{path, h}) }
	path, log := wattlev1.NewLogServiceHandler(s, options...)
	add(path, streamable(log))
	add(wattlev1.NewAdminServiceHandler(s, options...))
	add(wattlev1.NewLeaseServiceHandler(s, options...))
	return all
}

// compressBytes is the size from which on messages are compressed, if the other side can.
const compressBytes = 1 << 10

// Mount serves all Handlers.
func (s *Service) Mount(mux *http.ServeMux) {
	for _, h := range s.Handlers() {
		mux.Handle(h.Path, h)
	}
}

// fail is an error as it leaves the service, with the operation and stream it was about
// where it does not name them.
func (s *Service) fail(ctx context.Context, op string, stream eventstore.Stream, err error) error {
	if s.o.Failed != nil {
		s.o.Failed(ctx, op, err)
	}
	e, ours := errors.AsType[*eventstore.Error](err)
	if !ours {
		return AsConnect(err)
	}
	told := *e
	if told.Op == "" {
		if told.Op = op; told.Stream == "" {
			told.Stream = stream
		}
	}
	if told.Kind == eventstore.ErrClosed { // the caller's own log is not
		told.Kind, told.Wanted, told.Found, told.Hint = eventstore.ErrUnavailable, "an open store", "one that was closed", "the server is ending: try again later"
	}
	return AsConnect(&told)
}

func (s *Service) visible(ctx context.Context, c eventstore.Category) bool {
	return s.o.Visible == nil || s.o.Visible(ctx, c)
}
