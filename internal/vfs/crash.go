// What a disk may hold after the power fails: one image, made by deciding every Point.
//
// Names: an operation on the directory that no SyncDir covered is kept only if all
// earlier ones about its names are. So any prefix may be kept, operations on different
// names are independent, and a renamed file has its old name or its new one.
//
// Files: the size is one of those the file has had since its last Sync, where a write
// that lengthens it does so sector by sector; truncations take effect up to the one that
// led to this size. Of every write each sector's part is lost, kept or garbage, whatever
// became of the size; bytes inside the size that no kept write gave are as they were
// synced, or zero. Garbage never goes beyond the bytes of the write, so what is synced
// stays intact in a sector that is written again.

package vfs

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
)

const sector = 512

// PointKind is what a Point is about.
type PointKind uint8

// The kinds of points.
const (
	PointDirOp  PointKind = iota // is this directory operation Lost or Kept
	PointSize                    // which size has the file: 0 the synced one … N-1 the last one
	PointSector                  // is this part of a write Lost, Kept or Garbage
)

// The answers to PointDirOp and PointSector.
const (
	Lost = iota
	Kept
	Garbage
)

// Point is one thing that a power loss decides.
type Point struct {
	Kind     PointKind
	N        int     // number of possible answers
	Op       Op      // the operation in question; not for a size
	Name     string  // of the file in the image; not for a directory operation
	Off, Len int64   // the part of the write
	Sizes    []int64 // the possible sizes
	SizeOps  []int   // for each but the first, the number of the operation that led to it
}

// Choice decides an image. Pick answers every Point with 0…N-1; it is asked in an order
// that depends on the disk and the answers before alone. Seed makes the garbage.
type Choice struct {
	Seed uint64
	Pick func(Point) int
}

// KeepAll is the Pick of an image with all that is visible, LoseAll with what is durable.
func KeepAll(p Point) int {
	if p.Kind == PointSector {
		return Kept
	}
	return p.N - 1
}

// LoseAll is the contrary of KeepAll.
func LoseAll(Point) int { return 0 }

// Crash returns one legal disk after a power loss now. All of it is durable, and m is
// not changed.
func (m *Mem) Crash(c Choice) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	image := &Mem{inodes: m.inodes, count: m.count, names: map[string]*inode{}}
	m.walk(c.Pick, func(name string, ino *inode, f *fate) {
		content := ino.build(f, c.Seed)
		content.shared = true
		image.names[name] = &inode{id: ino.id, live: content, base: content}
	})
	image.durable = maps.Clone(image.names)
	return image
}

// walk asks all points of a crash and shows each file of the image and its fate, which
// is nil if the file has nothing unsynced.
func (m *Mem) walk(pick func(Point) int, file func(name string, ino *inode, f *fate)) {
	names := m.walkDir(pick)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var f *fate
		ino := names[name]
		if len(ino.ops) > 0 {
			f = ino.walk(name, pick)
		}
		file(name, ino, f)
	}
}

func (m *Mem) walkDir(pick func(Point) int) map[string]*inode {
	names := maps.Clone(m.durable)
	lost := map[string]bool{} // names with a lost operation: the later ones are lost with it
	for _, o := range m.dirOps {
		if !lost[o.Name] && !lost[o.To] && pick(Point{Kind: PointDirOp, N: 2, Op: o.Op}) == Kept {
			o.apply(names)
			continue
		}
		lost[o.Name] = true
		if o.To != "" {
			lost[o.To] = true
		}
	}
	return names
}

// step is a change of a file's size by the op with this index.
type step struct {
	op   int
	size int64
}

// steps lists how the size changed since the last Sync.
func (i *inode) steps() (all []step) {
	size := int64(len(i.base.b))
	for n, o := range i.ops {
		to := size
		switch end := o.Off + o.Len; {
		case o.Kind == OpTruncate:
			to = o.Off
		case o.Kind == OpAllocate:
			to = max(size, end)
		case end > size:
			to = end
			for s := (max(size, o.Off)/sector + 1) * sector; s < end; s += sector {
				all = append(all, step{n, s})
			}
		}
		if to != size {
			all = append(all, step{n, to})
		}
		size = to
	}
	return all
}

// fate is what becomes of a file.
type fate struct {
	size  int64
	cut   []bool // by op: it is a truncation that took effect
	parts []part
}

// part is a kept or garbled part of the write with this index.
type part struct {
	op       int
	off, end int64
	garbage  bool
}

func (i *inode) walk(name string, pick func(Point) int) *fate {
	steps := i.steps()
	f := &fate{size: int64(len(i.base.b)), cut: make([]bool, len(i.ops))}
	if len(steps) > 0 {
		p := Point{Kind: PointSize, N: len(steps) + 1, Name: name, Sizes: []int64{f.size}}
		for _, s := range steps {
			p.Sizes = append(p.Sizes, s.size)
			p.SizeOps = append(p.SizeOps, i.ops[s.op].N)
		}
		for _, s := range steps[:pick(p)] {
			f.size = s.size
			f.cut[s.op] = i.ops[s.op].Kind == OpTruncate
		}
	}
	limits := i.limits(f)
	for n, o := range i.ops {
		if o.Kind != OpWrite {
			continue
		}
		for off := o.Off; off < min(o.Off+o.Len, limits[n]); {
			end := min((off/sector+1)*sector, o.Off+o.Len, limits[n])
			got := pick(Point{Kind: PointSector, N: 3, Op: o.Op, Name: name, Off: off, Len: end - off})
			if got != Lost {
				f.parts = append(f.parts, part{n, off, end, got == Garbage})
			}
			off = end
		}
	}
	return f
}

// limits says for each op where bytes it writes cease to matter: they are beyond the
// size, or a later truncation removes them.
func (i *inode) limits(f *fate) []int64 {
	limits := make([]int64, len(i.ops))
	limit := f.size
	for n := len(i.ops) - 1; n >= 0; n-- {
		limits[n] = limit
		if f.cut[n] {
			limit = min(limit, i.ops[n].Off)
		}
	}
	return limits
}

// build makes the content of a file in an image.
func (i *inode) build(f *fate, seed uint64) blob {
	content := i.base.share()
	if f == nil {
		return content
	}
	parts := f.parts
	for n, o := range i.ops {
		if f.cut[n] {
			content.resize(int(o.Off))
		}
		for ; len(parts) > 0 && parts[0].op == n; parts = parts[1:] {
			p := parts[0]
			data := o.data[p.off-o.Off : p.end-o.Off]
			if p.garbage {
				data = garbage(seed, i.id, o.N, p)
			}
			content.write(data, int(p.off))
		}
	}
	content.resize(int(f.size))
	return content
}

func garbage(seed uint64, id, n int, p part) []byte {
	r := rand.NewPCG(seed, uint64(id)<<48^uint64(n)<<32^uint64(p.off))
	data := make([]byte, p.end-p.off+7)
	for at := 0; at+8 <= len(data); at += 8 {
		binary.LittleEndian.PutUint64(data[at:], r.Uint64())
	}
	return data[:p.end-p.off]
}
