// The tables projectors, parked and skipped: statements, and rows from and to values.

package pgcheckpoint

import (
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// controlStatements are the texts for one schema.
type controlStatements struct {
	schema string

	lane, parkedOfLane, skipped   string // of one key
	versions, checkpoints, parked string // of one projector, all if its name is empty

	park, unpark, skip string // of a step

	lockVersions, lockCheckpoints string
	putVersion, putLane, newLane  string
	dropLanes                     string
	remove                        []string // everything of a version
}

const (
	versionColumns = "v.projector, v.version, v.lanes, v.role, v.created, v.stream, v.categories, v.types, v.quiet"
	parkedColumns  = "stream_key, stream, slot, seqno, position, id, type, queue_streams, queue_from, through, count," +
		" cause, stack, attempts, trace, since, request, note"
	parkedValues = "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, coalesce($18::timestamptz, now()), $19, $20)"
)

func newControlStatements(schema string) controlStatements {
	table := func(name string) string { return pgx.Identifier{schema, name}.Sanitize() }
	projectors, checkpoints, parked, skipped := table("projectors"), table("checkpoints"), table("parked"), table("skipped")
	of := func(t string) string { // the backend's name stands behind a slash
		return " WHERE ($1::text = '' OR split_part(" + t + ".projector, '/', 1) = $1) ORDER BY " + t + ".projector, " + t + ".version"
	}
	const key = " WHERE projector = $1 AND version = $2"
	q := controlStatements{
		schema: schema,
		lane: "SELECT v.lanes, v.role, v.quiet, " + checkpointColumns + "c.recent FROM " + projectors + " AS v LEFT JOIN " + checkpoints +
			" AS c ON c.projector = $1 AND c.version = $2 AND c.lane = $3" +
			" WHERE v.projector = $1 AND v.version = $2 AND $3 >= 0 AND v.lanes > $3",
		parkedOfLane: "SELECT projector, version, " + parkedColumns + " FROM " + parked + key +
			" AND slot * (SELECT lanes FROM " + projectors + key + ") / 1024 = $3 ORDER BY stream_key",
		skipped:     "SELECT projector, version, " + parkedColumns + " FROM " + skipped + key + " ORDER BY time, number",
		versions:    "SELECT " + versionColumns + " FROM " + projectors + " AS v" + of("v"),
		checkpoints: "SELECT c.projector, c.version, c.lane, " + checkpointColumns + "NULL::bytea FROM " + checkpoints + " AS c" + of("c") + ", c.lane",
		parked:      "SELECT k.projector, k.version, " + parkedColumns + " FROM " + parked + " AS k" + of("k") + ", k.stream_key",

		park: "INSERT INTO " + parked + " (projector, version, " + parkedColumns + ") " + parkedValues +
			" ON CONFLICT (projector, version, stream_key) DO UPDATE SET " + excluded(parkedColumns),
		unpark: "DELETE FROM " + parked + key + " AND stream_key = ANY ($3::text[])",
		skip:   "INSERT INTO " + skipped + " (projector, version, " + parkedColumns + ") " + parkedValues,

		lockVersions:    "SELECT " + versionColumns + " FROM " + projectors + " AS v" + of("v") + " FOR UPDATE",
		lockCheckpoints: "SELECT c.projector, c.version, c.lane, " + checkpointColumns + "c.recent FROM " + checkpoints + " AS c" + of("c") + ", c.lane FOR UPDATE",
		putVersion: "INSERT INTO " + projectors + " (projector, version, lanes, role, created, stream, categories, types, quiet)" +
			" VALUES ($1, $2, $3, $4, coalesce($5::timestamptz, now()), $6, $7, $8, $9) ON CONFLICT (projector, version) DO UPDATE SET " +
			excluded("lanes, role, created, stream, categories, types, quiet"),
		newLane: "INSERT INTO " + checkpoints + " (projector, version, lane, epoch, holder, incarnation, timeline, position, mark_position, mark_id, seqno, recent)" +
			" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
		dropLanes: "DELETE FROM " + checkpoints + key + " AND lane >= $3",
	}
	q.putLane = q.newLane + " ON CONFLICT (projector, version, lane) DO UPDATE SET " + setCheckpoint
	for _, t := range []string{skipped, parked, checkpoints, projectors} {
		q.remove = append(q.remove, "DELETE FROM "+t+key)
	}
	return q
}

// excluded sets columns to what was to be inserted.
func excluded(columns string) string {
	var set []string
	for c := range strings.SplitSeq(columns, ", ") {
		set = append(set, c+" = excluded."+c)
	}
	return strings.Join(set, ", ")
}

// queue queues what a step does to parked keys.
func (q *controlStatements) queue(b *pgx.Batch, s projector.Step) {
	for _, k := range s.Park {
		b.Queue(q.park, parkedArgs(s.Key, k)...)
	}
	if len(s.Unpark) > 0 {
		b.Queue(q.unpark, s.Key.Projector, int64(s.Key.Version), s.Unpark)
	}
	for _, k := range s.Skipped {
		b.Queue(q.skip, parkedArgs(s.Key, k)...)
	}
}

func parkedArgs(key projector.Key, k projector.Parked) []any {
	streams, from := make([]string, len(k.Queue)), make([]int64, len(k.Queue))
	for i, w := range k.Queue {
		streams[i], from[i] = string(w.Stream), int64(w.From)
	}
	return []any{key.Projector, int64(key.Version), k.StreamKey, string(k.Stream), int64(k.Slot()), int64(k.Seqno), int64(k.Position),
		uuid(k.ID), k.Type, streams, from, int64(k.Through), int64(k.Count), storable(k.Cause), storable(k.Stack), int64(k.Attempts),
		storable(k.Trace), moment(k.Since), int64(k.Request), storable(k.Note)}
}

// storable is a text as PostgreSQL can keep it. Errors may hold anything, and what
// cannot be told must not keep its key from being parked.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// moment is a time, NULL for none.
func moment(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

// eachParked calls f with every row of a key and parkedColumns.
func eachParked(rows pgx.Rows, f func(projector.Key, projector.Parked)) error {
	for rows.Next() {
		var (
			key                             projector.Key
			k                               projector.Parked
			slot, request                   int16
			seqno, position, through, count int64
			stream                          string
			streams                         []string
			from                            []int64
			id                              pgtype.UUID
		)
		if err := rows.Scan(&key.Projector, &key.Version, &k.StreamKey, &stream, &slot, &seqno, &position, &id, &k.Type, &streams, &from,
			&through, &count, &k.Cause, &k.Stack, &k.Attempts, &k.Trace, &k.Since, &request, &k.Note); err != nil {
			return err
		}
		k.Stream, k.Seqno, k.Position, k.ID = eventstore.Stream(stream), eventstore.Seqno(seqno), eventstore.Position(position), id.Bytes
		k.Through, k.Count, k.Request = eventstore.Position(through), uint64(count), projector.Request(request)
		for i := range min(len(streams), len(from)) {
			k.Queue = append(k.Queue, projector.Queued{Stream: eventstore.Stream(streams[i]), From: eventstore.Seqno(from[i])})
		}
		f(key, k)
	}
	return rows.Err()
}

// scanVersion scans versionColumns. Its lanes are those of nobody yet.
func scanVersion(rows pgx.Rows) (v projector.Version, err error) {
	var (
		lanes      int
		role       int16
		stream     string
		categories []string
		types      []string
		quiet      []int64
	)
	err = rows.Scan(&v.Key.Projector, &v.Key.Version, &lanes, &role, &v.Created, &stream, &categories, &types, &quiet)
	if err != nil {
		return v, err
	}
	v.Role, v.Quiet, v.Lanes = projector.Role(role), places(quiet), make([]projector.Checkpoint, lanes)
	v.Scope.Stream = eventstore.Stream(stream)
	for _, c := range categories {
		v.Scope.Categories = append(v.Scope.Categories, eventstore.Category(c))
	}
	v.Scope.Types = append(v.Scope.Types, types...)
	return v, nil
}

func versionArgs(v *projector.Version) []any {
	categories, quiet := make([]string, len(v.Scope.Categories)), make([]int64, len(v.Quiet))
	for i, c := range v.Scope.Categories {
		categories[i] = string(c)
	}
	for i, p := range v.Quiet {
		quiet[i] = int64(p)
	}
	return []any{v.Key.Projector, int64(v.Key.Version), int64(len(v.Lanes)), int64(v.Role), moment(v.Created), string(v.Scope.Stream),
		categories, append([]string{}, v.Scope.Types...), quiet}
}

func places(quiet []int64) (all []uint64) {
	for _, p := range quiet {
		all = append(all, uint64(p))
	}
	return all
}
