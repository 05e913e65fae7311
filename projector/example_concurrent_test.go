// An example of a sink that works on several keys at once.

package projector_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector"
)

// Mails are sent for four accounts at once, those of one account in order. What names
// the mail names it again when it is sent again after a crash.
func ExampleConcurrentSink() {
	ctx := context.Background()
	store := eventstore.New(memlog.New(nil), nil)
	if err := store.CreateCategory(ctx, eventstore.CategorySpec{Name: "account"}); err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"alice", "bob"} {
		b := eventstore.Batch{Stream: eventstore.Stream("account-" + name), Epoch: 1, Holder: eventstore.NewUUID(), Claim: true,
			Events: []eventstore.Event{{Type: "opened"}, {Type: "closed"}}}
		if _, err := store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}}); err != nil {
			fmt.Println(err)
			return
		}
	}

	var mu sync.Mutex
	var sent []string
	h := projector.ConcurrentSink(&projector.MemoryCheckpoints{}, 4, func(_ context.Context, key projector.Key, e eventstore.Entry) error {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, fmt.Sprintf("mail %s/%d/%d to %s: %s", key.Projector, key.Version, e.Position, e.Stream.Key(), e.Type))
		return nil
	})
	if _, err := projector.New(store, "mails", "account", h).CatchUp(ctx, 0); err != nil {
		fmt.Println(err)
	}
	slices.Sort(sent)
	for _, s := range sent {
		fmt.Println(s)
	}
	// Output:
	// mail mails/1/1 to alice: opened
	// mail mails/1/2 to alice: closed
	// mail mails/1/3 to bob: opened
	// mail mails/1/4 to bob: closed
}
