// Values on their way between the contract's types and PostgreSQL's.

package pglog

import (
	"encoding/json"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/wattle-es/wattle/eventstore"
)

// uuid is the type that every query mode of pgx encodes as uuid; [16]byte is not.
type uuid = pgtype.UUID

func toUUID(u eventstore.UUID) uuid { return uuid{Bytes: u, Valid: true} }

func fromUUID(u uuid) eventstore.UUID {
	if !u.Valid {
		return eventstore.UUID{}
	}
	return eventstore.UUID(u.Bytes)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// toMetadata writes metadata as a JSON object; empty metadata as the empty text.
func toMetadata(m eventstore.Metadata) string {
	if len(m) == 0 {
		return ""
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // a map of strings always marshals
	}
	return string(b)
}

func fromMetadata(s string) (m eventstore.Metadata, err error) {
	if s == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(s), &m)
	return m, err
}

// entryColumns are the columns of an entry in the order in which entryRow scans
// them; x is the table.
const entryColumns = `x.position, x.seqno, x.epoch, x.time, x.id, x.batch, x.version, x.type, x.content_type, x.metadata, x.data`

// entryRow takes one row of entryColumns, and then the next: values, not pointers, so that
// a row costs no allocation but for its texts and its payload. The columns are NULL where
// a LEFT JOIN found none.
type entryRow struct {
	position, seqno, epoch pgtype.Int8
	time                   pgtype.Timestamptz
	id, batch              uuid
	version                pgtype.Int4
	typ, contentType, meta pgtype.Text
	data                   []byte
}

func (r *entryRow) targets(more ...any) []any {
	return append(more, &r.position, &r.seqno, &r.epoch, &r.time, &r.id, &r.batch, &r.version, &r.typ, &r.contentType, &r.meta, &r.data)
}

// entry returns the entry, or ok false if the row holds none.
func (r *entryRow) entry(s eventstore.Stream) (e eventstore.Entry, ok bool, err error) {
	if !r.seqno.Valid || !r.typ.Valid {
		return e, false, nil
	}
	meta, err := fromMetadata(r.meta.String)
	if err != nil {
		return e, false, &eventstore.Error{Kind: eventstore.ErrCorrupt, Stream: s, Wanted: "metadata of entry " + itoa(r.seqno.Int64) + " to be a JSON object", Err: err}
	}
	if r.time.InfinityModifier != pgtype.Finite {
		return e, false, &eventstore.Error{Kind: eventstore.ErrCorrupt, Stream: s, Wanted: "a time of entry " + itoa(r.seqno.Int64), Found: r.time.InfinityModifier.String()}
	}
	if r.data == nil {
		r.data = []byte{}
	}
	return eventstore.Entry{
		Event: eventstore.Event{ID: fromUUID(r.id), Type: r.typ.String, Version: int(r.version.Int32), ContentType: r.contentType.String,
			Data: r.data, Metadata: meta},
		Stream: s, Seqno: eventstore.Seqno(r.seqno.Int64), Epoch: eventstore.Epoch(r.epoch.Int64), BatchID: fromUUID(r.batch),
		Position: eventstore.Position(r.position.Int64), Time: r.time.Time.UTC(),
	}, true, nil
}

// headColumns are the columns of a stream's registry row that make its Head.
const headColumns = `s.epoch, s.holder, s.last_seqno, s.last_id, s.trimmed`

// headRow takes one row of headColumns; all NULL for a stream that does not exist.
type headRow struct {
	epoch, last, trimmed *int64
	holder, lastID       uuid
}

func (r *headRow) targets(more ...any) []any {
	return append([]any{&r.epoch, &r.holder, &r.last, &r.lastID, &r.trimmed}, more...)
}

func (r *headRow) head() eventstore.Head {
	if r.epoch == nil {
		return eventstore.Head{}
	}
	return eventstore.Head{Epoch: eventstore.Epoch(*r.epoch), Holder: fromUUID(r.holder),
		Last: eventstore.Mark{Seqno: eventstore.Seqno(*r.last), ID: fromUUID(r.lastID)}, Trimmed: eventstore.Seqno(*r.trimmed)}
}

// eventArrays are the columns of events, as unnest takes them.
type eventArrays struct {
	ids      []uuid
	versions []int32
	types    []string
	contents []string
	metas    []string
	datas    [][]byte
}

func (a *eventArrays) add(events []eventstore.Event) {
	for i := range events {
		e := &events[i]
		a.ids = append(a.ids, toUUID(e.ID))
		a.versions = append(a.versions, int32(e.Version))
		a.types = append(a.types, e.Type)
		a.contents = append(a.contents, e.ContentType)
		a.metas = append(a.metas, toMetadata(e.Metadata))
		a.datas = append(a.datas, e.Data)
	}
}

func (a *eventArrays) args() []any {
	return []any{a.ids, a.versions, a.types, a.contents, a.metas, a.datas}
}

// readOnlySnapshot queues statements between BEGIN and COMMIT of a repeatable read,
// so that all see one moment, in one round trip.
func readOnlySnapshot(queue func(b *pgx.Batch)) *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue("begin isolation level repeatable read read only")
	queue(b)
	b.Queue("commit")
	return b
}
