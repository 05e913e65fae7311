// Scripts: what the crash and fault tests do to a store, step by step, the same in
// every run, so that the state after each step is known beforehand.

package filelog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/internal/vfs"
)

// step is one call, decided on the state that it finds.
type step struct {
	name string
	run  func(*player) error
}

// player has a store open and plays a script on it.
type player struct {
	options filelog.Options
	ctx     context.Context
	log     *filelog.Log
	store   *eventstore.Store
	at      int // number of the step that is played: the clock
}

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stepsPerSecond: steps that are played together see one clock.
const stepsPerSecond = 4

// openPlayer opens a store without anything in its background.
func openPlayer(disk vfs.FS, o filelog.Options, at int) (*player, error) {
	p := &player{options: o, ctx: context.Background(), at: at}
	return p, p.open(disk)
}

func (p *player) open(disk vfs.FS) (err error) {
	o := p.options
	if o.ReclaimEvery == 0 {
		o.ReclaimEvery = -1
	}
	o.Now = func() time.Time { return began.Add(time.Duration(p.at/stepsPerSecond) * time.Second) }
	p.log, err = filelog.OpenFS(disk, "disk", &o)
	if err == nil {
		p.store = eventstore.New(p.log, nil)
	}
	return err
}

// play plays one step. What is refused for what it asks is refused in every run, so
// that is not an error.
func (p *player) play(i int, s step) error {
	p.at = i
	err := s.run(p)
	for _, kind := range []error{eventstore.ErrNoSuchCategory, eventstore.ErrNoSuchStream, eventstore.ErrInvalid, eventstore.ErrFenced,
		eventstore.ErrTrimmed, eventstore.ErrLeaseLost, eventstore.ErrDiverged} {
		if errors.Is(err, kind) {
			return nil
		}
	}
	return err
}

func id(parts ...any) eventstore.UUID { return eventstore.NameUUID(fmt.Sprint(parts...)) }

// batch is the next batch of a stream as its holder would write it.
func (p *player) batch(s eventstore.Stream, events, size int) (eventstore.Batch, error) {
	h, err := p.log.Head(p.ctx, s)
	b := eventstore.Batch{ID: id("batch", p.at, s), Stream: s, Epoch: h.Epoch, Holder: h.Holder, After: h.Last}
	if h.Epoch == 0 {
		b.Claim, b.Epoch, b.Holder = true, 1, id("first holder")
	}
	for i := range events {
		e := eventstore.Event{Type: "happened", Data: fmt.Appendf(nil, "%s %d %d %s", s, p.at, i, strings.Repeat("x", size))}
		if i%3 == 1 {
			e.ID, e.Version, e.ContentType = id("event", p.at, s, i), 7, "text/plain"
			e.Metadata = eventstore.Metadata{"command_id": fmt.Sprint(p.at), "empty": ""}
		}
		b.Events = append(b.Events, e)
	}
	return b, err
}

func appendStep(events, size int, streams ...eventstore.Stream) step {
	return step{fmt.Sprintf("append %d of %d to %v", events, size, streams), func(p *player) error {
		var a eventstore.Append
		for _, s := range streams {
			b, err := p.batch(s, events, size)
			if err != nil {
				return err
			}
			a.Batches = append(a.Batches, b)
		}
		_, err := p.store.Append(p.ctx, a)
		return err
	}}
}

func fenceStep(s eventstore.Stream) step {
	return step{"fence " + string(s), func(p *player) error {
		_, err := p.store.Fence(p.ctx, s, id("holder", p.at))
		return err
	}}
}

