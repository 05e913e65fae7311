// The host's side: a projector whose handler is somewhere else.

package guest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/timer"
)

// Options of a handler or projector on the host's side; nil and zero fields are the
// defaults.
type Options struct {
	// Issue has a command executed and returns nil when that is durable, or needs no
	// further try; as projector.ReactorOptions.Issue, of which all is true here: Command.ID
	// is projector.CommandUUID of the entry and the command's place among those of the same
	// entry. It must not wait for this projection. Nil: a handler that issues commands stops
	// the projector with eventstore.ErrInvalid.
	Issue func(ctx context.Context, c projector.Command[handler.Issue]) error
	// Timers are those that the handler sets and cancels, under IDs that are made the same
	// way, so that it is done once. Nil: as with Issue.
	Timers *timer.Timers
	// Projector are the options of the projector that NewProjector and NewVersioned make.
	// Types that are not given are those that the handler describes.
	Projector projector.Options
}

// NewProjector returns a projector that has a handler project the category that it
// describes, and Options.Projector.Categories. See [NewHandler].
func NewProjector(store *eventstore.Store, name string, caller *handler.Caller, docs Documents, o *Options) *projector.Projector {
	return projector.New(store, name, caller.Description().Category, NewHandler(caller, docs, o), projectorOptions(caller, o))
}

// NewVersioned returns a worker for all versions of a projection, for rebuilds without a
// deployment. caller returns the one of a version; all must describe the same category
// and types as that of Options.Projector.Version, 1 by default, which is made at once.
// Others are made when they are needed; that one cannot be is an outage of its version.
func NewVersioned(ctx context.Context, store *eventstore.Store, name string, docs Documents, caller func(ctx context.Context, version int) (*handler.Caller, error), o *Options) (*projector.Versioned, error) {
	control, ok := docs.Keeps().(projector.Control)
	if !ok {
		return nil, &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "project", Wanted: "documents whose checkpoints have versions (projector.Control)", Found: fmt.Sprintf("%T", docs)}
	}
	version := 1
	if o != nil {
		version = max(1, o.Projector.Version)
	}
	first, err := caller(ctx, version)
	if err != nil {
		return nil, err
	}
	return projector.NewVersioned(store, name, first.Description().Category, control, func(version int) (projector.Handler, error) {
		return &later{docs: docs, open: func(ctx context.Context) (projector.Handler, error) {
			c, err := caller(ctx, version)
			if err != nil {
				return nil, err
			}
			return NewHandler(c, docs, o), nil
		}}, nil
	}, projectorOptions(first, o)), nil
}

// later is a handler whose caller is made when it is needed first: a version is registered,
// held and looked after though its handler is away.
type later struct {
	docs Documents
	open func(ctx context.Context) (projector.Handler, error)
	mu   sync.Mutex
	h    projector.Handler
}

// Keeps returns the checkpoints beside the documents.
func (l *later) Keeps() projector.Checkpoints { return l.docs.Keeps() }

// Load returns a checkpoint.
func (l *later) Load(ctx context.Context, key projector.Key) (projector.Checkpoint, error) {
	return l.docs.Keeps().Load(ctx, key)
}

// Handle does a step.
func (l *later) Handle(ctx context.Context, s projector.Step) error {
	if len(s.Batch) == 0 {
		return l.docs.Keeps().Save(ctx, s)
	}
	h, err := l.made(ctx)
	if err != nil {
		return unavailable(ctx, s.Key, err)
	}
	return h.Handle(ctx, s)
}

func (l *later) made(ctx context.Context) (projector.Handler, error) {
	l.mu.Lock()
	h := l.h
	l.mu.Unlock()
	if h != nil {
		return h, nil
	}
	h, err := l.open(ctx) // lanes may do so at once: the last one is kept
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.h = h
	return h, nil
}

func projectorOptions(caller *handler.Caller, o *Options) *projector.Options {
	var p projector.Options
	if o != nil {
		p = o.Projector
	}
	if p.Types == nil {
		p.Types = Types(caller.Description())
	}
	return &p
}

// Types returns the wire names that a handler can apply, each once, for
// projector.Options.Types.
func Types(d handler.Description) (names []string) {
	seen := map[string]bool{}
	for _, w := range d.Events {
		if !seen[w.Name] {
			seen[w.Name] = true
			names = append(names, w.Name)
		}
	}
	return names
}

