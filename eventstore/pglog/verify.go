// Verify: everything that is stored, read in bounded steps and held against the rules.

package pglog

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
)

// # How Verify reads
//
// It goes through the registry of each category by key, and reads the entries of a few
// streams, or a part of one, in one step; then through each table once more in the order
// of positions, once through all positions, and through what hangs on them. A step is a
// read-only transaction under REPEATABLE READ, or a single statement: it sees one moment,
// in which registry and entries agree whatever is being written, trimmed or reclaimed.
// No snapshot is older than a step, so it does not slow the registry's hot rows. From
// one step to the next only what can never change is remembered: of a long stream, the
// last entry read.
//
// A step that finds something is made once more, and only what both found is a finding:
// a category that is just being deleted, or somebody's repair, is no damage.
//
// What it cannot see: a payload or metadata changed into another valid one (their digest
// is not stored), a stream that was removed with all its traces, and what was appended
// behind its back. Checkpoints may be those of another store (a read model beside this
// one): of those that name another incarnation, or none, nothing else is checked.

const opVerify = "verify"

// Bounds of one step.
const (
	verifyEntriesStep   = 2000  // entries with their metadata
	verifyStreamsStep   = 500   // streams looked up, and read if they are short
	verifyPositionsStep = 20000 // rows looked at in the order of positions
	verifyRowsStep      = 500   // holds, checkpoints, leases, snapshots
	verifyBytesStep     = 32 << 20
)

// Verify is [Log.Verify] for a schema that Open may refuse, as with a sequence that was
// altered. Of the options only Schema counts. It is ErrNotMigrated if the schema is
// absent or of another version than [SchemaVersion].
func Verify(ctx context.Context, pool *pgxpool.Pool, o *Options, progress func(eventstore.Progress)) iter.Seq2[eventstore.Finding, error] {
	return unopened(pool, o).Verify(ctx, progress)
}

// unopened is a Log whose schema was not looked at.
func unopened(pool *pgxpool.Pool, o *Options) *Log {
	if o == nil {
		o = &Options{}
	}
	name := o.Schema
	if name == "" {
		name = "wattle"
	}
	l := &Log{pool: pool, schema: pgx.Identifier{name}.Sanitize(), holderTTL: o.HolderTTL}
	if l.holderTTL == 0 {
		l.holderTTL = eventstore.DefaultLeaseTTL
	}
	l.sql = newStatements(l.schema, l.holderTTL)
	return l
}

// Verify checks everything that is stored; see [eventstore.Verifier]. It costs about two
// sequential reads of the store, on one connection at a time, and may run beside
// everything else. Behind a pooler and on a standby it works too.
func (l *Log) Verify(ctx context.Context, progress func(eventstore.Progress)) iter.Seq2[eventstore.Finding, error] {
	return func(yield func(eventstore.Finding, error) bool) {
		v := &verifier{log: l, sql: newVerifyStatements(l.schema), tell: progress, yield: yield}
		if err := v.run(ctx); err != nil && !errors.Is(err, errStopped) {
			yield(eventstore.Finding{}, l.translate(opVerify, "", err, reading))
		}
	}
}

// errStopped says that whoever ranges over the findings has seen enough.
var errStopped = errors.New("stopped")

// verifier is one run of Verify.
type verifier struct {
	log      *Log
	sql      verifyStatements
	tell     func(eventstore.Progress)
	yield    func(eventstore.Finding, error) bool
	progress eventstore.Progress
	told     time.Time

	categories []verifyCategory
}

// verifyCategory is a category as it was when the run began.
type verifyCategory struct {
	id       int32
	name     eventstore.Category
	layout   eventstore.Layout
	trimmed  int64 // its trimmed-to position
	anywhere bool  // a watermark was found in one of its streams
	absent   bool  // it has no table
}

// finding is a fault of the category.
func (c *verifyCategory) finding(check string, position int64, wanted, found, hint string) eventstore.Finding {
	return eventstore.Finding{Check: check, Severity: eventstore.SeverityFault, Category: c.name,
		Position: eventstore.Position(max(position, 0)), Wanted: wanted, Found: found, Hint: hint}
}

