// Examine, the schema: which version and store it is, its sequence and tables, what of
// the pool it needs.

package pglog

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// schema checks the schema; of one that is absent or of another version no more than
// that.
func (x *examination) schema(ctx context.Context) {
	schema := x.log.schema
	var version *int64
	err := x.row(ctx, "select max(version_id) from "+schema+".wattle_version where is_applied").Scan(&version)
	wanted := "schema " + schema + " at version " + itoa(SchemaVersion)
	const hint = "run: wattle migrate up (an older wattle cannot use a newer schema)"
	switch code := pgCode(err); {
	case code == codeUndefinedTable || code == codeNoSchema || err == nil && version == nil:
		x.add("schema", eventstore.SeverityFault, wanted, "none", hint)
		return
	case err != nil:
		x.unseen("schema", err)
		return
	case *version != SchemaVersion:
		x.add("schema", eventstore.SeverityFault, wanted, "version "+itoa(*version), hint)
		return
	}
	x.ok("schema", "version "+itoa(*version))
	for _, part := range []func(context.Context){x.identity, x.sequence, x.compression, x.cache, x.locks, x.deadRows, x.waiting, x.holders} {
		part(ctx)
	}
}

// identity tells which store this is, and on which timeline of the server.
func (x *examination) identity(ctx context.Context) {
	var incarnation uuid
	var timeline *int64
	err := x.row(ctx, `select incarnation, case when not pg_is_in_recovery() then ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint end from `+
		x.log.schema+`.store`).Scan(&incarnation, &timeline)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		x.add("incarnation", eventstore.SeverityFault, "a row in table store", "none", "run: wattle verify")
	case err != nil:
		x.unseen("incarnation", err)
	case timeline == nil:
		x.ok("incarnation", fromUUID(incarnation).String())
	default:
		x.ok("incarnation", fmt.Sprintf("%v, timeline %d", fromUUID(incarnation), *timeline))
	}
}

// sequence checks the settings of the position sequence, and the right to use it.
func (x *examination) sequence(ctx context.Context) {
	var settings, usable bool
	err := x.row(ctx, x.log.sql.sequence).Scan(&settings, &usable)
	switch code := pgCode(err); {
	case code == codeUndefinedTable || errors.Is(err, pgx.ErrNoRows):
		x.add("sequence", eventstore.SeverityFault, "sequence "+x.log.schema+".position", "none", "run: wattle verify")
	case err != nil:
		x.unseen("sequence", err)
	case !usable:
		x.add("sequence", eventstore.SeverityFault, "USAGE on "+x.log.schema+".position", "none", "grant it to the role")
	default:
		x.want(settings, "sequence", eventstore.SeverityFault, "INCREMENT 1, CACHE 1, NO CYCLE, drawn from once", either(settings, "as it should be", "another setting"), hintSequence)
	}
}

// compression checks that payloads use lz4 where the server has it.
func (x *examination) compression(ctx context.Context) {
	var lz4, used bool
	err := x.row(ctx, `select coalesce('lz4' = any(s.enumvals), false), a.attcompression = 'l' from pg_settings s, pg_attribute a
where s.name = 'default_toast_compression' and a.attrelid = `+named(x.log.schema, "entries_0")+`::regclass and a.attname = 'data'`).Scan(&lz4, &used)
	if err != nil {
		x.unseen("compression", err)
		return
	}
	x.want(used || !lz4, "compression", eventstore.SeverityNote, "payloads compressed with lz4, as the server can", either(used, "lz4", "the server's default"),
		"ALTER TABLE … ALTER COLUMN data SET COMPRESSION lz4, of entries and each of its partitions; it counts for new entries")
}

// named is a table of a schema as an SQL string.
func named(schema, table string) string {
	return "'" + strings.ReplaceAll(schema+"."+table, "'", "''") + "'"
}

func (x *examination) categories(ctx context.Context) (n int64, err error) {
	err = x.row(ctx, `select count(*) from `+x.log.schema+`.categories`).Scan(&n)
	return n, err
}

