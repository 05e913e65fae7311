// Power losses: after every operation on the file system that changes something, the
// disks that it may leave are opened, must hold exactly what was acked or one step
// more, and are then written to and crashed once more.

package filelog_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/internal/vfs"
)

var soak = os.Getenv("WATTLE_SOAK") != ""

// scale is n, a fraction of it with -short and a multiple in a soak.
func scale(short, n, wide int) int {
	switch {
	case soak:
		return wide
	case testing.Short():
		return short
	}
	return n
}

// seed is that of this run, which is printed; WATTLE_SEED gives another run's.
func seed(t testing.TB) uint64 {
	s := uint64(time.Now().UnixNano())
	if env := os.Getenv("WATTLE_SEED"); env != "" {
		if _, err := fmt.Sscan(env, &s); err != nil {
			t.Fatalf("WATTLE_SEED: %v", err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("run again with WATTLE_SEED=%d", s)
		}
	})
	return s
}

// crasher plays a script and crashes it everywhere.
type crasher struct {
	t       *testing.T
	script  []step
	states  []string
	options filelog.Options
	rng     *rand.Rand
	images  int // taken after an operation, at most
	second  int // one image of so many is written to and crashed again
	counts  struct{ operations, images, again, second int }
}

// image is a disk that a crash may leave, and which states it may show.
type image struct {
	what     string
	disk     *vfs.Mem
	from, to int
	killed   bool // the process, not the machine
}

func newCrasher(t *testing.T, script []step, o filelog.Options, images, second int) *crasher {
	t.Helper()
	s := seed(t)
	return &crasher{t: t, script: script, states: states(t, script, o), options: o, rng: rand.New(rand.NewPCG(s, 1)), images: images, second: second}
}

// life is a disk whose images are being taken.
type life struct {
	mu     sync.Mutex
	disk   *vfs.Mem
	rng    *rand.Rand
	limit  int // of images at a time
	second bool
	ops    int
	images []image
}

// watch takes images before every operation from now on: those show what the one
// before it left.
func (l *life) watch() {
	l.disk.OnOp(func(op vfs.Op) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ops++
		l.take("before " + op.String())
	})
}

// take takes images now: that of a killed process, that with all lost that may be, and
// of the others all or a sample.
func (l *life) take(what string) {
	if l.second && l.rng.IntN(2) == 0 {
		return
	}
	l.images = append(l.images, image{what: what + ", killed", disk: l.disk.Snapshot(), killed: true},
		image{what: what + ", all lost", disk: l.disk.Crash(vfs.Choice{Pick: vfs.LoseAll})})
	var all []image
	for title, disk := range l.disk.Images(4*l.limit, l.rng) {
		all = append(all, image{what: what + ", " + title, disk: disk})
	}
	l.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	l.images = append(l.images, all[:min(len(all), l.limit)]...)
}

// taken returns the images since the last call, which may show some states.
func (l *life) taken(from, to int) []image {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(l.images)
	l.images = nil
	for i := range all {
		all[i].from, all[i].to = from, to
	}
	return all
}

