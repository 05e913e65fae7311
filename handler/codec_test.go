// The codec: round trips, strictness, raw bytes kept.

package handler

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

func fullRequest() *Request {
	id := eventstore.NameUUID
	return &Request{Op: Decide, Key: id("k"), Deadline: time.Unix(1700000000, 5).UTC(), Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Tracestate: "a=b", Now: time.Unix(1600000000, 0).UTC(), ID: id("c"), Stream: "loan-a \"b\"", After: eventstore.Mark{Seqno: 1<<63 - 1, ID: id("m")},
		State: []byte(`{"n": 1.50}`), StateVersion: 3, Projector: "p", ProjectorVersion: 2,
		Command: &Command{Type: "do", Version: 1, Data: []byte(`{"z":"\u00e9<>&"}`), Metadata: eventstore.Metadata{"k": "v", "a": ""}},
		Events: []Entry{
			{Event: Event{Type: "x", Version: 1, Data: []byte(`[1, 2 ,3]`)}, Seqno: 7, Position: 9, ID: id("e"), Time: time.Unix(1, 0).UTC(), Stream: "loan-x", Quiet: true},
			{Event: Event{Type: "y", Version: 2, ContentType: "application/protobuf", Data: []byte{0, 1, 255}}, Seqno: 8, Metadata: eventstore.Metadata{"m": "\u2028"}},
			{Event: Event{Type: "broken", Version: 1, Data: []byte(` {"not": json`)}, Seqno: 9},
			{Event: Event{Type: "empty", Version: 1, Data: []byte{}}, Seqno: 10},
		},
		Docs: map[string][]byte{"b": []byte("null"), "a\\": []byte(`{}`)}}
}

func fullReply() *Reply {
	return &Reply{Key: eventstore.NameUUID("k"), Failure: &Failure{"failed", "why"}, Rejected: &Rejected{"no", "because"},
		Description: &Description{Name: "n", Release: "1", Category: "loan", Capabilities: []string{"decide"}, Events: []Wire{{"x", 1}}, Commands: []Wire{{"do", 2}}, StateVersion: 4},
		Stream:      "loan-a", State: []byte("0"), Events: []Event{{Type: "x", Version: 1, Data: []byte(`{"a":1}`)}},
		Keys: []string{"k"}, Put: map[string][]byte{"k": []byte("1")}, Delete: []string{"d"},
		Commands: []Issue{{9, "loan-b", Command{Type: "c", Data: []byte("{}")}}},
		Timers:   []Timer{{Position: 9, Name: "t", Due: time.Unix(5, 0).UTC(), Data: []byte(`"x"`)}, {Name: "u", Cancel: true}},
		Failed:   []EntryFailure{{Position: 9, Message: "m"}}, Mark: eventstore.Mark{Seqno: 1, ID: eventstore.NameUUID("x")},
		Token: eventstore.Token{Incarnation: eventstore.NameUUID("i"), Position: 3}, Replayed: true, More: true}
}

func TestRoundTrip(t *testing.T) {
	r := fullRequest()
	data := AppendRequest(nil, r)
	if !json.Valid(data) {
		t.Fatalf("not JSON: %s", data)
	}
	if back, err := ParseRequest(data); err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("%v\n%+v\n%+v", err, back, r)
	}
	reply := fullReply()
	data = AppendReply(nil, reply)
	if !json.Valid(data) {
		t.Fatalf("not JSON: %s", data)
	}
	if back, err := ParseReply(data); err != nil || !reflect.DeepEqual(back, reply) {
		t.Errorf("%v\n%+v\n%+v", err, back, reply)
	}
}

// Every prefix of a request is no request, and is told so.
func TestTruncated(t *testing.T) {
	data, reply := AppendRequest(nil, fullRequest()), AppendReply(nil, fullReply())
	for n := range data {
		if _, err := ParseRequest(data[:n]); err == nil {
			t.Fatalf("accepted %s", data[:n])
		}
	}
	for n := range reply {
		if _, err := ParseReply(reply[:n]); err == nil {
			t.Fatalf("accepted %s", reply[:n])
		}
	}
}

func TestStrict(t *testing.T) {
	for text, want := range map[string]string{
		`{"v":1,"epoch":3}`:                         `no field "epoch"`,
		`{"v":1,"events":[{"type":"x","epoch":3}]}`: `events: 0: there is no field "epoch"`,
		`{"v":1,"v":1}`:                             "twice",
		`{"v":2}`:                                   "version 1",
		`{}`:                                        "found 0",
		`{"v":1} x`:                                 "wanted the end",
		`{"v":1,"state":{"a":01}}`:                  "state",
		`{"v":1,"state":"` + "\xff" + `"}`:          "UTF-8",
		`{"v":1,"key":"zz"}`:                        "key",
		`{"v":1,"mark":{"seqno":12}}`:               "seqno",
		`{"v":1,"events":[{"type":"x","data":1,"data64":"MQ=="}]}`:                    "both",
		`{"v":1,"put":{"a":1,"\u0061":2}}`:                                            "twice",
		`{"v":1,"state":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`: "levels",
		`{"v":1.5}`:        "whole number",
		`{"v":9999999999}`: "whole number",
	} {
		if _, err := ParseReply([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %s", text, err, want)
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e+3,true,null,"\u00e9\n"]}`, `"\ud800"`, `[]`, ` 1 `, `-`, "\"\x01\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := scanner{b: b}
		err := s.whole(s.skip)
		valid := json.Valid(b) && !tooDeep(b) && bytes.Equal(bytes.ToValidUTF8(b, nil), b)
		if (err == nil) != valid {
			t.Fatalf("%q: %v, encoding/json says %v", b, err, valid)
		}
		var text string
		if valid && json.Unmarshal(b, &text) == nil && bytes.HasPrefix(bytes.TrimSpace(b), []byte(`"`)) {
			s := scanner{b: b}
			if got, err := s.text(); err != nil || got != text {
				t.Fatalf("%q: %q, %v, want %q", b, got, err, text)
			}
		}
	})
}

func tooDeep(b []byte) bool {
	depth, inside := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '\\':
			i++
		case c == '"':
			inside = !inside
		case inside:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

func FuzzParse(f *testing.F) {
	f.Add(AppendRequest(nil, fullRequest()))
	f.Add(AppendReply(nil, fullReply()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := ParseRequest(b); err == nil {
			again, err := ParseRequest(AppendRequest(nil, r))
			if err != nil || !bytes.Equal(AppendRequest(nil, again), AppendRequest(nil, r)) {
				t.Fatalf("%q: %v", b, err)
			}
		}
		if r, err := ParseReply(b); err == nil {
			again, err := ParseReply(AppendReply(nil, r))
			if err != nil || !bytes.Equal(AppendReply(nil, again), AppendReply(nil, r)) {
				t.Fatalf("%q: %v", b, err)
			}
		}
	})
}

func BenchmarkCodec(b *testing.B) {
	r := &Request{Op: Decide, Key: eventstore.NewUUID(), Stream: "loan-1", Command: &Command{Type: "x", Data: []byte(`{"a":"` + strings.Repeat("y", 1000) + `"}`)}}
	data := AppendRequest(nil, r)
	b.Run("parse", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseRequest(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("append", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			data = AppendRequest(data[:0], r)
		}
	})
}
