// A big store: loads of streams that are spread over all of it, opening it, and what
// it keeps in memory.

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

const (
	minEntries  = 10_000
	scalePart   = "a big store"
	scaleRounds = 10 // entries of each stream; some have twice as many
	spread      = 50 // one in so many streams has
	scaleData   = 128
)

// growing is the big store while it is filled.
type growing struct {
	*bench
	dir     string
	streams []owner
	entries int
	rng     []*rand.Rand // of each filler
	deck    [][]int32    // streams of each filler, shuffled anew every round
}

func (b *bench) scale() error {
	g := &growing{bench: b, dir: filepath.Join(b.dir, "big"), streams: make([]owner, b.entries/scaleRounds)}
	holder := eventstore.NewUUID()
	for i := range g.streams {
		g.streams[i] = owner{stream: numbered(i), holder: holder}
	}
	for w := range fillers {
		g.rng = append(g.rng, rand.New(rand.NewPCG(uint64(w), 7)))
		var deck []int32
		for i := w; i < len(g.streams); i += fillers {
			deck = append(deck, int32(i))
			if i/fillers%spread == 0 {
				deck = append(deck, int32(i))
			}
		}
		g.deck = append(g.deck, deck)
	}
	if err := g.grow(1); err != nil {
		return err
	}
	if err := g.reopen(); err != nil {
		return err
	}
	if err := g.grow(scaleRounds - 1); err != nil {
		return err
	}
	if err := g.reopen(); err != nil {
		return err
	}
	if err := g.loads(); err != nil {
		return err
	}
	return g.handles()
}

// grow lets every stream have so many entries more.
func (g *growing) grow(rounds int) error {
	fmt.Fprintf(g.log, "scale: %d more entries in %d streams\n", rounds*len(g.streams)*(spread+1)/spread, len(g.streams))
	s, err := open(g.dir, relaxed())
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err = s.CreateCategory(ctx, eventstore.CategorySpec{Name: category}); err != nil {
		return err
	}
	data := payloadOf(scaleData)
	var total atomic.Int64
	start := time.Now()
	err = fill(func(w int) error {
		deck := g.deck[w]
		for range rounds {
			g.rng[w].Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
			for _, i := range deck {
				if err := g.streams[i].append(ctx, s, data, nil); err != nil {
					return err
				}
			}
			total.Add(int64(len(deck)))
		}
		return nil
	})
	took := time.Since(start)
	closing := time.Now()
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	g.entries += int(total.Load())
	g.row(row{Part: scalePart, What: fmt.Sprintf("filling to %s entries, not synced", millions(g.entries)), Unit: "/s", Value: float64(total.Load()) / took.Seconds(),
		Note: fmt.Sprintf("%d fillers, one entry an append; closing took %v", fillers, time.Since(closing).Round(time.Millisecond))})
	return nil
}

func numbered(stream int) eventstore.Stream {
	return eventstore.Stream(fmt.Sprintf("%s-%08d", category, stream))
}

func millions(n int) string { return fmt.Sprintf("%.3g M", float64(n)/1e6) }

// reopen measures opening in processes of its own.
func (g *growing) reopen() error {
	what := fmt.Sprintf("opening at %s entries, %s streams, ", millions(g.entries), millions(len(g.streams)))
	bytes, err := logBytes(g.dir)
	if err != nil {
		return err
	}
	clean, err := g.openings(what + "closed before")
	if err != nil {
		return err
	}
	g.row(row{Part: scalePart, What: "  memory of a stream that nobody uses", Unit: "B", Value: float64(clean.Heap-clean.Before) / float64(len(g.streams)),
		Note: fmt.Sprintf("heap %d MB after a collection, resident %d MB, log of %d MB, %d files open", clean.Heap>>20, clean.Resident>>20, bytes>>20, clean.Files)})
	if _, err := child(childDirty, g.dir, len(g.streams)); err != nil {
		return err
	}
	_, err = g.openings(what + fmt.Sprintf("killed behind %d appends", dirtyAppends(len(g.streams))))
	return err
}

// openings opens several times, after each of which the process ends without closing.
func (g *growing) openings(what string) (opened, error) {
	fmt.Fprintln(g.log, "scale:", what)
	var all []float64
	var last opened
	for range g.repeats {
		o, err := child(childOpen, g.dir, len(g.streams))
		if err != nil {
			return last, err
		}
		all, last = append(all, o.Took), o
	}
	r := ratioOf(all)
	g.row(row{Part: scalePart, What: what, Unit: "ms", Value: r.Median, Note: fmt.Sprintf("%.0f…%.0f; files in the page cache", r.Min, r.Max)})
	return last, nil
}

// loads reads whole streams.
func (g *growing) loads() error {
	s, err := open(g.dir, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx := context.Background()
	names, err := logs(g.dir)
	if err != nil {
		return err
	}
	var files []*os.File
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		files = append(files, f)
	}
	bytes, err := logBytes(g.dir)
	if err != nil {
		return err
	}
	for _, entries := range []int{2 * scaleRounds, scaleRounds} {
		var all []int
		for i := range g.streams {
			if (i/fillers%spread == 0) == (entries == 2*scaleRounds) {
				all = append(all, i)
			}
		}
		rand.New(rand.NewPCG(9, 9)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:min(len(all), 2000)]
		load := func(i int) error { return loadStream(ctx, s, g.streams[i].stream, entries) }
		for _, i := range all { // warm
			if err := load(i); err != nil {
				return err
			}
		}
		next := 0
		p, err := inTurn(g.repeats,
			func() (sample, error) {
				return drive(1, g.d, 1, func(int) error { next++; return load(all[next%len(all)]) })
			},
			func() (sample, error) {
				return drive(1, g.d, 1, func(int) error { return readPlaces(files, entries, int(bytes)/g.entries) })
			})
		if err != nil {
			return err
		}
		p50 := func(s sample) float64 { return s.quantile(.5) }
		g.row(row{Part: scalePart, What: fmt.Sprintf("load of %d entries over %d segments, p50; floor: %d preads", entries, len(files), entries), Unit: "µs",
			Value: medianOf(p.product, p50), Floor: medianOf(p.floor, p50), Ratio: p.ratio(sample.rate),
			Note: fmt.Sprintf("p99 %.0f (%.0f)", medianOf(p.product, func(s sample) float64 { return s.quantile(.99) }),
				medianOf(p.floor, func(s sample) float64 { return s.quantile(.99) }))})
	}
	return nil
}

func loadStream(ctx context.Context, s *eventstore.Store, stream eventstore.Stream, want int) error {
	l, err := s.Load(ctx, stream, "")
	if err != nil {
		return err
	}
	n := 0
	for _, err := range l.Tail {
		if err != nil {
			return err
		}
		n++
	}
	if n != want {
		return fmt.Errorf("%s: wanted %d entries, found %d", stream, want, n)
	}
	return nil
}

// handles reads all over the store with few files allowed.
func (g *growing) handles() error {
	o, err := child(childHandles, g.dir, len(g.streams))
	if err != nil {
		return err
	}
	names, err := logs(g.dir)
	if err != nil {
		return err
	}
	g.row(row{Part: scalePart, What: fmt.Sprintf("files open at most, %d allowed, while reading all over %d segments", fewFiles, len(names)), Unit: "files", Value: float64(o.Files),
		Note: fmt.Sprintf("%d readers, the active segment and the lock beside them; without a bound (%d) it would be all", handleReaders, filelog.DefaultOpenFiles)})
	return nil
}
