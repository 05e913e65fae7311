// Dedicated: the same suite on the dedicated layout.

package logtest

import (
	"context"
	"sync"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
)

// Dedicated returns a harness in which every category is dedicated, and every stream
// is created before it is first used. What is about positions and the feed, which
// dedicated streams do not have, is left out of the suite then; all else must hold as
// in the shared layout. What only dedicated streams can show is an area of its own,
// which every harness runs.
func Dedicated(h Harness) Harness {
	d := Harness{Open: func(t testing.TB) eventstore.Log { return dedicatedOn(h.Open(t)) }}
	if h.Reopen != nil {
		d.Reopen = func(t testing.TB, log eventstore.Log) eventstore.Log {
			l := log.(*dedicatedLog)
			return &dedicatedLog{h.Reopen(t, l.fullLog).(fullLog), l.created}
		}
	}
	if h.LongTx != nil {
		d.LongTx = func(ctx context.Context, log eventstore.Log, a eventstore.Append, meanwhile func(), commit bool) error {
			l := log.(*dedicatedLog)
			l.create(ctx, streamsOf(a)...)
			return h.LongTx(ctx, l.fullLog, a, meanwhile, commit)
		}
	}
	return d
}

// inFeed says if what a store holds is in its feed.
func inFeed(log eventstore.Log) bool {
	_, dedicated := log.(*dedicatedLog)
	return !dedicated
}

// likewise makes the oracle what the log is.
func likewise(log, oracle eventstore.Log) eventstore.Log {
	if inFeed(log) {
		return oracle
	}
	return dedicatedOn(oracle)
}

// fullLog is a log with all that the suite needs of it.
type fullLog interface {
	eventstore.Log
	eventstore.Categories
	eventstore.Streams
	eventstore.Snapshots
	eventstore.TrimmedStreams
	eventstore.Holds
	eventstore.Leases
}

// dedicatedLog makes dedicated categories where shared ones are asked for (and the
// other way round), and creates streams as they are named.
type dedicatedLog struct {
	fullLog
	created *sync.Map // streams that are there; shared by all logs on one store
}

func dedicatedOn(log eventstore.Log) *dedicatedLog { return &dedicatedLog{log.(fullLog), &sync.Map{}} }

// create leaves it to the operation that follows to say what is wrong.
func (l *dedicatedLog) create(ctx context.Context, streams ...eventstore.Stream) {
	for _, s := range streams {
		if _, there := l.created.Load(s); there {
			continue
		}
		if l.CreateStreams(ctx, []eventstore.Stream{s}) == nil {
			l.created.Store(s, nil)
		}
	}
}

// DeleteCategory forgets what was created, before and after: somebody may create in
// between.
func (l *dedicatedLog) DeleteCategory(ctx context.Context, c eventstore.Category) error {
	defer l.forget(c)
	l.forget(c)
	return l.fullLog.DeleteCategory(ctx, c)
}

func (l *dedicatedLog) forget(c eventstore.Category) {
	l.created.Range(func(s, _ any) bool {
		if s.(eventstore.Stream).Category() == c {
			l.created.Delete(s)
		}
		return true
	})
}

func streamsOf(a eventstore.Append) (all []eventstore.Stream) {
	for i := range a.Batches {
		all = append(all, a.Batches[i].Stream)
	}
	for _, g := range a.Guards {
		all = append(all, g.Stream)
	}
	return all
}

func otherLayout(c eventstore.CategorySpec) eventstore.CategorySpec {
	c.Layout = eventstore.Dedicated - c.Layout
	return c
}

func (l *dedicatedLog) CreateCategory(ctx context.Context, spec eventstore.CategorySpec) error {
	return l.fullLog.CreateCategory(ctx, otherLayout(spec))
}

func (l *dedicatedLog) ListCategories(ctx context.Context) ([]eventstore.CategorySpec, error) {
	all, err := l.fullLog.ListCategories(ctx)
	for i := range all {
		all[i] = otherLayout(all[i])
	}
	return all, err
}

func (l *dedicatedLog) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	l.create(ctx, streamsOf(a)...)
	return l.fullLog.Append(ctx, a)
}

func (l *dedicatedLog) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	l.create(ctx, s)
	return l.fullLog.ReadFrom(ctx, s, after, limit)
}

func (l *dedicatedLog) ReadBackward(ctx context.Context, s eventstore.Stream, before eventstore.Seqno, limit int) (eventstore.Page, error) {
	l.create(ctx, s)
	if b, ok := l.fullLog.(eventstore.BackwardReader); ok {
		return b.ReadBackward(ctx, s, before, limit)
	}
	return eventstore.New(l.fullLog, nil).ReadBackwardPage(ctx, s, before, limit)
}

func (l *dedicatedLog) Fence(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
	l.create(ctx, s)
	return l.fullLog.Fence(ctx, s, holder, at)
}

func (l *dedicatedLog) Head(ctx context.Context, s eventstore.Stream) (eventstore.Head, error) {
	l.create(ctx, s)
	return l.fullLog.Head(ctx, s)
}

func (l *dedicatedLog) Trim(ctx context.Context, s eventstore.Stream, through eventstore.Seqno, dry bool) (eventstore.TrimResult, error) {
	l.create(ctx, s)
	return l.fullLog.Trim(ctx, s, through, dry)
}

func (l *dedicatedLog) SaveSnapshot(ctx context.Context, sn eventstore.Snapshot) error {
	l.create(ctx, sn.Stream)
	return l.fullLog.SaveSnapshot(ctx, sn)
}

func (l *dedicatedLog) Load(ctx context.Context, s eventstore.Stream, fingerprint string, limit int) (eventstore.Loaded, error) {
	l.create(ctx, s)
	return l.fullLog.Load(ctx, s, fingerprint, limit)
}

func (l *dedicatedLog) SetHold(ctx context.Context, h eventstore.Hold) error {
	if h.Stream != "" {
		l.create(ctx, h.Stream)
	}
	return l.fullLog.SetHold(ctx, h)
}
