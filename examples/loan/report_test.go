// The read model and the report on examples small enough to compute by hand.

package loan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// The day the examples happen on, in UTC.
func at(hour, minute int) Occurred {
	return Occurred{At: time.Date(2011, 12, 1, hour, minute, 0, 0, time.UTC)}
}

func applyAll(events ...Event) Application {
	var a Application
	for _, e := range events {
		a = Apply(a, e)
	}
	return a
}

func reportOn(applications ...Application) Report { return Summarize(slices.Values(applications)) }

func TestWorkPairing(t *testing.T) {
	start := func(o Occurred) Event { return WorkStarted{o, WorkLeads} }
	complete := func(o Occurred) Event { return WorkCompleted{o, WorkLeads} }
	type hours = map[WorkItem]Hours
	type counts = map[WorkItem]int
	for _, d := range []struct {
		name    string
		events  []Event
		work    hours
		noStart counts
	}{
		{"a pair", []Event{start(at(1, 0)), complete(at(2, 30))}, hours{WorkLeads: 1.5}, counts{}},
		{"two pairs", []Event{start(at(1, 0)), complete(at(2, 0)), start(at(3, 0)), complete(at(3, 15))}, hours{WorkLeads: 1.25}, counts{}},
		{"two starts: the earlier is dropped", []Event{start(at(1, 0)), start(at(4, 0)), complete(at(5, 0))}, hours{WorkLeads: 1}, counts{}},
		{
			"two starts, two completions: the second finds none",
			[]Event{start(at(1, 0)), start(at(4, 0)), complete(at(5, 0)), complete(at(6, 0))},
			hours{WorkLeads: 1}, counts{WorkLeads: 1},
		},
		{"no start", []Event{complete(at(5, 0))}, hours{}, counts{WorkLeads: 1}},
		{"a schedule is no start", []Event{WorkScheduled{at(1, 0), WorkLeads}, complete(at(5, 0))}, hours{}, counts{WorkLeads: 1}},
		{"no completion", []Event{start(at(1, 0))}, hours{}, counts{}},
		{"no time at all", []Event{start(at(1, 0)), complete(at(1, 0))}, hours{WorkLeads: 0}, counts{}},
		{
			"items apart",
			[]Event{start(at(1, 0)), WorkStarted{at(2, 0), WorkFraud}, complete(at(3, 0)), WorkCompleted{at(6, 0), WorkFraud}},
			hours{WorkLeads: 2, WorkFraud: 4}, counts{},
		},
	} {
		t.Run(d.name, func(t *testing.T) {
			r := reportOn(applyAll(d.events...))
			if !maps.Equal(r.Work, d.work) || !maps.Equal(r.NoStart, d.noStart) {
				t.Errorf("wanted %v and %v, found %v and %v", d.work, d.noStart, r.Work, r.NoStart)
			}
		})
	}
}

// Starts of one application never close in another.
func TestWorkStaysInItsCase(t *testing.T) {
	r := reportOn(applyAll(WorkStarted{at(1, 0), WorkLeads}), applyAll(WorkCompleted{at(2, 0), WorkLeads}))
	if len(r.Work) != 0 || r.NoStart[WorkLeads] != 1 {
		t.Errorf("wanted no hours and one completion without a start, found %v and %v", r.Work, r.NoStart)
	}
}

