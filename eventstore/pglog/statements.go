// The SQL, all of it, with the schema filled in once.

package pglog

import (
	"strconv"
	"strings"
	"time"
)

// statements are the texts of one schema. Those that name a category's own table
// hold {n} for its number and go through of.
type statements struct {
	version, sequence, session, settle                                        string
	plain, inTx, orFail                                                       appendTexts
	appendGroup, appendLogGroup                                               string
	around, head, page, backward, fence                                       string
	horizonLow, horizonHeld, feed, feedAll, branch, trims, holders, endHolder string
	loadHead, loadTail, saveSnapshot, listTrimmed                             string
	category, categories, insertCategory, createTable, attach, dropTable      string
	refreshPartitions, deleteCategory, deleteStreams                          string
	lockCategory, lockStream, categoryHolds, setTrimmed                       string
	setHold, releaseHold, holds, ensureStream, streamOrdinal, acquire, renew  string
	updateLeases                                                              string
	release                                                                   string
	begin                                                                     string
	reclaimable, reclaim, orphans, reclaimSnapshots                           string
	logs                                                                      logStatements
	ping                                                                      string
}

// appendTexts are the texts of an append to one stream, shared or dedicated, and to
// several with guards, all of them shared or not.
type appendTexts struct{ one, log, all, mixed string }

// of fills in the number of a category's table.
func of(sql string, category int32) string {
	return strings.ReplaceAll(sql, "{n}", strconv.Itoa(int(category)))
}

// feedOf is the third statement of the reader for these categories, all for none.
func (s *statements) feedOf(ids []int32) string {
	if len(ids) == 0 {
		return s.feedAll
	}
	branches := make([]string, len(ids))
	for i, id := range ids {
		branches[i] = strings.ReplaceAll(s.branch, "{table}", "entries_"+strconv.Itoa(int(id)))
	}
	return strings.ReplaceAll(s.feed, "{from}", strings.Join(branches, "\n  union all "))
}

// gate is the first step of everything that writes: is the isolation level the
// one that the checks rely on, and is a commit durable when it is answered? Raising
// with set_config(…, true) ends with the transaction and lasts through its commit.
const gate = `g as materialized (select current_setting('transaction_isolation') = 'read committed' as ok,
  case when current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then set_config('synchronous_commit', 'on', true) end as raised)`

// lowerBound publishes a lower bound of the positions that the append will draw,
// as the key of a shared advisory lock held to its commit. {from} is what must
// have happened before. "+0*" and "offset 0" keep the order of evaluation: value,
// lock, then (in the insert) the draw.
const lowerBound = `k as materialized (select c, v, pg_advisory_xact_lock_shared({seq}::oid::int4, ((v<<32)>>32)::int4) as locked
  from (select c, pg_sequence_last_value({seq}) + 0*c as v from ({from}) y where c > 0 offset 0) x)`

// lowerBoundOnce is lowerBound for many appends in one transaction: the first
// one's key is the lowest and covers all, so that the lock table does not fill up.
// The key is remembered in a setting of the transaction, not in the client: a
// ROLLBACK TO a savepoint takes back lock and setting together. {bound} limits how
// long the transaction may idle with the lock held.
const lowerBoundOnce = `k as materialized (select c, case when mine then held else v end as v,
  case when mine then null else pg_advisory_xact_lock_shared({seq}::oid::int4, ((v<<32)>>32)::int4)::text end as locked,
  case when mine then null else set_config('wattle.lower_bound', {seq}::oid::text || ':' || pg_current_xact_id()::text || ':' || v, true) end as kept,
  case when mine then null else {bound} end as bounded
  from (select c, pg_sequence_last_value({seq}) + 0*c as v,
    split_part(current_setting('wattle.lower_bound', true), ':', 1) = {seq}::oid::text
      and split_part(current_setting('wattle.lower_bound', true), ':', 2) = pg_current_xact_id()::text as mine,
    nullif(split_part(current_setting('wattle.lower_bound', true), ':', 3), '')::bigint as held
    from ({from}) y where c > 0 offset 0) x)`

// draw takes the next position, or NULL, which the column refuses (23502), if it is
// not above the published bound: a sequence that was altered must not pass.
const draw = `nullif(greatest(nextval({seq}), v), v) + 0*v`

