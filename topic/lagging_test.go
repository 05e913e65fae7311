// A log whose server failed over to a copy that lagged behind.

package topic

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// shorter is a log that has lost everything, but not the heads that it told.
type shorter struct{ wholeLog }

func (s shorter) ReadFrom(context.Context, eventstore.Stream, eventstore.Seqno, int) (eventstore.Page, error) {
	return eventstore.Page{End: true}, nil
}

// Where entries are missing that were there this is told; nothing panics.
func TestEntriesThatWereThere(t *testing.T) {
	e := memEnv(t, 1)
	e.publish("t", 0, 5, false)
	b, err := NewBroker(t.Context(), e.store, nil)
	e.ok(err)
	e.ok(b.Create(t.Context(), Spec{Name: "orders"}))
	b.store = eventstore.New(shorter{e.log}, nil)
	x := &tidier{p: &partition{b: b, stream: "t-0", taken: 5}, r: Retention{MaxBytes: 1}}
	older := func() error { _, err := x.older(t.Context(), time.Now(), 5); return err }
	current := func() error { _, _, err := b.current(t.Context(), "orders"); return err }
	for what, f := range map[string]func() error{"weighed": func() error { return x.start(t.Context()) }, "looked at": older, "read of a topic": current} {
		if err := f(); !errors.Is(err, eventstore.ErrDiverged) {
			t.Errorf("%s: %v, want ErrDiverged", what, err)
		}
	}
}
