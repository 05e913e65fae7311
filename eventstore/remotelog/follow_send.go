// Sending with an eye on the clock: who does not read is ended, and holds nobody up.

package remotelog

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/streaming"
)

// streamable gives the calls of a handler what it takes to end a stream that is stuck.
func streamable(next http.Handler) http.Handler {
	refuse := connect.NewErrorWriter()
	next = streaming.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 && strings.HasSuffix(r.URL.Path, wattlev1.LogServiceProduceProcedure) {
			w.Header().Set("Connection", "close") // the request does not end before its answer
			_ = refuse.Write(w, r, AsConnect(&eventstore.Error{Kind: errors.ErrUnsupported, Op: "produce", Wanted: "HTTP/2, for messages both ways at once",
				Found: r.Proto, Hint: "append one call at a time, or see to HTTP/2 from one end to the other"})) // who cannot be told has gone
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sender sends the messages of one stream.
type sender struct {
	*streaming.Sender
	s *streams
}

func (s *streams) sender(ctx context.Context, op string) *sender {
	x := streaming.Of(ctx)
	x.Unbounded()
	return &sender{&streaming.Sender{Op: op, Exchange: x, Slow: ErrSlowConsumer, SlowAfter: s.o.SlowAfter, StuckAfter: s.o.StuckAfter}, s}
}

// send sends one message if the stream may go on.
func (x *sender) send(ctx context.Context, do func() error) error {
	if err := x.s.ending(ctx, x.Op); err != nil {
		return err
	}
	if err := x.s.o.Still(ctx); err != nil {
		return err
	}
	return x.Put(do)
}

// isKind says if err is of a kind of eventstore's or of this package's.
func isKind(err error, kind error) bool {
	e, ok := errors.AsType[*eventstore.Error](err)
	return ok && errors.Is(e.Kind, kind)
}
