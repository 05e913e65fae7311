// Made-up applications by seed: as a bank's log has them, and within its rules.

package loan

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"time"
)

// Generate yields n applications, always the same for a seed; the first k are
// the same for every n ≥ k. Keys differ between seeds. Outcomes, offers, work
// items and oddities (work after the outcome, completions without a start,
// approvals without an accepted offer, events of one instant) come about roughly
// as often as in the BPI Challenge 2012 log; every event keeps the rules. Each is another
// customer's. Some offers are left unanswered; an answer comes within OfferDeadline.
func Generate(seed uint64, n int) iter.Seq[Case] {
	return func(yield func(Case) bool) {
		for i := range n {
			if !yield(generateCase(seed, i)) {
				return
			}
		}
	}
}

// generateCase draws from numbers of its own, so that a case does not depend on
// those before it.
func generateCase(seed uint64, i int) Case {
	c := &clerk{rng: rand.New(rand.NewPCG(seed, uint64(i))), units: map[WorkItem]int{}}
	c.Key = fmt.Sprintf("g%dx%06d", seed, i+1)
	c.Customer = fmt.Sprintf("g%dc%06d", seed, i+1)
	c.at = generatedFrom.Add(time.Duration(c.rng.Int64N(int64(generatedSpan/time.Millisecond))) * time.Millisecond)
	c.RegDate = c.at
	c.AmountRequested = c.amount()
	c.application()
	return c.Case
}

var generatedFrom = time.Date(2011, time.September, 30, 22, 0, 0, 0, time.UTC) // October begins in Amsterdam

const (
	generatedSpan = 152 * 24 * time.Hour
	// lastCall is how long behind an offer the bank still calls: what follows ends before
	// OfferDeadline.
	lastCall = OfferDeadline - 10*24*time.Hour
	system   = "112" // the resource that acts for nobody, as in the real log
)

// clerk works one application off and writes down what happens.
type clerk struct {
	Case
	rng   *rand.Rand
	at    time.Time
	live  int              // offers sent and not cancelled
	sent  time.Time        // when the last offer was
	units map[WorkItem]int // how often an item may still be completed
}

// The phases of an application. Each is left early when the application ends in it.
func (c *clerk) application() {
	c.now(submission, system)
	c.soon("A_PARTLYSUBMITTED", system)
	if c.firstCheck() && c.completion() && c.offering() && c.validation() {
		c.grant()
	}
}

func (c *clerk) firstCheck() bool {
	switch p := c.rng.Float64(); {
	case p < 0.01:
		return c.fraud()
	case p < 0.27:
		c.soon("A_DECLINED", system)
		return false
	case p < 0.63:
		return c.leads()
	}
	c.soon("A_PREACCEPTED", system)
	c.schedule(WorkCompletion)
	return true
}

func (c *clerk) fraud() bool {
	c.schedule(WorkFraud)
	c.shifts(WorkFraud, 0.5)
	c.start(WorkFraud)
	if c.chance(0.6) {
		c.soon("A_DECLINED", c.person())
		c.complete(WorkFraud)
		return false
	}
	c.complete(WorkFraud)
	return c.leads()
}

func (c *clerk) leads() bool {
	c.schedule(WorkLeads)
	c.shifts(WorkLeads, 0.2)
	if c.chance(0.02) {
		return false
	}
	c.start(WorkLeads)
	on := c.chance(0.53)
	if on {
		c.soon("A_PREACCEPTED", c.person())
		c.schedule(WorkCompletion)
	} else {
		c.soon("A_DECLINED", c.person())
	}
	c.complete(WorkLeads)
	return on
}

func (c *clerk) completion() bool {
	c.shifts(WorkCompletion, 0.65)
	if c.chance(0.01) {
		return false
	}
	c.start(WorkCompletion)
	switch p := c.rng.Float64(); {
	case p < 0.15:
		c.soon("A_DECLINED", c.person())
		c.complete(WorkCompletion)
		return false
	case p < 0.30:
		c.soon("A_CANCELLED", c.person())
		c.complete(WorkCompletion)
		return false
	}
	c.soon("A_ACCEPTED", c.person())
	return true
}

func (c *clerk) offering() bool {
	c.firstOffer()
	c.complete(WorkCompletion)
	for c.chance(0.7) && c.at.Before(c.sent.Add(lastCall)) {
		c.shift(WorkOfferCalls)
		if c.chance(0.15) {
			c.start(WorkOfferCalls)
			c.anotherOffer()
			c.complete(WorkOfferCalls)
		}
	}
	if c.chance(0.12) { // nobody answers
		return false
	}
	if !c.chance(0.03) || c.units[WorkOfferCalls] == 0 {
		c.start(WorkOfferCalls)
	}
	if c.chance(0.29) {
		c.withdraw(WorkOfferCalls)
		return false
	}
	c.soon("O_SENT_BACK", c.person())
	c.schedule(WorkValidation)
	c.complete(WorkOfferCalls)
	return true
}

// firstOffer writes finalization before or after the selection, as the bank does.
func (c *clerk) firstOffer() {
	who := c.person()
	first, second := "O_SELECTED", "A_FINALIZED"
	if c.chance(0.4) {
		first, second = second, first
	}
	c.soon(first, who)
	c.now(second, who)
	c.send(who)
}

