// Requests and replies by chance: as messages and back they are what they were, and what
// the contract's JSON makes of them.

package connectcarrier

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/connectcarrier/handlerv1"
)

// chance makes values. Tame ones are in the form that reading gives; wild ones are what a
// Go handler may also fill in.
type chance struct {
	*rand.Rand
	wild bool
}

func (c chance) maybe() bool { return c.IntN(2) == 0 }

func (c chance) text() string {
	texts := []string{"", "a", "größe", "\u2028\"\\\x00\n<&>", "𝛌", strings.Repeat("x", 300)}
	if c.wild {
		texts = append(texts, "\xff", "a\xed\xa0\x80b", "tail\xc3")
	}
	return texts[c.IntN(len(texts))]
}

func (c chance) id() eventstore.UUID {
	if c.maybe() {
		return eventstore.UUID{}
	}
	return eventstore.NameUUID(fmt.Sprint(c.Uint64()))
}

func (c chance) number() uint64 {
	return []uint64{0, 1, 1 << 53, 1<<53 + 1, eventstore.MaxNumber, c.Uint64N(eventstore.MaxNumber)}[c.IntN(6)]
}

func (c chance) count() int {
	if c.wild && c.IntN(20) == 0 {
		return []int{-1, math.MaxInt32 + 1, math.MinInt64}[c.IntN(3)]
	}
	return []int{0, 1, 7, math.MaxInt32}[c.IntN(4)]
}

func (c chance) moment() time.Time {
	if c.maybe() {
		return time.Time{}
	}
	t := time.Unix(c.Int64N(1<<33)-1<<32, c.Int64N(1e9)).UTC()
	if c.wild && c.maybe() {
		t = t.In(time.FixedZone("x", 3600*5+1800))
	}
	if c.wild && c.IntN(30) == 0 {
		t = t.AddDate(9000, 0, 0)
	}
	return t
}

func (c chance) json() []byte {
	values := []string{"null", "0", "-1.50e+3", `"\u00e9é"`, `{ "b":1,"a" : [1 , 2]}`, "[]", `{"a":1,"a":2}`}
	if c.wild {
		values = append(values, " 1", "{}\n", "\t[ ]\r\n")
	}
	return []byte(values[c.IntN(len(values))])
}

func (c chance) data() []byte {
	if c.wild && c.IntN(4) == 0 {
		return nil
	}
	return [][]byte{c.json(), {}, {0, 255, 10}, []byte(` {"spaced":1} `), []byte(`{"broken"`)}[c.IntN(5)]
}

func (c chance) contentType() string {
	types := []string{"", "application/protobuf", "text/plain"}
	if c.wild {
		types = append(types, "application/json")
	}
	return types[c.IntN(len(types))]
}

func (c chance) stream() eventstore.Stream {
	return []eventstore.Stream{"", "loan-a", "loan-\"é\\", "a-" + eventstore.Stream(strings.Repeat("k", 500))}[c.IntN(4)]
}

func (c chance) mark() eventstore.Mark {
	return eventstore.Mark{Seqno: eventstore.Seqno(c.number()), ID: c.id()}
}

// some makes none or a few; wild ones are empty instead of nil.
func some[T any](c chance, one func() T) []T {
	n := c.IntN(4)
	if n == 0 && !(c.wild && c.maybe()) {
		return nil
	}
	all := make([]T, n)
	for i := range all {
		all[i] = one()
	}
	return all
}

func keyed[M ~map[string]V, V any](c chance, one func() V) M {
	n := c.IntN(3)
	if n == 0 && !(c.wild && c.maybe()) {
		return nil
	}
	all := M{}
	for i := range n {
		all[fmt.Sprint(i, "é", strings.ToValidUTF8(c.text(), "?"))] = one()
	}
	return all
}

func (c chance) event() handler.Event {
	return handler.Event{Type: c.text(), Version: c.count(), ContentType: c.contentType(), Data: c.data()}
}

func (c chance) command() handler.Command {
	return handler.Command{Type: c.text(), Version: c.count(), ContentType: c.contentType(), Data: c.data(), Metadata: keyed[eventstore.Metadata](c, c.text)}
}

func (c chance) entry() handler.Entry {
	return handler.Entry{Event: c.event(), Stream: c.stream(), Seqno: eventstore.Seqno(c.number()), Position: eventstore.Position(c.number()),
		ID: c.id(), Time: c.moment(), Metadata: keyed[eventstore.Metadata](c, c.text), Quiet: c.maybe()}
}

