// The helper helps: it passes what is right, names what is wrong, and finds impurity.

package aggregatetest_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/aggregate/aggregatetest"
)

type (
	added struct{ Item string }
	add   struct{ Items []string }
	cart  struct{ Items map[string]int }
)

var errFull = errors.New("cart full")

func decide(s cart, c add) ([]added, error) {
	if len(s.Items)+len(c.Items) > 3 {
		return nil, fmt.Errorf("%d items: %w", len(s.Items)+len(c.Items), errFull)
	}
	var events []added
	for _, i := range c.Items {
		events = append(events, added{i})
	}
	return events, nil
}

func evolve(s cart, e added) cart {
	items := maps.Clone(s.Items)
	if items == nil {
		items = map[string]int{}
	}
	items[e.Item]++
	return cart{items}
}

func initial() cart { return cart{} }

var decider = aggregate.Decider[cart, add, added]{Initial: initial, Decide: decide, Evolve: evolve}

// recorder is a testing.TB that keeps what it is told.
type recorder struct {
	testing.TB
	said []string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Errorf(f string, a ...any) { r.said = append(r.said, fmt.Sprintf(f, a...)) }
func (r *recorder) Fatal(a ...any)            { r.Errorf("%s", fmt.Sprint(a...)); panic(r) }
func (r *recorder) wants(t *testing.T, s string) {
	t.Helper()
	if got := strings.Join(r.said, "\n"); !strings.Contains(got, s) || s == "" && got != "" {
		t.Errorf("wanted %q, found %q", s, got)
	}
}

func TestRight(t *testing.T) {
	given := aggregatetest.Given(t, decider, added{"pear"})
	given.When(add{[]string{"apple", "fig"}}).Then(added{"apple"}, added{"fig"}).
		ThenState(cart{map[string]int{"apple": 1, "fig": 1, "pear": 1}})
	given.When(add{}).ThenNothing()
	given.When(add{make([]string, 3)}).ThenRefused(errFull)
	given.When(add{make([]string, 3)}).ThenRefused(nil)
}

func TestWrong(t *testing.T) {
	for want, try := range map[string]func(*aggregatetest.Scenario[cart, add, added]){
		"(- wanted, + found):\n    aggregatetest_test.added{Item: \"a\"}\n  - aggregatetest_test.added{Item: \"x\"}\n  + aggregatetest_test.added{Item: \"b\"}": func(s *aggregatetest.Scenario[cart, add, added]) {
			s.When(add{[]string{"a", "b"}}).Then(added{"a"}, added{"x"})
		},
		"wanted 1 events, found a refusal: 5 items: cart full": func(s *aggregatetest.Scenario[cart, add, added]) {
			s.When(add{make([]string, 4)}).Then(added{"a"})
		},
		"say ThenNothing": func(s *aggregatetest.Scenario[cart, add, added]) { s.When(add{}).Then() },
		"wanted no events (+ found)": func(s *aggregatetest.Scenario[cart, add, added]) {
			s.When(add{[]string{"a"}}).ThenNothing()
		},
		"wanted nothing to happen, found a refusal": func(s *aggregatetest.Scenario[cart, add, added]) {
			s.When(add{make([]string, 4)}).ThenNothing()
		},
		"wanted a refusal (cart full), found events": func(s *aggregatetest.Scenario[cart, add, added]) {
			s.When(add{[]string{"a"}}).ThenRefused(errFull)
		},
		"accepted without events": func(s *aggregatetest.Scenario[cart, add, added]) { s.When(add{}).ThenRefused(errFull) },
		"wanted refusal EOF, found": func(s *aggregatetest.Scenario[cart, add, added]) {
			s.When(add{make([]string, 4)}).ThenRefused(errors.New("EOF"))
		},
		"another state than wanted": func(s *aggregatetest.Scenario[cart, add, added]) { s.When(add{}).ThenState(cart{}) },
	} {
		r := &recorder{}
		try(aggregatetest.Given(r, decider, added{"pear"}))
		r.wants(t, want)
	}
}

func TestImpurity(t *testing.T) {
	shared := decider
	shared.Initial = func() cart { return cart{map[string]int{}} }
	shared.Evolve = func(s cart, e added) cart { s.Items[e.Item]++; return s }
	r := &recorder{}
	aggregatetest.Given(r, shared, added{"pear"}).When(add{}).ThenNothing()
	r.wants(t, "Evolve changed the state it was given")

	n := 0
	random := decider
	random.Decide = func(cart, add) ([]added, error) { n++; return []added{{fmt.Sprint(n)}}, nil }
	r = &recorder{}
	aggregatetest.Given(r, random).When(add{})
	r.wants(t, "decided twice gives")

	counting := decider
	counting.Evolve = func(s cart, e added) cart { n++; return evolve(s, added{fmt.Sprint(n)}) }
	r = &recorder{}
	aggregatetest.Given(r, counting, added{"pear"}).When(add{})
	r.wants(t, "folded twice give")

	taking := decider
	taking.Decide = func(s cart, _ add) ([]added, error) { s.Items["pear"]++; return nil, nil }
	r = &recorder{}
	aggregatetest.Given(r, taking, added{"pear"}).When(add{})
	r.wants(t, "Decide changed the state")
}

func TestIncompleteDecider(t *testing.T) {
	r := &recorder{}
	func() {
		defer func() { recover() }()
		aggregatetest.Given(r, aggregate.Decider[cart, add, added]{})
	}()
	r.wants(t, "incomplete")
}
