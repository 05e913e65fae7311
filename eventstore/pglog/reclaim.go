// Reclaiming: the space of what has been trimmed, and what deleted categories left.

package pglog

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const opReclaim = "reclaim"

// Bounds of one step of a walk. A step takes more blocks as long as it is quick, and
// fewer when it is not (rows with large payloads outside the table).
const (
	stepTarget   = 20 * time.Millisecond
	maxBlocks    = 256  // 2 MiB of a table at the usual block size
	maxSnapshots = 1000 // looked at in one step
)

// Reclaimed is what a call of Reclaim has removed, and whether it came to the end.
type Reclaimed struct {
	Entries   int64 // trimmed entries
	Streams   int64 // registry rows of deleted categories
	Snapshots int64 // snapshots without a stream
	Halves    int64 // tables of dedicated streams, emptied or dropped
	More      bool  // there may be more: the budget ended, a table was in use, or another Reclaim is at it
}

// reclaimer remembers how far the walks of one Log are. Losing it loses no entry: a
// process that starts walks everything once.
type reclaimer struct {
	mu        sync.Mutex // held through a Reclaim
	walks     map[int32]*walk
	last      int32 // category walked last
	blocks    int64 // of the next step
	snapshots walkOfSnapshots
}

// walk goes once through the blocks of a category's table, from anywhere, and around.
type walk struct {
	token        string // of the category when the walk began
	at, size, to int64  // next block; blocks of the table; how many are left to walk
}

// walkOfSnapshots goes through the snapshots, once and after a category was deleted.
type walkOfSnapshots struct {
	behind int64
	done   bool
}

// Reclaim removes trimmed entries, which nobody can read any more, and what deleted
// categories left in the registry. It works in small steps, each a statement and a
// transaction of its own, for about budget (0: to the end) and rests between them for
// as long as they took, so it may run beside everything else: it locks nothing that an
// append, read, trim or hold waits for, and being ended anywhere does no harm. Call it
// now and then, and again soon while More is set. In one store one step is made at a
// time, whoever calls. A Log that trims calls it itself unless Options.ReclaimEvery is
// negative.
//
// Deleted rows become free space for new entries when PostgreSQL's autovacuum has
// passed; the file does not shrink.
//
// Every table that was trimmed since this Log last walked it is read once (a block and
// its registry rows at a time); a call when nothing was trimmed costs three queries. A
// walk begins at a random block, so that short-lived processes get everywhere too.
func (l *Log) Reclaim(ctx context.Context, budget time.Duration) (out Reclaimed, err error) {
	if !l.reclaimer.mu.TryLock() {
		return Reclaimed{More: true}, nil
	}
	defer l.reclaimer.mu.Unlock()
	r := &reclaiming{log: l, reclaimer: &l.reclaimer}
	if budget > 0 {
		r.until = time.Now().Add(budget)
	}
	err = r.run(ctx)
	return r.out, l.translate(opReclaim, "", err, reading)
}

// reclaiming is one call of Reclaim.
type reclaiming struct {
	*reclaimer
	log   *Log
	until time.Time // zero: no limit
	busy  bool      // a table was in use
	out   Reclaimed
}

func (r *reclaiming) run(ctx context.Context) error {
	leave, err := r.log.enter(ctx, opReclaim, "") // a closed log does nothing; see steps
	if err != nil {
		return err
	}
	leave()
	for _, part := range []func(context.Context) error{r.deletedCategories, r.orphanedSnapshots, r.logs, r.trimmedEntries} {
		if err := part(ctx); err != nil || r.out.More {
			return err
		}
	}
	r.out.More = r.busy
	return nil
}

// steps makes steps until one says that there is nothing left, or the time is up. The
// first one is always made. The log is entered for each alone: Close waits for a step,
// not for the whole.
func (r *reclaiming) steps(ctx context.Context, step func() (left bool, err error)) error {
	for {
		leave, err := r.log.enter(ctx, opReclaim, "")
		if err != nil {
			return err
		}
		start := time.Now()
		left, err := step()
		leave()
		if err != nil || !left || r.out.More {
			return err
		}
		took := time.Since(start)
		if !r.until.IsZero() && time.Now().Add(took).After(r.until) {
			r.out.More = true
			return nil
		}
		if err := pause(ctx, took); err != nil {
			return err
		}
	}
}

