// The loan process in other languages, held against the one in Go: the same replies to the
// byte, but for what is written for people.

package guest_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/wasm"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/examples/loan/wire/wiretest"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
)

// at is when everything in these tests happens.
var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fast leaves out the check of the deadline, which takes most of the time of short calls.
var fast = wasm.Options{Trusted: true}

// each runs a test for every language.
func each(t *testing.T, o wasm.Options, test func(t *testing.T, h *host)) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			h := newHost(t, l.built(t), o)
			test(t, h)
			if h.faults != nil {
				t.Errorf("the guest failed: %.4000v", h.faults)
			}
		})
	}
}

func native(t testing.TB) handler.Handler {
	t.Helper()
	h, err := wire.Handler()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// cases are every step'th decision of generated applications, and violations of all rules.
func cases(t testing.TB, step int) []conformance.Case {
	t.Helper()
	all, err := wiretest.Cases(1, 200, step)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestConforms(t *testing.T) {
	all := cases(t, 21)
	each(t, wasm.Options{}, func(t *testing.T, h *host) {
		result, err := conformance.Run(t.Context(), handler.Over(h, t.Name()), &conformance.Options{Cases: all})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range result.Findings {
			t.Error(f)
		}
		t.Logf("%d cases, %d rules, %d calls", len(all), len(result.Rules), result.Calls)
	})
}

func TestSize(t *testing.T) {
	for _, l := range languages {
		module := l.built(t)
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = z.Write(module)
		_ = z.Close()
		t.Logf("%s: %d bytes, %d compressed", l.name, len(module), b.Len())
		if b.Len() > l.most {
			t.Errorf("%s: wanted at most %d bytes compressed, found %d", l.name, l.most, b.Len())
		}
	}
}

// The description is the native one, with every command and event.
func TestDescription(t *testing.T) {
	want := describe(t, native(t))
	each(t, fast, func(t *testing.T, h *host) {
		if got := describe(t, handler.Over(h, t.Name())); !reflect.DeepEqual(got, want) {
			t.Errorf("wanted %+v, found %+v", want, got)
		}
	})
}

func describe(t *testing.T, h handler.Handler) handler.Description {
	t.Helper()
	reply, err := h.Handle(t.Context(), &handler.Request{Op: handler.Describe})
	if err != nil {
		t.Fatal(err)
	}
	d := *reply.Description
	for _, list := range [][]handler.Wire{d.Events, d.Commands} {
		slices.SortFunc(list, func(a, b handler.Wire) int { return strings.Compare(a.Name, b.Name) })
	}
	return d
}

// Every decision and state of the cases, from the events and from the state of the first
// half of them.
func TestEqualsNative(t *testing.T) {
	all, h := cases(t, 7), native(t)
	var requests []*handler.Request
	for i := range all {
		requests = append(requests, requestsOf(t, h, &all[i])...)
	}
	each(t, fast, func(t *testing.T, g *host) {
		refused := map[string]int{}
		for _, r := range requests {
			request := handler.AppendRequest(nil, r)
			want := handler.Serve(t.Context(), h, string(r.Op), request)
			got, err := g.Call(t.Context(), string(r.Op), request)
			if err != nil {
				t.Fatal(err)
			}
			code, err := same(want, got)
			if err != nil {
				t.Fatalf("%s\n%v", request, err)
			}
			refused[code]++
		}
		for _, rule := range loan.Rules() {
			if refused[string(rule)] == 0 {
				t.Errorf("wanted refusals by rule %s, found none", rule)
			}
		}
		t.Logf("%d requests, by codes: %v", len(requests), refused)
	})
}

// requestsOf are those that lead to one decision.
func requestsOf(t testing.TB, h handler.Handler, c *conformance.Case) []*handler.Request {
	t.Helper()
	given := make([]handler.Entry, len(c.Given))
	for i, e := range c.Given {
		given[i] = handler.Entry{Event: e, Seqno: eventstore.Seqno(i + 1), ID: eventstore.NameUUID(fmt.Sprint(c.Name, i)), Time: at}
	}
	half := len(given) / 2
	q := handler.Request{Op: handler.Decide, Key: eventstore.NameUUID(c.Name), Stream: c.Stream, Events: given, Command: &c.When, Now: at, ID: eventstore.NameUUID("id" + c.Name),
		After: eventstore.Mark{Seqno: eventstore.Seqno(len(given))}}
	fold := q
	fold.Op, fold.Command, fold.Events = handler.Evolve, nil, given[:half]
	reply, err := h.Handle(t.Context(), &fold)
	if err != nil {
		t.Fatal(err)
	}
	rest := q
	rest.State, rest.StateVersion, rest.Events = reply.State, 1, given[half:]
	foldRest := rest
	foldRest.Op, foldRest.Command = handler.Evolve, nil
	return []*handler.Request{&fold, &q, &rest, &foldRest}
}

// same says what is not the same in two encoded replies, and the code of both, if they
// have one.
func same(want, got []byte) (code string, err error) {
	if bytes.Equal(want, got) {
		return "", nil
	}
	w, err := handler.ParseReply(want)
	if err != nil {
		return "", err
	}
	g, err := handler.ParseReply(got)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, got)
	}
	code, message := codeOf(w)
	found, text := codeOf(g)
	if code == "" || code != found || message == "" || text == "" || !w.Key.IsZero() && w.Key != g.Key {
		return "", fmt.Errorf("wanted %s, found %s", want, got)
	}
	return code, nil
}

func codeOf(r *handler.Reply) (code, message string) {
	switch {
	case r.Failure != nil:
		return "error " + r.Failure.Code, r.Failure.Message
	case r.Rejected != nil:
		return r.Rejected.Code, r.Rejected.Message
	}
	return "", ""
}

