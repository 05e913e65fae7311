// What the cases stand on: one store, streams of their own, and helpers that
// append, expect refusals and follow the feed.

package logtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// reporter is the part of testing.TB and of rapid.T that the helpers need.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// env is what one case has to itself: a category and a history. Everything goes
// through a Store, as it does for users.
type env struct {
	testing.TB
	h        Harness
	ctx      context.Context
	log      eventstore.Log
	store    *eventstore.Store
	history  *History
	category eventstore.Category // trims freely
	closed   bool                // the case has closed the log: nothing can be checked
}

func newEnv(t testing.TB, h Harness, log eventstore.Log, name string) *env {
	t.Helper()
	deadline := time.Now().Add(caseTimeout)
	if t, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if d, ok := t.Deadline(); ok && d.Before(deadline) {
			deadline = d
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	t.Cleanup(cancel)
	e := &env{TB: t, h: h, ctx: ctx, log: log, store: eventstore.New(log, nil), history: NewHistory()}
	e.category = e.newCategory(name, true)
	return e
}

// newCategory creates a category that nobody else uses.
func (e *env) newCategory(name string, trimFreely bool) eventstore.Category {
	e.Helper()
	c := freshCategory(name)
	if err := e.store.CreateCategory(e.ctx, eventstore.CategorySpec{Name: c, TrimFreely: trimFreely}); err != nil {
		e.Fatalf("CreateCategory(%q) = %v, want nil", c, err)
	}
	return c
}

func freshCategory(name string) eventstore.Category {
	id := eventstore.NewUUID()
	return eventstore.Category(fmt.Sprintf("%.30s_%x", name, id[:]))
}

// stream returns a stream of the case's category.
func (e *env) stream(key string) eventstore.Stream { return streamIn(e.category, key) }

func streamIn(c eventstore.Category, key string) eventstore.Stream {
	return eventstore.Stream(string(c) + "-" + key)
}

// another returns a second log on the store, as another process has it, or the
// same one if the store lives in one process only.
func (e *env) another() *eventstore.Store {
	if e.h.Reopen == nil {
		return e.store
	}
	return eventstore.New(e.h.Reopen(e, e.log), nil)
}

// through returns an env that uses another log on the same store.
func (e *env) through(store *eventstore.Store) *env {
	other := *e
	other.store, other.log = store, store.Log()
	return &other
}

// append sends an append and notes it in the history.
func (e *env) append(a eventstore.Append) (eventstore.Appended, error) {
	return e.history.Append(e.ctx, e.store, a)
}

// appendBatches sends batches that must go through.
func (e *env) appendBatches(batches ...eventstore.Batch) eventstore.Appended {
	e.Helper()
	done, err := e.append(eventstore.Append{Batches: batches})
	if err != nil {
		e.Fatalf("Append(%s) = %v, want nil", describe(batches), err)
	}
	return done
}

// refused sends an append that must be refused with a kind of error, with the
// facts in it, and must write nothing.
func (e *env) refused(kind error, a eventstore.Append) *eventstore.Error {
	e.Helper()
	before := e.heads(a)
	_, err := e.append(a)
	got := wantKind(e, err, kind)
	if after := e.heads(a); !reflect.DeepEqual(before, after) {
		e.Errorf("heads after the refusal %v = %v, want as before %v", err, after, before)
	}
	wantFacts(e, got)
	return got
}

// refusedBatches is refused for batches without guards.
func (e *env) refusedBatches(kind error, batches ...eventstore.Batch) *eventstore.Error {
	e.Helper()
	return e.refused(kind, eventstore.Append{Batches: batches})
}

// heads returns the heads of all streams of an append that can be looked up.
func (e *env) heads(a eventstore.Append) map[eventstore.Stream]eventstore.Head {
	heads := map[eventstore.Stream]eventstore.Head{}
	look := func(s eventstore.Stream) {
		if h, err := e.store.Head(e.ctx, s); err == nil {
			heads[s] = h
		}
	}
	for _, b := range a.Batches {
		look(b.Stream)
	}
	for _, g := range a.Guards {
		look(g.Stream)
	}
	return heads
}

func (e *env) head(s eventstore.Stream) eventstore.Head {
	e.Helper()
	h, err := e.store.Head(e.ctx, s)
	if err != nil {
		e.Fatalf("Head(%q) = %v, want nil", s, err)
	}
	return h
}

func (e *env) fence(s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) eventstore.Head {
	e.Helper()
	h, err := e.history.Fence(e.ctx, e.store, s, holder, at)
	if err != nil {
		e.Fatalf("Fence(%q, %d) = %v, want nil", s, at, err)
	}
	return h
}

// trim trims as far as through; it must get there.
func (e *env) trim(s eventstore.Stream, through eventstore.Seqno) {
	e.Helper()
	r, err := e.store.Trim(e.ctx, s, through, false)
	if err != nil || r.Trimmed != through {
		e.Fatalf("Trim(%q, %d) = %+v, %v, want it trimmed there", s, through, r, err)
	}
}

// read returns all entries of a stream after a seqno.
func (e *env) read(s eventstore.Stream, after eventstore.Seqno) []eventstore.Entry {
	e.Helper()
	all, err := readAll(e.ctx, e.store, s, after)
	if err != nil {
		e.Fatalf("Read(%q, %d) = %v, want nil", s, after, err)
	}
	return all
}

func readAll(ctx context.Context, store *eventstore.Store, s eventstore.Stream, after eventstore.Seqno) ([]eventstore.Entry, error) {
	var all []eventstore.Entry
	for entry, err := range store.Read(ctx, s, after) {
		if err != nil {
			return all, err
		}
		all = append(all, entry)
	}
	return all, nil
}

// feed follows the feed of the case's category, or of the filter's, with pages of
// limit entries until the horizon has passed everything acked so far.
func (e *env) feed(after eventstore.Position, f eventstore.Filter, limit int) []eventstore.Entry {
	e.Helper()
	if len(f.Categories) == 0 {
		f.Categories = []eventstore.Category{e.category}
	}
	all, err := readFeed(e.ctx, e.store, after, f, limit, e.history.Token().Position)
	if err != nil {
		e.Fatalf("ReadFeed(%d, %+v) = %v, want nil", after, f, err)
	}
	return all
}

// pollInterval is how long the suite waits before it looks again, pollTimeout how
// long it goes on looking.
const (
	pollInterval = 2 * time.Millisecond
	pollTimeout  = 20 * time.Second
)

// readFeed reads the feed page by page until nothing is left and the horizon has
// passed a position. A horizon may be held back for a moment by somebody else's
// append, never for long.
func readFeed(ctx context.Context, store *eventstore.Store, after eventstore.Position, f eventstore.Filter, limit int, until eventstore.Position) ([]eventstore.Entry, error) {
	var all []eventstore.Entry
	for {
		p, err := store.ReadFeed(ctx, after, f, limit)
		if err != nil {
			return all, err
		}
		all = append(all, p.Entries...)
		if !p.End && p.Through.Position <= after {
			return all, fmt.Errorf("the page after %d got to %v and does not end", after, p.Through)
		}
		after = max(after, p.Through.Position)
		switch {
		case p.End && p.Horizon >= until:
			return all, nil
		case p.End:
			time.Sleep(pollInterval)
		}
	}
}

// poll calls f until it returns true; the case's context bounds it.
func (e *env) poll(what string, f func() bool) {
	e.Helper()
	limit := time.After(pollTimeout)
	for !f() {
		select {
		case <-e.ctx.Done():
			e.Fatalf("waited too long until %s", what)
		case <-limit:
			e.Fatalf("waited %v in vain until %s", pollTimeout, what)
		case <-time.After(pollInterval):
		}
	}
}

// longTx appends in a transaction that is open while meanwhile runs.
func (e *env) longTx(a eventstore.Append, meanwhile func(), commit bool) error {
	return longTx(e.ctx, e.h, e.store, e.history, a, meanwhile, commit)
}

// together calls f(0) … f(n-1) at once and waits for all of them.
func together(n int, f func(i int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-start
			f(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

// sentinels are all kinds of error.
var sentinels = []error{
	eventstore.ErrFenced, eventstore.ErrDiverged, eventstore.ErrAlreadyWritten, eventstore.ErrGap, eventstore.ErrGuard,
	eventstore.ErrBatchIDReused, eventstore.ErrNoSuchCategory, eventstore.ErrNoSuchStream, eventstore.ErrInvalid,
	eventstore.ErrZeroEpoch, eventstore.ErrNotMigrated, eventstore.ErrTrimmed, eventstore.ErrTooLarge,
	eventstore.ErrOverloaded, eventstore.ErrUnavailable, eventstore.ErrReadOnly, eventstore.ErrIsolation,
	eventstore.ErrUnknown, eventstore.ErrLeaseLost, eventstore.ErrParked, eventstore.ErrCrossBackend,
	eventstore.ErrCorrupt, eventstore.ErrClosed,
}

// wantKind demands an *eventstore.Error of a kind, and of no other.
func wantKind(t reporter, err, kind error) *eventstore.Error {
	t.Helper()
	got, ok := errors.AsType[*eventstore.Error](err)
	if !ok {
		t.Fatalf("error = %T %v, want an *eventstore.Error %q", err, err, kind)
		return nil
	}
	for _, s := range sentinels {
		if is := errors.Is(err, s); is != (s == kind) {
			t.Fatalf("error = %v, want kind %q only; errors.Is(err, %q) = %t", err, kind, s, is)
		}
	}
	return got
}

// wantFacts demands that a refused append says what was wanted and found.
func wantFacts(t reporter, err *eventstore.Error) {
	t.Helper()
	noHead := err.Kind == eventstore.ErrNoSuchCategory || err.Kind == eventstore.ErrNoSuchStream
	if err.Stream == "" || err.Wanted == "" || err.Found == "" || (err.Head == nil) != noHead {
		t.Errorf("%v: Stream %q, Wanted %q, Found %q, Head %v: want all of them set", err, err.Stream, err.Wanted, err.Found, err.Head)
	}
}

func describe(batches []eventstore.Batch) string {
	s := ""
	for _, b := range batches {
		s += fmt.Sprintf("{%s epoch %d claim %t after %v: %d events} ", b.Stream, b.Epoch, b.Claim, b.After, len(b.Events))
	}
	return s
}