// run plays the whole script.
func (c *crasher) run() {
	c.t.Helper()
	l := &life{disk: vfs.NewMem(), rng: c.rng, limit: c.images}
	l.watch()
	p, err := openPlayer(l.disk, c.options, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	c.check(l.taken(0, 0), 1)
	c.play(l, p, 0, len(c.script), 1)
	c.counts.operations += l.ops
	c.t.Logf("%d steps, %d operations, %d images, %d of them written to, %d images of that", len(c.script), c.counts.operations, c.counts.images, c.counts.second, c.counts.again)
}

// play plays some steps from a state on and checks the images of each.
func (c *crasher) play(l *life, p *player, at, to, lives int) {
	c.t.Helper()
	durable := at // with MayLose what is behind it may be lost
	for at < to && !c.t.Failed() {
		n := 1
		var err error
		switch {
		case c.script[at].name == reopen:
			if err = p.log.Close(); err == nil {
				c.check(l.taken(c.least(durable, at), at+1), lives)
				durable = at + 1 // a close makes it so
				l.disk = l.disk.Snapshot()
				l.watch()
				err = p.open(l.disk)
			}
		case at%16 == 0 && c.grouped(at) && at+stepsPerSecond <= to:
			n = stepsPerSecond
			err = c.together(p, at)
		default:
			err = p.play(at, c.script[at])
		}
		if err != nil {
			c.t.Fatalf("step %d, %s: %v", at, c.script[at].name, err)
		}
		c.check(l.taken(c.least(durable, at), at+n), lives)
		at += n
		l.take(fmt.Sprintf("after step %d", at-1))
		c.check(l.taken(c.least(durable, at), at), lives)
	}
	l.disk.OnOp(nil)
	p.log.Close()
}

// least is the lowest state that a crash may leave.
func (c *crasher) least(durable, acked int) int {
	if c.options.MayLose > 0 {
		return durable
	}
	return acked
}

// grouped says if the steps from a place on are made to be played together.
func (c *crasher) grouped(at int) bool {
	return at > 0 && at+stepsPerSecond <= len(c.script) && c.script[at+2].name == "fence strict-b" && c.script[at+1].name[:8] == "append 1"
}

// together has the writer take some steps as one group.
func (c *crasher) together(p *player, at int) error {
	release := p.log.Park()
	done := make([]chan error, stepsPerSecond)
	for i := range done {
		q := &player{ctx: p.ctx, log: p.log, store: p.store, at: at + i}
		done[i] = make(chan error, 1)
		go func() { done[i] <- q.play(at+i, c.script[at+i]) }()
		waitQueued(p, i+1)
	}
	p.at = at
	release()
	for _, d := range done {
		if err := <-d; err != nil {
			return err
		}
	}
	return nil
}

// check opens images and holds them against the states; some live on.
func (c *crasher) check(images []image, lives int) {
	c.t.Helper()
	for _, im := range images {
		if c.t.Failed() {
			return
		}
		c.counts.images++
		goesOn := lives > 0 && (c.rng.IntN(c.second) == 0 || im.killed && c.rng.IntN(max(c.second/4, 1)) == 0)
		c.open(im, goesOn, lives)
	}
}

func (c *crasher) open(im image, goesOn bool, lives int) {
	c.t.Helper()
	l := &life{disk: im.disk, rng: c.rng, limit: 1 + c.images/8, second: true}
	if goesOn {
		l.watch()
	}
	p, err := openPlayer(im.disk, c.options, im.to)
	if err != nil {
		c.t.Fatalf("open %s: %v", im.what, err)
	}
	got, err := p.dump()
	if err != nil {
		p.log.Close()
		c.t.Fatalf("read %s: %v", im.what, err)
	}
	state := im.from
	for state <= im.to && c.states[state] != got {
		state++
	}
	switch {
	case state > im.to:
		at := slices.Index(c.states, got)
		c.t.Errorf("%s: it shows state %d of %d…%d (-1: none):\n%s", im.what, at, im.from, im.to, difference(got, c.states[im.to]))
		p.log.Close()
	case goesOn:
		before := c.counts.images
		c.check(l.taken(im.from, state), 0)
		c.play(l, p, state, min(state+4, len(c.script)), 0)
		c.counts.second++
		c.counts.again += c.counts.images - before
	default:
		p.log.Close()
	}
}

// TestCrash crashes a script with every kind of record, and one that rolls and
// reclaims, after every operation.
func TestCrash(t *testing.T) {
	o := filelog.Options{SegmentBytes: filelog.MinSegmentBytes}
	t.Run("each kind", func(t *testing.T) {
		newCrasher(t, shortScript(), filelog.Options{}, scale(6, 12, 3000), scale(16, 16, 1)).run()
	})
	t.Run("each kind, small segments", func(t *testing.T) { newCrasher(t, shortScript(), o, scale(4, 6, 400), scale(30, 30, 1)).run() })
	t.Run("rolls", func(t *testing.T) { newCrasher(t, rollScript(), o, scale(2, 2, 100), scale(60, 60, 8)).run() })
}

// TestCrashRandom crashes random scripts.
func TestCrashRandom(t *testing.T) {
	for i := range scale(1, 2, 12) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed(t), uint64(i)))
			o := filelog.Options{SegmentBytes: filelog.MinSegmentBytes << rng.IntN(3)}
			newCrasher(t, randomScript(rng, 80), o, scale(1, 2, 40), 80).run()
		})
	}
}

