// Control, what is changed: the versions of a projector, in one transaction that steps
// and other changes wait for.

package pgcheckpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

const opUpdate = "change projector"

// Update changes the versions of a projector, and of its backends, at once. f runs in a
// transaction that may idle for no longer than Options.TTL. A lost answer to COMMIT is
// ErrUnknown: Versions tells the outcome.
func (c *Checkpoints) Update(ctx context.Context, name string, f func([]projector.Version) ([]projector.Version, error)) error {
	return c.update(ctx, name, func(_ context.Context, _ pgx.Tx, all []projector.Version) ([]projector.Version, error) {
		return f(all)
	}, func(err error, _ *pgx.Conn, _ bool) error { return err })
}

// UpdateTx is Update for a function that changes the read model too, in the same
// transaction and after the locks of the lanes are held: it can be emptied while the
// checkpoints are set back, see projector.Admin.ResetWith. f cannot end tx. An error of f is
// returned as it is, but for those of a lost connection (ErrUnavailable) and of a lock timeout
// (ErrOverloaded), and of a transaction that was lost against another one, which is begun again.
func (c *Checkpoints) UpdateTx(ctx context.Context, name string, f func(ctx context.Context, tx pgx.Tx, all []projector.Version) ([]projector.Version, error)) error {
	return c.update(ctx, name, f, func(err error, conn *pgx.Conn, long bool) error { return ofHandler(ctx, conn, err, long) })
}

type change func(ctx context.Context, tx pgx.Tx, all []projector.Version) ([]projector.Version, error)

// update makes attempts. ofF sorts errors of f.
func (c *Checkpoints) update(ctx context.Context, name string, f change, ofF func(err error, conn *pgx.Conn, long bool) error) error {
	if c.mistake != nil {
		return c.mistake
	}
	if name == "" {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: opUpdate, Wanted: "the name of a projector", Found: "an empty one"}
	}
	return c.again(ctx, func() error {
		conn, err := c.pool.Acquire(ctx)
		if err != nil {
			return translate(opUpdate, err, connecting)
		}
		defer conn.Release()
		began := time.Now()
		tx, kept, err := c.lock(ctx, conn.Conn(), name)
		if err != nil {
			return drop(ctx, conn.Conn(), err)
		}
		defer rollback(ctx, tx) // also when f panics
		given := make([]projector.Version, len(kept.list))
		for i := range given {
			given[i] = kept.list[i].Clone() // f may change it, and kept is compared with what f returns
		}
		all, err := f(ctx, handlerTx{tx}, given)
		if err != nil {
			return ofF(err, conn.Conn(), time.Since(began) >= c.ttl)
		}
		if err := projector.CheckVersions(name, all); err != nil {
			return err
		}
		if err := unfit(conn.Conn()); err != nil {
			return err
		}
		return drop(ctx, conn.Conn(), c.write(ctx, tx, kept, all))
	})
}