// claimStep appends under a claim of the next epoch but one.
func claimStep(s eventstore.Stream) step {
	return step{"claim " + string(s), func(p *player) error {
		b, err := p.batch(s, 1, 3)
		if err != nil {
			return err
		}
		b.Claim, b.Epoch, b.Holder = true, b.Epoch+2, id("claimer", p.at)
		_, err = p.store.Append(p.ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
		return err
	}}
}

// trimStep trims a stream, leaving some entries.
func trimStep(s eventstore.Stream, leave int) step {
	return step{fmt.Sprintf("trim %s but %d", s, leave), func(p *player) error {
		h, err := p.log.Head(p.ctx, s)
		if err != nil || int(h.Last.Seqno) <= leave {
			return err
		}
		_, err = p.store.Trim(p.ctx, s, h.Last.Seqno-eventstore.Seqno(leave), false)
		return err
	}}
}

func snapshotStep(s eventstore.Stream, size int) step {
	return step{"snapshot " + string(s), func(p *player) error {
		h, err := p.log.Head(p.ctx, s)
		if err != nil || h.Last.Seqno == 0 {
			return err
		}
		return p.store.SaveSnapshot(p.ctx, eventstore.Snapshot{Stream: s, At: h.Last, Fingerprint: "f", ContentType: "text/plain",
			Data: []byte(strings.Repeat(fmt.Sprint(p.at), size))})
	}}
}

func createStep(spec eventstore.CategorySpec) step {
	return step{"create " + string(spec.Name), func(p *player) error { return p.store.CreateCategory(p.ctx, spec) }}
}

func deleteStep(c eventstore.Category) step {
	return step{"delete " + string(c), func(p *player) error { return p.store.DeleteCategory(p.ctx, c) }}
}

func createStreamsStep(streams ...eventstore.Stream) step {
	return step{fmt.Sprint("create ", streams), func(p *player) error { return p.store.CreateStreams(p.ctx, streams...) }}
}

func dropStep(s eventstore.Stream) step {
	return step{"drop " + string(s), func(p *player) error { return p.store.DropStream(p.ctx, s) }}
}

func holdStep(h eventstore.Hold) step {
	return step{"hold " + h.Name, func(p *player) error { return p.store.SetHold(p.ctx, h) }}
}

func unholdStep(name string, c eventstore.Category, s eventstore.Stream) step {
	return step{"release hold " + name, func(p *player) error { return p.store.ReleaseHold(p.ctx, name, c, s) }}
}

func leaseStep(name string) step {
	return step{"lease " + name, func(p *player) error {
		_, _, err := p.store.AcquireLease(p.ctx, name, id("holder", p.at%2), 7*time.Second)
		return err
	}}
}

// keepStep renews a lease, or gives it back.
func keepStep(name string, giveBack bool) step {
	return step{fmt.Sprintf("keep lease %s (give back: %t)", name, giveBack), func(p *player) error {
		for _, l := range p.log.LeaseList() {
			switch {
			case l.Name != name:
			case giveBack:
				return p.store.ReleaseLease(p.ctx, l)
			default:
				_, err := p.store.RenewLease(p.ctx, l, 9*time.Second)
				return err
			}
		}
		return nil
	}}
}

var reclaimStep = step{"reclaim", func(p *player) error {
	_, err := p.log.Reclaim(p.ctx)
	return err
}}

// reopenStep is played by whoever knows the disk.
const reopen = "close and open"

var reopenStep = step{name: reopen}

// The categories of a script.
var (
	strict    = eventstore.CategorySpec{Name: "strict"}
	free      = eventstore.CategorySpec{Name: "free", TrimFreely: true}
	dedicated = eventstore.CategorySpec{Name: "own", Layout: eventstore.Dedicated, TrimFreely: true}
	passing   = eventstore.CategorySpec{Name: "passing"}
)

// shortScript has every kind of record once, in few file operations.
func shortScript() []step {
	return []step{createStep(strict), createStep(free), appendStep(1, 5, "strict-a"), appendStep(2, 9, "strict-a", "free-b"), fenceStep("free-b"),
		claimStep("free-b"), snapshotStep("strict-a", 3), trimStep("strict-a", 1), trimStep("free-b", 1),
		holdStep(eventstore.Hold{Name: "h", Category: "free", Stream: "free-b", Seqno: 3}), unholdStep("h", "free", "free-b"), leaseStep("l"), keepStep("l", true),
		createStep(dedicated), createStreamsStep("own-1"), appendStep(1, 1, "own-1"), dropStep("own-1"), deleteStep("free")}
}

// rollScript fills segments, trims most of them, and has the space given back.
func rollScript() []step {
	s := []step{createStep(strict), createStep(free),
		// Of the first batch one entry stays, in a segment that is mostly dead.
		appendStep(4, 20, "free-a"), appendStep(1, 800, "free-d"), appendStep(1, 900, "free-e"), trimStep("free-d", 0), trimStep("free-a", 1), reclaimStep}
	for range 3 {
		s = append(s, appendStep(3, 120, "free-b"), appendStep(2, 90, "strict-a", "free-b"), appendStep(1, 300, "free-c"))
	}
	s = append(s, snapshotStep("strict-a", 40), trimStep("strict-a", 0), trimStep("free-b", 2), reclaimStep, appendStep(2, 200, "free-b", "strict-a"), reopenStep,
		appendStep(4, 120, "free-c"), trimStep("free-b", 0), trimStep("free-c", 1), reclaimStep, deleteStep("free"), reclaimStep, appendStep(1, 700, "strict-a"), reopenStep,
		snapshotStep("strict-a", 300), trimStep("strict-a", 0), reclaimStep, appendStep(1, 10, "strict-a"))
	return s
}

// registryScript has Reclaim write a registry while records stand behind the last sync:
// with many streams that is not done at every roll.
func registryScript() []step {
	s := []step{createStep(free)}
	for i := range 80 {
		s = append(s, fenceStep(eventstore.Stream(fmt.Sprintf("free-%d", i))))
	}
	return append(s, appendStep(3, 400, "free-a"), appendStep(1, 1, "free-b"), appendStep(1, 1000, "free-b"), trimStep("free-a", 0), appendStep(1, 1, "free-c"), reclaimStep,
		appendStep(1, 1, "free-c"))
}

// randomScript is some steps of every kind.
func randomScript(rng *rand.Rand, steps int) []step {
	shared := []eventstore.Stream{"strict-a", "strict-b", "free-c", "free-d", "passing-e"}
	any := append([]eventstore.Stream{"own-1", "own-2"}, shared...)
	one := func(of []eventstore.Stream) eventstore.Stream { return of[rng.IntN(len(of))] }
	s := []step{createStep(strict), createStep(free), createStep(dedicated), createStep(passing), createStreamsStep("own-1", "own-2")}
	for len(s) < steps {
		if len(s)%16 == 0 { // a group of stepsPerSecond, see together
			s = append(s, appendStep(1+rng.IntN(2), rng.IntN(150), "strict-a"), appendStep(1, rng.IntN(150), "free-c"), fenceStep("strict-b"), appendStep(1, rng.IntN(600), "free-d"))
		}
		switch rng.IntN(24) {
		case 0, 1, 2, 3, 4, 5:
			s = append(s, appendStep(1+rng.IntN(3), rng.IntN(200), one(any)))
		case 6, 7:
			s = append(s, appendStep(1+rng.IntN(3), rng.IntN(100), "strict-b", "free-c", "own-2"))
		case 8:
			s = append(s, fenceStep(one(any)))
		case 9:
			s = append(s, claimStep(one(any)))
		case 10, 11, 12:
			s = append(s, trimStep(one(any), rng.IntN(4)))
		case 13, 14:
			s = append(s, snapshotStep(one(any), 1+rng.IntN(60)))
		case 15:
			s = append(s, holdStep(eventstore.Hold{Name: "n", Category: "free", Stream: "free-c", Seqno: eventstore.Seqno(rng.IntN(40))}))
		case 16:
			s = append(s, holdStep(eventstore.Hold{Name: "n", Category: "free", Position: eventstore.Position(rng.IntN(60))}))
		case 17:
			s = append(s, unholdStep("n", "free", []eventstore.Stream{"", "free-c"}[rng.IntN(2)]))
		case 18:
			s = append(s, leaseStep("l"))
		case 19:
			s = append(s, keepStep("l", rng.IntN(2) == 0))
		case 20:
			s = append(s, []step{deleteStep("passing"), createStep(passing)}[rng.IntN(2)])
		case 21:
			s = append(s, []step{dropStep("own-1"), createStreamsStep("own-1")}[rng.IntN(2)])
		case 22:
			s = append(s, reclaimStep)
		case 23:
			s = append(s, reopenStep)
		}
	}
	return s
}

// dump writes down all that can be read of a store.
func (p *player) dump() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "registry %x\n", p.log.State())
	for _, l := range p.log.LeaseList() {
		fmt.Fprintf(&b, "lease %+v\n", l)
	}
	holds, err := p.store.ListHolds(p.ctx)
	fmt.Fprintf(&b, "holds %+v\n", holds)
	for _, s := range p.log.StreamNames() {
		if err == nil {
			err = p.dumpStream(&b, s)
		}
	}
	if err == nil {
		err = p.dumpFeed(&b)
	}
	return b.String(), err
}

