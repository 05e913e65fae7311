// The rules by name, the refusal they end in, and the checks several commands share.
//
// Each rule holds for every event of the BPI Challenge 2012 log; the counts in
// the comments are how many events of it the rule was checked on.

package loan

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// Rule names a rule of the process. A Rule is stable: it may be logged, counted
// and sent over a wire.
type Rule string

// The rules.
const (
	// RuleWellFormed: a command has a time within the years 1 to 9998, a resource
	// of valid UTF-8 and a known work item, whatever the state. (262,200)
	RuleWellFormed Rule = "well-formed"
	// RuleAmount: the requested amount is 0 to MaxAmount. (13,087)
	RuleAmount Rule = "amount"
	// RuleTimeNeverFalls: no event is earlier than the one before it. (249,113)
	RuleTimeNeverFalls Rule = "time-never-falls"
	// RuleSubmissionFirst: nothing happens before the submission. (262,200)
	RuleSubmissionFirst Rule = "submission-first"
	// RuleSubmittedOnce: nothing is submitted twice. (13,087)
	RuleSubmittedOnce Rule = "submitted-once"
	// RuleSubmissionNext: directly after the submission comes the partial
	// submission. (13,087)
	RuleSubmissionNext Rule = "submission-next"
	// RuleStepOnce: partial submission, preacceptance, acceptance, finalization,
	// registration and activation happen at most once. (35,074)
	RuleStepOnce Rule = "step-once"
	// RuleStepOrder: acceptance needs preacceptance; finalization and selecting an
	// offer need acceptance; creating an offer, approval, registration and
	// activation need finalization. (30,926)
	RuleStepOrder Rule = "step-order"
	// RuleAssessmentClosed: no preacceptance, acceptance or finalization after an
	// outcome, registration or activation; no registration or activation after a
	// decline or cancellation. (21,987)
	RuleAssessmentClosed Rule = "assessment-closed"
	// RuleOneOutcome: an application is approved, declined or cancelled at most
	// once, and never two of them. (12,688)
	RuleOneOutcome Rule = "one-outcome"
	// RuleBinding: after registration, activation or an accepted offer there is no
	// decline and no cancellation; after a declined offer there is no approval,
	// registration, activation or cancellation. (17,180)
	RuleBinding Rule = "binding"
	// RuleGrantOffer: approval, registration, activation and the acceptance of an
	// offer need exactly one live offer, and an offer that came back. (8,981)
	RuleGrantOffer Rule = "grant-offer"
	// RuleOfferOrder: an offer is selected before it is created, and created
	// before it is sent. (14,060)
	RuleOfferOrder Rule = "offer-order"
	// RuleOfferSentNext: directly after an offer is created it is sent. (7,030)
	RuleOfferSentNext Rule = "offer-sent-next"
	// RuleOfferInMaking: while an offer is in the making no other is selected,
	// none comes back or is accepted, and nothing is decided. (29,907)
	RuleOfferInMaking Rule = "offer-in-making"
	// RuleOfferLive: what comes back or is cancelled was sent and not cancelled;
	// what is declined is the only such offer. (7,911)
	RuleOfferLive Rule = "offer-live"
	// RuleOfferAnswered: after an offer was accepted or declined no offer changes
	// any more. (24,214)
	RuleOfferAnswered Rule = "offer-answered"
	// RuleOfferClosed: after an outcome an offer can only follow it: accepted after
	// approval, declined after a decline, cancelled after a cancellation. After
	// registration or activation only acceptance is left. (24,214)
	RuleOfferClosed Rule = "offer-closed"
	// RuleWorkScheduled: work is started or completed only where it was scheduled
	// in this application. (143,789)
	RuleWorkScheduled Rule = "work-scheduled"
	// RuleWorkUnits: an item is completed at most as often as it was scheduled and
	// started together. (A completion without a start is real.) (72,413)
	RuleWorkUnits Rule = "work-units"
	// RuleWorkGate: each work item has its place in the process, see workGates.
	// (26,318 schedules, 71,376 starts)
	RuleWorkGate Rule = "work-gate"
	// RuleWorkClosed: nothing but a contract change is scheduled once the
	// application is closed, not even that after a decline or cancellation, and
	// nothing is started after a decline. (97,694)
	RuleWorkClosed Rule = "work-closed"
)

// Rules lists every rule.
func Rules() []Rule {
	return []Rule{
		RuleWellFormed, RuleAmount, RuleTimeNeverFalls, RuleSubmissionFirst, RuleSubmittedOnce, RuleSubmissionNext,
		RuleStepOnce, RuleStepOrder, RuleAssessmentClosed, RuleOneOutcome, RuleBinding, RuleGrantOffer,
		RuleOfferOrder, RuleOfferSentNext, RuleOfferInMaking, RuleOfferLive, RuleOfferAnswered, RuleOfferClosed,
		RuleWorkScheduled, RuleWorkUnits, RuleWorkGate, RuleWorkClosed,
	}
}

// ErrRefused is what errors.Is finds in every *Refusal.
var ErrRefused = errors.New("loan: refused")

