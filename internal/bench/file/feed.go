// Readers of the feed against a sequential read of the same bytes, both from the page
// cache and from the disk.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

const (
	feedPart    = "feed, from its beginning"
	feedStreams = 1000
)

func (b *bench) feed() error {
	one := func(int) eventstore.Category { return category }
	for _, payload := range []int{256, 900} {
		for _, meta := range []bool{false, true} {
			name := fmt.Sprintf("feed-%d-%t", payload, meta)
			fmt.Fprintf(b.log, "feed: %d bytes, metadata %t\n", payload, meta)
			var with func() eventstore.Metadata
			what := fmt.Sprintf("%d B of data", payload)
			if meta {
				with, what = metadata, what+", metadata of three IDs"
			}
			dir := filepath.Join(b.dir, name)
			if err := filled(dir, b.entries/50, feedStreams, one, payloadOf(payload), with); err != nil {
				return err
			}
			if err := b.catchUp(dir, what); err != nil {
				return err
			}
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return b.smallCategory()
}

// metadata is that of an event that a command led to.
func metadata() eventstore.Metadata {
	id := func() string { return eventstore.NewUUID().String() }
	return eventstore.Metadata{eventstore.MetaCorrelation: id(), eventstore.MetaCausation: id(), eventstore.MetaCommand: id()}
}

func (b *bench) catchUp(dir, what string) error {
	s, err := open(dir, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	bytes, err := logBytes(dir)
	if err != nil {
		return err
	}
	n, err := readFeed(s, eventstore.Filter{})
	if err != nil {
		return err
	}
	for _, cold := range []bool{false, true} {
		prepare, where := func() error { return nil }, "page cache"
		if cold {
			prepare, where = func() error { return evict(dir) }, "disk"
		}
		p, err := inTurn(b.repeats,
			func() (sample, error) {
				return timed(prepare, func() (int, error) { return readFeed(s, eventstore.Filter{}) })
			},
			func() (sample, error) {
				return timed(prepare, func() (int, error) { return n, readFiles(dir) })
			})
		if errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		if err != nil {
			return err
		}
		r := row{Part: feedPart, What: what + ", " + where, Unit: "MB/s", Wanted: 0.5, Ratio: p.ratio(sample.rate)}
		r.Value = medianOf(p.product, sample.rate) * float64(bytes) / float64(n) / 1e6
		r.Floor = medianOf(p.floor, sample.rate) * float64(bytes) / float64(n) / 1e6
		r.Note = fmt.Sprintf("%.0f entries/s, %.2f µs of CPU each", medianOf(p.product, sample.rate), medianOf(p.product, sample.cpuEach))
		b.row(r)
	}
	return nil
}

// smallCategory reads a category that has one in a hundred entries.
func (b *bench) smallCategory() error {
	fmt.Fprintln(b.log, "feed: a small category among large ones")
	dir := filepath.Join(b.dir, "feed-small")
	of := func(stream int) eventstore.Category {
		switch {
		case stream%100 == 0:
			return "small"
		case stream%2 == 0:
			return "even"
		}
		return "odd"
	}
	if err := filled(dir, b.entries/50, 6400, of, payloadOf(256), nil); err != nil {
		return err
	}
	s, err := open(dir, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	small := eventstore.Filter{Categories: []eventstore.Category{"small"}}
	n, err := readFeed(s, small)
	if err != nil {
		return err
	}
	total, err := readFeed(s, eventstore.Filter{})
	if err != nil {
		return err
	}
	bytes, err := logBytes(dir)
	if err != nil {
		return err
	}
	bytes = bytes * int64(n) / int64(total)
	same := filepath.Join(b.dir, "feed-same")
	if err := os.Mkdir(same, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(same, "same.log"), payloadOf(int(bytes)), 0o600); err != nil {
		return err
	}
	none := func() error { return nil }
	read := func() (sample, error) {
		return timed(none, func() (int, error) { return readFeed(s, small) })
	}
	p, err := inTurn(b.repeats, read, func() (sample, error) { return timed(none, func() (int, error) { return n, readFiles(same) }) })
	if err != nil {
		return err
	}
	whole, err := inTurn(b.repeats, read, func() (sample, error) {
		return timed(none, func() (int, error) { _, err := readFeed(s, eventstore.Filter{}); return n, err })
	})
	if err != nil {
		return err
	}
	ms := func(s sample) float64 { return micros(s.took) / 1000 }
	b.row(row{Part: feedPart, What: fmt.Sprintf("a category with %d of %d entries; floor: its bytes in one piece", n, total), Unit: "ms",
		Value: medianOf(p.product, ms), Floor: medianOf(p.floor, ms), Ratio: p.ratio(sample.rate),
		Note: fmt.Sprintf("%.2f µs an entry", medianOf(p.product, ms)*1000/float64(n))})
	b.row(row{Part: feedPart, What: "the same; floor: reading all categories", Unit: "ms",
		Value: medianOf(whole.product, ms), Floor: medianOf(whole.floor, ms), Ratio: whole.ratio(sample.rate)})
	return nil
}

func timed(prepare func() error, read func() (int, error)) (s sample, err error) {
	if err := prepare(); err != nil {
		return s, err
	}
	start, cpu := time.Now(), ownCPU()
	s.n, err = read()
	s.took, s.cpu = time.Since(start), ownCPU()-cpu
	return s, err
}

func readFeed(s *eventstore.Store, f eventstore.Filter) (n int, err error) {
	for _, err := range s.Feed(context.Background(), 0, f) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// readFiles reads the segments of a directory from end to end.
func readFiles(dir string) error {
	names, err := logs(dir)
	if err != nil {
		return err
	}
	b := make([]byte, 1<<20)
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, b)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// readPlaces reads n pieces of a size at random places of the segments.
func readPlaces(files []*os.File, n, size int) error {
	b := make([]byte, size)
	for range n {
		f := files[rand.IntN(len(files))]
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if _, err := f.ReadAt(b, rand.Int64N(max(info.Size()-int64(size), 1))); err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}
