// An example of a Route.

package eventstore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// ExampleNewRoute keeps clicks apart from all else. Only these lines know; what uses
// the store is the same as on one backend.
func ExampleNewRoute() {
	ctx := context.Background()
	route, err := eventstore.NewRoute([]eventstore.Backend{
		{Name: "main", Log: memlog.New(nil)}, // as pglog.Open would give it
		{Name: "scratch", Log: memlog.New(nil)},
	}, &eventstore.RouteOptions{Default: "main", Table: map[eventstore.Category]string{"click": "scratch"}})
	if err != nil {
		panic(err)
	}
	store := eventstore.New(route, nil)
	defer store.Close()
	for _, c := range []eventstore.Category{"account", "click"} {
		if err := store.CreateCategory(ctx, eventstore.CategorySpec{Name: c}); err != nil {
			panic(err)
		}
	}
	_, err = store.Append(ctx, appendOf(nil, "account-a", "click-a"))
	fmt.Println(errors.Is(err, eventstore.ErrCrossBackend))
	fmt.Println(err)
	// Output:
	// true
	// wattle: append account-a: across backends: wanted all of it in one backend, found account-a in backend main; click-a in backend scratch (nothing was written: append to each backend on its own, or bind categories that must change together to one backend)
}