// deletedCategories removes the registry rows of categories that are gone.
func (r *reclaiming) deletedCategories(ctx context.Context) error {
	rows, err := r.log.pool.Query(ctx, r.log.sql.orphans)
	if err != nil {
		return err
	}
	var gone []int32
	for rows.Next() {
		var id int32
		if err := rows.Scan(&id); err != nil {
			rows.Close()
			return err
		}
		gone = append(gone, id)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, id := range gone {
		r.snapshots = walkOfSnapshots{}
		err := r.steps(ctx, func() (bool, error) {
			var n int64
			err := r.log.pool.QueryRow(ctx, r.log.sql.deleteStreams, id).Scan(&n)
			r.out.Streams += n
			return n > 0, err
		})
		if err != nil || r.out.More {
			return err
		}
	}
	return nil
}

// orphanedSnapshots removes snapshots saved while their category was being deleted.
func (r *reclaiming) orphanedSnapshots(ctx context.Context) error {
	if r.snapshots.done {
		return nil
	}
	return r.steps(ctx, func() (bool, error) {
		var looked, last, deleted int64
		err := r.log.pool.QueryRow(ctx, r.log.sql.reclaimSnapshots, r.snapshots.behind, maxSnapshots).Scan(&looked, &last, &deleted)
		if err != nil {
			return false, err
		}
		r.out.Snapshots += deleted
		r.snapshots = walkOfSnapshots{behind: last, done: looked < maxSnapshots}
		return !r.snapshots.done, nil
	})
}

// logs empties the dead halves of dedicated streams and drops the tables of those that
// are gone.
func (r *reclaiming) logs(ctx context.Context) error {
	var dead []int64
	var orphans bool
	if err := r.log.pool.QueryRow(ctx, r.log.sql.logs.emptiable).Scan(&dead, &orphans); err != nil {
		return err
	}
	for len(dead) > 0 {
		err := r.steps(ctx, func() (bool, error) {
			if r.log.emptyLog(ctx, dead[0]) {
				r.out.Halves++
			} else {
				r.busy = true
			}
			dead = dead[1:]
			return len(dead) > 0, nil
		})
		if err != nil || r.out.More {
			return err
		}
	}
	if !orphans {
		return nil
	}
	return r.steps(ctx, func() (bool, error) {
		n, err := r.log.dropLogs(ctx)
		if pgCode(err) == codeLockTimeout {
			r.busy = true
			return false, nil
		}
		r.out.Halves += int64(n)
		return n > 0, err
	})
}

// trimmedEntries walks the tables that were trimmed since they were walked last.
func (r *reclaiming) trimmedEntries(ctx context.Context) error {
	ids, err := r.due(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		w := r.walks[id]
		r.last = id
		err := r.steps(ctx, func() (bool, error) { return r.step(ctx, id, w) })
		if pgCode(err) == codeUndefinedTable { // the category was deleted
			delete(r.walks, id)
			continue
		}
		if err != nil || r.out.More {
			return err
		}
	}
	return nil
}

// due returns the categories to walk, beginning with the one that the last call left
// unfinished or the one behind it, so that none waits for ever.
func (r *reclaiming) due(ctx context.Context) (ids []int32, err error) {
	rows, err := r.log.pool.Query(ctx, r.log.sql.reclaimable)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	old := r.walks
	r.walks = map[int32]*walk{} // those of deleted categories are dropped
	for rows.Next() {
		var id int32
		var token string
		var blocks int64
		if err := rows.Scan(&id, &token, &blocks); err != nil {
			return nil, err
		}
		w := old[id]
		if w == nil || w.to == 0 && w.token != token {
			w = &walk{token: token, size: blocks, to: blocks}
			if blocks > 0 {
				w.at = rand.Int64N(blocks)
			}
		}
		if r.walks[id] = w; w.to > 0 {
			ids = append(ids, id)
		}
	}
	if err := rows.Err(); err != nil {
		r.walks = old
		return nil, err
	}
	at, here := slices.BinarySearch(ids, r.last)
	if here && r.walks[r.last].to == r.walks[r.last].size {
		at++ // it was finished and is due anew
	}
	return append(slices.Clone(ids[at:]), ids[:at]...), nil
}

// step walks some blocks of a table, up to its end at most.
func (r *reclaiming) step(ctx context.Context, id int32, w *walk) (left bool, err error) {
	r.blocks = max(r.blocks, 1)
	n := min(r.blocks, w.to, w.size-w.at)
	start := time.Now()
	var mine bool
	var deleted int64
	err = r.log.pool.QueryRow(ctx, of(r.log.sql.reclaim, id), w.at, w.at+n, id).Scan(&mine, &deleted)
	if err != nil {
		return false, err
	}
	if !mine {
		r.out.More = true
		return true, nil
	}
	r.out.Entries += deleted
	w.to -= n
	w.at = (w.at + n) % w.size
	switch took := time.Since(start); {
	case took < stepTarget/2:
		r.blocks = min(r.blocks*2, maxBlocks)
	case took > stepTarget:
		r.blocks = max(r.blocks/2, 1)
	}
	return w.to > 0, nil
}
