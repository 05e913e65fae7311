// The SQL of the dedicated layout. What appends goes through the parent of all halves,
// so that one text serves every log; what reads names the two halves of one log and is
// sent unprepared (see oneoff.go), so that thousands of logs need no room in a cache of
// statements.

package pglog

import (
	"strconv"
	"strings"
)

// logStatements are the texts of the dedicated layout; {o} is the ordinal of a log.
type logStatements struct {
	around, page, backward, loadHead, loadTail, saveSnapshot, marked          string
	create, remove, forget, orphans, ordinal, summarise                       string
	createParent, attachParent                                                string
	emptiable, refresh, lockRing, setRing, empty, emptying, setTrimmed, holds string
}

// ofLog fills in the ordinal of a log.
func ofLog(sql string, ordinal int64) string {
	return strings.ReplaceAll(sql, "{o}", strconv.FormatInt(ordinal, 10))
}

// appendLog is appendOne for a dedicated stream: no first append, no position, and
// chunks instead of events. The row that is locked tells the half to write.
// $1 category $2 key $3 epoch $4 holder $5 claim $6 after $7 after's ID $8 count $9 last
// ID $10 batch $11… chunks.
const appendLog = `with ` + gate + `,
u as (update {s}.streams s set epoch = $3::bigint, holder = $4::uuid, last_seqno = $6::bigint + $8::bigint, last_id = $9::uuid,
    last_time = greatest(date_trunc('microseconds', clock_timestamp()), s.last_time)
  where (select ok from g) and s.category = $1::int and s.key = $2::text and s.last_seqno = $6::bigint
    and case when $5::bool then s.epoch < $3::bigint else s.epoch = $3::bigint and s.holder = $4::uuid end
    and (s.last_id = $7::uuid or $6::bigint > 0 and $7::uuid = {zero})
  returning s.ordinal, s.last_time, s.ring),
i as (insert into {s}.logs (category, part, seqno, epoch, time, chunk, version, split, id, batch, type, content_type, body)
  select $1::int, 2*ordinal + (ring & 1), $6::bigint + nth, case when chunk = 0 then $3::bigint end, case when chunk = 0 then last_time end,
    chunk, case when chunk = 0 then version end, case when chunk = 0 then split end, case when chunk = 0 then id end, case when chunk = 0 then $10::uuid end,
    case when chunk = 0 then type end, case when chunk = 0 then content_type end, body
  from u cross join unnest($11::bigint[], $12::int[], $13::int[], $14::int[], $15::uuid[], $16::text[], $17::text[], $18::bytea[])
    with ordinality e(nth, chunk, version, split, id, type, content_type, body, ev) order by ev)
select (select ok from g), (select 0::bigint from u)`

// appendLogGroup is appendGroup for dedicated streams.
const appendLogGroup = `with ` + gate + `,
r as materialized (select * from unnest($1::int[], $2::text[], $3::bigint[], $4::uuid[], $5::bool[], $6::bigint[], $7::uuid[],
    $8::bigint[], $9::uuid[]) with ordinality t(category, key, epoch, holder, claim, after, after_id, n, last_id, ord)),
l as materialized (select s.ordinal, s.epoch, s.holder, s.last_seqno, s.last_id, r.ord
  from r join {s}.streams s on s.category = r.category and s.key = r.key
  where (select ok from g) order by s.category, s.key for no key update of s skip locked),
u as (update {s}.streams s set epoch = r.epoch, holder = r.holder, last_seqno = r.after + r.n, last_id = r.last_id,
    last_time = greatest(date_trunc('microseconds', clock_timestamp()), s.last_time)
  from l join r on r.ord = l.ord where s.ordinal = l.ordinal
    and case when r.claim then l.epoch < r.epoch else l.epoch = r.epoch and l.holder = r.holder end
    and l.last_seqno = r.after and (l.last_id = r.after_id or r.after > 0 and r.after_id = {zero})
  returning s.ordinal, r.ord, s.last_time, s.ring, r.category, r.after, r.epoch),
i as (insert into {s}.logs (category, part, seqno, epoch, time, chunk, version, split, id, batch, type, content_type, body)
  select category, 2*ordinal + (ring & 1), after + nth, case when chunk = 0 then epoch end, case when chunk = 0 then last_time end,
    chunk, case when chunk = 0 then version end, case when chunk = 0 then split end, case when chunk = 0 then id end, case when chunk = 0 then batch end,
    case when chunk = 0 then type end, case when chunk = 0 then content_type end, body
  from (select u.*, e.* from u join unnest($10::bigint[], $11::uuid[], $12::bigint[], $13::int[], $14::int[], $15::int[], $16::uuid[], $17::text[], $18::text[], $19::bytea[])
      with ordinality e(item, batch, nth, chunk, version, split, id, type, content_type, body, ev) on e.item = u.ord order by e.ev) x)
select ord, '{}'::bigint[] from u`

