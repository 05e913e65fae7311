// Entries over a real, embedded JetStream server: each once and in order per key,
// whatever breaks in between.

package natssink_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/cutproxy"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/natssink"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestMessagesAreTheEntries(t *testing.T) {
	j, e := startJet(t), newEnv(t)
	js := j.direct()
	j.create(js, nil)
	odd := eventstore.Stream("account-Ünï *.>\u2028 -x% /")
	e.append(odd, eventstore.Event{Type: "opened now", Version: 3, ContentType: "application/cbor; v=2", Data: []byte{0, 1, 255, '\r', '\n'},
		Metadata: eventstore.Metadata{eventstore.MetaTraceparent: traceparent, eventstore.MetaTracestate: "a=b"}},
		eventstore.Event{Type: "closed", Metadata: eventstore.Metadata{eventstore.MetaTraceparent: "nonsense"}})
	p := e.projector(natssink.New(js, "EVENTS", alone{&projector.MemoryCheckpoints{}}, nil))
	e.catchUp(p)
	e.check(j, js)
	all, stored := e.all(), j.stored(js)
	m, entry := stored[0], all[0]
	for header, want := range map[string]string{
		nats.MsgIdHdr: "p/1/1/" + entry.ID.String(), natssink.HeaderID: entry.ID.String(), natssink.HeaderVersion: "3",
		natssink.HeaderContentType: "application/cbor; v=2", natssink.HeaderSeqno: "1", natssink.HeaderPosition: "1",
		natssink.HeaderTime: entry.Time.Format(time.RFC3339Nano), "traceparent": traceparent, "tracestate": "a=b",
	} {
		if got := m.Header[header]; len(got) != 1 || got[0] != want {
			t.Errorf("header %s is %q, want %q", header, got, want)
		}
	}
	stream, _ := url.PathUnescape(m.Header.Get(natssink.HeaderStream))
	typ, _ := url.PathUnescape(m.Header.Get(natssink.HeaderType))
	if stream != string(odd) || typ != "opened now" || m.Subject != "events.account" {
		t.Errorf("stream %q, type %q on %q", stream, typ, m.Subject)
	}
	if trace := stored[1].Header["traceparent"]; trace != nil {
		t.Errorf("a bad traceparent was passed on: %q", trace)
	}
}

func TestMessageID(t *testing.T) {
	a := eventstore.Entry{Event: eventstore.Event{ID: eventstore.UUID{1}}, Position: 7}
	key := projector.Key{Projector: " a\u00a0b/main", Version: 2, Lane: 3}
	if got := natssink.MessageID(key, a); got != "%20a%C2%A0b/main/2/7/"+a.ID.String() {
		t.Error(got)
	}
	seen := map[string]bool{natssink.MessageID(key, a): true}
	for _, change := range []func(*projector.Key, *eventstore.Entry){
		func(k *projector.Key, _ *eventstore.Entry) { k.Projector = "a" },
		func(k *projector.Key, _ *eventstore.Entry) { k.Version++ },
		func(_ *projector.Key, e *eventstore.Entry) { e.Position++ },
		func(_ *projector.Key, e *eventstore.Entry) { e.ID = eventstore.UUID{2} },
	} {
		k, e := key, a
		change(&k, &e)
		if id := natssink.MessageID(k, e); seen[id] {
			t.Errorf("%s names two publications", id)
		} else {
			seen[id] = true
		}
	}
	other := key
	if other.Lane = 0; !seen[natssink.MessageID(other, a)] {
		t.Error("another lane gives another ID, so other lanes would publish again")
	}
}

// TestCutsMidBatch cuts the connection at random bytes of both directions.
func TestCutsMidBatch(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	j := startJet(t)
	direct, js := j.direct(), j.proxied()
	struck := 0
	for i := range 12 {
		e := newEnv(t)
		e.fill(120, 1+r.IntN(12))
		_ = direct.DeleteStream(t.Context(), "EVENTS")
		j.create(direct, nil)
		o := &natssink.Options{Timeout: 200 * time.Millisecond, Keys: 1 + r.IntN(20)}
		until(t, js.Conn().IsConnected)
		fault := cutproxy.Fault{Direction: cutproxy.Directions[i%2], After: r.Int64N([]int64{45_000, 7_000}[i%2]), Mode: []cutproxy.Mode{cutproxy.FIN, cutproxy.RST, cutproxy.BlackHole}[r.IntN(3)]}
		j.proxy.Arm(fault)
		p := e.projector(natssink.New(js, "EVENTS", alone{&projector.MemoryCheckpoints{}}, o))
		if fault.Mode == cutproxy.BlackHole {
			_, _ = p.CatchUp(t.Context(), 0)
			j.proxy.Release()
		}
		e.catchUp(p)
		if j.proxy.Disarm() {
			struck++
		}
		e.check(j, direct)
	}
	if struck < 6 {
		t.Errorf("only %d of 12 cuts struck: the test proves little", struck)
	}
}

