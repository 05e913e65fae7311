// The commands and events of the offers the bank makes: the O_ activities of the log.
//
// The log names no offers, so the rules count them: selected ≥ created ≥ sent,
// at most one in the making, and what was sent and not cancelled is live.

package loan

import (
	"cmp"
	"fmt"
	"strconv"
)

// The commands on offers.
type (
	// SelectOffer picks the offer to make next.
	SelectOffer struct{ Order }
	// CreateOffer draws up the selected offer.
	CreateOffer struct{ Order }
	// SendOffer sends the created offer to the applicant.
	SendOffer struct{ Order }
	// ReturnOffer records that an offer came back from the applicant.
	ReturnOffer struct{ Order }
	// AcceptOffer closes the deal on the one live offer.
	AcceptOffer struct{ Order }
	// DeclineOffer turns the one live offer down.
	DeclineOffer struct{ Order }
	// CancelOffer withdraws a live offer.
	CancelOffer struct{ Order }
)

// The events of offers, each the answer to the command of its name.
type (
	// OfferSelected answers SelectOffer.
	OfferSelected struct{ Occurred }
	// OfferCreated answers CreateOffer.
	OfferCreated struct{ Occurred }
	// OfferSent answers SendOffer.
	OfferSent struct{ Occurred }
	// OfferReturned answers ReturnOffer.
	OfferReturned struct{ Occurred }
	// OfferAccepted answers AcceptOffer.
	OfferAccepted struct{ Occurred }
	// OfferDeclined answers DeclineOffer.
	OfferDeclined struct{ Occurred }
	// OfferCancelled answers CancelOffer.
	OfferCancelled struct{ Occurred }
)

func (c SelectOffer) decide(s State) (Event, error) {
	const change = "selecting an offer"
	err := cmp.Or(s.after(s.Accepted, change, "acceptance"), s.unanswered(), s.offersOpen(change), s.noOfferInMaking())
	return OfferSelected{c.occur()}, err
}

func (c CreateOffer) decide(s State) (Event, error) {
	const change = "creating an offer"
	err := cmp.Or(s.after(s.Finalized, change, "finalization"), s.unanswered(), s.offersOpen(change),
		s.offerPending(s.Offers.Selected > s.Offers.Created, "a selected offer not yet created"))
	return OfferCreated{c.occur()}, err
}

func (c SendOffer) decide(s State) (Event, error) {
	err := s.offerPending(s.Offers.Created > s.Offers.Sent, "a created offer not yet sent")
	return OfferSent{c.occur()}, err
}

func (c ReturnOffer) decide(s State) (Event, error) {
	err := cmp.Or(s.unanswered(), s.offersOpen("a returned offer"), s.liveOffer(), s.noOfferInMaking())
	return OfferReturned{c.occur()}, err
}

func (c AcceptOffer) decide(s State) (Event, error) {
	open := s.offersOpen("accepting an offer", OutcomeOpen, OutcomeApproved)
	return OfferAccepted{c.occur()}, cmp.Or(s.unanswered(), open, s.noOfferInMaking(), s.grantOffer())
}

func (c DeclineOffer) decide(s State) (Event, error) {
	err := cmp.Or(s.unanswered(), s.offersOpen("declining an offer", OutcomeDeclined), s.onlyOffer())
	return OfferDeclined{c.occur()}, err
}

func (c CancelOffer) decide(s State) (Event, error) {
	err := cmp.Or(s.unanswered(), s.offersOpen("cancelling an offer", OutcomeCancelled), s.liveOffer())
	return OfferCancelled{c.occur()}, err
}

func (s State) offerPending(ok bool, wanted string) error {
	if ok {
		return nil
	}
	o := s.Offers
	return refuse(RuleOfferOrder, wanted, fmt.Sprintf("%d selected, %d created, %d sent", o.Selected, o.Created, o.Sent))
}

func (s State) liveOffer() error {
	return require(s.Offers.Live() > 0, RuleOfferLive, "an offer sent and not cancelled", "none")
}

func (s State) onlyOffer() error {
	live := s.Offers.Live()
	return require(live == 1, RuleOfferLive, "exactly one offer sent and not cancelled", strconv.Itoa(live))
}

func (e OfferSelected) evolve(s *State)  { s.Offers.Selected++ }
func (e OfferCreated) evolve(s *State)   { s.Offers.Created++ }
func (e OfferSent) evolve(s *State)      { s.Offers.Sent++ }
func (e OfferReturned) evolve(s *State)  { s.Offers.Returned++ }
func (e OfferAccepted) evolve(s *State)  { s.Offers.Accepted = true }
func (e OfferDeclined) evolve(s *State)  { s.Offers.Declined = true }
func (e OfferCancelled) evolve(s *State) { s.Offers.Cancelled++ }