func TestNearestRank(t *testing.T) {
	for _, d := range []struct {
		values      []int64
		median, p90 int64
	}{
		{[]int64{7}, 7, 7},
		{[]int64{9, 1}, 1, 9},
		{[]int64{3, 1, 2}, 2, 3},
		{[]int64{4, 3, 2, 1}, 2, 4},
		{[]int64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 5, 9},
		{[]int64{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 6, 10},
		{[]int64{15, 20, 35, 40, 50}, 35, 50},
	} {
		median, _ := nearestRank(slices.Clone(d.values), 50)
		p90, _ := nearestRank(slices.Clone(d.values), 90)
		if median != d.median || p90 != d.p90 {
			t.Errorf("%v: wanted %d and %d, found %d and %d", d.values, d.median, d.p90, median, p90)
		}
	}
	if _, ok := nearestRank(nil, 50); ok {
		t.Error("wanted no rank without values")
	}
}

func TestHoursAreRoundedOnce(t *testing.T) {
	for ms, want := range map[int64]string{
		0: "0", 179: "0", 180: "0.0001", 359: "0.0001", 360: "0.0001", 539: "0.0001", 540: "0.0002",
		3_600_000: "1", 5_400_000: "1.5", 1_200_000: "0.3333", 2_400_000: "0.6667", 1_234_567_890: "342.9355",
	} {
		if got, _ := json.Marshal(hoursOf(ms)); string(got) != want {
			t.Errorf("%d ms: wanted %s, found %s", ms, want, got)
		}
	}
	// Three times 0.00004 hours are 0.0001, though each alone rounds to nothing.
	work := []Event{}
	for range 3 {
		begin := at(1, 0)
		end := Occurred{At: begin.At.Add(144 * time.Millisecond)}
		work = append(work, WorkStarted{begin, WorkLeads}, WorkCompleted{end, WorkLeads})
	}
	if r := reportOn(applyAll(work...)); r.Work[WorkLeads] != 0.0001 {
		t.Errorf("wanted 0.0001, found %v", r.Work[WorkLeads])
	}
}

// Months are Amsterdam's, in winter and in summer, also at their borders.
func TestMonths(t *testing.T) {
	for utc, want := range map[string]string{
		"2011-09-30T21:59:59.999Z": "2011-09",
		"2011-09-30T22:00:00Z":     "2011-10", // summer time
		"2011-10-31T22:59:59Z":     "2011-10",
		"2011-10-31T23:00:00Z":     "2011-11", // winter time
		"2011-12-31T23:00:00Z":     "2012-01",
	} {
		submitted, err := time.Parse(time.RFC3339, utc)
		if err != nil {
			t.Fatal(err)
		}
		r := reportOn(applyAll(Submitted{Occurred: Occurred{At: submitted}}))
		if !maps.Equal(r.Months, map[string]int{want: 1}) {
			t.Errorf("%s: wanted %s, found %v", utc, want, r.Months)
		}
	}
}

// fiveApplications is three declined after 1, 2 and 10 hours, one approved after
// half an hour, one open.
func fiveApplications() []Application {
	declined := func(amount int64, hours int) Application {
		return applyAll(Submitted{at(1, 0), amount, ""}, PartlySubmitted{at(1, 0)}, Declined{at(1+hours, 0)})
	}
	return []Application{
		declined(5000, 10), declined(1000, 1), declined(3000, 2),
		applyAll(Submitted{at(4, 0), 7, ""}, Approved{at(4, 30)}, Registered{at(5, 0)}, WorkCompleted{at(6, 0), WorkFraud}),
		applyAll(Submitted{at(4, 0), 0, ""}, WorkStarted{at(6, 0), WorkLeads}, WorkCompleted{at(6, 6), WorkLeads}),
	}
}

const fiveJSON = `{
  "cases": 5,
  "events": 16,
  "outcomes": {
    "approved": 1,
    "cancelled": 0,
    "declined": 3,
    "open": 1
  },
  "months": {
    "2011-12": 5
  },
  "amount": {
    "approved": {
      "sum": 7,
      "median": 7
    },
    "cancelled": {
      "sum": 0,
      "median": null
    },
    "declined": {
      "sum": 9000,
      "median": 3000
    },
    "open": {
      "sum": 0,
      "median": 0
    }
  },
  "hours": {
    "approved": {
      "median": 0.5,
      "p90": 0.5
    },
    "cancelled": {
      "median": null,
      "p90": null
    },
    "declined": {
      "median": 2,
      "p90": 10
    }
  },
  "work": {
    "W_Afhandelen leads": 0.1
  },
  "nostart": {
    "W_Beoordelen fraude": 1
  }
}`

func TestReportJSON(t *testing.T) {
	applications := fiveApplications()
	for range 2 {
		got, err := json.MarshalIndent(reportOn(applications...), "", "  ")
		if err != nil || string(got) != fiveJSON {
			t.Errorf("wanted %s, found %s (%v)", fiveJSON, got, err)
		}
		slices.Reverse(applications) // the order of applications must not matter
	}
}

func TestReportOnNothing(t *testing.T) {
	r := reportOn()
	if r.Cases != 0 || len(r.Outcomes) != 4 || len(r.Amount) != 4 || len(r.Hours) != 3 {
		t.Errorf("wanted all outcomes with nothing in them, found %+v", r)
	}
	data, _ := json.Marshal(r)
	for _, want := range []string{`"months":{}`, `"work":{}`, `"nostart":{}`} {
		if !bytes.Contains(data, []byte(want)) {
			t.Errorf("wanted %s, found %s", want, data)
		}
	}
}

// A read model kept as JSON between any two events ends as the same document.
func TestApplicationRoundTrip(t *testing.T) {
	for c := range Generate(8, 50) {
		var kept, stored Application
		s := Initial()
		for i := range c.Events {
			command, err := CommandFor(c, i)
			if err != nil {
				t.Fatal(err)
			}
			events, err := Decide(s, command)
			if err != nil {
				t.Fatal(err)
			}
			s = Evolve(s, events[0])
			before := fmt.Sprint(kept)
			next := Apply(kept, events[0])
			if fmt.Sprint(kept) != before {
				t.Fatalf("%s, event %d: Apply changed what it was given", c.Key, i)
			}
			kept = next
			stored = throughJSON(t, Apply(stored, events[0]))
		}
		if !reflect.DeepEqual(reportOn(kept), reportOn(stored)) || kept.Events != len(c.Events) {
			t.Fatalf("%s: wanted %+v, found %+v", c.Key, kept, stored)
		}
	}
}

func throughJSON(t *testing.T, a Application) Application {
	t.Helper()
	data, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var back Application
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	return back
}

func TestWriteTableReportsTheWriter(t *testing.T) {
	if err := reportOn().WriteTable(&fullWriter{}); err == nil {
		t.Error("wanted the writer's error")
	}
}

func ExampleReport_WriteTable() {
	r := Summarize(slices.Values(fiveApplications()))
	if err := r.WriteTable(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 5 applications, 16 events
	//
	// outcome    applications  amount sum  amount median  hours median  hours p90
	// approved              1           7              7        0.5000     0.5000
	// declined              3        9000           3000        2.0000    10.0000
	// cancelled             0           0              -             -          -
	// open                  1           0              0             -          -
	//
	// month    submissions
	// 2011-12            5
	//
	// work item             hours  completed without a start
	// W_Afhandelen leads   0.1000                          0
	// W_Beoordelen fraude  0.0000                          1
}

func TestTableAlignsLetters(t *testing.T) {
	got := table{{"é", "n"}, {"ab", "100"}}.String()
	if want := strings.Join([]string{"é     n", "ab  100", ""}, "\n"); got != want {
		t.Errorf("wanted %q, found %q", want, got)
	}
}