// An instance that has answered thousands of requests answers as one that is new, and has
// not grown over the memory that one of them needs.
func TestWarmIsFresh(t *testing.T) {
	const pages = 32
	all, h := cases(t, 40), native(t)
	var requests []wasm.Request
	sum := 0
	for i := range all {
		for _, r := range requestsOf(t, h, &all[i]) {
			b := handler.AppendRequest(nil, r)
			requests = append(requests, wasm.Request{Op: string(r.Op), Bytes: b})
			sum += 3 * len(b)
		}
	}
	each(t, wasm.Options{Trusted: true, MemoryPages: pages}, func(t *testing.T, g *host) {
		if err := g.CheckDeterminism(t.Context(), requests); err != nil {
			t.Error(err)
		}
		if held := pages * wasm.PageBytes; sum < 2*held {
			t.Errorf("wanted far more than the %d bytes of memory in requests, found %d", held, sum)
		}
	})
}

// What requests of nearly 1 MiB are full of: events, keys, a long text, fields.
func TestLarge(t *testing.T) {
	var events, keys strings.Builder
	for i := range 8000 {
		fmt.Fprintf(&events, `,{"seqno":"%d","type":"loan.work_started","version":1,"data":{"at":"2026-01-02T03:04:05Z","item":"W_%d"}}`, i+2, i%500)
	}
	for i := range 45_000 {
		fmt.Fprintf(&keys, `,"%d":"\u00e9%d"`, i, i)
	}
	const head, first = `{"v":1,"op":"evolve","stream":"application-1",`, `{"seqno":"1","type":"loan.submitted","version":1,"data":{"at":"2026-01-02T03:04:05Z","amount":1`
	requests := map[string]string{
		"events":   head + `"events":[` + first + `}}` + events.String() + `]}`,
		"metadata": head + `"events":[` + first + `},"meta":{"a":"b"` + keys.String() + `}}]}`,
		"twice":    head + `"events":[` + first + `},"meta":{"44999":"b"` + keys.String() + `}}]}`,
		"text":     head + `"events":[` + first + `,"customer":"` + strings.Repeat(`\ud83c\udf88`, 80_000) + `"}}]}`,
		"unknown":  head + `"stateVersion":1,"state":{"x":` + strings.Repeat("[", 100) + strings.Repeat(" ", 500_000) + strings.Repeat("]", 100) + `}}`,
	}
	requests["fields"] = head + `"events":[` + first + strings.Repeat(`,"":1`, 200_000) + `}}]}`
	h := native(t)
	each(t, fast, func(t *testing.T, g *host) {
		for name, request := range requests {
			code, err := asNative(t, h, g, []byte(request))
			if err != nil || (code == "") != (name != "twice") {
				t.Errorf("%s: %q, %.2000v", name, code, err)
			}
		}
	})
}

// Applications executed through the guest leave the history that the Executor over the
// Decider leaves.
func TestExecutes(t *testing.T) {
	each(t, fast, func(t *testing.T, h *host) {
		ctx := t.Context()
		caller, err := handler.NewCaller(ctx, handler.Over(h, t.Name()), nil)
		if err != nil {
			t.Fatal(err)
		}
		mine, theirs := newStore(t), newStore(t)
		far, err := guest.NewExecutor(ctx, mine, caller, nil)
		if err != nil {
			t.Fatal(err)
		}
		near, err := aggregate.NewExecutor(ctx, theirs, wire.Applications(), nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for app := range loan.Generate(2, 20) {
			for i := range app.Events {
				command, err := loan.CommandFor(app, i)
				if err != nil {
					t.Fatal(err)
				}
				wired, err := wiretest.Command(command)
				if err != nil {
					t.Fatal(err)
				}
				a, errNear := near.Execute(ctx, app.Key, command)
				b, errFar := far.Execute(ctx, app.Key, guest.Command{Command: wired})
				if errNear != nil || errFar != nil || a.Mark.Seqno != b.Mark.Seqno {
					t.Fatalf("%s, command %d: native %v, %v; the guest %v, %v", app.Key, i, a.Mark, errNear, b.Mark, errFar)
				}
				n++
			}
		}
		if want, got := history(t, theirs), history(t, mine); want != got {
			t.Errorf("wanted the history\n%s\nfound\n%s", want, got)
		}
		t.Logf("%d commands", n)
	})
}

// BenchmarkDecide is a decision on a state, as a host asks for most of them: by the
// handler in Go behind the same form, and by the guests.
func BenchmarkDecide(b *testing.B) {
	h := native(b)
	request := []byte(full[0])
	b.Run("native", func(b *testing.B) {
		for b.Loop() {
			handler.Serve(b.Context(), h, "decide", request)
		}
	})
	for _, l := range languages {
		for _, trusted := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s,trusted=%v", l.name, trusted), func(b *testing.B) {
				g := newHost(b, l.built(b), wasm.Options{Trusted: trusted})
				for b.Loop() {
					if _, err := g.Call(b.Context(), "decide", request); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func newStore(t testing.TB) *eventstore.Store {
	s := eventstore.New(memlog.New(nil), nil)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// history is everything that was appended but for identities and times.
func history(t testing.TB, s *eventstore.Store) string {
	t.Helper()
	var b strings.Builder
	for e, err := range s.Feed(t.Context(), 0, eventstore.Filter{Categories: []eventstore.Category{wire.Category}}) {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d %s/%d %s %s\n", e.Stream, e.Seqno, e.Type, e.Version, e.ContentType, e.Data)
	}
	return b.String()
}