// lock begins the transaction in which a projector is changed, and reads what is kept,
// in one round trip. Whatever the database's default, it is READ COMMITTED: each
// statement has to see what those whose locks it waited for have done.
//
// The advisory lock, whose name is schema and projector, excludes other changes; rows
// alone would not, because there are none before a projector is registered. Then come
// the rows in their order, versions before lanes as in a step that makes its first
// checkpoint, and last the parked keys, which are changed by who holds a lane.
func (c *Checkpoints) lock(ctx context.Context, conn *pgx.Conn, name string) (pgx.Tx, *versions, error) {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	b.Queue(setTimeout, fmt.Sprint(c.ttl.Milliseconds()))
	b.Queue("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "wattle.projector:"+c.control.schema+":"+name)
	all := &versions{adopt: true}
	all.queue(b, c.control.lockVersions, c.control.lockCheckpoints, c.control.parked, name)
	results := conn.SendBatch(ctx, b)
	err := results.Close()
	if err != nil {
		rollback(ctx, results.Tx())
		return nil, nil, translate(opUpdate, err, reading)
	}
	return results.Tx(), all, nil
}

// write writes the difference between what is kept and what it becomes, and commits.
func (c *Checkpoints) write(ctx context.Context, tx pgx.Tx, kept *versions, all []projector.Version) error {
	b := &pgx.Batch{}
	c.control.difference(b, kept, all)
	if b.Len() > 0 {
		err := tx.SendBatch(ctx, b).Close()
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23505" { // against a first step, or who takes no lock of ours
			return &lostError{err}
		}
		if err != nil {
			return translate(opUpdate, err, reading)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.ttl) // see commit
	defer cancel()
	err := tx.Commit(ctx)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && !fatal(pg) && pg.Code[:2] == "23" {
		return err // a deferred constraint on what f wrote
	}
	return translate(opUpdate, err, writing)
}

// difference queues what makes all of kept.
func (q *controlStatements) difference(b *pgx.Batch, kept *versions, all []projector.Version) {
	old := map[projector.Key]*projector.Version{}
	for i := range kept.list {
		old[kept.list[i].Key] = &kept.list[i]
	}
	stays := map[projector.Key]bool{}
	for i := range all {
		stays[all[i].Key] = true
	}
	for key := range old {
		if !stays[key] {
			for _, remove := range q.remove {
				b.Queue(remove, key.Projector, int64(key.Version))
			}
		}
	}
	// Who is live no longer comes before who becomes it: there is one at any time.
	order := slices.Clone(all)
	slices.SortStableFunc(order, func(a, b projector.Version) int { return cmp.Compare(b.Role, a.Role) })
	for i := range order {
		v := &order[i]
		was := old[v.Key]
		if was == nil {
			was = &projector.Version{}
		}
		q.version(b, was, v, kept.adopted[v.Key])
		q.lanes(b, was, v)
		q.keys(b, was, v)
	}
}

// version queues what is changed in the row of a version, if it has one.
func (q *controlStatements) version(b *pgx.Batch, was, v *projector.Version, adopted bool) {
	if v.Created.IsZero() && len(was.Lanes) > 0 {
		v.Created = was.Created
	}
	if adopted || len(was.Lanes) == 0 || !reflect.DeepEqual(versionArgs(was), versionArgs(v)) {
		b.Queue(q.putVersion, versionArgs(v)...)
	}
}

// lanes queues those that have changed: the others' rows stay as they are. A new version
// has no rows; if a worker that knows nothing of registering makes one at this moment,
// the insert fails and the change is begun again, with what that one has done.
func (q *controlStatements) lanes(b *pgx.Batch, was, v *projector.Version) {
	key := v.Key
	if len(was.Lanes) != len(v.Lanes) {
		b.Queue(q.dropLanes, key.Projector, int64(key.Version), int64(len(v.Lanes)))
	}
	put := q.putLane
	if len(was.Lanes) == 0 {
		put = q.newLane
	}
	for i, c := range v.Lanes {
		key.Lane = i
		if i >= len(was.Lanes) || !reflect.DeepEqual(checkpointArgs(key, was.Lanes[i]), checkpointArgs(key, c)) {
			b.Queue(put, checkpointArgs(key, c)...)
		}
	}
}

// keys queues the parked keys that have changed, and removes those that are no longer.
func (q *controlStatements) keys(b *pgx.Batch, was, v *projector.Version) {
	old := map[string]projector.Parked{}
	for _, k := range was.Parked {
		old[k.StreamKey] = k
	}
	for _, k := range v.Parked {
		if o, ok := old[k.StreamKey]; !ok || !reflect.DeepEqual(parkedArgs(v.Key, o), parkedArgs(v.Key, k)) {
			b.Queue(q.park, parkedArgs(v.Key, k)...)
		}
		delete(old, k.StreamKey)
	}
	var gone []string
	for name := range old {
		gone = append(gone, name)
	}
	if slices.Sort(gone); len(gone) > 0 {
		b.Queue(q.unpark, v.Key.Projector, int64(v.Key.Version), gone)
	}
}
