// The rules as given / when / then, and what Decide and Evolve promise for every state.

package loan

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// replay is the state and the events after commands that must all be allowed.
func replay(t *testing.T, commands []Command) (State, []Event) {
	t.Helper()
	s, events := Initial(), []Event(nil)
	for i, c := range commands {
		decided, err := Decide(s, c)
		if err != nil {
			t.Fatalf("command %d of %d, %T: %v", i, len(commands), c, err)
		}
		if len(decided) != 1 {
			t.Fatalf("command %d, %T: wanted exactly one event, found %d", i, c, len(decided))
		}
		s = Evolve(s, decided[0])
		events = append(events, decided[0])
	}
	return s, events
}

func walk(road string) []Command { return newRoad(1, 1).walk(road) }

func TestEveryRuleRefuses(t *testing.T) {
	refused := map[Rule]int{}
	for seed := range uint64(20) {
		for v := range GenerateViolations(seed) {
			s, _ := replay(t, v.Given)
			events, err := Decide(s, v.When)
			refusal, ok := errors.AsType[*Refusal](err)
			switch {
			case !ok || !errors.Is(err, ErrRefused):
				t.Errorf("seed %d: %T after %d commands: wanted a refusal by %s, found %v and %v", seed, v.When, len(v.Given), v.Rule, events, err)
			case refusal.Rule != v.Rule || refusal.Wanted == "" || refusal.Found == "":
				t.Errorf("seed %d: %T after %d commands: wanted rule %s, found %v", seed, v.When, len(v.Given), v.Rule, err)
			case events != nil:
				t.Errorf("seed %d: %T: a refusal came with events %v", seed, v.When, events)
			}
			refused[v.Rule]++
		}
	}
	for _, rule := range Rules() {
		if refused[rule] == 0 {
			t.Errorf("rule %s has no violation", rule)
		}
		delete(refused, rule)
	}
	if len(refused) > 0 {
		t.Errorf("violations of rules that Rules does not list: %v", refused)
	}
}

// What looks like a violation and is what the bank really did.
func TestRealOdditiesAreAllowed(t *testing.T) {
	for name, road := range map[string]string{
		"work completed after a decline":         toLeads + "A_DECLINED;W_Afhandelen leads+COMPLETE",
		"work completed after a cancellation":    toPreaccepted + "A_CANCELLED;W_Completeren aanvraag+COMPLETE",
		"work started after a cancellation":      toSent + "A_CANCELLED;W_Nabellen offertes+START",
		"completed without a start":              toSent + "W_Nabellen offertes+COMPLETE",
		"started twice":                          toPreaccepted + "W_Completeren aanvraag+START",
		"approved without an accepted offer":     toReturned + "A_REGISTERED;A_APPROVED;A_ACTIVATED",
		"granted in any order":                   toReturned + "A_ACTIVATED;O_ACCEPTED;A_REGISTERED;A_APPROVED",
		"an offer accepted after the approval":   toApproved + "O_ACCEPTED",
		"an offer declined after the decline":    toDeclined + "O_DECLINED",
		"an offer declined that never came back": toSent + "O_DECLINED;A_DECLINED",
		"an offer cancelled after all":           toCancelled + "O_CANCELLED",
		"an offer cancelled while one is made":   toSent + "O_SELECTED;O_CANCELLED;O_CREATED;O_SENT",
		"an offer selected before finalization":  toAccepted + "O_SELECTED;A_FINALIZED;O_CREATED;O_SENT",
		"a decline with live offers":             toTwoOffers + "A_DECLINED",
		"a contract change after the approval":   toApproved + "W_Wijzigen contractgegevens+SCHEDULE",
		"a contract change while still open":     toSent + "W_Wijzigen contractgegevens+SCHEDULE",
		"completion scheduled early and twice":   toSubmitted + "W_Completeren aanvraag+SCHEDULE;A_PREACCEPTED;W_Completeren aanvraag+SCHEDULE",
		"validation after the approval":          toApproved + "W_Valideren aanvraag+COMPLETE;W_Valideren aanvraag+START",
	} {
		t.Run(name, func(t *testing.T) { replay(t, walk(road)) })
	}
}

func TestEqualTimesAreAllowed(t *testing.T) {
	at := Order{At: generatedFrom}
	replay(t, []Command{Submit{at, 0, ""}, PartlySubmit{at}, Decline{at}})
}

