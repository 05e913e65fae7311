// Examine: what surrounds the store, the server and its settings, the pool, sessions.

package pglog

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
)

const opExamine = "examine"

// snapshotTTLs is for how many times the HolderTTL a transaction may be open before
// Examine names it: 5 minutes where that is 10 seconds.
const snapshotTTLs = 30

// Examine is [Log.Examine] for a schema that Open may refuse: absent, of another version,
// with a sequence that was altered. Of the options Schema and HolderTTL count.
func Examine(ctx context.Context, pool *pgxpool.Pool, o *Options) ([]eventstore.Finding, error) {
	return unopened(pool, o).Examine(ctx)
}

// Examine looks at the server, its settings as this pool's sessions have them, the pool,
// sessions that hold others up, and the state of the schema; see [eventstore.Doctor]. It
// asks a few dozen short questions and uses two connections at once to see a pooler.
// Sessions of other roles show only to members of pg_read_all_stats; where they do not,
// that is a finding. The error is ErrUnavailable if no connection can be made.
func (l *Log) Examine(ctx context.Context) ([]eventstore.Finding, error) {
	leave, err := l.enter(ctx, opExamine, "")
	if err != nil {
		return nil, err
	}
	defer leave()
	x := &examination{log: l, pool: l.pool}
	if err := x.look(ctx); err != nil {
		return nil, l.translate(opExamine, "", err, connecting)
	}
	for _, part := range []func(context.Context){x.server, x.durability, x.recommended, x.room, x.clock, x.pooler, x.schema, x.sessions} {
		part(ctx)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return x.found, nil
}

// examination is one run of Examine.
type examination struct {
	log      *Log
	pool     *pgxpool.Pool
	settings map[string]string // as pg_settings has them, in its units
	version  int               // of the server, as 150004
	standby  bool
	found    []eventstore.Finding
}

// add adds a finding.
func (x *examination) add(check string, s eventstore.Severity, wanted, found, hint string) {
	x.found = append(x.found, eventstore.Finding{Check: check, Severity: s, Wanted: wanted, Found: found, Hint: hint})
}

func (x *examination) ok(check, found string) { x.add(check, eventstore.SeverityOK, "", found, "") }

// want adds a finding that is of a severity unless it is as it should be.
func (x *examination) want(is bool, check string, s eventstore.Severity, wanted, found, hint string) {
	if is {
		x.ok(check, found)
		return
	}
	x.add(check, s, wanted, found, hint)
}

// unseen says that a check could not be made.
func (x *examination) unseen(check string, err error) {
	hint := "the check was not made"
	if pgCode(err) == codeNoPrivilege {
		hint = "grant the role what it lacks, or examine as another one"
	}
	x.add(check, eventstore.SeverityWarning, "to look at it", err.Error(), hint)
}

// row asks for one row. Exec mode works with every pooler and leaves nothing behind.
func (x *examination) row(ctx context.Context, sql string, args ...any) pgx.Row {
	return x.pool.QueryRow(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
}

// each calls f for every row.
func (x *examination) each(ctx context.Context, sql string, args []any, f func(pgx.Rows) error) error {
	rows, err := x.pool.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// look reads the settings: those that this role's sessions have.
func (x *examination) look(ctx context.Context) error {
	x.settings = map[string]string{}
	err := x.each(ctx, `select name, setting from pg_settings`, nil, func(r pgx.Rows) error {
		var name, setting string
		err := r.Scan(&name, &setting)
		x.settings[name] = setting
		return err
	})
	if err != nil {
		return err
	}
	x.version, _ = strconv.Atoi(x.settings["server_version_num"])
	return x.row(ctx, `select pg_is_in_recovery()`).Scan(&x.standby)
}

// number of a setting, 0 where the server has none of that name.
func (x *examination) number(setting string) int64 {
	n, _ := strconv.ParseInt(x.settings[setting], 10, 64)
	return n
}

// The versions that the tests run on.
const (
	oldestServer = 14
	newestServer = 18
)

// server checks which server it is and what it takes.
func (x *examination) server(context.Context) {
	x.found = append(x.found, versionFinding(x.version, x.settings["server_version"]))
	x.want(!x.standby, "primary", eventstore.SeverityFault, "the primary", either(x.standby, "a standby in recovery", "the primary"),
		"connect to the primary: a standby takes no appends and serves no feed")
	readOnly := x.settings["default_transaction_read_only"] == "on"
	x.want(!readOnly, "read-only", eventstore.SeverityFault, "sessions that may write", either(readOnly, "default_transaction_read_only is on", "they may write"),
		"reset it for the role or database")
	level := x.settings["default_transaction_isolation"]
	x.want(level == "read committed", "isolation", eventstore.SeverityFault, "read committed", level, isolationHint+"; until then appends and feeds are refused")
}

// versionFinding judges the server's version, as 150004.
func versionFinding(version int, text string) eventstore.Finding {
	f := eventstore.Finding{Check: "server-version", Found: text}
	major := version / 10000
	if major >= oldestServer && major <= newestServer {
		return f
	}
	f.Wanted = fmt.Sprintf("PostgreSQL %d to %d", oldestServer, newestServer)
	f.Severity, f.Hint = eventstore.SeverityWarning, "this wattle was not tested with it: upgrade wattle"
	if major < oldestServer {
		f.Severity, f.Hint = eventstore.SeverityFault, "upgrade the server"
	}
	return f
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// durability checks what makes an acknowledged append durable.
func (x *examination) durability(context.Context) {
	on := func(check, setting string, s eventstore.Severity, hint string) {
		x.want(x.settings[setting] == "on", check, s, setting+" on", setting+" "+x.settings[setting], hint)
	}
	on("fsync", "fsync", eventstore.SeverityFault, "switch it on: a crash of the machine destroys the store, not only the last appends")
	on("full-page-writes", "full_page_writes", eventstore.SeverityWarning, "switch it on, unless the file system never writes half a page")
	commit := x.settings["synchronous_commit"]
	x.want(commit == "on" || commit == "remote_apply", "synchronous-commit", eventstore.SeverityNote, "synchronous_commit on", commit,
		"appends raise it for themselves; your own transactions, and projections that are not in one with their read model, can be lost after they were answered")
	on("checksums", "data_checksums", eventstore.SeverityNote, "pg_checksums --enable, with the server stopped: damage on the disk is then found when it is read")
	on("autovacuum", "autovacuum", eventstore.SeverityWarning, "switch it on: space comes back and hot rows stay quick by it alone")
}

// recommended checks what makes it quicker, or heal by itself.
func (x *examination) recommended(ctx context.Context) {
	x.want(x.settings["wal_compression"] != "off", "wal-compression", eventstore.SeverityNote, "wal_compression on", x.settings["wal_compression"],
		"recommended: appends to many streams write whole pages to the log after each checkpoint")
	idle := x.number("idle_in_transaction_session_timeout")
	x.want(idle > 0, "idle-in-transaction", eventstore.SeverityNote, "idle_in_transaction_session_timeout above 0", fmt.Sprintf("%d ms", idle),
		"set it for the role that runs your own transactions: one that is forgotten slows every append (wattle's own set it)")
	if x.version >= 170000 {
		limit := x.number("transaction_timeout")
		x.want(limit > 0, "transaction-timeout", eventstore.SeverityNote, "transaction_timeout above 0", fmt.Sprintf("%d ms", limit),
			"set it for the role that appends: it ends a client that froze inside an append, which readers of the feed do else")
	}
	var has bool
	if err := x.row(ctx, `select coalesce('lz4' = any(enumvals), false) from pg_settings where name = 'default_toast_compression'`).Scan(&has); err != nil {
		x.unseen("lz4", err)
		return
	}
	x.want(has, "lz4", eventstore.SeverityNote, "a server built with lz4", either(has, "there", "none"), "payloads over 2 kB are compressed with pglz, which is slower")
}

// room checks for how much more there is room.
func (x *examination) room(ctx context.Context) {
	var used int64
	if err := x.row(ctx, `select count(*) from pg_stat_activity where backend_type = 'client backend'`).Scan(&used); err != nil {
		x.unseen("connections", err)
		return
	}
	most := x.number("max_connections") - x.number("superuser_reserved_connections") - x.number("reserved_connections")
	left, need := most-used, int64(x.pool.Config().MaxConns)-int64(x.pool.Stat().TotalConns())
	x.want(left >= need && left*10 >= most, "connections", eventstore.SeverityWarning, fmt.Sprintf("room for %d more connections of this pool, and a tenth of all", need),
		fmt.Sprintf("%d of %d left", left, most), "raise max_connections, make pools smaller, or put PgBouncer between")
}

// clock compares the server's clock with this machine's.
func (x *examination) clock(ctx context.Context) {
	var micros int64
	sent := time.Now()
	if err := x.row(ctx, `select (extract(epoch from clock_timestamp()) * 1000000)::bigint`).Scan(&micros); err != nil {
		x.unseen("clock", err)
		return
	}
	took := time.Since(sent)
	x.found = append(x.found, clockFinding(time.UnixMicro(micros).Sub(sent.Add(took/2)), took))
}

// clockFinding judges by how much the server's clock is ahead; it is known to half of the
// time that the answer took.
func clockFinding(ahead, took time.Duration) eventstore.Finding {
	const most = time.Second
	f := eventstore.Finding{Check: "clock", Found: fmt.Sprintf("the server is %v ahead, give or take %v", ahead.Round(time.Millisecond), (took / 2).Round(time.Millisecond))}
	if ahead.Abs() > most+took/2 {
		f.Severity, f.Wanted = eventstore.SeverityWarning, "clocks at most "+most.String()+" apart"
		f.Hint = "set both by NTP; leases keep to the server's clock alone, but times and IDs of events disagree"
	}
	return f
}
