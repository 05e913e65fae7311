// Versioned: one worker for all versions of a projection there are.

package projector

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Versioned runs every registered version of a projector, so that a rebuild, a switch
// and a rollback take no deployment: [Admin.Rebuild] registers a new version, workers
// build it with a handler made for its number, [Admin.Switch] makes it live.
type Versioned struct {
	store    *eventstore.Store
	name     string
	category eventstore.Category
	control  Control
	handler  func(version int) (Handler, error)
	o        Options
}

// NewVersioned returns a worker for all versions of a projector. handler makes the
// handler of a version, preparing its read model if need be; it may be called again for
// the same version. o.Version is the one that is registered when there is none.
func NewVersioned(store *eventstore.Store, name string, category eventstore.Category, c Control, handler func(version int) (Handler, error), options ...*Options) *Versioned {
	v := &Versioned{store: store, name: name, category: category, control: c, handler: handler, o: Options{Version: 1}}
	if len(options) > 0 && options[0] != nil {
		v.o = *options[0]
		v.o.Version = max(1, v.o.Version)
	}
	return v
}

// Reader returns the reader of the live version.
func (v *Versioned) Reader() *Reader { return NewReader(v.store, v.name, v.control) }

// Run works on all versions until ctx ends, or until one fails as [Projector.Run] does.
// Versions that are registered while it runs are found within five seconds, and those
// that are dropped are left. One whose handler cannot be made, since this process does not
// know it yet, say, is left to others and tried again every five seconds.
func (v *Versioned) Run(outer context.Context) error {
	ctx, stop := context.WithCancelCause(outer)
	defer stop(nil)
	var working sync.WaitGroup
	defer working.Wait()
	running := map[int]chan struct{}{}
	for ctx.Err() == nil {
		versions, err := v.versions(ctx)
		if err != nil && !outage(err) {
			stop(err)
		}
		for _, version := range versions {
			if done := running[version]; done != nil {
				select {
				case <-done:
				default:
					continue
				}
			}
			done := make(chan struct{})
			running[version] = done
			working.Go(func() {
				defer close(done)
				if err := v.run(ctx, version); err != nil && ctx.Err() == nil {
					stop(err)
				}
			})
		}
		_ = sleep(ctx, switchInterval)
	}
	working.Wait()
	if outer.Err() != nil {
		return outer.Err()
	}
	return context.Cause(ctx)
}

// CatchUp is [Projector.CatchUp] for all versions, the live one first.
func (v *Versioned) CatchUp(ctx context.Context, budget time.Duration) (more bool, err error) {
	versions, err := v.versions(ctx)
	if err != nil {
		return true, err
	}
	until := deadline(ctx, budget)
	var failed []error
	for i, version := range versions {
		share := time.Duration(0)
		if !until.IsZero() {
			share = max(1, time.Until(until)/time.Duration(len(versions)-i))
		}
		p, err := v.projector(version)
		left := true
		if err == nil {
			left, err = p.CatchUp(ctx, share)
		}
		more, failed = more || left, append(failed, err)
	}
	return more, errors.Join(failed...)
}

// versions are the numbers there are, the live one first.
func (v *Versioned) versions(ctx context.Context) (numbers []int, err error) {
	all, err := v.control.Versions(ctx, v.name)
	if err != nil {
		return nil, err
	}
	live, err := number(all, v.name, 0)
	if err != nil {
		return []int{v.o.Version}, nil
	}
	numbers = []int{live}
	seen := map[int]bool{live: true}
	for _, one := range all {
		if n := one.Key.Version; !seen[n] {
			seen[n] = true
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

func (v *Versioned) projector(version int) (*Projector, error) {
	var h Handler
	err := contained(func() (err error) {
		if h, err = v.handler(version); err == nil && h == nil {
			err = &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "project", Wanted: "a handler of version " + strconv.Itoa(version) + " of projector " + v.name, Found: "nil"}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	o := v.o
	o.Version = version
	return New(v.store, v.name, v.category, h, &o), nil
}

// run works on one version until it is dropped, or not at all if it has no handler.
func (v *Versioned) run(ctx context.Context, version int) error {
	p, err := v.projector(version)
	if err != nil {
		v.store.Logger().WarnContext(ctx, "version without a handler here; the others go on, and it is tried again", "projector", v.name, "version", version, "error", err)
		return nil
	}
	err = p.Run(ctx)
	if errors.Is(err, eventstore.ErrFenced) {
		if all, failed := v.control.Versions(ctx, v.name); failed == nil {
			if _, gone := number(all, v.name, version); gone != nil {
				return nil
			}
		}
	}
	return err
}
