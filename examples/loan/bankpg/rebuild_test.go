// A changed report: built in the shadow of the one in use while events come in, compared,
// switched to, and back.

package bankpg_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/examples/loan/bankpg"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// changed is the fold of the second version: the report with one figure more.
func changed(version int) bank.Fold {
	if version >= 2 {
		return loan.ApplyOffers
	}
	return loan.Apply
}

// project runs workers until the test ends.
func (e *env) project(s *bank.Service, workers *sync.WaitGroup) (stop func()) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	workers.Go(func() {
		if err := s.Project(ctx); !errors.Is(err, context.Canceled) {
			e.t.Errorf("a worker stopped: %v", err)
		}
	})
	return cancel
}

func TestChangedReport(t *testing.T) {
	const before, after = 30, 90
	e := newEnv(t)
	e.o.Fold = changed
	view := e.open(false)
	service, err := bank.New(t.Context(), e.store, view, &bank.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	var workers, importing sync.WaitGroup
	defer workers.Wait()
	defer e.project(service, &workers)()
	e.imported(service, before)

	// Events come in, and reports are made, all the time: each is of whole applications,
	// no fewer than before, and of one version.
	importing.Go(func() { e.imported(service, after) })
	done := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() { e.reads(service, done) })

	admin := projector.NewAdmin(e.store, view.Control())
	next, err := admin.Rebuild(t.Context(), bank.Projection, false)
	if err != nil || next != 2 {
		t.Fatalf("version %d, %v", next, err)
	}
	compared := 0
	o := &projector.SwitchOptions{MaxBehind: 1, Compare: func(ctx context.Context, live, next int) error {
		compared++
		return e.compare(ctx, view, live, next)
	}}
	// A rebuild that is not done is not switched to: its figures differ.
	err = admin.Switch(t.Context(), bank.Projection, next, o)
	early := err == nil
	importing.Wait()
	want := e.report(service)
	if want.Cases != after || want.Offers != 0 && !early {
		t.Fatalf("wanted %d applications without offers counted, found %+v", after, want)
	}
	for err != nil { // bounded by the test's time
		err = admin.Switch(t.Context(), bank.Projection, next, o)
	}
	got := e.report(service)
	close(done)
	reading.Wait()
	offers := got.Offers
	if got.Offers, want.Offers = 0, 0; !reflect.DeepEqual(got, want) || offers == 0 || compared == 0 {
		t.Errorf("behind the switch: wanted %+v and offers, found %+v and %d (%d comparisons)", want, got, offers, compared)
	}

	// The one before goes on in the shadow, and back is one step.
	e.imported(service, after+10)
	more := e.report(service)
	if version, err := admin.Rollback(t.Context(), bank.Projection, nil); err != nil || version != 1 {
		t.Fatalf("rolled back to %d, %v", version, err)
	}
	e.imported(service, after+10) // waits for what the old version lacks
	back := e.report(service)
	if more.Offers == 0 || back.Offers != 0 {
		t.Errorf("offers %d, behind the rollback %d", more.Offers, back.Offers)
	}
	if more.Offers = 0; !reflect.DeepEqual(back, more) {
		t.Errorf("behind the rollback: wanted %+v, found %+v", more, back)
	}
}

// imported imports applications and waits until they are in the live version.
func (e *env) imported(s *bank.Service, n int) {
	tokens, err := s.Import(e.t.Context(), generated(n), &bank.ImportOptions{Writers: 4})
	for _, token := range tokens {
		if err == nil {
			err = s.Wait(e.t.Context(), token)
		}
	}
	if err != nil {
		e.t.Error(err)
	}
}

func (e *env) report(s *bank.Service) loan.Report {
	e.t.Helper()
	r, err := s.Report(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	return r
}

// reads makes reports until it is done.
func (e *env) reads(s *bank.Service, done <-chan struct{}) {
	last := loan.Report{}
	for {
		select {
		case <-done:
			return
		default:
		}
		r, err := s.Report(e.t.Context())
		// With the switch a reader may lose some 10 events of each lane for a moment, since
		// MaxBehind is 1; never applications by the dozen, as of a model that is half built.
		if err != nil || r.Cases < last.Cases-1 || r.Events < last.Events-20 || last.Offers > 0 && r.Offers == 0 {
			e.t.Errorf("a report of %d applications, %d events, %d offers behind one of %d, %d, %d (%v)", r.Cases, r.Events, r.Offers, last.Cases, last.Events, last.Offers, err)
			return
		}
		last = r
	}
}

// compare compares the documents of two versions, but for the figure that one has more.
func (e *env) compare(ctx context.Context, v *bankpg.View, live, next int) error {
	docs := func(version int) string { return "SELECT key, doc - 'offers' AS doc FROM " + v.Table(version) }
	c, err := pgcheckpoint.Compare(ctx, e.pool, docs(live), docs(next), &pgcheckpoint.CompareOptions{Key: []string{"key"}})
	if err == nil && !c.Same() {
		err = fmt.Errorf("the changed report differs: %v", c)
	}
	return err
}

// A report that is changed by mistake is found by comparing, and never switched to.
func TestChangedByMistake(t *testing.T) {
	e := newEnv(t)
	e.o.Fold = func(version int) bank.Fold {
		return func(a loan.Application, ev loan.Event) loan.Application {
			if _, registered := ev.(loan.Approved); registered && version == 2 {
				return a // forgotten
			}
			return loan.Apply(a, ev)
		}
	}
	view := e.open(false)
	service := e.service(view)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer e.project(service, &workers)()
	e.imported(service, 40)
	admin := projector.NewAdmin(e.store, view.Control())
	next, err := admin.Rebuild(t.Context(), bank.Projection, false)
	if err != nil {
		t.Fatal(err)
	}
	e.built(view, next)
	err = admin.Switch(t.Context(), bank.Projection, next, &projector.SwitchOptions{Compare: func(ctx context.Context, live, next int) error {
		return e.compare(ctx, view, live, next)
	}})
	if live, failed := service.Reader().Live(t.Context()); err == nil || live != 1 || failed != nil {
		t.Errorf("switched by %v to %d, %v", err, live, failed)
	}
}

// built waits until a shadow holds as many applications as the live version.
func (e *env) built(v *bankpg.View, version int) {
	e.t.Helper()
	for range 2000 {
		var missing int
		err := e.pool.QueryRow(e.t.Context(), "SELECT count(*) FROM "+v.Table(1)+" AS l LEFT JOIN "+v.Table(version)+
			" AS s USING (key) WHERE s.doc IS NULL").Scan(&missing)
		if err == nil && missing == 0 {
			return
		}
		sleep(e.t)
	}
	e.t.Fatal("the shadow is not built")
}

func sleep(t *testing.T) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(10 * time.Millisecond):
	}
}
