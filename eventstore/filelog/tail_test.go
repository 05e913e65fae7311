// The end of the active segment: what a crash leaves there is cut off, what was acked is
// not.

package filelog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/internal/vfs"
)

// zeros appends an event of zeros in which one byte is not.
func zeros(size, at int, b byte) step {
	return step{fmt.Sprintf("append %d zeros with %d at %d", size, b, at), func(p *player) error {
		batch, err := p.batch("free-a", 1, 0)
		if err != nil {
			return err
		}
		batch.Events[0].Data = make([]byte, size)
		batch.Events[0].Data[at] = b
		_, err = p.store.Append(p.ctx, eventstore.Append{Batches: []eventstore.Batch{batch}})
		return err
	}}
}

// lastWrite plays a script and returns the disk between the last write and its sync,
// and the one behind it.
func lastWrite(t *testing.T, script []step) (between, after *vfs.Mem) {
	t.Helper()
	disk := vfs.NewMem()
	playing := 0
	disk.OnOp(func(o vfs.Op) {
		if o.Kind == vfs.OpSync && playing == len(script)-1 {
			between = disk.Snapshot()
		}
	})
	p, err := openPlayer(disk, filelog.Options{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for playing = range script {
		if err := p.play(playing, script[playing]); err != nil {
			t.Fatal(err)
		}
	}
	disk.OnOp(nil)
	after = disk.Snapshot()
	p.log.Close()
	return between, after
}

// TestLostSector is case A8: of the last write every sector is lost or garbled, one at
// a time and together. The store opens as it was before the append or after it, and is
// written to, crashed and opened again. Data that is all zeros but for one bit makes a
// lost sector look like a bit that flipped.
func TestLostSector(t *testing.T) {
	n := 0
	for _, last := range []step{appendStep(1, 700, "free-a"), appendStep(3, 1, "free-a", "free-b"), createStep(eventstore.CategorySpec{Name: "c", TrimFreely: true}),
		zeros(1500, 1000, 1), zeros(1500, 300, 128), zeros(1500, 1499, 2), zeros(5000, 2047, 255), zeros(1500, 900, 0)} {
		for pad := 0; pad < 64; pad += scale(9, 9, 1) { // where the sectors' ends fall in it
			script := append([]step{createStep(free), appendStep(1, 8*pad, "free-a"), appendStep(1, 4, "free-b")}, last, appendStep(1, 3, "free-b"))
			all := states(t, script, filelog.Options{})
			between, _ := lastWrite(t, script[:len(script)-1])
			for _, answer := range []int{vfs.Lost, vfs.Garbage} {
				for at := 0; ; at++ {
					sectors := 0
					disk := between.Crash(vfs.Choice{Seed: uint64(pad), Pick: func(p vfs.Point) int {
						if p.Kind == vfs.PointSector {
							if sectors++; sectors-1 == at {
								return answer
							}
						}
						return vfs.KeepAll(p)
					}})
					if at >= sectors {
						break
					}
					livesOn(t, disk, script, all)
					n++
				}
			}
		}
	}
	t.Logf("%d disks", n)
}

// livesOn opens a disk on which the script's last step but one was torn, plays on,
// crashes it, and opens it again.
func livesOn(t *testing.T, disk *vfs.Mem, script []step, all []string) {
	t.Helper()
	n := len(script)
	p, err := openPlayer(disk, filelog.Options{}, n)
	if err != nil {
		t.Fatalf("%s: open = %v", script[n-2].name, err)
	}
	got, err := p.dump()
	if err != nil || got != all[n-2] && got != all[n-1] {
		t.Fatalf("%s: %v, %s", script[n-2].name, err, difference(got, all[n-2]))
	}
	at := n - 2
	if got == all[n-1] {
		at++
	}
	for ; at < n; at++ {
		if err := p.play(at, script[at]); err != nil {
			t.Fatal(err)
		}
	}
	again := disk.Crash(vfs.Choice{Pick: vfs.LoseAll})
	p.log.Close()
	p, err = openPlayer(again, filelog.Options{}, n)
	if err != nil {
		t.Fatalf("%s: the second time: %v", script[n-2].name, err)
	}
	if got, err := p.dump(); err != nil || got != all[n] {
		t.Fatalf("%s: the second time: %v, %s", script[n-2].name, err, difference(got, all[n]))
	}
	p.log.Close()
}

// TestCutTail is the other half of case A8: the file of the last append is cut at every
// byte of it, as far as the sync was not done.
func TestCutTail(t *testing.T) {
	script := []step{createStep(free), appendStep(2, 30, "free-a"), appendStep(3, 40, "free-a", "free-b"), appendStep(1, 3, "free-b")}
	all := states(t, script, filelog.Options{})
	before, _ := lastWrite(t, script[:2])
	between, _ := lastWrite(t, script[:3])
	const file = "0000000000000000001.0.log"
	whole := read(t, between, file)
	first := (len(strings.TrimRight(string(read(t, before, file)), "\x00")) + 7) &^ 7 // the padding was synced too
	end := len(strings.TrimRight(string(whole), "\x00")) + 9
	for n := first; n <= end; n++ {
		disk := between.Snapshot()
		write(t, disk, file, whole[:n])
		livesOn(t, disk.Crash(vfs.Choice{Pick: vfs.KeepAll}), script, all)
	}
}

// TestProvenTail: a record that is gone is damage if one behind it says that it was
// durable, or if the manifest does, as it does once the tail that a killed process left
// was copied.
func TestProvenTail(t *testing.T) {
	script := []step{createStep(free), appendStep(1, 30, "free-a"), appendStep(1, 30, "free-a"), fenceStep("free-a")}
	disk := vfs.NewMem()
	p, err := openPlayer(disk, filelog.Options{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends []int64
	for i, s := range script {
		if err := p.play(i, s); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, p.log.ActiveSize())
	}
	killed := disk.Snapshot()
	p.log.Close()
	gone := killed.Snapshot()
	patch(t, gone, "0000000000000000001.0.log", int(ends[0]), make([]byte, ends[1]-ends[0])...)
	if _, err := readAll(gone); !errors.Is(err, eventstore.ErrCorrupt) {
		t.Errorf("without its second record: %v, want ErrCorrupt", err)
	}
	copied := killed.Snapshot()
	if p, err = openPlayer(copied, filelog.Options{}, 0); err != nil {
		t.Fatal(err)
	}
	again := copied.Snapshot()
	p.log.Close()
	const file = "0000000000000000001.1.log"
	write(t, again, file, read(t, again, file)[:ends[2]])
	if _, err := readAll(again); !errors.Is(err, eventstore.ErrCorrupt) {
		t.Errorf("copied, without its last record: %v, want ErrCorrupt", err)
	}
}

// TestTornTail: what stood behind the last record is gone when the store was opened, and
// does not come back behind records that are written over its beginning.
func TestTornTail(t *testing.T) {
	disk := vfs.NewMem()
	p, err := openPlayer(disk, filelog.Options{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.play(0, createStep(free)); err != nil {
		t.Fatal(err)
	}
	if err := p.log.Close(); err != nil {
		t.Fatal(err)
	}
	disk = disk.Snapshot()
	const file = "0000000000000000001.0.log"
	end := int64(len(read(t, disk, file)))
	if err := p.open(disk); err != nil {
		t.Fatal(err)
	}
	release := p.log.Park()
	done := make(chan error, 2)
	for i, s := range []step{fenceStep("free-a"), fenceStep("free-b")} { // one group, one write
		go func() { done <- (&player{ctx: p.ctx, log: p.log, store: p.store, at: i}).play(i, s) }()
		waitQueued(p, i+1)
	}
	release()
	if err := errors.Join(<-done, <-done); err != nil {
		t.Fatal(err)
	}
	torn := disk.Snapshot()
	p.log.Close()
	patch(t, torn, file, int(end), make([]byte, 64)...) // the first of the two is lost
	if p, err = openPlayer(torn, filelog.Options{}, 0); err != nil {
		t.Fatal(err)
	}
	if err := p.play(0, fenceStep("free-a")); err != nil { // as long as that one
		t.Fatal(err)
	}
	want, err := p.dump()
	if err != nil {
		t.Fatal(err)
	}
	again := torn.Snapshot()
	p.log.Close()
	if got, err := readAll(again); err != nil || got != want {
		t.Errorf("after a kill: %v, %s", err, difference(got, want))
	}
}
