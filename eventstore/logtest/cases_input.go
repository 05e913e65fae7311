// Cases: bad input through a Store gives the same typed error on every backend,
// says what was wrong, and writes nothing.

package logtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

var inputCases = []testCase{
	{name: "streams", rule: "an invalid stream is refused by every operation, naming the character and why", run: inputStreams},
	{name: "categories", rule: "an invalid category is refused by every operation, naming the character and why", run: inputCategories},
	{name: "appends", rule: "an append that breaks a rule is refused, naming the rule, and nothing of it is written", run: inputAppends},
	{name: "numbers", rule: "seqnos, positions and epochs above 2^63-1 are refused", run: inputNumbers},
	{name: "others", rule: "snapshots, holds, leases, filters and fences that break a rule are refused", run: inputOthers},
	{name: "limits", rule: "what is over a limit is too large, what is exactly at it goes through", run: inputLimits},
}

// bad is a text that is refused and what the error must show of it.
type bad struct{ text, shows string }

var badCategories = []bad{
	{"", "empty"}, {"a.b", `'.'`}, {"a*", `'*'`}, {"a>b", `'>'`}, {"a b", `' '`}, {"a\x00", `'\x00'`}, {"a\n", `'\n'`}, {"a\u00a0b", `'\u00a0'`},
	{"a\x7f", `'\x7f'`}, {"a\xff", "UTF-8"}, {"\xed\xa0\x80", "UTF-8"}, {strings.Repeat("c", eventstore.MaxCategoryBytes+1), "65 bytes"},
}

var badStreams = []bad{
	{"", "'-'"}, {"account", "'-'"}, {"-a", "empty"}, {"account-", "empty"}, {"account-a\x00b", `'\x00'`}, {"account-a\r\nb", `'\r'`},
	{"account-\x1b[31m", `'\x1b'`}, {"account-\u0085", `'\u0085'`}, {"account-\xc3", "UTF-8"}, {"account-" + strings.Repeat("k", eventstore.MaxKeyBytes+1), "513 bytes"},
	{"acc.ount-a", `'.'`}, {"acc ount-a", `' '`},
}

// wantInvalid demands a kind of error that shows something of what was wrong.
func wantInvalid(e *env, what string, err, kind error, shows string) {
	e.Helper()
	got := wantKind(e, err, kind)
	if got.Op == "" || got.Wanted == "" || got.Found == "" || !strings.Contains(got.Wanted+" "+got.Found, shows) {
		e.Errorf("%s: %v: Op %q, Wanted %q, Found %q: want all of them set and %s in them", what, err, got.Op, got.Wanted, got.Found, shows)
	}
	if strings.ContainsAny(err.Error(), "\x00\n\r\x1b") || len(err.Error()) > 1000 {
		e.Errorf("%s: the error %q is not one printable line", what, err)
	}
}

func inputStreams(e *env) {
	for _, b := range badStreams {
		for name, call := range everyCall(e, e.category, eventstore.Stream(b.text)) {
			switch name {
			case "Append", "Append, guard", "ReadFrom", "ReadBackwardPage", "Fence", "FenceAt", "Head", "Trim", "Trim, dry", "Load", "Load, snapshot", "SaveSnapshot":
				wantInvalid(e, fmt.Sprintf("%s of %q", name, b.text), call(), eventstore.ErrInvalid, b.shows)
			case "SetHold, stream", "ReleaseHold":
				if b.text != "" { // else it is the category's
					wantInvalid(e, fmt.Sprintf("%s of %q", name, b.text), call(), eventstore.ErrInvalid, b.shows)
				}
			}
		}
		if s, err := eventstore.ParseStream(b.text); err == nil {
			e.Errorf("ParseStream(%q) = %q, want an error", b.text, s)
		}
	}
}

