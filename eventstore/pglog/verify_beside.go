// Verify, what hangs on streams: snapshots, holds, checkpoints, leases.

package pglog

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// snapshotRow is a snapshot without its data.
type snapshotRow struct {
	stream, seqno            int64
	fingerprint, contentType string
	checksum, size           int32
	category, key            *string // nil: no such stream
}

func (s *snapshotRow) finding(check, wanted, found, hint string) eventstore.Finding {
	f := fault(check, wanted, found, hint)
	if s.key != nil && s.category != nil {
		f.Category = eventstore.Category(*s.category)
		f.Stream = eventstore.Stream(*s.category + "-" + *s.key)
	}
	f.Seqno = eventstore.Seqno(max(s.seqno, 0))
	return f
}

const hintSnapshot = "delete the snapshot if the stream's entries are all there: it is made anew; until then it is replayed around"

// snapshots walks all snapshots: sizes, checksums, those of no stream. Their places are
// checked with their streams.
func (v *verifier) snapshots(ctx context.Context) error {
	behind, lost := int64(0), int64(0)
	for {
		var page []snapshotRow
		err := v.twice(ctx, func(ctx context.Context) (found []eventstore.Finding, err error) {
			rows, err := v.log.pool.Query(ctx, v.sql.snapshots, behind, verifyRowsStep)
			if err != nil {
				return nil, err
			}
			page, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (s snapshotRow, err error) {
				err = r.Scan(&s.stream, &s.seqno, &s.fingerprint, &s.contentType, &s.checksum, &s.size, &s.category, &s.key)
				return s, err
			})
			for i := range page {
				found = append(found, page[i].check()...)
			}
			return found, err
		})
		if err != nil {
			return err
		}
		for i := range page {
			if page[i].key == nil {
				lost++
			}
		}
		if err := v.checksums(ctx, page); err != nil {
			return err
		}
		if v.advance(false); len(page) < verifyRowsStep {
			return v.lostSnapshots(lost)
		}
		behind = page[len(page)-1].stream
	}
}

func (s *snapshotRow) check() (found []eventstore.Finding) {
	if s.key == nil {
		return nil
	}
	if s.checksum != sha256.Size {
		found = append(found, s.finding("snapshot-checksum", fmt.Sprintf("a checksum of %d bytes", sha256.Size), fmt.Sprint(s.checksum), hintSnapshot))
	}
	if s.fingerprint == "" || len(s.fingerprint) > eventstore.MaxNameBytes || s.contentType == "" || s.size > eventstore.MaxSnapshotBytes {
		found = append(found, s.finding("snapshot", "a fingerprint, a content type and data within the limits",
			fmt.Sprintf("fingerprint of %d bytes, content type %q, %d bytes of data", len(s.fingerprint), s.contentType, s.size), hintSnapshot))
	}
	return found
}

// checksums lets the server compute those of a page, some at a time.
func (v *verifier) checksums(ctx context.Context, page []snapshotRow) error {
	for len(page) > 0 {
		n, size := 0, 0
		for n < len(page) && (n == 0 || size+int(page[n].size) <= verifyBytesStep) {
			size += int(page[n].size)
			n++
		}
		err := v.twice(ctx, func(ctx context.Context) ([]eventstore.Finding, error) { return v.wrongChecksums(ctx, page[:n]) })
		if damaged(err) && n > 1 {
			n = 1
			err = v.twice(ctx, func(ctx context.Context) ([]eventstore.Finding, error) { return v.wrongChecksums(ctx, page[:n]) })
		}
		if damaged(err) {
			if !v.yield(page[0].finding("unreadable", "a snapshot that the server can read", err.Error(), hintSnapshot), nil) {
				return errStopped
			}
			err = nil
		}
		if err != nil {
			return err
		}
		v.advance(false)
		page = page[n:]
	}
	return nil
}

