// The rules once more, told over whole histories instead of a state, against
// Decide on random walks: one hand's error in the state must not make itself right.

package loan

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// history is the activities so far, work as "name+transition".
type history []string

func (h history) n(names ...string) int {
	n := 0
	for _, was := range h {
		for _, name := range names {
			if was == name {
				n++
			}
		}
	}
	return n
}

func (h history) last() string {
	if len(h) == 0 {
		return ""
	}
	return h[len(h)-1]
}

// allows says whether the rules let an activity follow.
func (h history) allows(a string) bool {
	switch {
	case len(h) == 0 || a == "A_SUBMITTED":
		return len(h) == 0 && a == "A_SUBMITTED"
	case h.last() == "A_SUBMITTED" || a == "A_PARTLYSUBMITTED":
		return h.last() == "A_SUBMITTED" && a == "A_PARTLYSUBMITTED"
	case h.last() == "O_CREATED" || a == "O_SENT":
		return h.last() == "O_CREATED" && a == "O_SENT"
	}
	switch a[0] {
	case 'A':
		return h.n(a) == 0 && h.allowsStep(a)
	case 'O':
		return h.n("O_ACCEPTED", "O_DECLINED") == 0 && h.allowsOffer(a)
	}
	return h.allowsWork(a)
}

func (h history) outcomes() int { return h.n("A_APPROVED", "A_DECLINED", "A_CANCELLED") }
func (h history) granted() int  { return h.n("A_REGISTERED", "A_ACTIVATED") }
func (h history) closed() bool  { return h.outcomes()+h.granted() > 0 }
func (h history) live() int     { return h.n("O_SENT") - h.n("O_CANCELLED") }
func (h history) making() bool  { return h.n("O_SELECTED") != h.n("O_SENT") }

func (h history) grantOffer() bool {
	return h.live() == 1 && h.n("O_SENT_BACK") > 0 && !h.making()
}

func (h history) allowsStep(a string) bool {
	refused := h.n("A_DECLINED", "A_CANCELLED") > 0
	grant := h.n("A_FINALIZED") == 1 && h.grantOffer() && h.n("O_DECLINED") == 0
	unbound := h.granted() == 0 && h.n("O_ACCEPTED") == 0 && h.outcomes() == 0 && !h.making()
	switch a {
	case "A_PREACCEPTED":
		return !h.closed()
	case "A_ACCEPTED":
		return !h.closed() && h.n("A_PREACCEPTED") == 1
	case "A_FINALIZED":
		return !h.closed() && h.n("A_ACCEPTED") == 1
	case "A_APPROVED":
		return grant && h.outcomes() == 0
	case "A_REGISTERED", "A_ACTIVATED":
		return grant && !refused
	case "A_DECLINED":
		return unbound
	default:
		return unbound && h.n("O_DECLINED") == 0
	}
}

func (h history) allowsOffer(a string) bool {
	switch a {
	case "O_SELECTED":
		return !h.closed() && !h.making() && h.n("A_ACCEPTED") == 1
	case "O_CREATED":
		return !h.closed() && h.making() && h.n("A_FINALIZED") == 1
	case "O_SENT_BACK":
		return !h.closed() && !h.making() && h.live() > 0
	case "O_CANCELLED":
		return (!h.closed() || h.n("A_CANCELLED") == 1) && h.live() > 0
	case "O_DECLINED":
		return (!h.closed() || h.n("A_DECLINED") == 1) && h.live() == 1
	default:
		return h.n("A_DECLINED", "A_CANCELLED") == 0 && h.grantOffer()
	}
}

func (h history) allowsWork(a string) bool {
	is := func(item WorkItem, transition string) bool { return a == string(item)+"+"+transition }
	for _, item := range WorkItems() {
		scheduled := h.n(string(item) + "+SCHEDULE")
		started := h.n(string(item) + "+START")
		switch {
		case is(item, "SCHEDULE"):
			return h.allowsSchedule(item, scheduled)
		case is(item, "START"):
			return scheduled > 0 && h.n("A_DECLINED") == 0 &&
				(item != WorkLeads || h.n("A_PREACCEPTED") == 0) &&
				(item != WorkCompletion || h.n("A_PREACCEPTED") == 1) &&
				(item != WorkOfferCalls || h.n("O_SENT") > 0)
		case is(item, "COMPLETE"):
			return scheduled > 0 && h.n(a) < scheduled+started
		}
	}
	return false
}

func (h history) allowsSchedule(item WorkItem, before int) bool {
	if item == WorkNewContract {
		return h.n("O_SENT") > 0 && h.n("A_DECLINED", "A_CANCELLED") == 0
	}
	return !h.closed() &&
		(item != WorkLeads || h.n("A_PREACCEPTED") == 0) &&
		(item != WorkCompletion || h.n("A_ACCEPTED") == 0) &&
		(item != WorkOfferCalls || before < h.n("O_SELECTED")) &&
		(item != WorkValidation || h.n("O_SENT_BACK") > 0) &&
		(item != WorkFileCalls || h.n(string(WorkValidation)+"+SCHEDULE") > 0)
}

// allActivities is everything a log can say.
func allActivities() []string {
	all := append(slices.Sorted(maps.Keys(steps)), submission)
	for _, item := range WorkItems() {
		for _, transition := range []string{transitionSchedule, transitionStart, transitionComplete} {
			all = append(all, string(item)+"+"+transition)
		}
	}
	return all
}

func TestDecideAgreesWithHistory(t *testing.T) {
	const walks, steps = 120, 60
	all := allActivities()
	seen := map[string]int{}
	for seed := range uint64(walks) {
		r := newRoad(seed, 0)
		rng := rand.New(rand.NewPCG(seed, 1))
		s, h := Initial(), history{}
		for range steps {
			var next []string
			for _, a := range all {
				if checkAgainstHistory(t, s, h, r, a) {
					next = append(next, a)
				}
			}
			if len(next) == 0 {
				break
			}
			a := pick(rng, next, h)
			events, _ := Decide(s, r.step(a))
			s = Evolve(s, events[0])
			h = append(h, a)
			seen[a]++
		}
	}
	if len(seen) != len(all) {
		t.Errorf("wanted all %d activities walked, found %d: %v", len(all), len(seen), seen)
	}
}

// pick likes to end an application late and to work little, so that walks get far.
func pick(rng *rand.Rand, next []string, h history) string {
	for range 6 {
		a := next[rng.IntN(len(next))]
		ends := a == "A_DECLINED" || a == "A_CANCELLED" || a == "O_DECLINED"
		if a[0] != 'W' && (!ends || len(h) > 30) {
			return a
		}
	}
	return next[rng.IntN(len(next))]
}

// checkAgainstHistory tries one activity and says whether it may follow.
func checkAgainstHistory(t *testing.T, s State, h history, r *road, a string) bool {
	t.Helper()
	trial := *r // the road itself goes on from where it was
	trial.at = trial.at.Add(time.Hour)
	_, err := Decide(s, trial.step(a))
	want := h.allows(a)
	if (err == nil) != want {
		t.Fatalf("%s after %q: wanted allowed %v, found %v", a, h, want, err)
	}
	if err != nil && !errors.Is(err, ErrRefused) {
		t.Fatalf("%s after %q: wanted a refusal, found %v", a, h, err)
	}
	return want
}