// What appendAll is for shared streams only, and for some of each layout: $19 says of
// each batch and guard if it is dedicated, $20… are the chunks of those.
var (
	allShared = strings.NewReplacer("{dedicated?}", "", "{dedicated}", "", "{not dedicated}", "", "{ring}", "", "{no ring}", "", "{logs}", "", "{last}", "max(position)")
	allMixed  = strings.NewReplacer("{dedicated?}", ", $19::bool[]", "{dedicated}", ", dedicated", "{not dedicated}", "not r.dedicated and ",
		"{ring}", ", ring", "{no ring}", ", 0 as ring", "{last}", "case when exists (select 1 from w) then coalesce(max(position), 0) end", "{logs}", `,
j as (insert into {s}.logs (category, part, seqno, epoch, time, chunk, version, split, id, batch, type, content_type, body)
  select category, 2*ordinal + (ring & 1), after + nth, case when chunk = 0 then epoch end, case when chunk = 0 then last_time end,
    chunk, case when chunk = 0 then version end, case when chunk = 0 then split end, case when chunk = 0 then id end, case when chunk = 0 then batch end,
    case when chunk = 0 then type end, case when chunk = 0 then content_type end, body
  from (select w.ordinal, w.ring, w.last_time, r.category, r.after, r.epoch, r.batch, e.* from w join r on r.ord = w.ord
    join unnest($20::bigint[], $21::bigint[], $22::int[], $23::int[], $24::int[], $25::uuid[], $26::text[], $27::text[], $28::bytea[])
      with ordinality e(item, nth, chunk, version, split, id, type, content_type, body, ev) on e.item = r.ord order by e.ev) x)`)
)

// logColumns are the columns of a row of a half in the order in which logRow scans them.
const logColumns = `x.seqno, x.chunk, x.epoch, x.time, x.id, x.batch, x.version, x.type, x.content_type, x.split, x.body`

// halves are the rows of both halves with a condition on each.
func halves(where string) string {
	return `(select * from {s}.log_{o}_0 e where ` + where + ` union all select * from {s}.log_{o}_1 e where ` + where + `)`
}

// orphanTables are those of streams that are in the registry no more, some at a time,
// and the parents of categories that are gone when they have no more below them.
var orphanTables = `(select c.relname from pg_inherits p join pg_inherits i on i.inhparent = p.inhrelid join pg_class c on c.oid = i.inhrelid
  where p.inhparent = '{q}.logs'::regclass and c.relname ~ '^log_[0-9]+_[01]$'
    and not exists (select from {s}.streams s where s.ordinal = ` + numberIn("log_[0-9]+_[01]", "bigint") + ` and s.ring <> 0) order by c.relname limit 64)
union all select c.relname from pg_inherits p join pg_class c on c.oid = p.inhrelid
  where p.inhparent = '{q}.logs'::regclass and c.relname ~ '^logs_[0-9]+$' and not exists (select from pg_inherits i where i.inhparent = c.oid)
    and not exists (select from {s}.categories k where k.id = ` + numberIn("logs_[0-9]+", "int") + `)`

// numberIn is the number in the name of table c, NULL in other names: the server may look
// at those before it has joined them away.
func numberIn(pattern, typ string) string {
	return `case when c.relname ~ '^` + pattern + `$' then split_part(c.relname, '_', 2)::` + typ + ` end`
}

