// What the suite does not look at: cost, trimming, lost answers, an Update that dies, and
// the words on disk.

package logcheckpoint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/logcheckpoint"
)

// bentLog is a memlog that counts and whose appends a test can change.
type bentLog struct {
	*memlog.Log
	mu     sync.Mutex
	calls  []string
	append func(do func() (eventstore.Appended, error)) (eventstore.Appended, error)
}

func (l *bentLog) called(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, what)
}

func (l *bentLog) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	l.called("append")
	l.mu.Lock()
	bend := l.append
	l.mu.Unlock()
	do := func() (eventstore.Appended, error) { return l.Log.Append(ctx, a) }
	if bend != nil {
		return bend(do)
	}
	return do()
}

func (l *bentLog) Head(ctx context.Context, s eventstore.Stream) (eventstore.Head, error) {
	l.called("head")
	return l.Log.Head(ctx, s)
}

func (l *bentLog) ReadFrom(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, limit int) (eventstore.Page, error) {
	l.called("read")
	return l.Log.ReadFrom(ctx, s, after, limit)
}

func (l *bentLog) Trim(ctx context.Context, s eventstore.Stream, through eventstore.Seqno, dry bool) (eventstore.TrimResult, error) {
	l.called("trim")
	return l.Log.Trim(ctx, s, through, dry)
}

var key = projector.Key{Projector: "p", Version: 1}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// next is a step of key from a checkpoint to the one after it.
func next(from projector.Checkpoint) projector.Step {
	to := from
	to.Epoch, to.Holder = max(1, from.Epoch), eventstore.UUID{1}
	to.Position++
	to.Mark = eventstore.PositionMark{Position: to.Position, ID: eventstore.UUID{byte(to.Position)}}
	return projector.Step{Key: key, From: from, To: to}
}

func isKind(err, kind error) bool { return errors.Is(err, kind) }

// TestCost: a step is one append once the lane is known; a lane's stream stays short.
func TestCost(t *testing.T) {
	log := &bentLog{Log: memlog.New(nil)}
	c := open(t, log)
	var at projector.Checkpoint
	for i := range 200 {
		log.calls = nil
		s := next(at)
		ok(t, c.Save(t.Context(), s))
		at = s.To
		if calls := fmt.Sprint(log.calls); i > 0 && calls != "[append]" && calls != "[append trim]" {
			t.Fatalf("step %d: %s", i, calls)
		}
	}
	log.calls = nil
	kept, err := c.Load(t.Context(), key)
	if ok(t, err); kept.Mark != at.Mark || fmt.Sprint(log.calls) != "[head read]" {
		t.Errorf("kept %v by %v", kept, log.calls)
	}
	h, err := log.Log.Head(t.Context(), "checkpoint-lane/p/1/0")
	if ok(t, err); h.Last.Seqno != 200 || h.Last.Seqno-h.Trimmed > 2*logcheckpoint.Keep || h.Last.Seqno-h.Trimmed < logcheckpoint.Keep {
		t.Errorf("entries %d to %d are there", h.Trimmed+1, h.Last.Seqno)
	}
}

// TestLostAnswers: steps whose answers are lost are proved, there or absent, or told to
// be unknown; then loading tells. Nothing is kept twice or skipped.
func TestLostAnswers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	unknown := &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "test"}
	down := &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "test"}
	log := &bentLog{Log: memlog.New(nil)}
	c := open(t, log)
	lost := 0
	log.append = func(do func() (eventstore.Appended, error)) (eventstore.Appended, error) {
		switch r.IntN(6) {
		case 0: // landed
			lost++
			if done, err := do(); err != nil {
				return done, err
			}
			return eventstore.Appended{}, unknown
		case 1:
			lost++
			return eventstore.Appended{}, unknown
		case 2:
			return eventstore.Appended{}, down
		}
		return do()
	}
	var at projector.Checkpoint
	for range 300 {
		s := next(at)
		err := c.Save(t.Context(), s)
		kept, e := c.Load(t.Context(), key)
		ok(t, e)
		switch {
		case err == nil && !kept.Same(s.To), isKind(err, eventstore.ErrUnavailable) && !kept.Same(at):
			t.Fatalf("%v: kept %v, from %v to %v", err, kept, s.From, s.To)
		case err != nil && !isKind(err, eventstore.ErrUnavailable) && !isKind(err, eventstore.ErrUnknown):
			t.Fatal(err)
		case !kept.Same(at) && !kept.Same(s.To):
			t.Fatalf("%v: kept %v, from %v to %v", err, kept, s.From, s.To)
		}
		at = kept
	}
	if lost < 50 || at.Position < 150 {
		t.Errorf("%d answers lost, came to %v", lost, at)
	}
	sent := 0
	log.append = func(do func() (eventstore.Appended, error)) (eventstore.Appended, error) {
		if sent++; sent > 1 {
			return eventstore.Appended{}, down
		}
		if done, err := do(); err != nil {
			return done, err
		}
		return eventstore.Appended{}, unknown
	}
	if err := c.Save(t.Context(), next(at)); !isKind(err, eventstore.ErrUnknown) || isKind(err, eventstore.ErrUnavailable) || sent < 3 {
		t.Errorf("landed, then no answer: %v after %d", err, sent)
	}
	kept, err := c.Load(t.Context(), key)
	if ok(t, err); !kept.Same(next(at).To) {
		t.Errorf("kept %v", kept)
	}
}

