// Package wiretest has decisions of the loan process for every handler of it, in whatever
// language and on whatever carrier, to be held against.
package wiretest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
)

// Cases returns the decisions of n generated applications, every step'th of them, and
// violations of every rule, as package loan itself decides them. The same seed has the
// same cases.
func Cases(seed uint64, n, step int) ([]conformance.Case, error) {
	var all []conformance.Case
	count := 0
	for app := range loan.Generate(seed, n) {
		state, given := loan.Initial(), []handler.Event{}
		for i := range app.Events {
			command, err := loan.CommandFor(app, i)
			if err != nil {
				return nil, err
			}
			c, events, err := decide(fmt.Sprintf("%s step %d", app.Key, i), state, given, command)
			if err != nil {
				return nil, err
			}
			if count++; count%step == 0 {
				all = append(all, c)
			}
			for _, e := range events {
				state = loan.Evolve(state, e)
			}
			given = append(given[:len(given):len(given)], c.Then...)
		}
	}
	violations, err := refused(seed)
	return append(all, violations...), err
}

// refused are the violations that JSON can carry.
func refused(seed uint64) (all []conformance.Case, err error) {
	for v := range loan.GenerateViolations(seed) {
		if !carries(v.When) {
			continue
		}
		state, given := loan.Initial(), []handler.Event{}
		for _, command := range v.Given {
			c, events, err := decide("", state, given, command)
			if err != nil {
				return nil, err
			}
			for _, e := range events {
				state = loan.Evolve(state, e)
			}
			given = append(given, c.Then...)
		}
		c, _, err := decide(fmt.Sprintf("violation %d of %s", len(all), v.Rule), state, given, v.When)
		if err != nil {
			return nil, err
		}
		if c.Rejected == "" {
			return nil, fmt.Errorf("violation of %s: wanted a refusal", v.Rule)
		}
		all = append(all, c)
	}
	return all, nil
}

// carries says if a command comes back from JSON as it was.
func carries(c loan.Command) bool {
	wired, err := Command(c)
	if err != nil {
		return false
	}
	back, err := wire.Commands().Decode(eventstore.Entry{Event: eventstore.Event{Type: wired.Type, Version: 1, ContentType: "application/json", Data: wired.Data}})
	return err == nil && reflect.DeepEqual(back, c)
}

func decide(name string, state loan.State, given []handler.Event, command loan.Command) (c conformance.Case, events []loan.Event, err error) {
	c = conformance.Case{Name: name, Stream: eventstore.Stream(string(wire.Category) + "-" + name), Given: given}
	if c.When, err = Command(command); err != nil {
		return c, nil, err
	}
	events, err = loan.Decide(state, command)
	if refusal, ok := errors.AsType[*loan.Refusal](err); ok {
		c.Rejected = refusal.Code()
		return c, nil, nil
	}
	for _, e := range events {
		stored, err := wire.Events().Encode(e)
		if err != nil {
			return c, nil, err
		}
		c.Then = append(c.Then, handler.Event{Type: stored.Type, Version: stored.Version, Data: stored.Data})
	}
	return c, events, err
}

// Command returns a command in wire form.
func Command(c loan.Command) (handler.Command, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return handler.Command{}, err
	}
	for _, t := range loan.CommandTypes() {
		if reflect.TypeOf(t.Zero) == reflect.TypeOf(c) {
			return handler.Command{Type: t.Name, Version: 1, Data: data}, nil
		}
	}
	return handler.Command{}, fmt.Errorf("%T is no command of the loan process", c)
}