// $1 category $2 key $3 slot $4 epoch $5 holder $6 claim $7 after $8 after's ID
// $9 count $10 last ID $11 batch $12… events. One row; last position NULL = not passed.
const appendOne = `with ` + gate + `,
u as (update {s}.streams s set epoch = $4::bigint, holder = $5::uuid, last_seqno = $7::bigint + $9::bigint, last_id = $10::uuid,
    last_time = greatest(date_trunc('microseconds', clock_timestamp()), s.last_time)
  where (select ok from g) and s.category = $1::int and s.key = $2::text and s.last_seqno = $7::bigint
    and case when $6::bool then s.epoch < $4::bigint else s.epoch = $4::bigint and s.holder = $5::uuid end
    and (s.last_id = $8::uuid or $7::bigint > 0 and $8::uuid = {zero})
  returning s.ordinal, s.last_time),
n as (insert into {s}.streams (category, key, slot, epoch, holder, last_seqno, last_id, last_time)
  select $1::int, $2::text, $3::smallint, $4::bigint, $5::uuid, $9::bigint, $10::uuid, clock_timestamp()
  where (select ok from g) and $7::bigint = 0 and $6::bool and not exists (select 1 from u)
  on conflict (category, key) do nothing returning ordinal, last_time),
w as materialized (select ordinal, last_time from u union all select ordinal, last_time from n),
{lowerBound},
i as (insert into {s}.entries (position, stream, seqno, epoch, time, category, version, id, batch, slot, type, content_type, metadata, data)
  select {draw}, ordinal, $7::bigint + ev, $4::bigint, last_time, $1::int, version, id, $11::uuid, $3::smallint, type, content_type, metadata, data
  from (select k.v, w.ordinal, w.last_time, e.* from k cross join w
    cross join unnest($12::uuid[], $13::int[], $14::text[], $15::text[], $16::text[], $17::bytea[])
      with ordinality e(id, version, type, content_type, metadata, data, ev) order by ev) x
  returning position)
select (select ok from g), (select max(position) from i)`

// appendAll writes several batches and looks at guards, all or nothing. A row of r
// is a batch (n > 0) or a guard (n = 0). Streams are locked in the order of
// category and key, those to be created after those that exist, in that order too,
// so two appends cannot wait for each other. A guard on a stream without a row
// creates an empty one, to have something to lock; it still reads as no stream.
// If a stream is created by somebody else in between, dividing by zero takes the
// whole statement back (22012) and it is sent again.
const appendAll = `with ` + gate + `,
r as materialized (select * from unnest($1::int[], $2::text[], $3::smallint[], $4::bigint[], $5::uuid[], $6::bool[], $7::bigint[], $8::uuid[],
    $9::bigint[], $10::uuid[], $11::uuid[]{dedicated?}) with ordinality t(category, key, slot, epoch, holder, claim, after, after_id, n, last_id, batch{dedicated}, ord)),
l as materialized (select s.ordinal, s.epoch, s.holder, s.last_seqno, s.last_id, r.ord
  from r join {s}.streams s on s.category = r.category and s.key = r.key
  where (select ok from g) order by s.category, s.key for no key update of s),
p as materialized (select r.ord, l.ordinal, case
    when l.ord is null then {not dedicated}r.after = 0 and (r.claim or r.n = 0 and exists (select 1 from {s}.categories c where c.id = r.category))
    when r.n = 0 then l.last_seqno = r.after and l.last_id = r.after_id
    else case when r.claim then l.epoch < r.epoch else l.epoch = r.epoch and l.holder = r.holder end
      and l.last_seqno = r.after and (l.last_id = r.after_id or r.after > 0 and r.after_id = {zero}) end as pass
  from r left join l on l.ord = r.ord),
d as materialized (select (select ok from g) and bool_and(pass) as ok, count(*) filter (where ordinal is null) as absent from p),
n as (insert into {s}.streams (category, key, slot, epoch, holder, last_seqno, last_id, last_time)
  select r.category, r.key, r.slot, r.epoch, r.holder, r.n, r.last_id, case when r.n > 0 then clock_timestamp() else 'epoch' end
  from r join p on p.ord = r.ord where p.ordinal is null and (select ok from d) order by r.category, r.key
  on conflict (category, key) do nothing returning ordinal, category, key, last_time),
u as (update {s}.streams s set epoch = r.epoch, holder = r.holder, last_seqno = r.after + r.n, last_id = r.last_id,
    last_time = greatest(date_trunc('microseconds', clock_timestamp()), s.last_time)
  from p join r on r.ord = p.ord where s.ordinal = p.ordinal and r.n > 0 and (select ok from d)
  returning s.ordinal, r.ord, s.last_time{ring}),
w as materialized (select ordinal, ord, last_time{ring} from u
  union all select n.ordinal, r.ord, n.last_time{no ring} from n join r on r.category = n.category and r.key = n.key where r.n > 0),
z as materialized (select 1 / case when (select count(*) from n) = d.absent then 1 else 0 end as created from d where d.ok),
{lowerBound},
i as (insert into {s}.entries (position, stream, seqno, epoch, time, category, version, id, batch, slot, type, content_type, metadata, data)
  select {draw}, ordinal, after + ev - first + 1, epoch, last_time, category, version, id, batch, slot, type, content_type, metadata, data
  from (select k.v, w.ordinal, w.last_time, r.after, r.epoch, r.category, r.batch, r.slot,
      e.*, min(e.ev) over (partition by e.item) as first
    from k cross join w join r on r.ord = w.ord
    join unnest($12::bigint[], $13::uuid[], $14::int[], $15::text[], $16::text[], $17::text[], $18::bytea[])
      with ordinality e(item, id, version, type, content_type, metadata, data, ev) on e.item = r.ord order by e.ev) x
  returning position){logs}
select (select ok from g), (select {last} from i where (select created from z) = 1)`

