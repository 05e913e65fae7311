// The Caller: tries, keys, deadlines, traces, outcomes.

package handler_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

var description = handler.Description{Name: "h", Category: "c", Capabilities: []string{"decide", "evolve", "project", "execute"},
	Events: []handler.Wire{{Name: "e", Version: 1}, {Name: "e", Version: 2}}, Commands: []handler.Wire{{Name: "do", Version: 1}}, StateVersion: 3}

// described answers describe itself.
func described(f handler.Func) handler.Handler {
	return handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Op == handler.Describe {
			return &handler.Reply{Key: r.Key, Description: &description}, nil
		}
		return f(ctx, r)
	})
}

func caller(t *testing.T, f handler.Func, o *handler.Options) *handler.Caller {
	t.Helper()
	c, err := handler.NewCaller(t.Context(), described(f), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func decide() *handler.Request {
	return &handler.Request{Op: handler.Decide, Stream: "c-1", Command: &handler.Command{Type: "do", Data: []byte("{}")}}
}

// What may go better is tried again, under the same key, with the same request; what may
// not is not.
func TestTries(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		reply handler.Reply
		tries int
		kind  error
	}{
		"no answer":        {err: &handler.Error{Kind: handler.ErrFailed}, tries: 4, kind: handler.ErrFailed},
		"an odd error":     {err: errors.New("odd"), tries: 4, kind: handler.ErrFailed},
		"overloaded":       {err: &handler.Error{Kind: eventstore.ErrOverloaded}, tries: 4, kind: eventstore.ErrOverloaded},
		"failed":           {reply: handler.Reply{Failure: &handler.Failure{Code: handler.CodeFailed}}, tries: 4, kind: handler.ErrFailed},
		"an odd code":      {reply: handler.Reply{Failure: &handler.Failure{Code: "odd"}}, tries: 4, kind: handler.ErrFailed},
		"unknown":          {reply: handler.Reply{Failure: &handler.Failure{Code: handler.CodeUnknown}}, tries: 4, kind: eventstore.ErrUnknown},
		"invalid":          {reply: handler.Reply{Failure: &handler.Failure{Code: handler.CodeInvalid}}, tries: 1, kind: handler.ErrBadRequest},
		"state":            {reply: handler.Reply{Failure: &handler.Failure{Code: handler.CodeState}}, tries: 1, kind: handler.ErrStateVersion},
		"too large":        {reply: handler.Reply{Failure: &handler.Failure{Code: handler.CodeTooLarge}}, tries: 1, kind: eventstore.ErrTooLarge},
		"conflict":         {reply: handler.Reply{Failure: &handler.Failure{Code: handler.CodeConflict}}, tries: 1, kind: eventstore.ErrAlreadyWritten},
		"denied":           {err: &handler.Error{Kind: handler.ErrDenied}, tries: 1, kind: handler.ErrDenied},
		"bad reply":        {err: &handler.Error{Kind: handler.ErrBadReply}, tries: 1, kind: handler.ErrBadReply},
		"unknown event":    {reply: handler.Reply{Events: []handler.Event{{Type: "f", Data: []byte("1")}}}, tries: 1, kind: handler.ErrBadReply},
		"older event":      {reply: handler.Reply{Events: []handler.Event{{Type: "e", Version: 1, Data: []byte("1")}}}, tries: 1, kind: handler.ErrBadReply},
		"failure, no code": {reply: handler.Reply{Failure: &handler.Failure{Message: "x"}}, tries: 1, kind: handler.ErrBadReply},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var keys []eventstore.UUID
				h := caller(t, func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
					keys = append(keys, r.Key)
					reply := c.reply
					reply.Key = r.Key
					return &reply, c.err
				}, &handler.Options{Retries: 3})
				_, err := h.Call(t.Context(), decide())
				if !errors.Is(err, c.kind) || len(keys) != c.tries {
					t.Errorf("%v after %d tries, want %v after %d", err, len(keys), c.kind, c.tries)
				}
				for _, k := range keys {
					if k != keys[0] || k.IsZero() {
						t.Errorf("keys %v", keys)
					}
				}
			})
		})
	}
}