func (c chance) request() *handler.Request {
	r := &handler.Request{Op: handler.Op(c.text()), Key: c.id(), Deadline: c.moment(), Traceparent: c.text(), Tracestate: c.text(), Now: c.moment(), ID: c.id(),
		Stream: c.stream(), After: c.mark(), StateVersion: c.count(), Projector: c.text(), ProjectorVersion: c.count(),
		Events: some(c, c.entry), Docs: keyed[map[string][]byte](c, c.json)}
	if c.maybe() {
		r.State = c.json()
	}
	if c.maybe() {
		command := c.command()
		r.Command = &command
	}
	return r
}

func (c chance) reply() *handler.Reply {
	wire := func() handler.Wire { return handler.Wire{Name: c.text(), Version: c.count()} }
	r := &handler.Reply{Key: c.id(), Stream: c.stream(), Events: some(c, c.event), Keys: some(c, c.text), Put: keyed[map[string][]byte](c, c.json), Delete: some(c, c.text),
		Commands: some(c, func() handler.Issue {
			return handler.Issue{Position: eventstore.Position(c.number()), Stream: c.stream(), Command: c.command()}
		}),
		Timers: some(c, func() handler.Timer {
			t := handler.Timer{Position: eventstore.Position(c.number()), Name: c.text(), Due: c.moment(), Cancel: c.maybe()}
			if c.maybe() {
				t.Data = c.json()
			}
			return t
		}),
		Failed: some(c, func() handler.EntryFailure {
			return handler.EntryFailure{Position: eventstore.Position(c.number()), Message: c.text()}
		}),
		Mark: c.mark(), Replayed: c.maybe(), More: c.maybe()}
	if c.maybe() {
		r.State = c.json()
	}
	if c.maybe() {
		r.Failure = &handler.Failure{Code: c.text(), Message: c.text()}
	}
	if c.maybe() {
		r.Rejected = &handler.Rejected{Code: c.text(), Message: c.text()}
	}
	if c.maybe() {
		r.Description = &handler.Description{Name: c.text(), Release: c.text(), Category: []eventstore.Category{"", "loan"}[c.IntN(2)],
			Capabilities: some(c, c.text), Events: some(c, wire), Commands: some(c, wire), StateVersion: c.count()}
	}
	if c.maybe() {
		r.Token = eventstore.Token{Incarnation: eventstore.NameUUID("i"), Position: eventstore.Position(c.number())}
	}
	return r
}

// wired sends a message through its binary form, and its JSON form, and returns the first.
func wired[M proto.Message](t testing.TB, m, into, other M) M {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return into // a time that has no form: it is refused when it is read
	}
	if err := protojson.Unmarshal(text, other); err != nil || !proto.Equal(into, other) {
		t.Fatalf("JSON form: %v\n%v\n%v", err, other, into)
	}
	return into
}

func TestByChance(t *testing.T) {
	first := rand.Uint64()
	for i := range 600 {
		seed := first + uint64(i)
		c := chance{rand.New(rand.NewPCG(seed, 1)), i%2 == 1}
		r, reply := c.request(), c.reply()
		asJSON, errJSON := handler.ParseRequest(handler.AppendRequest(nil, r))
		asProto, errProto := decodeRequest(wired(t, encodeRequest(r), &handlerv1.Request{}, &handlerv1.Request{}))
		same(t, seed, c.wild, asJSON, errJSON, asProto, errProto, r)
		replyJSON, errJSON := handler.ParseReply(handler.AppendReply(nil, reply))
		replyProto, errProto := decodeReply(wired(t, encodeReply(reply), &handlerv1.Reply{}, &handlerv1.Reply{}))
		same(t, seed, c.wild, replyJSON, errJSON, replyProto, errProto, reply)
	}
}

func same[T any](t *testing.T, seed uint64, wild bool, asJSON *T, errJSON error, asProto *T, errProto error, value *T) {
	t.Helper()
	switch {
	case (errJSON == nil) != (errProto == nil):
		t.Fatalf("seed %d: as JSON %v, as a message %v", seed, errJSON, errProto)
	case !reflect.DeepEqual(asJSON, asProto):
		t.Fatalf("seed %d: as JSON\n%+v\nas a message\n%+v", seed, asJSON, asProto)
	case !wild && (errProto != nil || !reflect.DeepEqual(asProto, value)):
		t.Fatalf("seed %d: %v\n%+v\nwant\n%+v", seed, errProto, asProto, value)
	}
}

