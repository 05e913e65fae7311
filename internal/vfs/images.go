// The disks that a power loss may leave: all of them where they are few, else the
// extremes and a sample.

package vfs

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"strings"
)

// Images yields, each with a description, the legal disks after a power loss at the time
// of the call: all if there are no more than limit (disks that happen to be equal come
// more than once), else limit of them: first the extremes, then up to half of limit with
// one thing amiss, then random ones. The same disk, limit and rng give the same images.
// The disk may be used in the meantime, by the loop body too.
func (m *Mem) Images(limit int, rng *rand.Rand) iter.Seq2[string, *Mem] {
	s := m.Snapshot()
	seed, order := rng.Uint64(), rng.Uint64()
	return func(yield func(string, *Mem) bool) {
		choices := s.all()
		if s.more(limit) {
			choices = s.sample(limit, rand.New(rand.NewPCG(seed, order)))
		}
		for title, pick := range choices {
			d := describer{pick: pick}
			image := s.Crash(Choice{Seed: seed, Pick: d.point})
			if !yield(fmt.Sprintf("%s:%s (garbage %#x)", title, d.String(), seed), image) {
				return
			}
		}
	}
}

type pick = func(Point) int

// points lists what a crash decides if all else is kept.
func (m *Mem) points() (all []Point) {
	m.walk(func(p Point) int { all = append(all, p); return KeepAll(p) }, func(string, *inode, *fate) {})
	return all
}

// more says if there are more images than limit.
func (m *Mem) more(limit int) bool {
	sectors := 0
	for _, p := range m.points() {
		if p.Kind == PointSector {
			sectors++
		}
	}
	if float64(sectors)*math.Log(3) > math.Log(float64(limit))+1 {
		return true // these alone, which are independent, are too many to count
	}
	n := 0
	for _, pick := range m.all() {
		m.walk(pick, func(string, *inode, *fate) {})
		if n++; n > limit {
			return true
		}
	}
	return false
}

// all yields the choices of all images. Each must be used for a walk before the next:
// that tells which points there are.
func (m *Mem) all() iter.Seq2[string, pick] {
	return func(yield func(string, pick) bool) {
		var answers, numbers []int
		for {
			at := 0
			next := func(p Point) int {
				if at == len(answers) {
					answers, numbers = append(answers, 0), append(numbers, p.N)
				}
				at++
				return answers[at-1]
			}
			if !yield("image", next) {
				return
			}
			last := len(answers) - 1
			for ; last >= 0 && answers[last] == numbers[last]-1; last-- {
			}
			if last < 0 {
				return
			}
			answers, numbers = answers[:last+1], numbers[:last+1]
			answers[last]++
		}
	}
}

// sample yields the choices of limit images.
func (m *Mem) sample(limit int, rng *rand.Rand) iter.Seq2[string, pick] {
	return func(yield func(string, pick) bool) {
		points := m.points()
		n := 0
		show := func(title string, pick pick) bool { n++; return n <= limit && yield(title, pick) }
		for _, e := range extremes(points) {
			if !show(e.title, e.pick) {
				return
			}
		}
		singles := singles(points)
		rng.Shuffle(len(singles), func(i, j int) { singles[i], singles[j] = singles[j], singles[i] })
		for _, s := range singles[:min(len(singles), max(0, limit-n)/2)] {
			if !show(fmt.Sprintf("point %d alone", s.at), but(s.at, s.answer)) {
				return
			}
		}
		for {
			title, pick := random(points, rng)
			if !show(title, pick) {
				return
			}
		}
	}
}

type extreme struct {
	title string
	pick  pick
}