func TestAnswers(t *testing.T) {
	h := caller(t, func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Command.Type == "no" {
			return nil, &handler.Rejected{Code: "no", Message: strings.Repeat("x", 10_000)}
		}
		return &handler.Reply{Key: r.Key, Events: []handler.Event{{Type: "e", Data: []byte("1")}}}, nil
	}, nil)
	reply, err := h.Call(t.Context(), decide())
	if err != nil || reply.Events[0].Version != 2 {
		t.Errorf("%+v, %v: want version 2 filled in", reply, err)
	}
	r := decide()
	r.Command.Type = "no"
	_, err = h.Call(t.Context(), r)
	if refused, ok := errors.AsType[*handler.Rejected](err); !ok || refused.Code != "no" {
		t.Errorf("%v, want a refusal", err)
	}
	if _, err := h.Call(t.Context(), &handler.Request{Op: handler.CatchUp}); !errors.Is(err, handler.ErrBadRequest) {
		t.Errorf("%v, want %v: it cannot catch up", err, handler.ErrBadRequest)
	}
}

// A try ends with its time, a call with its caller's.
func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deadlines []time.Duration
		h := caller(t, func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			deadlines = append(deadlines, time.Until(r.Deadline))
			<-ctx.Done()
			return nil, ctx.Err()
		}, &handler.Options{Timeout: time.Second, Retries: 10})
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		from := time.Now()
		if _, err := h.Call(ctx, decide()); !errors.Is(err, handler.ErrFailed) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if took := time.Since(from); took != 2500*time.Millisecond || len(deadlines) != 3 || deadlines[0] != time.Second || deadlines[2] > 500*time.Millisecond {
			t.Errorf("took %v, deadlines in %v", took, deadlines)
		}
	})
}

// One trace: the caller's span, the call's below it, the far side's below that.
func TestOneTrace(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	far := handler.Traced(described(func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
		return &handler.Reply{Key: r.Key, Rejected: &handler.Rejected{Code: "no"}}, nil
	}), provider)
	encoded := handler.Over(bytes{far}, "far")
	c, err := handler.NewCaller(t.Context(), encoded, &handler.Options{TracerProvider: provider})
	if err != nil {
		t.Fatal(err)
	}
	spans.Reset()
	ctx, root := provider.Tracer("test").Start(t.Context(), "root")
	_, _ = c.Call(ctx, decide())
	root.End()
	by := map[string]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		by[s.Name] = s
	}
	near, away := by["decide c"], by["handle decide c"]
	if near.Parent.SpanID() != root.SpanContext().SpanID() || away.Parent.SpanID() != near.SpanContext.SpanID() || away.SpanContext.TraceID() != root.SpanContext().TraceID() {
		t.Errorf("spans %v", spans.GetSpans().Snapshots())
	}
	if near.SpanKind != trace.SpanKindClient || away.SpanKind != trace.SpanKindServer {
		t.Errorf("kinds %v, %v", near.SpanKind, away.SpanKind)
	}
}

type bytes struct{ h handler.Handler }

func (b bytes) Call(_ context.Context, op string, request []byte) ([]byte, error) {
	return handler.Serve(context.Background(), b.h, op, request), nil // nothing but bytes gets across
}

// kinds are the behaviours by which a carrier of bytes tells its errors apart.
type odd struct{ bad, temporary bool }

func (odd) Error() string     { return "odd" }
func (o odd) BadReply() bool  { return o.bad }
func (o odd) Temporary() bool { return o.temporary }

type failing struct{ err error }

func (f failing) Call(context.Context, string, []byte) ([]byte, error) { return nil, f.err }

func TestErrorsOfBytes(t *testing.T) {
	for err, kind := range map[error]error{
		odd{bad: true}:       handler.ErrBadReply,
		odd{temporary: true}: handler.ErrFailed,
		odd{}:                handler.ErrBadRequest,
		errors.New("odd"):    handler.ErrFailed,
		&eventstore.Error{Kind: eventstore.ErrInvalid}:    handler.ErrBadRequest,
		&eventstore.Error{Kind: eventstore.ErrTooLarge}:   eventstore.ErrTooLarge,
		&eventstore.Error{Kind: eventstore.ErrOverloaded}: eventstore.ErrOverloaded,
	} {
		if _, got := handler.Over(failing{err}, "x").Handle(t.Context(), decide()); !errors.Is(got, kind) || !errors.Is(got, err) {
			t.Errorf("%#v: %v, want %v", err, got, kind)
		}
	}
}