// What the contract's JSON could not even say, or refuses, is refused here too.
func TestStrict(t *testing.T) {
	good := func() *handlerv1.Reply {
		return encodeReply(&handler.Reply{Key: eventstore.NameUUID("k"), Events: []handler.Event{{Type: "x", Data: []byte("1")}}, Timers: []handler.Timer{{Name: "t", Due: time.Unix(1, 0)}},
			Description: &handler.Description{Events: []handler.Wire{{Name: "x", Version: 1}}}})
	}
	if _, err := decodeReply(good()); err != nil {
		t.Fatal(err)
	}
	unknown := []byte{0xfa, 0x3f, 1, 7} // field 1023, of one byte
	for name, spoil := range map[string]func(*handlerv1.Reply){
		"no version":       func(m *handlerv1.Reply) { m.V = 0 },
		"newer version":    func(m *handlerv1.Reply) { m.V = 2 },
		"unknown":          func(m *handlerv1.Reply) { m.ProtoReflect().SetUnknown(unknown) },
		"unknown in event": func(m *handlerv1.Reply) { m.Events[0].ProtoReflect().SetUnknown(unknown) },
		"unknown in timer": func(m *handlerv1.Reply) { m.Timers[0].ProtoReflect().SetUnknown(unknown) },
		"unknown in due":   func(m *handlerv1.Reply) { m.Timers[0].Due.ProtoReflect().SetUnknown(unknown) },
		"unknown in wire":  func(m *handlerv1.Reply) { m.Description.Events[0].ProtoReflect().SetUnknown(unknown) },
		"no UUID":          func(m *handlerv1.Reply) { m.Key = "zz" },
		"no stream":        func(m *handlerv1.Reply) { m.Stream = "loan" },
		"no token":         func(m *handlerv1.Reply) { m.Token = "x" },
		"no JSON":          func(m *handlerv1.Reply) { m.State = []byte(`{"a":01}`) },
		"empty JSON":       func(m *handlerv1.Reply) { m.State = []byte{} },
		"two JSON":         func(m *handlerv1.Reply) { m.State = []byte(`1,"more":true`) },
		"JSON, not UTF-8":  func(m *handlerv1.Reply) { m.State = []byte("\"\xff\"") },
		"deep JSON":        func(m *handlerv1.Reply) { m.State = []byte(strings.Repeat("[", 200) + strings.Repeat("]", 200)) },
		"no document":      func(m *handlerv1.Reply) { m.Put = map[string][]byte{"k": nil} },
		"no timer's data":  func(m *handlerv1.Reply) { m.Timers[0].Data = []byte("x") },
		"high seqno":       func(m *handlerv1.Reply) { m.Mark = &handlerv1.Mark{Seqno: 1 << 63} },
		"high position":    func(m *handlerv1.Reply) { m.Failed = []*handlerv1.EntryFailure{{Position: 1 << 63}} },
		"high of commands": func(m *handlerv1.Reply) { m.Commands = []*handlerv1.Issue{{Position: 1 << 63}} },
		"high of timers":   func(m *handlerv1.Reply) { m.Timers[0].Position = 1 << 63 },
		"high version":     func(m *handlerv1.Reply) { m.Events[0].Version = 1 << 31 },
		"no time":          func(m *handlerv1.Reply) { m.Timers[0].Due.Nanos = -1 },
	} {
		m := good()
		spoil(m)
		if _, err := decodeReply(m); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Whatever comes, what is accepted is stable: read, written and read again it is the same.
func FuzzDecode(f *testing.F) {
	for seed := range uint64(4) {
		c := chance{rand.New(rand.NewPCG(seed, 1)), false}
		for _, m := range []proto.Message{encodeRequest(c.request()), encodeReply(c.reply())} {
			data, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m handlerv1.Request
		if proto.Unmarshal(data, &m) == nil {
			if r, err := decodeRequest(&m); err == nil {
				again, err := decodeRequest(encodeRequest(r))
				if err != nil || !bytes.Equal(handler.AppendRequest(nil, again), handler.AppendRequest(nil, r)) {
					t.Fatalf("%x: %v", data, err)
				}
			}
		}
		var reply handlerv1.Reply
		if proto.Unmarshal(data, &reply) == nil {
			if r, err := decodeReply(&reply); err == nil {
				again, err := decodeReply(encodeReply(r))
				if err != nil || !bytes.Equal(handler.AppendReply(nil, again), handler.AppendReply(nil, r)) {
					t.Fatalf("%x: %v", data, err)
				}
			}
		}
	})
}
