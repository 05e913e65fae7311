// Cases: snapshots, and loading head, snapshot and tail as of one moment.

package logtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

var loadCases = []testCase{
	{name: "no stream", rule: "a shared stream that does not exist loads as the zero head without entries", run: loadNoStream},
	{name: "without snapshot", rule: "without a snapshot, or not asking for one, all entries come, in pages of limit", run: loadWithoutSnapshot},
	{name: "with snapshot", rule: "load gives the snapshot byte-equal and the entries behind it", run: loadWithSnapshot},
	{name: "snapshot and tail", rule: "load(snapshot + tail) = fold(all), for every prefix (I15)", run: loadFold},
	{name: "at the head", rule: "a snapshot at the head loads with no entries and End", run: loadAtTheHead},
	{name: "newest is kept", rule: "the newest snapshot is kept, an older one is dropped in silence, one at the same seqno replaces", run: newestIsKept},
	{name: "of another history", rule: "a snapshot at an entry that is another one or lies above the head is refused as diverged, and the one before it stays", run: snapshotOfAnotherHistory},
	{name: "other fingerprint", rule: "a snapshot made by other code is left out, with the reason, and the entries are replayed (T1)", run: otherFingerprint},
	{name: "any fingerprint", rule: "asked for any fingerprint, load gives the snapshot that is kept and the entries behind it; none is saved under that name", run: anyFingerprint},
	{name: "bad checksum", rule: "a snapshot that was damaged is left out, with the reason, and the entries are replayed", run: badChecksum},
	{name: "behind a trim", rule: "a stream trimmed behind its snapshot loads from it", run: loadBehindTrim},
	{name: "trimmed, no usable snapshot", rule: "when the entries that are needed were trimmed, load says trimmed, never a state with a hole", run: loadTrimmed},
	{name: "snapshot below the trim point", rule: "a snapshot whose tail was trimmed gives trimmed, never a tail with a hole", run: loadSnapshotBelowTrim},
	{name: "large snapshot", rule: "a snapshot of 1 MiB, and an empty one, come back byte-equal", run: largeSnapshot},
	{name: "never mixed", rule: "while others append and snapshot, load never mixes a newer head with older entries: they end at the head, behind the snapshot, without a hole", run: loadNeverMixed},
}

const fingerprint = "fold v1"

// snapshots returns the log as Snapshots, which loads with a limit.
func (e *env) snapshots() eventstore.Snapshots {
	e.Helper()
	s, ok := e.log.(eventstore.Snapshots)
	if !ok {
		e.Fatalf("%T does not implement eventstore.Snapshots", e.log)
	}
	return s
}

func (e *env) load(s eventstore.Stream, fingerprint string, limit int) eventstore.Loaded {
	e.Helper()
	l, err := e.snapshots().Load(e.ctx, s, fingerprint, limit)
	if err != nil {
		e.Fatalf("Load(%q, %q, %d) = %v, want nil", s, fingerprint, limit, err)
	}
	return l
}

// saveAt keeps a snapshot at an entry of a stream.
func (e *env) saveAt(s eventstore.Stream, at eventstore.Mark, data string) {
	e.Helper()
	sn := eventstore.Snapshot{Stream: s, At: at, Fingerprint: fingerprint, Data: []byte(data)}
	if err := e.store.SaveSnapshot(e.ctx, sn); err != nil {
		e.Fatalf("SaveSnapshot(%q at %v) = %v, want nil", s, at, err)
	}
}

func (e *env) markAt(s eventstore.Stream, n eventstore.Seqno) eventstore.Mark {
	e.Helper()
	return e.read(s, n-1)[0].Mark()
}

// wantLoaded compares head, snapshot and entries of a load with what they must be.
func wantLoaded(e *env, l eventstore.Loaded, head eventstore.Head, snapshot eventstore.Seqno, entries []eventstore.Seqno, end bool) {
	e.Helper()
	at := eventstore.Seqno(0)
	if l.Snapshot != nil {
		at = l.Snapshot.At.Seqno
	}
	if l.Head != head || at != snapshot || !slices.Equal(seqnos(l.Entries), entries) || l.End != end {
		e.Errorf("loaded head %+v, snapshot at %d, entries %v, End %t; want %+v, %d, %v, %t",
			l.Head, at, seqnos(l.Entries), l.End, head, snapshot, entries, end)
	}
}

