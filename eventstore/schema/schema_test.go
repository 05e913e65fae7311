// The registry as a whole: what goes in comes out, and mistakes are told in full.

package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/schema"
)

type (
	Event   interface{ isEvent() }
	Opened  struct{ Owner string }
	Changed struct {
		Exact int64          `json:"exact"`
		Big   json.Number    `json:"big"`
		Any   any            `json:"any"`
		Map   map[string]any `json:"map"`
	}
	OpenedV1 struct{ Name string }
	pointed  struct{}
	other    struct{}
)

func (Opened) isEvent()   {}
func (OpenedV1) isEvent() {}
func (Changed) isEvent()  {}
func (*pointed) isEvent() {}

var events = schema.New[Event](
	schema.Wire[Opened]("opened", 2),
	schema.Wire[OpenedV1]("opened", 1),
	schema.Wire[Changed]("changed", 1))

func entry(e eventstore.Event) eventstore.Entry {
	return eventstore.Entry{Event: e, Stream: "account-alice", Seqno: 7}
}

func TestRoundTrip(t *testing.T) {
	if err := events.Err(); err != nil {
		t.Fatal(err)
	}
	for e, want := range map[Event]string{Opened{"<A&B>"}: `opened/2 {"Owner":"<A&B>"}`, OpenedV1{"é"}: `opened/1 {"Name":"é"}`} {
		stored, err := events.Encode(e)
		if got := fmt.Sprintf("%s/%d %s", stored.Type, stored.Version, stored.Data); err != nil || got != want || stored.ContentType != "application/json" {
			t.Fatalf("wanted %s, found %s, %v", want, got, err)
		}
		back, err := events.Decode(entry(stored))
		if err != nil || back != e {
			t.Fatalf("wanted %#v, found %#v, %v", e, back, err)
		}
	}
}

// S1: every digit is kept, in typed and in generic fields.
func TestS1Numbers(t *testing.T) {
	for _, n := range []json.Number{"12345678901234567890", "0.1234567890123456789", "9223372036854775807", "1e400"} {
		e := Changed{Exact: math.MaxInt64, Big: n, Any: n, Map: map[string]any{"deep": []any{n}}}
		want := fmt.Sprintf(`{"exact":9223372036854775807,"big":%s,"any":%[1]s,"map":{"deep":[%[1]s]}}`, n)
		for range 2 { // the second time from what was decoded
			stored, err := events.Encode(e)
			if err != nil || string(stored.Data) != want {
				t.Fatalf("wanted %s, found %s, %v", want, stored.Data, err)
			}
			back, err := events.Decode(entry(stored))
			if err != nil {
				t.Fatal(err)
			}
			e = back.(Changed)
		}
	}
	_, err := events.Decode(entry(eventstore.Event{Type: "changed", Version: 1, ContentType: "application/json", Data: []byte(`{"exact":9223372036854775808}`)}))
	if !errors.Is(err, schema.ErrDecode) {
		t.Fatalf("a number that does not fit is no error: %v", err)
	}
}

