// Made-up violations by seed: for every rule, ways to break it that differ in the
// road to them.

package loan

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"time"
)

// Violation is a command that the rules refuse after commands they allow.
type Violation struct {
	Rule  Rule      // the rule that the refusal must name
	Given []Command // allowed, in this order, from the initial state
	When  Command   // refused
}

// GenerateViolations yields violations of every rule, always the same for a
// seed: the fixed roads of this file with times, people and amounts by seed, and
// violations at random places of generated applications.
func GenerateViolations(seed uint64) iter.Seq[Violation] {
	return func(yield func(Violation) bool) {
		for i, f := range forbidden {
			r := newRoad(seed, i)
			if !yield(Violation{f.rule, r.walk(f.given), r.step(f.when)}) {
				return
			}
		}
		for i, spoil := range spoilers {
			r := newRoad(seed, len(forbidden)+i)
			if !yield(spoil(r)) {
				return
			}
		}
	}
}

// Roads through the process: activities apart by ";", work with its transition
// after "+".
const (
	toSubmitted   = "A_SUBMITTED;A_PARTLYSUBMITTED;"
	toLeads       = toSubmitted + "W_Afhandelen leads+SCHEDULE;W_Afhandelen leads+START;"
	toPreaccepted = toSubmitted + "A_PREACCEPTED;W_Completeren aanvraag+SCHEDULE;W_Completeren aanvraag+START;"
	toAccepted    = toPreaccepted + "A_ACCEPTED;"
	toSelected    = toAccepted + "A_FINALIZED;O_SELECTED;"
	toCreated     = toSelected + "O_CREATED;"
	toSent        = toCreated + "O_SENT;W_Nabellen offertes+SCHEDULE;W_Completeren aanvraag+COMPLETE;"
	toTwoOffers   = toSent + "O_SELECTED;O_CREATED;O_SENT;"
	toReturned    = toSent + "W_Nabellen offertes+START;O_SENT_BACK;W_Valideren aanvraag+SCHEDULE;W_Nabellen offertes+COMPLETE;"
	toApproved    = toReturned + "W_Valideren aanvraag+START;A_APPROVED;"
	toDeclined    = toReturned + "W_Valideren aanvraag+START;A_DECLINED;"
	toCancelled   = toReturned + "W_Valideren aanvraag+START;A_CANCELLED;"
)

