// Commands: how commands in wire form become values.

package guest

import (
	"errors"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/handler"
)

// Commands decodes the commands of a handler. *schema.Registry does by [CommandsOf].
type Commands[C any] interface {
	Wires() []handler.Wire
	// Decode returns the value of a command; what is not known or not right is an error
	// of kind handler.ErrBadRequest.
	Decode(c *handler.Command) (C, error)
}

// CommandsOf returns the commands that a registry knows. A command without a version is
// taken for the newest of its name.
func CommandsOf[C any](r *schema.Registry[C]) Commands[C] { return registered[C]{r} }

type registered[C any] struct{ r *schema.Registry[C] }

func (k registered[C]) Wires() []handler.Wire { return wires(k.r) }

// wires are the names and versions that a registry has.
func wires[E any](r *schema.Registry[E]) []handler.Wire {
	list := r.List()
	all := make([]handler.Wire, len(list))
	for i, l := range list {
		all[i] = handler.Wire{Name: l.Name, Version: l.Version}
	}
	return all
}

func (k registered[C]) Decode(c *handler.Command) (C, error) {
	version := c.Version
	if version == 0 {
		for _, l := range k.r.List() {
			if l.Name == c.Type {
				version = max(version, l.Version)
			}
		}
	}
	v, err := k.r.Decode(eventstore.Entry{Event: eventstore.Event{Type: c.Type, Version: version, ContentType: contentType(c.ContentType), Data: c.Data}})
	if err != nil {
		return v, &handler.Error{Kind: handler.ErrBadRequest, Op: handler.Decide, Err: err, Hint: "send a command that the handler describes"}
	}
	return v, nil
}

// WireCommands are the commands of a remote handler, as they are: what an [Executor]
// executes.
func WireCommands(d handler.Description) Commands[Command] { return wireCommands(d.Commands) }

type wireCommands []handler.Wire

func (k wireCommands) Wires() []handler.Wire { return k }

func (k wireCommands) Decode(c *handler.Command) (Command, error) { return Command{Command: *c}, nil }

const jsonType = "application/json"

func contentType(s string) string {
	if s == "" {
		return jsonType
	}
	return s
}

// rejected is what a refusal by Decide is in a reply: as it is, or with its Code(). Of a
// code that a reply may not have it is a refusal too: none is "rejected", a long one is cut.
func rejected(err error) *handler.Rejected {
	var refused handler.Rejected
	if r, ok := errors.AsType[*handler.Rejected](err); ok {
		refused = *r
	} else {
		refused.Message = err.Error()
		if c, ok := errors.AsType[interface {
			error
			Code() string
		}](err); ok {
			refused.Code = c.Code()
		}
	}
	switch {
	case refused.Code == "":
		refused.Code = "rejected"
	case len(refused.Code) > handler.MaxCodeBytes:
		const dots = "…"
		refused.Code = strings.ToValidUTF8(refused.Code[:handler.MaxCodeBytes-len(dots)], "") + dots
	}
	return &refused
}
