// The commands and events of the application itself: the A_ activities of the log.

package loan

import (
	"cmp"
	"fmt"
	"unicode/utf8"
)

// The commands on an application.
type (
	// Submit hands an application in; it is the first command of every stream.
	Submit struct {
		Order
		// Amount is the requested amount in whole euros, 0 to MaxAmount.
		Amount int64 `json:"amount"`
		// Customer is who applies; empty when the log does not say.
		Customer string `json:"customer,omitempty"`
	}
	// PartlySubmit records that the submission waits for the applicant's part.
	PartlySubmit struct{ Order }
	// Preaccept lets an application pass the first check.
	Preaccept struct{ Order }
	// Accept ends the assessment: the bank wants to make an offer.
	Accept struct{ Order }
	// Finalize closes the application's file; offers can be created from it.
	Finalize struct{ Order }
	// Approve, Decline and Cancel give the application its outcome.
	Approve struct{ Order }
	// Register enters the granted loan in the books.
	Register struct{ Order }
	// Activate makes the granted loan run.
	Activate struct{ Order }
	// Decline is the bank's no.
	Decline struct{ Order }
	// Cancel is the applicant's no, or his silence.
	Cancel struct{ Order }
)

// The events of an application, each the answer to the command of its name.
type (
	// Submitted answers Submit.
	Submitted struct {
		Occurred
		Amount   int64  `json:"amount"` // whole euros
		Customer string `json:"customer,omitempty"`
	}
	// PartlySubmitted answers PartlySubmit.
	PartlySubmitted struct{ Occurred }
	// Preaccepted answers Preaccept.
	Preaccepted struct{ Occurred }
	// Accepted answers Accept.
	Accepted struct{ Occurred }
	// Finalized answers Finalize.
	Finalized struct{ Occurred }
	// Approved answers Approve.
	Approved struct{ Occurred }
	// Registered answers Register.
	Registered struct{ Occurred }
	// Activated answers Activate.
	Activated struct{ Occurred }
	// Declined answers Decline.
	Declined struct{ Occurred }
	// Cancelled answers Cancel.
	Cancelled struct{ Occurred }
)

func (c Submit) decide(State) (Event, error) {
	if c.Amount < 0 || c.Amount > MaxAmount {
		wanted := fmt.Sprintf("an amount of 0 to %d euros", int64(MaxAmount))
		return nil, refuse(RuleAmount, wanted, fmt.Sprint(c.Amount))
	}
	if len(c.Customer) > MaxValueBytes || !utf8.ValidString(c.Customer) {
		wanted := fmt.Sprintf("a customer of valid UTF-8 within %d bytes", MaxValueBytes)
		return nil, refuse(RuleWellFormed, wanted, quote(c.Customer))
	}
	return Submitted{c.occur(), c.Amount, c.Customer}, nil
}

func (c PartlySubmit) decide(s State) (Event, error) {
	return PartlySubmitted{c.occur()}, s.once(s.PartlySubmitted, "partial submission")
}

func (c Preaccept) decide(s State) (Event, error) {
	const step = "preacceptance"
	return Preaccepted{c.occur()}, cmp.Or(s.once(s.Preaccepted, step), s.assessable(step))
}

func (c Accept) decide(s State) (Event, error) {
	const step = "acceptance"
	err := cmp.Or(s.once(s.Accepted, step), s.after(s.Preaccepted, step, "preacceptance"), s.assessable(step))
	return Accepted{c.occur()}, err
}

func (c Finalize) decide(s State) (Event, error) {
	const step = "finalization"
	err := cmp.Or(s.once(s.Finalized, step), s.after(s.Accepted, step, "acceptance"), s.assessable(step))
	return Finalized{c.occur()}, err
}

func (c Approve) decide(s State) (Event, error) {
	return Approved{c.occur()}, cmp.Or(s.undecided(), s.grantable("approval"))
}

func (c Register) decide(s State) (Event, error) {
	const step = "registration"
	return Registered{c.occur()}, cmp.Or(s.once(s.Registered, step), s.notRefused(step), s.grantable(step))
}

func (c Activate) decide(s State) (Event, error) {
	const step = "activation"
	return Activated{c.occur()}, cmp.Or(s.once(s.Activated, step), s.notRefused(step), s.grantable(step))
}

func (c Decline) decide(s State) (Event, error) {
	return Declined{c.occur()}, cmp.Or(s.undecided(), s.uncommitted(), s.noOfferInMaking())
}

func (c Cancel) decide(s State) (Event, error) {
	err := cmp.Or(s.undecided(), s.uncommitted(), s.offerNotDeclined("a cancellation"), s.noOfferInMaking())
	return Cancelled{c.occur()}, err
}

// grantable is what approval, registration and activation have in common; the
// bank does them in any order.
func (s State) grantable(step string) error {
	return cmp.Or(s.after(s.Finalized, step, "finalization"), s.offerNotDeclined(step), s.noOfferInMaking(), s.grantOffer())
}

// notRefused lets registration and activation follow an approval, or precede it.
func (s State) notRefused(step string) error {
	ok := s.Outcome == OutcomeOpen || s.Outcome == OutcomeApproved
	return require(ok, RuleAssessmentClosed, "an open or approved application for "+step, s.Outcome.String())
}

// uncommitted wants a bank that has not yet bound itself to the loan.
func (s State) uncommitted() error {
	const wanted = "an application the bank is not bound to"
	if s.Offers.Accepted {
		return refuse(RuleBinding, wanted, s.Offers.answer())
	}
	return require(!s.Registered && !s.Activated, RuleBinding, wanted, s.closedBy())
}

func (s State) offerNotDeclined(step string) error {
	return require(!s.Offers.Declined, RuleBinding, "no declined offer before "+step, "a declined offer")
}

func (e Submitted) evolve(s *State)       { s.Submitted, s.Amount = true, e.Amount }
func (e PartlySubmitted) evolve(s *State) { s.PartlySubmitted = true }
func (e Preaccepted) evolve(s *State)     { s.Preaccepted = true }
func (e Accepted) evolve(s *State)        { s.Accepted = true }
func (e Finalized) evolve(s *State)       { s.Finalized = true }
func (e Approved) evolve(s *State)        { s.Outcome = OutcomeApproved }
func (e Registered) evolve(s *State)      { s.Registered = true }
func (e Activated) evolve(s *State)       { s.Activated = true }
func (e Declined) evolve(s *State)        { s.Outcome = OutcomeDeclined }
func (e Cancelled) evolve(s *State)       { s.Outcome = OutcomeCancelled }
