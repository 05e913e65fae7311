// The read model: one small document per application, folded from its events.

package loan

import (
	"maps"
	"time"
)

// Application is what the report needs of one application, as JSON in a read
// model. The zero Application has seen no event. It is a value: Apply never
// changes one it was given.
type Application struct {
	Events    int       `json:"events"`
	Submitted time.Time `json:"submitted,omitzero"`
	Amount    int64     `json:"amount"` // whole euros
	Outcome   Outcome   `json:"outcome"`
	Decided   time.Time `json:"decided,omitzero"` // when it got its outcome

	// Worked is the closed work in milliseconds; an item is there once a start of
	// it was closed.
	Worked map[WorkItem]int64 `json:"worked,omitempty"`
	// Started is the latest start of each item that is still open.
	Started map[WorkItem]time.Time `json:"started,omitempty"`
	// NoStart counts completions that found no open start.
	NoStart map[WorkItem]int `json:"no_start,omitempty"`
	// Offers counts the offers sent, in a read model that is made by ApplyOffers.
	Offers int `json:"offers,omitempty"`
}

// Apply is the document after an event. The events of one application must come
// in the order of its stream, each once. The given document, its maps included,
// stays as it is.
func Apply(a Application, e Event) Application {
	a.Events++
	at := e.occurred().At
	switch e := e.(type) {
	case Submitted:
		a.Submitted, a.Amount = at, e.Amount
	case Approved:
		a.Outcome, a.Decided = OutcomeApproved, at
	case Declined:
		a.Outcome, a.Decided = OutcomeDeclined, at
	case Cancelled:
		a.Outcome, a.Decided = OutcomeCancelled, at
	case WorkStarted:
		// An earlier open start of the item is dropped with this.
		a.Started = with(a.Started, e.Item, at)
	case WorkCompleted:
		a.complete(e.Item, at)
	}
	return a
}

// ApplyOffers is Apply for a read model with one figure more: the offers sent.
func ApplyOffers(a Application, e Event) Application {
	a = Apply(a, e)
	if _, sent := e.(OfferSent); sent {
		a.Offers++
	}
	return a
}

// complete closes the open start of an item, of which there is one at most.
func (a *Application) complete(item WorkItem, at time.Time) {
	start, open := a.Started[item]
	if !open {
		a.NoStart = with(a.NoStart, item, a.NoStart[item]+1)
		return
	}
	a.Worked = with(a.Worked, item, a.Worked[item]+milliseconds(start, at))
	a.Started = maps.Clone(a.Started)
	delete(a.Started, item)
}

// with is the map with one value set, in a map of its own.
func with[V any](m map[WorkItem]V, item WorkItem, value V) map[WorkItem]V {
	set := make(map[WorkItem]V, len(m)+1)
	maps.Copy(set, m)
	set[item] = value
	return set
}

func milliseconds(from, to time.Time) int64 { return to.UnixMilli() - from.UnixMilli() }