// forbidden are the roads that end where a rule stands.
var forbidden = []struct {
	rule        Rule
	given, when string
}{
	{RuleSubmissionFirst, "", "A_PARTLYSUBMITTED"},
	{RuleSubmissionFirst, "", "A_APPROVED"},
	{RuleSubmissionFirst, "", "W_Beoordelen fraude+SCHEDULE"},
	{RuleSubmittedOnce, "A_SUBMITTED", "A_SUBMITTED"},
	{RuleSubmittedOnce, toDeclined, "A_SUBMITTED"},
	{RuleSubmittedOnce, toCreated, "A_SUBMITTED"},
	{RuleSubmissionNext, "A_SUBMITTED", "A_PREACCEPTED"},
	{RuleSubmissionNext, "A_SUBMITTED", "A_DECLINED"},
	{RuleSubmissionNext, "A_SUBMITTED", "W_Afhandelen leads+SCHEDULE"},
	{RuleStepOnce, toSubmitted, "A_PARTLYSUBMITTED"},
	{RuleStepOnce, toPreaccepted, "A_PREACCEPTED"},
	{RuleStepOnce, toAccepted, "A_ACCEPTED"},
	{RuleStepOnce, toSelected, "A_FINALIZED"},
	{RuleStepOnce, toApproved + "A_REGISTERED", "A_REGISTERED"},
	{RuleStepOnce, toApproved + "A_ACTIVATED", "A_ACTIVATED"},
	{RuleStepOrder, toSubmitted, "A_ACCEPTED"},
	{RuleStepOrder, toPreaccepted, "A_FINALIZED"},
	{RuleStepOrder, toPreaccepted, "O_SELECTED"},
	{RuleStepOrder, toAccepted + "O_SELECTED", "O_CREATED"},
	{RuleStepOrder, toAccepted, "A_APPROVED"},
	{RuleStepOrder, toAccepted, "A_REGISTERED"},
	{RuleStepOrder, toAccepted, "A_ACTIVATED"},
	{RuleAssessmentClosed, toSubmitted + "A_DECLINED", "A_PREACCEPTED"},
	{RuleAssessmentClosed, toPreaccepted + "A_CANCELLED", "A_ACCEPTED"},
	{RuleAssessmentClosed, toAccepted + "A_DECLINED", "A_FINALIZED"},
	{RuleAssessmentClosed, toDeclined, "A_REGISTERED"},
	{RuleAssessmentClosed, toCancelled, "A_ACTIVATED"},
	{RuleOneOutcome, toApproved, "A_DECLINED"},
	{RuleOneOutcome, toApproved, "A_CANCELLED"},
	{RuleOneOutcome, toApproved, "A_APPROVED"},
	{RuleOneOutcome, toDeclined, "A_APPROVED"},
	{RuleOneOutcome, toDeclined, "A_DECLINED"},
	{RuleOneOutcome, toCancelled, "A_DECLINED"},
	{RuleOneOutcome, toCancelled, "A_CANCELLED"},
	{RuleBinding, toReturned + "O_ACCEPTED", "A_DECLINED"},
	{RuleBinding, toReturned + "O_ACCEPTED", "A_CANCELLED"},
	{RuleBinding, toReturned + "A_REGISTERED", "A_CANCELLED"},
	{RuleBinding, toReturned + "A_ACTIVATED", "A_DECLINED"},
	{RuleBinding, toReturned + "O_DECLINED", "A_APPROVED"},
	{RuleBinding, toReturned + "O_DECLINED", "A_REGISTERED"},
	{RuleBinding, toReturned + "O_DECLINED", "A_ACTIVATED"},
	{RuleBinding, toReturned + "O_DECLINED", "A_CANCELLED"},
	{RuleGrantOffer, toAccepted + "A_FINALIZED", "A_APPROVED"},
	{RuleGrantOffer, toSent, "A_APPROVED"},
	{RuleGrantOffer, toSent, "O_ACCEPTED"},
	{RuleGrantOffer, toTwoOffers + "O_SENT_BACK", "A_REGISTERED"},
	{RuleGrantOffer, toReturned + "O_CANCELLED", "A_ACTIVATED"},
	{RuleOfferOrder, toAccepted + "A_FINALIZED", "O_CREATED"},
	{RuleOfferOrder, toSent, "O_CREATED"},
	{RuleOfferOrder, toSelected, "O_SENT"},
	{RuleOfferOrder, toSent, "O_SENT"},
	{RuleOfferSentNext, toCreated, "A_DECLINED"},
	{RuleOfferSentNext, toCreated, "O_CREATED"},
	{RuleOfferSentNext, toCreated, "W_Nabellen offertes+SCHEDULE"},
	{RuleOfferInMaking, toSelected, "O_SELECTED"},
	{RuleOfferInMaking, toSent + "O_SELECTED", "O_SENT_BACK"},
	{RuleOfferInMaking, toReturned + "O_SELECTED", "O_ACCEPTED"},
	{RuleOfferInMaking, toReturned + "O_SELECTED", "A_APPROVED"},
	{RuleOfferInMaking, toReturned + "O_SELECTED", "A_REGISTERED"},
	{RuleOfferInMaking, toSelected, "A_DECLINED"},
	{RuleOfferInMaking, toSelected, "A_CANCELLED"},
	{RuleOfferLive, toSelected, "O_CANCELLED"},
	{RuleOfferLive, toSent + "O_CANCELLED", "O_CANCELLED"},
	{RuleOfferLive, toSent + "O_CANCELLED", "O_SENT_BACK"},
	{RuleOfferLive, toAccepted, "O_DECLINED"},
	{RuleOfferLive, toTwoOffers, "O_DECLINED"},
	{RuleOfferAnswered, toReturned + "O_ACCEPTED", "O_ACCEPTED"},
	{RuleOfferAnswered, toReturned + "O_ACCEPTED", "O_SELECTED"},
	{RuleOfferAnswered, toReturned + "O_ACCEPTED", "O_CANCELLED"},
	{RuleOfferAnswered, toReturned + "O_SELECTED;O_DECLINED", "O_CREATED"},
	{RuleOfferAnswered, toReturned + "O_DECLINED", "O_ACCEPTED"},
	{RuleOfferAnswered, toReturned + "O_DECLINED", "O_SENT_BACK"},
	{RuleOfferAnswered, toReturned + "O_ACCEPTED", "O_DECLINED"},
	{RuleOfferClosed, toDeclined, "O_SELECTED"},
	{RuleOfferClosed, toDeclined, "O_ACCEPTED"},
	{RuleOfferClosed, toDeclined, "O_CANCELLED"},
	{RuleOfferClosed, toCancelled, "O_SENT_BACK"},
	{RuleOfferClosed, toCancelled, "O_DECLINED"},
	{RuleOfferClosed, toApproved, "O_DECLINED"},
	{RuleOfferClosed, toApproved, "O_CANCELLED"},
	{RuleOfferClosed, toApproved, "O_CREATED"},
	{RuleOfferClosed, toReturned + "A_REGISTERED", "O_CANCELLED"},
	{RuleOfferClosed, toReturned + "A_ACTIVATED", "O_SELECTED"},
	{RuleWorkScheduled, toSubmitted, "W_Beoordelen fraude+START"},
	{RuleWorkScheduled, toSubmitted, "W_Afhandelen leads+COMPLETE"},
	{RuleWorkScheduled, toLeads, "W_Beoordelen fraude+COMPLETE"},
	{RuleWorkScheduled, toSent, "W_Valideren aanvraag+START"},
	{RuleWorkUnits, toSent + "W_Completeren aanvraag+COMPLETE", "W_Completeren aanvraag+COMPLETE"},
	{RuleWorkUnits, toReturned + "W_Valideren aanvraag+COMPLETE", "W_Valideren aanvraag+COMPLETE"},
	{RuleWorkGate, toPreaccepted, "W_Afhandelen leads+SCHEDULE"},
	{RuleWorkGate, toLeads + "A_PREACCEPTED", "W_Afhandelen leads+START"},
	{RuleWorkGate, toAccepted, "W_Completeren aanvraag+SCHEDULE"},
	{RuleWorkGate, toSubmitted + "W_Completeren aanvraag+SCHEDULE", "W_Completeren aanvraag+START"},
	{RuleWorkGate, toAccepted, "W_Nabellen offertes+SCHEDULE"},
	{RuleWorkGate, toSent, "W_Nabellen offertes+SCHEDULE"},
	{RuleWorkGate, toSelected + "W_Nabellen offertes+SCHEDULE", "W_Nabellen offertes+START"},
	{RuleWorkGate, toSent, "W_Valideren aanvraag+SCHEDULE"},
	{RuleWorkGate, toSent, "W_Nabellen incomplete dossiers+SCHEDULE"},
	{RuleWorkGate, toSelected, "W_Wijzigen contractgegevens+SCHEDULE"},
	{RuleWorkClosed, toSubmitted + "A_DECLINED", "W_Beoordelen fraude+SCHEDULE"},
	{RuleWorkClosed, toLeads + "A_DECLINED", "W_Afhandelen leads+START"},
	{RuleWorkClosed, toCancelled, "W_Valideren aanvraag+SCHEDULE"},
	{RuleWorkClosed, toCancelled, "W_Wijzigen contractgegevens+SCHEDULE"},
	{RuleWorkClosed, toApproved, "W_Nabellen incomplete dossiers+SCHEDULE"},
	{RuleWorkClosed, toReturned + "A_REGISTERED", "W_Valideren aanvraag+SCHEDULE"},
}

