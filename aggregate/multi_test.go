// One command over several streams: all or nothing, guards, once only.

package aggregate_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
)

// transfer moves an amount if the third stream, which is only read, is empty.
func transfer(amount int64) func(map[string]State) (map[string][]Event, error) {
	return func(s map[string]State) (map[string][]Event, error) {
		if s["alice"].Balance < amount || s["frozen"].Events > 0 {
			return nil, errFunds
		}
		return map[string][]Event{"alice": {Withdrawn{amount}}, "bob": {Deposited{amount}}}, nil
	}
}

var three = []string{"bob", "frozen", "alice"}

func multi(t *testing.T, x *executor, amount int64, o ...aggregate.CallOption) map[string]result {
	t.Helper()
	res, err := x.ExecuteMulti(context.Background(), three, transfer(amount), o...)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestMultiWritesAllAndGuardsTheRest(t *testing.T) {
	store, log := newStore(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	execute(t, x, "alice", Deposit{100})
	res := multi(t, x, 30)
	wantBalance(t, res["alice"].State, 70, 2)
	wantBalance(t, res["bob"].State, 30, 1)
	if f := res["frozen"]; f.Mark.Seqno != 0 || f.Events != nil || f.Token != res["bob"].Token || f.Token.Position == 0 {
		t.Fatalf("found %+v", f)
	}
	sent := log.sent[len(log.sent)-1]
	if len(sent.Batches) != 2 || len(sent.Guards) != 1 || sent.Guards[0].Stream != "account-frozen" || sent.Batches[0].ID == sent.Batches[1].ID {
		t.Fatalf("sent %+v", sent)
	}
	_, loads, _ := log.count()
	wantBalance(t, multi(t, x, 30)["alice"].State, 40, 3) // all three are warm
	if _, l, _ := log.count(); l != loads {
		t.Fatalf("%d further loads", l-loads)
	}
}

// A rival moves the guarded stream, a written one, or both; nothing is half done.
func TestMultiIsRefusedAsAWhole(t *testing.T) {
	for _, key := range []string{"frozen", "alice", "bob"} {
		t.Run(key, func(t *testing.T) {
			store, log := newStore(t)
			typ := accounts(aggregate.Snapshots{})
			x, rival := newExecutor(t, store, typ, nil), newExecutor(t, store, typ, nil)
			execute(t, x, "alice", Deposit{100})
			log.next(before(func() { execute(t, rival, key, Deposit{1}) }, pass))
			res, err := x.ExecuteMulti(context.Background(), three, transfer(30))
			if key == "frozen" {
				wantErr(t, err, errFunds)
				if n := len(entries(t, store, "account-bob")) + len(entries(t, store, alice)); n != 1 {
					t.Fatalf("%d events", n)
				}
				return
			}
			if err != nil || res["alice"].Retries != 1 {
				t.Fatalf("%+v, %v", res, err)
			}
			if n := len(entries(t, store, "account-bob")) + len(entries(t, store, alice)); n != 4 {
				t.Fatalf("%d events", n)
			}
		})
	}
}

// A refusal over several streams is true at one moment: their states were read one
// after another, so the heads are looked at.
func TestMultiRefusalOnOldState(t *testing.T) {
	store, _ := newStore(t)
	typ := accounts(aggregate.Snapshots{})
	x, rival := newExecutor(t, store, typ, nil), newExecutor(t, store, typ, nil)
	_, err := x.ExecuteMulti(context.Background(), three, transfer(30))
	wantErr(t, err, errFunds)
	execute(t, rival, "alice", Deposit{100})
	wantBalance(t, multi(t, x, 30)["bob"].State, 30, 1)
}

// States read while money moved between them belong to no moment: what is refused on
// them is decided again.
func TestMultiRefusalOnStatesOfTwoMoments(t *testing.T) {
	store, log := newStore(t)
	typ := accounts(aggregate.Snapshots{})
	x, rival := newExecutor(t, store, typ, nil), newExecutor(t, store, typ, nil)
	execute(t, rival, "alice", Deposit{100})
	log.loading = func(s eventstore.Stream) error {
		if s == alice {
			log.loading = nil
			multi(t, rival, 100)
		}
		return nil
	}
	sum := int64(0)
	res, err := x.ExecuteMulti(context.Background(), []string{"alice", "bob"}, func(s map[string]State) (map[string][]Event, error) {
		if sum = s["alice"].Balance + s["bob"].Balance; sum != 100 {
			return nil, fmt.Errorf("there are %d", sum)
		}
		return nil, nil
	})
	if err != nil || res["bob"].Retries != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
}

func TestMultiLostAnswersAndRepeats(t *testing.T) {
	for i, faults := range [][]fault{{landed}, {lost}, {landed, unavailable, lost}, {lost, lost, landed}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, log := newStore(t)
				typ := accounts(aggregate.Snapshots{})
				x := newExecutor(t, store, typ, nil)
				execute(t, x, "alice", Deposit{100})
				id := aggregate.CommandID(eventstore.NewUUID())
				log.next(faults...)
				first := multi(t, x, 30, id)
				for _, who := range []*executor{x, newExecutor(t, store, typ, nil)} {
					again := multi(t, who, 30, id)
					for _, key := range three {
						a, f := again[key], first[key]
						if !a.Replayed || f.Replayed || a.Mark != f.Mark || a.Token != f.Token || len(a.Events) != len(f.Events) {
							t.Fatalf("%s: first %+v, again %+v", key, f, a)
						}
					}
				}
				// The same command, sent to one of its streams.
				if res := execute(t, x, "bob", Deposit{30}, id); !res.Replayed || res.Mark != first["bob"].Mark {
					t.Fatalf("found %+v", res)
				}
				if n := len(entries(t, store, "account-bob")) + len(entries(t, store, alice)); n != 3 {
					t.Fatalf("%d events", n)
				}
			})
		})
	}
}