// errSkipped says that a snapshot could not be used.
var errSkipped = errors.New("snapshot skipped")

func (p *player) dumpStream(b *strings.Builder, s eventstore.Stream) error {
	h, err := p.store.Head(p.ctx, s)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "%s %+v\n", s, h)
	for after, end := h.Trimmed, false; !end; {
		page, err := p.store.ReadFrom(p.ctx, s, after, 3)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			writeEntry(b, e)
			after = e.Seqno
		}
		end = page.End
	}
	l, err := p.log.Load(p.ctx, s, "f", 2)
	switch {
	case errors.Is(err, eventstore.ErrTrimmed) && s.Category() == strict.Name:
		err = errSkipped
	case errors.Is(err, eventstore.ErrTrimmed):
		err = nil
	}
	if l.Skipped != "" && !strings.Contains(l.Skipped, "trimmed") {
		err = fmt.Errorf("%w: %s: %s", errSkipped, s, l.Skipped)
	}
	if sn := l.Snapshot; sn != nil {
		fmt.Fprintf(b, "  snapshot at %d %x %s %s %s %x %d\n", sn.At.Seqno, sn.At.ID, sn.Fingerprint, sn.ContentType, sn.Data, sn.Checksum, sn.Time.UnixMicro())
	}
	fmt.Fprintf(b, "  %d behind it\n", len(l.Entries))
	return err
}

