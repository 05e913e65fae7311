// Hooks for the tests: texts of statements, an append that is handed to no store.

package pglog

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// AppendIn is AppendTx without a store around it.
func (l *Log) AppendIn(ctx context.Context, tx pgx.Tx, a eventstore.Append) (eventstore.Appended, error) {
	return l.appendInTx(ctx, tx, a)
}

// AppendStatement is the text of the append of one batch, with its arguments.
func (l *Log) AppendStatement(ctx context.Context, b *eventstore.Batch) (string, []any, error) {
	c, err := l.number(ctx, l.pool, "append", b.Stream.Category(), b.Stream)
	return l.sql.plain.one, oneArgs(b, c.id), err
}

// Queued is how many appends wait for a sender.
func (l *Log) Queued() int {
	l.senders.mu.Lock()
	defer l.senders.mu.Unlock()
	return len(l.senders.queue)
}

// ReclaimStatement is the text of a step of Reclaim in a category's table.
func (l *Log) ReclaimStatement(id int32) string { return of(l.sql.reclaim, id) }

// LogStatements are the texts that read a dedicated stream, each with arguments to read
// n entries behind after.
func (l *Log) LogStatements(ctx context.Context, s eventstore.Stream, after eventstore.Seqno, n int) (map[string]string, error) {
	c, err := l.number(ctx, l.pool, "read", s.Category(), s)
	if err != nil {
		return nil, err
	}
	o, err := l.ordinalOf(ctx, l.pool, "read", c, s)
	fill := func(sql string, args ...int64) string {
		sql = ofLog(sql, o)
		for i, a := range append([]int64{o}, args...) {
			sql = strings.ReplaceAll(sql, "$"+itoa(int64(i+1))+"::bigint", itoa(a))
		}
		return strings.ReplaceAll(sql, "$2::text", "'v1'")
	}
	from, to := int64(after), int64(after)+int64(n)
	return map[string]string{
		"page": fill(l.sql.logs.page, from, to), "around": fill(l.sql.logs.around, from+1, to), "backward": fill(l.sql.logs.backward, to+1, int64(n)),
		"load": fill(l.sql.logs.loadTail, 0, int64(n)), "marked": fill(l.sql.logs.marked, to),
	}, err
}

// IndexOnly is what every read of a dedicated stream begins with.
const IndexOnly = indexOnly

// LogTables are the names of a dedicated stream's tables, with the schema.
func (l *Log) LogTables(ctx context.Context, s eventstore.Stream) (tables [2]string, err error) {
	c, err := l.number(ctx, l.pool, "read", s.Category(), s)
	if err != nil {
		return tables, err
	}
	o, err := l.ordinalOf(ctx, l.pool, "read", c, s)
	for half := range tables {
		tables[half] = l.schema + "." + logTable(o, int64(half))
	}
	return tables, err
}

// Indexed waits until what runs beside appends to dedicated streams has ended.
func (l *Log) Indexed() { l.indexer.running.Wait() }

// What Examine makes of a clock and a version that no test can have.
var (
	ClockFinding   = clockFinding
	VersionFinding = versionFinding
)
