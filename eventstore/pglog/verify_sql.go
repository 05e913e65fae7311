// The SQL of Verify. All of it reads only; each text is one step of a walk, and
// sees one moment.

package pglog

import "strings"

// verifyStatements are the texts of one schema. {n} is a category's number; see of.
type verifyStatements struct {
	store, categories, partitions, orphanStreams, total string
	streams, registry, entries                          string
	positions, order, at                                string
	snapshots, checksums                                string
	holds, held, checkpoints, leases                    string
}

// micros is a time as microseconds since 1970, NULL for infinity, which no Go time
// can be.
func micros(column string) string {
	return `case when isfinite(` + column + `) then (extract(epoch from ` + column + `) * 1000000)::bigint end`
}

// The store's row, and the sequence's settings and value; no row without the sequence.
const verifyStore = `select (select count(*) from {s}.store), (select incarnation from {s}.store limit 1),
  (select seqincrement = 1 and seqcache = 1 and not seqcycle from pg_sequence where seqrelid = c.oid), pg_sequence_last_value(c.oid::regclass)
from pg_class c where c.oid = to_regclass({seq}) and c.relkind = 'S'`

// Tables that are a category's, should be, or hang under entries without being one:
// as found in the catalog, by name and not by to_regclass, so that all is of one
// moment. keys are the valid unique indexes with their columns.
const verifyPartitions = `select t.id, t.name, c.oid is not null, coalesce(i.inhparent = p.oid and not i.inhdetachpending, false),
  coalesce(pg_get_expr(c.relpartbound, c.oid), ''),
  array(select (select coalesce(string_agg(a.attname, ',' order by k.n), '') from unnest(x.indkey::int2[]) with ordinality k(attnum, n)
      join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum)
    from pg_index x where x.indrelid = c.oid and x.indisunique and x.indisvalid and x.indisready and x.indislive and x.indpred is null)::text[]
from pg_class p
  cross join lateral (select k.id, k.name, 'entries_' || k.id as tablename from {s}.categories k where k.layout = 0
    union all select 0, '', 'entries_0'
    union all select -1, d.relname::text, d.relname::text from pg_inherits h join pg_class d on d.oid = h.inhrelid where h.inhparent = p.oid
      and d.relname not in (select 'entries_' || id from {s}.categories union all select 'entries_0')) t
  left join pg_class c on c.relname = t.tablename and c.relnamespace = p.relnamespace and c.relkind = 'r'
  left join pg_inherits i on i.inhrelid = c.oid
where p.oid = {entries}::regclass order by t.id, t.name`

// $1 category $2 key $3 that key too $4 limit: the next streams and how many entries
// each should have.
const verifyStreams = `select ordinal, key, greatest(last_seqno - greatest(trimmed, 0), 0) from {s}.streams
where category = $1::int and key >= $2::text and ($3::bool or key <> $2::text) order by key limit $4::int`

// $1 category $2 ordinals: their registry rows with what hangs on them.
const verifyRegistry = `select s.ordinal, s.key, s.slot, s.epoch, s.holder, s.last_seqno, s.last_id, {lastTime}, s.trimmed,
  c.demand_snapshots, sn.seqno, sn.id, m.id
from {s}.streams s join {s}.categories c on c.id = s.category
left join {s}.snapshots sn on sn.stream = s.ordinal
left join lateral (select e.id from {s}.entries_{n} e where e.stream = s.ordinal and e.seqno = sn.seqno limit 1) m on true
where s.category = $1::int and s.ordinal = any($2::bigint[])`

// $1 category $2 ordinals $3 seqnos behind which to go on $4 limit. What no longer
// counts (below the watermark) is left out. A payload is not sent: bit_count makes the
// server read it whole.
const verifyEntries = `select r.stream, x.position, x.seqno, x.epoch, {time}, x.category, x.version, x.id, x.batch, x.slot, x.type, x.content_type, x.metadata,
  octet_length(x.data), bit_count(x.data)
from unnest($2::bigint[], $3::bigint[]) with ordinality r(stream, after, ord)
join {s}.streams s on s.ordinal = r.stream and s.category = $1::int
cross join lateral (select * from {s}.entries_{n} e where e.stream = r.stream and e.seqno > greatest(r.after, s.trimmed)
  order by e.seqno limit $4::int) x
order by r.ord, x.seqno, x.position limit $4::int`

// $1 category $2 position $3 limit: a page in the order of positions. What belongs to
// no stream, what waits for Reclaim, what Reclaim would never find, what lies above
// the sequence: how many, and where the first is.
const verifyPositions = `select count(*), coalesce(max(e.position), 0),
  count(*) filter (where s.ordinal is null), coalesce(min(e.position) filter (where s.ordinal is null), 0),
  count(*) filter (where e.seqno <= s.trimmed),
  count(*) filter (where e.seqno <= s.trimmed and e.position > k.trimmed_position),
  coalesce(min(e.position) filter (where e.seqno <= s.trimmed and e.position > k.trimmed_position), 0),
  count(*) filter (where e.position > q.v), coalesce(min(e.position) filter (where e.position > q.v), 0), coalesce(max(q.v), 0)
from (select position, stream, seqno from {s}.entries_{n} where position > $2::bigint order by position limit $3::int) e
cross join (select coalesce(pg_sequence_last_value({seq}), 0) as v offset 0) q
left join {s}.streams s on s.ordinal = e.stream and s.category = $1::int
left join {s}.categories k on k.id = $1::int`

