// The report: figures over all applications, exact and the same on every store.

package loan

import (
	"iter"
	"slices"
	"time"
	_ "time/tzdata" // months are Amsterdam's also where the system has no zones, as in a guest
)

// Report is the figures over all applications. Its JSON is the same whatever the
// order of the applications.
type Report struct {
	Cases    int             `json:"cases"`
	Events   int             `json:"events"`
	Outcomes map[Outcome]int `json:"outcomes"` // always all four
	// Months counts submissions by month, "2011-10", in Europe/Amsterdam.
	Months map[string]int `json:"months"`
	// Amount is over the requested amounts in whole euros; always all four outcomes.
	Amount map[Outcome]Amounts `json:"amount"`
	// Hours is from submission to the outcome; all outcomes but open.
	Hours map[Outcome]Durations `json:"hours"`
	// Work is the hours of each work item, from the latest open start of its name
	// in the case to its completion.
	Work map[WorkItem]Hours `json:"work"`
	// NoStart counts completions without an open start; no zeros.
	NoStart map[WorkItem]int `json:"nostart"`
	// Offers is how many were sent; 0 and not shown where the read model does not count
	// them, see ApplyOffers.
	Offers int `json:"offers,omitempty"`
}

// Amounts are figures over requested amounts in whole euros.
type Amounts struct {
	Sum    int64  `json:"sum"`
	Median *int64 `json:"median"` // by nearest rank; null without applications
}

// Durations are figures over times by nearest rank; null without applications.
type Durations struct {
	Median *Hours `json:"median"`
	P90    *Hours `json:"p90"`
}

// Hours is a number of hours with 4 decimals.
type Hours float64

// hoursOf rounds once, half up, in whole ten-thousandths of an hour (360 ms).
func hoursOf(ms int64) Hours { return Hours(float64((ms+180)/360) / 10_000) }

// Summarize makes the report. It keeps two numbers per application in memory,
// not the applications.
func Summarize(applications iter.Seq[Application]) Report {
	s := newSummary()
	for a := range applications {
		s.add(a)
	}
	return s.report()
}

func outcomes() []Outcome {
	return []Outcome{OutcomeOpen, OutcomeApproved, OutcomeDeclined, OutcomeCancelled}
}

// summary is a report in the making: exact sums, nothing rounded.
type summary struct {
	cases, events int
	offers        int
	months        map[string]int
	amounts       map[Outcome][]int64
	waited        map[Outcome][]int64 // milliseconds
	worked        map[WorkItem]int64  // milliseconds
	noStart       map[WorkItem]int
	zone          *time.Location
}

func newSummary() *summary {
	return &summary{
		months:  map[string]int{},
		amounts: map[Outcome][]int64{},
		waited:  map[Outcome][]int64{},
		worked:  map[WorkItem]int64{},
		noStart: map[WorkItem]int{},
		zone:    amsterdam(),
	}
}

func (s *summary) add(a Application) {
	s.cases++
	s.events += a.Events
	s.offers += a.Offers
	s.months[a.Submitted.In(s.zone).Format("2006-01")]++
	s.amounts[a.Outcome] = append(s.amounts[a.Outcome], a.Amount)
	if a.Outcome != OutcomeOpen {
		s.waited[a.Outcome] = append(s.waited[a.Outcome], milliseconds(a.Submitted, a.Decided))
	}
	for item, ms := range a.Worked {
		s.worked[item] += ms
	}
	for item, n := range a.NoStart {
		s.noStart[item] += n
	}
}

func (s *summary) report() Report {
	r := Report{
		Cases: s.cases, Events: s.events, Offers: s.offers, Months: s.months, NoStart: s.noStart,
		Outcomes: map[Outcome]int{},
		Amount:   map[Outcome]Amounts{},
		Hours:    map[Outcome]Durations{},
		Work:     map[WorkItem]Hours{},
	}
	for _, o := range outcomes() {
		r.Outcomes[o] = len(s.amounts[o])
		r.Amount[o] = amountsOf(s.amounts[o])
		if o != OutcomeOpen {
			r.Hours[o] = durationsOf(s.waited[o])
		}
	}
	for item, ms := range s.worked {
		r.Work[item] = hoursOf(ms)
	}
	return r
}

func amountsOf(amounts []int64) Amounts {
	var a Amounts
	for _, n := range amounts {
		a.Sum += n
	}
	if median, ok := nearestRank(amounts, 50); ok {
		a.Median = &median
	}
	return a
}

func durationsOf(ms []int64) Durations {
	var d Durations
	if median, ok := nearestRank(ms, 50); ok {
		d.Median = new(hoursOf(median))
	}
	if p90, ok := nearestRank(ms, 90); ok {
		d.P90 = new(hoursOf(p90))
	}
	return d
}

// nearestRank is the value at rank ⌈percent/100·n⌉ of the sorted values, counted
// from 1; false without values. It sorts what it is given.
func nearestRank(values []int64, percent int) (int64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	slices.Sort(values)
	rank := (percent*len(values) + 99) / 100
	return values[max(rank, 1)-1], true
}

// amsterdam cannot fail, as the zones are linked in.
func amsterdam() *time.Location {
	zone, err := time.LoadLocation("Europe/Amsterdam")
	if err != nil {
		panic("loan: time/tzdata is linked in and lacks Europe/Amsterdam: " + err.Error())
	}
	return zone
}
