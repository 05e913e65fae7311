// Following one stream by its seqnos.

package projector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

func TestOneStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &announcer{direct: true}
		e := newEnv(t, &eventstore.Options{Announcer: a})
		e.deposit("account-a", 10)
		db := &database{}
		o := &projector.Options{Stream: "account-a", PageSize: 3, Types: []string{"deposited"}, PollInterval: time.Hour}
		p := projector.New(e.store, "p", "account", db, o)
		stop := run(t, p)
		synctest.Wait()
		for range 5 {
			e.deposit("account-b", 2) // another stream
			e.append("account-a", Renamed{"x"})
			token := e.deposit("account-a", 1)
			time.Sleep(20 * time.Millisecond) // the hint wakes it
			if kept, _, _ := db.get(); kept.Position != token.Position {
				t.Fatalf("checkpoint %v, want %d", kept, token.Position)
			}
			e.ok(p.Wait(t.Context(), token))
		}
		token := e.append("account-a", Renamed{"x"})
		e.ok(p.Wait(t.Context(), token)) // of another type
		e.ok(p.Wait(t.Context(), e.deposit("account-b", 1)))
		time.Sleep(20 * time.Millisecond)
		if s := p.Status(); s.Seqno < 20 || !s.CaughtUp {
			t.Errorf("%+v", s)
		}
		stop()
		kept, handled, _ := db.get()
		if handled != 15 || kept.Seqno < 20 || kept.Mark.ID.IsZero() {
			t.Errorf("%d handled, %v", handled, kept)
		}
		foreign := token
		foreign.Incarnation = eventstore.UUID{9}
		wantKind(t, p.Wait(t.Context(), foreign), eventstore.ErrDiverged)
	})
}

// The mark is looked at before going on, by the hold and without one.
func TestOneStreamResumes(t *testing.T) {
	for _, noHold := range []bool{false, true} {
		t.Run(fmt.Sprint("no hold ", noHold), func(t *testing.T) {
			oneStreamResumes(t, &projector.Options{Stream: "account-a", PageSize: 4, NoHold: noHold})
		})
	}
}

func oneStreamResumes(t *testing.T, o *projector.Options) {
	e := newEnv(t, nil)
	e.deposit("account-a", 10)
	db := &database{}
	catchUp := func(o *projector.Options) error {
		_, err := projector.New(e.store, "p", "", db, o).CatchUp(t.Context(), 0)
		return err
	}
	e.ok(catchUp(o))
	e.ok(catchUp(o)) // at the head
	e.deposit("account-a", 5)
	e.ok(catchUp(o))
	if len(db.model) != 15 {
		t.Errorf("%d handled", len(db.model))
	}
	good := db.kept
	db.kept.Mark.ID = eventstore.UUID{9} // another entry at the head
	wantKind(t, catchUp(o), eventstore.ErrDiverged)
	e.deposit("account-a", 1)
	wantKind(t, catchUp(o), eventstore.ErrDiverged) // and below it
	db.kept = good
	db.kept.Seqno = 17 // beyond the head
	wantKind(t, catchUp(o), eventstore.ErrDiverged)
	db.kept = good
	e.ok(catchUp(o))
}

