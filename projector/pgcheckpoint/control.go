// Control, what is read: lanes, versions and records, each as of one moment.

package pgcheckpoint

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

var _ projector.Control = (*Checkpoints)(nil)

// Lane returns one lane of a version, all of it as of one moment.
func (c *Checkpoints) Lane(ctx context.Context, key projector.Key) (lane projector.Lane, err error) {
	var row checkpointRow
	var found bool
	err = c.snapshot(ctx, "load lane", func(b *pgx.Batch) {
		args := []any{key.Projector, int64(key.Version), int64(key.Lane)}
		b.Queue(c.control.lane, args...).Query(func(rows pgx.Rows) error {
			found, lane = false, projector.Lane{}
			for rows.Next() {
				var role int16
				var quiet []int64
				if err := rows.Scan(append([]any{&lane.Lanes, &role, &quiet}, row.fields()...)...); err != nil {
					return err
				}
				found, lane.Role, lane.Quiet, lane.Checkpoint = true, projector.Role(role), places(quiet), row.checkpoint()
			}
			return rows.Err()
		})
		b.Queue(c.control.parkedOfLane, args...).Query(func(rows pgx.Rows) error {
			lane.Parked = nil
			return eachParked(rows, func(_ projector.Key, k projector.Parked) { lane.Parked = append(lane.Parked, k) })
		})
	})
	if err != nil {
		return projector.Lane{}, err
	}
	if !found {
		return projector.Lane{}, projector.NotRegistered(key)
	}
	return lane, nil
}

// Versions returns the versions of a projector, all of them as of one moment, without
// Recent of their checkpoints.
func (c *Checkpoints) Versions(ctx context.Context, name string) ([]projector.Version, error) {
	var all *versions
	err := c.snapshot(ctx, "list versions", func(b *pgx.Batch) {
		all = &versions{}
		all.queue(b, c.control.versions, c.control.checkpoints, c.control.parked, name)
	})
	if err != nil {
		return nil, err
	}
	return all.list, nil
}

// Skipped returns the records of entries that a version has given up, by time.
func (c *Checkpoints) Skipped(ctx context.Context, key projector.Key) ([]projector.Parked, error) {
	var all []projector.Parked
	err := c.snapshot(ctx, "list skipped entries", func(b *pgx.Batch) {
		b.Queue(c.control.skipped, key.Projector, int64(key.Version)).Query(func(rows pgx.Rows) error {
			all = nil
			return eachParked(rows, func(_ projector.Key, k projector.Parked) { all = append(all, k) })
		})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// snapshot sends queries that see one moment, on the primary, in one round trip.
func (c *Checkpoints) snapshot(ctx context.Context, op string, queue func(b *pgx.Batch)) error {
	if c.mistake != nil {
		return c.mistake
	}
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return translate(op, err, connecting)
	}
	defer conn.Release()
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	b.Queue("SELECT pg_is_in_recovery()").QueryRow(func(row pgx.Row) error {
		var standby bool
		if err := row.Scan(&standby); err != nil {
			return err
		}
		if standby {
			return errStandby(op)
		}
		return nil
	})
	queue(b)
	b.Queue("COMMIT")
	results := conn.SendBatch(ctx, b)
	defer rollback(ctx, results.Tx()) // does nothing after the COMMIT
	return drop(ctx, conn.Conn(), translate(op, results.Close(), reading))
}

// versions puts versions together from the rows of three tables.
type versions struct {
	list []projector.Version
	at   map[projector.Key]int // in list
	// adopt makes versions of checkpoints whose version is not registered: those that
	// only are in others.
	adopt   bool
	others  map[projector.Key]projector.Checkpoint
	adopted map[projector.Key]bool
}

// queue queues the three queries, each with the projector's name.
func (v *versions) queue(b *pgx.Batch, registered, checkpoints, parked, name string) {
	v.at, v.others, v.adopted = map[projector.Key]int{}, map[projector.Key]projector.Checkpoint{}, map[projector.Key]bool{}
	b.Queue(registered, name).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			one, err := scanVersion(rows)
			if err != nil {
				return err
			}
			v.at[one.Key] = len(v.list)
			v.list = append(v.list, one)
		}
		return rows.Err()
	})
	b.Queue(checkpoints, name).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var key projector.Key
			var row checkpointRow
			if err := rows.Scan(append([]any{&key.Projector, &key.Version, &key.Lane}, row.fields()...)...); err != nil {
				return err
			}
			v.checkpoint(key, row.checkpoint())
		}
		if v.adopt {
			v.adoptOthers()
		}
		return rows.Err()
	})
	b.Queue(parked, name).Query(func(rows pgx.Rows) error {
		return eachParked(rows, func(key projector.Key, k projector.Parked) {
			if i, ok := v.at[key]; ok {
				v.list[i].Parked = append(v.list[i].Parked, k)
			}
		})
	})
}

// checkpoint takes the checkpoint of a lane; one that is no lane of a registered version
// is not there.
func (v *versions) checkpoint(key projector.Key, c projector.Checkpoint) {
	lane := key.Lane
	key.Lane = 0
	i, ok := v.at[key]
	switch {
	case !ok && lane >= 0 && lane < eventstore.Slots:
		v.others[projector.Key{Projector: key.Projector, Version: key.Version, Lane: lane}] = c
	case ok && lane >= 0 && lane < len(v.list[i].Lanes):
		v.list[i].Lanes[lane] = c
	}
}

func (v *versions) adoptOthers() {
	v.list = projector.AdoptVersions(v.list, v.others)
	for i := range v.list {
		key := v.list[i].Key
		_, registered := v.at[key]
		v.at[key], v.adopted[key] = i, !registered
	}
}
