// Dedicated streams as tables: creating, dropping, emptying, indexing them.

package pglog

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

const (
	// pagesPerRange is how many pages of a half one range of its index tells about: 256
	// KiB. A read looks at few pages that it does not want, and an index of 1 GiB of
	// entries has 4,096 ranges.
	pagesPerRange = 32

	// logsAtOnce is how many streams one transaction creates: two tables and two indexes
	// each, which must find room in the server's lock table (6,400 by default).
	logsAtOnce = 256

	lockPatience = "set local lock_timeout = '250ms'"
	dropAttempts = 10
)

// CreateStreams creates streams of dedicated categories. All that one category lacks,
// up to 256, take one round trip of DDL; for streams that exist no DDL is run. It waits
// for no append.
func (l *Log) CreateStreams(ctx context.Context, streams []eventstore.Stream) error {
	const op = "create streams"
	leave, err := l.enter(ctx, op, "")
	if err != nil {
		return err
	}
	defer leave()
	for range 2 {
		if err = l.createStreams(ctx, op, streams); !stale(err) {
			break
		}
		l.categories.forget()
	}
	return l.translate(op, "", err, writing)
}

func (l *Log) createStreams(ctx context.Context, op string, streams []eventstore.Stream) error {
	byCategory := map[category][]eventstore.Stream{}
	var order []category
	for _, s := range streams {
		c, err := l.number(ctx, l.pool, op, s.Category(), s)
		if err == nil && !c.dedicated {
			err = eventstore.NotDedicatedError(op, s)
		}
		if err != nil {
			return err
		}
		if byCategory[c] == nil {
			order = append(order, c)
		}
		byCategory[c] = append(byCategory[c], s)
	}
	for _, c := range order {
		all := byCategory[c]
		slices.Sort(all)
		created := 0
		for some := range slices.Chunk(slices.Compact(all), logsAtOnce) {
			n, err := l.createLogs(ctx, op, c, some)
			if err != nil {
				return err
			}
			created += n
		}
		if created > 0 {
			l.refreshPartitions(ctx, l.refreshLogs("_"+itoa(int64(c.id))))
		}
	}
	return nil
}

// refreshLogs is the statement of refreshPartitions for the parent of all categories
// or, with its suffix, of one.
func (l *Log) refreshLogs(suffix string) string {
	return strings.ReplaceAll(l.sql.logs.refresh, "{n}", suffix)
}

// createLogs creates the registry rows and tables of those that are missing, and
// returns how many that were. Nothing is locked if none is.
func (l *Log) createLogs(ctx context.Context, op string, c category, streams []eventstore.Stream) (created int, err error) {
	keys, slots := make([]string, len(streams)), make([]int16, len(streams))
	for i, s := range streams {
		keys[i], slots[i] = s.Key(), int16(s.Slot())
	}
	for range maxAttempts {
		err = l.inTx(ctx, op, "", func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, l.sql.logs.create, c.id, keys, slots, newRing.number())
			if err != nil {
				return err
			}
			ordinals, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			if created = len(ordinals); err != nil || created == 0 {
				return err
			}
			return l.createTables(ctx, tx, c.id, ordinals)
		})
		if pgCode(err) != codeDeadlock {
			break
		}
	}
	if err == nil && created == 0 && !l.exist(ctx, c, streams) {
		return 0, errStale // the category is gone
	}
	return created, err
}

// exist says if the category still is what it was when all its streams were there.
func (l *Log) exist(ctx context.Context, c category, streams []eventstore.Stream) bool {
	known, _, err := l.lookUp(ctx, l.pool, streams[0].Category())
	return err != nil || known.id == c.id
}

// createTables makes both halves of logs, in one round trip.
func (l *Log) createTables(ctx context.Context, tx pgx.Tx, category int32, ordinals []int64) error {
	var ddl strings.Builder
	for _, o := range ordinals {
		for half := range int64(2) {
			ddl.WriteString(strings.NewReplacer("{s}", l.schema, "{n}", itoa(int64(category)), "{t}", logTable(o, half), "{part}", itoa(part(o, half)), "{pages}", strconv.Itoa(pagesPerRange)).Replace(
				`create table {s}.{t} (like {s}.logs including storage);
create index {t}_seqno on {s}.{t} using brin (seqno) with (pages_per_range = {pages}, autosummarize = on);
alter table {s}.logs_{n} attach partition {s}.{t} for values in ({part});
`))
		}
	}
	_, err := tx.Conn().PgConn().Exec(ctx, ddl.String()).ReadAll()
	return err
}

func logTable(ordinal, half int64) string { return "log_" + itoa(ordinal) + "_" + itoa(half) }

