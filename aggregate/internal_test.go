// The inner parts on their own: fingerprint, memory, cache, locks, waiting.

package aggregate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

type (
	plainState struct{ A int64 }
	renamed    struct{ A int64 }
	otherName  struct{ B int64 }
	otherType  struct{ A int32 }
	otherTag   struct {
		A int64 `json:"a"`
	}
	otherOrder1 struct{ A, B int64 }
	otherOrder2 struct{ B, A int64 }
	tree        struct {
		Left, Right *tree
		Sub         map[string][]tree
	}
	deeper struct {
		In struct {
			A []struct{ B map[string]*int64 }
		}
	}
	deeper2 struct {
		In struct {
			A []struct{ B map[string]*int32 }
		}
	}
	stamped struct{ At time.Time } // marshals itself: its inside is not ours
	base    struct{ A int64 }
	derived struct{ base }

	dashed struct {
		A int64 `json:"-"`
	}
	private struct {
		a int64 //lint:ignore U1000 it is looked at by reflection
	}
	deep struct {
		In []map[string]struct{ ch chan int }
	}
	wants     interface{ M() }
	holding   struct{ W wants }
	anything  struct{ A any }
	imaginary struct{ C complex128 }
)

const goldenTree = "wattle1/3/5b5a0010ea03eb844395b1d595d9b0eb"

func print(t *testing.T, typ reflect.Type, version int) string {
	t.Helper()
	f, err := fingerprint(typ, version)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFingerprint(t *testing.T) {
	seen := map[string]reflect.Type{}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[plainState](), reflect.TypeFor[otherName](), reflect.TypeFor[otherType](), reflect.TypeFor[otherTag](),
		reflect.TypeFor[otherOrder1](), reflect.TypeFor[otherOrder2](), reflect.TypeFor[tree](), reflect.TypeFor[deeper](),
		reflect.TypeFor[deeper2](), reflect.TypeFor[stamped](), reflect.TypeFor[derived](), reflect.TypeFor[anything](),
		reflect.TypeFor[int](), reflect.TypeFor[map[string]int](), reflect.TypeFor[[]int](), reflect.TypeFor[[3]int](), reflect.TypeFor[*int](),
	} {
		f := print(t, typ, 1)
		if other := seen[f]; other != nil {
			t.Errorf("%v and %v have the same fingerprint", typ, other)
		}
		seen[f] = typ
		if f == print(t, typ, 2) {
			t.Errorf("%v: the version makes no difference", typ)
		}
	}
	if print(t, reflect.TypeFor[plainState](), 0) != print(t, reflect.TypeFor[renamed](), 0) {
		t.Error("renaming a type changes nothing that is stored")
	}
	// A golden one: a change of the form would silently leave out every snapshot.
	if got := print(t, reflect.TypeFor[tree](), 3); got != goldenTree {
		t.Errorf("the fingerprint of a fixed type is %q, was %q", got, goldenTree)
	}
}

func TestFingerprintNamesWhatWouldBeLost(t *testing.T) {
	for want, typ := range map[string]reflect.Type{
		"State.A: it is tagged":               reflect.TypeFor[dashed](),
		"State.a: it is not exported":         reflect.TypeFor[private](),
		"State.In[][].ch: it is not exported": reflect.TypeFor[deep](),
		"State.W: an interface with methods":  reflect.TypeFor[holding](),
		"State.C: JSON has no complex128":     reflect.TypeFor[imaginary](),
		"State[]: JSON has no func":           reflect.TypeFor[[]func()](),
	} {
		if _, err := fingerprint(typ, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: wanted %q, found %v", typ, want, err)
		}
	}
}

