// Reader: reading from the live version of a projection, whichever that is.

package projector

import (
	"context"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Reader tells which version of a projection readers are to use, and waits for it. It
// works in any process and needs no handler. Methods may be called from several
// goroutines at once.
type Reader struct {
	store   *eventstore.Store
	name    string
	control Control
}

// NewReader returns the reader of a projector.
func NewReader(store *eventstore.Store, name string, c Control) *Reader {
	return &Reader{store: store, name: name, control: c}
}

// Live returns the number of the live version.
func (r *Reader) Live(ctx context.Context) (version int, err error) {
	all, err := r.control.Versions(ctx, r.name)
	if err != nil {
		return 0, err
	}
	return number(all, r.name, 0)
}

// Wait is [Projector.Wait] for the live version, also when another one becomes that
// meanwhile, and returns the version that holds what the token is of.
func (r *Reader) Wait(ctx context.Context, t eventstore.Token) (version int, err error) {
	for {
		p, version, err := r.projector(ctx)
		if err != nil {
			return 0, err
		}
		// Looked at anew now and then: the version may not be the live one any more.
		look, cancel := context.WithTimeout(ctx, switchInterval)
		began := time.Now()
		err = p.Wait(look, t)
		late := look.Err() != nil
		cancel()
		if err == nil {
			return version, nil
		}
		if !late || ctx.Err() != nil {
			return version, err
		}
		_ = sleep(ctx, minLook-time.Since(began))
	}
}

// projector is one that can only be waited for.
func (r *Reader) projector(ctx context.Context) (*Projector, int, error) {
	all, err := r.control.Versions(ctx, r.name)
	if err != nil {
		return nil, 0, err
	}
	live, err := number(all, r.name, 0)
	if err != nil {
		return nil, 0, err
	}
	o := &Options{Version: live}
	for _, v := range numbered(all, live) {
		o.Categories = append(o.Categories, v.Scope.Categories...)
		o.Types, o.Stream = v.Scope.Types, v.Scope.Stream
	}
	var first eventstore.Category
	if len(o.Categories) > 0 {
		first, o.Categories = o.Categories[0], o.Categories[1:]
	}
	return New(r.store, r.name, first, readOnly{r.control}, o), live, nil
}

// readOnly is a handler that handles nothing.
type readOnly struct{ Control }

func (readOnly) Handle(context.Context, Step) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "project", Wanted: "a handler", Found: "a reader"}
}
