// Appends against the floor: one goroutine that writes as many bytes a round as the
// writers' records take together, and syncs.

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/internal/vfs"
)

const streamsEach = 16 // of a writer, in turn

func (b *bench) appends() error {
	for _, payload := range []int{256, 900} {
		if err := b.appendsOf(payload); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) appendsOf(payload int) error {
	dir := filepath.Join(b.dir, fmt.Sprint("appends-", payload))
	data := payloadOf(payload)
	size, err := recordSize(dir+"-size", data)
	if err != nil {
		return err
	}
	fs, err := vfs.OS(dir+"-floor", nil)
	if err != nil {
		return err
	}
	defer fs.Close()
	floor := &floor{fs: fs}
	defer floor.close()
	s, err := open(dir, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.CreateCategory(context.Background(), eventstore.CategorySpec{Name: category}); err != nil {
		return err
	}
	for _, n := range b.writers {
		fmt.Fprintf(b.log, "appends: %d bytes, %d writers\n", payload, n)
		if err := b.appendsBy(s, floor, n, data, size); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) appendsBy(s *eventstore.Store, floor *floor, n int, data []byte, size int) error {
	step, err := owners(s, n, data)
	if err != nil {
		return err
	}
	round := payloadOf(n * size)
	p, err := inTurn(b.repeats,
		func() (sample, error) { return drive(n, b.d, 1, step) },
		func() (sample, error) { return drive(1, b.d, n, func(int) error { return floor.write(round) }) })
	if err != nil {
		return err
	}
	r := row{Part: "appends of one entry, each synced", What: fmt.Sprintf("%d writers, %d B of data, records of %d B", n, len(data), size), Unit: "/s",
		Value: medianOf(p.product, sample.rate), Floor: medianOf(p.floor, sample.rate), Ratio: p.ratio(sample.rate)}
	if n == 64 {
		r.Wanted = 0.8
	}
	us := func(all []sample, q float64) float64 {
		return medianOf(all, func(s sample) float64 { return s.quantile(q) })
	}
	r.Note = fmt.Sprintf("p50 %.0f µs, p99 %.0f µs (a sync of the floor %.0f, %.0f); CPU %.1f µs (%.1f)", us(p.product, .5), us(p.product, .99),
		us(p.floor, .5), us(p.floor, .99), medianOf(p.product, sample.cpuEach), medianOf(p.floor, sample.cpuEach))
	b.row(r)
	return nil
}

// owners returns the step of n writers, each with streams of its own that it has
// claimed: the first append of a stream is another thing.
func owners(s *eventstore.Store, n int, data []byte) (func(w int) error, error) {
	ctx := context.Background()
	all := make([][]owner, n)
	turn := make([]int, n)
	for w := range all {
		for i := range streamsEach {
			o := owner{stream: eventstore.Stream(fmt.Sprintf("%s-%d-%d-%s", category, w, i, eventstore.NewUUID())), holder: eventstore.NewUUID()}
			if err := o.append(ctx, s, data, nil); err != nil {
				return nil, err
			}
			all[w] = append(all[w], o)
		}
	}
	return func(w int) error {
		turn[w]++
		return all[w][turn[w]%streamsEach].append(ctx, s, data, nil)
	}, nil
}

// recordSize tells how many bytes of the log one append takes.
func recordSize(dir string, data []byte) (int, error) {
	defer os.RemoveAll(dir)
	const n = 4000 // beside which the head of the file and the category are nothing
	err := filled(dir, n, streamsEach, func(int) eventstore.Category { return category }, data, nil)
	if err != nil {
		return 0, err
	}
	bytes, err := logBytes(dir)
	return int(bytes/n) &^ 7, err // records begin at multiples of 8
}

// logs returns the segments of a closed store, in order.
func logs(dir string) ([]string, error) { return filepath.Glob(filepath.Join(dir, "*.log")) }

func logBytes(dir string) (n int64, err error) {
	names, err := logs(dir)
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return 0, err
		}
		n += info.Size()
	}
	return n, err
}

// floor writes and syncs by the same calls as filelog, into files of the same length
// that are made longer in the same steps.
type floor struct {
	fs              vfs.FS
	file            vfs.File
	files           int
	size, allocated int64
}

func (f *floor) write(b []byte) error {
	if f.file == nil || f.size+int64(len(b)) > filelog.DefaultSegmentBytes {
		if err := f.next(); err != nil {
			return err
		}
	}
	if to := f.size + int64(len(b)); to > f.allocated {
		to = max(to, min(f.allocated+min(max(f.size, 64<<10), 8<<20), filelog.DefaultSegmentBytes))
		if err := f.file.Allocate(f.allocated, to); err != nil {
			return err
		}
		f.allocated = to
	}
	if _, err := f.file.WriteAt(b, f.size); err != nil {
		return err
	}
	f.size += int64(len(b))
	return f.file.Sync()
}

func (f *floor) next() (err error) {
	f.close()
	f.files++
	f.size, f.allocated = 0, 0
	f.file, err = f.fs.Create(fmt.Sprint(f.files))
	return err
}

func (f *floor) close() {
	if f.file != nil {
		f.file.Close()
	}
}
