// Hooks for the tests: texts of statements, an append that is handed to no store.

package pglog

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// AppendIn is AppendTx without a store around it.
func (l *Log) AppendIn(ctx context.Context, tx pgx.Tx, a eventstore.Append) (eventstore.Appended, error) {
	return l.appendInTx(ctx, tx, a)
}

// FeedStatements are the texts of the feed's three statements.
func (l *Log) FeedStatements() []string {
	return []string{l.sql.horizonLow, l.sql.horizonHeld, l.sql.feedAll}
}

// AppendStatement is the text of the append of one batch, with its arguments.
func (l *Log) AppendStatement(ctx context.Context, b *eventstore.Batch) (string, []any, error) {
	id, err := l.number(ctx, l.pool, "append", b.Stream.Category(), b.Stream)
	return l.sql.appendOne, oneArgs(b, id), err
}

// Queued is how many appends wait for a sender.
func (l *Log) Queued() int {
	l.senders.mu.Lock()
	defer l.senders.mu.Unlock()
	return len(l.senders.queue)
}

// ReclaimStatement is the text of a step of Reclaim in a category's table.
func (l *Log) ReclaimStatement(id int32) string { return of(l.sql.reclaim, id) }
