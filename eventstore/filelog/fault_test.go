// File systems that fail: every operation of a script once, in every way, and what
// must hold after it.

package filelog_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/internal/vfs"
)

// changing are the kinds of operations that write, as far as they can fail.
var changing = []vfs.Kind{vfs.OpCreate, vfs.OpWrite, vfs.OpTruncate, vfs.OpAllocate, vfs.OpSync, vfs.OpRename, vfs.OpRemove, vfs.OpSyncDir}

// reading are the others. What fails to be read says nothing of what is there.
var reading = []vfs.Kind{vfs.OpOpen, vfs.OpRead, vfs.OpMap, vfs.OpList, vfs.OpLock}

// fault is what one run of a script meets.
type fault struct {
	kind vfs.Kind
	nth  int
	err  error
}

func (f fault) String() string { return fmt.Sprintf("%v %d: %v", f.kind, f.nth, f.err) }

// faultRun plays a script on a disk that fails once.
type faultRun struct {
	t      *testing.T
	script []step
	states []string
	o      filelog.Options
	fault  fault
	disk   *vfs.Mem
	faulty *vfs.Faulty
	rng    *rand.Rand
	met    bool // the fault has occurred
	p      *player
	at     int     // steps played
	images []image // of crashes behind the fault
	looked int     // after how many operations behind it
	opened int     // images in all
}

func (r *faultRun) fatalf(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("%v, at step %d: %s", r.fault, r.at, fmt.Sprintf(format, args...))
}

func (r *faultRun) wrap(disk *vfs.Mem) vfs.FS {
	r.disk = disk
	disk.OnOp(func(o vfs.Op) {
		if !r.met || r.looked > lookFor {
			return
		}
		if r.looked++; r.looked > 4 && r.rng.IntN(scale(6, 6, 1)) > 0 {
			return
		}
		pick := func(p vfs.Point) int { return r.rng.IntN(p.N) }
		r.images = append(r.images, image{what: "before " + o.String() + ", killed", disk: disk.Snapshot()},
			image{what: "before " + o.String() + ", power lost", disk: disk.Crash(vfs.Choice{Seed: r.rng.Uint64(), Pick: pick})})
	})
	seen := 0
	if r.faulty != nil {
		seen = r.faulty.Count(r.fault.kind)
	}
	r.faulty = vfs.NewFaulty(disk, func(o vfs.Op) error {
		if o.Kind == r.fault.kind && seen+o.Nth == r.fault.nth && !r.met {
			r.met = true
			return r.fault.err
		}
		return nil
	})
	return r.faulty
}

// lookFor is for how many operations behind the fault crashes are tried.
const lookFor = 30

// crashed opens the images of crashes, which may show some states.
func (r *faultRun) crashed(from, to int) {
	r.t.Helper()
	images := r.images
	r.images = nil
	for _, im := range images {
		p, err := openPlayer(im.disk, r.o, to)
		if err != nil {
			r.fatalf("a crash %s: open = %v", im.what, err)
		}
		got, err := p.dump()
		p.log.Close()
		if err != nil || got != r.states[from] && got != r.states[to] {
			r.fatalf("a crash %s: state %d, want %d to %d: %v, %s", im.what, slices.Index(r.states, got), from, to, err, difference(got, r.states[to]))
		}
		r.opened++
	}
}

// run plays the script to its end, through whatever the fault makes necessary.
func (r *faultRun) run() {
	r.t.Helper()
	r.start(vfs.NewMem())
	for r.at < len(r.script) {
		s, before := r.script[r.at], r.at
		switch {
		case s.name == reopen:
			r.p.log.Close() // what it could not write is made up for when it is opened
			r.start(r.disk.Snapshot())
			r.at++
			r.want(r.at)
		default:
			err := r.p.play(r.at, s)
			if err == nil {
				r.at++
			} else {
				r.failed(err)
			}
		}
		r.crashed(before, before+1)
		r.want(r.at)
	}
	if got := r.dump(); got != r.states[r.at] {
		r.fatalf("in the end: %s", difference(got, r.states[r.at]))
	}
	r.p.log.Close()
}

// start opens the store, again if it was the fault that kept it from opening.
func (r *faultRun) start(disk *vfs.Mem) {
	r.t.Helper()
	for {
		met := r.met
		p, err := openPlayer(r.wrap(disk), r.o, r.at)
		if err == nil {
			r.p = p
			return
		}
		if met || !r.met || !errors.Is(err, eventstore.ErrUnavailable) {
			r.fatalf("open = %v", err)
		}
	}
}

func (r *faultRun) dump() string {
	r.t.Helper()
	met := r.met
	got, err := r.p.dump()
	if !met && r.met && slices.Contains(reading, r.fault.kind) && errors.Is(err, eventstore.ErrUnavailable) {
		got, err = r.p.dump()
	}
	if err != nil {
		r.fatalf("read: %v", err)
	}
	return got
}

