// Package wire is where Go types of package loan meet their wire names, and the loan
// process as an aggregate type and as a handler. It is all that a function or a WebAssembly
// guest links which decides applications.
package wire

import (
	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/handler"
)

// Category holds a stream for each application: application-<case>.
const Category eventstore.Category = "application"

// Applications is the aggregate type of the loan process.
func Applications() aggregate.Type[loan.State, loan.Command, loan.Event] {
	return aggregate.Type[loan.State, loan.Command, loan.Event]{
		Category: Category,
		Schema:   Events(),
		Decider:  aggregate.Decider[loan.State, loan.Command, loan.Event]{Initial: loan.Initial, Decide: loan.Decide, Evolve: loan.Evolve},
		// The command IDs of an import are made of names and so carry no time: all of
		// a case must be remembered for a second import to change nothing.
		Snapshots: aggregate.Snapshots{RememberedIDs: loan.MaxEventsPerCase},
	}
}

// Handler decides applications wherever it runs.
func Handler() (handler.Handler, error) {
	return guest.New(Applications(), guest.CommandsOf(Commands()), &guest.Options[loan.Command]{Name: "loan", Release: "1"})
}

// Commands returns the registry of the loan commands, a line for each row of
// loan.CommandTypes (a test compares them).
func Commands() *schema.Registry[loan.Command] {
	return schema.New[loan.Command](
		schema.Wire[loan.Submit]("loan.submit", 1),
		schema.Wire[loan.PartlySubmit]("loan.partly_submit", 1),
		schema.Wire[loan.Preaccept]("loan.preaccept", 1),
		schema.Wire[loan.Accept]("loan.accept", 1),
		schema.Wire[loan.Finalize]("loan.finalize", 1),
		schema.Wire[loan.Approve]("loan.approve", 1),
		schema.Wire[loan.Register]("loan.register", 1),
		schema.Wire[loan.Activate]("loan.activate", 1),
		schema.Wire[loan.Decline]("loan.decline", 1),
		schema.Wire[loan.Cancel]("loan.cancel", 1),
		schema.Wire[loan.SelectOffer]("loan.select_offer", 1),
		schema.Wire[loan.CreateOffer]("loan.create_offer", 1),
		schema.Wire[loan.SendOffer]("loan.send_offer", 1),
		schema.Wire[loan.ReturnOffer]("loan.return_offer", 1),
		schema.Wire[loan.AcceptOffer]("loan.accept_offer", 1),
		schema.Wire[loan.DeclineOffer]("loan.decline_offer", 1),
		schema.Wire[loan.CancelOffer]("loan.cancel_offer", 1),
		schema.Wire[loan.ScheduleWork]("loan.schedule_work", 1),
		schema.Wire[loan.StartWork]("loan.start_work", 1),
		schema.Wire[loan.CompleteWork]("loan.complete_work", 1),
	)
}

// Events returns the registry of the loan events, a line for each row of
// loan.EventTypes (a test compares them).
func Events() *schema.Registry[loan.Event] {
	return schema.New[loan.Event](
		schema.Wire[loan.Submitted]("loan.submitted", 1),
		schema.Wire[loan.PartlySubmitted]("loan.partly_submitted", 1),
		schema.Wire[loan.Preaccepted]("loan.preaccepted", 1),
		schema.Wire[loan.Accepted]("loan.accepted", 1),
		schema.Wire[loan.Finalized]("loan.finalized", 1),
		schema.Wire[loan.Approved]("loan.approved", 1),
		schema.Wire[loan.Registered]("loan.registered", 1),
		schema.Wire[loan.Activated]("loan.activated", 1),
		schema.Wire[loan.Declined]("loan.declined", 1),
		schema.Wire[loan.Cancelled]("loan.cancelled", 1),
		schema.Wire[loan.OfferSelected]("loan.offer_selected", 1),
		schema.Wire[loan.OfferCreated]("loan.offer_created", 1),
		schema.Wire[loan.OfferSent]("loan.offer_sent", 1),
		schema.Wire[loan.OfferReturned]("loan.offer_returned", 1),
		schema.Wire[loan.OfferAccepted]("loan.offer_accepted", 1),
		schema.Wire[loan.OfferDeclined]("loan.offer_declined", 1),
		schema.Wire[loan.OfferCancelled]("loan.offer_cancelled", 1),
		schema.Wire[loan.WorkScheduled]("loan.work_scheduled", 1),
		schema.Wire[loan.WorkStarted]("loan.work_started", 1),
		schema.Wire[loan.WorkCompleted]("loan.work_completed", 1),
	)
}
