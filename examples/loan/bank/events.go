// The registry: where Go types of package loan meet their wire names.

package bank

import (
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/examples/loan"
)

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
