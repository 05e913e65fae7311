// Options.Append: its refusals are the command's, and never taken for the log's.

package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
)

var errTaken = errors.New("the name is taken")

// refusing appends through the store, after check has let it.
func refusing(store *eventstore.Store, calls *int, check func(eventstore.Append) error) *aggregate.Options {
	return &aggregate.Options{Append: func(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
		*calls++
		if err := check(a); err != nil {
			return eventstore.Appended{}, err
		}
		return store.Append(ctx, a)
	}}
}

func TestAppendRefuses(t *testing.T) {
	for _, kind := range []error{errTaken, eventstore.ErrAlreadyWritten, eventstore.ErrFenced, eventstore.ErrGuard, eventstore.ErrUnknown, eventstore.ErrBatchIDReused} {
		for _, option := range []aggregate.CallOption{nil, aggregate.CommandKey("c")} {
			store, log := newStore(t)
			calls, refuse := 0, true
			wrapped := fmt.Errorf("alice: %w", &eventstore.Error{Kind: kind, Op: "elsewhere"})
			x := newExecutor(t, store, accounts(aggregate.Snapshots{}), refusing(store, &calls, func(eventstore.Append) error {
				if refuse {
					return wrapped
				}
				return nil
			}))
			_, err := x.Execute(t.Context(), "alice", Open{"Alice"}, option)
			if err != wrapped || calls != 1 {
				t.Errorf("%v: %d calls, error %v; want one and the refusal as it is", kind, calls, err)
			}
			if appends, _, _ := log.count(); appends != 0 || len(entries(t, store, alice)) != 0 {
				t.Errorf("%v: something was written", kind)
			}
			refuse = false
			if res := execute(t, x, "alice", Open{"Alice"}, option); res.Mark.Seqno != 1 {
				t.Errorf("%v: %+v", kind, res)
			}
		}
	}
}

// The log's own refusals are decided again, through the same function.
func TestAppendMeetsConflicts(t *testing.T) {
	store, log := newStore(t)
	typ := accounts(aggregate.Snapshots{})
	calls := 0
	x := newExecutor(t, store, typ, refusing(store, &calls, func(eventstore.Append) error { return nil }))
	rival := newExecutor(t, store, typ, nil)
	execute(t, x, "alice", Deposit{100})
	log.next(before(func() { execute(t, rival, "alice", Withdraw{30}) }, pass))
	res := execute(t, x, "alice", Withdraw{60})
	wantBalance(t, res.State, 10, 3)
	if calls != 3 {
		t.Errorf("%d calls, want 3", calls)
	}
}

// A refusal of the second attempt says nothing about the first one, whose answer was
// lost: the effects of that one may be what refuses.
func TestAppendRefusesBehindALostAnswer(t *testing.T) {
	for name, there := range map[string]bool{"landed": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, log := newStore(t)
				calls := 0
				x := newExecutor(t, store, accounts(aggregate.Snapshots{}), refusing(store, &calls, func(eventstore.Append) error {
					if calls > 1 && calls < 20 {
						return errTaken
					}
					return nil
				}))
				fault := lost
				if there {
					fault = landed
				}
				log.next(fault)
				_, err := x.Execute(t.Context(), "alice", Open{"Alice"}, aggregate.CommandKey("c"))
				wantErr(t, err, eventstore.ErrUnknown)
				if errors.Is(err, errTaken) || calls != 1+eventstore.DefaultRetries {
					t.Errorf("%d calls, error %v", calls, err)
				}
				calls = 20
				res := execute(t, x, "alice", Open{"Alice"}, aggregate.CommandKey("c"))
				if res.Replayed != there || len(entries(t, store, alice)) != 1 {
					t.Errorf("%+v", res)
				}
			})
		})
	}
}