// spoilt traps once it has been called, and has a fresh one.
type spoilt struct{ calls, fresh int }

func (s *spoilt) Call(_ context.Context, op string, request []byte) ([]byte, error) {
	if op == string(handler.Describe) {
		return handler.AppendReply(nil, &handler.Reply{Description: &description}), nil
	}
	s.calls++
	return nil, odd{temporary: true}
}

func (s *spoilt) CallFresh(_ context.Context, _ string, request []byte) ([]byte, error) {
	s.fresh++
	r, err := handler.ParseRequest(request)
	if err != nil {
		return nil, err
	}
	return handler.AppendReply(nil, &handler.Reply{Key: r.Key}), nil
}

func TestAgainIsFresh(t *testing.T) {
	s := &spoilt{}
	c, err := handler.NewCaller(t.Context(), handler.Over(s, "spoilt"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(t.Context(), decide()); err != nil || s.calls != 1 || s.fresh != 1 {
		t.Errorf("%v after %d calls and %d fresh ones, want one of each", err, s.calls, s.fresh)
	}
}

// A description that lies is refused before anything is asked.
func TestDescriptions(t *testing.T) {
	for name, lie := range map[string]func(*handler.Description){
		"no category": func(d *handler.Description) { d.Category = "" },
		"no events":   func(d *handler.Description) { d.Events = nil },
		"twice":       func(d *handler.Description) { d.Events = append(d.Events, d.Events[0]) },
		"version 0":   func(d *handler.Description) { d.Commands = []handler.Wire{{Name: "do"}} },
		"half":        func(d *handler.Description) { d.Capabilities = []string{"decide"} },
		"too many": func(d *handler.Description) {
			for i := range handler.MaxWires {
				d.Events = append(d.Events, handler.Wire{Name: "n", Version: i + 10})
			}
		},
	} {
		d := description
		d.Events = append([]handler.Wire{}, d.Events...)
		lie(&d)
		_, err := handler.NewCaller(t.Context(), handler.Func(func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
			return &handler.Reply{Key: r.Key, Description: &d}, nil
		}), nil)
		if !errors.Is(err, handler.ErrBadReply) {
			t.Errorf("%s: %v, want %v", name, err, handler.ErrBadReply)
		}
	}
}

// What deciders may not answer.
func TestReplies(t *testing.T) {
	lie := func(*handler.Reply) {}
	h := caller(t, func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
		reply := &handler.Reply{Key: r.Key, Stream: r.Stream, Events: []handler.Event{{Type: "e", Data: []byte("1")}}}
		lie(reply)
		return reply, nil
	}, &handler.Options{Limits: handler.Limits{Events: 2}})
	if _, err := h.Call(t.Context(), decide()); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(*handler.Reply){
		"other key":    func(r *handler.Reply) { r.Key[0]++ },
		"no key":       func(r *handler.Reply) { r.Key = eventstore.UUID{} },
		"other stream": func(r *handler.Reply) { r.Stream = "c-2" },
		"too many":     func(r *handler.Reply) { r.Events = append(r.Events, r.Events[0], r.Events[0]) },
		"both":         func(r *handler.Reply) { r.Rejected = &handler.Rejected{Code: "no"} },
		"long code": func(r *handler.Reply) {
			*r = handler.Reply{Key: r.Key, Rejected: &handler.Rejected{Code: strings.Repeat("c", 65)}}
		},
		"no data": func(r *handler.Reply) { r.Events[0].Data = nil },
	} {
		lie = f
		if _, err := h.Call(t.Context(), decide()); !errors.Is(err, handler.ErrBadReply) {
			t.Errorf("%s: %v, want %v", name, err, handler.ErrBadReply)
		}
	}
}

