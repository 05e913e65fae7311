// The process manager: the same figures whenever, by whomever and however often; nothing
// is done twice.

package bank_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/logcheckpoint"
	"github.com/wattle-es/wattle/projector/timer"
)

const deadlineCases = 20

// silent are the generated applications that expire, with how many events.
func silent(t *testing.T, n int) map[string]int {
	t.Helper()
	var end time.Time
	type one struct {
		state loan.State
		due   time.Time
	}
	all := map[string]one{}
	for c := range loan.Generate(1, n) {
		o := one{state: loan.Initial()}
		for i, e := range c.Events {
			command, err := loan.CommandFor(c, i)
			if err != nil {
				t.Fatal(err)
			}
			events, err := loan.Decide(o.state, command)
			if err != nil {
				t.Fatal(err)
			}
			if o.state = loan.Evolve(o.state, events[0]); e.Name == "O_SENT" {
				o.due = e.Time.Add(30 * 24 * time.Hour)
			}
			if e.Time.After(end) {
				end = e.Time
			}
		}
		all[c.Key] = o
	}
	expire := map[string]int{}
	for key, o := range all {
		if of := o.state.Offers; o.state.Outcome == loan.OutcomeOpen && of.Sent > of.Cancelled && of.Returned == 0 && !o.due.After(end) {
			expire[key] = of.Sent - of.Cancelled + 1
		}
	}
	if len(expire) == 0 {
		t.Fatal("nothing expires")
	}
	return expire
}

func deadlines(t *testing.T, store *eventstore.Store) *bank.Service {
	t.Helper()
	s, err := bank.New(t.Context(), store, &bank.MemoryView{}, &bank.Options{Deadlines: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantExpired says that what was to expire has, once, caused by its timer, and nothing else.
func wantExpired(t *testing.T, store *eventstore.Store, n int) {
	t.Helper()
	want, got := silent(t, n), map[string]int{}
	for _, e := range history(t, store)[events(generated(1, n)):] {
		if e.Metadata[eventstore.MetaCausation] == "" {
			t.Errorf("entry %d of %s behind the log has no cause", e.Seqno, e.Stream)
		}
		got[e.Stream.Key()]++
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("wanted %v expired, found %v", want, got)
	}
}

func TestDeadlines(t *testing.T) {
	store := newStore(t)
	var first loan.Report
	for i := range 3 { // the second time everything is there, the third one the reactors begin anew
		s := deadlines(t, store)
		if i == 2 {
			if err := s.Deadlines().Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		r, err := s.Replay(t.Context(), generated(1, deadlineCases), nil)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = r
		}
		if !reflect.DeepEqual(r, first) {
			t.Errorf("run %d: wanted %+v, found %+v", i, first, r)
		}
		wantExpired(t, store, deadlineCases)
	}
	if first.Events != events(generated(1, deadlineCases))+sum(silent(t, deadlineCases)) {
		t.Errorf("%d events in the report", first.Events)
	}
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// Whoever replays dies again and again, before or behind an append; in the end all is as
// if nothing had happened.
func TestDeadlinesCrash(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 0))
		log := &crashing{Log: memlog.New(nil)}
		store := eventstore.New(log, nil)
		if s := deadlines(t, store); seed%2 == 1 { // then it dies behind the import alone
			if _, err := s.Import(t.Context(), generated(1, deadlineCases), nil); err != nil {
				t.Fatal(err)
			}
		}
		crashes, late := 0, 0
		for done := false; !done; {
			if crashes == 2000 {
				t.Fatalf("seed %d: it never comes through", seed)
			}
			imported := len(history(t, store)) >= events(generated(1, deadlineCases))
			most := 60
			if imported { // what is left are few appends
				most = 6
			}
			log.arm(1+rng.IntN(most), rng.IntN(2) == 0)
			s, err := bank.New(t.Context(), store, &bank.MemoryView{}, &bank.Options{Deadlines: true})
			if err == nil {
				_, err = s.Replay(t.Context(), generated(1, deadlineCases), &bank.ImportOptions{Writers: 2})
			}
			switch {
			case err == nil:
				done = true
			case !errors.Is(err, eventstore.ErrClosed):
				t.Fatalf("seed %d, crash %d: %v", seed, crashes, err)
			default:
				crashes++
				if imported {
					late++
				}
			}
		}
		t.Logf("seed %d: %d crashes, %d of them behind the import", seed, crashes, late)
		if crashes < 3 || seed%2 == 1 && late != crashes {
			t.Errorf("seed %d: %d crashes, %d behind the import", seed, crashes, late)
		}
		log.arm(0, false)
		for range 2 {
			s := deadlines(t, store)
			if err := s.Deadlines().Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Replay(t.Context(), generated(1, deadlineCases), nil); err != nil {
				t.Fatal(err)
			}
		}
		wantExpired(t, store, deadlineCases)
		_ = store.Close()
	}
}

var errCrash = &eventstore.Error{Kind: eventstore.ErrClosed, Op: "crash"}

// crashing is a log that fails for good from some append on, which is carried out or not.
type crashing struct {
	*memlog.Log
	mu   sync.Mutex
	left int // appends until then; 0: never
	dead bool
	land bool // the one that it dies in is carried out
}

func (c *crashing) arm(n int, land bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.dead, c.land = n, false, land
}

func (c *crashing) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return eventstore.Appended{}, errCrash
	}
	if c.left > 0 {
		if c.left--; c.left == 0 {
			c.dead = true
			if c.land {
				_, _ = c.Log.Append(ctx, a)
			}
			return eventstore.Appended{}, errCrash
		}
	}
	return c.Log.Append(ctx, a)
}