// TestServerKilledBetweenPublishAndAck: the acknowledgements are held back while the
// server goes and comes again. No checkpoint is ahead of them.
func TestServerKilledBetweenPublishAndAck(t *testing.T) {
	j, e := startJet(t), newEnv(t)
	direct, js := j.direct(), j.proxied()
	j.create(direct, nil)
	e.fill(100, 10)
	var c projector.MemoryCheckpoints
	p := e.projector(natssink.New(js, "EVENTS", alone{&c}, &natssink.Options{Timeout: 300 * time.Millisecond, Keys: 5}))
	j.proxy.Arm(cutproxy.Fault{Direction: cutproxy.ToClient, After: 4000, Mode: cutproxy.Hold})
	stop := run(t, p)
	var published int
	until(t, func() bool {
		n := len(j.stored(direct))
		still := n > 5 && n == published
		if published = n; !still {
			time.Sleep(20 * time.Millisecond)
		}
		return still
	})
	kept, _ := c.Load(t.Context(), p.Key())
	if int(kept.Position) >= published || published == 100 {
		t.Errorf("checkpoint %d, %d messages stored: it does not wait for acknowledgements", kept.Position, published)
	}
	j.stop()
	j.proxy.Break()
	j.start()
	until(t, func() bool { kept, _ = c.Load(t.Context(), p.Key()); return kept.Position == 100 })
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	until(t, direct.Conn().IsConnected)
	e.check(j, direct)
}

// alone are checkpoints that are no Control: nothing is parked.
type alone struct{ projector.Checkpoints }

// lossy are checkpoints that lose what is saved while they are told to.
type lossy struct {
	projector.MemoryCheckpoints
	lose bool
}

var errLost = &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "test"}

func (l *lossy) Save(ctx context.Context, s projector.Step) error {
	if l.lose && len(s.Batch) > 0 {
		return errLost
	}
	return l.MemoryCheckpoints.Save(ctx, s)
}