// The answer is lost; then the guard fails. Whether the append went through while the
// guard held has to be found out, not guessed.
func TestMultiLostAnswerThenGuardFails(t *testing.T) {
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
			log.next(then(first, func() { execute(t, rival, "frozen", Deposit{1}) }))
			res, err := x.ExecuteMulti(context.Background(), three, transfer(30))
			if there {
				if err != nil || res["bob"].Mark.Seqno != 1 {
					t.Fatalf("%+v, %v", res, err)
				}
				return
			}
			wantErr(t, err, errFunds)
		})
	}
}

// The same, when the proof has been trimmed meanwhile: never decided again.
func TestMultiLostAnswerTrimmedAndGuardFails(t *testing.T) {
	store, log := newStore(t)
	typ := accounts(aggregate.Snapshots{})
	x, rival := newExecutor(t, store, typ, nil), newExecutor(t, store, typ, nil)
	execute(t, x, "alice", Deposit{100})
	log.next(then(landed, func() {
		execute(t, rival, "frozen", Deposit{1})
		for _, key := range []string{"alice", "bob"} {
			m := execute(t, rival, key, Deposit{1}).Mark
			if _, err := rival.Snapshot(context.Background(), key); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Trim(context.Background(), eventstore.Stream("account-"+key), m.Seqno, false); err != nil {
				t.Fatal(err)
			}
		}
	}))
	_, err := x.ExecuteMulti(context.Background(), three, transfer(30))
	wantErr(t, err, eventstore.ErrUnknown)
}

func TestMultiForeignKey(t *testing.T) {
	store, _ := newStore(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	_, err := x.ExecuteMulti(context.Background(), []string{"a"}, func(map[string]State) (map[string][]Event, error) {
		return map[string][]Event{"a": {Deposited{1}}, "b": {Deposited{1}}}, nil
	})
	wantErr(t, err, eventstore.ErrInvalid)
}

func TestMultiExpectedMarks(t *testing.T) {
	store, _ := newStore(t)
	x := newExecutor(t, store, accounts(aggregate.Snapshots{}), nil)
	at := execute(t, x, "alice", Deposit{100}).Mark
	multi(t, x, 30, aggregate.ExpectOf("alice", at), aggregate.ExpectOf("frozen", eventstore.Mark{}))
	_, err := x.ExecuteMulti(context.Background(), three, transfer(30), aggregate.ExpectOf("alice", at))
	wantErr(t, err, eventstore.ErrAlreadyWritten)
}

// Money neither appears nor disappears, whoever moves it, in both directions at once.
func TestMultiTransfersConserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := eventstore.New(memlog.New(nil), nil)
		typ := accounts(aggregate.Snapshots{Every: 5})
		executors := []*executor{newExecutor(t, store, typ, &aggregate.Options{Retries: 200}), newExecutor(t, store, typ, &aggregate.Options{Retries: 200})}
		keys := []string{"a", "b", "c"}
		for _, k := range keys {
			execute(t, executors[0], k, Deposit{1000})
		}
		var group sync.WaitGroup
		for i := range 30 {
			from, to := keys[i%3], keys[(i+1+i%2)%3]
			group.Go(func() {
				_, err := executors[i%2].ExecuteMulti(t.Context(), []string{from, to}, func(s map[string]State) (map[string][]Event, error) {
					return map[string][]Event{from: {Withdrawn{int64(i)}}, to: {Deposited{int64(i)}}}, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		var sum int64
		count := 0
		for _, k := range keys {
			s, _, err := executors[1].Load(t.Context(), k)
			if err != nil {
				t.Fatal(err)
			}
			sum, count = sum+s.Balance, count+s.Events
		}
		if sum != 3000 || count != 63 {
			t.Fatalf("balance %d after %d events", sum, count)
		}
	})
}
