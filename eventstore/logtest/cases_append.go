// Cases: what an append that goes through leaves behind.

package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

var appendCases = []testCase{
	{name: "acked is readable", rule: "an acked entry is readable at once, byte-equal, with its stream, seqno, epoch, batch ID, position and time", run: ackedIsReadable},
	{name: "payloads", rule: "payloads are opaque bytes; an empty one comes back empty, not nil", run: payloads},
	{name: "numbers", rule: "numbers in JSON payloads are not touched (S1)", run: numbers},
	{name: "metadata", rule: "metadata of any valid UTF-8 comes back equal, empty metadata as nil", run: metadata},
	{name: "names", rule: "streams, types and content types of any valid UTF-8 up to their bounds work, and names equal to a careless eye are different streams", run: names},
	{name: "payload stays the caller's", rule: "what the caller does with his buffers after an append changes nothing", run: payloadStaysCallers},
	{name: "arguments stay the caller's", rule: "a log does not change its arguments", run: argumentsStayCallers},
	{name: "given IDs", rule: "an event keeps the ID it was given; else it gets the one derived from batch ID and index", run: givenIDs},
	{name: "batches of many sizes", rule: "seqnos are gap-free over batches of any size", run: batchesOfManySizes},
	{name: "times", rule: "times never fall along a stream, whoever writes", run: times},
	{name: "several streams", rule: "one append writes to several streams of several categories at once, first appends among them, with one receipt each, in order", run: severalStreams},
	{name: "most batches", rule: "an append of MaxAppendBatches streams goes through", run: mostBatches},
	{name: "token", rule: "the token of an append is passed by a horizon soon, and names the store", alone: true, feed: true, run: token},
	{name: "claim", rule: "the first append creates the stream; a claim may skip epochs and makes its holder the owner", run: claim},
	{name: "owner", rule: "the owner appends under its epoch without claiming again", run: owner},
	{name: "pipelining owner", rule: "an owner may leave After's ID empty, and what it sends early is refused as a gap", run: pipeliningOwner},
	{name: "guards", rule: "an append goes through only if every guarded stream is at its mark", run: guards},
	{name: "guard does not write", rule: "a guard neither moves nor creates nor fences a stream", run: guardDoesNotWrite},
	{name: "context ended", rule: "a context that has ended gives its error, and nothing is written", run: contextEnded},
	{name: "raw log is not harmed", rule: "arguments that a Store would refuse do not harm a log: no panic, no gap, no change of what is there", run: rawLogNotHarmed},
}

func ackedIsReadable(e *env) {
	w := e.filled(e.stream("a"), 2)
	b := w.batch(eventstore.Event{Type: "account.opened", Version: 3, ContentType: "application/cbor", Data: []byte{1, 0, 2},
		Metadata: eventstore.Metadata{"k": "v"}}, event("{}"))
	done := w.send(b)
	want := eventstore.Receipt{Stream: w.stream, First: 3, Last: eventstore.Mark{Seqno: 4, ID: eventstore.DeriveUUID(b.ID, 1)}}
	if got := done.Receipts[0]; got != want {
		e.Errorf("receipt = %+v, want %+v", got, want)
	}
	all := e.read(w.stream, 2)
	for i, sent := range whole(b).Events {
		got := all[i]
		if !sameEvent(got.Event, sent) || got.Stream != w.stream || got.Epoch != w.epoch || got.BatchID != b.ID {
			e.Errorf("entry %d = %+v, want %+v of %s, epoch %d, batch %v", got.Seqno, got, sent, w.stream, w.epoch, b.ID)
		}
	}
	if h := e.head(w.stream); h != (eventstore.Head{Epoch: w.epoch, Holder: w.holder, Last: want.Last}) {
		e.Errorf("head = %+v, want epoch %d of %v at %v", h, w.epoch, w.holder, want.Last)
	}
}

func payloads(e *env) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	all := [][]byte{nil, {}, {0}, {0, 0, 0}, every, big, []byte("héllo 世界 \U0001F600"), {0xff, 0xfe}, []byte(`\x00`), []byte(`"`)}
	w := e.writer(e.stream("a"))
	for _, data := range all {
		w.send(w.batch(eventstore.Event{Type: "t", ContentType: "application/octet-stream", Data: data}))
	}
	for i, got := range e.read(w.stream, 0) {
		if !bytes.Equal(got.Data, all[i]) || got.Data == nil {
			e.Errorf("payload %d of %d bytes came back as %d bytes, nil %t", i, len(all[i]), len(got.Data), got.Data == nil)
		}
	}
}

