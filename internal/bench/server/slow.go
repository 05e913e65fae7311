// Followers that keep up, beside some that do not.

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

const (
	fastFollowers = 100
	slowFollowers = 10 // read a message each 200 ms
	deafFollowers = 10 // read nothing, and come again after 2 s
	slowPace      = 200 * time.Millisecond
	deafFor       = 2 * time.Second
	appendPace    = 5 * time.Millisecond // between the appends that the fast ones follow
	backlog       = 400                  // entries of 64 KiB for those that do not keep up
	lagBytes      = 64 << 10             // of a message that they ask for
)

// crowd are followers of one stream, and when they had what.
type crowd struct {
	acked   []time.Time   // by seqno - 1
	arrived [][]time.Time // by follower
}

// beside measures how soon 100 followers have what was acked, alone and beside slow ones,
// in turn, and prints the ratio of their p99.
func (s *settings) beside(ctx context.Context, x *site, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &crowd{arrived: make([][]time.Time, fastFollowers)}
	const fast, busy = 99_997, 99_996
	write := appends(x.store, "far", fast+1)
	for range backlog {
		if err := write(ctx, busy, make([]byte, 64<<10)); err != nil {
			return err
		}
	}
	if err := c.append(ctx, write, fast); err != nil {
		return err
	}
	var following sync.WaitGroup
	ready := make(chan struct{}, fastFollowers)
	failed := make(chan error, fastFollowers)
	for i := range c.arrived {
		following.Go(func() {
			for e, err := range x.log.Follow(ctx, "far-99997", eventstore.Mark{}) {
				if err != nil {
					if ctx.Err() == nil {
						failed <- err
					}
					return
				}
				c.arrived[i] = append(c.arrived[i], time.Now())
				if e.Seqno == 1 {
					ready <- struct{}{}
				}
			}
		})
	}
	for range fastFollowers {
		select {
		case <-ready:
		case err := <-failed:
			return err
		}
	}
	var spans [2][][2]int // of seqnos: alone, and beside
	for range s.rounds {
		for i := range spans {
			stop := func() {}
			if i == 1 {
				stop = x.laggards(ctx)
			}
			from := len(c.acked)
			for began := time.Now(); time.Since(began) < s.duration; time.Sleep(appendPace) {
				if err := c.append(ctx, write, fast); err != nil {
					stop()
					return err
				}
			}
			spans[i] = append(spans[i], [2]int{from, len(c.acked)})
			stop()
		}
	}
	time.Sleep(time.Second) // for the last ones to arrive
	cancel()
	following.Wait()
	if len(failed) > 0 {
		return <-failed
	}
	alone, beside := c.delays(spans[0]), c.delays(spans[1])
	_, err := fmt.Fprintf(out, "%-34s p50 %s, p99 %s; beside %d slow and %d deaf ones p50 %s, p99 %s: × %.2f\n", fmt.Sprintf("%s: from ack to %d followers", x.name, fastFollowers),
		short(median(alone, 0.5)), short(median(alone, 0.99)), slowFollowers, deafFollowers, short(median(beside, 0.5)), short(median(beside, 0.99)),
		float64(median(beside, 0.99))/float64(median(alone, 0.99)))
	return err
}

func (c *crowd) append(ctx context.Context, write func(context.Context, int, []byte) error, publisher int) error {
	err := write(ctx, publisher, make([]byte, 1024))
	c.acked = append(c.acked, time.Now())
	return err
}

// delays are the times from ack to arrival, over all followers. What is missing counts as
// it is now.
func (c *crowd) delays(spans [][2]int) (all []time.Duration) {
	for _, span := range spans {
		for _, at := range c.arrived {
			for i := span[0]; i < span[1]; i++ {
				arrived := time.Now()
				if i < len(at) {
					arrived = at[i]
				}
				all = append(all, max(0, arrived.Sub(c.acked[i])))
			}
		}
	}
	return all
}

// laggards follow what they do not keep up with until stop is called. Each has a
// connection of its own, which takes little that was not read.
func (x *site) laggards(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range slowFollowers + deafFollowers {
		var p http.Protocols
		p.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: &p, HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}, DisableCompression: true}
		client := wattlev1.NewLogServiceClient(&http.Client{Transport: transport}, x.url, connect.WithAcceptCompression("gzip", nil, nil))
		all.Go(func() {
			defer transport.CloseIdleConnections()
			for ctx.Err() == nil {
				lag(ctx, client, i < slowFollowers)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// lag follows once: slowly, or without reading.
func lag(ctx context.Context, client wattlev1.LogServiceClient, reads bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := client.Follow(ctx, &wattlev1.FollowRequest{Stream: "far-99996", MaxBytes: lagBytes})
	if err != nil {
		return
	}
	defer r.Close()
	if !reads {
		pause(ctx, deafFor)
		return
	}
	for r.Receive() {
		pause(ctx, slowPace)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