// cache checks that the statements of all categories fit into a connection's cache.
func (x *examination) cache(ctx context.Context) {
	c := x.pool.Config().ConnConfig
	if c.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		x.ok("statement-cache", fmt.Sprintf("not used in query mode %q", c.DefaultQueryExecMode))
		return
	}
	n, err := x.categories(ctx)
	if err != nil {
		x.unseen("statement-cache", err)
		return
	}
	once, each := x.log.sql.count()
	need := once + each*n
	x.want(int64(c.StatementCacheCapacity) >= need, "statement-cache", eventstore.SeverityNote,
		fmt.Sprintf("room for %d statements, %d and %d for each of %d categories", need, once, each, n), fmt.Sprintf("for %d", c.StatementCacheCapacity),
		fmt.Sprintf("set statement_cache_capacity=%d if one process uses them all: what does not fit is prepared again each time", need))
}

// count is how many statements there are, once and for each category.
func (s *statements) count() (once, each int64) {
	v := reflect.ValueOf(*s)
	for i := range v.NumField() {
		if strings.Contains(v.Field(i).String(), "{n}") {
			each++
		} else {
			once++
		}
	}
	return once, each
}

// tableLocks are what a feed over all categories locks of each: the table, its two
// indexes, and those of its payloads' table that a plan may touch.
const tableLocks = 3

// locks checks that the lock table is large enough.
func (x *examination) locks(ctx context.Context) {
	n, err := x.categories(ctx)
	if err != nil {
		x.unseen("locks", err)
		return
	}
	size := x.number("max_locks_per_transaction") * (x.number("max_connections") + x.number("max_prepared_transactions"))
	need := tableLocks * (n + 3)
	x.want(need*2 <= size, "locks", eventstore.SeverityWarning, fmt.Sprintf("a lock table of at least %d, twice what one feed over %d categories locks", 2*need, n),
		itoa(size), "raise max_locks_per_transaction, and give feeds a filter: where it is full, every session fails")
}

// deadRows checks the tables of which rows are updated all the time.
func (x *examination) deadRows(ctx context.Context) {
	const allowed = 10_000 // beside as many as there are live ones
	var worst []string
	err := x.each(ctx, `select relname, n_live_tup, n_dead_tup from pg_stat_user_tables
where relid in (select c.oid from pg_class p join pg_class c on c.relnamespace = p.relnamespace
  where p.oid = `+named(x.log.schema, "entries")+`::regclass and c.relname in ('streams', 'holds', 'leases', 'checkpoints')) order by relname`, nil, func(r pgx.Rows) error {
		var table string
		var live, dead int64
		if err := r.Scan(&table, &live, &dead); err != nil {
			return err
		}
		if dead > allowed+live {
			worst = append(worst, fmt.Sprintf("%s has %d beside %d live ones", table, dead, live))
		}
		return nil
	})
	if err != nil {
		x.unseen("dead-rows", err)
		return
	}
	x.want(len(worst) == 0, "dead-rows", eventstore.SeverityWarning, fmt.Sprintf("at most %d dead rows and as many as live ones", allowed), either(len(worst) == 0, "few", strings.Join(worst, ", ")),
		"something keeps VACUUM from removing them: an old transaction (see oldest-transaction), or autovacuum is too slow; until then every append takes longer")
}

// waiting estimates what waits for Reclaim.
func (x *examination) waiting(ctx context.Context) {
	const few = 1000
	found, n := "", int64(0)
	err := x.each(ctx, `select k.name, greatest(t.n_live_tup - s.kept, 0), coalesce(pg_table_size(t.relid) * greatest(t.n_live_tup - s.kept, 0) / nullif(t.n_live_tup, 0), 0)::bigint
from (select id, name from `+x.log.schema+`.categories where trimmed_position > 0 and layout = 0) k
cross join lateral (select coalesce(sum(last_seqno - trimmed), 0)::bigint as kept from `+x.log.schema+`.streams where category = k.id) s
join pg_stat_user_tables t on t.relid = to_regclass(`+named(x.log.schema, "entries_")+` || k.id) order by 2 desc`, nil, func(r pgx.Rows) error {
		var name string
		var entries, bytes int64
		if err := r.Scan(&name, &entries, &bytes); err != nil {
			return err
		}
		if n += entries; found == "" {
			found = fmt.Sprintf("some %d entries, %d MiB of them in %s", entries, bytes>>20, name)
		}
		return nil
	})
	if err != nil {
		x.unseen("unreclaimed", err)
		return
	}
	x.want(n <= few, "unreclaimed", eventstore.SeverityNote, "trimmed entries to be reclaimed soon", either(n > few, found, "few"), "call Reclaim now and then; nobody can read them")
}
