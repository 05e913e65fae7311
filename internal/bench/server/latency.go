// One call at a time: what the way over the server adds, and how soon a follower has what
// was acked.

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

const calls = 1000

func (b *bench) latencies(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "\n%-34s %10s %10s %10s\n", "one at a time", "embedded", "server", "added")
	for _, x := range b.sites {
		near, far := appends(x.store, "near", 100_000), appends(x.remote, "far", 100_000)
		data := make([]byte, 1024)
		for _, c := range []struct {
			name      string
			near, far func() error
		}{
			{"head", func() error { _, err := x.store.Head(ctx, "near-x"); return err }, func() error { _, err := x.remote.Head(ctx, "near-x"); return err }},
			{"append", func() error { return near(ctx, 99_999, data) }, func() error { return far(ctx, 99_999, data) }},
		} {
			var times [2][]time.Duration
			for range calls { // in turn, so that a slow moment is everybody's
				for i, f := range []func() error{c.near, c.far} {
					began := time.Now()
					if err := f(); err != nil {
						return err
					}
					times[i] = append(times[i], time.Since(began))
				}
			}
			a, z := median(times[0], 0.5), median(times[1], 0.5)
			fmt.Fprintf(out, "%-34s %10s %10s %10s\n", x.name+": "+c.name+", p50", short(a), short(z), short(z-a))
		}
	}
	for _, x := range b.sites {
		if err := x.delivery(ctx, out); err != nil {
			return err
		}
	}
	return nil
}

// delivery measures from the ack of an append at the server to its entry at a follower
// of the server. What comes before the ack counts as nothing.
func (x *site) delivery(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const publisher = 99_998
	stream := eventstore.Stream("far-99998")
	arrived := make(chan time.Time, calls)
	write := appends(x.remote, "far", publisher+1)
	if err := write(ctx, publisher, nil); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() {
		for _, err := range x.log.Follow(ctx, stream, eventstore.Mark{}) {
			if err != nil {
				failed <- err
				return
			}
			arrived <- time.Now()
		}
	}()
	<-arrived
	var times []time.Duration
	for range calls {
		if err := write(ctx, publisher, make([]byte, 1024)); err != nil {
			return err
		}
		acked := time.Now()
		select {
		case at := <-arrived:
			times = append(times, max(0, at.Sub(acked)))
		case err := <-failed:
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%-34s p50 %s, p99 %s\n", x.name+": from ack to a follower", short(median(times, 0.5)), short(median(times, 0.99)))
	return err
}