func (v *verifier) wrongChecksums(ctx context.Context, page []snapshotRow) (found []eventstore.Finding, err error) {
	streams := make([]int64, len(page))
	of := map[int64]*snapshotRow{}
	for i := range page {
		streams[i], of[page[i].stream] = page[i].stream, &page[i]
	}
	rows, err := v.log.pool.Query(ctx, v.sql.checksums, streams)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var stream int64
		if err := rows.Scan(&stream); err != nil {
			return nil, err
		}
		if s := of[stream]; s.key != nil && s.checksum == sha256.Size {
			found = append(found, s.finding("snapshot-checksum", "data with the snapshot's checksum", "other data", hintSnapshot))
		}
	}
	return found, rows.Err()
}

// lostSnapshots tells of snapshots without a stream: saved while their category was
// being deleted.
func (v *verifier) lostSnapshots(n int64) error {
	if n == 0 {
		return nil
	}
	f := fault("orphan-snapshots", "snapshots of streams that exist", itoa(n)+" of none", "left by the deletion of a category; Reclaim removes them")
	f.Severity = eventstore.SeverityNote
	if !v.yield(f, nil) {
		return errStopped
	}
	return nil
}

// heldRow is a hold with what it holds.
type heldRow struct {
	name                    string
	category                int32
	stream, seqno, position int64
	id                      uuid
	categoryName, key       *string // nil: none such
	categoryTrimmed         *int64
	trimmed, last           *int64 // of the stream
	lastID                  uuid
	drawn                   int64 // the sequence's value
	mark                    positionMark
}

func (h *heldRow) finding(check, wanted, found, hint string) eventstore.Finding {
	f := fault(check, wanted, fmt.Sprintf("hold %q %s", h.name, found), hint)
	if h.categoryName != nil {
		f.Category = eventstore.Category(*h.categoryName)
		if h.key != nil {
			f.Stream = eventstore.Stream(*h.categoryName + "-" + *h.key)
		}
	}
	f.Seqno, f.Position = eventstore.Seqno(max(h.seqno, 0)), eventstore.Position(max(h.position, 0))
	return f
}

// holds checks that what is held is there.
func (v *verifier) holds(ctx context.Context) error {
	var at heldRow
	for {
		n := 0
		var next heldRow
		err := v.twice(ctx, func(ctx context.Context) (found []eventstore.Finding, err error) {
			rows, err := v.log.pool.Query(ctx, v.sql.holds, at.name, at.category, at.stream, verifyRowsStep)
			if err != nil {
				return nil, err
			}
			page, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (h heldRow, err error) {
				err = r.Scan(&h.name, &h.category, &h.stream, &h.seqno, &h.position, &h.id, &h.categoryName, &h.categoryTrimmed,
					&h.key, &h.trimmed, &h.last, &h.lastID, &h.drawn, &h.mark.found, &h.mark.trimmed, &h.mark.deleted)
				return h, err
			})
			if err != nil {
				return nil, err
			}
			for i := range page {
				more, err := v.hold(ctx, &page[i])
				if err != nil {
					return nil, err
				}
				found = append(found, more...)
			}
			if n = len(page); n > 0 {
				next = page[n-1]
			}
			return found, nil
		})
		if err != nil || n < verifyRowsStep {
			return err
		}
		at = next
	}
}

const hintHold = "what it was to keep is lost: whoever set it must be rebuilt or restored; then release it"

func (v *verifier) hold(ctx context.Context, h *heldRow) (found []eventstore.Finding, err error) {
	switch {
	case h.categoryName == nil:
		return append(found, h.finding("hold", "a hold on a category that exists", fmt.Sprintf("is on number %d", h.category), "release it: delete its row")), nil
	case h.stream != 0 && h.key == nil:
		return append(found, h.finding("hold", "a hold on a stream that exists", fmt.Sprintf("is on number %d", h.stream), hintRestore)), nil
	case h.stream != 0:
		return v.streamHold(ctx, h)
	}
	if wanted, what, severity := h.mark.differs(h.position, fromUUID(h.id)); severity > eventstore.SeverityOK {
		f := h.finding("hold-mark", wanted, what, hintHold)
		f.Severity = severity
		found = append(found, f)
	}
	if *h.categoryTrimmed > 0 && h.position <= *h.categoryTrimmed {
		found = append(found, h.finding("hold-trimmed", "nothing trimmed from its position on", "is at or below the trimmed-to position "+itoa(*h.categoryTrimmed), hintHold))
	}
	return found, nil
}

