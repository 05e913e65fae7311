// An application on a store in files.

package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/projector"
)

// files opens a store in small segments, as each process of an application does anew.
func files(t *testing.T, dir string) *eventstore.Store {
	t.Helper()
	log, err := filelog.Open(dir, &filelog.Options{SegmentBytes: 8 << 10, ReclaimEvery: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(log, nil)
	t.Cleanup(func() { s.Close() })
	return s
}

func executorOn(t *testing.T, s *eventstore.Store, typ aggregate.Type[int64, int64, deposited]) *aggregate.Executor[int64, int64, deposited] {
	t.Helper()
	x, err := aggregate.NewExecutor(t.Context(), s, typ, &aggregate.Options{Retries: 200})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestFilesManyExecutors is case A1 on files: as many acks as events, whoever decides.
func TestFilesManyExecutors(t *testing.T) {
	s := files(t, t.TempDir())
	const executors, commands = 5, 20
	var acks atomic.Int64
	var group sync.WaitGroup
	for range executors {
		x := executorOn(t, s, account)
		group.Go(func() {
			for range commands {
				if _, err := x.Execute(t.Context(), "alice", 1); err != nil {
					t.Error(err)
					return
				}
				acks.Add(1)
			}
		})
	}
	group.Wait()
	h, err := s.Head(t.Context(), "account-alice")
	if err != nil || acks.Load() != executors*commands || h.Last.Seqno != executors*commands {
		t.Errorf("%d acks, head %v (%v), want %d of each", acks.Load(), h.Last, err, executors*commands)
	}
}

// TestFilesReopened: state, snapshots, remembered commands (case A4) and checkpoints
// stand in a store that is closed and opened, trimmed and rewritten; a fold that changed
// its meaning does not use the old snapshot (case T1).
func TestFilesReopened(t *testing.T) {
	dir := t.TempDir()
	typ := account
	typ.Snapshots = aggregate.Snapshots{Every: 10}
	sum, seen := int64(0), 0
	model := projector.Memory(events, func(_ context.Context, e projector.Event[deposited]) error {
		sum += e.Value.Amount
		seen++
		return nil
	})
	const rounds, each = 4, 25
	for round := range rounds {
		s := files(t, dir)
		x := executorOn(t, s, typ)
		var token eventstore.Token
		for i := range each {
			key := fmt.Sprintf("deposit %d", round*each+i)
			for range 2 { // delivered twice, decided once
				res, err := x.Execute(t.Context(), "alice", 1, aggregate.CommandKey(key))
				if err != nil || res.State != int64(round*each+i+1) {
					t.Fatalf("%s: %+v, %v", key, res, err)
				}
				token = res.Token
			}
		}
		if _, err := x.Execute(t.Context(), "alice", 1, aggregate.CommandKey("deposit 0")); err != nil {
			t.Fatal(err)
		}
		p := projector.New(s, "sums", "account", model, nil)
		if _, err := p.CatchUp(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if want := (round + 1) * each; seen != want || sum != int64(want) {
			t.Fatalf("round %d: %d events seen, sum %d, want %d, token %v", round, seen, sum, want, token)
		}
		if _, err := s.Trim(t.Context(), "account-alice", eventstore.Seqno(round*each+20), false); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := files(t, dir)
	balance, _, err := executorOn(t, s, typ).Load(t.Context(), "alice")
	if err != nil || balance != rounds*each {
		t.Errorf("loaded %d, %v, want %d", balance, err, rounds*each)
	}
	typ.Snapshots.Version = 1
	if _, _, err := executorOn(t, s, typ).Load(t.Context(), "alice"); err == nil {
		t.Error("a snapshot of another fold was used on a trimmed stream")
	}
}
