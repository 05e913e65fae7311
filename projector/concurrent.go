// ConcurrentSink: effects outside of any transaction, on several keys at once.

package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// ConcurrentSink is [Sink] for a function that takes one entry at a time and waits
// long for what it calls: within a batch up to n keys are worked on at once, 1 to
// MaxSinkKeys. A key is that of a stream, so the entries of one key are handled in
// order, also where they stand in several categories; there is no order between keys.
//
// When f fails for an entry, or panics, nothing that stands behind it in the batch is
// begun any more; what stands before it is finished, and what was begun is waited for.
// When ctx ends nothing is begun any more. Then the checkpoint is kept before the first
// entry that is not finished, so that none is ever skipped, and Handle returns the
// *EntryError of that entry, or ctx's error. Entries behind it that were finished come
// again, as after a crash: at least once, told from the repetition by key (projector,
// version) and position. (In a step that changes what is parked nothing is kept then, and
// the projector takes a shorter one.)
//
// f may be called from n goroutines at once, with a step of one lane; another lane has
// n of its own. f does not see what is [Quiet]. A wrong n or nil is the ErrInvalid of
// every method.
func ConcurrentSink(c Checkpoints, n int, f func(ctx context.Context, key Key, e eventstore.Entry) error) Handler {
	if n < 1 || n > MaxSinkKeys || c == nil || f == nil {
		c = mistaken{&eventstore.Error{Kind: eventstore.ErrInvalid, Op: "project", Found: fmt.Sprintf("%d keys, or nil", n),
			Wanted: fmt.Sprintf("checkpoints, a function and 1 to %d keys at once", MaxSinkKeys)}}
	}
	return &concurrentSink{Checkpoints: c, n: n, f: f}
}

type concurrentSink struct {
	Checkpoints
	n int
	f func(ctx context.Context, key Key, e eventstore.Entry) error
}

// mistaken are the checkpoints of a handler that was made wrongly.
type mistaken struct{ err error }

func (m mistaken) Load(context.Context, Key) (Checkpoint, error) { return Checkpoint{}, m.err }
func (m mistaken) Save(context.Context, Step) error              { return m.err }

// Keeps returns the checkpoints, which may be a Control.
func (s *concurrentSink) Keeps() Checkpoints { return s.Checkpoints }

func (s *concurrentSink) Handle(ctx context.Context, st Step) error {
	loud := loud(ctx, st.Batch)
	if len(loud) == 0 {
		return s.Save(ctx, st)
	}
	kept, err := s.Load(ctx, st.Key)
	if err != nil {
		return err
	}
	if !kept.Same(st.From) {
		return FencedError(st.Key, st.From, kept)
	}
	done, err := s.each(ctx, st.Key, loud)
	if err == nil {
		return s.settle(ctx, st)
	}
	// What is parked changes with the whole step: entries that wait stand between those of
	// the batch, and a checkpoint in between would leave some of them out.
	part := st.before(loud[done])
	if part.To.Same(st.From) || len(st.Park)+len(st.Unpark)+len(st.Skipped) > 0 {
		return err
	}
	// A checkpoint that could not be kept says more about what to do next than the entry,
	// which comes again.
	if lost := s.settle(ctx, part); lost != nil {
		return lost
	}
	return err
}

// settle keeps what has been done, also when ctx has ended: that is no reason to do it again.
func (s *concurrentSink) settle(ctx context.Context, st Step) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer cancel()
	}
	return s.Save(ctx, st)
}

// before is the step that ends before one of its entries, and no further back than it came
// from.
func (s Step) before(e eventstore.Entry) Step {
	at := s.From
	for i := range s.Batch {
		if s.Batch[i].Stream == e.Stream && s.Batch[i].Seqno == e.Seqno {
			break
		}
		if s.Batch[i].Position > at.Position || s.To.Seqno > 0 && s.Batch[i].Seqno > at.Seqno {
			at = at.Past(s.Batch[i], s.To)
		}
	}
	return Step{Key: s.Key, From: s.From, To: at}
}

// each calls f for every entry of a batch. If it returns an error, done is the place of
// the first entry that is not finished.
func (s *concurrentSink) each(ctx context.Context, key Key, batch []eventstore.Entry) (done int, err error) {
	w := newKeyQueues(batch)
	finished := make(chan outcome)
	for busy := 0; ; busy-- {
		for ; busy < s.n && ctx.Err() == nil; busy++ {
			i, ok := w.next()
			if !ok {
				break
			}
			go func() { s.one(ctx, key, batch[i], outcome{place: i}, finished) }()
		}
		if busy == 0 {
			break
		}
		w.finished(<-finished)
	}
	switch done = w.firstUnfinished(); {
	case done == len(batch):
		return done, nil
	case w.failed == nil, ctx.Err() != nil && errors.Is(w.failed, ctx.Err()):
		return done, ctx.Err()
	}
	return done, w.failed
}

// outcome is what became of the entry at a place.
type outcome struct {
	place int
	err   error
}

// errGone is the error of a function that has ended its goroutine.
var errGone = errors.New("the handler ended its goroutine")

func (s *concurrentSink) one(ctx context.Context, key Key, e eventstore.Entry, o outcome, finished chan<- outcome) {
	o.err = NewEntryError([]eventstore.Entry{e}, errGone)
	defer func() { finished <- o }()
	ctx, span := entrySpan(ctx, &e)
	defer func() { eventstore.EndSpan(span, o.err) }()
	o.err = Contain([]eventstore.Entry{e}, func() error { return s.f(ctx, key, e) })
}

// keyQueues says which entry of a batch is to be begun next: the first whose key has
// none under way.
type keyQueues struct {
	behind []int  // the next entry of the same key, 0: none
	ready  []int  // those that may be begun, in order
	done   []bool // by place
	limit  int    // nothing from here on is begun any more
	failed error  // of the entry at limit
}

func newKeyQueues(batch []eventstore.Entry) *keyQueues {
	w := &keyQueues{behind: make([]int, len(batch)), done: make([]bool, len(batch)), limit: len(batch)}
	last := make(map[string]int)
	for i := range batch {
		key := batch[i].Stream.Key()
		if before, ok := last[key]; ok {
			w.behind[before] = i
		} else {
			w.ready = append(w.ready, i)
		}
		last[key] = i
	}
	return w
}

func (w *keyQueues) next() (place int, ok bool) {
	if len(w.ready) == 0 || w.ready[0] >= w.limit {
		return 0, false
	}
	place, w.ready = w.ready[0], w.ready[1:]
	return place, true
}

func (w *keyQueues) finished(o outcome) {
	if o.err != nil {
		if o.place < w.limit {
			w.limit, w.failed = o.place, o.err
		}
		return
	}
	w.done[o.place] = true
	if next := w.behind[o.place]; next > 0 {
		at, _ := slices.BinarySearch(w.ready, next)
		w.ready = slices.Insert(w.ready, at, next)
	}
}

func (w *keyQueues) firstUnfinished() int {
	if i := slices.Index(w.done, false); i >= 0 {
		return i
	}
	return len(w.done)
}
