// Lost answers and repeated commands: every effect once.

package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
)

// Whatever becomes of the answers, a command acked has one effect and one decided
// anew has none before.
func TestLostAnswers(t *testing.T) {
	for name, faults := range map[string][]fault{
		"landed, then proved":               {landed},
		"lost, then written":                {lost},
		"lost three times":                  {lost, lost, lost},
		"landed, asked again in vain":       {landed, lost, landed, lost},
		"landed, then unavailable":          {landed, unavailable, unavailable},
		"lost, then unavailable":            {lost, unavailable},
		"landed late, at the second asking": {lost, landed, unavailable},
	} {
		for _, id := range []eventstore.UUID{{}, eventstore.NewUUID()} {
			for _, warm := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/named=%v/warm=%v", name, !id.IsZero(), warm), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { lostAnswer(t, faults, id, warm) })
				})
			}
		}
	}
}

func lostAnswer(t *testing.T, faults []fault, id eventstore.UUID, warm bool) {
	store, log := newStore(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	n := 1
	if warm {
		execute(t, x, "alice", Deposit{1})
		n++
	}
	var options []aggregate.CallOption
	if !id.IsZero() {
		options = append(options, aggregate.CommandID(id))
	}
	log.next(faults...)
	res := execute(t, x, "alice", Deposit{1}, options...)
	wantBalance(t, res.State, int64(n), n)
	if res.Replayed || res.Retries != 0 {
		t.Fatalf("it was decided once, by this call: %+v", res)
	}
	res = execute(t, x, "alice", Deposit{1}) // and the stream goes on
	wantBalance(t, res.State, int64(n+1), n+1)
	if got := len(entries(t, store, alice)); got != n+1 {
		t.Fatalf("%d events, wanted %d", got, n+1)
	}
}

// Between the lost answer and the asking another process writes: if the batch had
// landed it is proved and nothing more; if not, the command is decided again.
func TestLostAnswerThenFenced(t *testing.T) {
	for _, there := range []bool{true, false} {
		t.Run(fmt.Sprintf("landed=%v", there), func(t *testing.T) {
			store, log := newStore(t)
			typ := accounts(aggregate.Snapshots{})
			x, rival := newExecutor(t, store, typ, nil), newExecutor(t, store, typ, nil)
			execute(t, x, "alice", Deposit{100})
			first := lost
			if there {
				first = landed
			}
			log.next(then(first, func() { execute(t, rival, "alice", Withdraw{30}) }))
			res := execute(t, x, "alice", Withdraw{60})
			if there != (res.Mark.Seqno == 2) || there != (res.Retries == 0) {
				t.Fatalf("found %+v", res)
			}
			s, _, err := x.Load(context.Background(), "alice")
			if err != nil {
				t.Fatal(err)
			}
			wantBalance(t, s, 10, 3)
			res = execute(t, x, "alice", Deposit{1})
			wantBalance(t, res.State, 11, 4)
			if res.Retries != 0 {
				t.Fatal("a state that others have passed was kept")
			}
		})
	}
}

// It had not landed, and what came between changes the answer.
func TestLostAnswerThenRefused(t *testing.T) {
	store, log := newStore(t)
	typ := accounts(aggregate.Snapshots{})
	x, rival := newExecutor(t, store, typ, nil), newExecutor(t, store, typ, nil)
	execute(t, x, "alice", Deposit{100})
	log.next(then(lost, func() { execute(t, rival, "alice", Withdraw{90}) }))
	_, err := x.Execute(context.Background(), "alice", Withdraw{60})
	wantErr(t, err, errFunds)
}

// No proof comes: ErrUnknown, and the same command again takes effect once. This is
// also the process killed between append and answer: its successor knows the ID only.
func TestUnknownIsToldAndTheCommandCanBeRepeated(t *testing.T) {
	for _, there := range []bool{true, false} {
		t.Run(fmt.Sprintf("landed=%v", there), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, log := newStore(t)
				typ := accounts(aggregate.Snapshots{})
				x := newExecutor(t, store, typ, &aggregate.Options{Retries: 2})
				first := lost
				if there {
					first = landed
				}
				log.next(first, lost, unavailable)
				_, err := x.Execute(t.Context(), "alice", Deposit{5}, aggregate.CommandKey("order 7"))
				wantErr(t, err, eventstore.ErrUnknown)
				if errors.Is(err, eventstore.ErrUnavailable) {
					t.Fatalf("unavailable says that nothing was written: %v", err)
				}
				for _, who := range []*executor{x, newExecutor(t, store, typ, nil), x} {
					res := execute(t, who, "alice", Deposit{5}, aggregate.CommandKey("order 7"))
					wantBalance(t, res.State, 5, 1)
				}
				if n := len(entries(t, store, alice)); n != 1 {
					t.Fatalf("%d events", n)
				}
			})
		})
	}
}

func TestUnknownEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := newStore(t)
		x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		log.next(landed, lost, lost, lost, lost, lost, lost, lost, lost, lost, lost)
		_, err := x.Execute(ctx, "alice", Deposit{5})
		wantErr(t, err, eventstore.ErrUnknown)
		wantErr(t, err, context.DeadlineExceeded)
	})
}

