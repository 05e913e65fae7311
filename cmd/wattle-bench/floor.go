// The floor: what PostgreSQL does with a bare INSERT of the bytes that the product stores.

package main

import (
	"context"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

type floor struct{ *inGo }

const floorTable = `CREATE TABLE floor (position bigint NOT NULL, stream bigint NOT NULL, seqno bigint NOT NULL, epoch bigint NOT NULL,
  time timestamptz NOT NULL, category int NOT NULL, version int NOT NULL, id uuid NOT NULL, batch uuid NOT NULL, slot smallint NOT NULL,
  type text NOT NULL, content_type text NOT NULL, metadata text NOT NULL, data bytea NOT NULL)`

const floorInsert = `INSERT INTO floor VALUES ($1, $2, $3, 1, now(), 1, 1, $4, $5, 7, $6, 'application/json', '', $7)`

func openFloor(ctx context.Context, s *setup) (store, error) {
	g, err := openPool(ctx, s, "floor")
	if err != nil {
		return nil, err
	}
	return &floor{g}, g.exec(ctx, floorTable)
}

func (f *floor) appends(ctx context.Context, writers, k int, d time.Duration) (sample, error) {
	return drive(ctx, writers, k, d, func(ctx context.Context, stream int) error {
		id := [16]byte(eventstore.NewUUID())
		_, err := f.pool.Exec(ctx, floorInsert, stream, stream, stream, id, id, eventType, f.payload(stream))
		return err
	})
}