func TestMemoryForgetsTheOldest(t *testing.T) {
	var m memory
	id := func(ms byte) eventstore.UUID { return eventstore.UUID{5: ms, 6: 0x70, 8: 0x80} }
	for i := byte(1); i <= 10; i++ {
		m.add(remembered{ID: id(i), First: eventstore.Seqno(i), Last: eventstore.Seqno(i)}, 4)
	}
	if len(m.Commands) != 4 || m.Through != 6 || m.Minted != 6 {
		t.Fatalf("found %+v", m)
	}
	for i := byte(1); i <= 10; i++ {
		if _, ok := m.find(id(i)); ok != (i > 6) {
			t.Errorf("found %d: %v", i, ok)
		}
		if m.mayHaveForgotten(id(i)) != (i <= 6) {
			t.Errorf("may have forgotten %d: %v", i, i > 6)
		}
	}
	if m.mayHaveForgotten(eventstore.NameUUID("x")) {
		t.Error("an ID without a time cannot say that it is old")
	}
	if m.knowsAllFrom(6) || !m.knowsAllFrom(7) {
		t.Error("it knows all from 7 on")
	}
}

func TestMemoryJoinsTheEventsOfACommand(t *testing.T) {
	var m memory
	a, b := eventstore.NewUUID(), eventstore.NewUUID()
	for i, id := range []eventstore.UUID{a, a, a, {}, a, b, b} {
		e := eventstore.Entry{Seqno: eventstore.Seqno(i + 1), Position: eventstore.Position(10 * i)}
		e.ID = eventstore.NewUUID()
		if !id.IsZero() {
			e.Metadata = eventstore.Metadata{eventstore.MetaCommand: id.String()}
		}
		m.see(&e, 100)
	}
	first, _ := m.find(a)
	second, _ := m.find(b)
	if len(m.Commands) != 3 || first.First != 1 || first.Last != 3 || first.Position != 20 || second.First != 6 || second.Last != 7 {
		t.Fatalf("found %+v", m)
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := cache[int]{limit: 100}
	h := func(i int) *history[int] { return &history[int]{stream: eventstore.Stream(fmt.Sprintf("a-%d", i))} }
	for i := range 10 {
		c.put(h(i), 30)
		if c.used > 100 || c.order.Len() != len(c.at) {
			t.Fatalf("%d bytes, %d in order, %d by name", c.used, c.order.Len(), len(c.at))
		}
	}
	c.put(h(9), 60) // instead of the one before
	if c.used != 90 || len(c.at) != 2 {
		t.Fatalf("%d bytes in %d", c.used, len(c.at))
	}
	if c.take("a-9") == nil || c.take("a-9") != nil || c.take("a-8") == nil || c.used != 0 || len(c.at) != 0 {
		t.Fatal("what is taken is gone, what is not is there")
	}
	c.put(h(1), 101)
	if c.used != 0 {
		t.Fatal("larger than the cache")
	}
}

func TestLocksAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l keyLocks
		unlock, err := l.lock(t.Context(), []eventstore.Stream{"a-1", "a-2"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.lock(ctx, []eventstore.Stream{"a-0", "a-2", "a-3"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if len(l.held) != 2 {
			t.Fatalf("held: %v", l.held)
		}
		unlock()
		if len(l.held) != 0 {
			t.Fatalf("held: %v", l.held)
		}
	})
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := range 100 {
			start := time.Now()
			if err := pause(t.Context(), n, time.Millisecond, 50*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); n < 2 && d != 0 || d >= 50*time.Millisecond {
				t.Fatalf("pause %d took %v", n, d)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for n := range 3 {
			if err := pause(ctx, n, time.Hour, time.Hour); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
	})
}

// Data of a snapshot that is not ours must be an error, never a panic.
func FuzzDecodeSnapshot(f *testing.F) {
	f.Add([]byte(`{"state":{"Left":null},"commands":[{"id":"018f0000-0000-7000-8000-000000000000","first":1,"last":2}],"forgotten":3}`))
	f.Add([]byte(`{"state":[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decodeSnapshot[tree](&eventstore.Snapshot{Data: data})
		if err == nil {
			e.add(remembered{ID: eventstore.NewUUID()}, 2)
			e.find(eventstore.NewUUID())
		}
	})
}