// appendGroup writes batches of different streams, each by its own predicate. A
// stream that somebody else has locked is skipped, so nobody waits for a
// neighbour's. A row for each stream that passed: its number and its positions.
const appendGroup = `with ` + gate + `,
r as materialized (select * from unnest($1::int[], $2::text[], $3::smallint[], $4::bigint[], $5::uuid[], $6::bool[], $7::bigint[], $8::uuid[],
    $9::bigint[], $10::uuid[]) with ordinality t(category, key, slot, epoch, holder, claim, after, after_id, n, last_id, ord)),
l as materialized (select s.ordinal, s.epoch, s.holder, s.last_seqno, s.last_id, r.ord
  from r join {s}.streams s on s.category = r.category and s.key = r.key
  where (select ok from g) order by s.category, s.key for no key update of s skip locked),
u as (update {s}.streams s set epoch = r.epoch, holder = r.holder, last_seqno = r.after + r.n, last_id = r.last_id,
    last_time = greatest(date_trunc('microseconds', clock_timestamp()), s.last_time)
  from l join r on r.ord = l.ord where s.ordinal = l.ordinal
    and case when r.claim then l.epoch < r.epoch else l.epoch = r.epoch and l.holder = r.holder end
    and l.last_seqno = r.after and (l.last_id = r.after_id or r.after > 0 and r.after_id = {zero})
  returning s.ordinal, r.ord, s.last_time),
w as materialized (select ordinal, ord, last_time from u),
{lowerBound},
i as (insert into {s}.entries (position, stream, seqno, epoch, time, category, version, id, batch, slot, type, content_type, metadata, data)
  select {draw}, ordinal, after + nth, epoch, last_time, category, version, id, batch, slot, type, content_type, metadata, data
  from (select k.v, w.ordinal, w.last_time, r.after, r.epoch, r.category, r.slot, e.*, row_number() over (partition by e.item order by e.ev) as nth
    from k cross join w join r on r.ord = w.ord
    join unnest($11::bigint[], $12::uuid[], $13::uuid[], $14::int[], $15::text[], $16::text[], $17::text[], $18::bytea[])
      with ordinality e(item, batch, id, version, type, content_type, metadata, data, ev) on e.item = r.ord order by e.ev) x
  returning position, stream, seqno)
select w.ord, p.positions from w join (select stream, array_agg(position order by seqno) as positions from i group by stream) p on p.stream = w.ordinal`

// $1 category $2 key $3 after $4 last+1: head and the entries that Judge wants.
const around = `select ` + headColumns + `, ` + entryColumns + `
from (select 1) one left join {s}.streams s on s.category = $1::int and s.key = $2::text
left join {s}.entries_{n} x on x.stream = s.ordinal and x.seqno >= greatest($3::bigint, s.trimmed + 1) and x.seqno <= $4::bigint
order by x.seqno`

// $1 category $2 key: locks the stream's row, which is a commit that waits for the
// standby as a writing one does, if there is one to wait for.
const settle = `with ` + gate + `
select from {s}.streams s where (select ok from g) and s.category = $1::int and s.key = $2::text
  and current_setting('synchronous_standby_names') <> '' for no key update of s`

// $1 category $2 key.
const head = `select ` + headColumns + ` from {s}.categories c left join {s}.streams s on s.category = c.id and s.key = $2::text where c.id = $1::int`

// $1 category $2 key $3 after $4 limit. A row at least if the category exists.
const page = `select s.last_seqno, s.trimmed, s.last_id, ` + entryColumns + `
from {s}.categories c left join {s}.streams s on s.category = c.id and s.key = $2::text
left join lateral (select * from {s}.entries_{n} e where e.stream = s.ordinal and e.seqno > $3::bigint and s.trimmed <= $3::bigint
  order by e.seqno limit $4::int) x on true
where c.id = $1::int order by x.seqno`