func inputCategories(e *env) {
	for _, b := range append(badCategories, bad{"a-b", `'-'`}) {
		for name, call := range everyCall(e, eventstore.Category(b.text), "") {
			switch name {
			case "ReadFeed", "SetHold, category", "DeleteCategory", "CreateCategory", "ReleaseHold":
				wantInvalid(e, fmt.Sprintf("%s of %q", name, b.text), call(), eventstore.ErrInvalid, b.shows)
			}
		}
	}
	err := e.store.CreateCategory(e.ctx, eventstore.CategorySpec{Name: "fine", Layout: 7})
	wantInvalid(e, "layout 7", err, eventstore.ErrInvalid, "7")
}

func inputAppends(e *env) {
	w := e.filled(e.stream("a"), 2)
	event := func(change func(*eventstore.Event)) func(*eventstore.Append) {
		return func(a *eventstore.Append) { change(&a.Batches[1].Events[1]) }
	}
	batch := func(change func(*eventstore.Batch)) func(*eventstore.Append) {
		return func(a *eventstore.Append) { change(&a.Batches[1]) }
	}
	for name, c := range map[string]struct {
		kind   error
		shows  string
		change func(*eventstore.Append)
	}{
		"no batches":         {eventstore.ErrInvalid, "none", func(a *eventstore.Append) { a.Batches = nil }},
		"no events":          {eventstore.ErrInvalid, "none", batch(func(b *eventstore.Batch) { b.Events = nil })},
		"zero epoch":         {eventstore.ErrZeroEpoch, "0", batch(func(b *eventstore.Batch) { b.Epoch = 0 })},
		"zero holder":        {eventstore.ErrInvalid, "zero UUID", batch(func(b *eventstore.Batch) { b.Holder = eventstore.UUID{} })},
		"epoch 2^63":         {eventstore.ErrInvalid, "9223372036854775808", batch(func(b *eventstore.Batch) { b.Epoch = 1 << 63 })},
		"after 2^63":         {eventstore.ErrInvalid, "9223372036854775808", batch(func(b *eventstore.Batch) { b.After = eventstore.Mark{Seqno: 1 << 63} })},
		"ID at seqno 0":      {eventstore.ErrInvalid, "seqno 0", batch(func(b *eventstore.Batch) { b.After = eventstore.Mark{ID: b.Holder} })},
		"a stream twice":     {eventstore.ErrInvalid, "once", batch(func(b *eventstore.Batch) { b.Stream = w.stream })},
		"a batch ID twice":   {eventstore.ErrInvalid, "once", func(a *eventstore.Append) { a.Batches[1].ID = a.Batches[0].ID }},
		"guard on a written": {eventstore.ErrInvalid, "not written", func(a *eventstore.Append) { a.Guards = []eventstore.Guard{{Stream: w.stream, At: w.last}} }},
		"guard twice": {eventstore.ErrInvalid, "twice", func(a *eventstore.Append) {
			a.Guards = []eventstore.Guard{{Stream: e.stream("g")}, {Stream: e.stream("g")}}
		}},
		"guard at 2^63": {eventstore.ErrInvalid, "9223372036854775808", func(a *eventstore.Append) {
			a.Guards = []eventstore.Guard{{Stream: e.stream("g"), At: eventstore.Mark{Seqno: 1 << 63}}}
		}},
		"empty type":        {eventstore.ErrInvalid, "event 1", event(func(e *eventstore.Event) { e.Type = "" })},
		"NUL in type":       {eventstore.ErrInvalid, `'\x00'`, event(func(e *eventstore.Event) { e.Type = "a\x00" })},
		"UTF-8 in type":     {eventstore.ErrInvalid, "UTF-8", event(func(e *eventstore.Event) { e.Type = "a\xff" })},
		"long type":         {eventstore.ErrInvalid, "129 bytes", event(func(e *eventstore.Event) { e.Type = strings.Repeat("t", 129) })},
		"NUL content type":  {eventstore.ErrInvalid, `'\x00'`, event(func(e *eventstore.Event) { e.ContentType = "\x00" })},
		"version -1":        {eventstore.ErrInvalid, "-1", event(func(e *eventstore.Event) { e.Version = -1 })},
		"version 2^31":      {eventstore.ErrInvalid, "2147483648", event(func(e *eventstore.Event) { e.Version = 1 << 31 })},
		"NUL in metadata":   {eventstore.ErrInvalid, "NUL", event(func(e *eventstore.Event) { e.Metadata = eventstore.Metadata{"k": "a\x00"} })},
		"UTF-8 in metadata": {eventstore.ErrInvalid, "UTF-8", event(func(e *eventstore.Event) { e.Metadata = eventstore.Metadata{"k": "\xff"} })},
		"NUL in a key":      {eventstore.ErrInvalid, `'\x00'`, event(func(e *eventstore.Event) { e.Metadata = eventstore.Metadata{"\x00": "v"} })},
		"empty key":         {eventstore.ErrInvalid, "empty", event(func(e *eventstore.Event) { e.Metadata = eventstore.Metadata{"": "v"} })},
		"UTF-8 in a key":    {eventstore.ErrInvalid, "UTF-8", event(func(e *eventstore.Event) { e.Metadata = eventstore.Metadata{"\xff": "v"} })},
	} {
		a := appendOf(w.batch(events(1)...), e.writer(e.stream("b")).batch(events(2)...))
		c.change(&a)
		before := e.heads(a)
		_, err := e.append(a)
		wantInvalid(e, name, err, c.kind, c.shows)
		if after := e.heads(a); fmt.Sprint(after) != fmt.Sprint(before) {
			e.Errorf("%s: heads moved from %v to %v", name, before, after)
		}
	}
}

