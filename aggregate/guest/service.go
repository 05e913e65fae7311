// An Executor as a handler: for callers that have no store.

package guest

import (
	"context"
	"errors"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/handler"
)

// Executes is what a service executes with: an aggregate.Executor, or an [Executor].
type Executes[S, C, E any] interface {
	Execute(ctx context.Context, key string, command C, options ...aggregate.CallOption) (aggregate.Result[S, E], error)
}

// ServiceOptions are the options of NewService; nil and zero fields are the defaults.
type ServiceOptions struct {
	Name    string // of the handler; "": the category's
	Release string
	// Refusal says what in an error of Execute is the domain's refusal; nil: everything
	// that is no error of eventstore, schema, aggregate, handler or context.
	Refusal func(error) (*handler.Rejected, bool)
}

// NewService returns a handler of the operations describe and execute. A request names
// the stream, the command, its ID (required), and, if the stream is expected to be
// somewhere, After; it is executed under the command's ID, so that asking again, after an
// answer was lost or by a second caller, has the same result and no second effect. The
// command's metadata becomes that of its events, with eventstore's keys for correlation
// and causation taken as such.
func NewService[S, C, E any](x Executes[S, C, E], category eventstore.Category, events *schema.Registry[E], commands Commands[C], o *ServiceOptions) handler.Handler {
	if o == nil {
		o = &ServiceOptions{}
	}
	s := &service[S, C, E]{x: x, category: category, events: events, commands: commands, o: *o}
	if s.o.Name == "" {
		s.o.Name = string(category)
	}
	if s.o.Refusal == nil {
		s.o.Refusal = refusal
	}
	return s
}

type service[S, C, E any] struct {
	x        Executes[S, C, E]
	category eventstore.Category
	events   *schema.Registry[E]
	commands Commands[C]
	o        ServiceOptions
}

// Handle answers a request.
func (s *service[S, C, E]) Handle(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
	switch r.Op {
	case handler.Describe:
		return &handler.Reply{Key: r.Key, Description: &handler.Description{Name: s.o.Name, Release: s.o.Release, Category: s.category,
			Capabilities: []string{string(handler.Execute)}, Events: wires(s.events), Commands: s.commands.Wires()}}, nil
	case handler.Execute:
		return s.execute(ctx, r)
	}
	return nil, handler.Unsupported(r, handler.Describe, handler.Execute)
}

func (s *service[S, C, E]) execute(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
	switch {
	case r.Command == nil:
		return nil, s.invalid(r, "a command", "none")
	case r.ID.IsZero():
		return nil, s.invalid(r, "an ID of the command", "none")
	case r.Stream.Category() != s.category:
		return nil, s.invalid(r, "a stream of category "+string(s.category), string(r.Stream))
	}
	c, err := s.commands.Decode(r.Command)
	if err != nil {
		return nil, err
	}
	if wire, ok := any(&c).(*Command); ok {
		wire.Now = r.Now
	}
	result, err := s.x.Execute(ctx, r.Stream.Key(), c, callOptions(r)...)
	if err != nil {
		if refused, ok := s.o.Refusal(err); ok {
			return &handler.Reply{Key: r.Key, Rejected: rejected(refused)}, nil
		}
		return nil, err
	}
	reply := &handler.Reply{Key: r.Key, Mark: result.Mark, Token: result.Token, Replayed: result.Replayed, Events: make([]handler.Event, len(result.Events))}
	for i, e := range result.Events {
		if reply.Events[i], _, err = encoded(s.events, e); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

func (s *service[S, C, E]) invalid(r *handler.Request, wanted, found string) error {
	return &handler.Error{Kind: handler.ErrBadRequest, Op: r.Op, Stream: r.Stream, Wanted: wanted, Found: found}
}

// callOptions are what a request says about its command.
func callOptions(r *handler.Request) []aggregate.CallOption {
	options := []aggregate.CallOption{aggregate.CommandID(r.ID)}
	if r.After != (eventstore.Mark{}) {
		options = append(options, aggregate.Expect(r.After))
	}
	rest := eventstore.Metadata{}
	for k, v := range r.Command.Metadata {
		switch k {
		case eventstore.MetaCorrelation:
			options = append(options, aggregate.Correlation(v))
		case eventstore.MetaCausation:
			options = append(options, aggregate.Causation(v))
		case eventstore.MetaCommand, eventstore.MetaTraceparent, eventstore.MetaTracestate: // the Executor's own
		default:
			rest[k] = v
		}
	}
	if len(rest) > 0 {
		options = append(options, aggregate.Metadata(rest))
	}
	return options
}

// refusal takes what is nobody else's for the domain's.
func refusal(err error) (*handler.Rejected, bool) {
	_, store := errors.AsType[*eventstore.Error](err)
	_, wire := errors.AsType[*schema.Error](err)
	_, carrier := errors.AsType[*handler.Error](err)
	if store || wire || carrier || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil, false
	}
	return rejected(err), true
}