// The resent batch is the same one, to the byte.
func TestResendsTheSameBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := newStore(t)
		x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
		log.next(lost, lost)
		execute(t, x, "alice", Shift{[]int64{1, 2, 3}})
		if len(log.sent) != 3 {
			t.Fatalf("sent %d times", len(log.sent))
		}
		one := log.sent[0].Batches[0]
		for _, a := range log.sent[1:] {
			b := a.Batches[0]
			if b.ID != one.ID || eventstore.Digest(b.Stream, b.After, b.Events) != eventstore.Digest(one.Stream, one.After, one.Events) {
				t.Fatalf("sent %+v, then %+v", one, b)
			}
		}
	})
}

// A command with an ID, repeated: at once, from another process, after other
// commands, after a trim that removed it (A4).
func TestRepeatedCommand(t *testing.T) {
	store, _ := newStore(t)
	typ := accounts(aggregate.Snapshots{Every: 10})
	x := newExecutor(t, store, typ, nil)
	ctx := context.Background()
	execute(t, x, "alice", Open{"Alice"})
	id := aggregate.CommandID(eventstore.NewUUID())
	first := execute(t, x, "alice", Shift{[]int64{1, 2, 3}}, id)
	same := func(who *executor, trimmed bool) {
		t.Helper()
		res := execute(t, who, "alice", Shift{[]int64{1, 2, 3}}, id)
		if !res.Replayed || res.Mark != first.Mark || res.Token != first.Token {
			t.Fatalf("wanted %+v, found %+v", first, res)
		}
		if trimmed != (res.Events == nil) || !trimmed && !slices.Equal(res.Events, first.Events) {
			t.Fatalf("events %v", res.Events)
		}
	}
	same(x, false)
	same(newExecutor(t, store, typ, nil), false)
	for range 20 {
		execute(t, x, "alice", Deposit{1})
	}
	same(x, false)
	same(newExecutor(t, store, typ, nil), false)
	if r, err := store.Trim(ctx, alice, 10, false); err != nil || r.Trimmed != 10 {
		t.Fatalf("%+v, %v", r, err)
	}
	same(x, true)
	same(newExecutor(t, store, typ, nil), true)
	s, m, err := x.Load(ctx, "alice")
	if err != nil || m.Seqno != 24 {
		t.Fatalf("%v, %v", m, err)
	}
	wantBalance(t, s, 26, 24)
}