func inputNumbers(e *env) {
	w := e.filled(e.stream("a"), 2)
	const over = 1 << 63
	_, err := e.store.ReadFrom(e.ctx, w.stream, over, 1)
	wantInvalid(e, "ReadFrom", err, eventstore.ErrInvalid, "9223372036854775808")
	_, err = e.store.ReadBackwardPage(e.ctx, w.stream, over, 1)
	wantInvalid(e, "ReadBackwardPage", err, eventstore.ErrInvalid, "9223372036854775808")
	_, err = e.store.ReadFeed(e.ctx, over, eventstore.Filter{}, 1)
	wantInvalid(e, "ReadFeed", err, eventstore.ErrInvalid, "9223372036854775808")
	_, err = e.store.Trim(e.ctx, w.stream, over, false)
	wantInvalid(e, "Trim", err, eventstore.ErrInvalid, "9223372036854775808")
	_, err = e.store.FenceAt(e.ctx, w.stream, over, w.holder)
	wantInvalid(e, "FenceAt", err, eventstore.ErrInvalid, "9223372036854775808")
	err = e.store.SetHold(e.ctx, eventstore.Hold{Name: "h", Stream: w.stream, Seqno: over})
	wantInvalid(e, "SetHold", err, eventstore.ErrInvalid, "9223372036854775808")
	err = e.store.SetHold(e.ctx, eventstore.Hold{Name: "h", Category: e.category, Position: over})
	wantInvalid(e, "SetHold", err, eventstore.ErrInvalid, "9223372036854775808")
	err = e.store.SaveSnapshot(e.ctx, eventstore.Snapshot{Stream: w.stream, At: eventstore.Mark{Seqno: over, ID: w.last.ID}, Fingerprint: "f"})
	wantInvalid(e, "SaveSnapshot", err, eventstore.ErrInvalid, "9223372036854775808")
	if h := e.head(w.stream); h != (eventstore.Head{Epoch: w.epoch, Holder: w.holder, Last: w.last}) {
		e.Errorf("head = %+v, want it untouched", h)
	}
}