// $1 category $2 key $3 before (0: the head) $4 limit.
const backward = `select s.last_seqno, s.trimmed, s.last_id, ` + entryColumns + `
from {s}.categories c left join {s}.streams s on s.category = c.id and s.key = $2::text
left join lateral (select * from {s}.entries_{n} e where e.stream = s.ordinal and e.seqno > s.trimmed
    and ($3::bigint = 0 or e.seqno < $3::bigint) order by e.seqno desc limit $4::int) x on true
where c.id = $1::int order by x.seqno desc`

// $1 category $2 key $3 slot $4 at (0: next) $5 holder.
const fence = `with ` + gate + `,
u as (update {s}.streams s set epoch = case when $4::bigint = 0 then s.epoch + 1 else $4::bigint end, holder = $5::uuid
  where (select ok from g) and exists (select 1 from {s}.categories where id = $1::int)
    and s.category = $1::int and s.key = $2::text
    and ($4::bigint = 0 and s.epoch < 9223372036854775807 or $4::bigint > s.epoch or $4::bigint = s.epoch and s.holder = $5::uuid)
  returning ` + headColumns + `),
n as (insert into {s}.streams as s (category, key, slot, epoch, holder, last_seqno, last_id, last_time)
  select id, $2::text, $3::smallint, greatest($4::bigint, 1), $5::uuid, 0, {zero}, 'epoch' from {s}.categories
  where id = $1::int and layout = 0 and (select ok from g) and not exists (select 1 from u)
  on conflict (category, key) do nothing returning ` + headColumns + `)
select (select ok from g), w.* from (select 1) one left join (select * from u union all select * from n) w on true`

// The reader's first three statements. They must stay three, pipelined, in READ
// COMMITTED: as one they would share a snapshot older than the horizon and skip.
const horizonLow = `select pg_sequence_last_value({seq}), current_setting('transaction_isolation'), r,
  case when not r then ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint end,
  (select system_identifier from pg_control_system()), {seq}::oid::bigint, (select incarnation from {s}.store)
from (select pg_is_in_recovery() as r) x`

const horizonHeld = `with m as materialized (select pg_sequence_last_value({seq}) as v)
select min(m.v + (((l.objid::bigint - m.v) << 32) >> 32)) from m, pg_locks l
where l.locktype = 'advisory' and l.objsubid = 2 and l.mode = 'ShareLock' and l.granted
  and l.classid = {seq}::oid and l.database = (select oid from pg_database where datname = current_database())`

// feed: $1 after $2 limit $3 types $4 slots. Entries that do not match come without their
// payload: they move the reader on. Rows come in the order in which the branches are read
// and merged, so the server sends the first while it looks for the last. {from} is a
// feedBranch, or several.
const feed = `select x.key, c.name, x.id, x.match, ` + entryColumns + `
from (select e.position, e.seqno, e.category, e.key, e.id, m.match, e.epoch, e.time, e.batch, e.version,
    case when m.match then e.type end as type, case when m.match then e.content_type end as content_type,
    case when m.match then e.metadata end as metadata, case when m.match then e.data end as data
  from ({from}) e,
    lateral (select (cardinality($3::text[]) = 0 or e.type = any($3::text[])) and (cardinality($4::smallint[]) = 0 or e.slot = any($4::smallint[])) as match) m
  order by e.position limit $2::int) x
left join {s}.categories c on c.id = x.category
order by x.position`

// trims: $1 categories, all for none: the highest trimmed-to position, whose it is, and how
// many of the categories there are. It comes behind the entries, so it is of a later
// moment: what had been trimmed when they were read, it tells.
const trims = `select trimmed_position, name, count(*) over () from {s}.categories where cardinality($1::int[]) = 0 or id = any($1::int[])
order by trimmed_position desc limit 1`

// feedBranch is the next entries of one table. Several are limited each and then
// merged: through the parent the server would look at every category's table.
const feedBranch = `(select e.*, s.key from {s}.{table} e join {s}.streams s on s.ordinal = e.stream
  where e.position > $1::bigint and e.seqno > s.trimmed order by e.position limit $2::int)`