// NewHandler returns a projector's handler that asks a handler what becomes of documents;
// see the package comment. Several lanes may change the same document: they take turns,
// so a document that all entries change has all lanes wait for each other, during their
// calls too. In which order entries of different lanes come to it is not said.
//
// A handler that has the capability keys may change the documents that it names, and
// sees them. One without it sees none, and what it puts replaces what is there, in
// whatever order lanes come to it.
//
// The transaction is open while handler and Options.Issue work. The Caller's Timeout, times
// its tries and the calls of one batch, should stay below what bounds it
// (pgcheckpoint.Options.TTL); what takes longer is rolled back and tried with half of the
// batch.
//
// Errors of a call are, by kind of handler, ErrBadReply and ErrBadRequest: the batch
// cannot be handled, and trying again is of no use; ErrFailed: it is tried again, and in
// the end parked, if the handler still answers Describe, and an outage
// (eventstore.ErrUnavailable) if it does not; ErrDenied, and mistakes of the host: they
// stop the projector, since no entry is at fault.
func NewHandler(caller *handler.Caller, docs Documents, o *Options) projector.Handler {
	h := &host{caller: caller, docs: docs}
	if o != nil {
		h.o = *o
	}
	d := caller.Description()
	h.named, h.metadata = d.Can(handler.Keys), d.Can(handler.CapabilityMeta)
	return h
}

// host implements projector.Handler.
type host struct {
	caller   *handler.Caller
	docs     Documents
	o        Options
	named    bool // the handler says which documents it wants
	metadata bool // and that it wants metadata
}

// Keeps returns the checkpoints beside the documents.
func (h *host) Keeps() projector.Checkpoints { return h.docs.Keeps() }

// Load returns a checkpoint.
func (h *host) Load(ctx context.Context, key projector.Key) (projector.Checkpoint, error) {
	return h.docs.Keeps().Load(ctx, key)
}

// Handle has the batch projected, in calls as large as they may be.
func (h *host) Handle(ctx context.Context, s projector.Step) error {
	if len(s.Batch) == 0 {
		return h.docs.Keeps().Save(ctx, s)
	}
	for most := h.caller.Limits().Batch; ; {
		err := h.handle(ctx, s, most)
		failed, ofCall := errors.AsType[*callFailure](err)
		switch {
		case !ofCall:
			return err
		case len(failed.batch) > 1 && errors.Is(failed.err, eventstore.ErrTooLarge):
			most = len(failed.batch) / 2
		default:
			return h.sort(ctx, s.Key, failed)
		}
	}
}

func (h *host) handle(ctx context.Context, s projector.Step, most int) error {
	calls, err := h.cut(ctx, s, most)
	if err != nil {
		return err
	}
	return h.docs.Step(ctx, s, func(ctx context.Context, tx Tx) error {
		w := &work{host: h, key: s.Key, tx: tx, put: map[string][]byte{}, removed: map[string]bool{}}
		return w.do(ctx, calls)
	})
}

// callFailure is a call that has failed, on its way out of the transaction.
type callFailure struct {
	batch []eventstore.Entry
	err   error
}

func (e *callFailure) Error() string { return e.err.Error() }
func (e *callFailure) Unwrap() error { return e.err }

// sort says what a call's failure means for the projector.
func (h *host) sort(ctx context.Context, key projector.Key, f *callFailure) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, refused := errors.AsType[*handler.Rejected](f.err); refused {
		return permanent(f.batch, &handler.Error{Kind: handler.ErrBadReply, Op: handler.Project, Err: f.err})
	}
	e, ok := errors.AsType[*handler.Error](f.err)
	if !ok {
		return f.err
	}
	switch e.Kind {
	case handler.ErrBadReply, handler.ErrBadRequest, handler.ErrStateVersion, eventstore.ErrTooLarge, ErrEntry:
		return permanent(f.batch, plain(e))
	case handler.ErrFailed:
		if h.answers(ctx) {
			return projector.NewEntryError(f.batch, plain(e))
		}
	case eventstore.ErrOverloaded:
	default: // no entry is at fault
		return f.err
	}
	return unavailable(ctx, key, e)
}

// unavailable is the outage of a handler that does not answer.
func unavailable(ctx context.Context, key projector.Key, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "project " + key.String(), Err: err,
		Hint: "the handler cannot be reached, or has no room; it is tried again until it answers"}
}

// answers says if the handler can be reached at all.
func (h *host) answers(ctx context.Context) bool {
	_, err := h.caller.Call(ctx, &handler.Request{Op: handler.Describe})
	return err == nil
}

// permanent is the error of a batch that it is of no use to try again.
func permanent(batch []eventstore.Entry, err error) error {
	bad := projector.NewEntryError(batch, err)
	bad.Permanent = true
	return bad
}

// plain is the error without its cause's kinds: a call that took too long is no outage
// where the handler answers others.
func plain(e *handler.Error) *handler.Error {
	p := *e
	if p.Err != nil {
		p.Err = errors.New(p.Err.Error())
	}
	return &p
}
