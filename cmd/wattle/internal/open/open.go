// Package open turns a store URL into a store. It is the only place of the
// command that knows all backends.
//
//	file:DIR                                                in files of a directory
//	mem:                                                    in memory, gone when the process ends
//	postgres://user@host:5432/database?schema=wattle        in a migrated schema of PostgreSQL
//	https://host:4440?ca=ca.crt&cert=app.crt&key=app.key    at a server: see wattle serve
//
// Of a PostgreSQL URL the parameter schema is ours; everything else is pgx's, as
// sslmode, pool_max_conns, or default_query_exec_mode=exec behind PgBouncer.
//
// A password is taken out of the URL before anything that makes error messages
// sees it, and no message of this package holds any part of a URL that could not
// be taken apart.
package open

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/natsannounce"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/eventstore/remotelog"
)

// Options of Open; nil and the zero value are the defaults.
type Options struct {
	// Connections is how many calls are to be in the database at once; 0 means a
	// few. It bounds the pool unless the URL does (pool_max_conns).
	Connections int
	// NATS is the URL of a server that carries announcements to other processes.
	// Empty: they stay in this one.
	NATS string
	// ReadOnly is for callers that change nothing: a store in files is then opened beside
	// its owner, if it has one, and never owned. Elsewhere it makes no difference.
	ReadOnly bool
	// Create makes a store in files where there is none; without it that is
	// ErrNotMigrated, as it is of a schema in PostgreSQL.
	Create bool
	// Trips counts the round trips of the store's calls to its database. Then Pool and
	// Aside have connections of their own, which are not counted. Nil: nothing is.
	Trips *Trips
	// Logger is told what happens beside a call. Nil: nothing.
	Logger *slog.Logger
}

// Store is an open store and what belongs to it.
type Store struct {
	*eventstore.Store
	// Pool is that of the store's database, for projections beside it. Nil where
	// there is none.
	Pool *pgxpool.Pool
	// Hub is the store's announcer: hints reach this process at once.
	Hub *remotelog.Hub
	// Schema is that of the store in the database.
	Schema string
	// Aside is the same store for work that is not to be counted by Options.Trips; it
	// is closed with the Store.
	Aside *eventstore.Store

	reclaim func(context.Context, time.Duration) error
	close   []func()
}

// Reclaim gives back the space of what was trimmed through Aside, for about budget.
// In memory, and of a store that was opened read-only, there is nothing to do.
func (s *Store) Reclaim(ctx context.Context, budget time.Duration) error {
	if s.reclaim == nil {
		return nil
	}
	return s.reclaim(ctx, budget)
}

// RowsOf says how many rows an entry takes by the size of its data, in a layout that
// cuts large ones; nil where none is cut.
func (s *Store) RowsOf(layout eventstore.Layout) func(size int) int {
	if s.Pool == nil || layout != eventstore.Dedicated {
		return nil
	}
	return pglog.LogRows
}

// Close closes the store and what Open has opened for it.
func (s *Store) Close() error {
	err := s.Store.Close()
	if s.Aside != s.Store {
		err = errors.Join(err, s.Aside.Close())
	}
	s.release()
	return err
}

func (s *Store) release() {
	for _, f := range s.close {
		f()
	}
}

// Open opens the store of a target. The errors are those of eventstore.
func (t *Target) Open(ctx context.Context, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	s := &Store{Schema: t.schema}
	if err := s.open(ctx, t, o); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, t *Target, o *Options) error {
	announcer, err := s.announcer(o.NATS)
	if err != nil {
		return err
	}
	log, err := s.log(ctx, t, o)
	if err != nil {
		return err
	}
	if r, ok := log.(*remotelog.Log); ok && announcer == nil {
		announcer = r.Announcer()
	}
	s.Hub = remotelog.NewHub(announcer)
	s.Store = eventstore.New(log, &eventstore.Options{Announcer: s.Hub, Logger: o.Logger})
	if s.Aside == nil {
		s.Aside = s.Store
	}
	return nil
}

func (s *Store) log(ctx context.Context, t *Target, o *Options) (eventstore.Log, error) {
	switch {
	case t.config != nil:
		return s.postgres(ctx, t, o)
	case t.remote != nil:
		return t.remote.open(ctx)
	case t.InFiles():
		log, err := t.files(o)
		if err != nil {
			return nil, err
		}
		if !o.ReadOnly {
			s.reclaim = reclaimFiles(log)
		}
		return log, nil
	}
	return memlog.New(nil), nil
}

func (s *Store) postgres(ctx context.Context, t *Target, o *Options) (eventstore.Log, error) {
	log, pool, err := s.connect(ctx, t, o, o.Trips)
	if err != nil {
		return nil, err
	}
	s.Pool, s.reclaim = pool, reclaimOf(log)
	if o.Trips == nil {
		return log, nil
	}
	aside, pool, err := s.connect(ctx, t, o, nil)
	if err != nil {
		return nil, err
	}
	s.Pool, s.reclaim = pool, reclaimOf(aside)
	s.Aside = eventstore.New(aside, &eventstore.Options{Logger: o.Logger})
	return log, nil
}

// connect makes a pool, of counted connections if trips is not nil, and a log on it.
func (s *Store) connect(ctx context.Context, t *Target, o *Options, trips *Trips) (*pglog.Log, *pgxpool.Pool, error) {
	pool, err := t.pool(ctx, o.Connections, trips)
	if err != nil {
		return nil, nil, err
	}
	s.close = append(s.close, pool.Close)
	log, err := pglog.Open(ctx, pool, &pglog.Options{Schema: t.schema, Logger: o.Logger})
	return log, pool, err
}

func reclaimOf(log *pglog.Log) func(context.Context, time.Duration) error {
	return func(ctx context.Context, budget time.Duration) error {
		_, err := log.Reclaim(ctx, budget)
		return err
	}
}

// announcer connects to NATS; nil where there is none.
func (s *Store) announcer(address string) (eventstore.Announcer, error) {
	if address == "" {
		return nil, nil
	}
	u, err := parse(address)
	if err != nil || u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" {
		return nil, &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "connect to NATS", Wanted: "a URL like nats://host:4222", Found: "another one", Hint: encodeHint}
	}
	nc, err := nats.Connect(address, nats.Name("wattle"), nats.MaxReconnects(-1))
	if err != nil {
		return nil, &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "connect to NATS", Wanted: "a server at " + u.Host, Found: err.Error(),
			Hint: "start it, or leave out --nats: then readers in other processes poll"}
	}
	s.close = append(s.close, nc.Close)
	return natsannounce.New(nc, nil), nil
}

// unavailable is the error of a database that does not answer as one.
func unavailable(op string, err error) error {
	if e, ok := errors.AsType[*eventstore.Error](err); ok {
		return e
	}
	return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: op, Err: err, Hint: "is the server up and reachable?"}
}

func invalid(wanted, found, hint string) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "open store", Wanted: wanted, Found: found, Hint: hint}
}

// encodeHint helps with URLs that cannot be taken apart without repeating them.
const encodeHint = "special characters in a user name or password must be percent-encoded, as %2F for /"

// known is what a store URL may look like.
const known = "a store URL: file:DIR, mem:, postgres://user@host:5432/database?schema=wattle or https://host:4440"

func unknownScheme(scheme string) error {
	found := "no scheme"
	if scheme != "" {
		found = fmt.Sprintf("scheme %q", scheme)
	}
	return invalid(known, found, "give it with --store or in WATTLE_STORE")
}
