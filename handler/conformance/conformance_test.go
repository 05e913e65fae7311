// The suite finds each broken rule: a right handler made wrong in one way at a time.

package conformance_test

import (
	"bytes"
	"context"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
)

// counter is a handler whose state is the number of events.
func counter(_ context.Context, r *handler.Request) (*handler.Reply, error) {
	bad := func(wanted string) error {
		return &handler.Error{Kind: handler.ErrBadRequest, Op: r.Op, Wanted: wanted}
	}
	reply := &handler.Reply{Key: r.Key}
	switch r.Op {
	case handler.Describe:
		reply.Description = &handler.Description{Name: "counter", Category: "counter", Capabilities: []string{"decide", "evolve"},
			Events: []handler.Wire{{Name: "counted", Version: 1}}, Commands: []handler.Wire{{Name: "count", Version: 1}}, StateVersion: 1}
		return reply, nil
	case handler.Decide, handler.Evolve:
	default:
		return nil, handler.Unsupported(r)
	}
	if r.Stream.Category() != "counter" {
		return nil, bad("counter")
	}
	n := 0
	if r.State != nil {
		if r.StateVersion != 1 {
			return nil, &handler.Error{Kind: handler.ErrStateVersion, Op: r.Op}
		}
		if n = strings.Count(string(r.State), "1"); "["+strings.TrimSuffix(strings.Repeat("1,", n), ",")+"]" != string(r.State) {
			return nil, bad("a state")
		}
	}
	for _, e := range r.Events {
		if e.Type != "counted" {
			return nil, bad("counted")
		}
		n++
	}
	if r.Op == handler.Decide {
		switch {
		case r.Command == nil || r.Command.Type != "count" || r.Command.Data[0] != '{':
			return nil, bad("count")
		case n >= 3:
			reply.Rejected = &handler.Rejected{Code: "full"}
			return reply, nil
		}
		reply.Events = []handler.Event{{Type: "counted", Data: []byte("{}")}}
		n++
	}
	reply.State = []byte("[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]")
	return reply, nil
}

func cases() (all []conformance.Case) {
	counted := handler.Event{Type: "counted", Version: 1, Data: []byte("{}")}
	for n := range 4 {
		c := conformance.Case{Name: "after " + strings.Repeat("I", n), Stream: "counter-a", When: handler.Command{Type: "count", Data: []byte("{}")}}
		for range n {
			c.Given = append(c.Given, counted)
		}
		if n == 3 {
			c.Rejected = "full"
		} else {
			c.Then = []handler.Event{counted}
		}
		all = append(all, c)
	}
	return all
}

func run(t *testing.T, h handler.Func) conformance.Result {
	t.Helper()
	result, err := conformance.Run(t.Context(), h, &conformance.Options{Cases: cases(), Caller: &handler.Options{Retries: -1}})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestRight(t *testing.T) {
	if r := run(t, counter); len(r.Findings) > 0 || len(r.Rules) < 10 {
		t.Errorf("%d rules, %v", len(r.Rules), r.Findings)
	}
}

func TestWrong(t *testing.T) {
	var calls atomic.Int64
	for name, wrong := range map[string]struct {
		rule string
		h    handler.Func
	}{
		"another description": {"a description is always the same", func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			reply, err := counter(ctx, r)
			if r.Op == handler.Describe {
				reply.Description.Release = strings.Repeat("x", int(calls.Add(1)))
			}
			return reply, err
		}},
		"any operation": {"an operation that it does not have", func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			if r.Op == "dance" {
				return &handler.Reply{Key: r.Key}, nil
			}
			return counter(ctx, r)
		}},
		"a memory": {"equal requests have equal replies", func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			reply, err := counter(ctx, r)
			if r.Op == handler.Decide && err == nil && reply.Rejected == nil {
				reply.Events[0].Data = []byte(`"` + strings.Repeat("x", int(calls.Add(1)%7)) + `"`)
			}
			return reply, err
		}},
		"wrong event": {"a command's events", func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			reply, err := counter(ctx, r)
			if r.Op == handler.Decide && err == nil && reply.Rejected == nil {
				reply.Events[0].Data = []byte(`1`)
			}
			return reply, err
		}},
		"wrong code": {"a command's events", func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			reply, err := counter(ctx, r)
			if err == nil && reply.Rejected != nil {
				reply.Rejected.Code = "no"
			}
			return reply, err
		}},
		"state ignored": {"a state stands for the events", func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			if r.Op == handler.Decide && r.StateVersion == 1 {
				without := *r
				without.State = nil
				r = &without
			}
			return counter(ctx, r)
		}},
		"first piece lost": {"events fold into the same state", func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			if r.Op == handler.Evolve && r.StateVersion == 1 && len(r.Events) > 0 {
				without := *r
				without.State = nil
				r = &without
			}
			return counter(ctx, r)
		}},
		"state behind": {"the state in a decision's reply", func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			reply, err := counter(ctx, r)
			if r.Op == handler.Decide && err == nil && reply.Rejected == nil {
				reply.State = []byte("[]")
			}
			return reply, err
		}},
		"time of an entry wanted": {"a command's events", func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			for _, e := range r.Events {
				if e.Time.IsZero() || e.ID.IsZero() {
					return nil, &handler.Error{Kind: handler.ErrBadRequest, Op: r.Op, Wanted: "a time"}
				}
			}
			return counter(ctx, r)
		}},
		"key in the decision": {"a stream key is any text", func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			if r.Op == handler.Decide && strings.Contains(string(r.Stream), `"`) {
				return nil, &handler.Error{Kind: handler.ErrFailed, Op: r.Op}
			}
			return counter(ctx, r)
		}},
		"any event": {"an event of an unknown type", func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			with := *r
			with.Events = append([]handler.Entry{}, r.Events...)
			for i := range with.Events {
				with.Events[i].Type = "counted"
			}
			return counter(ctx, &with)
		}},
		"any state version": {"a state of another version", func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			with := *r
			with.StateVersion = 1
			return counter(ctx, &with)
		}},
		"any category": {"a stream of another category", func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			with := *r
			with.Stream = "counter-a"
			return counter(ctx, &with)
		}},
		"fails instead of refusing": {"a command of an unknown type", func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			if r.Command != nil && r.Command.Type != "count" {
				return nil, &handler.Error{Kind: handler.ErrFailed, Op: r.Op}
			}
			return counter(ctx, r)
		}},
	} {
		r := run(t, wrong.h)
		found := false
		for _, f := range r.Findings {
			found = found || strings.HasPrefix(f.Rule, wrong.rule)
		}
		if !found {
			t.Errorf("%s: wanted a finding of %q, found %v", name, wrong.rule, r.Findings)
		}
	}
}