// A reply that is too large is that, whatever carried it, and is asked for once.
func TestReplyTooLarge(t *testing.T) {
	calls := 0
	h := caller(t, func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
		calls++
		return &handler.Reply{Key: r.Key, State: []byte(`"` + strings.Repeat("s", 1000) + `"`)}, nil
	}, &handler.Options{Limits: handler.Limits{ReplyBytes: 1000}})
	if _, err := h.Call(t.Context(), decide()); !errors.Is(err, eventstore.ErrTooLarge) || calls != 1 {
		t.Errorf("%v after %d calls, want %v", err, calls, eventstore.ErrTooLarge)
	}
}

// What projections may not answer.
func TestProjectionsThatLie(t *testing.T) {
	lie := func(*handler.Reply) {}
	h := caller(t, func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
		reply := &handler.Reply{Key: r.Key, Put: map[string][]byte{"a": []byte("1")}}
		lie(reply)
		return reply, nil
	}, nil)
	request := func() *handler.Request {
		return &handler.Request{Op: handler.Project, Projector: "p", Events: []handler.Entry{{Stream: "c-1", Seqno: 1, Position: 7, Event: handler.Event{Type: "e", Version: 1, Data: []byte("1")}}}}
	}
	if _, err := h.Call(t.Context(), request()); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(*handler.Reply){
		"put and delete": func(r *handler.Reply) { r.Delete = []string{"a"} },
		"empty key":      func(r *handler.Reply) { r.Put[""] = []byte("1") },
		"long key":       func(r *handler.Reply) { r.Put[strings.Repeat("k", handler.MaxDocumentKey+1)] = []byte("1") },
		"other position": func(r *handler.Reply) { r.Failed = []handler.EntryFailure{{Position: 8}} },
		"timer for ever": func(r *handler.Reply) { r.Timers = []handler.Timer{{Name: "t"}} },
		"nameless timer": func(r *handler.Reply) { r.Timers = []handler.Timer{{Cancel: true}} },
		"command nowhere": func(r *handler.Reply) {
			r.Commands = []handler.Issue{{Command: handler.Command{Type: "do", Data: []byte("1")}}}
		},
		"many commands":   func(r *handler.Reply) { r.Commands = make([]handler.Issue, handler.MaxIssues+1) },
		"events":          func(r *handler.Reply) { r.Events = []handler.Event{{Type: "e", Data: []byte("1")}} },
		"state":           func(r *handler.Reply) { r.State = []byte("1") },
		"a token of ours": func(r *handler.Reply) { r.Token.Position = 1 },
	} {
		lie = f
		if _, err := h.Call(t.Context(), request()); !errors.Is(err, handler.ErrBadReply) {
			t.Errorf("%s: %v, want %v", name, err, handler.ErrBadReply)
		}
	}
}

func TestJoin(t *testing.T) {
	one := described(func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
		return &handler.Reply{Key: r.Key, State: []byte("1")}, nil
	})
	two := handler.Func(func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
		if r.Op == handler.Describe {
			return &handler.Reply{Key: r.Key, Description: &handler.Description{Name: "two", Capabilities: []string{"keys", "project"}, Events: []handler.Wire{{Name: "f", Version: 1}}}}, nil
		}
		return &handler.Reply{Key: r.Key, Keys: []string{"k"}}, nil
	})
	h, err := handler.Join(t.Context(), one, two)
	if err != nil {
		t.Fatal(err)
	}
	c, err := handler.NewCaller(t.Context(), h, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := c.Description(); d.Name != "h" || len(d.Events) != 3 || strings.Join(d.Capabilities, " ") != "decide evolve execute keys project" {
		t.Errorf("%+v", d)
	}
	h, err = handler.Join(t.Context(), two, one)
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := h.Handle(t.Context(), &handler.Request{Op: handler.Describe}); err != nil || reply.Description.StateVersion != description.StateVersion {
		t.Errorf("%+v, %v", reply.Description, err)
	}
	if reply, err := c.Call(t.Context(), &handler.Request{Op: handler.Keys}); err != nil || len(reply.Keys) != 1 {
		t.Errorf("%+v, %v", reply, err)
	}
	if reply, err := c.Call(t.Context(), &handler.Request{Op: handler.Evolve, Stream: "c-1"}); err != nil || reply.State == nil {
		t.Errorf("%+v, %v", reply, err)
	}
}
