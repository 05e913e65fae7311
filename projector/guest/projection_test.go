// The far side: what a projection answers.

package guest_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
)

// entry is the n-th entry of a stream, at ten times n.
func entry(s eventstore.Stream, n int, name, data string) handler.Entry {
	return handler.Entry{Event: handler.Event{Type: name, Version: 1, Data: []byte(data)}, Stream: s, Seqno: eventstore.Seqno(n),
		Position: eventstore.Position(10 * n), ID: eventstore.UUID{byte(n)}, Time: time.Unix(int64(n), 0).UTC()}
}

// ask calls a handler in process and through bytes, and wants the same reply of both.
func ask(t *testing.T, h handler.Handler, r *handler.Request) *handler.Reply {
	t.Helper()
	r.Key = eventstore.NewUUID()
	reply := handler.Answer(t.Context(), h, r, nil)
	through := handler.Answer(t.Context(), overBytes(h), r, nil)
	if a, b := string(handler.AppendReply(nil, reply)), string(handler.AppendReply(nil, through)); a != b {
		t.Fatalf("in process\n%s\nthrough bytes\n%s", a, b)
	}
	if reply.Failure != nil {
		t.Fatalf("%v", reply.Failure)
	}
	return reply
}

func TestDescribe(t *testing.T) {
	d := ask(t, guest.New(accounts), &handler.Request{Op: handler.Describe}).Description
	want := &handler.Description{Name: "accounts", Release: "1", Category: "account", Capabilities: []string{"keys", "project"},
		Events: []handler.Wire{{Name: "closed", Version: 1}, {Name: "cursed", Version: 1}, {Name: "deposited", Version: 1}}}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("%+v, want %+v", d, want)
	}
	if names := guest.Types(*d); fmt.Sprint(names) != "[closed cursed deposited]" {
		t.Errorf("types %v", names)
	}
}

func TestKeys(t *testing.T) {
	r := &handler.Request{Op: handler.Keys, Events: []handler.Entry{entry("account-b", 1, "deposited", `{}`), entry("account-a", 2, "deposited", `{}`),
		entry("account-a", 3, "unknown", `{}`), entry("account-b", 4, "closed", `{}`), entry("account-b", 5, "deposited", `[]`)}}
	want := []string{"account-a", "account-b", totalOf("account-a"), totalOf("account-b")}
	slices.Sort(want)
	if keys := ask(t, guest.New(accounts), r).Keys; !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
	bare := accounts
	bare.Keys = nil
	if keys := ask(t, guest.New(bare), r).Keys; fmt.Sprint(keys) != "[account-a account-b]" {
		t.Errorf("keys %q", keys)
	}
}

// An entry that fails spoils nothing but what comes behind it under its key.
func TestFailuresStayApart(t *testing.T) {
	r := &handler.Request{Op: handler.Project, Docs: map[string][]byte{"account-a": []byte(`{"Sum":5,"N":1,"Last":1}`), "account-c": []byte(`{"Sum":7}`)},
		Events: []handler.Entry{entry("account-a", 2, "deposited", `{"Amount":1}`), entry("account-a", 3, "cursed", `{}`), entry("account-b", 4, "deposited", `{"Amount":2}`),
			entry("account-a", 5, "deposited", `{"Amount":100}`), entry("account-b", 6, "cursed", `{"How":"panic"}`), entry("account-c", 7, "deposited", `[]`),
			entry("account-d", 8, "closed", `{"Why":"gone"}`), entry("account-c", 9, "closed", `{}`)}}
	reply := ask(t, guest.New(accounts), r)
	var failed []string
	for _, f := range reply.Failed {
		failed = append(failed, f.Position.String()+" "+f.Message)
	}
	got := strings.Join(failed, "\n")
	for i, want := range []string{"30 cursed", "50 it comes behind the entry at position 30", "60 panic: cursed", "70 ", "90 it comes behind the entry at position 70"} {
		if len(failed) != 5 || !strings.HasPrefix(failed[i], want) {
			t.Fatalf("failed\n%s", got)
		}
	}
	want := map[string]string{"account-a": text(Account{6, 2, 2}), "account-b": text(Account{2, 1, 4})}
	for k, v := range want {
		if string(reply.Put[k]) != v {
			t.Errorf("document %q: %s, want %s", k, reply.Put[k], v)
		}
	}
	if len(reply.Delete) > 0 || len(reply.Commands) != 2 || reply.Commands[0].Position != 80 || reply.Commands[1].Position != 80 {
		t.Errorf("deleted %q, commands %+v", reply.Delete, reply.Commands)
	}
}

