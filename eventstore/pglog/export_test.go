// Hooks for the tests: an append inside a transaction that is held open.

package pglog

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// AppendIn appends inside tx, taking the feed's lock once per transaction.
func (l *Log) AppendIn(ctx context.Context, tx pgx.Tx, a eventstore.Append) (eventstore.Appended, error) {
	done, err := l.appendOn(ctx, tx, a, l.sql.appendOneInTx, l.sql.appendAllInTx)
	return done, l.translate("append", a.Batches[0].Stream, err, reading)
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