func (v *verifier) run(ctx context.Context) error {
	if _, err := v.step(ctx, v.schema); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{v.begin, v.tables, v.lostStreams, v.entries, v.order, v.snapshots, v.holds, v.checkpoints, v.leases} {
		if err := v.unreadable(part(ctx), fault("unreadable", "tables that the server can read", "", hintUnread)); err != nil {
			return err
		}
	}
	v.advance(true)
	return nil
}

// hintUnread is about a part of which the rest could not be checked.
const hintUnread = "what is behind it was left out; restore from a backup or a standby, or mend it and verify again"

// unreadable makes a finding of an error that says that a part cannot be read, so that
// the others are checked all the same.
func (v *verifier) unreadable(err error, f eventstore.Finding) error {
	if !damaged(err) {
		return err
	}
	f.Found = err.Error()
	if !v.yield(f, nil) {
		return errStopped
	}
	return nil
}

// schema refuses another version than ours: its tables are not ours to judge.
func (v *verifier) schema(ctx context.Context) ([]eventstore.Finding, error) {
	var version *int64
	table := v.log.schema + ".wattle_version"
	if err := v.log.pool.QueryRow(ctx, "select max(version_id) from "+table+" where is_applied").Scan(&version); err != nil {
		return nil, err
	}
	if version == nil || *version != SchemaVersion {
		found := "none"
		if version != nil {
			found = "version " + itoa(*version)
		}
		return nil, &eventstore.Error{Kind: eventstore.ErrNotMigrated, Op: opVerify, Wanted: "schema " + v.log.schema + " at version " + itoa(SchemaVersion),
			Found: found, Hint: "run: wattle migrate up (an older wattle cannot use a newer schema)"}
	}
	return nil, nil
}

// entries checks the entries of every category, each by its layout.
func (v *verifier) entries(ctx context.Context) error {
	for i := range v.categories {
		c := &v.categories[i]
		if c.absent {
			continue
		}
		var reader interface{ run(context.Context) error }
		switch c.layout {
		case eventstore.Shared:
			reader = &sharedReader{verifier: v, category: c}
		case eventstore.Dedicated:
			reader = &logReader{verifier: v, category: c}
		default:
			continue // reported already
		}
		if err := reader.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// twice makes a step and, if that found something, makes it again and reports what both
// found. step keeps nothing: it can be made any number of times.
func (v *verifier) twice(ctx context.Context, step func(context.Context) ([]eventstore.Finding, error)) error {
	found, err := v.step(ctx, step)
	if err != nil || len(found) == 0 {
		return err
	}
	again, err := v.step(ctx, step)
	if err != nil {
		return err
	}
	for _, f := range found {
		if !slices.ContainsFunc(again, func(g eventstore.Finding) bool { return samePlace(f, g) }) {
			continue
		}
		if !v.yield(f, nil) {
			return errStopped
		}
	}
	return nil
}

func samePlace(f, g eventstore.Finding) bool {
	return f.Check == g.Check && f.Category == g.Category && f.Stream == g.Stream && f.Seqno == g.Seqno && f.Position == g.Position
}

// step enters the log for one step alone: Close waits for it, not for the whole.
func (v *verifier) step(ctx context.Context, step func(context.Context) ([]eventstore.Finding, error)) ([]eventstore.Finding, error) {
	leave, err := v.log.enter(ctx, opVerify, "")
	if err != nil {
		return nil, err
	}
	defer leave()
	return step(ctx)
}

// advance tells the progress, not too often.
func (v *verifier) advance(now bool) {
	const apart = 100 * time.Millisecond
	if v.tell != nil && (now || time.Since(v.told) >= apart) {
		v.told = time.Now()
		v.tell(v.progress)
	}
}

// damaged says if an error is the server's about what it has stored: SQLSTATE class XX
// (a block or an index that is corrupt, a payload of which a part is missing), or a
// value that does not decompress or is not in the server's encoding.
func damaged(err error) bool {
	code := pgCode(err)
	return strings.HasPrefix(code, "XX") || code == "22021" || code == "22P05"
}