func loadNoStream(e *env) {
	for _, f := range []string{"", fingerprint} {
		wantLoaded(e, e.load(e.stream("absent"), f, 10), eventstore.Head{}, 0, nil, true)
	}
	s := e.stream("fenced")
	h := e.fence(s, eventstore.NewUUID(), 0)
	wantLoaded(e, e.load(s, fingerprint, 10), h, 0, nil, true)
}

func loadWithoutSnapshot(e *env) {
	w := e.filled(e.stream("a"), 10)
	h := e.head(w.stream)
	for _, f := range []string{"", fingerprint} {
		wantLoaded(e, e.load(w.stream, f, 100), h, 0, span(1, 10), true)
		wantLoaded(e, e.load(w.stream, f, 10), h, 0, span(1, 10), true)
		wantLoaded(e, e.load(w.stream, f, 9), h, 0, span(1, 9), false)
	}
	e.saveAt(w.stream, w.last, "state")
	if l := e.load(w.stream, "", 100); l.Snapshot != nil || l.Skipped != "" || len(l.Entries) != 10 {
		e.Errorf("loaded without asking for a snapshot: %d entries, snapshot %v, skipped %q", len(l.Entries), l.Snapshot, l.Skipped)
	}
}

func loadWithSnapshot(e *env) {
	w := e.filled(e.stream("a"), 10)
	at := e.markAt(w.stream, 6)
	e.saveAt(w.stream, at, "state\x00at 6")
	l := e.load(w.stream, fingerprint, 100)
	wantLoaded(e, l, e.head(w.stream), 6, span(7, 10), true)
	wantLoaded(e, e.load(w.stream, fingerprint, 3), e.head(w.stream), 6, span(7, 9), false)
	sn := *l.Snapshot
	if sn.Time.IsZero() || sn.Time.Location() != time.UTC {
		e.Errorf("snapshot's time = %v, want UTC", sn.Time)
	}
	if string(sn.Data) != "state\x00at 6" || sn.At != at || sn.Stream != w.stream || sn.Fingerprint != fingerprint ||
		sn.ContentType != "application/json" || sn.Checksum != sha256.Sum256(sn.Data) || l.Skipped != "" {
		e.Errorf("snapshot = %+v, skipped %q, want it as it was saved", sn, l.Skipped)
	}
}

// fold is a state that depends on every entry and their order.
func fold(state []byte, entries ...eventstore.Entry) []byte {
	for _, entry := range entries {
		sum := sha256.Sum256(slices.Concat(state, entry.ID[:], entry.Data))
		state = sum[:]
	}
	return state
}

func loadFold(e *env) {
	w := e.writer(e.stream("a"))
	for n := range 12 {
		w.append(1 + n%3)
		all := e.read(w.stream, 0)
		place := max(1, (len(all)+n)/2)
		e.saveAt(w.stream, all[place-1].Mark(), string(fold(nil, all[:place]...)))
		l, err := e.store.Load(e.ctx, w.stream, fingerprint)
		if err != nil || l.Snapshot == nil {
			e.Fatalf("Load = %+v, %v, want a snapshot", l, err)
		}
		state := l.Snapshot.Data
		for entry, err := range l.Tail {
			if err != nil {
				e.Fatalf("tail: %v", err)
			}
			state = fold(state, entry)
		}
		if want := fold(nil, all...); !bytes.Equal(state, want) {
			e.Errorf("state from snapshot at %d and tail differs from the fold of all %d entries", l.Snapshot.At.Seqno, len(all))
		}
	}
}

func loadAtTheHead(e *env) {
	w := e.filled(e.stream("a"), 4)
	e.saveAt(w.stream, w.last, "state")
	wantLoaded(e, e.load(w.stream, fingerprint, 10), e.head(w.stream), 4, nil, true)
}

func newestIsKept(e *env) {
	w := e.filled(e.stream("a"), 10)
	for _, save := range []struct {
		at         eventstore.Seqno
		data, want string
	}{{5, "5", "5"}, {3, "3", "5"}, {5, "5 again", "5 again"}, {9, "9", "9"}, {8, "8", "9"}} {
		e.saveAt(w.stream, e.markAt(w.stream, save.at), save.data)
		if l := e.load(w.stream, fingerprint, 10); l.Snapshot == nil || string(l.Snapshot.Data) != save.want {
			e.Errorf("after saving at %d: loaded %+v, want %q", save.at, l.Snapshot, save.want)
		}
	}
}

