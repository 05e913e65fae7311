// The deadline of offers: what the bank does when a customer stays silent.

package loan

import "time"

// OfferDeadline is how long an offer waits for an answer.
const OfferDeadline = 30 * 24 * time.Hour

// RuleOneOpenApplication: a customer has at most one application without an outcome. No
// State can tell, since it is a rule over all applications: who keeps them sees to it, and
// Decide does not know it.
const RuleOneOpenApplication Rule = "one-open-application"

// RefuseSecond is the *Refusal of an application whose customer has another one that is
// open.
func RefuseSecond(customer, open string) error {
	return refuse(RuleOneOpenApplication, "a customer without an open application", quote(customer)+" with application "+quote(open))
}

// Unanswered says that offers wait for an answer: the application is open, at least one
// offer is live, none came back and none is in the making.
func (s State) Unanswered() bool {
	return !s.Closed() && s.Offers.Live() > 0 && s.Offers.Returned == 0 && !s.Offers.InMaking() && !s.Offers.Accepted && !s.Offers.Declined
}

// Expire is what happens when the deadline of unanswered offers has passed: all live ones
// are cancelled, and with them the application; nothing if an answer came in time. It is
// pure as Decide is, and keeps its rules. The events are of the time due, or of the last
// event if something else happened after that, as a call.
func Expire(s State, due time.Time) (events []Event, err error) {
	if !s.Unanswered() {
		return nil, nil
	}
	if due.Before(s.Last) {
		due = s.Last
	}
	o := Order{At: due, Resource: system}
	for s.Outcome == OutcomeOpen {
		var c Command = Cancel{o}
		if s.Offers.Live() > 0 {
			c = CancelOffer{o}
		}
		decided, err := Decide(s, c)
		if err != nil {
			return nil, err
		}
		s = Evolve(s, decided[0])
		events = append(events, decided[0])
	}
	return events, nil
}
