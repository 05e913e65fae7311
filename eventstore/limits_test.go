// Limits of a Store: lower than the contract's where they are set, never higher.

package eventstore_test

import (
	"errors"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
)

func TestLimitsAreAtMostTheContracts(t *testing.T) {
	for _, c := range []struct {
		limits eventstore.Limits
		most   int
	}{
		{eventstore.Limits{}, eventstore.MaxBatchEvents},
		{eventstore.Limits{BatchEvents: 7}, 7},
		{eventstore.Limits{BatchEvents: -1}, eventstore.MaxBatchEvents},
		{eventstore.Limits{BatchEvents: 2 * eventstore.MaxBatchEvents}, eventstore.MaxBatchEvents},
	} {
		s := newStore(t, &eventstore.Options{Limits: c.limits})
		if _, err := s.Append(t.Context(), opening(c.most, "account-a")); err != nil {
			t.Errorf("%+v: %d events: %v", c.limits, c.most, err)
		}
		if _, err := s.Append(t.Context(), opening(c.most+1, "account-b")); !errors.Is(err, eventstore.ErrTooLarge) {
			t.Errorf("%+v: %d events: %v, want too large", c.limits, c.most+1, err)
		}
	}
}