func snapshotOfAnotherHistory(e *env) {
	w := e.filled(e.stream("a"), 3)
	e.saveAt(w.stream, e.markAt(w.stream, 1), "state")
	for _, at := range []eventstore.Mark{{Seqno: 3, ID: eventstore.NewUUID()}, {Seqno: 2, ID: w.last.ID}, {Seqno: 4, ID: w.last.ID}, {Seqno: eventstore.MaxNumber, ID: w.last.ID}} {
		for _, s := range []eventstore.Stream{w.stream, e.stream("absent")} {
			err := e.store.SaveSnapshot(e.ctx, eventstore.Snapshot{Stream: s, At: at, Fingerprint: fingerprint})
			if got := wantKind(e, err, eventstore.ErrDiverged); got.Stream != s {
				e.Errorf("%v is of %q, want %q", err, got.Stream, s)
			}
		}
	}
	wantLoaded(e, e.load(w.stream, fingerprint, 10), e.head(w.stream), 1, span(2, 3), true)
}

func otherFingerprint(e *env) {
	w := e.filled(e.stream("a"), 5)
	e.saveAt(w.stream, e.markAt(w.stream, 3), "state")
	l := e.load(w.stream, "fold v2", 10)
	wantLoaded(e, l, e.head(w.stream), 0, span(1, 5), true)
	if l.Skipped == "" {
		e.Errorf("Skipped is empty, want why the snapshot was left out")
	}
	wantLoaded(e, e.load(w.stream, fingerprint, 10), e.head(w.stream), 3, span(4, 5), true)
}

func anyFingerprint(e *env) {
	w := e.filled(e.stream("a"), 5)
	wantLoaded(e, e.load(w.stream, eventstore.AnyFingerprint, 10), e.head(w.stream), 0, span(1, 5), true)
	e.saveAt(w.stream, e.markAt(w.stream, 3), "state")
	l := e.load(w.stream, eventstore.AnyFingerprint, 10)
	wantLoaded(e, l, e.head(w.stream), 3, span(4, 5), true)
	if l.Snapshot != nil && (l.Snapshot.Fingerprint != fingerprint || string(l.Snapshot.Data) != "state") {
		e.Errorf("loaded %+v, want the data saved and fingerprint %q", l.Snapshot, fingerprint)
	}
	wantLoaded(e, e.load(w.stream, eventstore.AnyFingerprint, 1), e.head(w.stream), 3, span(4, 4), false)
	bad := eventstore.Snapshot{Stream: w.stream, At: w.last, Fingerprint: eventstore.AnyFingerprint, Data: []byte("state")}
	wantKind(e, e.store.SaveSnapshot(e.ctx, bad), eventstore.ErrInvalid)
	e.trim(w.stream, 5)
	if _, _, err := e.store.Snapshot(e.ctx, w.stream); err != nil {
		wantKind(e, err, eventstore.ErrTrimmed) // the snapshot stands below
	} else {
		e.Errorf("Snapshot = nil, want it trimmed: the snapshot stands at 3, the trim at 5")
	}
}

func badChecksum(e *env) {
	w := e.filled(e.stream("a"), 5)
	sn := eventstore.Snapshot{Stream: w.stream, At: e.markAt(w.stream, 3), Fingerprint: fingerprint, ContentType: "text/plain",
		Data: []byte("state"), Checksum: sha256.Sum256([]byte("another state"))}
	if err := e.snapshots().SaveSnapshot(e.ctx, sn); err != nil {
		e.Fatalf("SaveSnapshot = %v, want nil", err)
	}
	l := e.load(w.stream, fingerprint, 10)
	wantLoaded(e, l, e.head(w.stream), 0, span(1, 5), true)
	if l.Skipped == "" {
		e.Errorf("Skipped is empty, want why the snapshot was left out")
	}
	e.saveAt(w.stream, sn.At, "state")
	wantLoaded(e, e.load(w.stream, fingerprint, 10), e.head(w.stream), 3, span(4, 5), true)
}

func loadBehindTrim(e *env) {
	c := e.newCategory("aggregate", false)
	w := e.filled(streamIn(c, "a"), 10)
	e.saveAt(w.stream, e.markAt(w.stream, 6), "state")
	e.trim(w.stream, 6)
	wantLoaded(e, e.load(w.stream, fingerprint, 10), e.head(w.stream), 6, span(7, 10), true)
	e.saveAt(w.stream, w.last, "state")
	e.trim(w.stream, 10)
	wantLoaded(e, e.load(w.stream, fingerprint, 10), e.head(w.stream), 10, nil, true)
	w.append(1)
	wantLoaded(e, e.load(w.stream, fingerprint, 10), e.head(w.stream), 10, span(11, 11), true)
}