// DropStream removes a stream of a dedicated category: at once from the registry, so
// that nobody finds it; its tables as soon as nobody reads or appends, for a quarter of
// a second at a time. If that takes more than some seconds, Reclaim does it later.
func (l *Log) DropStream(ctx context.Context, s eventstore.Stream) error {
	const op = "drop stream"
	err := l.change(ctx, op, s, func(q querier, c category) error {
		if !c.dedicated {
			return eventstore.NotDedicatedError(op, s)
		}
		var ordinal int64
		err := q.QueryRow(ctx, l.sql.logs.forget, c.id, s.Key()).Scan(&ordinal)
		if err == pgx.ErrNoRows {
			return l.readError(op, s, l.noSuchStream(ctx, q, op, c, s))
		}
		return err
	})
	if err != nil {
		return err
	}
	l.categories.forget()
	l.sweepLogs(ctx)
	return nil
}

// removeLogs takes a dedicated category and its streams out of the registry.
func (l *Log) removeLogs(ctx context.Context, op string, id int32) error {
	return l.on(ctx, op, "", func(q querier) error {
		var n int64
		if err := q.QueryRow(ctx, l.sql.logs.remove, id).Scan(&n); err != nil {
			return err
		}
		if n == 0 {
			return errStale
		}
		return nil
	})
}

// sweepLogs drops the tables of streams that are gone. What it leaves Reclaim finds.
func (l *Log) sweepLogs(ctx context.Context) {
	for attempts := 0; attempts < dropAttempts; {
		n, err := l.dropLogs(ctx)
		switch {
		case err == nil && n == 0:
			return
		case pgCode(err) == codeLockTimeout:
			if attempts++; pause(ctx, dropPause) != nil {
				return
			}
		case err != nil:
			l.logger.WarnContext(ctx, "tables of dropped streams left behind", "error", err)
			return
		}
	}
}

// dropLogs drops some tables of streams that are gone, and returns how many. The drop
// locks the parent, so appends to dedicated streams of the category (of any, when it is
// the category that is gone) wait for it: a short time, or for as long as it waits
// itself, a quarter of a second at most.
func (l *Log) dropLogs(ctx context.Context) (n int, err error) {
	tx, err := l.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	rows, err := tx.Query(ctx, l.sql.logs.orphans)
	if err != nil {
		return 0, err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) == 0 {
		return 0, err
	}
	for i, t := range tables {
		tables[i] = l.schema + "." + pgx.Identifier{t}.Sanitize()
	}
	if _, err := tx.Exec(ctx, lockPatience); err != nil {
		return 0, err
	}
	// Another process may have dropped some meanwhile.
	if _, err := tx.Conn().PgConn().Exec(ctx, "drop table if exists "+strings.Join(tables, ", ")).ReadAll(); err != nil {
		return 0, err
	}
	return len(tables), tx.Commit(ctx)
}

// emptyLog empties the half of a log that is dead, if nobody reads it just now; if
// somebody does, the next trim or Reclaim tries again.
func (l *Log) emptyLog(ctx context.Context, ordinal int64) (emptied bool) {
	err := l.tryEmpty(ctx, ordinal, &emptied)
	if err != nil && pgCode(err) != codeLockTimeout && pgCode(err) != codeUndefinedTable {
		l.logger.WarnContext(ctx, "a trimmed half was not emptied; Reclaim tries again", "ordinal", ordinal, "error", err)
	}
	return emptied && err == nil
}

// tryEmpty truncates the half left behind and turns the ring if that is due. While it
// holds the advisory lock nobody else sets the ring's full back, and while that is set
// no trim turns the ring: the half stays the one to empty.
func (l *Log) tryEmpty(ctx context.Context, ordinal int64, emptied *bool) error {
	tx, err := l.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	var mine bool
	var number, last, trimmed int64
	if err := tx.QueryRow(ctx, l.sql.logs.emptying, ordinal).Scan(&mine, &number, &trimmed); err != nil || !mine {
		return err
	}
	before := ringOf(number)
	if !before.dead(eventstore.Seqno(trimmed)) {
		return nil
	}
	b := &pgx.Batch{}
	b.Queue(lockPatience)
	b.Queue(raise)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	truncate := strings.ReplaceAll(ofLog(l.sql.logs.empty, ordinal), "{h}", itoa(1-before.half))
	if _, err := tx.Conn().PgConn().Exec(ctx, truncate).ReadAll(); err != nil {
		return err
	}
	if err := tx.QueryRow(ctx, l.sql.logs.lockRing, ordinal).Scan(&number, &last, &trimmed); err != nil {
		return err
	}
	after := before.emptied().turned(eventstore.Seqno(trimmed), eventstore.Seqno(last))
	if _, err := tx.Exec(ctx, l.sql.logs.setRing, ordinal, after.number()); err != nil {
		return err
	}
	*emptied = true
	return tx.Commit(ctx)
}
