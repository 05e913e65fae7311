// Appends in transactions that stay open.

package logtest

import (
	"context"
	"errors"

	"github.com/wattle-es/wattle/eventstore"
)

// longTx appends in a transaction that is open while meanwhile runs, and notes it
// in a history. The Store is passed by, so the append is completed here.
func longTx(ctx context.Context, h Harness, store *eventstore.Store, history *History, a eventstore.Append, meanwhile func(), commit bool) error {
	for i := range a.Batches {
		a.Batches[i] = whole(a.Batches[i])
	}
	if h.LongTx == nil {
		meanwhile()
		if !commit {
			return nil
		}
		_, err := history.Append(ctx, store, a)
		return err
	}
	err := history.Sent(a, func(a eventstore.Append) error {
		err := h.LongTx(ctx, store.Log(), a, meanwhile, commit)
		if err == nil && !commit {
			err = errRolledBack // so that the history expects nothing of it
		}
		return err
	})
	if err == errRolledBack {
		err = nil
	}
	return err
}

var errRolledBack = errors.New("rolled back")
