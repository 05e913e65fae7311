// One open application a customer: kept in the append's own transaction, so that races
// and lost answers change nothing.

package bankpg_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
)

// unique is a service of another process that keeps the customers.
func (e *env) unique() *bank.Service {
	e.t.Helper()
	log, err := pglog.Open(e.t.Context(), e.pool, &pglog.Options{Schema: e.o.StoreSchema})
	if err != nil {
		e.t.Fatal(err)
	}
	store := eventstore.New(log, nil)
	e.t.Cleanup(func() { _ = store.Close() })
	v := e.open(false)
	s, err := bank.New(e.t.Context(), store, v, &bank.Options{Append: v.Customers(store)})
	if err != nil {
		e.t.Fatal(err)
	}
	return s
}

func order(hours int) loan.Order {
	return loan.Order{At: time.Date(2012, 1, 1, hours, 0, 0, 0, time.UTC)}
}

// Two processes hand in an application each for one customer at once: one is refused, by
// name, and has written nothing. When the other one is closed the customer may apply again.
func TestOneOpenApplication(t *testing.T) {
	e := newEnv(t)
	services := []*bank.Service{e.unique(), e.unique()}
	const rounds = 15
	for round := range rounds {
		customer := fmt.Sprint("customer", round%3)
		keys := []string{fmt.Sprintf("a%d", round), fmt.Sprintf("b%d", round)}
		errs := make([]error, 2)
		var racing sync.WaitGroup
		for i, s := range services {
			racing.Go(func() {
				_, errs[i] = s.Execute(t.Context(), keys[i], loan.Submit{Order: order(0), Amount: 1000, Customer: customer})
			})
		}
		racing.Wait()
		won, lost := 0, 1
		if errs[0] != nil {
			won, lost = 1, 0
		}
		refusal, ok := errors.AsType[*loan.Refusal](errs[lost])
		if errs[won] != nil || !ok || refusal.Rule != loan.RuleOneOpenApplication || !errors.Is(errs[lost], loan.ErrRefused) ||
			refusal.Found != fmt.Sprintf("%q with application %q", customer, keys[won]) {
			t.Fatalf("round %d: %v and %v", round, errs[won], errs[lost])
		}
		if h, err := e.store.Head(t.Context(), eventstore.Stream("application-"+keys[lost])); err != nil || h.Last.Seqno != 0 {
			t.Fatalf("round %d: the refused application has %d entries, %v", round, h.Last.Seqno, err)
		}
		// The refused one is refused as long as the other is open, and not after that.
		s := services[round%2]
		if _, err := s.Execute(t.Context(), keys[won], loan.PartlySubmit{Order: order(1)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Execute(t.Context(), keys[lost], loan.Submit{Order: order(1), Customer: customer}); !errors.Is(err, loan.ErrRefused) {
			t.Fatalf("round %d: a second open application: %v", round, err)
		}
		if _, err := s.Execute(t.Context(), keys[won], loan.Decline{Order: order(2)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Execute(t.Context(), keys[lost], loan.Submit{Order: order(3), Customer: customer}, aggregate.CommandKey("again")); err != nil {
			t.Fatalf("round %d: behind the first one's end: %v", round, err)
		}
		for _, c := range []loan.Command{loan.PartlySubmit{Order: order(4)}, loan.Cancel{Order: order(5)}} {
			if _, err := s.Execute(t.Context(), keys[lost], c); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := e.customers(); n != 0 {
		t.Errorf("%d customers with an open application, wanted none", n)
	}
}

func (e *env) customers() (n int) {
	e.t.Helper()
	if err := e.pool.QueryRow(e.t.Context(), "SELECT count(*) FROM "+e.o.Schema+".customers").Scan(&n); err != nil {
		e.t.Fatal(err)
	}
	return n
}

// A replay of applications of which each is another customer's is not refused, and leaves
// a row for each that is open; a second one changes nothing.
func TestCustomersOfAReplay(t *testing.T) {
	e := newEnv(t)
	for range 2 {
		r, err := e.unique().Replay(t.Context(), generated(applications), nil)
		if err != nil {
			t.Fatal(err)
		}
		if open := r.Outcomes[loan.OutcomeOpen]; r.Cases != applications || open == 0 || e.customers() != open {
			t.Errorf("%d applications, %d open, %d customers with one", r.Cases, open, e.customers())
		}
	}
	// Nobody's application: the log of the bank names no customers.
	for i := range 2 {
		if _, err := e.unique().Execute(t.Context(), fmt.Sprint("anonymous", i), loan.Submit{Order: order(0)}); err != nil {
			t.Error(err)
		}
	}
}

// It is for stores in the same database.
func TestCustomersElsewhere(t *testing.T) {
	e := newEnv(t)
	store := eventstore.New(memlog.New(nil), nil)
	t.Cleanup(func() { _ = store.Close() })
	s, err := bank.New(t.Context(), store, &bank.MemoryView{}, &bank.Options{Append: e.open(false).Customers(store)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Execute(t.Context(), "one", loan.Submit{Order: order(0), Customer: "c"}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("wanted it unsupported, found %v", err)
	}
}
