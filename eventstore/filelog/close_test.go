// Closing while others are still at it.

package filelog_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/internal/vfs"
)

// TestCloseUnderLoad: whatever is under way when a log is closed ends, with an answer
// that is true.
func TestCloseUnderLoad(t *testing.T) {
	for range scale(10, 40, 1000) {
		disk := vfs.NewMem()
		p, err := openPlayer(disk, filelog.Options{SegmentBytes: filelog.MinSegmentBytes, ReclaimEvery: time.Millisecond}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.store.CreateCategory(p.ctx, free); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		acked := make([]int, 4)
		streams := []eventstore.Stream{"free-a", "free-b", "free-c", "free-d"}
		for i, s := range streams {
			all.Go(func() { acked[i] = appendUntilClosed(t, p, s) })
		}
		for _, f := range []func() error{
			func() error { _, err := p.store.ReadFrom(p.ctx, "free-a", 0, 100); return err },
			func() error { _, err := p.store.ReadFeed(p.ctx, 0, eventstore.Filter{}, 100); return err },
			func() error { _, err := p.store.Load(p.ctx, "free-b", "f"); return err },
			func() error { _, err := p.log.Reclaim(p.ctx); return err },
		} {
			all.Go(func() { untilClosed(t, f) })
		}
		time.Sleep(3 * time.Millisecond)
		if err := p.log.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		all.Wait()
		wantHeads(t, disk.Snapshot(), streams, acked)
	}
}

// appendUntilClosed returns how many appends of one event were acked.
func appendUntilClosed(t *testing.T, p *player, s eventstore.Stream) (n int) {
	b := eventstore.Batch{Stream: s, Epoch: 1, Holder: id("holder"), Claim: true, Events: []eventstore.Event{{Type: "e", Data: make([]byte, 100)}}}
	untilClosed(t, func() error {
		b.ID = eventstore.NewUUID()
		done, err := p.store.Append(context.Background(), eventstore.Append{Batches: []eventstore.Batch{b}})
		if err == nil {
			b.Claim, b.After = false, done.Receipts[0].Last
			n++
		}
		return err
	})
	return n
}

func untilClosed(t *testing.T, f func() error) {
	for {
		err := f()
		if errors.Is(err, eventstore.ErrClosed) {
			return
		}
		if err != nil {
			t.Errorf("beside Close: %v", err)
			return
		}
	}
}

func wantHeads(t *testing.T, disk vfs.FS, streams []eventstore.Stream, acked []int) {
	t.Helper()
	p, err := openPlayer(disk, filelog.Options{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.log.Close()
	for i, s := range streams {
		if h, err := p.log.Head(p.ctx, s); err != nil || int(h.Last.Seqno) != acked[i] {
			t.Errorf("head of %s = %+v, %v, %d were acked", s, h, err, acked[i])
		}
	}
}