// spoilers break the rules that no order of activities breaks, and some others
// at a random place of a generated application.
var spoilers = []func(*road) Violation{
	func(r *road) Violation {
		return Violation{RuleAmount, nil, Submit{r.order(), -1 - r.rng.Int64N(1000), ""}}
	},
	func(r *road) Violation { return Violation{RuleAmount, nil, Submit{r.order(), MaxAmount + 1, ""}} },
	func(r *road) Violation { return Violation{RuleWellFormed, nil, Submit{Amount: 1}} },
	func(r *road) Violation {
		return Violation{RuleWellFormed, nil, Submit{Order: Order{At: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}}}
	},
	func(r *road) Violation {
		return Violation{RuleWellFormed, r.walk(toSubmitted), Decline{Order{At: r.at, Resource: "\xff"}}}
	},
	func(r *road) Violation {
		return Violation{RuleWellFormed, r.walk(toSubmitted), Decline{Order{At: r.at, Resource: strings.Repeat("1", MaxValueBytes+1)}}}
	},
	func(r *road) Violation {
		return Violation{RuleWellFormed, r.walk(toLeads), ScheduleWork{r.order(), "W_Afhandelen"}}
	},
	func(r *road) Violation { return Violation{RuleWellFormed, r.walk(toLeads), StartWork{r.order(), ""}} },
	func(r *road) Violation {
		return Violation{RuleWellFormed, r.walk(toLeads), CompleteWork{r.order(), "W_x"}}
	},
	func(r *road) Violation { return Violation{RuleWellFormed, r.walk(toLeads), nil} },
	func(r *road) Violation {
		given := r.prefix(1)
		early := r.order()
		early.At = given[len(given)-1].order().At.Add(-time.Millisecond)
		return Violation{RuleTimeNeverFalls, given, ScheduleWork{early, WorkFraud}}
	},
	func(r *road) Violation {
		return Violation{RuleSubmittedOnce, r.prefix(1), Submit{r.order(), 1000, ""}}
	},
	func(r *road) Violation {
		late := r.prefix(2)[1:]
		return Violation{RuleSubmissionFirst, nil, late[r.rng.IntN(len(late))]}
	},
}

