// The index of a log: ranges of pages with their lowest and highest seqno (BRIN). It
// costs an append nothing, but a range is in it only once it has been summarised; until
// then every read looks at it. So whoever appends much summarises, beside his appends.

package pglog

import (
	"context"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// summariseBytes is how much a process appends to a log before it summarises: four
// ranges.
const summariseBytes = 4 * pagesPerRange * 8192

// indexer knows what this process has appended to logs since it last summarised.
type indexer struct {
	mu      sync.Mutex
	grown   map[eventstore.Stream]*growth
	running sync.WaitGroup
}

type growth struct {
	bytes int
	busy  bool
	next  [2]int64 // first block that may not be summarised, of each half
}

// grown notes a batch that was written, and summarises in the background when much
// has come together.
func (l *Log) grown(b *eventstore.Batch) {
	if !l.isDedicated(b.Stream) {
		return
	}
	n := 0
	for i := range b.Events {
		n += 128 + len(b.Events[i].Data)
	}
	x := &l.indexer
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.grown == nil || len(x.grown) >= maxOrdinals {
		x.grown = map[eventstore.Stream]*growth{}
	}
	g := x.grown[b.Stream]
	if g == nil {
		g = &growth{}
		x.grown[b.Stream] = g
	}
	if g.bytes += n; g.bytes < summariseBytes || g.busy {
		return
	}
	g.bytes, g.busy = 0, true
	s := b.Stream
	x.running.Go(func() {
		l.summarise(s, g)
		x.mu.Lock()
		defer x.mu.Unlock()
		g.busy = false
	})
}

// summariseTimeout bounds the work beside appends; what is left is done the next time.
const summariseTimeout = 5 * time.Second

// summarise brings the full ranges of both halves into their indexes. It waits for
// nobody: a vacuum of the table may be at it.
func (l *Log) summarise(s eventstore.Stream, g *growth) {
	ctx, cancel := context.WithTimeout(context.Background(), summariseTimeout)
	defer cancel()
	c, _ := l.categories.get(s.Category())
	ordinal, err := l.ordinalOf(ctx, l.pool, "index", c, s)
	if err != nil {
		return // dropped, or the server is away: another time
	}
	for half := range int64(2) {
		table := l.schema + "." + logTable(ordinal, half)
		last, n, err := l.summariseHalf(ctx, table, g.next[half])
		if err != nil {
			if code := pgCode(err); code != codeLockTimeout && code != codeUndefinedTable {
				l.logger.WarnContext(ctx, "index of a log not brought up to date; reads of its newest entries are slower", "table", table, "error", err)
			}
			return
		}
		if g.next[half] = last; n == 0 {
			g.next[half] = 0 // emptied since
		}
	}
}

// summariseHalf returns the block of the last full range, and how many ranges it looked at.
func (l *Log) summariseHalf(ctx context.Context, table string, from int64) (last, looked int64, err error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Release()
	o := &oneOffs{}
	o.add("select set_config('lock_timeout', '250ms', true)")
	o.add(l.sql.logs.summarise, table, table+"_seqno", from)
	err = o.send(ctx, conn.Conn(), func(r *results) error {
		if err := r.skip(); err != nil {
			return err
		}
		return r.row(&last, &looked)
	})
	return last, looked, err
}
