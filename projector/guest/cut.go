// Cutting a batch into calls that are within the handler's limits.

package guest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
)

// call is a part of a batch that is projected at a time.
type call struct {
	batch   []eventstore.Entry
	entries []handler.Entry
	keys    []string // of documents, sorted, each once
	bytes   int      // of the encoded request without documents, at most
}

// cut cuts a step's batch into calls of so many entries at most, and has the handler name
// the documents of each.
func (h *host) cut(ctx context.Context, s projector.Step, most int) (calls []call, err error) {
	limit := h.caller.Limits().RequestBytes / entriesShare
	for rest := s.Batch; len(rest) > 0; {
		c := call{bytes: requestBytes}
		for i := range rest {
			e := h.entry(ctx, rest[i])
			n := sizeOf(&e)
			// An entry without a position of its own cannot be told from others of the call.
			if i > 0 && (i == most || c.bytes+n > limit || e.Position == 0 || c.entries[0].Position == 0) {
				break
			}
			c.entries, c.bytes = append(c.entries, e), c.bytes+n
		}
		c.batch, rest = rest[:len(c.entries)], rest[len(c.entries):]
		if c.keys, err = h.keys(ctx, s.Key, &c); err != nil {
			return nil, &callFailure{c.batch, err}
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// keys asks which documents the entries of a call concern.
func (h *host) keys(ctx context.Context, key projector.Key, c *call) ([]string, error) {
	if !h.named {
		return nil, nil
	}
	reply, err := h.caller.Call(ctx, request(handler.Keys, key, c))
	if err != nil {
		return nil, err
	}
	for _, k := range reply.Keys {
		if err := h.checkKey(handler.Keys, k); err != nil {
			return nil, err
		}
	}
	keys := slices.Clone(reply.Keys)
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// checkKey refuses keys that a store of documents may not be able to keep.
func (h *host) checkKey(op handler.Op, key string) error {
	if utf8.ValidString(key) && !strings.Contains(key, "\x00") {
		return nil
	}
	return h.badReply(op, "keys of documents of UTF-8 without a zero byte", fmt.Sprintf("%q", key))
}

func (h *host) badReply(op handler.Op, wanted, found string) error {
	return &handler.Error{Kind: handler.ErrBadReply, Op: op, Target: h.caller.Description().Name, Wanted: wanted, Found: found,
		Hint: "this is a bug of the handler; nothing of the reply was used"}
}

func request(op handler.Op, key projector.Key, c *call) *handler.Request {
	return &handler.Request{Op: op, Projector: key.Name(), ProjectorVersion: key.Version, Events: c.entries}
}

// entry is an entry as a handler sees it.
func (h *host) entry(ctx context.Context, e eventstore.Entry) handler.Entry {
	entry := handler.Entry{Event: handler.Event{Type: e.Type, Version: e.Version, ContentType: e.ContentType, Data: e.Data},
		Stream: e.Stream, Seqno: e.Seqno, Position: e.Position, ID: e.ID, Time: e.Time, Quiet: projector.Quiet(ctx, e)}
	if h.metadata {
		entry.Metadata = e.Metadata
	}
	return entry
}

// sizeOf is at least what an entry takes in an encoded request.
func sizeOf(e *handler.Entry) int {
	n := entryBytes + len(e.Data)*4/3 + escapedBytes*(len(e.Stream)+len(e.Type)+len(e.ContentType))
	for k, v := range e.Metadata {
		n += documentBytes + escapedBytes*(len(k)+len(v))
	}
	return n
}
