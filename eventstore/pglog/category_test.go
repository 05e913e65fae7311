// Categories made and deleted while appends run.

package pglog_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
)

// TestCategoriesUnderLoad: many sessions append to categories that have just been
// made while others are made and deleted. A session that looked at the partitions in
// the very moment one was attached can miss it and go on missing it; that must be
// healed, not told to the caller.
func TestCategoriesUnderLoad(t *testing.T) {
	p, schema, _, _ := fresh(t)
	_, s := open(t, p, schema)
	rounds := 25
	if testing.Short() {
		rounds = 8
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for r := range rounds {
				c := eventstore.Category(fmt.Sprintf("c%d_%d", w, r))
				if err := s.CreateCategory(context.Background(), eventstore.CategorySpec{Name: c}); err != nil {
					t.Error(err)
					return
				}
				var many sync.WaitGroup
				for i := range 6 { // over as many sessions
					many.Go(func() {
						if _, err := s.Append(context.Background(), one(batch(eventstore.Stream(fmt.Sprintf("%s-%d", c, i)), 1))); err != nil {
							t.Errorf("append to a category just made: %v", err)
						}
					})
				}
				many.Wait()
				if r%2 == 0 {
					if err := s.DeleteCategory(context.Background(), c); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := len(feed(t, s)); n != 8*(rounds/2)*6 {
		t.Errorf("%d entries, want %d", n, 8*(rounds/2)*6)
	}
}
