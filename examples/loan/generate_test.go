// Generated applications: the same for a seed, within the rules, and like the real ones.

package loan

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Every generated event is one command, decided into one event.
func TestGeneratedCasesKeepTheRules(t *testing.T) {
	for seed := range uint64(10) {
		for c := range Generate(seed, 500) {
			s := Initial()
			for i := range c.Events {
				command, err := CommandFor(c, i)
				if err != nil {
					t.Fatal(err)
				}
				events, err := Decide(s, command)
				if err != nil || len(events) != 1 {
					t.Fatalf("seed %d, case %s, event %d: wanted one event, found %v and %v", seed, c.Key, i, events, err)
				}
				s = Evolve(s, events[0])
			}
		}
	}
}

func TestGenerateIsDeterministic(t *testing.T) {
	some := slices.Collect(Generate(1, 20))
	if more := slices.Collect(Generate(1, 50)); !reflect.DeepEqual(some, more[:20]) {
		t.Error("wanted the same first 20 applications of 50")
	}
	keys := map[string]bool{}
	for seed := range uint64(3) {
		for c := range Generate(seed, 20) {
			keys[c.Key] = true
		}
	}
	if len(keys) != 60 {
		t.Errorf("wanted 60 different keys of 3 seeds, found %d", len(keys))
	}
}

func TestViolationsAreDeterministic(t *testing.T) {
	one, other := slices.Collect(GenerateViolations(1)), slices.Collect(GenerateViolations(1))
	if !reflect.DeepEqual(one, other) {
		t.Error("wanted the same violations for a seed")
	}
	if reflect.DeepEqual(one, slices.Collect(GenerateViolations(2))) {
		t.Error("wanted other violations for another seed")
	}
}

// The mix must contain what makes the real log hard, or tests on it prove little.
func TestGeneratedMix(t *testing.T) {
	activities := map[string]int{}
	var after, sameTime, ungranted int
	r := Summarize(func(yield func(Application) bool) {
		for c := range Generate(1, 4000) {
			var a Application
			s := Initial()
			for i, e := range c.Events {
				activities[e.Name+"+"+e.Transition]++
				if s.Outcome == OutcomeDeclined || s.Outcome == OutcomeCancelled {
					after++
				}
				if e.Time.Equal(s.Last) {
					sameTime++
				}
				command, _ := CommandFor(c, i)
				events, _ := Decide(s, command)
				s, a = Evolve(s, events[0]), Apply(a, events[0])
			}
			if s.Outcome == OutcomeApproved && !s.Offers.Accepted {
				ungranted++
			}
			yield(a)
		}
	})
	if r.Outcomes[OutcomeApproved] < 400 || r.Outcomes[OutcomeCancelled] < 400 ||
		r.Outcomes[OutcomeDeclined] < 1500 || r.Outcomes[OutcomeOpen] < 40 {
		t.Errorf("wanted a mix of outcomes, found %v", r.Outcomes)
	}
	if len(r.Months) != 5 || len(r.NoStart) < 4 || len(r.Work) != 6 {
		t.Errorf("wanted 5 months, 6 worked items and 4 without a start, found %v, %v and %v", r.Months, r.Work, r.NoStart)
	}
	if len(activities) != 17+6*3+1 {
		t.Errorf("wanted every activity of the real log, found %d: %v", len(activities), activities)
	}
	if after == 0 || sameTime == 0 || ungranted == 0 {
		t.Errorf("wanted events after the end, at one time, and grants without an accepted offer, found %d, %d, %d", after, sameTime, ungranted)
	}
}

// What is generated reads back from its file with the same report.
func TestGeneratedFile(t *testing.T) {
	var b bytes.Buffer
	if err := WriteXES(&b, Generate(2, 100)); err != nil {
		t.Fatal(err)
	}
	cases, err := readAll(bytes.NewReader(zipped(b.Bytes())))
	if err != nil || !equalCases(cases, slices.Collect(Generate(2, 100))) {
		t.Errorf("wanted what was generated, found %d cases (%v)", len(cases), err)
	}
	lines := strings.Split(b.String(), "\n")
	for _, c := range cases {
		for _, e := range c.Events {
			if strings.TrimSpace(lines[e.Line-1]) != "<event>" {
				t.Fatalf("%s: wanted <event> on line %d, found %q", c.Key, e.Line, lines[e.Line-1])
			}
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	cases := slices.Collect(Generate(1, 200))
	events := 0
	for b.Loop() {
		for _, c := range cases {
			s := Initial()
			for i := range c.Events {
				command, _ := CommandFor(c, i)
				decided, err := Decide(s, command)
				if err != nil {
					b.Fatal(err)
				}
				s = Evolve(s, decided[0])
				events++
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
}