// Every command is answered by the event of its row in the tables, with its
// time, resource and content.
func TestEachCommandHasItsEvent(t *testing.T) {
	given := slices.Concat(
		walk(toReturned+"O_ACCEPTED;A_APPROVED;A_REGISTERED;A_ACTIVATED"),
		walk(toReturned+"O_DECLINED;A_DECLINED"),
		walk(toSent+"O_CANCELLED;A_CANCELLED"),
	)
	answer := map[reflect.Type]reflect.Type{}
	s := Initial()
	for _, c := range given {
		if _, ok := c.(Submit); ok {
			s = Initial()
		}
		events, err := Decide(s, c)
		if err != nil || len(events) != 1 {
			t.Fatalf("%T: wanted one event, found %v and %v", c, events, err)
		}
		e := events[0]
		if e.occurred() != c.order().occur() || e.occurred().Resource == "" {
			t.Errorf("%T: wanted the order %v, found %v", c, c.order(), e.occurred())
		}
		answer[reflect.TypeOf(c)] = reflect.TypeOf(e)
		s = Evolve(s, e)
	}
	events := EventTypes()
	for i, c := range CommandTypes() {
		if want := reflect.TypeOf(events[i].Zero); answer[reflect.TypeOf(c.Zero)] != want {
			t.Errorf("%T: wanted %v, found %v", c.Zero, want, answer[reflect.TypeOf(c.Zero)])
		}
	}
}

func TestEventsCarryContent(t *testing.T) {
	o := Order{At: generatedFrom.In(time.FixedZone("", 7200)), Resource: "112"}
	_, events := replay(t, []Command{Submit{o, 500, ""}, PartlySubmit{o}, ScheduleWork{o, WorkFraud}})
	want := []Event{
		Submitted{Occurred{generatedFrom, "112"}, 500, ""},
		PartlySubmitted{Occurred{generatedFrom, "112"}},
		WorkScheduled{Occurred{generatedFrom, "112"}, WorkFraud},
	}
	if !reflect.DeepEqual(events, want) {
		t.Errorf("wanted %v, found %v", want, events)
	}
}

func TestTypeTables(t *testing.T) {
	names, types := map[string]bool{}, map[reflect.Type]bool{}
	for _, e := range EventTypes() {
		names[e.Name], types[reflect.TypeOf(e.Zero)] = true, true
		if e.Version != 1 {
			t.Errorf("%s: wanted version 1, found %d", e.Name, e.Version)
		}
	}
	for _, c := range CommandTypes() {
		names[c.Name], types[reflect.TypeOf(c.Zero)] = true, true
	}
	if len(names) != 40 || len(types) != 40 {
		t.Errorf("wanted 20 events and 20 commands, all different, found %d names and %d types", len(names), len(types))
	}
}

// Events and commands must survive their JSON, or a log could not be replayed.
func TestJSONRoundTrip(t *testing.T) {
	for _, c := range walk(toApproved) {
		data, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		back := reflect.New(reflect.TypeOf(c))
		if err := json.Unmarshal(data, back.Interface()); err != nil || back.Elem().Interface() != any(c) {
			t.Errorf("%T: wanted %v, found %v (%v) from %s", c, c, back.Elem(), err, data)
		}
	}
	_, events := replay(t, walk(toApproved))
	for _, e := range events {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		back := reflect.New(reflect.TypeOf(e))
		if err := json.Unmarshal(data, back.Interface()); err != nil || back.Elem().Interface() != any(e) {
			t.Errorf("%T: wanted %v, found %v (%v) from %s", e, e, back.Elem(), err, data)
		}
	}
}

// A state from a snapshot decides like the state it was made from.
func TestSnapshotRoundTrip(t *testing.T) {
	for c := range Generate(3, 50) {
		s := Initial()
		for i := range c.Events {
			s = evolveCommand(t, s, c, i)
			data, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			var back State
			if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, s) {
				t.Fatalf("wanted %+v, found %+v (%v)", s, back, err)
			}
			again, _ := json.Marshal(back)
			if string(again) != string(data) {
				t.Fatalf("wanted %s, found %s", data, again)
			}
		}
	}
}

