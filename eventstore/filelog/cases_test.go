// Cases from other logs: T3, R4 and L3.

package filelog_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/internal/vfs"
)

// TestTrimmedPages is case R4: who reads from the start of a trimmed stream is told
// where it begins, whatever the page.
func TestTrimmedPages(t *testing.T) {
	disk := vfs.NewMem()
	p, err := openPlayer(disk, filelog.Options{SegmentBytes: filelog.MinSegmentBytes}, 0)
	if err != nil {
		t.Fatal(err)
	}
	script := []step{createStep(free)}
	for range 20 {
		script = append(script, appendStep(5, 40, "free-a"))
	}
	script = append(script, trimStep("free-a", 21), reclaimStep)
	for i, s := range script {
		if err := p.play(i, s); err != nil {
			t.Fatal(err)
		}
	}
	for _, again := range []bool{false, true} {
		if again {
			if err := p.log.Close(); err != nil {
				t.Fatal(err)
			}
			if err := p.open(disk.Snapshot()); err != nil {
				t.Fatal(err)
			}
		}
		for _, limit := range []int{10, 1} {
			_, err := p.store.ReadFrom(p.ctx, "free-a", 0, limit)
			if e, ok := errors.AsType[*eventstore.Error](err); !ok || e.Kind != eventstore.ErrTrimmed || e.First != 80 {
				t.Errorf("page of %d: %v, want ErrTrimmed with First 80", limit, err)
			}
			if n := countPages(t, p, limit); n != 21 {
				t.Errorf("page of %d: %d entries behind the trim, want 21", limit, n)
			}
		}
	}
	p.log.Close()
}

// countPages reads a stream from 80 on; none of the pages is empty.
func countPages(t *testing.T, p *player, limit int) (n int) {
	t.Helper()
	for after := eventstore.Seqno(79); ; {
		page, err := p.store.ReadFrom(p.ctx, "free-a", after, limit)
		if err != nil || len(page.Entries) == 0 || page.Entries[0].Seqno != after+1 {
			t.Fatalf("behind %d: %+v, %v", after, page, err)
		}
		n += len(page.Entries)
		if after = page.Entries[len(page.Entries)-1].Seqno; page.End {
			return n
		}
	}
}