func extremes(points []Point) []extreme {
	first, last := span(points)
	sectors := func(answer func(Op) int) pick {
		return func(p Point) int {
			if p.Kind == PointSector {
				return answer(p.Op)
			}
			return KeepAll(p)
		}
	}
	where := func(cond bool) int {
		if cond {
			return Kept
		}
		return Lost
	}
	return []extreme{
		{"all lost", LoseAll},
		{"all kept", KeepAll},
		{"sizes and names without data", sectors(func(Op) int { return Lost })},
		{"all garbage", sectors(func(Op) int { return Garbage })},
		{"only the last write kept", sectors(func(o Op) int { return where(o.N == last) })},
		{"only the first write lost", sectors(func(o Op) int { return where(o.N != first) })},
		{"data without names and sizes", func(p Point) int { return where(p.Kind == PointSector) }},
		{"data and sizes without names", func(p Point) int {
			if p.Kind == PointDirOp {
				return Lost
			}
			return KeepAll(p)
		}},
	}
}

// span returns the numbers of the first and the last write.
func span(points []Point) (first, last int) {
	first = math.MaxInt
	for _, p := range points {
		if p.Kind == PointSector {
			first, last = min(first, p.Op.N), max(last, p.Op.N)
		}
	}
	return first, last
}

type single struct{ at, answer int }

// singles lists the answers that are not KeepAll's.
func singles(points []Point) (all []single) {
	for at, p := range points {
		for answer := range p.N {
			if answer != KeepAll(p) {
				all = append(all, single{at, answer})
			}
		}
	}
	return all
}

// but is KeepAll except at one point.
func but(at, answer int) pick {
	n := -1
	return func(p Point) int {
		if n++; n == at {
			return answer
		}
		return KeepAll(p)
	}
}

// random makes a choice in one of the ways in which disks fail.
func random(points []Point, rng *rand.Rand) (string, pick) {
	switch rng.IntN(5) {
	case 0:
		return "each alike", func(p Point) int { return rng.IntN(p.N) }
	case 1:
		return "few lost", mostly(KeepAll, 1-rng.Float64()/4, rng)
	case 2:
		return "few kept", mostly(LoseAll, 1-rng.Float64()/4, rng)
	case 3:
		kept := map[int]bool{}
		return "whole operations", func(p Point) int {
			if p.Kind == PointSize {
				return rng.IntN(p.N)
			}
			if _, ok := kept[p.Op.N]; !ok {
				kept[p.Op.N] = rng.IntN(2) == 0
			}
			if kept[p.Op.N] {
				return Kept
			}
			return Lost
		}
	default:
		return prefix(points, rng)
	}
}

// mostly answers as usual does with a probability, else at random.
func mostly(usual pick, with float64, rng *rand.Rand) pick {
	return func(p Point) int {
		if rng.Float64() < with {
			return usual(p)
		}
		return rng.IntN(p.N)
	}
}

// prefix keeps all before some operation, which it tears, and loses all after it.
func prefix(points []Point, rng *rand.Rand) (string, pick) {
	var ops []int
	for _, p := range points {
		if p.Kind == PointSize {
			ops = append(ops, p.SizeOps...)
		} else {
			ops = append(ops, p.Op.N)
		}
	}
	at := ops[rng.IntN(len(ops))]
	return fmt.Sprintf("up to operation %d", at), func(p Point) int {
		if p.Kind == PointSize {
			least, most := 0, 0
			for _, n := range p.SizeOps {
				if n < at {
					least++
				}
				if n <= at {
					most++
				}
			}
			return least + rng.IntN(most-least+1)
		}
		switch {
		case p.Op.N < at:
			return Kept
		case p.Op.N > at:
			return Lost
		}
		return rng.IntN(p.N)
	}
}

// describer writes down the answers of a pick.
type describer struct {
	strings.Builder
	pick pick
	last int // the write whose sectors are being listed
}

func (d *describer) point(p Point) int {
	got := d.pick(p)
	switch p.Kind {
	case PointDirOp:
		fmt.Fprintf(d, " %c[%v]", "-+"[got], p.Op)
	case PointSize:
		fmt.Fprintf(d, " %s=%d of %d", p.Name, p.Sizes[got], p.Sizes[p.N-1])
	case PointSector:
		if d.last != p.Op.N {
			fmt.Fprintf(d, " %s[%v]=", p.Name, p.Op)
			d.last = p.Op.N
		}
		d.WriteByte("-+x"[got])
	}
	return got
}
