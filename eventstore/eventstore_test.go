// The parts of the contract that need no log: names, numbers, marks, rules.

package eventstore_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
)

func TestNames(t *testing.T) {
	for in, why := range map[string]string{
		"":                                    "no '-'",
		"account":                             "no '-'",
		"-key":                                "empty",
		"account-":                            "empty",
		"a.b-key":                             `'.' at byte 1`,
		"a*-key":                              `'*' at byte 1`,
		"a>-key":                              `'>' at byte 1`,
		"a b-key":                             `' ' at byte 1`,
		"a\u00a0b-key":                        `at byte 1`,
		"account-k\x00":                       `'\x00' at byte 1`,
		"account-k\n":                         `'\n' at byte 1`,
		"account-\xff":                        "UTF-8",
		strings.Repeat("c", 65) + "-key":      "65 bytes",
		"account-" + strings.Repeat("k", 513): "513 bytes",
	} {
		_, err := eventstore.ParseStream(in)
		if !errors.Is(err, eventstore.ErrInvalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("ParseStream(%q) = %v, want ErrInvalid saying %s", in, err, why)
		}
	}
	s, err := eventstore.ParseStream("account-a-b c/é")
	if err != nil || s.Category() != "account" || s.Key() != "a-b c/é" {
		t.Errorf("%q %q %v", s.Category(), s.Key(), err)
	}
}

// TestSlot pins the rule of the slot, worked out elsewhere: it is stored, so it can
// never change.
func TestSlot(t *testing.T) {
	for key, want := range map[string]eventstore.Slot{"alice": 175, "bob": 730, "a-b": 145} {
		if got := eventstore.Stream("account-" + key).Slot(); got != want {
			t.Errorf("slot of %q is %d, want %d", key, got, want)
		}
	}
}

func TestStringAndParse(t *testing.T) {
	for _, s := range []string{"0", "1", "9223372036854775807"} {
		if n, err := eventstore.ParseSeqno(s); err != nil || n.String() != s {
			t.Errorf("seqno %s: %v %v", s, n, err)
		}
		if n, err := eventstore.ParsePosition(s); err != nil || n.String() != s {
			t.Errorf("position %s: %v %v", s, n, err)
		}
		if n, err := eventstore.ParseEpoch(s); err != nil || n.String() != s {
			t.Errorf("epoch %s: %v %v", s, n, err)
		}
	}
	for _, s := range []string{"", "-1", "+1", "01", " 1", "9223372036854775808", "1e3", strings.Repeat("9", 500)} {
		if _, err := eventstore.ParseSeqno(s); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("seqno %q: %v, want ErrInvalid", s, err)
		}
	}
	token := eventstore.Token{Incarnation: eventstore.NewUUID(), Position: 42}
	if back, err := eventstore.ParseToken(token.String()); err != nil || back != token {
		t.Errorf("token %v: %v %v", token, back, err)
	}
	for _, s := range []string{"", ".", "x.1", token.Incarnation.String(), token.String() + "x"} {
		if _, err := eventstore.ParseToken(s); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("token %q: %v, want ErrInvalid", s, err)
		}
	}
}

func TestUUID(t *testing.T) {
	u := eventstore.NewUUID()
	if back, err := eventstore.ParseUUID(strings.ToUpper(u.String())); err != nil || back != u {
		t.Errorf("%v: %v %v", u, back, err)
	}
	if u.String()[14] != '7' || !strings.ContainsRune("89ab", rune(u.String()[19])) {
		t.Errorf("%v is not a UUIDv7 of RFC 9562", u)
	}
	// Worked out elsewhere; command and batch IDs made of names must never change.
	if got, want := eventstore.NameUUID("order 1").String(), "97e3285c-f0da-5a0d-a161-89688b1978f6"; got != want {
		t.Errorf("NameUUID %s, want %s", got, want)
	}
	d := eventstore.DeriveUUID(u, 3)
	if d != eventstore.DeriveUUID(u, 3) || d == eventstore.DeriveUUID(u, 4) || d.String()[:13] != u.String()[:13] {
		t.Errorf("DeriveUUID(%v) = %v", u, d)
	}
}

