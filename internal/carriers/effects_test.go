// A projection that calls for commands and timers, on every carrier.

package carriers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
	"github.com/wattle-es/wattle/handler/connectcarrier"
)

// served are the ways to a handler of this process. A guest's bytes are those of "bytes".
var served = map[string]func(t *testing.T, h handler.Handler) handler.Handler{
	"native": func(_ *testing.T, h handler.Handler) handler.Handler { return h },
	"bytes":  func(_ *testing.T, h handler.Handler) handler.Handler { return handler.Over(encoded{h}, "bytes") },
	"http": func(t *testing.T, h handler.Handler) handler.Handler {
		return servedHTTP(t, h, noop.NewTracerProvider())
	},
	"nats": func(t *testing.T, h handler.Handler) handler.Handler {
		return servedNATS(t, h, noop.NewTracerProvider())
	},
	"connect": func(t *testing.T, h handler.Handler) handler.Handler {
		return servedConnect(t, h, noop.NewTracerProvider(), connectcarrier.Connect)
	},
	"grpc": func(t *testing.T, h handler.Handler) handler.Handler {
		return servedConnect(t, h, noop.NewTracerProvider(), connectcarrier.GRPC)
	},
}

// reminders has no documents: of the n-th entry of a stream it makes n%3 commands and as
// many timers.
func reminders(_ context.Context, r *handler.Request) (*handler.Reply, error) {
	reply := &handler.Reply{Key: r.Key}
	switch r.Op {
	case handler.Describe:
		reply.Description = &handler.Description{Name: "reminders", Category: "bill", Capabilities: []string{"project"}, Events: []handler.Wire{{Name: "sent", Version: 1}}}
	case handler.Project:
		for _, e := range r.Events {
			for i := range int(e.Seqno % 3) {
				if e.Quiet {
					break
				}
				data := fmt.Appendf(nil, `{"n":%d}`, i)
				reply.Commands = append(reply.Commands, handler.Issue{Position: e.Position, Stream: e.Stream, Command: handler.Command{Type: "remind", Version: 1, Data: data}})
				timer := handler.Timer{Position: e.Position, Name: fmt.Sprint(e.Stream, i), Cancel: i == 1}
				if i == 0 {
					timer.Due, timer.Data = e.Time.Add(time.Hour), data
				}
				reply.Timers = append(reply.Timers, timer)
			}
		}
	default:
		return nil, handler.Unsupported(r, handler.Describe, handler.Project)
	}
	return reply, nil
}

func bills(n int) (entries []handler.Entry) {
	for i := range n {
		entries = append(entries, handler.Entry{Event: handler.Event{Type: "sent", Version: 1, Data: []byte("{}")}, Stream: eventstore.Stream(fmt.Sprint("bill-", i%4)),
			Seqno: eventstore.Seqno(i/4 + 1), Position: eventstore.Position(1<<60 + i), ID: eventstore.NameUUID(fmt.Sprint(i)), Time: time.Unix(int64(i), 0).UTC()})
	}
	return entries
}

func TestEffectsOnEveryCarrier(t *testing.T) {
	for name, start := range served {
		t.Run(name, func(t *testing.T) {
			conforms(t, start(t, handler.Func(reminders)), &conformance.Options{Entries: bills(40)})
		})
	}
}

func conforms(t *testing.T, h handler.Handler, o *conformance.Options) {
	t.Helper()
	o.Caller = &handler.Options{Timeout: time.Minute}
	result, err := conformance.Run(t.Context(), h, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range result.Findings {
		t.Error(f)
	}
}
