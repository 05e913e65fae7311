// A reader beside the owner, who rolls, reclaims, closes and opens again meanwhile.

package filelog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/internal/vfs"
)

// TestReaderBesideOwner: a log that was opened read-only sees what was acked, and no
// error, whatever its owner does.
func TestReaderBesideOwner(t *testing.T) {
	dir := t.TempDir()
	o := filelog.Options{SegmentBytes: filelog.MinSegmentBytes, ReclaimEvery: 5 * time.Millisecond}
	owner, err := filelog.Open(dir, &o)
	if err != nil {
		t.Fatal(err)
	}
	p := &player{ctx: t.Context(), log: owner, store: eventstore.New(owner, nil)}
	if err := p.play(0, createStep(free)); err != nil {
		t.Fatal(err)
	}
	log, err := filelog.Open(dir, &filelog.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	reader := &player{ctx: t.Context(), log: log, store: eventstore.New(log, nil)}
	done := make(chan error, 1)
	go func() { done <- readOn(reader, scale(10, 30, 1000)) }()
	for i := 1; len(done) == 0; i++ {
		err := p.play(i, appendStep(1+i%3, 50+i%400, "free-a", "free-b"))
		if err == nil && i%9 == 0 {
			err = p.play(i, trimStep("free-a", i%5))
		}
		if err == nil && i%50 == 0 {
			if err = p.log.Close(); err == nil {
				p.log, err = filelog.Open(dir, &o)
				p.store = eventstore.New(p.log, nil)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		h, err := reader.store.Head(p.ctx, "free-b")
		mine, _ := p.store.Head(p.ctx, "free-b")
		if err != nil || h != mine {
			t.Fatalf("step %d: the reader's head is %+v, %v, the owner's %+v", i, h, err, mine)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := p.log.Close(); err != nil {
		t.Error(err)
	}
}

// readOn reads everything, a number of times.
func readOn(p *player, times int) error {
	for range times {
		n := eventstore.Seqno(0)
		for e, err := range p.store.Read(p.ctx, "free-b", 0) {
			if err != nil {
				return fmt.Errorf("behind %d: %w", n, err)
			}
			n = e.Seqno
		}
		for _, err := range p.store.Feed(p.ctx, 0, eventstore.Filter{AcceptTrimmed: true}) {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// TestRemovedUnderReader: the owner replaces a segment while a reader is about to open
// its file. The reader begins anew.
func TestRemovedUnderReader(t *testing.T) {
	disk := vfs.NewMem()
	o := filelog.Options{SegmentBytes: filelog.MinSegmentBytes}
	owner, err := openPlayer(disk, o, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.log.Close()
	play := func(steps ...step) error {
		for _, s := range steps {
			if err := owner.play(owner.at+1, s); err != nil {
				return err
			}
		}
		return nil
	}
	if err := play(createStep(free), appendStep(2, 5, "free-a"), appendStep(1, 900, "free-b"), appendStep(1, 1000, "free-c")); err != nil {
		t.Fatal(err)
	}
	armed := false
	o.ReadOnly = true
	reader, err := openPlayer(vfs.NewFaulty(disk, func(op vfs.Op) error {
		if armed && op.Kind == vfs.OpOpen && op.Name == "0000000000000000001.0.log" {
			armed = false
			return play(trimStep("free-b", 0), reclaimStep)
		}
		return nil
	}), o, 0)
	if err != nil {
		t.Fatal(err)
	}
	armed = true
	page, err := reader.store.ReadFrom(reader.ctx, "free-a", 0, 10)
	if err != nil || len(page.Entries) != 2 || armed {
		t.Errorf("read = %d entries, %v; the segment was replaced: %t", len(page.Entries), err, !armed)
	}
}
