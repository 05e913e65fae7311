// The report in memory on several workers and lanes, and in a second version.

package bank_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/projector"
)

func TestWorkers(t *testing.T) {
	var want loan.Report
	for i, o := range []*bank.Options{nil, {Lanes: 5}, {Workers: 3}, {Workers: 8, Lanes: 3}} {
		store := newStore(t)
		for range 2 { // the second one begins with all that is there
			s, err := bank.New(t.Context(), store, &bank.MemoryView{}, o)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := s.Replay(t.Context(), generated(1, 40), nil)
			if i == 0 {
				want = got
			}
			if err != nil || got.Cases != 40 || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v: wanted %+v, found %+v, %v", o, want, got, err)
			}
		}
	}
}

// A changed report is built in the shadow, and switched to as one.
func TestChangedReport(t *testing.T) {
	store := newStore(t)
	view := &bank.MemoryView{Fold: func(version int) bank.Fold {
		if version == 2 {
			return loan.ApplyOffers
		}
		return loan.Apply
	}}
	s, err := bank.New(t.Context(), store, view, &bank.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel()
	working.Go(func() { _ = s.Project(ctx) })
	tokens, err := s.Import(ctx, generated(1, 30), nil)
	if err == nil {
		err = s.Wait(ctx, tokens[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	want, _ := s.Report(ctx)
	admin := projector.NewAdmin(store, view.Control())
	version, err := admin.Rebuild(ctx, bank.Projection, false)
	if err != nil {
		t.Fatal(err)
	}
	switched := errors.New("not yet")
	for end := time.Now().Add(30 * time.Second); switched != nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if r, err := s.Report(ctx); err != nil || !reflect.DeepEqual(r, want) {
			t.Fatalf("while it is built: wanted %+v, found %+v, %v", want, r, err)
		}
		switched = admin.Switch(ctx, bank.Projection, version, &projector.SwitchOptions{MaxBehind: 1})
	}
	if switched != nil {
		t.Fatal(switched)
	}
	if err := s.Wait(ctx, tokens[0]); err != nil { // it may lack the last position
		t.Fatal(err)
	}
	got, err := s.Report(ctx)
	if offers := got.Offers; offers == 0 || err != nil {
		t.Fatalf("%d offers, %v", offers, err)
	}
	if got.Offers = 0; !reflect.DeepEqual(got, want) {
		t.Errorf("wanted %+v, found %+v", want, got)
	}
}

// A step that is refused, and one that is made again, leave the model as it was.
func TestMemoryViewFenced(t *testing.T) {
	store := newStore(t)
	view := &bank.MemoryView{}
	s := newService(t, store)
	if _, err := s.Import(t.Context(), generated(1, 1), nil); err != nil {
		t.Fatal(err)
	}
	h, err := view.Handler(1)
	if err != nil {
		t.Fatal(err)
	}
	entries := history(t, store)
	step := projector.Step{Key: projector.Key{Projector: bank.Projection, Version: 1}, To: projector.Checkpoint{Epoch: 1, Position: entries[2].Position}, Batch: entries[:3]}
	if err := h.Handle(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	step.Batch = entries[3:5]
	if err := h.Handle(t.Context(), step); !errors.Is(err, eventstore.ErrFenced) {
		t.Fatalf("wanted it fenced, found %v", err)
	}
	step.From, step.To, step.Batch = step.To, projector.Checkpoint{Epoch: 1, Position: entries[4].Position}, entries[3:5]
	if err := h.Handle(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	if err := view.Control().Update(t.Context(), bank.Projection, func([]projector.Version) ([]projector.Version, error) {
		return []projector.Version{{Key: step.Key, Lanes: []projector.Checkpoint{step.To}}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	for a, err := range view.Applications(t.Context()) {
		if err != nil || a.Events != 5 {
			t.Errorf("wanted 5 events, found %+v, %v", a, err)
		}
	}
}