// TestCrashBeforeTheCheckpoint publishes everything twice: once within the window, which
// the server sees to, and once beyond it, which a consumer can see.
func TestCrashBeforeTheCheckpoint(t *testing.T) {
	j, e := startJet(t), newEnv(t)
	js := j.direct()
	window := 400 * time.Millisecond
	j.create(js, func(c *jetstream.StreamConfig) { c.Duplicates = window })
	e.fill(40, 4)
	c := &lossy{lose: true}
	publish := func() {
		t.Helper()
		p := e.projector(natssink.New(js, "EVENTS", alone{c}, &natssink.Options{MinWindow: window}))
		if _, err := p.CatchUp(t.Context(), 0); !errors.Is(err, eventstore.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	publish()
	publish()
	e.check(j, js)
	time.Sleep(3 * window)
	c.lose = false
	e.catchUp(e.projector(natssink.New(js, "EVENTS", alone{c}, &natssink.Options{MinWindow: -1})))
	times := map[string]int{}
	for _, m := range j.stored(js) {
		times[m.Header.Get(nats.MsgIdHdr)]++
	}
	for id, n := range times {
		if n != 2 {
			t.Errorf("%s is there %d times, want 2: the repeat has the same ID", id, n)
		}
	}
	if len(times) != 40 {
		t.Errorf("%d IDs", len(times))
	}
}

// TestStreamsThatWillNotDo: what is wrong is said, no entry is blamed, and it goes on
// once the stream is right.
func TestStreamsThatWillNotDo(t *testing.T) {
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"none":               func(c *jetstream.StreamConfig) { c.Name = "OTHER" },
		"other subjects":     func(c *jetstream.StreamConfig) { c.Subjects = []string{"events.other", "events.account.>"} },
		"no acknowledgement": func(c *jetstream.StreamConfig) { c.NoAck = true },
		"too short a window": func(c *jetstream.StreamConfig) { c.Duplicates = time.Minute },
	} {
		t.Run(name, func(t *testing.T) {
			j, e := startJet(t), newEnv(t)
			js := j.direct()
			j.create(js, change)
			e.fill(10, 2)
			h := natssink.New(js, "EVENTS", alone{&projector.MemoryCheckpoints{}}, nil)
			_, err := e.projector(h).CatchUp(t.Context(), 0)
			if _, blamed := errors.AsType[*projector.EntryError](err); blamed || !errors.Is(err, eventstore.ErrInvalid) {
				t.Fatalf("%v", err)
			}
			for _, stream := range []string{"EVENTS", "OTHER"} {
				if s, err := js.Stream(t.Context(), stream); err == nil && s.CachedInfo().State.Msgs > 0 {
					t.Errorf("%d messages went to %s", s.CachedInfo().State.Msgs, stream)
				}
				_ = js.DeleteStream(t.Context(), stream)
			}
			j.create(js, nil)
			e.catchUp(e.projector(h))
			e.check(j, js)
		})
	}
}

func TestStreamTakenAwayMeanwhile(t *testing.T) {
	j, e := startJet(t), newEnv(t)
	js := j.direct()
	j.create(js, nil)
	h := natssink.New(js, "EVENTS", alone{&projector.MemoryCheckpoints{}}, &natssink.Options{Timeout: 2 * time.Second})
	p := e.projector(h)
	e.fill(4, 2)
	e.catchUp(p)
	e.ok(js.DeleteStream(t.Context(), "EVENTS"))
	j.create(js, func(c *jetstream.StreamConfig) { c.Name = "OTHER" })
	e.fill(4, 2)
	for range 2 { // the stream is remembered, then looked at
		_, err := p.CatchUp(t.Context(), 0)
		if _, blamed := errors.AsType[*projector.EntryError](err); blamed || !errors.Is(err, eventstore.ErrInvalid) {
			t.Fatalf("%v", err)
		}
	}
	if s, _ := js.Stream(t.Context(), "OTHER"); s.CachedInfo().State.Msgs > 0 {
		t.Error("messages went to the other stream")
	}
}

func TestTooLarge(t *testing.T) {
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"for the server": nil,
		"for the stream": func(c *jetstream.StreamConfig) { c.MaxMsgSize = 8 << 10 },
	} {
		t.Run(name, func(t *testing.T) {
			j, e := startJet(t), newEnv(t)
			js := j.direct()
			j.create(js, change)
			e.fill(3, 1)
			size := 100 << 10
			if change != nil {
				size = 10 << 10
			}
			e.append("other-large", eventstore.Event{Type: "big", Data: make([]byte, size)})
			e.fill(3, 1)
			var c projector.MemoryCheckpoints
			p := e.projector(natssink.New(js, "EVENTS", alone{&c}, nil))
			err := p.Run(t.Context()) // stops: trying again is of no use
			bad, ok := errors.AsType[*projector.EntryError](err)
			if !ok || !bad.Permanent || bad.Stream != "other-large" || bad.Position != 4 || !errors.Is(err, eventstore.ErrTooLarge) {
				t.Fatalf("%v", err)
			}
			if kept, _ := c.Load(t.Context(), p.Key()); kept.Position != 3 {
				t.Errorf("kept %v", kept)
			}
		})
	}
}

// TestTooLargeIsParked: with a Control the key waits and the others go on.
func TestTooLargeIsParked(t *testing.T) {
	j, e := startJet(t), newEnv(t)
	js := j.direct()
	j.create(js, nil)
	e.fill(3, 1)
	e.append("other-large", eventstore.Event{Type: "big", Data: make([]byte, 100<<10)})
	e.append("other-large", eventstore.Event{Type: "small"})
	e.fill(3, 1)
	var c projector.MemoryCheckpoints
	p := e.projector(natssink.New(js, "EVENTS", &c, nil))
	e.catchUp(p)
	all, err := c.Versions(t.Context(), "p")
	if err != nil || len(all) != 1 || len(all[0].Parked) != 1 || all[0].Parked[0].StreamKey != "large" || all[0].Parked[0].Count != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	if n := len(j.stored(js)); n != 6 {
		t.Errorf("%d messages", n)
	}
}