// positionMark is what stands at a position that is marked.
type positionMark struct {
	found            uuid
	trimmed, deleted bool // it may have been trimmed, or its category deleted
}

// differs says how it differs from the mark, and how bad that is.
func (m *positionMark) differs(position int64, id eventstore.UUID) (wanted, found string, s eventstore.Severity) {
	wanted = fmt.Sprintf("entry %v at position %d", id, position)
	switch there := fromUUID(m.found); {
	case position == 0 || id.IsZero() || there == id:
		return "", "", eventstore.SeverityOK
	case !there.IsZero():
		return wanted, "finds " + there.String(), eventstore.SeverityFault
	case m.trimmed:
		return "", "", eventstore.SeverityOK
	case m.deleted:
		return wanted, "finds no entry; a category was deleted, perhaps its own", eventstore.SeverityWarning
	}
	return wanted, "finds no entry", eventstore.SeverityFault
}

func idOrNone(id eventstore.UUID) string {
	if id.IsZero() {
		return "no entry"
	}
	return id.String()
}

func (v *verifier) streamHold(ctx context.Context, h *heldRow) (found []eventstore.Finding, err error) {
	if *h.trimmed > 0 && h.seqno <= *h.trimmed {
		return append(found, h.finding("hold-trimmed", "nothing trimmed from its seqno on", "is at or below the watermark "+itoa(*h.trimmed), hintHold)), nil
	}
	id := fromUUID(h.id)
	if id.IsZero() || h.seqno == 0 {
		return nil, nil
	}
	var marked uuid
	err = v.heldEntry(ctx, h, &marked)
	if err == pgx.ErrNoRows || pgCode(err) == codeUndefinedTable {
		err = nil
	}
	if m := fromUUID(marked); err == nil && m != id {
		found = append(found, h.finding("hold-mark", "entry "+id.String()+" at its seqno", "finds "+idOrNone(m), hintHold))
	}
	return found, err
}

// heldEntry looks up the entry that a hold on a stream marks.
func (v *verifier) heldEntry(ctx context.Context, h *heldRow, id *uuid) error {
	for i := range v.categories {
		if c := &v.categories[i]; c.id == h.category && c.layout == eventstore.Dedicated {
			return v.log.look(ctx, v.log.pool, func(o *oneOffs) { o.add(ofLog(v.log.sql.logs.marked, h.stream), h.stream, h.seqno) },
				func(r *results) error { return r.row(id) })
		}
	}
	return v.log.pool.QueryRow(ctx, of(v.sql.held, h.category), h.stream, h.seqno).Scan(id)
}

// checkpointRow is a checkpoint with what it stands on.
type checkpointRow struct {
	projector                      string
	version, lane                  int32
	epoch, position, markAt, seqno int64
	holder, incarnation, markID    uuid
	store                          uuid // its incarnation
	drawn                          int64
	mark                           positionMark
}

func (c *checkpointRow) finding(check, wanted, found, hint string) eventstore.Finding {
	f := fault(check, wanted, fmt.Sprintf("checkpoint %q/%d/%d %s", c.projector, c.version, c.lane, found), hint)
	f.Position = eventstore.Position(max(c.position, 0))
	return f
}