// A reply over a limit, and one that is told to be another fault.
func TestTooLarge(t *testing.T) {
	long := func(kind error) handler.Func {
		return func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			switch {
			case r.Op != handler.Evolve:
				return counter(ctx, r)
			case kind != nil:
				return nil, &handler.Error{Kind: kind, Op: r.Op, Err: eventstore.ErrTooLarge}
			}
			return &handler.Reply{Key: r.Key, State: make([]byte, handler.DefaultReplyBytes+1)}, nil
		}
	}
	for name, c := range map[string]struct {
		h     handler.Func
		right bool
	}{
		"the caller's":       {long(nil), true},
		"the carrier's":      {long(eventstore.ErrTooLarge), true},
		"called a bad reply": {long(handler.ErrBadReply), false},
		"no limit":           {counter, false},
	} {
		result, err := conformance.Run(t.Context(), c.h, &conformance.Options{Caller: &handler.Options{Retries: -1},
			TooLarge: &handler.Request{Op: handler.Evolve, Stream: "counter-1"}})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range result.Findings {
			found = found || strings.HasPrefix(f.Rule, "a reply over a limit")
		}
		if found == c.right {
			t.Errorf("%s: %v", name, result.Findings)
		}
	}
}

func TestCasesInFiles(t *testing.T) {
	var file bytes.Buffer
	want := cases()
	if err := conformance.WriteCases(&file, want); err != nil {
		t.Fatal(err)
	}
	got, err := conformance.ReadCases(&file)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, %d cases", err, len(got))
	}
	for i := range got {
		if len(want[i].Given) == 0 {
			got[i].Given = nil
		}
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("%+v\nwant %+v", got[i], want[i])
		}
	}
	for text, says := range map[string]string{
		"\n{\"stream\":\"nocategory\"}":        "line 2",
		`{"stream":"a-b","when":{"type":"x"}}`: "data",
		`{"stream":"a-b","epoch":1}`:           "epoch",
		`{"stream":"a-b","when":{"type":"x","data":1},"rejected":"a","then":[{"type":"t","data":1}]}`: "both",
	} {
		if _, err := conformance.ReadCases(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", text, err, says)
		}
	}
}

func TestEntriesInFiles(t *testing.T) {
	entries, err := conformance.ReadEntries(strings.NewReader(`{"stream":"a-1","type":"x","data":1}

{"stream":"a-2","type":"x","version":3,"data":{}}
{"stream":"a-1","type":"y","data":[ 1]}
`))
	if err != nil || len(entries) != 3 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	if e := entries[2]; e.Stream != "a-1" || e.Seqno != 2 || e.Position != 3 || e.Version != 1 || string(e.Data) != "[ 1]" {
		t.Errorf("%+v", e)
	}
	for text, says := range map[string]string{
		`{"stream":"a","type":"x","data":1}`:             "line 1",
		`{"stream":"a-1","data":1}`:                      "type",
		`{"stream":"a-1","type":"x","data":1,"epoch":1}`: "epoch",
	} {
		if _, err := conformance.ReadEntries(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", text, err, says)
		}
	}
}