func inputOthers(e *env) {
	w := e.filled(e.stream("a"), 2)
	id := w.holder
	st, ctx := e.store, e.ctx
	lease := func(name string, holder eventstore.UUID, ttl time.Duration) error {
		_, _, err := st.AcquireLease(ctx, name, holder, ttl)
		if _, renewErr := st.RenewLease(ctx, eventstore.Lease{Name: name, Holder: holder, Epoch: 1}, ttl); fmt.Sprint(renewErr) != strings.Replace(fmt.Sprint(err), "acquire", "renew", 1) {
			e.Errorf("RenewLease = %v, AcquireLease = %v, want the same", renewErr, err)
		}
		return err
	}
	snapshot := func(at eventstore.Mark, fingerprint, contentType string) error {
		return st.SaveSnapshot(ctx, eventstore.Snapshot{Stream: w.stream, At: at, Fingerprint: fingerprint, ContentType: contentType})
	}
	feed := func(f eventstore.Filter) error { _, err := st.ReadFeed(ctx, 0, f, 1); return err }
	_, fenceZero := st.FenceAt(ctx, w.stream, 0, id)
	_, fenceNobody := st.Fence(ctx, w.stream, eventstore.UUID{})
	for name, c := range map[string]struct {
		err   error
		kind  error
		shows string
	}{
		"fence at 0":             {fenceZero, eventstore.ErrZeroEpoch, "0"},
		"fence for nobody":       {fenceNobody, eventstore.ErrInvalid, "zero UUID"},
		"snapshot at 0":          {snapshot(eventstore.Mark{}, "f", ""), eventstore.ErrInvalid, "mark of an entry"},
		"snapshot without ID":    {snapshot(eventstore.Mark{Seqno: 1}, "f", ""), eventstore.ErrInvalid, "mark of an entry"},
		"no fingerprint":         {snapshot(w.last, "", ""), eventstore.ErrInvalid, "empty"},
		"NUL in fingerprint":     {snapshot(w.last, "\x00", ""), eventstore.ErrInvalid, `'\x00'`},
		"NUL in content type":    {snapshot(w.last, "f", "\x00"), eventstore.ErrInvalid, `'\x00'`},
		"hold without name":      {st.SetHold(ctx, eventstore.Hold{Stream: w.stream, Seqno: 1}), eventstore.ErrInvalid, "empty"},
		"NUL in hold":            {st.SetHold(ctx, eventstore.Hold{Name: "a\x00", Stream: w.stream, Seqno: 1}), eventstore.ErrInvalid, `'\x00'`},
		"position on a stream":   {st.SetHold(ctx, eventstore.Hold{Name: "h", Stream: w.stream, Position: 1}), eventstore.ErrInvalid, "position"},
		"seqno on a category":    {st.SetHold(ctx, eventstore.Hold{Name: "h", Category: e.category, Seqno: 1}), eventstore.ErrInvalid, "seqno"},
		"category of another":    {st.SetHold(ctx, eventstore.Hold{Name: "h", Category: "other", Stream: w.stream, Seqno: 1}), eventstore.ErrInvalid, "category"},
		"lease without name":     {lease("", id, time.Second), eventstore.ErrInvalid, "empty"},
		"NUL in lease":           {lease("\x00", id, time.Second), eventstore.ErrInvalid, `'\x00'`},
		"UTF-8 in lease":         {lease("\xff", id, time.Second), eventstore.ErrInvalid, "UTF-8"},
		"long lease name":        {lease(strings.Repeat("l", 257), id, time.Second), eventstore.ErrInvalid, "257 bytes"},
		"lease of nobody":        {lease("l", eventstore.UUID{}, time.Second), eventstore.ErrInvalid, "zero UUID"},
		"lease for no time":      {lease("l", id, -time.Second), eventstore.ErrInvalid, "-1s"},
		"lease for too long":     {lease("l", id, eventstore.MaxLeaseTTL+1), eventstore.ErrInvalid, "24h"},
		"slot 1024":              {feed(eventstore.Filter{Slots: []eventstore.Slot{eventstore.Slots}}), eventstore.ErrInvalid, "1024"},
		"NUL in filter's type":   {feed(eventstore.Filter{Types: []string{"\x00"}}), eventstore.ErrInvalid, `'\x00'`},
		"empty filter's type":    {feed(eventstore.Filter{Types: []string{""}}), eventstore.ErrInvalid, "empty"},
		"many filter's types":    {feed(eventstore.Filter{Types: slices.Repeat([]string{"t"}, 257)}), eventstore.ErrTooLarge, "256"},
		"many filter's category": {feed(eventstore.Filter{Categories: slices.Repeat([]eventstore.Category{e.category}, 257)}), eventstore.ErrTooLarge, "256"},
	} {
		wantInvalid(e, name, c.err, c.kind, c.shows)
	}
	wantLoaded(e, e.load(w.stream, "f", 10), e.head(w.stream), 0, span(1, 2), true)
	if h := e.head(w.stream); h.Epoch != w.epoch {
		e.Errorf("head = %+v, want epoch %d as before", h, w.epoch)
	}
}