// Refusal says which rule of the process a command breaks. Nothing happened.
type Refusal struct {
	Rule   Rule   `json:"rule"`
	Wanted string `json:"wanted"`
	Found  string `json:"found"`
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("loan: refused by rule %s: wanted %s, found %s", r.Rule, r.Wanted, r.Found)
}

// Code is the rule, as a handler's rejection carries it.
func (r *Refusal) Code() string { return string(r.Rule) }

// Is makes errors.Is(err, ErrRefused) true.
func (r *Refusal) Is(target error) bool { return target == ErrRefused }

func refuse(rule Rule, wanted, found string) error {
	return &Refusal{Rule: rule, Wanted: wanted, Found: found}
}

// require is nil when ok.
func require(ok bool, rule Rule, wanted, found string) error {
	if ok {
		return nil
	}
	return refuse(rule, wanted, found)
}

// admit checks what holds for every command, before its own rules.
func admit(s State, c Command) error {
	o := c.order()
	if err := o.wellFormed(); err != nil {
		return err
	}
	if o.At.Before(s.Last) {
		return refuse(RuleTimeNeverFalls, "a time not before "+stamp(s.Last), stamp(o.At))
	}
	return s.next(c)
}

// next checks the two places where the process allows one next command only.
func (s State) next(c Command) error {
	_, submit := c.(Submit)
	_, partly := c.(PartlySubmit)
	_, send := c.(SendOffer)
	switch {
	case submit && s.Submitted:
		return refuse(RuleSubmittedOnce, "an application not yet submitted", "one submitted before")
	case !submit && !s.Submitted:
		return refuse(RuleSubmissionFirst, "Submit as the first command", commandName(c))
	case s.Submitted && !s.PartlySubmitted && !partly:
		return refuse(RuleSubmissionNext, "PartlySubmit directly after Submit", commandName(c))
	case s.Offers.Created > s.Offers.Sent && !send:
		return refuse(RuleOfferSentNext, "SendOffer directly after CreateOffer", commandName(c))
	}
	return nil
}

// wellFormed keeps out what could not be written as an event and read back.
func (o Order) wellFormed() error {
	if !inYears(o.At) {
		return refuse(RuleWellFormed, fmt.Sprintf("a time within the years 1 to %d", MaxYear), o.At.String())
	}
	if len(o.Resource) > MaxValueBytes || !utf8.ValidString(o.Resource) {
		wanted := fmt.Sprintf("a resource of valid UTF-8 within %d bytes", MaxValueBytes)
		return refuse(RuleWellFormed, wanted, quote(o.Resource))
	}
	return nil
}

func (s State) once(done bool, step string) error {
	return require(!done, RuleStepOnce, "an application without "+step, "one that had it already")
}

func (s State) after(done bool, step, before string) error {
	return require(done, RuleStepOrder, before+" before "+step, "none")
}

func (s State) assessable(step string) error {
	return require(!s.Closed(), RuleAssessmentClosed, "an open application for "+step, s.closedBy())
}

func (s State) undecided() error {
	return require(s.Outcome == OutcomeOpen, RuleOneOutcome, "an application without an outcome", s.Outcome.String())
}

func (s State) noOfferInMaking() error {
	if !s.Offers.InMaking() {
		return nil
	}
	found := fmt.Sprintf("%d selected and %d sent", s.Offers.Selected, s.Offers.Sent)
	return refuse(RuleOfferInMaking, "no offer in the making", found)
}

// grantOffer wants the one offer that a loan is granted on.
func (s State) grantOffer() error {
	if s.Offers.Live() == 1 && s.Offers.Returned > 0 {
		return nil
	}
	found := fmt.Sprintf("%d live offers, %d times one came back", s.Offers.Live(), s.Offers.Returned)
	return refuse(RuleGrantOffer, "exactly one live offer, and one that came back", found)
}

func (s State) unanswered() error {
	ok := !s.Offers.Accepted && !s.Offers.Declined
	return require(ok, RuleOfferAnswered, "offers not yet answered", s.Offers.answer())
}

// offersOpen wants an application that still lets an offer change: one that is
// not closed, or one with an outcome that the change may follow.
func (s State) offersOpen(change string, after ...Outcome) error {
	open := !s.Closed() || slices.Contains(after, s.Outcome)
	return require(open, RuleOfferClosed, "an application open for "+change, s.closedBy())
}

func (o Offers) answer() string {
	if o.Accepted {
		return "an accepted offer"
	}
	return "a declined offer"
}

func (s State) closedBy() string {
	switch {
	case s.Outcome != OutcomeOpen:
		return s.Outcome.String()
	case s.Registered:
		return "registered"
	default:
		return "activated"
	}
}

// inYears also keeps out the zero time, which is what a forgotten one looks like.
func inYears(t time.Time) bool {
	year := t.UTC().Year()
	return !t.IsZero() && year >= 1 && year <= MaxYear
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// quote shows foreign text within bounds.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q… (%d bytes)", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}
