// Power losses while many write at once and everything runs in the background.

package filelog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/internal/vfs"
)

// storm is a store under load, and the disks of crashes.
type storm struct {
	store  *eventstore.Store
	acked  [4]atomic.Uint64
	sent   [4]atomic.Uint64
	mu     sync.Mutex
	images []stormImage
}

type stormImage struct {
	what        string
	disk        *vfs.Mem
	least, most [4]uint64
}

// watch crashes the disk before one operation of so many.
func (s *storm) watch(disk *vfs.Mem, rng *rand.Rand, one int) {
	disk.OnOp(func(o vfs.Op) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if rng.IntN(one) > 0 {
			return
		}
		im := stormImage{what: o.String()}
		for i := range s.acked {
			im.least[i] = s.acked[i].Load() // what is acked from here on may be in the image or not
		}
		if im.disk = disk.Snapshot(); rng.IntN(4) > 0 {
			im.disk = disk.Crash(vfs.Choice{Seed: rng.Uint64(), Pick: func(p vfs.Point) int { return rng.IntN(p.N) }})
		}
		for i := range s.sent {
			im.most[i] = s.sent[i].Load()
		}
		s.images = append(s.images, im)
	})
}

// client appends entries whose content tells their seqno, and trims now and then.
func (s *storm) client(t *testing.T, i, appends int) {
	ctx, stream := context.Background(), eventstore.Stream(fmt.Sprintf("free-%d", i))
	b := eventstore.Batch{Stream: stream, Epoch: 1, Holder: id("holder"), Claim: true}
	for n := range appends {
		b.ID, b.Events = eventstore.NewUUID(), nil
		for k := range 1 + n%3 {
			b.Events = append(b.Events, eventstore.Event{Type: "e", Data: fmt.Appendf(nil, "%d %0200d", b.After.Seqno+eventstore.Seqno(k)+1, n)})
		}
		s.sent[i].Store(uint64(b.Last()))
		done, err := s.store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
		if err != nil {
			t.Error(err)
			return
		}
		s.acked[i].Store(uint64(b.Last()))
		b.Claim, b.After = false, done.Receipts[0].Last
		if n%20 == 19 {
			if _, err := s.store.Trim(ctx, stream, b.After.Seqno-2, false); err != nil {
				t.Error(err)
			}
		}
	}
}

// check opens an image.
func (im stormImage) check(t *testing.T) {
	t.Helper()
	p, err := openPlayer(im.disk, filelog.Options{}, 0)
	if err != nil {
		t.Fatalf("%s: %v", im.what, err)
	}
	defer p.log.Close()
	if _, err := p.dump(); err != nil {
		t.Fatalf("%s: %v", im.what, err)
	}
	for i := range im.least {
		s := eventstore.Stream(fmt.Sprintf("free-%d", i))
		h, err := p.store.Head(p.ctx, s)
		if n := uint64(h.Last.Seqno); err != nil || n < im.least[i] || n > im.most[i] {
			t.Fatalf("%s: head of %s is %+v, %v, want %d to %d", im.what, s, h, err, im.least[i], im.most[i])
		}
		for e, err := range p.store.Read(p.ctx, s, h.Trimmed) {
			var n uint64
			if _, scanErr := fmt.Sscan(string(e.Data), &n); err != nil || scanErr != nil || n != uint64(e.Seqno) {
				t.Fatalf("%s: entry %d of %s is %.40q, %v", im.what, e.Seqno, s, e.Data, err)
			}
		}
	}
}

// TestCrashUnderLoad crashes a store in which everything goes on at once.
func TestCrashUnderLoad(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 5))
	images := 0
	for range scale(1, 3, 100) {
		disk := vfs.NewMem()
		p, err := openPlayer(disk, filelog.Options{SegmentBytes: 2 << 10, ReclaimEvery: time.Millisecond}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.store.CreateCategory(p.ctx, free); err != nil {
			t.Fatal(err)
		}
		s := &storm{store: p.store}
		s.watch(disk, rng, scale(40, 20, 5))
		var clients, reclaimer sync.WaitGroup
		stop := make(chan struct{})
		for i := range s.acked {
			clients.Go(func() { s.client(t, i, 150) })
		}
		reclaimer.Go(func() { reclaimUntil(t, p, stop) })
		clients.Wait()
		close(stop)
		reclaimer.Wait()
		if err := p.log.Close(); err != nil {
			t.Error(err)
		}
		for _, im := range s.images {
			im.check(t)
		}
		images += len(s.images)
	}
	t.Logf("%d images", images)
}

func reclaimUntil(t *testing.T, p *player, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
		}
		if _, err := p.log.Reclaim(p.ctx); err != nil {
			t.Error(err)
		}
	}
}
