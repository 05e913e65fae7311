// Package summary is a projection of the loan process that may run anywhere: in the
// process, behind any carrier, or as a WebAssembly guest.
//
//	application-173688   what became of one application
//	outcome approved     how many applications ended so, and their amounts; or declined, cancelled
//	day 2011-10-01       what happened on a day, in UTC
//
// The first kind of document belongs to one stream. The others are shared by many, also by
// those of other lanes: they only count, so the order in which entries of different
// streams come to them makes no difference.
package summary

import (
	"fmt"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
)

// Category holds a stream for each application.
const Category eventstore.Category = "application"

// Application is the document of one application, under the name of its stream.
type Application struct {
	Amount    int64        `json:"amount"` // whole euros
	Submitted time.Time    `json:"submitted"`
	Offers    int          `json:"offers,omitempty"` // sent
	Outcome   loan.Outcome `json:"outcome"`
	Decided   time.Time    `json:"decided,omitzero"`
	Hours     int64        `json:"hours,omitempty"` // whole ones, from submission to outcome
}

// Outcome is the document of one outcome, under [OutcomeKey].
type Outcome struct {
	Applications int   `json:"applications"`
	Amount       int64 `json:"amount"` // of all, whole euros
}

// Day is the document of one day, under [DayKey].
type Day struct {
	Submitted int   `json:"submitted,omitempty"`
	Amount    int64 `json:"amount,omitempty"` // requested, whole euros
	Offers    int   `json:"offers,omitempty"` // sent
	Decided   int   `json:"decided,omitempty"`
}

// OutcomeKey is the key of an outcome's document.
func OutcomeKey(o loan.Outcome) string { return "outcome " + o.String() }

// DayKey is the key of the document of the day of a moment.
func DayKey(at time.Time) string { return "day " + at.UTC().Format(time.DateOnly) }

// Events are those of the process that the summary is made of.
func Events() *schema.Registry[loan.Event] {
	return schema.New[loan.Event](
		schema.Wire[loan.Submitted]("loan.submitted", 1),
		schema.Wire[loan.OfferSent]("loan.offer_sent", 1),
		schema.Wire[loan.Approved]("loan.approved", 1),
		schema.Wire[loan.Declined]("loan.declined", 1),
		schema.Wire[loan.Cancelled]("loan.cancelled", 1),
	)
}

// Projection is the summary.
func Projection() guest.Projection[loan.Event] {
	return guest.Projection[loan.Event]{Name: "loan-summary", Release: "1", Category: Category, Events: Events(), Keys: keys, Apply: apply}
}

// Handler is the summary as a handler.
func Handler() handler.Handler { return guest.New(Projection()) }

// decided returns the outcome that an event is.
func decided(e loan.Event) (o loan.Outcome, at time.Time) {
	switch e := e.(type) {
	case loan.Approved:
		return loan.OutcomeApproved, e.At
	case loan.Declined:
		return loan.OutcomeDeclined, e.At
	case loan.Cancelled:
		return loan.OutcomeCancelled, e.At
	}
	return loan.OutcomeOpen, time.Time{}
}

func keys(e projector.Event[loan.Event]) []string {
	own := string(e.Stream)
	switch v := e.Value.(type) {
	case loan.Submitted:
		return []string{own, DayKey(v.At)}
	case loan.OfferSent:
		return []string{own, DayKey(v.At)}
	}
	outcome, at := decided(e.Value)
	return []string{own, DayKey(at), OutcomeKey(outcome)}
}

func apply(e projector.Event[loan.Event], docs *guest.Docs) error {
	var a Application
	if known := docs.Get(string(e.Stream), &a); known == (e.Seqno == 1) {
		return fmt.Errorf("entry %d of an application: known before: %v", e.Seqno, known)
	}
	switch v := e.Value.(type) {
	case loan.Submitted:
		a = Application{Amount: v.Amount, Submitted: v.At}
		count(docs, DayKey(v.At), func(d *Day) { d.Submitted, d.Amount = d.Submitted+1, d.Amount+v.Amount })
	case loan.OfferSent:
		a.Offers++
		count(docs, DayKey(v.At), func(d *Day) { d.Offers++ })
	default:
		if a.Outcome != loan.OutcomeOpen {
			return fmt.Errorf("an outcome of an application that has one, %v", a.Outcome)
		}
		a.Outcome, a.Decided = decided(e.Value)
		a.Hours = int64(a.Decided.Sub(a.Submitted) / time.Hour)
		count(docs, DayKey(a.Decided), func(d *Day) { d.Decided++ })
		count(docs, OutcomeKey(a.Outcome), func(o *Outcome) { o.Applications, o.Amount = o.Applications+1, o.Amount+a.Amount })
	}
	docs.Put(string(e.Stream), a)
	return nil
}

// count changes a document that may not be there yet.
func count[D any](docs *guest.Docs, key string, f func(*D)) {
	var d D
	docs.Get(key, &d)
	f(&d)
	docs.Put(key, d)
}
