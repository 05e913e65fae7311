// A log whose server failed over to a copy that lagged behind.

package topic

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
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

// answering is a log whose appends, of dedicated streams or of all, come to what it is told.
type answering struct {
	wholeLog
	append func(eventstore.Append) error
}

func (l answering) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if err := l.append(a); err != nil {
		return eventstore.Appended{}, err
	}
	return l.wholeLog.Append(ctx, a)
}

// A try whose outcome is not known is not forgotten for a later one that wrote nothing, or
// had no time to: of a position and of what a topic is.
func TestUnknownIsRemembered(t *testing.T) {
	kind := func(k error) error { return &eventstore.Error{Kind: k} }
	unknown := kind(eventstore.ErrUnknown)
	for i, x := range []struct {
		errs []error // the last one stays
		want error   // its kind; nil: none
	}{
		{[]error{unknown, nil}, nil},
		{[]error{unknown, kind(eventstore.ErrUnavailable), nil}, nil},
		{[]error{unknown, kind(eventstore.ErrUnavailable)}, eventstore.ErrUnknown},
		{[]error{unknown, context.DeadlineExceeded}, eventstore.ErrUnknown},
		{[]error{unknown, kind(eventstore.ErrFenced)}, eventstore.ErrFenced}, // proof: else it were found
		{[]error{kind(eventstore.ErrUnavailable)}, eventstore.ErrUnavailable},
	} {
		synctest.Test(t, func(t *testing.T) {
			for _, what := range []string{"position", "topic"} {
				e := memEnv(t, 1)
				b, err := NewBroker(t.Context(), e.store, nil)
				e.ok(err)
				errs := x.errs
				b.store = eventstore.New(answering{e.log, func(eventstore.Append) error {
					err := errs[0]
					errs = errs[min(1, len(errs)-1):]
					return err
				}}, nil)
				b.consumers.store = b.store
				if what == "topic" {
					err = b.write(t.Context(), topicStream("orders"), eventstore.Head{}, 0, typeCreated, []byte("{}"))
				} else {
					err = b.consumers.register(t.Context(), "orders", "c")
				}
				if !errors.Is(err, x.want) {
					t.Errorf("%d, %s: %v, want %v", i, what, err, x.want)
				}
			}
		})
	}
}
