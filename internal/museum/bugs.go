// The planted bugs, each of a kind that real event stores have had.

package main

var bugs = []bug{
	// The contract's rule.
	{"claim does not need a higher epoch", "eventstore/judge.go", "owns = b.Epoch > h.Epoch", "owns = b.Epoch >= h.Epoch", "eventstore/memlog", "TestLog"},
	{"two holders of one epoch", "eventstore/judge.go", "owns := b.Epoch == h.Epoch && b.Holder == h.Holder", "owns := b.Epoch == h.Epoch", "eventstore/memlog", "TestLog"},
	{"last entry's ID not compared", "eventstore/judge.go", "(b.After.ID == h.Last.ID || b.After.ID.IsZero() && b.After.Seqno > 0)", "true", "eventstore/memlog", "TestLog"},
	{"proof by batch ID without content", "eventstore/judge.go", "case Digest(b.Stream, b.After, ours) == Digest(b.Stream, b.After, b.Events):", "case true:", "eventstore/memlog", "TestLog"},
	{"ack guessed when the proof was trimmed", "eventstore/judge.go", "	case trimmed:\n		return unprovable", "	case trimmed:\n		return proved", "eventstore/memlog", "TestLog"},
	{"refusal guessed when the proof was trimmed", "eventstore/judge.go", "	case trimmed:\n		return unprovable", "	case trimmed:\n		return absent", "eventstore/memlog", "TestLog"},
	{"diverged reported as already written", "eventstore/judge.go", "return e.ID != after.ID", "return false", "eventstore/memlog", "TestLog"},
	{"guard not looked at", "eventstore/judge.go", "func (g Guard) Passes(h Head) bool { return g.At == h.Last }", "func (g Guard) Passes(h Head) bool { return true }", "eventstore/memlog", "TestLog"},
	{"trace keys in the digest", "eventstore/batch.go", "if !isTraceKey(k) {", "if true {", "eventstore/memlog", "TestLog"},
	{"event IDs new with every send", "eventstore/validate.go", "e.ID = DeriveUUID(batch, i)", "e.ID = NewUUID()", "eventstore/memlog", "TestLog"},
	{"hold passed by a trim", "eventstore/judge.go", "f.lower(max(first, 1)-1,", "f.lower(max(first, 1),", "eventstore/memlog", "TestLog"},
	{"trim without a snapshot", "eventstore/judge.go", `f.lower(0, "no snapshot yet")`, "", "eventstore/memlog", "TestLog"},
	{"fence at an equal epoch of another holder", "eventstore/judge.go", "at == h.Epoch && holder == h.Holder:", "at == h.Epoch:", "eventstore/memlog", "TestLog"},
	{"snapshot of other code used", "eventstore/read.go", "case sn.Fingerprint != fingerprint:", "case false:", "eventstore/memlog", "TestLog"},
	{"snapshot's checksum not checked", "eventstore/read.go", "case sha256.Sum256(sn.Data) != sn.Checksum:", "case sha256.Sum256(sn.Data) != sn.Checksum && false:", "eventstore/memlog", "TestLog"},
	{"metadata not checked for NUL", "eventstore/validate.go", "!utf8.ValidString(v) || strings.ContainsRune(v, 0)", "!utf8.ValidString(v) || strings.ContainsRune(v, 0) && false", "eventstore/memlog", "TestLog"},

	// pglog: the statement.
	{"append without the epoch", "eventstore/pglog/statements.go", "and case when $6::bool then s.epoch < $4::bigint else s.epoch = $4::bigint and s.holder = $5::uuid end", "and $6::bool is not null", "eventstore/pglog", "TestLog"},
	{"append without the last ID", "eventstore/pglog/statements.go", "and (s.last_id = $8::uuid or $7::bigint > 0 and $8::uuid = {zero})\n  returning", "and $8::uuid is not null\n  returning", "eventstore/pglog", "TestLog"},
	{"several streams written without the guards", "eventstore/pglog/statements.go", "when r.n = 0 then l.last_seqno = r.after and l.last_id = r.after_id", "when r.n = 0 then true", "eventstore/pglog", "TestLog"},
	{"one refused batch of several leaves others written", "eventstore/pglog/statements.go", "(select ok from g) and bool_and(pass) as ok", "(select ok from g) and bool_or(pass) as ok", "eventstore/pglog", "TestLog"},
	{"fence without its condition", "eventstore/pglog/statements.go", "or $4::bigint > s.epoch or $4::bigint = s.epoch and s.holder = $5::uuid)", "or $4::bigint > 0)", "eventstore/pglog", "TestLog"},
	{"isolation level not checked", "eventstore/pglog/statements.go", "select current_setting('transaction_isolation') = 'read committed' as ok", "select true as ok", "eventstore/pglog", "TestIsolation"},
	{"isolation level not checked in the reader", "eventstore/pglog/feed.go", `case isolation != "read committed":`, "case isolation == \"\":", "eventstore/pglog", "TestIsolation"},
	{"synchronous_commit not raised", "eventstore/pglog/statements.go", "case when current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then set_config('synchronous_commit', 'on', true) end as raised)`", "null as raised)`", "eventstore/pglog", "TestSynchronousCommit"},
	{"unknown reported as unavailable", "eventstore/pglog/errors.go", "case ph == writing && !pgconn.SafeToRetry(err):", "case false:", "eventstore/pglog", "TestLostAnswer"},
	{"two round trips an append", "eventstore/pglog/append.go", "	position, err := l.send(ctx, q, a, ids, one, all)", "	q.Exec(ctx, \"select 1\")\n	position, err := l.send(ctx, q, a, ids, one, all)", "eventstore/pglog", "TestCost"},

	// pglog: the feed.
	{"reader without the held keys", "eventstore/pglog/feed.go", "h.at = min(h.at, *h.held)", "", "eventstore/pglog", "TestProbe|TestLog/feed"},
	{"append without the lock", "eventstore/pglog/statements.go", "pg_advisory_xact_lock_shared({seq}::oid::int4, ((v<<32)>>32)::int4) as locked\n", "null as locked\n", "eventstore/pglog", "TestFrozenClient"},
	{"lock without the store's class", "eventstore/pglog/statements.go", "and l.classid = {seq}::oid and l.database = (select oid from pg_database where datname = current_database())`\n\n// feed:", "and l.database = (select oid from pg_database where datname = current_database())`\n\n// feed:", "eventstore/pglog", "TestTwoStores|TestStranger"},
	{"reader keeps the horizon", "eventstore/pglog/feed.go", "	p.End = !more\n", "	p.End = !more\n	p.Through.Position = p.Horizon\n", "eventstore/pglog", "TestCrashAfterAbortedDraw|TestLog/feed"},
	{"lock remembered over a rollback to a savepoint", "eventstore/pglog/statements.go", "|| v, true) end as kept", "|| v, false) end as kept", "eventstore/pglog", "TestSavepoints"},
	{"a lock for every append of a transaction", "eventstore/pglog/statements.go", "case when mine then null else pg_advisory_xact_lock_shared", "case when false then null else pg_advisory_xact_lock_shared", "eventstore/pglog", "TestManyAppends"},
	{"position not held above its bound", "eventstore/pglog/statements.go", "const draw = `nullif(greatest(nextval({seq}), v), v) + 0*v`", "const draw = `nextval({seq}) + 0*v`", "eventstore/pglog", "TestAlteredSequence"},
	{"altered sequence opened", "eventstore/pglog/pglog.go", "if !ok || !usable {", "if !usable {", "eventstore/pglog", "TestAlteredSequence"},
	{"feed read on a standby", "eventstore/pglog/feed.go", "case standby:", "case false:", "eventstore/pglog", "TestStandby"},
	{"nobody ends a frozen client", "eventstore/pglog/feed.go", "if l.holderTTL < 0 || !w.stuck(held, l.holderTTL) {", "if true {", "eventstore/pglog", "TestFrozenClient"},
	{"trimmed feed read in silence", "eventstore/pglog/feed.go", "int64(after) < trimmed && !f.AcceptTrimmed", "false", "eventstore/pglog", "TestLog"},
	{"read unordered", "eventstore/pglog/statements.go", "order by e.seqno limit $4::int) x on true\nwhere c.id = $1::int order by x.seqno`\n\n// $1 category $2 key $3 before", "limit $4::int) x on true\nwhere c.id = $1::int`\n\n// $1 category $2 key $3 before", "eventstore/pglog", "TestOrderUnderPlans"},
}