// anotherOffer replaces the offers so far, or joins them.
func (c *clerk) anotherOffer() {
	who := c.person()
	c.soon("O_SELECTED", who)
	if c.chance(0.6) {
		c.cancelOffers(0, who)
	}
	c.send(who)
}

func (c *clerk) send(who string) {
	c.now("O_CREATED", who)
	c.soon("O_SENT", who)
	c.live, c.sent = c.live+1, c.at
	c.schedule(WorkOfferCalls)
}

// cancelOffers cancels all but some of the live offers.
func (c *clerk) cancelOffers(but int, who string) {
	for ; c.live > but; c.live-- {
		c.soon("O_CANCELLED", who)
	}
}

// withdraw ends the application from within a work item: the offers go before
// the application or after it.
func (c *clerk) withdraw(during WorkItem) {
	who := c.person()
	if c.chance(0.5) {
		c.cancelOffers(0, who)
		c.now("A_CANCELLED", who)
	} else {
		c.soon("A_CANCELLED", who)
		c.cancelOffers(0, who)
	}
	c.complete(during)
}

func (c *clerk) validation() bool {
	c.shifts(WorkValidation, 0.3)
	for c.chance(0.3) {
		c.missingDocuments()
	}
	if c.chance(0.03) {
		return false
	}
	c.start(WorkValidation)
	who := c.person()
	switch p := c.rng.Float64(); {
	case p < 0.04:
		c.withdraw(WorkValidation)
		return false
	case p < 0.25:
		c.cancelOffers(1, who)
		c.inAnyOrder(who, "O_DECLINED", "A_DECLINED")
		c.complete(WorkValidation)
		return false
	}
	c.cancelOffers(1, who)
	return true
}

func (c *clerk) missingDocuments() {
	c.start(WorkValidation)
	c.schedule(WorkFileCalls)
	c.complete(WorkValidation)
	c.shifts(WorkFileCalls, 0.6)
	c.start(WorkFileCalls)
	c.schedule(WorkValidation)
	c.complete(WorkFileCalls)
}

func (c *clerk) grant() {
	granting := []string{"O_ACCEPTED", "A_APPROVED", "A_REGISTERED", "A_ACTIVATED"}
	if c.chance(0.002) {
		granting = granting[1:]
	}
	c.inAnyOrder(c.person(), granting...)
	c.complete(WorkValidation)
	if c.chance(0.01) {
		c.schedule(WorkNewContract)
	}
	if c.chance(0.01) {
		c.shift(WorkValidation)
	}
}

// inAnyOrder writes activities of one instant.
func (c *clerk) inAnyOrder(who string, names ...string) {
	c.pass(time.Minute)
	for _, i := range c.rng.Perm(len(names)) {
		c.now(names[i], who)
	}
}

// shifts writes a start and a completion as long as the chance lasts.
func (c *clerk) shifts(item WorkItem, chance float64) {
	for c.chance(chance) {
		c.shift(item)
	}
}

// shift is one start and completion, rarely two starts or none.
func (c *clerk) shift(item WorkItem) {
	p := c.rng.Float64()
	if p > 0.03 || c.units[item] == 0 {
		c.start(item)
	}
	if p > 0.997 {
		c.start(item)
	}
	c.complete(item)
}

func (c *clerk) schedule(item WorkItem) {
	c.units[item]++
	c.work(item, transitionSchedule)
}

func (c *clerk) start(item WorkItem) {
	c.pass(36 * time.Hour)
	c.units[item]++
	c.work(item, transitionStart)
}

func (c *clerk) complete(item WorkItem) {
	c.pass(10 * time.Minute)
	c.units[item]--
	c.work(item, transitionComplete)
}

func (c *clerk) work(item WorkItem, transition string) {
	c.write(string(item), transition, c.person())
}

// soon is an A_ or O_ activity after less than two minutes, now one of this instant.
func (c *clerk) soon(name, who string) {
	c.pass(time.Minute)
	c.now(name, who)
}

func (c *clerk) now(name, who string) { c.write(name, transitionComplete, who) }

func (c *clerk) write(name, transition, who string) {
	c.Events = append(c.Events, CaseEvent{Name: name, Transition: transition, Resource: who, Time: c.at})
}

// pass lets a time pass of which about is the mean, in whole milliseconds.
func (c *clerk) pass(about time.Duration) {
	c.at = c.at.Add(time.Duration(c.rng.Int64N(int64(2*about/time.Millisecond))) * time.Millisecond)
}

func (c *clerk) chance(p float64) bool { return c.rng.Float64() < p }

// person is one of 40 clerks, or nobody that the log names.
func (c *clerk) person() string {
	if c.chance(0.07) {
		return ""
	}
	return fmt.Sprint(10_000 + 37*c.rng.IntN(40))
}

// amount is mostly round, as people ask for it.
func (c *clerk) amount() int64 {
	switch p := c.rng.Float64(); {
	case p < 0.001:
		return 0
	case p < 0.05:
		return 1_000 + c.rng.Int64N(40_000)
	}
	return 500 * (2 + c.rng.Int64N(8)*c.rng.Int64N(12))
}
