// What becomes of offers that nobody answers.

package loan

import (
	"testing"
	"time"
)

// Every generated application whose offers are unanswered expires within the rules, once;
// all others do not. No answer comes later than the deadline.
func TestExpire(t *testing.T) {
	expired, silent := 0, 0
	for seed := range uint64(5) {
		for c := range Generate(seed, 2000) {
			s := Initial()
			var sent time.Time
			for i, e := range c.Events {
				command, _ := CommandFor(c, i)
				events, err := Decide(s, command)
				if err != nil {
					t.Fatal(err)
				}
				if late := e.Time.Sub(sent); e.Name == "O_SENT_BACK" && late >= OfferDeadline {
					t.Errorf("case %s: an answer after %v", c.Key, late)
				}
				if s = Evolve(s, events[0]); e.Name == "O_SENT" {
					sent = e.Time
				}
			}
			due := sent.Add(OfferDeadline)
			events, err := Expire(s, due)
			if err != nil {
				t.Fatalf("case %s: %v", c.Key, err)
			}
			if !s.Unanswered() {
				if silent++; len(events) > 0 {
					t.Fatalf("case %s: %v for %+v", c.Key, events, s)
				}
				continue
			}
			expired++
			if len(events) != s.Offers.Live()+1 {
				t.Fatalf("case %s: %d events for %d live offers", c.Key, len(events), s.Offers.Live())
			}
			for _, e := range events {
				if at := e.occurred().At; at.Before(due) || at.Before(s.Last) {
					t.Fatalf("case %s: %v at %v, due %v", c.Key, e, at, due)
				}
				s = Evolve(s, e)
			}
			again, err := Expire(s, due)
			if s.Outcome != OutcomeCancelled || s.Offers.Live() != 0 || len(again) > 0 || err != nil {
				t.Fatalf("case %s: %+v, then %v, %v", c.Key, s, again, err)
			}
		}
	}
	if expired < 100 || silent < 5000 {
		t.Errorf("%d expired, %d did not", expired, silent)
	}
	for _, answer := range []Event{OfferReturned{}, OfferAccepted{}, OfferDeclined{}, Declined{}, Cancelled{}, Approved{}, Activated{}} {
		s := Evolve(State{Submitted: true, PartlySubmitted: true, Offers: Offers{Selected: 1, Created: 1, Sent: 1}}, answer)
		if events, err := Expire(s, generatedFrom); len(events) > 0 || err != nil {
			t.Errorf("behind %T: %v, %v", answer, events, err)
		}
	}
	called := State{Submitted: true, PartlySubmitted: true, Last: generatedFrom.Add(time.Hour), Offers: Offers{Selected: 1, Created: 1, Sent: 1}}
	if events, err := Expire(called, generatedFrom); err != nil || len(events) != 2 || !events[1].occurred().At.Equal(called.Last) {
		t.Errorf("a call behind the deadline: %v, %v", events, err)
	}
	if s := (State{Submitted: true, Offers: Offers{Selected: 2, Created: 1, Sent: 1}}); s.Unanswered() {
		t.Error("an offer in the making waits for an answer")
	}
}

// A read model that counts offers is otherwise the same.
func TestApplyOffers(t *testing.T) {
	sent := 0
	for c := range Generate(1, 100) {
		var a, b Application
		s := Initial()
		for i, e := range c.Events {
			command, _ := CommandFor(c, i)
			events, _ := Decide(s, command)
			s, a, b = Evolve(s, events[0]), Apply(a, events[0]), ApplyOffers(b, events[0])
			if e.Name == "O_SENT" {
				sent++
			}
		}
		if sent -= b.Offers; a.Events != b.Events || a.Outcome != b.Outcome || a.Offers != 0 {
			t.Fatalf("case %s: %+v and %+v", c.Key, a, b)
		}
	}
	if sent != 0 {
		t.Errorf("%d offers not counted", sent)
	}
}