func TestOneStreamTrimmed(t *testing.T) {
	e := newEnv(t, nil)
	e.deposit("account-a", 100)
	trim := func(through eventstore.Seqno) eventstore.TrimResult {
		r, err := e.store.Trim(t.Context(), "account-a", through, false)
		e.ok(err)
		return r
	}
	trim(79)
	for _, noHold := range []bool{true, false} {
		for _, size := range []int{1, 10} {
			db := &database{}
			o := &projector.Options{Stream: "account-a", PageSize: size, NoHold: noHold}
			_, err := projector.New(e.store, "p", "", db, o).CatchUp(t.Context(), 0)
			if err := wantKind(t, err, eventstore.ErrTrimmed); err.First != 80 {
				t.Errorf("first %d", err.First)
			}
			o.StartSeqno = 79
			if _, err := projector.New(e.store, "p", "", db, o).CatchUp(t.Context(), 0); err != nil || len(db.model) != 21 {
				t.Errorf("%v, %d handled", err, len(db.model))
			}
			db = &database{}
			o.StartSeqno, o.AcceptTrimmed = 0, true
			p := projector.New(e.store, "p", "", db, o)
			if _, err := p.CatchUp(t.Context(), 0); err != nil || len(db.model) != 21 || db.kept.Seqno != 100 {
				t.Errorf("%v, %d handled, %v", err, len(db.model), db.kept)
			}
			e.ok(p.Unregister(t.Context()))
		}
	}
	// Its hold keeps the marked entry; without it, the mark may go too.
	db := &database{}
	o := &projector.Options{Stream: "account-a", StartSeqno: 79}
	p := projector.New(e.store, "p", "", db, o)
	for range 2 {
		if _, err := p.CatchUp(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if r := trim(100); r.Trimmed != 99 {
		t.Errorf("trimmed %+v", r)
	}
	e.ok(p.Unregister(t.Context()))
	e.deposit("account-a", 1)
	trim(100)
	if _, err := projector.New(e.store, "p", "", db, o).CatchUp(t.Context(), 0); err != nil || db.kept.Seqno != 101 {
		t.Errorf("%v, %v", err, db.kept)
	}
}

// TestDedicatedStream: a stream that is in no feed is followed by its seqnos, goes on
// where it was left, holds its entries, and notices another history.
func TestDedicatedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &announcer{direct: true}
		e := newEnv(t, &eventstore.Options{Announcer: a})
		const log = eventstore.Stream("log-a")
		e.ok(e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "log", Layout: eventstore.Dedicated, TrimFreely: true}))
		e.ok(e.store.CreateStreams(t.Context(), log))
		db := &database{}
		o := &projector.Options{Stream: log, PageSize: 3, PollInterval: time.Hour}
		for round := range 3 {
			e.deposit(log, 5)
			stop := run(t, projector.New(e.store, "p", "log", db, o))
			synctest.Wait()
			e.deposit(log, 5)
			time.Sleep(20 * time.Millisecond) // the hint wakes it
			stop()
			kept, handled, _ := db.get()
			want := 10 * (round + 1)
			if handled != want || kept.Seqno != eventstore.Seqno(want) || kept.Mark.ID != e.marks[log].ID || kept.Position != 0 {
				t.Fatalf("round %d: %d handled, checkpoint %+v, want %d", round, handled, kept, want)
			}
			if r, err := e.store.Trim(t.Context(), log, 1000, false); err != nil || r.Trimmed >= eventstore.Seqno(want) || r.StoppedBy == "" {
				t.Errorf("round %d: trimmed %+v, %v, want the projector's mark kept", round, r, err)
			}
		}
		e.ok(e.store.DropStream(t.Context(), log)) // and made anew, with other entries
		e.ok(e.store.CreateStreams(t.Context(), log))
		delete(e.marks, log)
		e.deposit(log, 40)
		wantKind(t, projector.New(e.store, "p", "log", db, o).Run(t.Context()), eventstore.ErrDiverged)
	})
}

// Waiting for what is left of a stream is the same before the first step as behind it.
func TestWaitForATrimmedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, nil)
		gone := e.deposit("account-a", 5)
		token := e.deposit("account-a", 5)
		_, err := e.store.Trim(t.Context(), "account-a", 5, false)
		e.ok(err)
		p := projector.New(e.store, "p", "", &database{}, &projector.Options{Stream: "account-a", AcceptTrimmed: true})
		e.ok(p.Wait(t.Context(), gone))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if lag, ok := errors.AsType[*projector.LagError](p.Wait(ctx, token)); !ok || lag.Behind != 5 || lag.More {
			t.Errorf("%+v", lag)
		}
		_, err = p.CatchUp(t.Context(), 0)
		e.ok(err)
		e.ok(p.Wait(t.Context(), token))
		strict := projector.New(e.store, "strict", "", &database{}, &projector.Options{Stream: "account-a"})
		wantKind(t, strict.Wait(t.Context(), token), eventstore.ErrTrimmed)
	})
}