// checkpoints checks where projectors stand.
func (v *verifier) checkpoints(ctx context.Context) error {
	at := checkpointRow{version: -1 << 31}
	for {
		n := 0
		var next checkpointRow
		err := v.twice(ctx, func(ctx context.Context) (found []eventstore.Finding, err error) {
			rows, err := v.log.pool.Query(ctx, v.sql.checkpoints, at.projector, at.version, at.lane, verifyRowsStep)
			if err != nil {
				return nil, err
			}
			page, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (c checkpointRow, err error) {
				err = r.Scan(&c.projector, &c.version, &c.lane, &c.epoch, &c.position, &c.markAt, &c.seqno, &c.holder, &c.incarnation, &c.markID,
					&c.store, &c.drawn, &c.mark.found, &c.mark.trimmed, &c.mark.deleted)
				return c, err
			})
			for i := range page {
				found = append(found, page[i].check()...)
			}
			if n = len(page); n > 0 {
				next = page[n-1]
			}
			return found, err
		})
		if err != nil || n < verifyRowsStep {
			return err
		}
		at = next
	}
}

const hintRebuild = "the store was restored, replaced or failed over with loss after the checkpoint was made: rebuild the projection under a new version"

func (c *checkpointRow) check() (found []eventstore.Finding) {
	// A lane that nobody has claimed yet has epoch 0 and no place; one that was changed from
	// outside has an epoch and no holder.
	unclaimed := c.epoch == 0 && c.position == 0 && c.markAt == 0 && c.seqno == 0
	if c.epoch < 1 && !unclaimed || c.position < 0 || c.markAt < 0 || c.seqno < 0 {
		found = append(found, c.finding("checkpoint", "an epoch of at least 1, and a place", fmt.Sprintf("has epoch %d of holder %v at position %d, seqno %d",
			c.epoch, fromUUID(c.holder), c.position, c.seqno), "rebuild the projection under a new version"))
	}
	switch incarnation, store := fromUUID(c.incarnation), fromUUID(c.store); {
	case incarnation.IsZero(): // it follows one stream, and does not say of which store
		return found
	case incarnation != store:
		f := c.finding("checkpoint-store", "a checkpoint of this store "+store.String(), "is of store "+incarnation.String(),
			"no matter if the projector follows another store and keeps its checkpoint here; else it stops: rebuild it under a new version")
		f.Severity = eventstore.SeverityWarning
		return append(found, f)
	}
	if c.position > c.drawn {
		found = append(found, c.finding("checkpoint-position", fmt.Sprintf("a position of at most the sequence's value %d", c.drawn), "is above it", hintRebuild))
	}
	if wanted, what, severity := c.mark.differs(c.markAt, fromUUID(c.markID)); severity > eventstore.SeverityOK {
		f := c.finding("checkpoint-mark", wanted, what, hintRebuild)
		f.Severity = severity
		found = append(found, f)
	}
	return found
}

// leases checks what is known of leases.
func (v *verifier) leases(ctx context.Context) error {
	at := ""
	for {
		n, next := 0, at
		err := v.twice(ctx, func(ctx context.Context) (found []eventstore.Finding, err error) {
			rows, err := v.log.pool.Query(ctx, v.sql.leases, at, verifyRowsStep)
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			for n = 0; rows.Next(); n++ {
				var epoch int64
				var holder uuid
				var far bool
				if err := rows.Scan(&next, &epoch, &holder, &far); err != nil {
					return nil, err
				}
				if epoch < 1 {
					found = append(found, fault("lease", "an epoch of at least 1", fmt.Sprintf("lease %q at epoch %d", next, epoch), "its next holder is not told from earlier ones: restore the row"))
				}
				if far && holder.Valid {
					found = append(found, fault("lease", "an end within the longest lease "+eventstore.MaxLeaseTTL.String(), fmt.Sprintf("lease %q runs longer", next),
						"nobody else is granted it until then: release it, and see to the server's clock"))
				}
			}
			return found, rows.Err()
		})
		if err != nil || n < verifyRowsStep {
			return err
		}
		at = next
	}
}
