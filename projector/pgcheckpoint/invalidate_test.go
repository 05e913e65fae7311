// Options.Invalidate: what a handler keeps of the read model outside of it dies with the
// transaction that was not confirmed.

package pgcheckpoint_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

var errAny = errors.New("any error")

func TestInvalidate(t *testing.T) {
	e := newEnv(t)
	cut := &cutter{}
	pool := cut.pool(t, pgx.QueryExecModeCacheStatement)
	var mu sync.Mutex
	var called []projector.Key
	o := e.options()
	o.Invalidate = func(key projector.Key) {
		mu.Lock()
		defer mu.Unlock()
		called = append(called, key)
	}
	var act func(ctx context.Context, tx pgx.Tx) error
	h := pgcheckpoint.Handler(pool, events, func(ctx context.Context, tx pgx.Tx, ev projector.Event[Event]) error {
		if err := e.insert(ctx, tx, ev); err != nil || act == nil {
			return err
		}
		return act(ctx, tx)
	}, o)
	lose := func(c *cutConn, b []byte) error {
		if isCommit(b) {
			c.loseAnswer()
		}
		return nil
	}
	own := errors.New("own")
	tries := 0
	for name, c := range map[string]struct {
		act     func(ctx context.Context, tx pgx.Tx) error
		onWrite func(c *cutConn, b []byte) error
		change  func(s *projector.Step)
		ends    bool // the handler's goroutine
		want    error
		calls   int
	}{
		"success":              {},
		"success, parked":      {change: func(s *projector.Step) { s.Batch, s.Park = nil, []projector.Parked{keyOf("a")} }},
		"success, no entries":  {change: func(s *projector.Step) { s.Batch = nil }},
		"error":                {act: func(context.Context, pgx.Tx) error { return own }, want: own, calls: 1},
		"panic":                {act: func(context.Context, pgx.Tx) error { panic(own) }, want: own, calls: 1},
		"goroutine ended":      {act: func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil }, ends: true, calls: 1},
		"fenced":               {change: func(s *projector.Step) { s.From.Position++ }, want: eventstore.ErrFenced, calls: 1},
		"fenced, no entries":   {change: func(s *projector.Step) { s.Batch = nil; s.From.Epoch++ }, want: eventstore.ErrFenced, calls: 1},
		"fenced, parked":       {change: func(s *projector.Step) { s.Batch, s.Unpark = nil, []string{"a"}; s.From.Epoch++ }, want: eventstore.ErrFenced, calls: 1},
		"undecodable":          {change: func(s *projector.Step) { s.Batch[0].Type = "unknown" }, want: errAny, calls: 1},
		"commit not sent":      {onWrite: func(_ *cutConn, b []byte) error { return cutIf(isCommit(b)) }, want: eventstore.ErrUnavailable, calls: 1},
		"answer lost":          {onWrite: lose, want: eventstore.ErrUnknown, calls: 1},
		"answer lost, parked":  {change: func(s *projector.Step) { s.Batch, s.Park = nil, []projector.Parked{keyOf("b")} }, onWrite: lose, want: eventstore.ErrUnknown, calls: 1},
		"lost, and then won":   {act: func(context.Context, pgx.Tx) error { tries++; return lostUntil(tries, 3) }, calls: 2},
		"connection was taken": {act: func(_ context.Context, tx pgx.Tx) error { return e.kill(tx) }, want: eventstore.ErrUnknown, calls: 1},
	} {
		from, err := e.control().Load(t.Context(), pKey)
		e.ok(err)
		s := stepOf(from, e.entry(), from.Position+10)
		if c.change != nil {
			c.change(&s)
		}
		act, called, tries = c.act, nil, 0
		e.ok(pool.Ping(t.Context()))
		cut.set(c.onWrite)
		done := make(chan error, 1)
		go func() {
			ended := true
			defer func() {
				if ended {
					done <- nil
				}
			}()
			err := h.Handle(context.Background(), s)
			ended = false
			done <- err
		}()
		err = <-done
		cut.set(nil)
		if !errors.Is(err, c.want) && (c.want != errAny || err == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if !slices.Equal(called, slices.Repeat([]projector.Key{pKey}, c.calls)) {
			t.Errorf("%s: invalidated %v, want %d times", name, called, c.calls)
		}
	}
}

// lostUntil loses the transaction against another one until the n-th try.
func lostUntil(tries, n int) error {
	if tries < n {
		return &pgconn.PgError{Code: "40001"}
	}
	return nil
}