// TestFullStream: a stream that refuses the new is an outage, which ends when there is room.
func TestFullStream(t *testing.T) {
	j, e := startJet(t), newEnv(t)
	js := j.direct()
	full := func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 7, jetstream.DiscardNew }
	j.create(js, full)
	e.fill(20, 3)
	p := e.projector(natssink.New(js, "EVENTS", alone{&projector.MemoryCheckpoints{}}, nil))
	_, err := p.CatchUp(t.Context(), 0)
	if _, blamed := errors.AsType[*projector.EntryError](err); blamed || !errors.Is(err, eventstore.ErrOverloaded) {
		t.Fatalf("%v", err)
	}
	if n := len(j.stored(js)); n != 7 {
		t.Errorf("%d messages", n)
	}
	j.create(js, func(c *jetstream.StreamConfig) { full(c); c.MaxMsgs = 20 })
	e.catchUp(p)
	e.check(j, js)
}

// TestServerDown: Run starts without a server, goes on when there is one and through its absence.
func TestServerDown(t *testing.T) {
	j, e := startJet(t), newEnv(t)
	js := j.direct()
	j.create(js, nil)
	e.fill(10, 2)
	j.stop()
	h := natssink.New(js, "EVENTS", alone{&projector.MemoryCheckpoints{}}, &natssink.Options{Timeout: 100 * time.Millisecond})
	p := e.projector(h)
	if _, err := p.CatchUp(t.Context(), 0); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Fatalf("%v", err)
	}
	stop := run(t, p)
	j.start()
	until(t, func() bool { kept, _ := h.Load(t.Context(), p.Key()); return kept.Position == 10 })
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	e.check(j, js)
	js.Conn().Close()
	e.fill(1, 1)
	if err := e.projector(h).Run(t.Context()); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("closed connection: %v", err)
	}
}

// TestTwoWorkers: two workers share the lanes and hand them over while they publish; every
// message is there once, in order.
func TestTwoWorkers(t *testing.T) {
	j, e := startJet(t), newEnv(t)
	js := j.direct()
	j.create(js, nil)
	var c projector.MemoryCheckpoints
	worker := func() *projector.Projector {
		return projector.New(e.store, "p", "account", natssink.New(js, "EVENTS", &c, &natssink.Options{Keys: 4}),
			&projector.Options{Categories: []eventstore.Category{"other"}, Lanes: 4, PageSize: 10, LeaseTTL: 300 * time.Millisecond})
	}
	first, second := worker(), worker()
	stop := run(t, first)
	e.fill(100, 12)
	run(t, second)
	e.fill(100, 12)
	until(t, func() bool { return len(j.stored(js)) > 100 })
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	e.fill(100, 12)
	until(t, func() bool { return len(j.stored(js)) >= 300 })
	e.check(j, js)
}

func TestMistakes(t *testing.T) {
	j := startJet(t)
	js := j.direct()
	var c projector.MemoryCheckpoints
	for name, h := range map[string]projector.Handler{
		"no JetStream":   natssink.New(nil, "EVENTS", &c, nil),
		"no checkpoints": natssink.New(js, "EVENTS", nil, nil),
		"no stream":      natssink.New(js, "", &c, nil),
		"bad name":       natssink.New(js, "EV.ENTS", &c, nil),
		"wide prefix":    natssink.New(js, "EVENTS", &c, &natssink.Options{Prefix: "a.>"}),
		"blank prefix":   natssink.New(js, "EVENTS", &c, &natssink.Options{Prefix: "a b"}),
		"keys":           natssink.New(js, "EVENTS", &c, &natssink.Options{Keys: projector.MaxSinkKeys + 1}),
		"timeout":        natssink.New(js, "EVENTS", &c, &natssink.Options{Timeout: -1}),
	} {
		if err := h.Handle(t.Context(), projector.Step{}); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSubjectsOfTheStream(t *testing.T) {
	j, e := startJet(t), newEnv(t)
	js := j.direct()
	for i, subjects := range [][]string{{"events.*"}, {"events.account", "events.other"}, {"events.>"}} {
		_ = js.DeleteStream(t.Context(), "EVENTS")
		j.create(js, func(c *jetstream.StreamConfig) { c.Subjects = subjects })
		e.fill(2, 1)
		p := projector.New(e.store, fmt.Sprint("p", i), "account", natssink.New(js, "EVENTS", alone{&projector.MemoryCheckpoints{}}, nil),
			&projector.Options{Categories: []eventstore.Category{"other"}})
		e.catchUp(p)
		e.check(j, js)
	}
}