// tally is a projection: a document for each stream with the number of its entries, and a
// command and the end of a timer at the second.
func tally(_ context.Context, r *handler.Request) (*handler.Reply, error) {
	reply := &handler.Reply{Key: r.Key}
	switch r.Op {
	case handler.Describe:
		reply.Description = &handler.Description{Name: "tally", Category: "counter", Capabilities: []string{"keys", "project"}, Events: []handler.Wire{{Name: "counted", Version: 1}}}
	case handler.Keys:
		for _, e := range r.Events {
			reply.Keys = append(reply.Keys, string(e.Stream))
		}
	case handler.Project:
		reply.Put = map[string][]byte{}
		for _, e := range r.Events {
			key := string(e.Stream)
			n := 0
			doc, ok := reply.Put[key]
			if !ok {
				doc = r.Docs[key]
			}
			if doc != nil {
				n, _ = strconv.Atoi(string(doc))
			}
			reply.Put[key] = []byte(strconv.Itoa(n + 1))
			if n == 1 && !e.Quiet {
				reply.Commands = append(reply.Commands, handler.Issue{Position: e.Position, Stream: "other-1", Command: handler.Command{Type: "do", Data: []byte("{}")}})
				reply.Timers = append(reply.Timers, handler.Timer{Position: e.Position, Name: key, Cancel: true})
			}
		}
	default:
		return nil, handler.Unsupported(r)
	}
	return reply, nil
}

func project(t *testing.T, h handler.Func) conformance.Result {
	t.Helper()
	var entries []handler.Entry
	for i := range 40 {
		entries = append(entries, handler.Entry{Event: handler.Event{Type: "counted", Version: 1, Data: []byte("{}")},
			Stream: eventstore.Stream("counter-" + strconv.Itoa(i%3)), Seqno: eventstore.Seqno(i/3 + 1), Position: eventstore.Position(10 + i)})
	}
	documents := map[string][]byte{"counter-0": []byte("14"), "counter-1": []byte("13"), "counter-2": []byte("13")}
	result, err := conformance.Run(t.Context(), h, &conformance.Options{Entries: entries, Documents: documents, Caller: &handler.Options{Retries: -1}})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestRightProjection(t *testing.T) {
	if r := project(t, tally); len(r.Findings) > 0 || len(r.Rules) != 12 {
		t.Errorf("%d rules, %v", len(r.Rules), r.Findings)
	}
}

func TestWrongProjections(t *testing.T) {
	var calls atomic.Int64 // some are made at once
	for name, wrong := range map[string]struct {
		rule string
		h    func(r *handler.Request, reply *handler.Reply)
	}{
		"last of a batch alone": {"documents are the same in whatever batches", func(r *handler.Request, reply *handler.Reply) {
			if len(r.Events) > 1 {
				for k := range reply.Put {
					reply.Put[k] = []byte("1")
				}
			}
		}},
		"one too many": {"the documents are those wanted", func(_ *handler.Request, reply *handler.Reply) {
			if reply.Put != nil {
				reply.Put["counter-0"] = []byte("99")
			}
		}},
		"a memory": {"equal batches", func(_ *handler.Request, reply *handler.Reply) {
			if n := calls.Add(1); reply.Put != nil {
				reply.Put["counter-0"] = []byte(strconv.FormatInt(n, 10))
			}
		}},
		"another document": {"only documents that it asked for", func(_ *handler.Request, reply *handler.Reply) {
			if reply.Put != nil {
				reply.Put["other"] = []byte("1")
			}
		}},
		"something of nothing": {"a batch of nothing", func(r *handler.Request, reply *handler.Reply) {
			if r.Op == handler.Project && len(r.Events) == 0 {
				reply.Put = map[string][]byte{"x": []byte("1")}
			}
		}},
		"commands of one entry alone": {"commands and timers", func(_ *handler.Request, reply *handler.Reply) {
			reply.Commands = reply.Commands[:min(1, len(reply.Commands))]
		}},
		"commands without their entry": {"commands and timers", func(_ *handler.Request, reply *handler.Reply) {
			for i := range reply.Commands {
				reply.Commands[i].Position = 0
			}
		}},
		"timers of another entry": {"commands and timers", func(r *handler.Request, reply *handler.Reply) {
			for i := range reply.Timers {
				reply.Timers[i].Position = r.Events[0].Position
			}
		}},
		"loud": {"quiet entries", func(r *handler.Request, reply *handler.Reply) {
			if r.Op == handler.Project && len(r.Events) > 0 && r.Events[0].Quiet {
				reply.Put = nil
			}
		}},
	} {
		r := project(t, func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
			reply, err := tally(ctx, r)
			if err == nil {
				wrong.h(r, reply)
			}
			return reply, err
		})
		found := false
		for _, f := range r.Findings {
			found = found || strings.HasPrefix(f.Rule, wrong.rule)
		}
		if !found {
			t.Errorf("%s: wanted a finding of %q, found %v", name, wrong.rule, r.Findings)
		}
	}
}