// $1 position, itself too $2 limit: a page of all positions in order, and which of
// them come more than once.
const verifyOrder = `with p as materialized (select position, count(*) as n
  from (select position from {s}.entries where position >= $1::bigint order by position limit $2::int) y group by position)
select coalesce(max(position), 0), coalesce(sum(n), 0)::bigint, array(select position from p where n > 1 order by position) from p`

// $1 position: who stands there.
const verifyAt = `select coalesce(k.name || '-' || s.key, ''), e.seqno, e.id from {s}.entries e left join {s}.streams s on s.ordinal = e.stream
left join {s}.categories k on k.id = s.category where e.position = $1::bigint order by 1, 2 limit 10`

// Streams that say they are in a category that there is not. given says if it may have
// been deleted.
const verifyOrphanStreams = `with recursive c (id) as (select min(category) from {s}.streams
  union all select (select min(s.category) from {s}.streams s where s.category > c.id) from c where c.id is not null)
select id, (select count(*) from {s}.streams s where s.category = c.id),
  id > 0 and coalesce((select deleted_categories > 0 from {s}.store limit 1), false)
from c where id is not null and not exists (select from {s}.categories k where k.id = c.id)`

// $1 stream $2 limit: the next snapshots, what they are of, and their sizes.
const verifySnapshots = `select n.stream, n.seqno, n.fingerprint, n.content_type, octet_length(n.checksum), octet_length(n.data), k.name, s.key
from (select * from {s}.snapshots where stream > $1::bigint order by stream limit $2::int) n
left join {s}.streams s on s.ordinal = n.stream left join {s}.categories k on k.id = s.category order by n.stream`

// $1 streams: those of whose snapshots the checksum does not match.
const verifyChecksums = `select stream from {s}.snapshots where stream = any($1::bigint[]) and sha256(data) is distinct from checksum order by stream`

// markedEntry is the ID of the entry at a position, and what may have become of it
// without fault: it was trimmed, or its category was deleted, if any was.
const markedEntry = `(select e.id from {s}.entries e where e.position = {at} limit 1),
  exists (select from {s}.categories t where t.trimmed_position >= {at}),
  coalesce((select deleted_categories > 0 from {s}.store limit 1), false)`

// Holds with what they hold.
const verifyHolds = `select h.name, h.category, h.stream, h.seqno, h.position, h.id, k.name, k.trimmed_position, s.key, s.trimmed, s.last_seqno, s.last_id,
  coalesce(pg_sequence_last_value({seq}), 0), {marked}
from {s}.holds h left join {s}.categories k on k.id = h.category left join {s}.streams s on s.ordinal = h.stream and s.category = h.category
where (h.name, h.category, h.stream) > ($1::text, $2::int, $3::bigint) order by h.name, h.category, h.stream limit $4::int`

// The entry that a hold on a stream marks. $1 ordinal $2 seqno.
const verifyHeld = `select id from {s}.entries_{n} where stream = $1::bigint and seqno = $2::bigint`

const verifyCheckpoints = `select c.projector, c.version, c.lane, c.epoch, c.position, c.mark_position, c.seqno, c.holder, c.incarnation, c.mark_id,
  (select incarnation from {s}.store limit 1), coalesce(pg_sequence_last_value({seq}), 0), {marked}
from {s}.checkpoints c where (c.projector, c.version, c.lane) > ($1::text, $2::int, $3::int)
order by c.projector, c.version, c.lane limit $4::int`

// $1 name $2 limit. far: it runs for longer than any lease may.
const verifyLeases = `select name, epoch, holder, not isfinite(until) or until > clock_timestamp() + interval '25 hours'
from {s}.leases where name > $1::text order by name limit $2::int`

func newVerifyStatements(schema string) verifyStatements {
	fill := func(sql string, more ...string) string {
		more = append(more, "{s}", schema, "{entries}", named(schema, "entries"),
			"{lastTime}", micros("s.last_time"), "{time}", micros("x.time"))
		return strings.NewReplacer(more...).Replace(sql)
	}
	seq := named(schema, "position")
	marked := func(sql, at string) string {
		return fill(strings.ReplaceAll(sql, "{marked}", markedEntry), "{seq}", seq+"::regclass", "{at}", at)
	}
	return verifyStatements{
		store:      fill(verifyStore, "{seq}", seq),
		categories: fill(`select id, name, layout, trimmed_position, coalesce(pg_sequence_last_value({seq}), 0) from {s}.categories order by id`, "{seq}", seq+"::regclass"),
		partitions: fill(verifyPartitions),
		total:      fill(`select coalesce(sum(greatest(last_seqno - greatest(trimmed, 0), 0)), 0)::float8 from {s}.streams`),
		streams:    fill(verifyStreams), registry: fill(verifyRegistry),
		entries:   fill(verifyEntries),
		positions: fill(verifyPositions, "{seq}", seq+"::regclass"), order: fill(verifyOrder), at: fill(verifyAt),
		orphanStreams: fill(verifyOrphanStreams),
		snapshots:     fill(verifySnapshots), checksums: fill(verifyChecksums),
		holds: marked(verifyHolds, "h.position"), held: fill(verifyHeld), checkpoints: marked(verifyCheckpoints, "c.mark_position"),
		leases: fill(verifyLeases),
	}
}