// $1 age in microseconds $2 lowest key held: those who have held the feed back for
// longer. Whoever has the lowest key has held it for as long as the reader saw it
// unmoved, whatever the server's clock says. A prepared transaction has no session.
const holders = `select a.pid, x.gid, extract(epoch from clock_timestamp() - coalesce(a.xact_start, x.prepared))::float8
from pg_locks l left join pg_stat_activity a on a.pid = l.pid
left join pg_prepared_xacts x on l.pid is null and l.virtualtransaction = '-1/' || x.transaction
where l.locktype = 'advisory' and l.objsubid = 2 and l.mode = 'ShareLock' and l.granted and l.classid = {seq}::oid
  and l.database = (select oid from pg_database where datname = current_database())
  and (a.pid is not null and a.pid <> pg_backend_pid() or x.gid is not null)
  and (clock_timestamp() - coalesce(a.xact_start, x.prepared) > $1::bigint * interval '1 microsecond' or ((l.objid::bigint - $2::bigint) << 32) = 0)`

// $1 category $2 key $3 limit $4 slots, empty for all: looks at the streams behind the key.
// At least one row a category that exists: how many were looked at, through which key,
// and one of which no entry is left.
const listTrimmed = `with w as materialized (select key, slot, trimmed > 0 and trimmed = last_seqno as gone from {s}.streams
  where category = $1::int and key > $2::text order by key limit $3::int)
select (select count(*) from w), (select max(key) from w), x.key
from {s}.categories c left join w x on x.gone and (cardinality($4::smallint[]) = 0 or x.slot = any($4::smallint[])) where c.id = $1::int order by x.key`

// $1 category $2 key $3 fingerprint.
const loadHead = `select ` + headColumns + `, sn.seqno, sn.id, sn.fingerprint, sn.content_type, sn.checksum, sn.data, sn.time, m.id, (select incarnation from {s}.store)
from {s}.categories c left join {s}.streams s on s.category = c.id and s.key = $2::text
left join {s}.snapshots sn on sn.stream = s.ordinal and $3::text <> ''
left join {s}.entries_{n} m on m.stream = s.ordinal and m.seqno = sn.seqno and m.seqno > s.trimmed
where c.id = $1::int`

// $1 category $2 key $3 fingerprint $4 limit: the entries behind the snapshot, if
// it is usable as far as SQL can tell, else from the first on.
const loadTail = `select ` + entryColumns + `
from {s}.streams s
left join {s}.snapshots sn on sn.stream = s.ordinal and $3::text in (sn.fingerprint, '*') and sn.seqno <= s.last_seqno
  and not exists (select 1 from {s}.entries_{n} m where m.stream = s.ordinal and m.seqno = sn.seqno and m.seqno > s.trimmed and m.id <> sn.id)
  and not (sn.seqno = s.last_seqno and sn.id <> s.last_id)
cross join lateral (select * from {s}.entries_{n} e where e.stream = s.ordinal and e.seqno > greatest(coalesce(sn.seqno, 0), s.trimmed)
  order by e.seqno limit $4::int) x
where s.category = $1::int and s.key = $2::text order by x.seqno`

// $1 category $2 key $3 seqno $4 id $5 fingerprint $6 content type $7 checksum $8 data.
const saveSnapshot = `with ` + gate + `,
m as materialized (select s.ordinal, ` + headColumns + `,
    s.last_seqno >= $3::bigint and case when s.last_seqno = $3::bigint then s.last_id = $4::uuid
      else s.trimmed >= $3::bigint or exists (select 1 from {s}.entries_{n} e where e.stream = s.ordinal and e.seqno = $3::bigint and e.id = $4::uuid) end as ours
  from {s}.streams s where s.category = $1::int and s.key = $2::text),
i as (insert into {s}.snapshots as old (stream, seqno, time, id, fingerprint, content_type, checksum, data)
  select ordinal, $3::bigint, clock_timestamp(), $4::uuid, $5::text, $6::text, $7::bytea, $8::bytea from m where ours and (select ok from g)
  on conflict (stream) do update set seqno = excluded.seqno, time = excluded.time, id = excluded.id, fingerprint = excluded.fingerprint,
    content_type = excluded.content_type, checksum = excluded.checksum, data = excluded.data where old.seqno <= excluded.seqno)
select (select ok from g), c.id is not null, m.ours, m.epoch, m.holder, m.last_seqno, m.last_id, m.trimmed
from (select 1) one left join {s}.categories c on c.id = $1::int left join m on true`

// $1 name $2 holder $3 ttl in microseconds. One row: granted, and the lease as it stands.
const acquire = `with ` + gate + `,
a as (insert into {s}.leases as l (name, holder, epoch, until)
  select $1::text, $2::uuid, 1, clock_timestamp() + $3::bigint * interval '1 microsecond' where (select ok from g)
  on conflict (name) do update set holder = excluded.holder, epoch = l.epoch + 1, until = clock_timestamp() + $3::bigint * interval '1 microsecond'
    where l.holder is null or l.holder = excluded.holder or l.until <= clock_timestamp()
  returning l.holder, l.epoch, l.until)
select (select ok from g), true, a.holder, a.epoch, a.until, clock_timestamp() from a
union all select (select ok from g), false, l.holder, l.epoch, l.until, clock_timestamp()
from (select 1) one left join {s}.leases l on l.name = $1::text where not exists (select 1 from a)`