func numbers(e *env) {
	w := e.writer(e.stream("a"))
	data := []string{`12345678901234567890`, `0.1234567890123456789`, `9223372036854775807`, `1e400`, `{"a": 1.0,  "a":2.50}`, `-0`}
	for _, d := range data {
		w.send(w.batch(event(d)))
	}
	for i, got := range e.read(w.stream, 0) {
		if string(got.Data) != data[i] {
			e.Errorf("payload %s came back as %s", data[i], got.Data)
		}
	}
}

func metadata(e *env) {
	many := eventstore.Metadata{}
	for i := range eventstore.MaxMetadataKeys {
		many[fmt.Sprintf("key %d", i)] = strings.Repeat("v", 200)
	}
	all := []eventstore.Metadata{nil, {}, {"k": ""}, {"ключ": "значение\n\t\u2028"}, {`"`: `\`, "'": "''", "$1": "%s"},
		{"12345678901234567890": "1e400", "null": "null", "true": "true"}, many,
		{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=1", "command_id": "7"},
		{strings.Repeat("k", eventstore.MaxMetadataKeyBytes): strings.Repeat("v", eventstore.MaxMetadataBytes-eventstore.MaxMetadataKeyBytes)}}
	w := e.writer(e.stream("a"))
	for _, m := range all {
		w.send(w.batch(eventstore.Event{Type: "t", Metadata: m}))
	}
	for i, got := range e.read(w.stream, 0) {
		if !maps.Equal(got.Metadata, all[i]) || len(all[i]) == 0 && got.Metadata != nil {
			e.Errorf("metadata %v came back as %v", all[i], got.Metadata)
		}
	}
}

func names(e *env) {
	keys := []string{"a", "A", "a ", " a", "a-b", "a--b", "-", ".", "..", "../x", `\`, "/", "*", ">", "a.b", "%00", "'; drop table x; --", `"`, "$$", "$1",
		"é", "e\u0301", "ß", "SS", "ſ", "世界", "\U0001F600", "\u200b", "\u202ea", "\ufeff", strings.Repeat("k", eventstore.MaxKeyBytes)}
	for _, k := range keys {
		w := e.writer(e.stream(k))
		w.send(w.batch(eventstore.Event{Type: "t", Data: []byte(k)}))
	}
	for _, k := range keys {
		if got := e.read(e.stream(k), 0); len(got) != 1 || string(got[0].Data) != k || got[0].Stream != e.stream(k) {
			e.Errorf("stream with key %q reads %d entries %.100q, want its own one", k, len(got), fmt.Sprint(got))
		}
	}
	long := strings.Repeat("é", eventstore.MaxTypeBytes/2)
	w := e.writer(e.stream("types"))
	w.send(w.batch(eventstore.Event{Type: long, ContentType: long, Version: 1<<31 - 1}))
	if got := e.read(w.stream, 0)[0]; got.Type != long || got.ContentType != long || got.Version != 1<<31-1 {
		e.Errorf("entry = %+v, want type and content type %s, version 2^31-1", got, long)
	}
}

func payloadStaysCallers(e *env) {
	w := e.writer(e.stream("a"))
	data, meta := []byte(`{"n":1}`), eventstore.Metadata{"k": "v"}
	b := w.batch(eventstore.Event{Type: "t", Data: data, Metadata: meta})
	w.send(b)
	copy(data, "XXXXXXX")
	meta["k"], meta["more"] = "changed", "changed"
	b.Events[0].Type = "changed"
	if got := e.read(w.stream, 0)[0]; string(got.Data) != `{"n":1}` || !maps.Equal(got.Metadata, eventstore.Metadata{"k": "v"}) || got.Type != "t" {
		e.Errorf("entry = %+v, want it as it was appended", got)
	}
}

func argumentsStayCallers(e *env) {
	second := e.newCategory("another", true)
	a := appendOf(e.writer(e.stream("b")).batch(events(2)...), e.writer(streamIn(second, "a")).batch(events(1)...))
	a.Guards = []eventstore.Guard{{Stream: e.stream("z")}, {Stream: e.stream("c")}}
	f := eventstore.Filter{Categories: []eventstore.Category{second, e.category, second}, Types: []string{"z", "tested"}, Slots: []eventstore.Slot{9, 1}}
	before := fmt.Sprintf("%+v %+v", a, f)
	if _, err := e.append(a); err != nil {
		e.Fatalf("Append = %v, want nil", err)
	}
	if _, err := e.store.ReadFeed(e.ctx, 0, f, 10); err != nil && inFeed(e.log) {
		e.Fatalf("ReadFeed = %v, want nil", err)
	}
	if after := fmt.Sprintf("%+v %+v", a, f); after != before {
		e.Errorf("arguments afterwards:\n%s\nwant as before:\n%s", after, before)
	}
}

func givenIDs(e *env) {
	w := e.writer(e.stream("a"))
	given := eventstore.NewUUID()
	b := w.batch(event("1"), eventstore.Event{ID: given, Type: "t"}, event("3"))
	w.send(b)
	want := []eventstore.UUID{eventstore.DeriveUUID(b.ID, 0), given, eventstore.DeriveUUID(b.ID, 2)}
	if got := ids(e.read(w.stream, 0)); !slices.Equal(got, want) {
		e.Errorf("event IDs = %v, want %v", got, want)
	}
}

func batchesOfManySizes(e *env) {
	sizes := []int{1, 2, 1, 7, 100, 1, 1000, 3}
	if soak() {
		sizes = append(sizes, eventstore.MaxBatchEvents)
	}
	w := e.writer(e.stream("a"))
	want := eventstore.Seqno(0)
	for _, n := range sizes {
		r := w.append(n)
		if r.First != want+1 || r.Last.Seqno != want+eventstore.Seqno(n) {
			e.Errorf("receipt of %d events = %+v, want them from %d", n, r, want+1)
		}
		want += eventstore.Seqno(n)
	}
}

func times(e *env) {
	processes := []*env{e, e.through(e.another())}
	s := e.stream("a")
	var last time.Time
	for i := range 20 {
		w := processes[i%2].filled(s, 2)
		for _, got := range e.read(s, w.last.Seqno-2) {
			if got.Time.Before(last) {
				e.Errorf("entry %d has time %v, the one before %v", got.Seqno, got.Time, last)
			}
			last = got.Time
		}
	}
}

func severalStreams(e *env) {
	second := e.newCategory("second", false)
	old := e.filled(e.stream("old"), 3)
	first, other := e.writer(e.stream("new")), e.writer(streamIn(second, "new"))
	batches := []eventstore.Batch{other.batch(events(2)...), old.batch(events(1)...), first.batch(events(3)...)}
	done := e.appendBatches(batches...)
	for i, b := range batches {
		want := eventstore.Receipt{Stream: b.Stream, First: b.After.Seqno + 1, Last: eventstore.Mark{Seqno: b.Last(), ID: eventstore.DeriveUUID(b.ID, len(b.Events)-1)}}
		if done.Receipts[i] != want {
			e.Errorf("receipt %d = %+v, want %+v", i, done.Receipts[i], want)
		}
		if all := e.read(b.Stream, b.After.Seqno); len(all) != len(b.Events) || all[len(all)-1].Position > done.Token.Position {
			e.Errorf("%s has %d new entries, want %d with positions up to the token's %d", b.Stream, len(all), len(b.Events), done.Token.Position)
		}
	}
}

func mostBatches(e *env) {
	batches := make([]eventstore.Batch, eventstore.MaxAppendBatches)
	for i := range batches {
		batches[i] = e.writer(e.stream(fmt.Sprint(i))).batch(events(1)...)
	}
	done := e.appendBatches(batches...)
	if n := len(done.Receipts); n != len(batches) {
		e.Errorf("%d receipts, want %d", n, len(batches))
	}
}

func token(e *env) {
	w := e.writer(e.stream("a"))
	done := w.send(w.batch(events(3)...))
	var page eventstore.FeedPage
	e.poll("the horizon passes the token", func() bool {
		var err error
		if page, err = e.store.ReadFeed(e.ctx, 0, eventstore.Filter{}, 10); err != nil {
			e.Fatalf("ReadFeed = %v, want nil", err)
		}
		return page.Horizon >= done.Token.Position
	})
	if n := len(page.Entries); n != 3 || page.Entries[2].Position > done.Token.Position || page.Incarnation != done.Token.Incarnation || page.Incarnation.IsZero() {
		e.Errorf("token %v; the page up to its horizon has %d entries of store %v, want 3 of the token's store", done.Token, n, page.Incarnation)
	}
	again, err := e.another().ReadFeed(e.ctx, 0, eventstore.Filter{}, 10)
	if err != nil || again.Incarnation != page.Incarnation {
		e.Errorf("incarnation read by another = %v, %v, want %v", again.Incarnation, err, page.Incarnation)
	}
}

func claim(e *env) {
	w := e.writer(e.stream("a"))
	w.epoch = 7
	w.append(1)
	next := e.writer(w.stream)
	next.epoch = eventstore.MaxNumber
	next.append(1)
	if h := e.head(w.stream); h.Epoch != eventstore.MaxNumber || h.Holder != next.holder || h.Last != next.last {
		e.Errorf("head = %+v, want epoch 2^63-1 of %v at %v", h, next.holder, next.last)
	}
}

func owner(e *env) {
	w := e.filled(e.stream("a"), 1)
	for range 3 {
		w.append(2)
	}
	if h := e.head(w.stream); h.Epoch != 1 || h.Holder != w.holder || h.Last.Seqno != 7 {
		e.Errorf("head = %+v, want epoch 1 of %v at 7", h, w.holder)
	}
	again := w.batch(events(1)...)
	again.Claim, again.Epoch = true, 2
	e.appendBatches(again)
}

func pipeliningOwner(e *env) {
	w := e.filled(e.stream("a"), 1)
	first := w.batch(events(2)...)
	second := w.batch(events(1)...)
	second.After = eventstore.Mark{Seqno: 3}
	e.refusedBatches(eventstore.ErrGap, second)
	e.appendBatches(first)
	e.appendBatches(second)
	if got := seqnos(e.read(w.stream, 0)); !slices.Equal(got, span(1, 4)) {
		e.Errorf("seqnos = %v, want 1 to 4", got)
	}
	other := w.fencedBy(1)
	third := w.batch(events(1)...)
	third.After = eventstore.Mark{Seqno: other.last.Seqno}
	e.refusedBatches(eventstore.ErrFenced, third)
}

func guards(e *env) {
	w, g := e.writer(e.stream("a")), e.filled(e.stream("guarded"), 2)
	guarded := func(at ...eventstore.Guard) eventstore.Append {
		return eventstore.Append{Batches: []eventstore.Batch{w.batch(events(1)...)}, Guards: at}
	}
	absent := eventstore.Guard{Stream: e.stream("absent")}
	holds := eventstore.Guard{Stream: g.stream, At: g.last}
	for _, at := range []eventstore.Mark{{}, {Seqno: 2}, {Seqno: 2, ID: eventstore.NewUUID()}, {Seqno: 1, ID: g.last.ID}, {Seqno: 3, ID: g.last.ID}} {
		err := e.refused(eventstore.ErrGuard, guarded(absent, eventstore.Guard{Stream: g.stream, At: at}))
		if err.Stream != g.stream || *err.Head != e.head(g.stream) {
			e.Errorf("guard at %v: error of %s with head %+v, want of %s with its head", at, err.Stream, err.Head, g.stream)
		}
	}
	e.refused(eventstore.ErrGuard, guarded(holds, eventstore.Guard{Stream: absent.Stream, At: eventstore.Mark{Seqno: 1, ID: eventstore.NewUUID()}}))
	if _, err := e.append(guarded(holds, absent)); err != nil {
		e.Errorf("append with guards that hold = %v, want nil", err)
	}
	// A fence writes no entry: a guard on entries does not see it.
	e.fence(absent.Stream, eventstore.NewUUID(), 0)
	w = e.writer(w.stream)
	if _, err := e.append(guarded(absent)); err != nil {
		e.Errorf("append with the zero mark on a stream without entries = %v, want nil", err)
	}
}

func guardDoesNotWrite(e *env) {
	g := e.filled(e.stream("guarded"), 1)
	absent := eventstore.Guard{Stream: e.stream("absent")}
	before := e.head(g.stream)
	a := eventstore.Append{Batches: []eventstore.Batch{e.writer(e.stream("a")).batch(events(1)...)},
		Guards: []eventstore.Guard{absent, {Stream: g.stream, At: g.last}}}
	if _, err := e.append(a); err != nil {
		e.Fatalf("append with guards that hold = %v, want nil", err)
	}
	if h := e.head(g.stream); h != before {
		e.Errorf("head of the guarded stream = %+v, want as before %+v", h, before)
	}
	if h := e.head(absent.Stream); h != (eventstore.Head{}) {
		e.Errorf("head of the guarded absent stream = %+v, want zero", h)
	}
	g.append(1)
}

func contextEnded(e *env) {
	ended, cancel := context.WithCancel(e.ctx)
	cancel()
	w := e.filled(e.stream("a"), 1)
	_, err := e.history.Append(ended, e.store, eventstore.Append{Batches: []eventstore.Batch{w.batch(events(1)...)}})
	wantCanceled(e, "Append", err)
	_, err = e.history.Fence(ended, e.store, w.stream, w.holder, 0)
	wantCanceled(e, "Fence", err)
	_, err = e.store.ReadFrom(ended, w.stream, 0, 1)
	wantCanceled(e, "ReadFrom", err)
	_, err = e.store.ReadFeed(ended, 0, eventstore.Filter{}, 1)
	wantCanceled(e, "ReadFeed", err)
	_, err = e.store.Trim(ended, w.stream, 1, false)
	wantCanceled(e, "Trim", err)
	_, err = e.store.Load(ended, w.stream, "")
	wantCanceled(e, "Load", err)
	if h := e.head(w.stream); h.Last != w.last || h.Epoch != w.epoch || h.Trimmed != 0 {
		e.Errorf("head = %+v, want epoch %d at %v, nothing trimmed", h, w.epoch, w.last)
	}
}

func wantCanceled(e *env, op string, err error) {
	e.Helper()
	if !errors.Is(err, context.Canceled) {
		e.Errorf("%s with a context that has ended = %v, want its error", op, err)
	}
}

func rawLogNotHarmed(e *env) {
	w := e.filled(e.stream("a"), 2)
	before := e.read(w.stream, 0)
	for name, call := range rawCalls(e, w) {
		func() {
			defer func() {
				if r := recover(); r != nil {
					e.Errorf("%s: panic: %v", name, r)
				}
			}()
			err := call()
			if _, ok := errors.AsType[*eventstore.Error](err); err != nil && !ok {
				e.Errorf("%s: error = %T %v, want nil or an *eventstore.Error", name, err, err)
			}
		}()
		all := e.read(w.stream, 0)
		if !slices.Equal(ids(all[:min(2, len(all))]), ids(before)) || !slices.Equal(seqnos(all), span(1, eventstore.Seqno(len(all)))) {
			e.Fatalf("%s: the stream reads %v, want the two entries as before", name, seqnos(all))
		}
	}
}

// rawCalls are calls of a Log with arguments that a Store would refuse.
func rawCalls(e *env, w *writer) map[string]func() error {
	add := func(change func(*eventstore.Batch)) func() error {
		b := whole(w.batch(events(1)...))
		change(&b)
		return func() error {
			_, err := e.log.Append(e.ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
			return err
		}
	}
	read := func(after eventstore.Seqno, limit int) func() error {
		return func() error { _, err := e.log.ReadFrom(e.ctx, w.stream, after, limit); return err }
	}
	feed := func(after eventstore.Position, limit int) func() error {
		return func() error { _, err := e.log.ReadFeed(e.ctx, after, eventstore.Filter{}, limit); return err }
	}
	first, second := whole(w.batch(events(1)...)), whole(w.batch(events(1)...))
	return map[string]func() error{
		"append nothing":      func() error { _, err := e.log.Append(e.ctx, eventstore.Append{}); return err },
		"append no events":    add(func(b *eventstore.Batch) { b.Events = nil }),
		"append no epoch":     add(func(b *eventstore.Batch) { b.Epoch, b.Claim = 0, true }),
		"append no stream":    add(func(b *eventstore.Batch) { b.Stream = "" }),
		"append after 2^64-1": add(func(b *eventstore.Batch) { b.After.Seqno = 1<<64 - 1 }),
		"append epoch 2^64-1": add(func(b *eventstore.Batch) { b.Epoch, b.Claim = 1<<64-1, false }),
		"read 0 entries":      read(0, 0),
		"read -1 entries":     read(0, -1),
		"read after 2^64-1":   read(1<<64-1, 1),
		"feed of 0 entries":   feed(0, 0),
		"feed of -1 entries":  feed(0, -1),
		"feed after 2^64-1":   feed(1<<64-1, 1),
		"trim through 2^64-1": func() error { _, err := e.log.Trim(e.ctx, w.stream, 1<<64-1, true); return err },
		"fence no stream":     func() error { _, err := e.log.Fence(e.ctx, "", w.holder, 1<<64-1); return err },
		"append a stream twice": func() error {
			_, err := e.log.Append(e.ctx, eventstore.Append{Batches: []eventstore.Batch{first, second}})
			return err
		},
	}
}
