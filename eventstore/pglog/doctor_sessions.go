// Examine, sessions: who holds up what for how long.

package pglog

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// sessions checks for whatever keeps old rows from being removed: it slows the rows that
// every append updates.
func (x *examination) sessions(ctx context.Context) {
	x.seen(ctx)
	x.transactions(ctx)
	x.prepared(ctx)
	x.slots(ctx)
}

// seen checks whether sessions of other roles show.
func (x *examination) seen(ctx context.Context) {
	var all bool
	if err := x.row(ctx, `select pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')`).Scan(&all); err != nil {
		x.unseen("sessions", err)
		return
	}
	x.want(all, "sessions", eventstore.SeverityNote, "to see the sessions of all roles", either(all, "all are seen", "only those of this role"), "grant pg_read_all_stats to it, or examine as another role")
}

// patience is the HolderTTL, the default where the watchdog is off.
func (x *examination) patience() time.Duration {
	if x.log.holderTTL < 0 {
		return eventstore.DefaultLeaseTTL
	}
	return x.log.holderTTL
}

const hintOld = "end it (pg_terminate_backend) or make it shorter: while it is open no row version can be removed, and every append looks at all those of its stream"

// transactions names the oldest open transactions.
func (x *examination) transactions(ctx context.Context) {
	limit := snapshotTTLs * x.patience()
	found, err := x.ages(ctx, `select 'pid ' || pid || ' of ' || coalesce(usename, '?') || coalesce(' (' || nullif(application_name, '') || ')', '') || ', ' || coalesce(state, '?'),
  extract(epoch from clock_timestamp() - xact_start)::float8
from pg_stat_activity where xact_start is not null and pid <> pg_backend_pid() and backend_type in ('client backend', 'walsender', 'background worker', 'parallel worker')
  and (backend_xmin is not null or backend_xid is not null or state like 'idle in transaction%')
  and clock_timestamp() - xact_start > $1::bigint * interval '1 microsecond' order by xact_start limit 5`, limit.Microseconds())
	if err != nil {
		x.unseen("oldest-transaction", err)
		return
	}
	x.want(found == "", "oldest-transaction", eventstore.SeverityWarning, "no transaction open for longer than "+limit.String(), either(found == "", "none is old", found), hintOld)
}

// ages joins what a query names with its age.
func (x *examination) ages(ctx context.Context, sql string, args ...any) (string, error) {
	var all []string
	err := x.each(ctx, sql, args, func(r pgx.Rows) error {
		var what string
		var age float64
		if err := r.Scan(&what, &age); err != nil {
			return err
		}
		all = append(all, fmt.Sprintf("%s for %v", what, time.Duration(age*float64(time.Second)).Round(time.Millisecond)))
		return nil
	})
	return strings.Join(all, "; "), err
}

// prepared names transactions that were prepared and forgotten.
func (x *examination) prepared(ctx context.Context) {
	limit := x.patience()
	found, err := x.ages(ctx, `select 'transaction ' || quote_literal(gid) || ' of ' || owner || ' in ' || database, extract(epoch from clock_timestamp() - prepared)::float8
from pg_prepared_xacts where clock_timestamp() - prepared > $1::bigint * interval '1 microsecond' order by prepared limit 5`, limit.Microseconds())
	if err != nil {
		x.unseen("prepared-transactions", err)
		return
	}
	x.want(found == "", "prepared-transactions", eventstore.SeverityWarning, "none prepared for longer than "+limit.String(), either(found == "", "none", found),
		"COMMIT PREPARED or ROLLBACK PREPARED: it survives restarts and keeps row versions from being removed")
}

// slotAge is by how many transactions a slot that is read may lag.
const slotAge = 1_000_000

// slots names replication slots that hold row versions back.
func (x *examination) slots(ctx context.Context) {
	var all []string
	err := x.each(ctx, `select slot_name, active, greatest(coalesce(age(xmin), 0), coalesce(age(catalog_xmin), 0)) from pg_replication_slots
where xmin is not null or catalog_xmin is not null order by 3 desc limit 5`, nil, func(r pgx.Rows) error {
		var name string
		var active bool
		var age int64
		if err := r.Scan(&name, &active, &age); err != nil {
			return err
		}
		if !active || age > slotAge {
			all = append(all, fmt.Sprintf("slot %q (%s) for %d transactions", name, either(active, "active", "not active"), age))
		}
		return nil
	})
	if err != nil {
		x.unseen("replication-slots", err)
		return
	}
	x.want(len(all) == 0, "replication-slots", eventstore.SeverityWarning, "no slot that holds old row versions without being read", either(len(all) == 0, "none", strings.Join(all, "; ")),
		"drop it (pg_drop_replication_slot) if nobody will read it again: it keeps row versions and log files")
}

// holders names who holds the feed back, prepared transactions too.
func (x *examination) holders(ctx context.Context) {
	limit := x.patience()
	if x.standby {
		return
	}
	seq := named(x.log.schema, "position") + "::regclass"
	found, err := x.ages(ctx, `select coalesce('pid ' || l.pid || coalesce(' (' || nullif(a.application_name, '') || ')', '') || ', ' || coalesce(a.state, '?'), 'prepared transaction ' || quote_literal(p.gid), '?'),
  extract(epoch from clock_timestamp() - coalesce(a.xact_start, p.prepared))::float8
from pg_locks l left join pg_stat_activity a on a.pid = l.pid
left join pg_locks x on l.pid is null and x.pid is null and x.locktype = 'transactionid' and x.virtualtransaction = l.virtualtransaction
left join pg_prepared_xacts p on p.transaction = x.transactionid
where l.locktype = 'advisory' and l.objsubid = 2 and l.mode = 'ShareLock' and l.granted and l.classid = `+seq+`::oid
  and l.database = (select oid from pg_database where datname = current_database())
  and clock_timestamp() - coalesce(a.xact_start, p.prepared) > $1::bigint * interval '1 microsecond' order by 2 desc limit 5`, limit.Microseconds())
	if err != nil {
		x.unseen("feed-holders", err)
		return
	}
	x.want(found == "", "feed-holders", eventstore.SeverityFault, "no append under way for longer than "+limit.String(), either(found == "", "none", found),
		"end it: readers of the feed see nothing that was appended since (a reader ends such sessions itself, prepared transactions it cannot)")
}