// newLogStatements fills in the schema. A limit is one of seqnos, not of rows: seqnos
// have no gap, and the ranges of the index are found by them.
func newLogStatements(schema string, fill func(string, ...string) string) logStatements {
	quoted := strings.ReplaceAll(schema, "'", "''")
	return logStatements{
		// $1 ordinal $2 after $3 last+1: head and the entries that Judge wants.
		around: fill(`select ` + headColumns + `, ` + logColumns + ` from {s}.streams s
left join ` + halves(`e.seqno >= $2::bigint and e.seqno <= $3::bigint`) + ` x on x.seqno > s.trimmed where s.ordinal = $1::bigint order by x.seqno, x.chunk`),
		// $1 ordinal $2 after $3 last wanted.
		page: fill(`select ` + headColumns + `, ` + logColumns + ` from {s}.streams s
left join ` + halves(`e.seqno > $2::bigint and e.seqno <= $3::bigint`) + ` x on s.trimmed <= $2::bigint where s.ordinal = $1::bigint order by x.seqno, x.chunk`),
		// $1 ordinal $2 before (0: the head) $3 limit.
		backward: fill(`select ` + headColumns + `, ` + logColumns + ` from {s}.streams s
cross join lateral (select least(case when $2::bigint = 0 then s.last_seqno + 1 else $2::bigint end, s.last_seqno + 1) as before) b
left join lateral ` + halves(`e.seqno < b.before and e.seqno >= b.before - $3::bigint`) + ` x on x.seqno > s.trimmed
where s.ordinal = $1::bigint order by x.seqno desc, x.chunk`),
		// $1 ordinal $2 fingerprint.
		loadHead: fill(`select ` + headColumns + `, sn.seqno, sn.id, sn.fingerprint, sn.content_type, sn.checksum, sn.data, sn.time, m.id, (select incarnation from {s}.store)
from {s}.streams s left join {s}.snapshots sn on sn.stream = s.ordinal and $2::text <> ''
left join lateral ` + halves(`e.seqno = sn.seqno and e.chunk = 0`) + ` m on m.seqno > s.trimmed where s.ordinal = $1::bigint`),
		// $1 ordinal $2 fingerprint $3 limit.
		loadTail: fill(`select ` + logColumns + ` from {s}.streams s
left join {s}.snapshots sn on sn.stream = s.ordinal and $2::text in (sn.fingerprint, '*') and sn.seqno <= s.last_seqno
  and not exists (select 1 from ` + halves(`e.seqno = sn.seqno and e.chunk = 0`) + ` m where m.seqno > s.trimmed and m.id <> sn.id)
  and not (sn.seqno = s.last_seqno and sn.id <> s.last_id)
cross join lateral (select greatest(coalesce(sn.seqno, 0), s.trimmed) as after) a
cross join lateral ` + halves(`e.seqno > a.after and e.seqno <= a.after + $3::bigint`) + ` x
where s.ordinal = $1::bigint order by x.seqno, x.chunk`),
		// $1 ordinal $2 seqno: the ID of an entry that is there.
		marked: fill(`select x.id from {s}.streams s join ` + halves(`e.seqno = $2::bigint and e.chunk = 0`) + ` x on x.seqno > s.trimmed where s.ordinal = $1::bigint`),
		// $1 ordinal $2 seqno $3 id $4 fingerprint $5 content type $6 checksum $7 data.
		saveSnapshot: fill(`with ` + gate + `,
m as materialized (select s.ordinal, ` + headColumns + `,
    s.last_seqno >= $2::bigint and case when s.last_seqno = $2::bigint then s.last_id = $3::uuid
      else s.trimmed >= $2::bigint or exists (select 1 from ` + halves(`e.seqno = $2::bigint and e.chunk = 0`) + ` x where x.id = $3::uuid) end as ours
  from {s}.streams s where s.ordinal = $1::bigint),
i as (insert into {s}.snapshots as old (stream, seqno, time, id, fingerprint, content_type, checksum, data)
  select ordinal, $2::bigint, clock_timestamp(), $3::uuid, $4::text, $5::text, $6::bytea, $7::bytea from m where ours and (select ok from g)
  on conflict (stream) do update set seqno = excluded.seqno, time = excluded.time, id = excluded.id, fingerprint = excluded.fingerprint,
    content_type = excluded.content_type, checksum = excluded.checksum, data = excluded.data where old.seqno <= excluded.seqno)
select (select ok from g), m.ours, m.epoch, m.holder, m.last_seqno, m.last_id, m.trimmed from (select 1) one left join m on true`),

		ordinal: fill(`select ordinal from {s}.streams where category = $1::int and key = $2::text`),
		// $1 category $2 keys $3 slots $4 ring: the ordinals of those that are new. They are
		// drawn at random, above those of shared streams: processes remember them, and behind
		// a failover with loss the next in turn may be one that was a lost stream's.
		create: fill(`insert into {s}.streams (ordinal, category, key, slot, epoch, holder, last_seqno, last_id, last_time, ring)
  overriding system value select (1::bigint << 44) + floor(random() * 4503599627370496)::bigint, c.id, k.key, k.slot, 0, {zero}, 0, {zero}, 'epoch', $4::bigint from {s}.categories c, unnest($2::text[], $3::smallint[]) k(key, slot)
  where c.id = $1::int and c.layout = 1 order by k.key for key share of c on conflict do nothing returning ordinal`),
		// The ranges of the index are 32 pages, 256 KiB: a read looks at few pages that it
		// does not want, and the index of a log of 1 GiB has 4,096 of them.
		forget: fill(`with d as (delete from {s}.streams where category = $1::int and key = $2::text and ring <> 0 returning ordinal),
  h as (delete from {s}.holds where stream in (select ordinal from d)), sn as (delete from {s}.snapshots where stream in (select ordinal from d))
select ordinal from d`),
		remove: fill(`with d as (delete from {s}.streams where category = $1::int and ring <> 0 returning ordinal),
  h as (delete from {s}.holds where category = $1::int), sn as (delete from {s}.snapshots where stream in (select ordinal from d)),
  n as (update {s}.store set deleted_categories = deleted_categories + 1 where exists (select from {s}.categories where id = $1::int)), c as (delete from {s}.categories where id = $1::int returning id) select count(*) from c`),
		orphans: fill(orphanTables, "{q}", quoted),
		// $1 table $2 index $3 first block: brings the ranges that are full into the index.
		summarise: `select coalesce(max(b), $3::bigint), count(brin_summarize_range($2::text::regclass, b))
from generate_series($3::bigint, pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint - ` + strconv.Itoa(pagesPerRange) + `, ` + strconv.Itoa(pagesPerRange) + `) b`,
		// Streams of which a half is dead; are there tables that are nobody's?
		emptiable: fill(`select array(select ordinal from {s}.streams where ring <> 0 and ring & 2 = 2 and trimmed >= (ring >> 2) - 1 limit 10000),
  exists (`+orphanTables+`)`, "{q}", quoted),
		createParent: fill(`create table {s}.logs_{n} (like {s}.logs including storage) partition by list (part)`),
		attachParent: fill(`alter table {s}.logs attach partition {s}.logs_{n} for values in ({n})`),
		// Sets what is set already: the point is that sessions are told of new partitions.
		refresh: fill(`alter table {s}.logs{n} alter column part set statistics -1`),

		lockRing: fill(`select ring, last_seqno, trimmed from {s}.streams where ordinal = $1::bigint for no key update`),
		setRing:  fill(`update {s}.streams set ring = $2::bigint where ordinal = $1::bigint`),
		empty:    fill(`truncate {s}.log_{o}_{h}`),
		// One at a time empties a log: while it holds this lock nobody turns the ring back.
		emptying: fill(`select pg_try_advisory_xact_lock('{q}.logs'::regclass::oid::int4, hashint8($1::bigint)), ring, trimmed
  from {s}.streams where ordinal = $1::bigint`, "{q}", quoted),
		setTrimmed: fill(`with ` + gate + ` update {s}.streams set trimmed = $2::bigint, ring = $3::bigint where ordinal = $1::bigint and (select ok from g)`),
		holds:      fill(`select name, stream, seqno, position, seqno from {s}.holds where category = $1::int and stream = $2::bigint order by name`),
	}
}