func TestMistakesAreToldInFull(t *testing.T) {
	r := schema.New[Event](
		schema.Wire[Opened]("opened", 1),
		schema.Wire[Opened]("opened", 2),
		schema.Wire[Changed]("opened", 1),
		schema.Wire[OpenedV1]("", 0),
		schema.Wire[*Opened]("pointer", 1),
		schema.Wire[pointed]("pointed", 1),
		schema.Wire[other]("other", 1),
		schema.Wire[Event]("event", 1),
		schema.Wire[func()]("func", 1),
		schema.Wire[Changed]("line\nbreak", 1),
		schema.Codecs(schema.JSON, nil, schema.JSON))
	want := []string{
		`schema_test.Opened as "opened" version 2: that type is "opened" version 1 already`,
		`schema_test.Changed as "opened" version 1: that name and version are schema_test.Opened already`,
		`schema_test.OpenedV1 as "" version 0: the wire name is empty`,
		`schema_test.OpenedV1 as "" version 0: versions begin at 1`,
		`*schema_test.Opened as "pointer" version 1: events are values: register schema_test.Opened, not a pointer to it`,
		`schema_test.pointed as "pointed" version 1: only its pointer implements schema_test.Event: give its methods value receivers`,
		`schema_test.other as "other" version 1: it does not implement schema_test.Event`,
		`schema_test.Event as "event" version 1: an interface cannot be decoded into: register the types that implement it`,
		`func() as "func" version 1: a func cannot be stored`,
		`schema_test.Changed as "line\nbreak" version 1: the wire name holds a control character`,
		`a codec is nil`,
		`two codecs for "application/json": schema.jsonCodec and schema.jsonCodec`,
	}
	err := r.Err()
	m, ok := errors.AsType[*schema.MistakesError](err)
	if !ok || !errors.Is(err, schema.ErrRegistration) || !slices.Equal(m.Mistakes, want) {
		t.Fatalf("wanted\n%s\nfound\n%s", strings.Join(want, "\n"), strings.Join(m.Mistakes, "\n"))
	}
	if strings.ContainsAny(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
	if _, err := r.Encode(Opened{}); !errors.Is(err, schema.ErrRegistration) {
		t.Errorf("Encode: %v", err)
	}
	if _, err := r.Decode(eventstore.Entry{}); !errors.Is(err, schema.ErrRegistration) {
		t.Errorf("Decode: %v", err)
	}
	for _, r := range []*schema.Registry[Event]{nil, schema.New[Event]()} {
		if err := r.Err(); !errors.Is(err, schema.ErrRegistration) || r.List() != nil && len(r.List()) > 0 {
			t.Errorf("%v", err)
		}
	}
	if err := schema.New[Opened](schema.Wire[Opened]("opened", 1)).Err(); err != nil {
		t.Errorf("a registry of one concrete type: %v", err)
	}
	if err := schema.New[Opened](schema.Wire[Changed]("changed", 1)).Err(); err == nil {
		t.Error("another concrete type was taken")
	}
	if err := schema.New[any](schema.Wire[int]("n", 1)).Err(); err != nil {
		t.Errorf("any: %v", err)
	}
}

func TestUnknownTypes(t *testing.T) {
	for _, c := range []struct {
		name    string
		version int
		known   string
	}{{"opened", 3, "opened/1, opened/2"}, {"closed", 1, "changed/1, opened/1, opened/2"}, {"", 0, "changed/1, opened/1, opened/2"}} {
		_, err := events.Decode(entry(eventstore.Event{Type: c.name, Version: c.version, ContentType: "application/json", Data: []byte(`{}`)}))
		e, ok := errors.AsType[*schema.Error](err)
		if !ok || !errors.Is(err, schema.ErrUnknownType) || e.Stream != "account-alice" || e.Seqno != 7 || e.Type != c.name || e.Version != c.version || e.Known != c.known {
			t.Errorf("found %+v", e)
		}
	}
	_, err := events.Decode(entry(eventstore.Event{Type: "x\ny", Version: 1}))
	if want := `wattle: account-alice: entry 7: unknown event type "x\ny" version 1: registered: changed/1, opened/1, opened/2 (register the type under this name and version, or run the code that wrote it)`; err.Error() != want {
		t.Errorf("wanted %s\nfound  %s", want, err)
	}
	var many []schema.Option
	for i := range 30 {
		many = append(many, schema.Wire[Opened](fmt.Sprintf("t%02d", i), 1))
	}
	if r := schema.New[Event](many...); len(r.Err().(*schema.MistakesError).Mistakes) != 29 {
		t.Errorf("found %v", r.Err())
	}
}

func TestUndecodable(t *testing.T) {
	for _, e := range []eventstore.Event{
		{ContentType: "application/json", Data: []byte(``)},
		{ContentType: "application/json", Data: []byte(`{"Owner":1}`)},
		{ContentType: "application/json", Data: []byte(`{} {}`)},
		{ContentType: "application/json", Data: []byte(`{"Owner":"`)},
		{ContentType: "application/cbor", Data: []byte(`{}`)},
	} {
		e.Type, e.Version = "opened", 2
		_, err := events.Decode(entry(e))
		if f, ok := errors.AsType[*schema.Error](err); !ok || f.Kind != schema.ErrDecode || f.Stream != "account-alice" || f.Seqno != 7 || f.Err == nil {
			t.Errorf("%s: %v", e.Data, err)
		}
	}
}

func TestUnencodable(t *testing.T) {
	r := schema.New[any](schema.Wire[Opened]("opened", 1), schema.Wire[Changed]("changed", 1))
	for e, want := range map[any]string{
		nil:       "events are values of registered types",
		other{}:   "register it with schema.Wire",
		&Opened{}: "give a schema_test.Opened, not a pointer to it",
	} {
		if _, err := r.Encode(e); !errors.Is(err, schema.ErrEncode) || !strings.Contains(err.Error(), want) {
			t.Errorf("%#v: %v", e, err)
		}
	}
	if _, err := r.Encode(Changed{Any: math.Inf(1)}); !errors.Is(err, schema.ErrEncode) {
		t.Errorf("infinity: %v", err)
	}
}

// upper is a codec of another format.
type upper struct{}

func (upper) ContentType() string                { return "text/upper" }
func (upper) Encode(v any) ([]byte, error)       { return []byte(strings.ToUpper(v.(Opened).Owner)), nil }
func (upper) Decode(data []byte, into any) error { into.(*Opened).Owner = string(data); return nil }

// A registry whose codec was changed reads what was written before.
func TestCodecsByContentType(t *testing.T) {
	before := schema.New[Opened](schema.Wire[Opened]("opened", 1))
	after := schema.New[Opened](schema.Wire[Opened]("opened", 1), schema.Codecs(upper{}, schema.JSON))
	for _, r := range []*schema.Registry[Opened]{before, after} {
		stored, err := r.Encode(Opened{"A"})
		if err != nil {
			t.Fatal(err)
		}
		if back, err := after.Decode(entry(stored)); err != nil || back.Owner != "A" {
			t.Fatalf("%s: %v, %v", stored.ContentType, back, err)
		}
	}
}

func TestList(t *testing.T) {
	var got []string
	for _, l := range events.List() {
		got = append(got, fmt.Sprintf("%s/%d=%v", l.Name, l.Version, l.Type))
	}
	if want := "changed/1=schema_test.Changed opened/1=schema_test.OpenedV1 opened/2=schema_test.Opened"; strings.Join(got, " ") != want {
		t.Errorf("found %v", got)
	}
	if !slices.Equal(events.Names(), []string{"changed", "opened"}) {
		t.Errorf("found %v", events.Names())
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("opened", 2, "application/json", []byte(`{"Owner":"A"}`))
	f.Add("changed", 1, "application/json", []byte(`{"any":[1e400,{"a":null}],"map":{}}`))
	f.Fuzz(func(t *testing.T, name string, version int, contentType string, data []byte) {
		e, err := events.Decode(entry(eventstore.Event{Type: name, Version: version, ContentType: contentType, Data: data}))
		if err != nil {
			if _, ok := errors.AsType[*schema.Error](err); !ok || strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("not an error of ours in one line: %q", err)
			}
			return
		}
		stored, err := events.Encode(e)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		// Not e itself: an empty json.Number, say, is written as 0.
		again, err := events.Decode(entry(stored))
		if err != nil {
			t.Fatalf("what was written cannot be read: %s: %v", stored.Data, err)
		}
		twice, err := events.Encode(again)
		if err != nil || string(twice.Data) != string(stored.Data) {
			t.Fatalf("%s became %s, %v", stored.Data, twice.Data, err)
		}
	})
}