// TestTwoProcesses: both step the same lane as fast as they can; every step comes from
// the one before it.
func TestTwoProcesses(t *testing.T) {
	log := memlog.New(nil)
	one, two := open(t, log), open(t, log)
	ok(t, one.Save(t.Context(), projector.Step{Key: projector.Key{Projector: "q", Version: 1}, To: projector.Checkpoint{Epoch: 1, Position: 1}}))
	late := projector.Step{Key: projector.Key{Projector: "q", Version: 1}, To: projector.Checkpoint{Epoch: 1, Position: 2}}
	if err := two.Save(t.Context(), late); !isKind(err, eventstore.ErrFenced) {
		t.Errorf("a step from what is no longer kept: %v", err)
	}
	var mu sync.Mutex
	won := map[eventstore.Position]int{}
	var wg sync.WaitGroup
	for i := range 2 {
		c := open(t, log)
		wg.Go(func() {
			for range 200 {
				at, err := c.Load(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				s := next(at)
				s.To.Holder, s.To.Epoch = eventstore.UUID{byte(i + 1)}, at.Epoch+1
				switch err := c.Save(t.Context(), s); {
				case err == nil:
					mu.Lock()
					won[s.To.Position]++
					mu.Unlock()
				case !isKind(err, eventstore.ErrFenced):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	at, err := open(t, log).Load(t.Context(), key)
	ok(t, err)
	for p := eventstore.Position(1); p <= at.Position; p++ {
		if won[p] != 1 {
			t.Errorf("position %d was reached %d times", p, won[p])
		}
	}
	if len(won) != int(at.Position) {
		t.Errorf("%d steps, kept %v", len(won), at)
	}
}

// TestUpdateThatDies: the process dies while it has the lanes frozen. Nothing has changed,
// and after its patience a lane goes on; so does another Update.
func TestUpdateThatDies(t *testing.T) {
	log := memlog.New(nil)
	dead, c := open(t, log), open(t, log)
	ok(t, c.Update(t.Context(), "p", func(all []projector.Version) ([]projector.Version, error) {
		return append(all, projector.Version{Key: key, Lanes: []projector.Checkpoint{{Epoch: 1}, {Epoch: 1}}}), nil
	}))
	inside, stay, ended := make(chan bool), make(chan bool), make(chan error, 1)
	var once sync.Once
	go func() {
		ended <- dead.Update(context.Background(), "p", func(all []projector.Version) ([]projector.Version, error) {
			once.Do(func() { close(inside) })
			<-stay
			all[0].Fence(eventstore.UUID{9})
			return all, nil
		})
	}()
	<-inside
	at, err := c.Load(t.Context(), key)
	ok(t, err)
	began := time.Now()
	ok(t, c.Save(t.Context(), next(at)))
	if waited := time.Since(began); waited < time.Second || waited > 10*time.Second {
		t.Errorf("waited for %v", waited)
	}
	ok(t, c.Update(t.Context(), "p", func(all []projector.Version) ([]projector.Version, error) {
		all[0].Quiet = []uint64{7}
		return all, nil
	}))
	close(stay) // it was only slow: it sees what has happened meanwhile
	ok(t, <-ended)
	all, err := c.Versions(t.Context(), "")
	ok(t, err)
	v := all[0]
	if len(all) != 1 || len(v.Quiet) != 1 || v.Lanes[0].Position != 1 || v.Lanes[0].Holder != (eventstore.UUID{9}) || v.Lanes[1].Epoch != 2 {
		t.Errorf("%+v", all)
	}
}

// TestUpdateSeesWhatStays: a lane that the Update leaves as it is goes on after its
// patience while the function is at work. What the function has seen is no longer true,
// so it is asked again.
func TestUpdateSeesWhatStays(t *testing.T) {
	log := memlog.New(nil)
	slow, c := open(t, log), open(t, log)
	ok(t, c.Update(t.Context(), "p", func(all []projector.Version) ([]projector.Version, error) {
		return append(all, projector.Version{Key: key, Lanes: []projector.Checkpoint{{Epoch: 1}, {Epoch: 1}}}), nil
	}))
	var seen []eventstore.Position
	ok(t, slow.Update(t.Context(), "p", func(all []projector.Version) ([]projector.Version, error) {
		if seen = append(seen, all[0].Lanes[0].Position); len(seen) == 1 {
			at, err := c.Load(t.Context(), key)
			ok(t, err)
			ok(t, c.Save(t.Context(), next(at)))
		}
		all[0].Quiet = []uint64{uint64(all[0].Lanes[0].Position)}
		return all, nil
	}))
	all, err := c.Versions(t.Context(), "p")
	if ok(t, err); all[0].Quiet[0] != 1 || all[0].Lanes[0].Position != 1 || len(seen) < 2 {
		t.Errorf("seen %v, kept %+v", seen, all)
	}
}

// TestUpdateReturnsItsError: an error of the function ends the Update, whatever it wraps.
func TestUpdateReturnsItsError(t *testing.T) {
	c, calls := open(t, memlog.New(nil)), 0
	ours := &eventstore.Error{Kind: eventstore.ErrFenced, Op: "elsewhere"}
	err := c.Update(t.Context(), "p", func([]projector.Version) ([]projector.Version, error) {
		calls++
		return nil, ours
	})
	if err != error(ours) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// TestProjectorOnFiles: the store, its checkpoints and a crash between effect and
// checkpoint, all in files.
func TestProjectorOnFiles(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	effects := map[eventstore.Position]int{}
	for round := range 4 {
		log, err := filelog.Open(dir, nil)
		ok(t, err)
		store := eventstore.New(log, nil)
		ok(t, store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "account"}))
		c, err := logcheckpoint.New(t.Context(), store, nil)
		ok(t, err)
		for i := range 20 {
			s := eventstore.Stream(fmt.Sprintf("account-%d-%d", round, i))
			_, err := store.Append(t.Context(), eventstore.Append{Batches: []eventstore.Batch{{Stream: s, Epoch: 1, Holder: eventstore.UUID{1}, Claim: true,
				Events: []eventstore.Event{{Type: "opened"}}}}})
			ok(t, err)
		}
		ctx, crash := context.WithCancel(t.Context())
		h := projector.ConcurrentSink(c, 4, func(_ context.Context, _ projector.Key, e eventstore.Entry) error {
			mu.Lock()
			defer mu.Unlock()
			if effects[e.Position]++; len(effects) == 20*round+10 && round < 3 {
				crash()
			}
			return nil
		})
		p := projector.New(store, "p", "account", h, &projector.Options{Lanes: 3, PageSize: 5})
		for more := true; more && ctx.Err() == nil; {
			more, err = p.CatchUp(ctx, 0)
			if err != nil && ctx.Err() == nil {
				t.Fatal(err)
			}
		}
		crash()
		ok(t, log.Close())
	}
	if len(effects) != 80 {
		t.Errorf("%d effects, want 80", len(effects))
	}
}

// TestForeignEntries: what is no checkpoint is not taken for one.
func TestForeignEntries(t *testing.T) {
	log := memlog.New(nil)
	store := eventstore.New(log, nil)
	c := open(t, log)
	for stream, e := range map[eventstore.Stream]eventstore.Event{
		"checkpoint-lane/p/1/0": {Type: "wattle.parked", Data: []byte(`[]`)},
		"checkpoint-lane/q/1/0": {Type: "wattle.checkpoint", Version: 2, Data: []byte(`{}`)},
		"checkpoint-lane/r/1/0": {Type: "wattle.checkpoint", Data: []byte(`{"epoch":-1}`)},
	} {
		_, err := store.Append(t.Context(), eventstore.Append{Batches: []eventstore.Batch{{Stream: stream, Epoch: 1, Holder: eventstore.UUID{1}, Claim: true, Events: []eventstore.Event{e}}}})
		ok(t, err)
		k := key
		k.Projector = strings.Split(string(stream), "/")[1]
		if _, err := c.Load(t.Context(), k); !isKind(err, eventstore.ErrCorrupt) {
			t.Errorf("%s: %v", stream, err)
		}
		if err := c.Save(t.Context(), projector.Step{Key: k, To: next(projector.Checkpoint{}).To}); !isKind(err, eventstore.ErrCorrupt) {
			t.Errorf("%s: %v", stream, err)
		}
	}
}

// TestFormat pins the words on disk.
func TestFormat(t *testing.T) {
	log := memlog.New(nil)
	c := open(t, log)
	since := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	parked := projector.Parked{StreamKey: "a", Stream: "account-a", Seqno: 1, Position: 2, ID: eventstore.UUID{3}, Type: "opened",
		Queue: []projector.Queued{{Stream: "account-a", From: 1}}, Through: 4, Count: 5, Cause: "why", Stack: "where", Attempts: 6, Trace: "t", Since: since,
		Request: projector.Skip, Note: "n"}
	at := projector.Checkpoint{Epoch: 1, Holder: eventstore.UUID{1}, Incarnation: eventstore.UUID{2}, Timeline: 3, Position: 4,
		Mark: eventstore.PositionMark{Position: 4, ID: eventstore.UUID{5}}, Seqno: 6, Recent: []byte{7}}
	ok(t, c.Update(t.Context(), "p", func(all []projector.Version) ([]projector.Version, error) {
		return append(all, projector.Version{Key: key, Role: projector.Shadow, Quiet: []uint64{1}, Lanes: []projector.Checkpoint{at}, Created: since, Parked: []projector.Parked{parked},
			Scope: projector.Scope{Categories: []eventstore.Category{"account"}, Types: []string{"opened"}}}), nil
	}))
	s := next(at)
	s.Skipped = []projector.Parked{parked}
	ok(t, c.Save(t.Context(), s))
	s = next(projector.Checkpoint{})
	s.Key = projector.Key{Projector: "q", Version: 2, Lane: 3}
	ok(t, c.Save(t.Context(), s))
	const parkedWords = `{"key":"a","stream":"account-a","seqno":1,"position":2,"id":"03000000-0000-0000-0000-000000000000","type":"opened",` +
		`"queue":[{"stream":"account-a","from":1}],"through":4,"count":5,"cause":"why","stack":"where","attempts":6,"traceparent":"t","since":"2026-03-04T05:06:07Z","request":2,"note":"n"}`
	for stream, want := range map[eventstore.Stream]string{
		"checkpoint-lane/p/1/0": `{"epoch":1,"holder":"01000000-0000-0000-0000-000000000000","incarnation":"02000000-0000-0000-0000-000000000000","timeline":3,"position":4,` +
			`"mark_position":4,"mark_id":"05000000-0000-0000-0000-000000000000","seqno":6,"recent":"Bw=="}`,
		"checkpoint-parked/p/1/0": "[" + parkedWords + "]",
		"checkpoint-skipped/p/1":  parkedWords,
		"checkpoint-versions/p":   `[{"projector":"p","version":1,"lanes":1,"role":1,"categories":["account"],"types":["opened"],"quiet":[1],"created":"2026-03-04T05:06:07Z"}]`,
		"checkpoint-projectors":   `["p"]`,
		"checkpoint-loose":        `[{"projector":"q","version":2,"lane":3}]`,
	} {
		p, err := log.ReadFrom(t.Context(), stream, 0, 1)
		if ok(t, err); len(p.Entries) == 0 || string(p.Entries[0].Data) != want {
			t.Errorf("%s: %s, want %s", stream, p.Entries[0].Data, want)
		}
	}
}