// want demands one of some states.
func (r *faultRun) want(states ...int) (state int) {
	r.t.Helper()
	got := r.dump()
	for _, i := range states {
		if got == r.states[i] {
			return i
		}
	}
	r.fatalf("state %d, want one of %v: %s", slices.Index(r.states, got), states, difference(got, r.states[states[0]]))
	return 0
}

// failed holds a step that failed, and the log then, against what is promised. After it
// the script goes on.
func (r *faultRun) failed(err error) {
	r.t.Helper()
	if !r.met {
		r.fatalf("failed without a fault: %v", err)
	}
	switch {
	case errors.Is(err, eventstore.ErrReadOnly), errors.Is(err, eventstore.ErrUnknown), errors.Is(err, eventstore.ErrUnavailable):
	default:
		r.fatalf("error = %v, want one that says that nothing can be written", err)
	}
	if errors.Is(err, fs.ErrExist) {
		r.fatalf("what an earlier attempt left is in the way: %v", err)
	}
	r.want(r.at) // reads go on, and show nothing that was not acked
	if !r.p.log.Failed() {
		if errors.Is(err, eventstore.ErrUnknown) {
			r.fatalf("%v, and the log goes on", err)
		}
		return // it goes on by itself: the step is played again
	}
	if slices.Contains(reading, r.fault.kind) {
		r.fatalf("for something that could not be read the log failed: %v", err)
	}
	if errors.Is(r.fault.err, syscall.ENOSPC) && r.fault.kind != vfs.OpSync && r.fault.kind != vfs.OpSyncDir {
		r.fatalf("for want of room alone the log failed: %v", err)
	}
	for range 2 {
		if err := r.p.play(r.at, leaseStep("probe")); !errors.Is(err, eventstore.ErrReadOnly) {
			r.fatalf("a lease behind a failed write = %v", err)
		}
	}
	r.want(r.at)
	r.recovered(err)
}

// recovered opens the log again, after a power loss perhaps, and says where it stands.
func (r *faultRun) recovered(err error) {
	r.t.Helper()
	next := r.disk.Snapshot()
	if r.rng.IntN(2) == 0 {
		next = r.disk.Crash(vfs.Choice{Seed: r.rng.Uint64(), Pick: func(p vfs.Point) int { return r.rng.IntN(p.N) }})
	} else if err := r.p.log.Close(); err == nil {
		r.fatalf("Close of a log that failed = nil")
	}
	p := r.p
	defer p.log.Close()
	r.start(next)
	if errors.Is(err, eventstore.ErrUnknown) {
		r.at = r.want(r.at, r.at+1)
	} else {
		r.at = r.want(r.at)
	}
}

// counts returns how many operations of each kind a script takes.
func counts(t *testing.T, script []step, o filelog.Options) map[vfs.Kind]int {
	t.Helper()
	n := map[vfs.Kind]int{}
	decide := func(o vfs.Op) error { n[o.Kind]++; return nil }
	disk := vfs.NewMem()
	p, err := openPlayer(vfs.NewFaulty(disk, decide), o, 0)
	for i, s := range script {
		switch {
		case err != nil:
		case s.name == reopen:
			err = p.log.Close()
			disk = disk.Snapshot()
			err = errors.Join(err, p.open(vfs.NewFaulty(disk, decide)))
		default:
			err = p.play(i, s)
		}
	}
	if err = errors.Join(err, p.log.Close()); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFault fails every operation, in every way.
func TestFault(t *testing.T) {
	o := filelog.Options{SegmentBytes: filelog.MinSegmentBytes}
	script := rollScript()
	all, n := states(t, script, o), counts(t, script, o)
	rng := rand.New(rand.NewPCG(seed(t), 2))
	runs, images := 0, 0
	for _, kind := range slices.Concat(changing, reading) {
		for _, err := range faultsOf(kind) {
			t.Run(fmt.Sprint(kind, " ", err), func(t *testing.T) {
				for nth := 1 + rng.IntN(scale(3, 3, 1)); nth <= n[kind]; nth += scale(3, 3, 1) {
					r := &faultRun{t: t, script: script, states: all, o: o, fault: fault{kind, nth, err}, rng: rng}
					r.run()
					runs++
					images += r.opened
				}
			})
		}
	}
	t.Logf("%d runs, one fault in each, of %v; %d crashes behind it", runs, n, images)
}

// faultsOf returns in which ways an operation of a kind can fail.
func faultsOf(kind vfs.Kind) []error {
	all := []error{syscall.EIO, syscall.ENOSPC}
	switch kind {
	case vfs.OpOpen:
		all = []error{syscall.EIO, syscall.EMFILE}
	case vfs.OpRead, vfs.OpMap, vfs.OpList, vfs.OpLock:
		all = all[:1]
	case vfs.OpWrite:
		all = append(all, &vfs.ShortWrite{N: 1}, &vfs.ShortWrite{N: 40}, &vfs.ShortWrite{N: 700, Err: syscall.EIO})
	case vfs.OpAllocate:
		all = append(all, &vfs.ShortWrite{N: 9})
	case vfs.OpSync:
		all = append(all, &vfs.LostSync{}, &vfs.LostSync{Err: syscall.ENOSPC})
	}
	return all
}