// $1 name $2 holder $3 epoch $4 ttl in microseconds.
const renew = `with ` + gate + `,
a as (update {s}.leases l set until = clock_timestamp() + $4::bigint * interval '1 microsecond'
  where l.name = $1::text and l.holder = $2::uuid and l.epoch = $3::bigint and l.until > clock_timestamp() and (select ok from g)
  returning l.holder, l.epoch, l.until)
select (select ok from g), true, a.holder, a.epoch, a.until, clock_timestamp() from a
union all select (select ok from g), false, l.holder, l.epoch, l.until, clock_timestamp()
from (select 1) one left join {s}.leases l on l.name = $1::text where not exists (select 1 from a)`

// $1 holder $2 ttl in microseconds $3 names $4 epochs $5 which are released $6 prefix. A
// row a name: an epoch of 0 acquires, another one
// renews or releases a lease of that epoch. Rows are locked in the order of names, whoever
// asks, so no two updates wait for one another. An epoch to renew or release goes through
// the conflict as a negative number, and its row is there: rows of leases stay.
const updateLeases = `with ` + gate + `,
a as (insert into {s}.leases as l (name, epoch, until, holder)
  select r.name, case when r.epoch = 0 then 1 else -r.epoch end,
    clock_timestamp() + case when r.released then 0 else $2::bigint end * interval '1 microsecond', case when not r.released then $1::uuid end
  from unnest($3::text[], $4::bigint[], $5::bool[]) r(name, epoch, released)
  where (select ok from g) and (r.epoch = 0 or exists (select 1 from {s}.leases h where h.name = r.name)) order by r.name collate "C"
  on conflict (name) do update set holder = excluded.holder, epoch = case when excluded.epoch > 0 then l.epoch + 1 else l.epoch end,
    until = clock_timestamp() + case when excluded.holder is null then 0 else $2::bigint end * interval '1 microsecond'
    where case when excluded.epoch > 0 then l.holder is null or l.holder = $1::uuid or l.until <= clock_timestamp()
      else l.holder = $1::uuid and l.epoch = -excluded.epoch and (excluded.holder is null or l.until > clock_timestamp()) end
  returning l.name, l.holder, l.epoch, l.until)
select (select ok from g), a.name, a.holder, a.epoch, a.until, clock_timestamp() from a
union all select (select ok from g), l.name, l.holder, l.epoch, l.until, clock_timestamp()
from (select 1) one left join {s}.leases l on l.name >= $6::text and starts_with(l.name, $6::text)
where not exists (select 1 from a where a.name = l.name)`

// ping commits as an append does, with nothing to show for it: a message in the WAL that
// nobody decodes. Is the isolation level right, is the session read-only, which store.
const ping = `with ` + gate + `, r as materialized (select pg_is_in_recovery() or current_setting('transaction_read_only')::bool as only)
select g.ok, r.only, s.incarnation from g, r, {s}.store s
where case when r.only then true else pg_logical_emit_message(true, 'wattle', '') is not null end`

// A category's number is drawn at random, not in turn: sessions remember numbers, and
// behind a failover with loss, or a restore, the next in turn may be one that somebody
// remembers for a category that was lost. No row: the name (or the number) is there.
const insertCategory = `insert into {s}.categories (id, name, layout, demand_snapshots) overriding system value
  values (1 + floor(random() * 2147483646)::int, $1::text, $2::smallint, $3::bool) on conflict do nothing returning id`

// Categories that may hold trimmed entries: number, a token that changes with every
// trim (the row's version), the blocks of the table.
const reclaimable = `select id, xmin::text, coalesce(pg_relation_size(to_regclass({entries} || '_' || id)), 0) / current_setting('block_size')::int
from {s}.categories where trimmed_position > 0 order by id`

// $1 first block $2 behind the last $3 category. Entries are never updated, so what
// was found at a place stays there. The walk touches these blocks and a registry row
// per entry; LIMIT keeps the planner from reading the whole registry instead. Being
// carried out twice does no harm, so the commit need not wait for the disk.
const reclaim = `with g as materialized (select pg_try_advisory_xact_lock({entries}::regclass::oid::int4, 0) as mine,
  set_config('synchronous_commit', 'off', true) as soon),
d as (delete from {s}.entries_{n} where ctid = any(array(
  select e.ctid from {s}.entries_{n} e
    cross join lateral (select from {s}.streams s where s.ordinal = e.stream and s.trimmed >= e.seqno limit 1) t
  where e.ctid >= format('(%s,0)', $1::bigint)::tid and e.ctid < format('(%s,0)', $2::bigint)::tid
    and e.position <= (select trimmed_position from {s}.categories where id = $3::int) and (select mine from g)))
  returning 1)
select (select mine from g), (select count(*) from d)`

