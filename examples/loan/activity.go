// Where the log's activities, the Go types and the wire names meet.

package loan

import (
	"fmt"
	"strings"
)

// EventType is one row of EventTypes.
type EventType struct {
	Name    string // wire name, never reused for another type
	Version int    // schema version of the payload, from 1
	Zero    Event  // the zero value of the Go type
}

// EventTypes lists every event type once, in the order of the process. A
// registry is made from it.
func EventTypes() []EventType {
	return []EventType{
		{"loan.submitted", 1, Submitted{}},
		{"loan.partly_submitted", 1, PartlySubmitted{}},
		{"loan.preaccepted", 1, Preaccepted{}},
		{"loan.accepted", 1, Accepted{}},
		{"loan.finalized", 1, Finalized{}},
		{"loan.approved", 1, Approved{}},
		{"loan.registered", 1, Registered{}},
		{"loan.activated", 1, Activated{}},
		{"loan.declined", 1, Declined{}},
		{"loan.cancelled", 1, Cancelled{}},
		{"loan.offer_selected", 1, OfferSelected{}},
		{"loan.offer_created", 1, OfferCreated{}},
		{"loan.offer_sent", 1, OfferSent{}},
		{"loan.offer_returned", 1, OfferReturned{}},
		{"loan.offer_accepted", 1, OfferAccepted{}},
		{"loan.offer_declined", 1, OfferDeclined{}},
		{"loan.offer_cancelled", 1, OfferCancelled{}},
		{"loan.work_scheduled", 1, WorkScheduled{}},
		{"loan.work_started", 1, WorkStarted{}},
		{"loan.work_completed", 1, WorkCompleted{}},
	}
}

// CommandType is one row of CommandTypes.
type CommandType struct {
	Name string  // wire name
	Zero Command // the zero value of the Go type
}

// CommandTypes lists every command type once, in the order of EventTypes: the
// command of a row is answered by the event of the same row.
func CommandTypes() []CommandType {
	return []CommandType{
		{"loan.submit", Submit{}},
		{"loan.partly_submit", PartlySubmit{}},
		{"loan.preaccept", Preaccept{}},
		{"loan.accept", Accept{}},
		{"loan.finalize", Finalize{}},
		{"loan.approve", Approve{}},
		{"loan.register", Register{}},
		{"loan.activate", Activate{}},
		{"loan.decline", Decline{}},
		{"loan.cancel", Cancel{}},
		{"loan.select_offer", SelectOffer{}},
		{"loan.create_offer", CreateOffer{}},
		{"loan.send_offer", SendOffer{}},
		{"loan.return_offer", ReturnOffer{}},
		{"loan.accept_offer", AcceptOffer{}},
		{"loan.decline_offer", DeclineOffer{}},
		{"loan.cancel_offer", CancelOffer{}},
		{"loan.schedule_work", ScheduleWork{}},
		{"loan.start_work", StartWork{}},
		{"loan.complete_work", CompleteWork{}},
	}
}

// The life cycle transitions of the log. A_ and O_ activities only complete.
const (
	transitionSchedule = "SCHEDULE"
	transitionStart    = "START"
	transitionComplete = "COMPLETE"
)

// steps makes the command of an A_ or O_ activity. The submission is missing,
// as it alone needs more than an Order.
var steps = map[string]func(Order) Command{
	"A_PARTLYSUBMITTED": func(o Order) Command { return PartlySubmit{o} },
	"A_PREACCEPTED":     func(o Order) Command { return Preaccept{o} },
	"A_ACCEPTED":        func(o Order) Command { return Accept{o} },
	"A_FINALIZED":       func(o Order) Command { return Finalize{o} },
	"A_APPROVED":        func(o Order) Command { return Approve{o} },
	"A_REGISTERED":      func(o Order) Command { return Register{o} },
	"A_ACTIVATED":       func(o Order) Command { return Activate{o} },
	"A_DECLINED":        func(o Order) Command { return Decline{o} },
	"A_CANCELLED":       func(o Order) Command { return Cancel{o} },
	"O_SELECTED":        func(o Order) Command { return SelectOffer{o} },
	"O_CREATED":         func(o Order) Command { return CreateOffer{o} },
	"O_SENT":            func(o Order) Command { return SendOffer{o} },
	"O_SENT_BACK":       func(o Order) Command { return ReturnOffer{o} },
	"O_ACCEPTED":        func(o Order) Command { return AcceptOffer{o} },
	"O_DECLINED":        func(o Order) Command { return DeclineOffer{o} },
	"O_CANCELLED":       func(o Order) Command { return CancelOffer{o} },
}

const submission = "A_SUBMITTED"

// CommandFor is the command that event i of a case stands for, 0 ≤ i < len(c.Events).
// An activity or transition that the process does not know is an *XESError with
// the event's line.
func CommandFor(c Case, i int) (Command, error) {
	e := c.Events[i]
	o := Order{At: e.Time, Resource: e.Resource}
	if item := WorkItem(e.Name); item.isKnown() {
		return workCommand(e, o, item)
	}
	step, ok := steps[e.Name]
	switch {
	case e.Name != submission && !ok:
		return nil, unknownActivity(e, "an activity of the loan process (A_…, O_… or W_…)")
	case e.Transition != transitionComplete:
		return nil, unknownActivity(e, "transition COMPLETE of "+e.Name)
	case e.Name == submission:
		return Submit{o, c.AmountRequested, c.Customer}, nil
	}
	return step(o), nil
}

func workCommand(e CaseEvent, o Order, item WorkItem) (Command, error) {
	switch e.Transition {
	case transitionSchedule:
		return ScheduleWork{o, item}, nil
	case transitionStart:
		return StartWork{o, item}, nil
	case transitionComplete:
		return CompleteWork{o, item}, nil
	}
	return nil, unknownActivity(e, "transition SCHEDULE, START or COMPLETE of "+e.Name)
}

func unknownActivity(e CaseEvent, wanted string) error {
	return &XESError{Line: e.Line, Wanted: wanted, Found: quote(e.Name) + " with transition " + quote(e.Transition)}
}

// commandName is how messages call a command.
func commandName(c Command) string { return strings.TrimPrefix(fmt.Sprintf("%T", c), "loan.") }
