// One run: making and fencing the logs, letting the owners work, ending them.

package load

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Bounds of what happens beside the appends.
const (
	fencers     = 16 // logs that are fenced at once
	askedWithin = 5 * time.Second
)

// run is one run at work.
type run struct {
	*Config
	meter   *meter
	logs    []*owner
	trimmer *trimmer // nil: everything is kept
	start   time.Time

	sending, flight       context.Context // no send begins after the first, no answer is waited for after the second
	endSending, endFlight context.CancelFunc

	once    sync.Once
	stopped time.Time   // when sending ended
	ended   string      // by what
	err     error       // that ended it
	answers *time.Timer // ends flight

	figures *Figures // in the end
}

// own makes what is missing and fences every log.
func (r *run) own(ctx context.Context) error {
	streams := make([]eventstore.Stream, r.Logs)
	for i := range streams {
		streams[i] = eventstore.Stream(r.Prefix + "-" + strconv.Itoa(i+1))
	}
	if err := r.create(ctx, streams); err != nil {
		return err
	}
	holder, noise := eventstore.NewUUID(), noiseOf(r.Seed, r.Sizes)
	for i, s := range streams {
		r.logs = append(r.logs, &owner{store: r.Store, meter: r.meter, stream: s, holder: holder, batch: r.Batch,
			data: newPayloads(r.Seed, uint64(i), r.Sizes, noise), pace: closed{}, acked: func(*owner) {}})
	}
	if r.Retain > 0 {
		r.trimmer = newTrimmer(r.Config, r.meter, r.logs)
		for _, o := range r.logs {
			o.acked = r.trimmer.look
		}
	}
	return r.fence(ctx)
}

func (r *run) create(ctx context.Context, streams []eventstore.Stream) error {
	spec := eventstore.CategorySpec{Name: eventstore.Category(r.Prefix), Layout: r.Layout, TrimFreely: r.Retain > 0}
	if err := r.Store.CreateCategory(ctx, spec); err != nil || r.Layout == eventstore.Shared {
		return err
	}
	return r.Store.CreateStreams(ctx, streams...)
}

// fence fences the logs, some at once; the first error ends it.
func (r *run) fence(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	todo := make(chan *owner)
	for range min(fencers, len(r.logs)) {
		all.Go(func() {
			for o := range todo {
				if err := o.fence(ctx, r.Epoch); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, o := range r.logs {
		select {
		case todo <- o:
		case <-ctx.Done():
		}
	}
	close(todo)
	all.Wait()
	return context.Cause(ctx)
}

// work lets the owners append until time, ctx or a refusal ends them.
func (r *run) work(ctx context.Context) {
	r.begin(ctx)
	defer r.endFlight()
	interrupted := context.AfterFunc(ctx, func() { r.stop(EndedByInterrupt, nil) })
	defer interrupted()
	late := r.Grace
	if r.RPS == 0 {
		late = 0
	}
	timer := time.AfterFunc(r.Duration+late, func() { r.stop(EndedByTime, nil) })
	defer timer.Stop()

	var owners, beside sync.WaitGroup
	done := make(chan struct{})
	if r.trimmer != nil {
		beside.Go(func() { r.trimmer.run(r.sending) })
	}
	if r.Live != nil {
		beside.Go(func() { r.report(done) })
	}
	for _, o := range r.logs {
		owners.Go(func() {
			if err := o.run(r.sending, r.flight); err != nil {
				r.stop(EndedByRefusal, err)
			}
		})
	}
	owners.Wait()
	finished := time.Now()
	r.stop(EndedByTime, nil)
	r.answers.Stop()
	close(done)
	beside.Wait()
	r.lastTrims(ctx)
	r.conclude(finished)
}

func (r *run) begin(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	r.sending, r.endSending = context.WithCancel(ctx)
	r.flight, r.endFlight = context.WithCancel(ctx)
	r.start = time.Now()
	r.meter.begin(r.start)
	if r.RPS > 0 {
		for i, o := range r.logs {
			o.pace = &schedule{start: r.start, rps: r.RPS, first: int64(i), step: int64(r.Logs), all: sendsIn(r.Duration, r.RPS), most: int64(r.MaxLate)}
		}
	}
}

// sendsIn is how many sends are due before d has passed.
func sendsIn(d time.Duration, rps float64) int64 {
	one := &schedule{rps: rps, step: 1, all: int64(d.Seconds()*rps) + 2}
	return one.due(time.Time{}.Add(d - 1))
}

// stop ends sending, once. Answers are then waited for, but not for ever.
func (r *run) stop(ended string, err error) {
	r.once.Do(func() {
		r.stopped, r.ended, r.err = time.Now(), ended, err
		r.endSending()
		r.answers = time.AfterFunc(r.Grace, r.endFlight)
	})
}

// report tells how it goes until done.
func (r *run) report(done <-chan struct{}) {
	tick := time.NewTicker(r.Interval)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case t := <-tick.C:
			i := r.meter.next(t)
			i.Elapsed = t.Sub(r.start)
			for _, o := range r.logs {
				i.Late += o.pace.late(t)
			}
			r.Live(i)
		}
	}
}

// lastTrims leaves each log as long as was asked for, unless the logs are somebody
// else's by now: a trim is not fenced.
func (r *run) lastTrims(ctx context.Context) {
	if r.trimmer == nil || r.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.Grace)
	defer cancel()
	r.trimmer.pass(ctx, 1)
}

// conclude gives up what was due and is not begun.
func (r *run) conclude(finished time.Time) {
	f := r.meter.figures(finished.Sub(r.start))
	for _, o := range r.logs {
		scheduled, skipped := o.pace.end(r.stopped)
		f.Scheduled += scheduled
		f.Skipped += skipped
		f.Epoch = max(f.Epoch, uint64(o.epoch))
	}
	f.Seed, f.Category, f.Layout, f.Logs, f.RPS, f.Batch, f.Ended = r.Seed, r.Prefix, r.Layout.String(), r.Logs, r.RPS, r.Batch, r.ended
	r.figures = f
}

// reason is the error to tell beside the figures.
func (r *run) reason() error {
	if r.err == nil && r.figures.Appends == 0 {
		return r.meter.lastFailure()
	}
	return r.err
}

func (r *run) trips() int64 {
	if r.Trips == nil {
		return 0
	}
	return r.Trips()
}

// wal is asked for also when the user has ended the run.
func (r *run) wal(ctx context.Context) (bytes int64, known bool) {
	if r.WAL == nil {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askedWithin)
	defer cancel()
	bytes, err := r.WAL(ctx)
	return bytes, err == nil
}
