// What publish makes of several tries.

package main

import (
	"context"
	"errors"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/topic"
)

// tried is topics whose Publish comes to one error after the other; the last one stays.
type tried struct {
	topic.Service
	errs []error
}

func (s *tried) Publish(context.Context, topic.Publication) (topic.Published, error) {
	err := s.errs[0]
	if len(s.errs) > 1 {
		s.errs = s.errs[1:]
	}
	return topic.Published{}, err
}

// After a try that may have written it, only proof says something else than unknown.
func TestPublishedAfterSeveralTries(t *testing.T) {
	kind := func(k error) error { return &eventstore.Error{Kind: k} }
	unknown := kind(eventstore.ErrUnknown)
	unprovable := &eventstore.Error{Kind: eventstore.ErrUnknown, Unprovable: true}
	for i, x := range []struct {
		errs []error
		want error
	}{
		{[]error{unknown, nil}, nil},
		{[]error{kind(topic.ErrNotOwner), kind(topic.ErrNoSuchTopic)}, topic.ErrNoSuchTopic},
		{[]error{unknown, kind(topic.ErrNoSuchTopic)}, unknown},
		{[]error{unknown, context.DeadlineExceeded}, unknown},
		{[]error{unknown, kind(eventstore.ErrUnavailable)}, unknown},
		{[]error{unknown, kind(eventstore.ErrBatchIDReused)}, eventstore.ErrBatchIDReused},
		{[]error{unknown, unprovable}, unprovable},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 4*retryPause)
		if _, err := published(ctx, &tried{errs: x.errs}, topic.Publication{}); !errors.Is(err, x.want) || x.want == unknown && err != unknown {
			t.Errorf("%d: %v, want %v", i, err, x.want)
		}
		cancel()
	}
}
