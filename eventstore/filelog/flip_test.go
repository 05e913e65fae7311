// Damage: what was written is not what is read. It is found, or it did no harm.

package filelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/internal/vfs"
)

// damaged is a store that is to be damaged.
type damaged struct {
	t     *testing.T
	disk  *vfs.Mem
	want  []string // the states that it may show
	tries int
	found int   // how often the damage was found
	last  int64 // where the last record of the newest segment begins
}

// damageScript makes a store of a few small files: a segment rewritten, one sealed, one
// active, with every kind of record in them.
func damageScript() []step {
	s := shortScript()
	s = append(s[:len(s)-1], appendStep(1, 500, "free-c"), appendStep(1, 420, "free-b"), trimStep("free-c", 0), reclaimStep)
	return append(s, appendStep(1, 200, "strict-a"), snapshotStep("strict-a", 9), appendStep(2, 5, "free-b", "strict-a"), fenceStep("strict-a"))
}

// clean is the store closed; unclean is as a killed process leaves it.
func stores(t *testing.T) (clean, unclean damaged) {
	t.Helper()
	script, o := damageScript(), filelog.Options{SegmentBytes: filelog.MinSegmentBytes}
	all := states(t, script, o)
	disk := vfs.NewMem()
	p, err := openPlayer(disk, o, 0)
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	for i, s := range script {
		last = p.log.ActiveSize()
		if err := p.play(i, s); err != nil {
			t.Fatal(err)
		}
	}
	unclean = damaged{t: t, disk: disk.Snapshot(), want: all[len(all)-1:], last: last}
	if err := p.log.Close(); err != nil {
		t.Fatal(err)
	}
	return damaged{t: t, disk: disk.Snapshot(), want: all[len(all)-1:]}, unclean
}

func (d *damaged) files() []string {
	names, err := d.disk.List()
	if err != nil {
		d.t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "LOCK" })
}

// newest returns the active segment.
func (d *damaged) newest() string {
	logs := slices.DeleteFunc(d.files(), func(name string) bool { return !strings.HasSuffix(name, ".log") })
	return logs[len(logs)-1]
}

func read(t *testing.T, disk vfs.FS, name string) []byte {
	t.Helper()
	f, err := disk.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		t.Fatal(err)
	}
	return b
}

// write puts a file in place of what is there.
func write(t *testing.T, disk vfs.FS, name string, b []byte) {
	t.Helper()
	disk.Remove(name)
	f, err := disk.Create(name)
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// try damages a copy of the store and reads all of it. must says that the damage has to
// be found. What is found names the file, or one of them.
func (d *damaged) try(what string, must bool, names []string, damage func(*vfs.Mem)) {
	d.t.Helper()
	d.tries++
	disk := d.disk.Snapshot()
	damage(disk)
	got, err := readAll(disk)
	named := func() bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(err.Error(), name) })
	}
	switch {
	case errors.Is(err, errSkipped):
		d.found++
	case err != nil && (!errors.Is(err, eventstore.ErrCorrupt) || !named()):
		d.t.Errorf("%s: %v, want ErrCorrupt that names %v", what, err, names)
	case err != nil:
		d.found++
	case must:
		d.t.Errorf("%s: not found", what)
	case !slices.Contains(d.want, got):
		d.t.Errorf("%s: other data, and no error: %s", what, difference(got, d.want[0]))
	}
}

// readAll opens a store, reads everything, and has it verified if the log can.
func readAll(disk vfs.FS) (string, error) {
	p, err := openPlayer(disk, filelog.Options{SegmentBytes: filelog.MinSegmentBytes}, 1000)
	if err != nil {
		return "", err
	}
	defer p.log.Close()
	return p.dump()
}

// TestFlip turns every bit of every file, of a store that was closed and of one that was
// not.
func TestFlip(t *testing.T) {
	clean, unclean := stores(t)
	for name, d := range map[string]*damaged{"closed": &clean, "killed": &unclean} {
		t.Run(name, func(t *testing.T) {
			d.t = t
			for _, file := range d.files() {
				b := read(t, d.disk, file)
				for bit := 0; bit < len(b)*8 && !t.Failed(); bit += scale(7, 5, 1) {
					d.try(fmt.Sprintf("bit %d of %s", bit, file), false, []string{file}, func(disk *vfs.Mem) {
						patch(t, disk, file, bit/8, b[bit/8]^1<<(bit%8))
					})
				}
			}
			t.Logf("%d bits, %d of them found", d.tries, d.found)
		})
	}
}