// States may be cached and shared: deciding and evolving leaves them alone.
func TestStatesAreNotMutated(t *testing.T) {
	for c := range Generate(4, 50) {
		s := Initial()
		for i := range c.Events {
			before := s
			before.Work = maps.Clone(s.Work)
			next := evolveCommand(t, s, c, i)
			evolveCommand(t, s, c, i) // a second reader of the same state
			if !reflect.DeepEqual(s, before) {
				t.Fatalf("%s, event %d: wanted the state left alone, found %+v after %+v", c.Key, i, s, before)
			}
			s = next
		}
	}
}

func evolveCommand(t *testing.T, s State, c Case, i int) State {
	t.Helper()
	command, err := CommandFor(c, i)
	if err != nil {
		t.Fatal(err)
	}
	events, err := Decide(s, command)
	if err != nil {
		t.Fatalf("%s, event %d: %v", c.Key, i, err)
	}
	return Evolve(s, events[0])
}

func TestOutcomeText(t *testing.T) {
	for _, o := range outcomes() {
		back, err := ParseOutcome(o.String())
		if err != nil || back != o {
			t.Errorf("wanted %v, found %v (%v)", o, back, err)
		}
	}
	if _, err := ParseOutcome("maybe"); err == nil {
		t.Error("wanted an error for an unknown outcome")
	}
	if _, err := json.Marshal(Outcome(len(outcomeNames))); err == nil {
		t.Error("wanted an error for a value that is no outcome")
	}
}

func TestUnknownActivities(t *testing.T) {
	for _, e := range []CaseEvent{
		{Name: "A_UNKNOWN", Transition: "COMPLETE", Line: 7},
		{Name: "W_Onbekend", Transition: "START", Line: 7},
		{Name: "A_SUBMITTED", Transition: "START", Line: 7},
		{Name: "A_APPROVED", Line: 7},
		{Name: string(WorkLeads), Transition: "SUSPEND", Line: 7},
	} {
		_, err := CommandFor(Case{Events: []CaseEvent{e}}, 0)
		damage, ok := errors.AsType[*XESError](err)
		if !ok || !errors.Is(err, ErrXES) || damage.Line != 7 || damage.Wanted == "" {
			t.Errorf("%v: wanted an *XESError of line 7, found %v", e, err)
		}
	}
}

// Exactly at a bound is still allowed.
func TestBoundsAreAllowed(t *testing.T) {
	o := Order{At: time.Date(MaxYear, 12, 31, 0, 0, 0, 0, time.UTC), Resource: strings.Repeat("1", MaxValueBytes)}
	for _, amount := range []int64{0, MaxAmount} {
		replay(t, []Command{Submit{o, amount, ""}})
	}
	replay(t, []Command{Submit{Order{At: time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)}, 0, ""}})
}

func TestErrorsSayWhatWasWantedAndFound(t *testing.T) {
	for _, d := range []struct{ given, when, want string }{
		{toApproved, "A_DECLINED", "loan: refused by rule one-outcome: wanted an application without an outcome, found approved"},
		{"", "A_APPROVED", "loan: refused by rule submission-first: wanted Submit as the first command, found Approve"},
		{toReturned + "A_REGISTERED", "A_DECLINED", "loan: refused by rule binding: wanted an application the bank is not bound to, found registered"},
		{toReturned + "A_ACTIVATED", "A_CANCELLED", "loan: refused by rule binding: wanted an application the bank is not bound to, found activated"},
		{toReturned + "O_ACCEPTED", "O_SELECTED", "loan: refused by rule offer-answered: wanted offers not yet answered, found an accepted offer"},
		{toSelected, "O_SELECTED", "loan: refused by rule offer-in-making: wanted no offer in the making, found 1 selected and 0 sent"},
		{toLeads + "A_PREACCEPTED", "W_Afhandelen leads+START", "loan: refused by rule work-gate: wanted no preacceptance yet for W_Afhandelen leads, found an application where that is not so"},
	} {
		s, _ := replay(t, walk(d.given))
		later := newRoad(2, 2)
		later.at = later.at.AddDate(1, 0, 0)
		if _, err := Decide(s, later.step(d.when)); err == nil || err.Error() != d.want {
			t.Errorf("wanted %q, found %v", d.want, err)
		}
	}
	err := &XESError{Line: 7, Wanted: "a", Found: "b"}
	if want := "loan: XES log, line 7: wanted a, found b; the cases before it are read, repair the file and read it again"; err.Error() != want {
		t.Errorf("wanted %q, found %q", want, err.Error())
	}
}
