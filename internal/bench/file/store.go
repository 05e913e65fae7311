// Stores to measure: opened, filled with one entry an append, as they come to be.

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

const category = "bench"

// payloadOf returns bytes that do not repeat at a glance, and are the same every time.
func payloadOf(n int) []byte {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	data := make([]byte, n)
	for i := range data {
		data[i] = letters[random.IntN(len(letters))]
	}
	return data
}

func open(dir string, o *filelog.Options) (*eventstore.Store, error) {
	log, err := filelog.Open(dir, o)
	if err != nil {
		return nil, err
	}
	return eventstore.New(log, nil), nil
}

// owner appends to a stream as its warm owner does: every append states the mark of the
// one before, and the first one claims the stream.
type owner struct {
	stream eventstore.Stream
	last   eventstore.Mark
	holder eventstore.UUID
	epoch  eventstore.Epoch // before the first append; 1 from then on
}

func (o *owner) append(ctx context.Context, s *eventstore.Store, data []byte, meta eventstore.Metadata) error {
	b := eventstore.Batch{Stream: o.stream, Epoch: 1, Holder: o.holder, Claim: o.epoch == 0, After: o.last,
		Events: []eventstore.Event{{Type: "bench.happened", Data: data, Metadata: meta}}}
	done, err := s.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
	if err == nil {
		o.epoch, o.last = 1, done.Receipts[0].Last
	}
	return err
}

// relaxed are the options for filling: nothing is measured, so nothing is synced.
func relaxed() *filelog.Options { return &filelog.Options{MayLose: time.Minute} }

// fillers append in parallel.
const fillers = 128

// fill lets each of several goroutines append by itself.
func fill(do func(worker int) error) error {
	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	for w := range fillers {
		all.Go(func() {
			err := do(w)
			mu.Lock()
			defer mu.Unlock()
			failed = cmp.Or(failed, err)
		})
	}
	all.Wait()
	return failed
}

// filled makes a store of n entries in so many streams, and closes it.
func filled(dir string, n, streams int, category func(stream int) eventstore.Category, data []byte, meta func() eventstore.Metadata) error {
	ctx := context.Background()
	s, err := open(dir, relaxed())
	if err != nil {
		return err
	}
	made := map[eventstore.Category]bool{}
	for i := range streams {
		if c := category(i); !made[c] {
			err = errors.Join(err, s.CreateCategory(ctx, eventstore.CategorySpec{Name: c}))
			made[c] = true
		}
	}
	err = cmp.Or(err, fill(func(w int) error {
		var mine []owner
		for i := w; i < streams; i += fillers {
			mine = append(mine, owner{stream: eventstore.Stream(fmt.Sprintf("%s-%07d", category(i), i)), holder: eventstore.NewUUID()})
		}
		for i := range n * len(mine) / streams {
			var m eventstore.Metadata
			if meta != nil {
				m = meta()
			}
			if err := mine[i%len(mine)].append(ctx, s, data, m); err != nil {
				return err
			}
		}
		return nil
	}))
	return errors.Join(err, s.Close())
}