// Numbers in the registry that no category has; the recursion steps over the index
// from one number to the next.
const orphans = `with recursive c (id) as (select min(category) from {s}.streams
  union all select (select min(s.category) from {s}.streams s where s.category > c.id) from c where c.id is not null)
select id from c where id is not null and not exists (select from {s}.categories k where k.id = c.id)`

// $1 stream $2 limit: looks at the snapshots behind it and deletes those whose
// stream is gone. How many it looked at, the last one, how many it deleted.
const reclaimSnapshots = `with w as materialized (select stream from {s}.snapshots where stream > $1::bigint order by stream limit $2::int),
d as (delete from {s}.snapshots where stream in (select w.stream from w where not exists (select from {s}.streams s where s.ordinal = w.stream)) returning 1)
select count(*), coalesce(max(stream), 0), (select count(*) from d) from w`

// idleBound limits how long the transaction may idle, to {ttl} milliseconds or the
// session's own limit if that is lower.
const idleBound = `set_config('idle_in_transaction_session_timeout', case
    when extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval) * 1000 between 1 and {ttl}
    then current_setting('idle_in_transaction_session_timeout') else '{ttl}' end, true)`

// orFail makes an append that does not pass an error (22012), so that a COMMIT sent
// along with it is not carried out. {w} holds the streams that passed.
const orFail = `, 1 / (select count(*) from {w})`