// writeEntry writes an entry on a line; with %+v it would take most of the tests' time.
func writeEntry(b *strings.Builder, e eventstore.Entry) {
	for _, n := range []uint64{uint64(e.Seqno), uint64(e.Epoch), uint64(e.Position), uint64(e.Time.UnixMicro()), uint64(e.Version)} {
		b.WriteString(strconv.FormatUint(n, 10))
		b.WriteByte(' ')
	}
	for _, s := range []string{string(e.Stream), string(e.ID[:]), string(e.BatchID[:]), e.Type, e.ContentType} {
		b.WriteString(s)
		b.WriteByte(' ')
	}
	if e.Metadata != nil {
		fmt.Fprint(b, e.Metadata, " ")
	}
	b.Write(e.Data)
	b.WriteByte('\n')
}

func (p *player) dumpFeed(b *strings.Builder) error {
	for after, end := eventstore.Position(0), false; !end; {
		page, err := p.store.ReadFeed(p.ctx, after, eventstore.Filter{AcceptTrimmed: true}, 5)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			b.WriteString("feed ")
			writeEntry(b, e)
		}
		if !page.End && page.Through.Position <= after {
			return fmt.Errorf("a page of the feed behind %d goes through %d and does not end", after, page.Through.Position)
		}
		after, end = page.Through.Position, page.End
	}
	return nil
}

// states plays a script on an empty disk and returns what can be read before the first
// step and after each.
func states(t testing.TB, script []step, o filelog.Options) (all []string) {
	t.Helper()
	o.MayLose = 0
	disk := vfs.NewMem()
	p, err := openPlayer(disk, o, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := -1; i < len(script); i++ {
		if i >= 0 && script[i].name == reopen {
			if err := p.log.Close(); err != nil {
				t.Fatal(err)
			}
			disk = disk.Snapshot()
			err = p.open(disk)
		} else if i >= 0 {
			err = p.play(i, script[i])
		}
		if err != nil {
			t.Fatalf("step %d, %s: %v", i, script[i].name, err)
		}
		d, err := p.dump()
		if err != nil {
			t.Fatalf("after step %d: %v", i, err)
		}
		if i >= 0 && (script[i].name == reopen || script[i].name == reclaimStep.name) && d != all[i] {
			t.Fatalf("step %d, %s, changed what is read: %s", i, script[i].name, difference(d, all[i]))
		}
		all = append(all, d)
	}
	if err := p.log.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// difference returns the first line in which two dumps differ, one that can be read if
// there is one.
func difference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	first := ""
	for i := range max(len(g), len(w)) {
		line := func(of []string) string {
			return strings.ToValidUTF8(fmt.Sprintf("%.300s", append(of, make([]string, i+1)...)[i]), "?")
		}
		if line(g) != line(w) && (first == "" || strings.Contains(first, "registry")) {
			first = fmt.Sprintf("line %d is\n  %s\nwant\n  %s", i, line(g), line(w))
		}
	}
	return first
}
