// The words of a diagnosis: their forms, and logs that can make none.

package eventstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

func TestSeverity(t *testing.T) {
	for s, want := range map[eventstore.Severity]string{eventstore.SeverityOK: "ok", eventstore.SeverityNote: "note",
		eventstore.SeverityWarning: "warning", eventstore.SeverityFault: "fault"} {
		got, err := eventstore.ParseSeverity(want)
		if s.String() != want || got != s || err != nil {
			t.Errorf("%d: wanted %q, found %q, parsed as %v, %v", s, want, s, got, err)
		}
		b, err := json.Marshal(s)
		var back eventstore.Severity
		if err != nil || string(b) != `"`+want+`"` || json.Unmarshal(b, &back) != nil || back != s {
			t.Errorf("%q: as JSON it is %s, back %v, %v", want, b, back, err)
		}
	}
	for _, s := range []string{"", "Fault", "4"} {
		if _, err := eventstore.ParseSeverity(s); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%q: wanted ErrInvalid, found %v", s, err)
		}
	}
}

func TestWhere(t *testing.T) {
	for want, f := range map[string]eventstore.Finding{
		"store":                 {},
		"position 7":            {Position: 7},
		"account":               {Category: "account"},
		"account, position 7":   {Category: "account", Position: 7},
		"account-a at 5":        {Category: "account", Stream: "account-a", Seqno: 5, Position: 7},
		"account-a":             {Category: "account", Stream: "account-a"},
		`"account-a\nb c" at 1`: {Stream: "account-a\nb c", Seqno: 1},
	} {
		if got := f.Where(); got != want {
			t.Errorf("wanted %s, found %s", want, got)
		}
	}
}

func TestCheckEvent(t *testing.T) {
	good := eventstore.Event{ID: eventstore.NewUUID(), Type: "t", Version: 1, ContentType: "c"}
	for name, bend := range map[string]func(e *eventstore.Event) int{
		"event ID":     func(e *eventstore.Event) int { e.ID = eventstore.UUID{}; return 0 },
		"version":      func(e *eventstore.Event) int { e.Version = 0; return 0 },
		"data":         func(*eventstore.Event) int { return eventstore.MaxEventBytes + 1 },
		"type":         func(e *eventstore.Event) int { e.Type = strings.Repeat("x", 129); return 0 },
		"content type": func(e *eventstore.Event) int { e.ContentType = ""; return 0 },
		"metadata":     func(e *eventstore.Event) int { e.Metadata = eventstore.Metadata{"k": "\x00"}; return 0 },
	} {
		e := good
		if err := eventstore.CheckEvent(&e, eventstore.MaxEventBytes); err != nil {
			t.Fatal(err)
		}
		size := bend(&e)
		if err := eventstore.CheckEvent(&e, size); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: found %v", name, err)
		}
	}
}

// Other logs than those that can say so.
func TestNoDiagnosis(t *testing.T) {
	s := eventstore.New(memlog.New(nil), nil)
	n := 0
	for _, err := range s.Verify(context.Background(), nil) {
		if n++; !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("verify: wanted ErrUnsupported, found %v", err)
		}
	}
	if _, err := s.Examine(context.Background()); n != 1 || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("examine: wanted ErrUnsupported, found %v; %d results of verify", err, n)
	}
}
