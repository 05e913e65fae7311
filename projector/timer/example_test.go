// A deadline, as a program: an order that is not paid in time is cancelled.

package timer_test

import (
	"context"
	"fmt"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/timer"
)

func Example() {
	ctx := context.Background()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	store := eventstore.New(memlog.New(&memlog.Options{Now: clock}), nil)
	defer store.Close()
	o := &timer.Options{Now: clock} // a program leaves the clock out
	timers, err := timer.New(ctx, store, o)
	if err != nil {
		panic(err)
	}
	scheduler, err := timer.NewScheduler(ctx, store, o)
	if err != nil {
		panic(err)
	}
	deadlines := projector.NewReactor(store, "deadlines", "timer", &projector.MemoryCheckpoints{}, projector.ReactorOptions[timer.Timer, string]{
		Events: timer.Events{},
		React: func(e projector.Event[timer.Timer]) ([]string, error) {
			return []string{"cancel order " + string(e.Value.Payload)}, nil
		},
		Issue: func(_ context.Context, c projector.Command[string]) error {
			fmt.Println(now.Format(time.TimeOnly), c.Value) // with aggregate: Execute under c.ID
			return nil
		},
		Projector: projector.Options{Types: []string{timer.FiredType}, AcceptTrimmed: true},
	})

	for _, order := range []string{"4711", "4712", "4713"} {
		if _, err := timers.Set(ctx, "payment-"+order, now.Add(time.Hour), []byte(order)); err != nil {
			panic(err)
		}
	}
	if _, err := timers.Cancel(ctx, "payment-4711"); err != nil { // it was paid
		panic(err)
	}
	if _, err := timers.Reschedule(ctx, "payment-4712", now.Add(2*time.Hour)); err != nil { // it asked for time
		panic(err)
	}
	for range 3 {
		if _, err := scheduler.CatchUp(ctx, 0); err != nil { // or Run, beside the program
			panic(err)
		}
		if _, err := deadlines.CatchUp(ctx, 0); err != nil {
			panic(err)
		}
		now = now.Add(time.Hour)
	}
	_, err = timers.Cancel(ctx, "payment-4713")
	fmt.Println(err)

	// Output:
	// 13:00:00 cancel order 4713
	// 14:00:00 cancel order 4712
	// wattle: cancel timer timer-payment-4713: timer has fired: wanted a pending timer, found generation 1, fired (set it again if it is to fire once more)
}

func ExampleOnLog() {
	ctx := context.Background()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	store := eventstore.New(memlog.New(&memlog.Options{Now: clock}), nil)
	defer store.Close()
	if err := store.CreateCategory(ctx, eventstore.CategorySpec{Name: "trade"}); err != nil {
		panic(err)
	}
	o := &timer.Options{LogCategories: []eventstore.Category{"trade"}, Now: clock}
	timers, err := timer.New(ctx, store, o)
	if err != nil {
		panic(err)
	}
	scheduler, err := timer.NewScheduler(ctx, store, o)
	if err != nil {
		panic(err)
	}
	if _, err := timers.Set(ctx, "close", now.Add(time.Minute), nil, timer.OnLog()); err != nil {
		panic(err)
	}
	var after eventstore.Mark
	for i := range 4 { // a trade each half a minute
		now = now.Add(30 * time.Second)
		done, err := store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{{Stream: "trade-acme", Epoch: eventstore.Epoch(i + 1), Claim: true,
			Holder: eventstore.NewUUID(), After: after, Events: []eventstore.Event{{Type: "traded"}}}}})
		if err != nil {
			panic(err)
		}
		after = done.Receipts[0].Last
	}
	// However late the scheduler comes: it is the second trade that ends the minute.
	if _, err := scheduler.CatchUp(ctx, 0); err != nil {
		panic(err)
	}
	t, err := timers.Get(ctx, "close")
	fmt.Println(t.State, "by", t.By.Stream, "entry", t.By.Seqno, "at", t.By.Time.Format(time.TimeOnly), err)
	// Output: fired by trade-acme entry 2 at 12:01:00 <nil>
}