func loadTrimmed(e *env) {
	w := e.filled(e.stream("a"), 10)
	e.saveAt(w.stream, e.markAt(w.stream, 6), "state")
	e.trim(w.stream, 6)
	for _, f := range []string{"", "fold v2"} {
		_, err := e.snapshots().Load(e.ctx, w.stream, f, 10)
		if got := wantKind(e, err, eventstore.ErrTrimmed); got.First != 7 || got.Stream != w.stream {
			e.Errorf("load with fingerprint %q = %v with First %d, want 7 of %s", f, err, got.First, w.stream)
		}
		_, err = e.store.Load(e.ctx, w.stream, f)
		wantKind(e, err, eventstore.ErrTrimmed)
	}
}

func loadSnapshotBelowTrim(e *env) {
	w := e.filled(e.stream("a"), 10)
	e.saveAt(w.stream, e.markAt(w.stream, 3), "state")
	e.trim(w.stream, 6)
	_, err := e.snapshots().Load(e.ctx, w.stream, fingerprint, 10)
	if got := wantKind(e, err, eventstore.ErrTrimmed); got.First != 7 {
		e.Errorf("%v has First %d, want 7", err, got.First)
	}
}

func largeSnapshot(e *env) {
	w := e.filled(e.stream("a"), 1)
	for _, data := range []string{"", string(bytes.Repeat([]byte{0, 1, 0xff, '"'}, 1<<18))} {
		e.saveAt(w.stream, w.last, data)
		if l := e.load(w.stream, fingerprint, 1); l.Snapshot == nil || string(l.Snapshot.Data) != data || l.Snapshot.Data == nil {
			e.Errorf("a snapshot of %d bytes did not come back", len(data))
		}
	}
}

func loadNeverMixed(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	s := e.stream("0")
	const loaders = 3
	var started sync.WaitGroup // all loaders, so that they meet the writer
	started.Add(loaders)
	together(1+loaders, func(i int) {
		if i == 0 {
			defer cancel()
			started.Wait()
			e.alternateSnapshots(s, rounds(100))
			return
		}
		start := sync.OnceFunc(started.Done)
		defer start()
		last := eventstore.Seqno(0)
		for loads := 0; ctx.Err() == nil; loads++ {
			l, err := e.snapshots().Load(e.ctx, s, fingerprint, 1000)
			yield()
			if err != nil {
				e.Errorf("Load = %v, want nil", err)
				return
			}
			if fault := mixed(l); fault != "" || l.Head.Last.Seqno < last {
				e.Errorf("load %d: head %+v behind %d, %d entries %v: %s", loads, l.Head, last, len(l.Entries), seqnos(l.Entries), fault)
				return
			}
			last = l.Head.Last.Seqno
			start()
		}
	})
}

// mixed says what of a load is not of one moment.
func mixed(l eventstore.Loaded) string {
	after := eventstore.Mark{}
	if l.Snapshot != nil {
		after = l.Snapshot.At
		if string(l.Snapshot.Data) != after.String() {
			return fmt.Sprintf("the snapshot at %v has the state of %s", after, l.Snapshot.Data)
		}
	}
	last := after
	if n := len(l.Entries); n > 0 {
		last = l.Entries[n-1].Mark()
	}
	switch {
	case !slices.Equal(seqnos(l.Entries), span(after.Seqno+1, last.Seqno)):
		return fmt.Sprintf("entries do not follow the snapshot at %d", after.Seqno)
	case l.End != (last.Seqno == l.Head.Last.Seqno), last.Seqno > l.Head.Last.Seqno, l.End && last != l.Head.Last:
		return fmt.Sprintf("entries end at %v, End %t", last, l.End)
	}
	return ""
}

// alternateSnapshots appends to a stream, claiming it anew each time, and keeps a
// snapshot now and then.
func (e *env) alternateSnapshots(s eventstore.Stream, batches int) {
	w := &writer{e: e, stream: s, holder: eventstore.NewUUID(), epoch: 1}
	for i := range batches {
		done, err := e.append(appendOf(w.batch(events(1 + i%3)...)))
		if err == nil && i%7 == 0 {
			last := done.Receipts[0].Last
			err = e.store.SaveSnapshot(e.ctx, eventstore.Snapshot{Stream: s, At: last, Fingerprint: fingerprint, Data: []byte(last.String())})
		}
		if err != nil {
			e.Errorf("append %d: %v", i, err)
			return
		}
		w.wrote(done.Receipts[0])
		w.owns, w.epoch = false, w.epoch+1
	}
}
