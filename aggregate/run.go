// run: one command on its way, over one stream or several.

package aggregate

import (
	"context"
	"fmt"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// run is one Execute or ExecuteMulti. All slices run beside streams.
type run[S, C, E any] struct {
	x       *Executor[S, C, E]
	call    call
	keys    []string
	streams []eventstore.Stream
	decide  func(context.Context, *run[S, C, E]) ([][]E, error)
	folded  *S   // the state after the events, if whoever decided told it
	failed  bool // the error of decide is no refusal

	known   []*history[S]     // nil: to be loaded
	before  []eventstore.Mark // of what was folded in an earlier try: it must still stand
	warm    bool              // known holds a state from the cache
	retries int               // how often it was decided again
	refused bool              // the error is Decide's, or that of Options.Append itself
	doubt   *doubt            // an append of this run whose proof was trimmed
}

// doubt is an append that was sent and is neither proved there nor proved absent.
type doubt struct {
	stream int             // index of one of the streams it wrote
	after  eventstore.Mark // where it would stand there
	err    *eventstore.Error
}

// execute is Execute and ExecuteMulti: it returns a result per key.
func (x *Executor[S, C, E]) execute(ctx context.Context, keys []string, decide func(context.Context, *run[S, C, E]) ([][]E, error), options []CallOption) (results []Result[S, E], err error) {
	c, err := newCall(keys, options)
	if err != nil {
		return nil, err
	}
	streams, err := x.streams(keys)
	if err != nil {
		return nil, err
	}
	r := &run[S, C, E]{x: x, call: c, keys: keys, streams: streams, decide: decide,
		known: make([]*history[S], len(keys)), before: make([]eventstore.Mark, len(keys))}
	ctx, span := x.span(ctx, streams, &c)
	defer func() { endSpan(span, results, r.retries, r.refused, err) }()

	unlock, err := x.locks.lock(ctx, slices.Sorted(slices.Values(streams)))
	if err != nil {
		return nil, err
	}
	defer unlock()
	return r.untilSettled(ctx)
}

// streams returns the streams of the keys, or what is wrong with these.
func (x *Executor[S, C, E]) streams(keys []string) ([]eventstore.Stream, error) {
	if len(keys) == 0 || len(keys) > MaxKeys {
		return nil, invalid("", "keys", fmt.Sprintf("1 to %d", MaxKeys), fmt.Sprint(len(keys)))
	}
	streams := make([]eventstore.Stream, len(keys))
	for i, k := range keys {
		s, err := eventstore.NewStream(x.typ.Category, k)
		if err != nil {
			return nil, err
		}
		if slices.Contains(streams[:i], s) {
			return nil, invalid(s, "keys", "each once", fmt.Sprintf("%q twice", k))
		}
		streams[i] = s
	}
	return streams, nil
}

// untilSettled is the retry rule. A try on a state from the cache does not count:
// it may have been old for long.
func (r *run[S, C, E]) untilSettled(ctx context.Context) ([]Result[S, E], error) {
	for tries := 0; ; r.retries++ {
		results, refusal, err := r.try(ctx)
		if refusal == nil {
			return results, err
		}
		if !r.warm {
			tries++
		}
		r.drop()
		if tries >= r.x.retries && r.doubt == nil {
			return nil, gaveUp(refusal, r.retries+1)
		}
		if err := pause(ctx, tries, refusedWait, refusedWaitMost); err != nil {
			return nil, r.doubted(err)
		}
	}
}

// drop forgets what was known, except that it must still stand.
func (r *run[S, C, E]) drop() {
	for i, h := range r.known {
		if h != nil && h.last.Seqno > 0 {
			r.before[i] = h.last
		}
		r.known[i] = nil
	}
}

// try is one way through: know, recall, decide, append. A refusal by the log that
// makes the command be decided again comes back as refusal; everything else is final.
func (r *run[S, C, E]) try(ctx context.Context) (results []Result[S, E], refusal, err error) {
	if err := r.know(ctx); err != nil {
		return nil, nil, r.doubted(err)
	}
	if results, err := r.recall(ctx); results != nil || err != nil {
		return results, nil, r.doubted(err)
	}
	if err := r.settleDoubt(); err != nil {
		return nil, nil, err
	}
	if err := r.expected(ctx); err != nil {
		return nil, nil, err
	}
	events, err := r.decide(ctx, r)
	if r.failed {
		r.keep()
		return nil, nil, err
	}
	if err != nil || !slices.ContainsFunc(events, func(e []E) bool { return len(e) > 0 }) {
		return r.answer(ctx, err)
	}
	return r.append(ctx, events)
}

// ask has a command decided by Type.Remote.
func (r *run[S, C, E]) ask(ctx context.Context, command C) ([][]E, error) {
	h := r.known[0]
	r.folded = nil
	answer, err := r.x.typ.Remote(ctx, Question[S, C]{Stream: h.stream, After: h.last, State: h.state,
		Command: command, CommandID: r.call.command, Retries: r.retries})
	if err != nil {
		r.failed = true
		return nil, err
	}
	if answer.Folded {
		r.folded = &answer.State
	}
	return [][]E{answer.Events}, answer.Refused
}

// know sees to it that the history of every stream is known, from the cache or the
// log. A cached one that is not at the expected mark is no ground to refuse.
func (r *run[S, C, E]) know(ctx context.Context) error {
	r.warm = false
	for i, s := range r.streams {
		h := r.x.cache.take(s)
		if h != nil && !r.meets(i, h) {
			r.before[i], h = h.last, nil
		}
		if h == nil {
			var err error
			if h, err = r.x.load(ctx, s, r.before[i]); err != nil {
				return err
			}
		}
		r.known[i] = h
		r.warm = r.warm || !h.fresh
	}
	return nil
}

// meets says if a history is at the mark that the caller expects.
func (r *run[S, C, E]) meets(i int, h *history[S]) bool {
	want, ok := r.call.expect[r.keys[i]]
	return !ok || want.Seqno == h.last.Seqno && (want.ID == h.last.ID || want.ID.IsZero() && want.Seqno > 0)
}

// expected refuses the command if a stream is not at the mark its caller expects,
// with the log's kinds of error.
func (r *run[S, C, E]) expected(ctx context.Context) error {
	for i, h := range r.known {
		if r.meets(i, h) {
			continue
		}
		want := r.call.expect[r.keys[i]]
		err := moved(h.stream, want, &eventstore.Head{Epoch: h.epoch, Last: h.last})
		err.Hint = "load the stream and look at what has happened since"
		switch {
		case want.Seqno >= h.last.Seqno && !want.ID.IsZero():
			err.Kind = eventstore.ErrDiverged
		case want.Seqno > h.last.Seqno:
			err.Kind = eventstore.ErrGap
		case want.Seqno > 0 && !want.ID.IsZero():
			at, e := r.x.markAt(ctx, h.stream, want.Seqno)
			if e == nil && at.ID != want.ID {
				err.Kind = eventstore.ErrDiverged
			}
		}
		return err
	}
	return nil
}

// answer gives a refusal of Decide (err) or an empty answer. It was true for the
// states that were decided on; if these may be old, or were read one after another,
// one look at the heads tells whether it is true for the log.
func (r *run[S, C, E]) answer(ctx context.Context, err error) (results []Result[S, E], refusal, _ error) {
	if r.warm || len(r.known) > 1 {
		for _, h := range r.known {
			head, e := r.x.store.Head(ctx, h.stream)
			if e != nil {
				return nil, nil, e
			}
			if head.Last != h.last {
				return nil, moved(h.stream, h.last, &head), nil
			}
		}
	}
	r.keep()
	if err != nil {
		r.refused = true
		return nil, nil, err
	}
	return r.results(), nil, nil
}

// keep puts everything known back into the cache.
func (r *run[S, C, E]) keep() {
	for _, h := range r.known {
		r.x.keep(h)
	}
}

// results are those of a command that wrote nothing: where the streams are.
func (r *run[S, C, E]) results() []Result[S, E] {
	results := make([]Result[S, E], len(r.known))
	for i, h := range r.known {
		results[i] = Result[S, E]{Stream: h.stream, Mark: h.last, State: h.state, Retries: r.retries}
	}
	return results
}
