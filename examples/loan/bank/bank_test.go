// The service on a store in memory: what an import does, once, twice and at once.

package bank_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
)

// Example imports ten made-up applications and reports on them.
func Example() {
	ctx := context.Background()
	store := eventstore.New(memlog.New(nil), nil)
	defer store.Close()
	service, err := bank.New(ctx, store, &bank.MemoryView{})
	if err != nil {
		panic(err)
	}
	report, err := service.Replay(ctx, generated(1, 10), nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(report.Cases, "applications,", report.Events, "events,", report.Outcomes[loan.OutcomeApproved], "approved")

	// An application goes on by commands; a rule refuses what the process does not know.
	_, err = service.Execute(ctx, "g1x000001", loan.Submit{Order: loan.Order{At: time.Date(2012, 6, 1, 12, 0, 0, 0, time.UTC)}, Amount: 5000})
	fmt.Println(err)
	// Output:
	// 10 applications, 145 events, 0 approved
	// loan: refused by rule submitted-once: wanted an application not yet submitted, found one submitted before
}

func generated(seed uint64, n int) iter.Seq2[loan.Case, error] {
	return cases(slices.Collect(loan.Generate(seed, n))...)
}

// cases is a log of these.
func cases(all ...loan.Case) iter.Seq2[loan.Case, error] {
	return func(yield func(loan.Case, error) bool) {
		for _, c := range all {
			if !yield(c, nil) {
				return
			}
		}
	}
}

func newStore(t *testing.T) *eventstore.Store {
	store := eventstore.New(memlog.New(nil), nil)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func newService(t *testing.T, store *eventstore.Store) *bank.Service {
	t.Helper()
	s, err := bank.New(t.Context(), store, &bank.MemoryView{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRegistryHasEveryEvent(t *testing.T) {
	if err := bank.Events().Err(); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, l := range bank.Events().List() {
		got = append(got, fmt.Sprint(l.Name, l.Version, l.Type))
	}
	for _, e := range loan.EventTypes() {
		want = append(want, fmt.Sprint(e.Name, e.Version, reflect.TypeOf(e.Zero)))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("wanted %q, found %q", want, got)
	}
}

// history is every entry of the category.
func history(t *testing.T, store *eventstore.Store) (all []eventstore.Entry) {
	t.Helper()
	for e, err := range store.Feed(t.Context(), 0, eventstore.Filter{Categories: []eventstore.Category{bank.Category}, AcceptTrimmed: true}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func events(all iter.Seq2[loan.Case, error]) (n int) {
	for c := range all {
		n += len(c.Events)
	}
	return n
}

// Every event of the log is one entry, in order; a second import changes nothing.
func TestImport(t *testing.T) {
	store := newStore(t)
	s := newService(t, store)
	total := events(generated(1, 30))
	for _, known := range []int{0, total} {
		count := &bank.Count{}
		tokens, err := s.Import(t.Context(), generated(1, 30), &bank.ImportOptions{Writers: 4, Count: count})
		if err != nil {
			t.Fatal(err)
		}
		if got := []int64{count.Cases.Load(), count.Events.Load(), count.Known.Load()}; !slices.Equal(got, []int64{30, int64(total), int64(known)}) {
			t.Errorf("wanted 30 cases, %d events, %d known, found %v", total, known, got)
		}
		all := history(t, store)
		if len(all) != total || len(tokens) != 1 || tokens[0].Position != all[total-1].Position {
			t.Fatalf("wanted %d entries and a token at the last, found %d and %v", total, len(all), tokens)
		}
	}
	for c := range loan.Generate(1, 30) {
		i := 0
		for e, err := range store.Read(t.Context(), eventstore.Stream("application-"+c.Key), 0) {
			if err != nil {
				t.Fatal(err)
			}
			var data struct{ At time.Time }
			if err := json.Unmarshal(e.Data, &data); err != nil || !data.At.Equal(c.Events[i].Time) {
				t.Fatalf("%s: wanted event %v, found %s (%v)", c.Key, c.Events[i], e.Data, err)
			}
			i++
		}
		if i != len(c.Events) {
			t.Errorf("%s: wanted %d events, found %d", c.Key, len(c.Events), i)
		}
	}
}

// Several imports of one log at once, in several processes, write it once.
func TestImportsAtOnce(t *testing.T) {
	store := newStore(t)
	errs := make(chan error)
	for range 4 {
		s := newService(t, store) // an Executor of its own, as in another process
		go func() {
			_, err := s.Import(t.Context(), generated(1, 20), &bank.ImportOptions{Writers: 3})
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n, total := len(history(t, store)), events(generated(1, 20)); n != total {
		t.Errorf("wanted %d entries, found %d", total, n)
	}
}

// What stands before the end of a damaged log is imported.
func TestImportOfADamagedLog(t *testing.T) {
	store := newStore(t)
	s := newService(t, store)
	damage := &loan.XESError{Line: 7, Wanted: "a", Found: "b"}
	log := func(yield func(loan.Case, error) bool) {
		for c := range loan.Generate(1, 10) {
			if !yield(c, nil) {
				return
			}
		}
		yield(loan.Case{}, damage)
	}
	for _, writers := range []int{1, 16} {
		if _, err := s.Import(t.Context(), log, &bank.ImportOptions{Writers: writers}); !errors.Is(err, loan.ErrXES) {
			t.Errorf("wanted the damage, found %v", err)
		}
		if n, total := len(history(t, store)), events(generated(1, 10)); n != total {
			t.Errorf("wanted %d entries, found %d", total, n)
		}
	}
}

func TestImportOfAnotherLog(t *testing.T) {
	s := newService(t, newStore(t))
	if _, err := s.Import(t.Context(), generated(1, 3), nil); err != nil {
		t.Fatal(err)
	}
	first := slices.Collect(loan.Generate(1, 3))
	for name, change := range map[string]func(*loan.Case){
		"another amount": func(c *loan.Case) { c.AmountRequested++ },
		"another time":   func(c *loan.Case) { c.Events[0].Time = c.Events[0].Time.Add(-time.Millisecond) },
		"another person": func(c *loan.Case) { c.Events[3].Resource = "x" },
	} {
		c := first[0]
		c.Events = slices.Clone(c.Events)
		change(&c)
		_, err := s.Import(t.Context(), cases(c), nil)
		at, ok := errors.AsType[*bank.CaseError](err)
		if !errors.Is(err, bank.ErrDiffers) || !ok || at.Key != c.Key {
			t.Errorf("%s: wanted ErrDiffers, found %v", name, err)
		}
	}
	// A log that has become longer is imported from where it was left.
	longer := first[0]
	last := longer.Events[len(longer.Events)-1]
	longer.Events = append(slices.Clone(longer.Events), loan.CaseEvent{Name: string(loan.WorkCompletion), Transition: "COMPLETE", Time: last.Time})
	count := &bank.Count{}
	if _, err := s.Import(t.Context(), cases(longer), &bank.ImportOptions{Count: count}); err != nil && !errors.Is(err, loan.ErrRefused) {
		t.Errorf("wanted it imported or refused by a rule, found %v", err)
	}
	if count.Known.Load() != int64(len(first[0].Events)) {
		t.Errorf("wanted %d known, found %d", len(first[0].Events), count.Known.Load())
	}
}

// A rule that refuses names case, event and line; nothing is written for it.
func TestRefusal(t *testing.T) {
	store := newStore(t)
	s := newService(t, store)
	for c := range loan.Generate(1, 1) {
		c.Events = append(c.Events[:2:2], c.Events[0])
		c.Events[2].Time, c.Events[2].Line = c.Events[1].Time, 33
		_, err := s.Import(t.Context(), cases(c), nil)
		at, ok := errors.AsType[*bank.CaseError](err)
		if !errors.Is(err, loan.ErrRefused) || !ok || at.Event != 3 || !strings.Contains(err.Error(), `case "g1x000001", event 3 (line 33): `) {
			t.Errorf("wanted a refusal of event 3, found %v", err)
		}
	}
	if n := len(history(t, store)); n != 2 {
		t.Errorf("wanted 2 entries, found %d", n)
	}
}

// Commands of others between those of an import are folded, and a stream that was
// trimmed is not imported anew.
func TestImportBesideOthers(t *testing.T) {
	store := newStore(t)
	s := newService(t, store)
	var c loan.Case
	for c = range loan.Generate(1, 1) {
	}
	half := c
	half.Events = c.Events[:4]
	if _, err := s.Import(t.Context(), cases(half), nil); err != nil {
		t.Fatal(err)
	}
	fraud := loan.ScheduleWork{Order: loan.Order{At: half.Events[3].Time}, Item: loan.WorkFraud}
	if _, err := s.Execute(t.Context(), c.Key, fraud); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Import(t.Context(), cases(c), nil); err != nil {
			t.Fatal(err)
		}
		if n := len(history(t, store)); n != len(c.Events)+1 {
			t.Fatalf("wanted %d entries, found %d", len(c.Events)+1, n)
		}
	}
}

func TestImportOfATrimmedStream(t *testing.T) {
	store := newStore(t)
	s := newService(t, store)
	var c loan.Case
	for c = range loan.Generate(1, 1) {
	}
	half := c
	half.Events = c.Events[:4]
	if _, err := s.Import(t.Context(), cases(half), nil); err != nil {
		t.Fatal(err)
	}
	exec, err := aggregate.NewExecutor(t.Context(), store, bank.Applications(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.Snapshot(t.Context(), c.Key); err != nil {
		t.Fatal(err)
	}
	stream := eventstore.Stream("application-" + c.Key)
	if r, err := store.Trim(t.Context(), stream, 3, false); err != nil || r.Trimmed != 3 {
		t.Fatalf("wanted it trimmed, found %+v, %v", r, err)
	}
	for range 2 {
		// Another process, which has nothing in its cache.
		if _, err := newService(t, store).Import(t.Context(), cases(c), nil); err != nil {
			t.Fatal(err)
		}
		if n := len(history(t, store)); n != len(c.Events)-3 {
			t.Fatalf("wanted %d entries, found %d", len(c.Events)-3, n)
		}
	}
}

// A case without events, and no cases at all, are nothing.
func TestEmpty(t *testing.T) {
	s := newService(t, newStore(t))
	r, err := s.Replay(t.Context(), cases(loan.Case{Key: "none"}), nil)
	if err != nil || r.Cases != 0 || len(r.Outcomes) != 4 {
		t.Errorf("wanted an empty report, found %+v, %v", r, err)
	}
}

// A projection that fails ends the replay with its error.
func TestReplayEndsWithItsProjection(t *testing.T) {
	store := newStore(t)
	s := newService(t, store)
	if err := store.DeleteCategory(t.Context(), bank.Category); err != nil {
		t.Fatal(err)
	}
	_, err := s.Replay(t.Context(), generated(1, 3), nil)
	if !errors.Is(err, eventstore.ErrNoSuchCategory) {
		t.Errorf("wanted ErrNoSuchCategory, found %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	if _, err := newService(t, store).Replay(ctx, generated(1, 3), nil); !errors.Is(err, why) {
		t.Errorf("wanted the cause of the end, found %v", err)
	}
}