// TestCrashMayLose: what was acked and not yet synced may be lost, from the end on.
func TestCrashMayLose(t *testing.T) {
	t.Run("registry", func(t *testing.T) {
		o := filelog.Options{SegmentBytes: filelog.MinSegmentBytes, MayLose: time.Hour}
		newCrasher(t, registryScript(), o, scale(1, 2, 40), 80).run()
	})
	for i := range scale(1, 1, 8) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed(t), uint64(i)))
			o := filelog.Options{SegmentBytes: filelog.MinSegmentBytes << rng.IntN(3), MayLose: time.Hour}
			newCrasher(t, randomScript(rng, 60), o, scale(1, 2, 40), 60).run()
		})
	}
}

// TestKilledBeforeSync kills the process between each rename of a manifest and the sync
// of the directory. The next one appends, and then the power fails.
func TestKilledBeforeSync(t *testing.T) {
	script, o := rollScript(), filelog.Options{SegmentBytes: filelog.MinSegmentBytes}
	all := states(t, script, o)
	var killed []image
	disk, at := vfs.NewMem(), 0
	renamed := false
	watch := func() {
		disk.OnOp(func(o vfs.Op) {
			if renamed {
				killed = append(killed, image{what: fmt.Sprintf("step %d, before %v", at, o), disk: disk.Snapshot(), from: at, to: at + 1})
			}
			renamed = o.Kind == vfs.OpRename
		})
	}
	watch()
	p, err := openPlayer(disk, o, 0)
	for ; at < len(script) && err == nil; at++ {
		if script[at].name != reopen {
			err = p.play(at, script[at])
		} else if err = p.log.Close(); err == nil {
			disk = disk.Snapshot()
			watch()
			err = p.open(disk)
		}
	}
	if err = errors.Join(err, p.log.Close()); err != nil {
		t.Fatal(err)
	}
	for _, im := range killed {
		killedBeforeSync(t, im, o, all)
	}
	t.Logf("%d kills", len(killed))
}

func killedBeforeSync(t *testing.T, im image, o filelog.Options, all []string) {
	t.Helper()
	p, err := openPlayer(im.disk, o, im.to)
	if err != nil {
		t.Fatalf("%s: %v", im.what, err)
	}
	if got, err := p.dump(); err != nil || got != all[im.from] && got != all[min(im.to, len(all)-1)] {
		t.Fatalf("%s: %v, %s", im.what, err, difference(got, all[im.from]))
	}
	if err := p.play(1000, leaseStep("behind the kill")); err != nil {
		t.Fatalf("%s: %v", im.what, err)
	}
	want, err := p.dump()
	if err != nil {
		t.Fatalf("%s: %v", im.what, err)
	}
	lost := im.disk.Crash(vfs.Choice{Pick: vfs.LoseAll})
	p.log.Close()
	if p, err = openPlayer(lost, o, im.to); err != nil {
		t.Fatalf("%s, then power lost: %v", im.what, err)
	}
	defer p.log.Close()
	if got, err := p.dump(); err != nil || got != want {
		t.Fatalf("%s, then power lost: %v, %s", im.what, err, difference(got, want))
	}
}