// road makes the commands of one violation, later and later.
type road struct {
	rng *rand.Rand
	at  time.Time
}

func newRoad(seed uint64, i int) *road {
	return &road{rng: rand.New(rand.NewPCG(seed, uint64(i))), at: generatedFrom}
}

func (r *road) order() Order {
	r.at = r.at.Add(time.Duration(r.rng.IntN(10_000_000)) * time.Millisecond)
	return Order{At: r.at, Resource: fmt.Sprint(10_000 + r.rng.IntN(1_000))}
}

// walk is the commands of a road of this file.
func (r *road) walk(activities string) []Command {
	var given []Command
	for a := range strings.SplitSeq(activities, ";") {
		if a != "" {
			given = append(given, r.step(a))
		}
	}
	return given
}

func (r *road) step(activity string) Command {
	name, transition, isWork := strings.Cut(activity, "+")
	if !isWork {
		transition = transitionComplete
	}
	o := r.order()
	e := CaseEvent{Name: name, Transition: transition, Resource: o.Resource, Time: o.At}
	c, err := CommandFor(Case{AmountRequested: 500 * r.rng.Int64N(100), Events: []CaseEvent{e}}, 0)
	if err != nil {
		panic("loan: the roads of violations.go name an unknown activity: " + err.Error())
	}
	return c
}

// prefix is the beginning of a generated application, at least some commands
// long. The road goes on after it.
func (r *road) prefix(atLeast int) []Command {
	c := generateCase(r.rng.Uint64(), 0)
	c.Events = c.Events[:max(atLeast, 1+r.rng.IntN(len(c.Events)))]
	given := make([]Command, len(c.Events))
	for i := range c.Events {
		command, err := CommandFor(c, i)
		if err != nil {
			panic("loan: a generated application has an unknown activity: " + err.Error())
		}
		given[i] = command
	}
	r.at = c.Events[len(c.Events)-1].Time
	return given
}