// newStatements fills in the schema, and how long a transaction that has appended
// may idle: ttl, or without limit if that is negative.
func newStatements(schema string, ttl time.Duration) statements {
	bound := "null::text"
	if ttl >= 0 {
		bound = strings.ReplaceAll(idleBound, "{ttl}", strconv.FormatInt(max(ttl.Milliseconds(), 1), 10))
	}
	named := func(table string) string { return "'" + strings.ReplaceAll(schema+"."+table, "'", "''") + "'" }
	seq := named("position") + "::regclass"
	fill := func(sql string, more ...string) string {
		more = append(more, "{s}", schema, "{seq}", seq, "{zero}", "'00000000-0000-0000-0000-000000000000'::uuid", "{bound}", bound, "{entries}", named("entries"))
		for range 2 { // what is filled in may hold placeholders itself
			sql = strings.NewReplacer(more...).Replace(sql)
		}
		return sql
	}
	appending := func(sql, bound, from string) string {
		return fill(sql, "{lowerBound}", strings.ReplaceAll(bound, "{from}", from), "{draw}", draw)
	}
	texts := func(bound, tail string) appendTexts {
		const one, all = "select count(*) as c from w", "select count(*) + 0*(select created from z) as c from w"
		return appendTexts{
			one:   appending(appendOne+strings.ReplaceAll(tail, "{w}", "w"), bound, one),
			log:   fill(appendLog + strings.ReplaceAll(tail, "{w}", "u")),
			all:   appending(allShared.Replace(appendAll)+strings.ReplaceAll(tail, "{w}", "w"), bound, all),
			mixed: appending(allMixed.Replace(appendAll)+strings.ReplaceAll(tail, "{w}", "w"), bound, all+" where ring = 0"),
		}
	}
	return statements{
		version: fill(`select (select max(version_id) from {s}.wattle_version where is_applied), incarnation from {s}.store`),
		sequence: fill(`select seqincrement = 1 and seqcache = 1 and not seqcycle and pg_sequence_last_value({seq}) is not null,
  has_sequence_privilege({seq}, 'USAGE') from pg_sequence where seqrelid = {seq}`),
		session: `select pg_backend_pid(), current_setting('synchronous_standby_names') <> ''`, settle: fill(settle),
		plain: texts(lowerBound, ""), inTx: texts(lowerBoundOnce, ""), orFail: texts(lowerBound, orFail),
		appendGroup: appending(appendGroup, lowerBound, "select count(*) as c from w"), appendLogGroup: fill(appendLogGroup),
		around: fill(around), head: fill(head), page: fill(page), backward: fill(backward), fence: fill(fence),
		horizonLow: fill(horizonLow), horizonHeld: fill(horizonHeld),
		feed: fill(feed), branch: fill(feedBranch), trims: fill(trims),
		feedAll: fill(feed, "{from}", strings.ReplaceAll(feedBranch, "{table}", "entries")),
		holders: fill(holders), endHolder: `select pg_terminate_backend($1::int)`,
		loadHead: fill(loadHead), loadTail: fill(loadTail), saveSnapshot: fill(saveSnapshot), listTrimmed: fill(listTrimmed),
		category:       fill(`select c.id, c.layout, pg_is_in_recovery() from (select 1) one left join {s}.categories c on c.name = $1::text`),
		categories:     fill(`select name, layout, not demand_snapshots from {s}.categories order by name`),
		insertCategory: fill(insertCategory),
		logs:           newLogStatements(schema, fill),
		createTable:    fill(`create table {s}.entries_{n} (like {s}.entries_0 including all)`),
		attach:         fill(`alter table {s}.entries attach partition {s}.entries_{n} for values in ({n})`),
		// Sets what is set already: the point is that sessions are told.
		refreshPartitions: fill(`alter table {s}.entries alter column category set statistics -1`),
		dropTable:         fill(`drop table {s}.entries_{n}`),
		deleteCategory: fill(`with h as (delete from {s}.holds where category = $1::int), n as (update {s}.store set deleted_categories = deleted_categories + 1)
  delete from {s}.categories where id = $1::int`),
		deleteStreams: fill(`with d as (delete from {s}.streams where ordinal = any(array(select ordinal from {s}.streams where category = $1::int limit 10000)) returning ordinal),
  sn as (delete from {s}.snapshots where stream in (select ordinal from d)) select count(*) from d`),
		lockCategory: fill(`select demand_snapshots, trimmed_position from {s}.categories where id = $1::int for no key update`),
		lockStream: fill(`select s.ordinal, s.ring, ` + headColumns + `, sn.seqno from {s}.streams s left join {s}.snapshots sn on sn.stream = s.ordinal
  where s.category = $1::int and s.key = $2::text for no key update of s`),
		categoryHolds: fill(`select h.name, h.stream, h.seqno, h.position,
  coalesce((select min(e.seqno) from {s}.entries_{n} e where e.stream = $2::bigint and e.position >= h.position), 9223372036854775807)
  from {s}.holds h where h.category = $1::int and h.stream in (0, $2::bigint) order by h.name, h.stream`),
		setTrimmed: fill(`with ` + gate + `, p as (select position from {s}.entries_{n} where stream = $2::bigint and seqno = $3::bigint),
  u as (update {s}.streams set trimmed = $3::bigint where ordinal = $2::bigint and (select ok from g))
  update {s}.categories set trimmed_position = greatest(trimmed_position, (select position from p)) where id = $1::int and (select ok from g)`),
		setHold: fill(`insert into {s}.holds (name, category, stream, seqno, position, id) values ($1::text, $2::int, $3::bigint, $4::bigint, $5::bigint, $6::uuid)
  on conflict (name, category, stream) do update set seqno = excluded.seqno, position = excluded.position, id = excluded.id, updated = now()`),
		releaseHold: fill(`delete from {s}.holds h using {s}.categories c where c.name = $2::text and h.category = c.id and h.name = $1::text
  and h.stream = coalesce((select ordinal from {s}.streams where category = c.id and key = $3::text), case when $3::text = '' then 0 end)`),
		holds: fill(`select h.name, c.name, s.key, h.seqno, h.position, h.id from {s}.holds h join {s}.categories c on c.id = h.category
  left join {s}.streams s on s.ordinal = h.stream order by h.name, c.name, s.key nulls first`),
		ensureStream: fill(`insert into {s}.streams (category, key, slot, epoch, holder, last_seqno, last_id, last_time)
  values ($1::int, $2::text, $3::smallint, 0, {zero}, 0, {zero}, 'epoch') on conflict (category, key) do nothing`),
		streamOrdinal: fill(`select s.ordinal, ` + headColumns + `, e.id from {s}.streams s
  left join {s}.entries_{n} e on e.stream = s.ordinal and e.seqno = $3::bigint and e.seqno > s.trimmed where s.category = $1::int and s.key = $2::text for no key update of s`),
		acquire: fill(acquire), renew: fill(renew), updateLeases: fill(updateLeases),
		begin:       "begin isolation level read committed; select " + bound,
		reclaimable: fill(reclaimable), reclaim: fill(reclaim), orphans: fill(orphans), reclaimSnapshots: fill(reclaimSnapshots),
		ping:    fill(ping),
		release: fill(`update {s}.leases set holder = null, until = clock_timestamp() where name = $1::text and holder = $2::uuid and epoch = $3::bigint`),
	}
}