// Refusals and empty answers leave nothing behind to be repeated.
func TestRefusedCommandIsDecidedAnew(t *testing.T) {
	store, _ := newStore(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	id := aggregate.CommandKey("withdrawal")
	_, err := x.Execute(context.Background(), "alice", Withdraw{5}, id)
	wantErr(t, err, errFunds)
	execute(t, x, "alice", Deposit{5})
	if res := execute(t, x, "alice", Withdraw{5}, id); res.Replayed {
		t.Fatalf("%+v", res)
	}
}

// Two processes decide the same command at once: one effect, whoever is first, and
// both learn of it; also when they add different metadata and so write other content.
func TestSameCommandInTwoProcesses(t *testing.T) {
	for _, other := range []string{"a", "b"} {
		t.Run("correlation "+other, func(t *testing.T) {
			store, log := newStore(t)
			typ := accounts(aggregate.Snapshots{})
			x, rival := newExecutor(t, store, typ, nil), newExecutor(t, store, typ, nil)
			id := aggregate.CommandID(eventstore.NewUUID())
			var won result
			log.next(before(func() { won = execute(t, rival, "alice", Deposit{5}, id, aggregate.Correlation(other)) }, pass))
			res := execute(t, x, "alice", Deposit{5}, id, aggregate.Correlation("a"))
			if !res.Replayed || won.Replayed || res.Mark != won.Mark || res.Token != won.Token {
				t.Fatalf("won %+v, repeated %+v", won, res)
			}
			if ours, theirs := log.sent[0].Batches[0].ID, log.sent[1].Batches[0].ID; ours != theirs {
				t.Fatalf("the log cannot know the command: batches %v and %v", ours, theirs)
			}
			wantBalance(t, execute(t, x, "alice", Deposit{1}).State, 6, 2)
		})
	}
}

// trimAway makes n further events and a snapshot by another process, and trims.
func trimAway(t *testing.T, store *eventstore.Store, by *executor, n int) {
	t.Helper()
	for range n {
		execute(t, by, "alice", Deposit{1}, aggregate.CommandID(eventstore.NewUUID()))
	}
	m, err := by.Snapshot(context.Background(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	if r, err := store.Trim(context.Background(), alice, m.Seqno, false); err != nil || r.Trimmed != m.Seqno {
		t.Fatalf("%+v, %v", r, err)
	}
}

// The answer is lost, and before it is asked for the proof is trimmed.
func TestProofTrimmed(t *testing.T) {
	for _, there := range []bool{true, false} {
		for _, named := range []bool{true, false} {
			for _, many := range []bool{false, true} { // more commands since than are remembered
				t.Run(fmt.Sprintf("landed=%v/named=%v/forgotten=%v", there, named, many), func(t *testing.T) {
					proofTrimmed(t, there, named, many)
				})
			}
		}
	}
}

func proofTrimmed(t *testing.T, there, named, many bool) {
	store, log := newStore(t)
	typ := accounts(aggregate.Snapshots{RememberedIDs: 5})
	x, rival := newExecutor(t, store, typ, nil), newExecutor(t, store, typ, nil)
	var options []aggregate.CallOption
	if named {
		options = append(options, aggregate.CommandKey("order 7"))
	}
	n, first := 3, lost
	if many {
		n = 8
	}
	if there {
		first = landed
	}
	log.next(then(first, func() { trimAway(t, store, rival, n) }))
	res, err := x.Execute(context.Background(), "alice", Deposit{100}, options...)
	total := int64(n)
	switch {
	case named && !many: // found, or proved absent
		if err != nil || there != res.Replayed {
			t.Fatalf("%+v, %v", res, err)
		}
		total += 100
	case err == nil:
		t.Fatalf("a guess: %+v", res)
	default:
		wantErr(t, err, eventstore.ErrUnknown)
		if e, _ := errors.AsType[*eventstore.Error](err); !e.Unprovable {
			t.Fatalf("found %+v", e)
		}
		if there {
			total += 100
		}
	}
	s, _, err := rival.Load(context.Background(), "alice")
	if err != nil || s.Balance != total {
		t.Fatalf("balance %d, wanted %d, %v", s.Balance, total, err)
	}
}

// The same, and then the store cannot be read either: that is no answer about the
// batch, so the answer stays unknown.
func TestProofTrimmedAndUnreadable(t *testing.T) {
	store, log := newStore(t)
	typ := accounts(aggregate.Snapshots{})
	x, rival := newExecutor(t, store, typ, nil), newExecutor(t, store, typ, nil)
	down := &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "load", Stream: alice}
	log.next(then(landed, func() {
		trimAway(t, store, rival, 3)
		log.loading = func(eventstore.Stream) error { return down }
	}))
	_, err := x.Execute(context.Background(), "alice", Deposit{100}, aggregate.CommandKey("order 7"))
	wantErr(t, err, eventstore.ErrUnknown)
	if errors.Is(err, eventstore.ErrUnavailable) {
		t.Fatalf("unavailable says that nothing was written: %v", err)
	}
}

// A warm executor's first append meets a trimmed stream: it was never sent before,
// so there is nothing to prove.
func TestTrimmedBehindAWarmExecutor(t *testing.T) {
	for _, named := range []bool{true, false} {
		store, _ := newStore(t)
		typ := accounts(aggregate.Snapshots{})
		x, rival := newExecutor(t, store, typ, nil), newExecutor(t, store, typ, nil)
		execute(t, x, "alice", Deposit{1})
		trimAway(t, store, rival, 3)
		var options []aggregate.CallOption
		if named {
			options = append(options, aggregate.CommandKey("order 7"))
		}
		res := execute(t, x, "alice", Deposit{1}, options...)
		wantBalance(t, res.State, 5, 5)
	}
}

// Beyond the remembered IDs: found in the log, or its own error, never a second copy.
func TestForgottenCommand(t *testing.T) {
	store, _ := newStore(t)
	typ := accounts(aggregate.Snapshots{RememberedIDs: 5})
	x := newExecutor(t, store, typ, nil)
	ctx := context.Background()
	old := eventstore.NewUUID()
	first := execute(t, x, "alice", Shift{[]int64{1, 2}}, aggregate.CommandID(old))
	for range 10 {
		execute(t, x, "alice", Deposit{1}, aggregate.CommandID(eventstore.NewUUID()))
	}
	for _, who := range []*executor{x, newExecutor(t, store, typ, nil)} {
		res := execute(t, who, "alice", Shift{[]int64{1, 2}}, aggregate.CommandID(old))
		if !res.Replayed || res.Mark != first.Mark || len(res.Events) != 2 {
			t.Fatalf("found %+v", res)
		}
	}
	// As old by its ID, and never executed: the log tells.
	if res := execute(t, x, "alice", Deposit{1}, aggregate.CommandID(olderThan(old))); res.Replayed {
		t.Fatalf("found %+v", res)
	}
	trimAway(t, store, x, 1)
	for _, who := range []*executor{x, newExecutor(t, store, typ, nil)} {
		_, err := who.Execute(ctx, "alice", Shift{[]int64{1, 2}}, aggregate.CommandID(old))
		wantErr(t, err, aggregate.ErrForgotten)
	}
	// A newer ID cannot be among the forgotten, however much is trimmed.
	if res := execute(t, x, "alice", Deposit{1}, aggregate.CommandID(newerThan(eventstore.NewUUID()))); res.Replayed {
		t.Fatalf("found %+v", res)
	}
}

func olderThan(id eventstore.UUID) eventstore.UUID { id[0]--; return id }
func newerThan(id eventstore.UUID) eventstore.UUID { id[0]++; return id }