func TestUsable(t *testing.T) {
	data := []byte(`{}`)
	id, other := eventstore.NewUUID(), eventstore.NewUUID()
	good := eventstore.Snapshot{At: eventstore.Mark{Seqno: 5, ID: id}, Fingerprint: "v1", Data: data, Checksum: sha256.Sum256(data)}
	head := eventstore.Head{Last: eventstore.Mark{Seqno: 9, ID: other}}
	for name, c := range map[string]struct {
		bend   func(s *eventstore.Snapshot)
		head   eventstore.Head
		marked eventstore.UUID
		why    string
	}{
		"good":                    {nil, head, id, ""},
		"good, mark trimmed":      {nil, head, eventstore.UUID{}, ""},
		"other code":              {func(s *eventstore.Snapshot) { s.Fingerprint = "v2" }, head, id, "fingerprint"},
		"beyond the head":         {nil, eventstore.Head{Last: eventstore.Mark{Seqno: 4, ID: id}}, eventstore.UUID{}, "beyond the head"},
		"another history":         {nil, head, other, "another history"},
		"another history at head": {nil, eventstore.Head{Last: eventstore.Mark{Seqno: 5, ID: other}}, eventstore.UUID{}, "another history"},
		"a bit flipped":           {func(s *eventstore.Snapshot) { s.Data = []byte(`{]`) }, head, id, "checksum"},
	} {
		s := good
		if c.bend != nil {
			c.bend(&s)
		}
		why := s.Usable("v1", c.head, c.marked)
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q, want %q", name, why, c.why)
		}
	}
}

func TestTraceparent(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" // W3C's example
	sc, ok := eventstore.ParseTraceparent(parent, "a=b")
	if !ok || !sc.IsRemote() || sc.TraceState().String() != "a=b" {
		t.Fatalf("%v %v", sc, ok)
	}
	if got := eventstore.Traceparent(trace.ContextWithSpanContext(context.Background(), sc)); got != parent {
		t.Errorf("%s, want %s", got, parent)
	}
	for _, bad := range []string{"", "00", parent[:54], parent + "x", parent + "-x", "ff" + parent[2:], "00-" + strings.Repeat("0", 32) + parent[35:],
		parent[:36] + strings.Repeat("0", 16) + "-01", strings.Replace(parent, "-", "_", 1), parent[:53] + "zz"} {
		if _, ok := eventstore.ParseTraceparent(bad, ""); ok {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestErrorText(t *testing.T) {
	err := &eventstore.Error{Kind: eventstore.ErrGap, Op: "append", Stream: "account-a", Wanted: "the last entry to be 5", Found: "head 2", Hint: "append after the head"}
	if got, want := err.Error(), "wattle: append account-a: gap: wanted the last entry to be 5, found head 2 (append after the head)"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	forged := &eventstore.Error{Kind: eventstore.ErrInvalid, Stream: "a-\nlevel=ERROR", Err: fmt.Errorf("cause")}
	if strings.Contains(forged.Error(), "\n") {
		t.Errorf("a name can break the line: %q", forged.Error())
	}
}

// TestSettle holds the one answer of an append against what became of its parts.
func TestSettle(t *testing.T) {
	b := &eventstore.Batch{Stream: "a-b", Events: make([]eventstore.Event, 1)}
	refused := func(kind error) error { return &eventstore.Error{Kind: kind} }
	pass := func(v *eventstore.Verdict) { v.Pass() }
	prove := func(v *eventstore.Verdict) { v.Prove(b, eventstore.Head{}) }
	refuse := func(kind error) func(*eventstore.Verdict) {
		return func(v *eventstore.Verdict) { v.Refuse(refused(kind)) }
	}
	guard := func(v *eventstore.Verdict) { v.RefuseGuard(refused(eventstore.ErrGuard)) }
	type steps []func(*eventstore.Verdict)
	for name, c := range map[string]struct {
		steps steps
		write bool
		kind  error
	}{
		"all pass":                          {steps{pass, pass}, true, nil},
		"all proved":                        {steps{prove, prove}, false, nil},
		"all proved, a guard failing since": {steps{prove, guard}, false, nil},
		"pass and guard":                    {steps{pass, guard}, false, eventstore.ErrGuard},
		"pass and proved":                   {steps{pass, prove}, false, eventstore.ErrBatchIDReused},
		"proved and unprovable":             {steps{prove, refuse(eventstore.ErrUnknown)}, false, eventstore.ErrUnknown},
		"proved, unprovable, guard":         {steps{prove, refuse(eventstore.ErrUnknown), guard}, false, eventstore.ErrUnknown},
		"gap then fenced":                   {steps{refuse(eventstore.ErrGap), refuse(eventstore.ErrFenced)}, false, eventstore.ErrFenced},
		"unprovable then already written":   {steps{refuse(eventstore.ErrUnknown), refuse(eventstore.ErrAlreadyWritten)}, false, eventstore.ErrAlreadyWritten},
	} {
		var v eventstore.Verdict
		for _, s := range c.steps {
			s(&v)
		}
		write, err := v.Settle()
		if write != c.write || !errors.Is(err, c.kind) && !(err == nil && c.kind == nil) {
			t.Errorf("%s: %v %v, want %v %v", name, write, err, c.write, c.kind)
		}
	}
}
