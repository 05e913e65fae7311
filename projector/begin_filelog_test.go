// A rebuild from snapshots on files, across a restart of the store.

package projector_test

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/projector"
)

func TestRebuildFromSnapshotsOnFiles(t *testing.T) {
	for seed := range int64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng, dir := rand.New(rand.NewSource(seed)), t.TempDir()
			var w *world
			for round := range 4 {
				log, err := filelog.Open(dir, &filelog.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if w == nil {
					w = newWorld(t, log, rng)
				} else {
					w.store = eventstore.New(log, nil)
				}
				for range 40 {
					w.tick()
				}
				r := newReplica()
				o := &projector.Options{Snapshots: true, Categories: []eventstore.Category{"other"}, PageSize: 1 + rng.Intn(5), Lanes: 1 + round%3}
				for range 5 {
					if _, err := projector.New(w.store, "p", "account", r, o).CatchUp(t.Context(), 1); err != nil {
						t.Fatal(err)
					}
					w.tick()
				}
				catchUp(t, projector.New(w.store, "p", "account", r, o), 0)
				w.check(r, 1, false)
				if err := w.store.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
