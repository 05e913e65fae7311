// Package summarytest has generated applications and the documents that a summary of them
// has, counted without any of its code, for every handler of the summary to be held
// against.
package summarytest

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/examples/loan/summary"
	"github.com/wattle-es/wattle/handler"
)

// Applications are the events of n generated applications, and the order of their streams.
type Applications struct {
	order  []eventstore.Stream
	events map[eventstore.Stream][]loan.Event
}

// New generates applications. The same seed has the same.
func New(seed uint64, n int) (Applications, error) {
	a := Applications{events: map[eventstore.Stream][]loan.Event{}}
	for c := range loan.Generate(seed, n) {
		stream := eventstore.Stream(summary.Category) + "-" + eventstore.Stream(c.Key)
		a.order = append(a.order, stream)
		state := loan.Initial()
		for i := range c.Events {
			command, err := loan.CommandFor(c, i)
			if err != nil {
				return a, err
			}
			events, err := loan.Decide(state, command)
			if err != nil {
				return a, err
			}
			for _, e := range events {
				state = loan.Evolve(state, e)
			}
			a.events[stream] = append(a.events[stream], events...)
		}
	}
	return a, nil
}

// Store returns a store in memory with the applications, a few events of each in turns.
func (a Applications) Store(ctx context.Context) (*eventstore.Store, error) {
	s := eventstore.New(memlog.New(nil), nil)
	if err := s.CreateCategory(ctx, eventstore.CategorySpec{Name: summary.Category, TrimFreely: true}); err != nil {
		return nil, err
	}
	marks := map[eventstore.Stream]eventstore.Mark{}
	for left := true; left; {
		left = false
		for _, stream := range a.order {
			events := a.events[stream][marks[stream].Seqno:]
			if len(events) == 0 {
				continue
			}
			last, err := write(ctx, s, stream, marks[stream], events[:min(3, len(events))])
			if err != nil {
				return nil, err
			}
			marks[stream], left = last, true
		}
	}
	return s, nil
}

func write(ctx context.Context, s *eventstore.Store, stream eventstore.Stream, after eventstore.Mark, events []loan.Event) (eventstore.Mark, error) {
	b := eventstore.Batch{Stream: stream, Epoch: 1, Holder: eventstore.UUID{1}, Claim: after.Seqno == 0, After: after}
	for _, e := range events {
		ev, err := bank.Events().Encode(e)
		if err != nil {
			return after, err
		}
		b.Events = append(b.Events, ev)
	}
	done, err := s.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
	if err != nil {
		return after, err
	}
	return done.Receipts[0].Last, nil
}

// Entries returns those entries of a store that the summary is made of, as a handler gets
// them.
func Entries(ctx context.Context, s *eventstore.Store) (all []handler.Entry, err error) {
	for e, err := range s.Feed(ctx, 0, eventstore.Filter{Categories: []eventstore.Category{summary.Category}}) {
		if err != nil {
			return nil, err
		}
		if slices.Contains(summary.Events().Names(), e.Type) {
			all = append(all, handler.Entry{Event: handler.Event{Type: e.Type, Version: e.Version, ContentType: e.ContentType, Data: e.Data},
				Stream: e.Stream, Seqno: e.Seqno, Position: e.Position, ID: e.ID, Time: e.Time})
		}
	}
	return all, nil
}

// Documents counts what the summary is to be, from the read model of the bank's report.
func (a Applications) Documents() (map[string][]byte, error) {
	docs := map[string]any{}
	for stream, events := range a.events {
		var one loan.Application
		for _, e := range events {
			one = loan.ApplyOffers(one, e)
			if sent, ok := e.(loan.OfferSent); ok {
				day(docs, sent.At).Offers++
			}
		}
		docs[string(stream)] = counted(docs, one)
	}
	all := map[string][]byte{}
	for k, doc := range docs {
		data, err := json.Marshal(doc)
		if err != nil {
			return nil, err
		}
		all[k] = data
	}
	return all, nil
}

// counted counts one application in what it has in common with others.
func counted(docs map[string]any, a loan.Application) summary.Application {
	d := day(docs, a.Submitted)
	d.Submitted++
	d.Amount += a.Amount
	one := summary.Application{Amount: a.Amount, Submitted: a.Submitted, Offers: a.Offers, Outcome: a.Outcome, Decided: a.Decided}
	if a.Outcome == loan.OutcomeOpen {
		return one
	}
	one.Hours = int64(a.Decided.Sub(a.Submitted).Hours())
	day(docs, a.Decided).Decided++
	key := "outcome " + a.Outcome.String()
	if docs[key] == nil {
		docs[key] = &summary.Outcome{}
	}
	o := docs[key].(*summary.Outcome)
	o.Applications++
	o.Amount += a.Amount
	return one
}

func day(docs map[string]any, at time.Time) *summary.Day {
	key := "day " + at.UTC().Format("2006-01-02")
	if docs[key] == nil {
		docs[key] = &summary.Day{}
	}
	return docs[key].(*summary.Day)
}
