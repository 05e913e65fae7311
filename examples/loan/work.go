// The commands and events of the work the bank's people do: the W_ activities of the log.

package loan

import (
	"cmp"
	"fmt"
)

// WorkItem is a kind of work, by its name in the log.
type WorkItem string

// The work items.
const (
	WorkLeads       WorkItem = "W_Afhandelen leads"             // follow up incomplete first submissions
	WorkCompletion  WorkItem = "W_Completeren aanvraag"         // complete the preaccepted application
	WorkOfferCalls  WorkItem = "W_Nabellen offertes"            // call after sent offers
	WorkValidation  WorkItem = "W_Valideren aanvraag"           // assess the returned application
	WorkFileCalls   WorkItem = "W_Nabellen incomplete dossiers" // call after missing documents
	WorkFraud       WorkItem = "W_Beoordelen fraude"            // look into suspected fraud
	WorkNewContract WorkItem = "W_Wijzigen contractgegevens"    // change the contract's data
)

// WorkItems lists every work item.
func WorkItems() []WorkItem {
	return []WorkItem{
		WorkLeads, WorkCompletion, WorkOfferCalls, WorkValidation, WorkFileCalls, WorkFraud, WorkNewContract,
	}
}

// The commands on work.
type (
	// ScheduleWork puts an item on somebody's list.
	ScheduleWork struct {
		Order
		Item WorkItem `json:"item"`
	}
	// StartWork begins an item.
	StartWork struct {
		Order
		Item WorkItem `json:"item"`
	}
	// CompleteWork ends an item, started or not.
	CompleteWork struct {
		Order
		Item WorkItem `json:"item"`
	}
)

// The events of work, each the answer to the command of its name.
type (
	// WorkScheduled answers ScheduleWork.
	WorkScheduled struct {
		Occurred
		Item WorkItem `json:"item"`
	}
	// WorkStarted answers StartWork.
	WorkStarted struct {
		Occurred
		Item WorkItem `json:"item"`
	}
	// WorkCompleted answers CompleteWork.
	WorkCompleted struct {
		Occurred
		Item WorkItem `json:"item"`
	}
)

func (c ScheduleWork) decide(s State) (Event, error) {
	err := cmp.Or(c.Item.known(), s.schedulable(c.Item), workGates[c.Item].schedule.check(s, c.Item))
	return WorkScheduled{c.occur(), c.Item}, err
}

func (c StartWork) decide(s State) (Event, error) {
	notDeclined := require(s.Outcome != OutcomeDeclined, RuleWorkClosed, "an application not declined", "declined")
	err := cmp.Or(c.Item.known(), s.scheduled(c.Item), notDeclined, workGates[c.Item].start.check(s, c.Item))
	return WorkStarted{c.occur(), c.Item}, err
}

func (c CompleteWork) decide(s State) (Event, error) {
	return WorkCompleted{c.occur(), c.Item}, cmp.Or(c.Item.known(), s.scheduled(c.Item), s.completable(c.Item))
}

// gate is a condition on the application for one step of one work item; the zero
// gate is open.
type gate struct {
	wanted string
	holds  func(State) bool
}

func (g gate) check(s State, item WorkItem) error {
	if g.holds == nil || g.holds(s) {
		return nil
	}
	return refuse(RuleWorkGate, g.wanted+" for "+string(item), "an application where that is not so")
}

// workGates says where in the process each work item belongs. Completing has no
// gate: what was begun may always be ended.
var workGates = map[WorkItem]struct{ schedule, start gate }{
	WorkLeads: {
		schedule: gate{"no preacceptance yet", func(s State) bool { return !s.Preaccepted }},
		start:    gate{"no preacceptance yet", func(s State) bool { return !s.Preaccepted }},
	},
	WorkCompletion: {
		schedule: gate{"no acceptance yet", func(s State) bool { return !s.Accepted }},
		start:    gate{"preacceptance", func(s State) bool { return s.Preaccepted }},
	},
	WorkOfferCalls: {
		schedule: gate{"more selected offers than scheduled calls", func(s State) bool {
			return s.Work[WorkOfferCalls].Scheduled < s.Offers.Selected
		}},
		start: gate{"a sent offer", func(s State) bool { return s.Offers.Sent > 0 }},
	},
	WorkValidation: {
		schedule: gate{"a returned offer", func(s State) bool { return s.Offers.Returned > 0 }},
	},
	WorkFileCalls: {
		schedule: gate{"a scheduled validation", func(s State) bool { return s.Work[WorkValidation].Scheduled > 0 }},
	},
	WorkNewContract: {
		schedule: gate{"a sent offer", func(s State) bool { return s.Offers.Sent > 0 }},
	},
	WorkFraud: {},
}

func (w WorkItem) isKnown() bool {
	_, ok := workGates[w]
	return ok
}

func (w WorkItem) known() error {
	if w.isKnown() {
		return nil
	}
	return refuse(RuleWellFormed, fmt.Sprintf("a work item of %q", WorkItems()), quote(string(w)))
}

// schedulable wants an open application, or one that a contract change may follow.
func (s State) schedulable(item WorkItem) error {
	refused := s.Outcome == OutcomeDeclined || s.Outcome == OutcomeCancelled
	if !s.Closed() || item == WorkNewContract && !refused {
		return nil
	}
	return refuse(RuleWorkClosed, "an open application for scheduling "+string(item), s.closedBy())
}

func (s State) scheduled(item WorkItem) error {
	if s.Work[item].Scheduled > 0 {
		return nil
	}
	return refuse(RuleWorkScheduled, string(item)+" scheduled before", "none")
}

func (s State) completable(item WorkItem) error {
	w := s.Work[item]
	if w.Completed < w.Scheduled+w.Started {
		return nil
	}
	wanted := string(item) + " completed less often than scheduled and started"
	return refuse(RuleWorkUnits, wanted, fmt.Sprintf("%d, %d and %d times", w.Completed, w.Scheduled, w.Started))
}

func (e WorkScheduled) evolve(s *State) {
	w := s.Work[e.Item]
	w.Scheduled++
	s.setWork(e.Item, w)
}

func (e WorkStarted) evolve(s *State) {
	w := s.Work[e.Item]
	w.Started++
	s.setWork(e.Item, w)
}

func (e WorkCompleted) evolve(s *State) {
	w := s.Work[e.Item]
	w.Completed++
	s.setWork(e.Item, w)
}