// What a quiet entry calls for outside is left out; its documents change.
func TestQuiet(t *testing.T) {
	quiet := entry("account-a", 2, "closed", `{}`)
	quiet.Quiet = true
	var seen []bool
	p := accounts
	p.Apply = func(e projector.Event[Event], docs *guest.Docs) error {
		seen = append(seen, docs.Quiet())
		docs.SetTimer("t", time.Unix(9, 0), nil)
		docs.CancelTimer("u")
		return accounts.Apply(e, docs)
	}
	r := &handler.Request{Op: handler.Project, Docs: map[string][]byte{"account-a": []byte(`{"Sum":5}`)}, Events: []handler.Entry{quiet, entry("account-b", 3, "closed", `{}`)}}
	reply := ask(t, guest.New(p), r)
	if fmt.Sprint(reply.Delete) != "[account-a]" || len(reply.Commands) != 2 || reply.Commands[0].Position != 30 || len(reply.Timers) != 2 || reply.Timers[0].Position != 30 || !seen[0] || seen[1] {
		t.Errorf("%+v, quiet %v", reply, seen)
	}
	d := handler.Description{Capabilities: []string{"project"}}
	if err := handler.Check(&d, r, reply, handler.Limits{}); err != nil {
		t.Error(err)
	}
}

// A document that comes back to what it was is not written; one made and removed is not there.
func TestOnlyWhatChanged(t *testing.T) {
	p := accounts
	p.Keys = func(projector.Event[Event]) []string { return []string{"a", "b", "c"} }
	p.Apply = func(e projector.Event[Event], docs *guest.Docs) error {
		var n int
		switch found := docs.Get("a", &n); {
		case e.Seqno == 1:
			docs.Put("a", n+1)
			docs.Put("b", "new")
			docs.Delete("c")
			if docs.Get("c", new(int)) || !found {
				return errors.New("what was removed is there")
			}
		default:
			docs.Put("a", n-1)
			docs.Delete("b")
			docs.Put("c", 3)
		}
		return nil
	}
	reply := ask(t, guest.New(p), &handler.Request{Op: handler.Project, Docs: map[string][]byte{"a": []byte("1"), "c": []byte("2")},
		Events: []handler.Entry{entry("account-a", 1, "closed", `{}`), entry("account-a", 2, "closed", `{}`)}})
	if len(reply.Put) != 1 || string(reply.Put["c"]) != "3" || len(reply.Delete) != 0 {
		t.Errorf("%s, %q", reply.Put, reply.Delete)
	}
}

// A wrong call of Docs makes the entry fail, whatever Apply returns.
func TestWrongCalls(t *testing.T) {
	for name, c := range map[string]struct {
		f    func(docs *guest.Docs)
		want string
	}{
		"get of another":       {func(d *guest.Docs) { d.Get("other", new(int)) }, "that Keys names"},
		"put of another":       {func(d *guest.Docs) { d.Put("other", 1) }, "that Keys names"},
		"delete of another":    {func(d *guest.Docs) { d.Delete("other") }, "that Keys names"},
		"get into another":     {func(d *guest.Docs) { d.Get("account-a", new(int)) }, "cannot unmarshal"},
		"put of no JSON":       {func(d *guest.Docs) { d.Put("account-a", func() {}) }, "unsupported type"},
		"command to nobody":    {func(d *guest.Docs) { d.Issue("", "x", 1) }, "wanted a stream"},
		"command of no JSON":   {func(d *guest.Docs) { d.Issue("a-1", "x", func() {}) }, "unsupported type"},
		"timer without a time": {func(d *guest.Docs) { d.SetTimer("x", time.Time{}, nil) }, "a due time"},
		"cancel of no timer":   {func(d *guest.Docs) { d.CancelTimer("") }, "wanted a name"},
	} {
		p := accounts
		p.Keys = nil
		p.Apply = func(_ projector.Event[Event], docs *guest.Docs) error {
			docs.Put("account-a", "changed")
			c.f(docs)
			docs.Put("account-a", "changed again")
			return nil
		}
		reply := ask(t, guest.New(p), &handler.Request{Op: handler.Project, Docs: map[string][]byte{"account-a": []byte("5")}, Events: []handler.Entry{entry("account-a", 1, "closed", `{}`)}})
		if len(reply.Failed) != 1 || !strings.Contains(reply.Failed[0].Message, c.want) || len(reply.Put) > 0 {
			t.Errorf("%s: %+v", name, reply)
		}
	}
}

func TestMistakesOfAProjection(t *testing.T) {
	for name, p := range map[string]guest.Projection[Event]{
		"no events": {Name: "p", Apply: accounts.Apply},
		"no apply":  {Name: "p", Events: events},
	} {
		if _, err := handler.NewCaller(t.Context(), guest.New(p), nil); !errors.Is(err, handler.ErrBadRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := guest.New(accounts).Handle(t.Context(), &handler.Request{Op: handler.Decide}); !errors.Is(err, handler.ErrBadRequest) {
		t.Error(err)
	}
}

// More commands than a reply may have are not a fault of the entries: fewer are asked for.
func TestTooManyCommands(t *testing.T) {
	p := accounts
	p.Apply = func(_ projector.Event[Event], docs *guest.Docs) error {
		for range 600 {
			docs.Issue("a-1", "x", 1)
		}
		return nil
	}
	r := &handler.Request{Op: handler.Project, Events: []handler.Entry{entry("account-a", 1, "closed", `{}`), entry("account-a", 2, "closed", `{}`)}}
	if _, err := guest.New(p).Handle(t.Context(), r); !errors.Is(err, eventstore.ErrTooLarge) {
		t.Error(err)
	}
}