// An answer that comes while the deadline passes: the application says what comes of it.
func TestDeadlineMeetsAnswer(t *testing.T) {
	store := newStore(t)
	s := deadlines(t, store)
	at := time.Date(2012, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, key := range []string{"answered", "silent"} {
		for _, c := range []loan.Command{loan.Submit{Order: loan.Order{At: at}, Amount: 1000}, loan.PartlySubmit{Order: loan.Order{At: at}}, loan.Preaccept{Order: loan.Order{At: at}},
			loan.Accept{Order: loan.Order{At: at}}, loan.SelectOffer{Order: loan.Order{At: at}}, loan.Finalize{Order: loan.Order{At: at}}, loan.CreateOffer{Order: loan.Order{At: at}}, loan.SendOffer{Order: loan.Order{At: at}}} {
			if _, err := s.Execute(t.Context(), key, c); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	working.Go(func() { _ = s.Deadlines().Run(ctx) })
	settle := func(to time.Time) {
		t.Helper()
		h := history(t, store)
		first, err := store.ReadFeed(ctx, 0, eventstore.Filter{Categories: []eventstore.Category{bank.Category}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Deadlines().Settle(ctx, []eventstore.Token{{Incarnation: first.Incarnation, Position: h[len(h)-1].Position}}, to); err != nil {
			t.Fatal(err)
		}
	}
	settle(at.Add(loan.OfferDeadline - time.Millisecond))
	if n := len(history(t, store)); n != 16 {
		t.Fatalf("%d entries before the deadline, wanted 16", n)
	}
	if _, err := s.Execute(ctx, "answered", loan.ReturnOffer{Order: loan.Order{At: at.Add(time.Hour)}}, aggregate.CommandKey("answer")); err != nil {
		t.Fatal(err)
	}
	settle(at.Add(loan.OfferDeadline))
	h := history(t, store)
	if len(h) != 19 || h[17].Type != "loan.offer_cancelled" || h[18].Type != "loan.cancelled" || h[18].Stream.Key() != "silent" {
		t.Fatalf("behind the deadline: %v", h[16:])
	}
	timers, err := timer.New(ctx, store, &timer.Options{Category: bank.TimerCategory, Keep: -1})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]timer.State{"answered": timer.Cancelled, "silent": timer.Fired} {
		if now, err := timers.Get(ctx, key); err != nil || now.State != want {
			t.Errorf("timer of %s is %v, %v, wanted %v", key, now.State, err, want)
		}
	}
	kept, err := logcheckpoint.New(ctx, store, nil)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := projector.NewAdmin(store, kept).Versions(ctx, bank.Watching); err != nil || len(all) != 1 {
		t.Errorf("the reactor's versions: %v, %v", all, err)
	}
}