// TestParkedAppend is case L3: an old holder's append waits in the queue when a new
// epoch is granted. It is refused, and the head that the new holder read is final, in
// the order in which they were sent and in the other one.
func TestParkedAppend(t *testing.T) {
	for _, oldFirst := range []bool{true, false} {
		p, err := openPlayer(vfs.NewMem(), filelog.Options{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range []step{createStep(free), appendStep(2, 5, "free-a")} {
			if err := p.play(i, s); err != nil {
				t.Fatal(err)
			}
		}
		parkedAppend(t, p, oldFirst)
		p.log.Close()
	}
}

func parkedAppend(t *testing.T, p *player, oldFirst bool) {
	t.Helper()
	b, err := p.batch("free-a", 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	appended, granted := make(chan error, 1), make(chan eventstore.Head, 1)
	sendOld := func() {
		_, err := p.store.Append(p.ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
		appended <- err
	}
	fence := func() {
		h, err := p.store.Fence(p.ctx, "free-a", id("new holder"))
		if err != nil {
			t.Error(err)
		}
		granted <- h
	}
	first, second := fence, sendOld
	if oldFirst {
		first, second = sendOld, fence
	}
	release := p.log.Park()
	go first()
	waitQueued(p, 1)
	go second()
	waitQueued(p, 2)
	release()
	err, head := <-appended, <-granted
	now, _ := p.store.Head(p.ctx, "free-a")
	if now != head {
		t.Errorf("old first %t: the head at the grant was %+v, it is %+v", oldFirst, head, now)
	}
	if want := eventstore.Seqno(2); !oldFirst && (!errors.Is(err, eventstore.ErrFenced) || head.Last.Seqno != want) {
		t.Errorf("append behind the grant = %v, head %+v, want ErrFenced and last %d", err, head, want)
	}
	if want := eventstore.Seqno(3); oldFirst && (err != nil || head.Last.Seqno != want) {
		t.Errorf("append before the grant = %v, head %+v, want last %d", err, head, want)
	}
}

// TestCutAtBoundary is case T3: three segments; the newest is cut at its beginning, one
// byte before and one behind it; the oldest are trimmed away. TestCrash kills at each
// operation of that.
func TestCutAtBoundary(t *testing.T) {
	script := []step{createStep(free), appendStep(1, 1000, "free-a"), appendStep(1, 1000, "free-b"), appendStep(1, 20, "free-a"), trimStep("free-a", 1), reclaimStep}
	o := filelog.Options{SegmentBytes: filelog.MinSegmentBytes}
	all := states(t, script, o)
	for _, steps := range []int{4, 6} {
		disk := vfs.NewMem()
		p, err := openPlayer(disk, o, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range script[:steps] {
			if err := p.play(i, s); err != nil {
				t.Fatal(err)
			}
		}
		killed := disk.Snapshot()
		p.log.Close()
		for _, d := range []struct{ cut, from, to int }{{63, -1, -1}, {64, 3, 3}, {65, 3, 3}} {
			cutAtBoundary(t, killed.Snapshot(), all, steps, d.cut, d.from, d.to)
		}
	}
}

// cutAtBoundary cuts the newest segment: a negative state means that it must be noticed.
func cutAtBoundary(t *testing.T, disk *vfs.Mem, all []string, steps, cut, from, to int) {
	t.Helper()
	names, _ := disk.List()
	newest := ""
	for _, name := range names {
		if len(name) > 4 && name[len(name)-4:] == ".log" {
			newest = name
		}
	}
	what := fmt.Sprintf("%d steps, %s cut at %d", steps, newest, cut)
	write(t, disk, newest, read(t, disk, newest)[:cut])
	got, err := readAll(disk)
	switch {
	case from < 0 && !errors.Is(err, eventstore.ErrCorrupt):
		t.Errorf("%s: %v, want ErrCorrupt", what, err)
	case from >= 0 && steps == 4 && (err != nil || got != all[from] && got != all[to]):
		t.Errorf("%s: %v, %s", what, err, difference(got, all[from]))
	case from >= 0 && steps == 6 && err == nil && got != all[3] && got != all[4]:
		t.Errorf("%s: other data: %s", what, difference(got, all[4]))
	}
}

// waitQueued waits until so many requests wait for the writer.
func waitQueued(p *player, n int) {
	for p.log.Queued() < n {
		time.Sleep(10 * time.Microsecond)
	}
}

// TestGroupAnswers: everybody in a group gets his own answer.
func TestGroupAnswers(t *testing.T) {
	p, err := openPlayer(vfs.NewMem(), filelog.Options{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.log.Close()
	if err := p.play(0, createStep(free)); err != nil {
		t.Fatal(err)
	}
	release := p.log.Park()
	answers := make([]chan error, 9)
	for i := range answers {
		b := eventstore.Batch{Stream: clientName(i), Epoch: 1, Holder: id("holder"), Claim: i%3 != 0, Events: []eventstore.Event{{Type: "e"}}}
		answers[i] = make(chan error, 1)
		go func() {
			_, err := p.store.Append(p.ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
			answers[i] <- err
		}()
		waitQueued(p, i+1)
	}
	release()
	for i, answer := range answers {
		err := <-answer
		h, _ := p.store.Head(p.ctx, clientName(i))
		if refused := i%3 == 0; errors.Is(err, eventstore.ErrFenced) != refused || refused != (h.Last.Seqno == 0) {
			t.Errorf("append %d: %v, head %+v; refused should be %t", i, err, h, refused)
		}
	}
}

func clientName(i int) eventstore.Stream { return eventstore.Stream(fmt.Sprintf("free-%d", i)) }