func patch(t *testing.T, disk vfs.FS, file string, at int, b ...byte) {
	t.Helper()
	f, err := disk.Open(file)
	if err == nil {
		_, err = f.WriteAt(b, int64(at))
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// TestCutFile cuts every file at every length, and sets pages of it to zero. Of a store
// that was not closed that may look like a torn tail: then what is there is what was
// there at some time.
func TestCutFile(t *testing.T) {
	clean, unclean := stores(t)
	unclean.want = states(t, damageScript(), filelog.Options{SegmentBytes: filelog.MinSegmentBytes})
	for name, d := range map[string]*damaged{"closed": &clean, "killed": &unclean} {
		t.Run(name, func(t *testing.T) {
			d.t = t
			newest := d.newest()
			for _, file := range d.files() {
				b := read(t, d.disk, file)
				for n := 0; n < len(b) && !t.Failed(); n += scale(11, 3, 1) {
					d.try(fmt.Sprintf("%s cut at %d", file, n), false, []string{file}, func(disk *vfs.Mem) { write(t, disk, file, b[:n]) })
				}
				for at := 0; at < len(b) && !t.Failed(); at += 64 {
					zeroed, end := slices.Clone(b), min(at+512, len(b))
					clear(zeroed[at:end])
					// The last record says that those before it were durable.
					must := file == newest && int64(end) <= d.last && !bytes.Equal(zeroed, b)
					d.try(fmt.Sprintf("page of %s at %d zeroed", file, at), must, []string{file}, func(disk *vfs.Mem) { write(t, disk, file, zeroed) })
				}
			}
			t.Logf("%d cuts and pages, %d of them found", d.tries, d.found)
		})
	}
}

// TestStrangeFiles puts files in the place of others, or nothing.
func TestStrangeFiles(t *testing.T) {
	d, _ := stores(t)
	other, _ := stores(t) // the same names and sizes, another store
	files := d.files()
	for _, file := range files {
		index := strings.HasSuffix(file, ".idx")
		d.try(file+" missing", !index, []string{file}, func(disk *vfs.Mem) { disk.Remove(file) })
		if !strings.HasSuffix(file, ".log") {
			b := read(t, other.disk, file)
			d.try(file+" of another store", !index, append(files, "MANIFEST"), func(disk *vfs.Mem) { write(t, disk, file, b) })
		}
		for _, with := range files {
			if file[len(file)-4:] == with[len(with)-4:] && file < with {
				a, b := read(t, d.disk, file), read(t, d.disk, with)
				d.try(file+" and "+with+" swapped", !index, []string{file, with}, func(disk *vfs.Mem) { write(t, disk, file, b); write(t, disk, with, a) })
			}
		}
	}
	d.try("no LOCK", false, nil, func(disk *vfs.Mem) { disk.Remove("LOCK") })
	d.otherTimes()
	t.Logf("%d disks, %d of them found; the files are %v", d.tries, d.found, files)
}

// otherTimes puts back what files held some steps before.
func (d *damaged) otherTimes() {
	d.t.Helper()
	earlier := map[string][]byte{}
	disk, o := d.disk.Snapshot(), filelog.Options{SegmentBytes: filelog.MinSegmentBytes}
	for i, s := range []step{appendStep(1, 3, "free-b"), fenceStep("free-b"), appendStep(1, 900, "free-b")} {
		for _, file := range d.files() {
			earlier[file] = read(d.t, disk, file)
		}
		p, err := openPlayer(disk, o, i)
		if err == nil {
			err = p.play(i, s)
		}
		if err == nil {
			err = p.log.Close()
		}
		if err != nil {
			d.t.Fatal(err)
		}
		disk = disk.Snapshot()
		now, err := readAll(disk.Snapshot())
		if err != nil {
			d.t.Fatal(err)
		}
		later := damaged{t: d.t, disk: disk, want: []string{now}}
		for _, file := range later.files() {
			if old, ok := earlier[file]; ok {
				later.try(file+" of another time", false, append(later.files(), d.files()...), func(disk *vfs.Mem) { write(d.t, disk, file, old) })
			}
			if strings.HasSuffix(file, ".reg") {
				for name, old := range earlier {
					if strings.HasSuffix(name, ".reg") {
						later.try("registry of another time", name != file, []string{file}, func(disk *vfs.Mem) { write(d.t, disk, file, old) })
					}
				}
			}
		}
		d.disk, d.tries, d.found = disk.Snapshot(), d.tries+later.tries, d.found+later.found
	}
}

// TestDivergedCopy: of two copies of a store that went different ways, to the same
// position, no file of one serves the other.
func TestDivergedCopy(t *testing.T) {
	d, _ := stores(t)
	var copies []damaged
	for i := range 2 {
		disk := d.disk.Snapshot()
		p, err := openPlayer(disk, filelog.Options{}, 0)
		if err == nil {
			err = p.play(100+i, fenceStep("strict-a"))
		}
		if err == nil {
			err = p.log.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		copies = append(copies, damaged{t: t, disk: disk.Snapshot()})
	}
	for _, file := range copies[0].files() {
		if a, b := read(t, copies[0].disk, file), read(t, copies[1].disk, file); !bytes.Equal(a, b) && !strings.HasSuffix(file, ".log") {
			copies[0].try(file+" of a copy", true, copies[0].files(), func(disk *vfs.Mem) { write(t, disk, file, b) })
		}
	}
	if copies[0].tries < 2 {
		t.Errorf("%d files differ, want the manifest and the registry at least", copies[0].tries)
	}
}