func inputLimits(e *env) {
	limits := eventstore.Limits{EventBytes: 1000, BatchEvents: 5, AppendBytes: 4000, AppendBatches: 3}
	small := *e
	small.store = eventstore.New(e.log, &eventstore.Options{Limits: limits})
	sized := func(sizes ...int) []eventstore.Event {
		all := make([]eventstore.Event, len(sizes))
		for i, n := range sizes {
			all[i] = eventstore.Event{Type: "t", Data: make([]byte, n)}
		}
		return all
	}
	key := 0
	batch := func(events []eventstore.Event) eventstore.Batch {
		key++
		return eventstore.Batch{Stream: e.stream(fmt.Sprint(key)), Epoch: 1, Holder: eventstore.NewUUID(), Claim: true, Events: events}
	}
	for name, c := range map[string]struct {
		at, over eventstore.Append
	}{
		"data":     {appendOf(batch(sized(1000))), appendOf(batch(sized(1001)))},
		"events":   {appendOf(batch(sized(1, 1, 1, 1, 1))), appendOf(batch(sized(1, 1, 1, 1, 1, 1)))},
		"bytes":    {appendOf(batch(sized(1000, 1000)), batch(sized(1000, 1000))), appendOf(batch(sized(1000, 1000)), batch(sized(1000, 1000, 1)))},
		"batches":  {appendOf(batch(sized(1)), batch(sized(1)), batch(sized(1))), appendOf(batch(sized(1)), batch(sized(1)), batch(sized(1)), batch(sized(1)))},
		"guards":   {appendOf(batch(sized(1))), guarded(appendOf(batch(sized(1))), eventstore.MaxAppendGuards+1, e)},
		"metadata": {appendOf(batch(withMetadata(eventstore.MaxMetadataKeys, 1))), appendOf(batch(withMetadata(eventstore.MaxMetadataKeys+1, 1)))},
		"values":   {appendOf(batch(withMetadata(1, 100))), appendOf(batch(withMetadata(2, eventstore.MaxMetadataBytes/2)))},
	} {
		_, err := small.append(c.over)
		got := wantKind(e, err, eventstore.ErrTooLarge)
		if got.Wanted == "" || got.Found == "" {
			e.Errorf("%s: %v: Wanted %q, Found %q, want both set", name, err, got.Wanted, got.Found)
		}
		if _, err := small.append(c.at); err != nil {
			e.Errorf("%s at the limit = %v, want nil", name, err)
		}
	}
	// One over the greatest bound of all.
	_, err := e.append(appendOf(batch(sized(eventstore.MaxEventBytes + 1))))
	wantKind(e, err, eventstore.ErrTooLarge)
	_, err = e.append(appendOf(batch(sized(make([]int, eventstore.MaxBatchEvents+1)...))))
	wantKind(e, err, eventstore.ErrTooLarge)
}

func guarded(a eventstore.Append, n int, e *env) eventstore.Append {
	for i := range n {
		a.Guards = append(a.Guards, eventstore.Guard{Stream: e.stream(fmt.Sprint("guard", i))})
	}
	return a
}

// withMetadata returns an event with n keys of metadata and values of some size.
func withMetadata(n, size int) []eventstore.Event {
	m := eventstore.Metadata{}
	for i := range n {
		m[fmt.Sprint(i)] = strings.Repeat("v", size)
	}
	return []eventstore.Event{{Type: "t", Metadata: m}}
}
