// Package functions is the loan process as functions that are started for a request,
// frozen behind it, copied, and killed: a whole command side, and a projection that
// nobody but pushes drives. Both are an http.Handler; command, projection and lambda
// below this folder are what runs them.
//
//	command     pool of one connection, pglog without anything in the background, an
//	            Executor as httpcarrier serves it. What it keeps between calls (a warm
//	            state, a connection to the pooler) may be gone or stale: the fence finds out
//	projection  each call opens a connection, catches up and closes it. Between calls
//	            there is nothing: no goroutine, no connection
//
// Neither needs to know of the other. A hint tells a projection to look; one that is lost
// is made up for by the next, or by cron.
package functions

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/aggregate"
	aggregateguest "github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

// Settings of a function, from its environment.
type Settings struct {
	DSN    string   // WATTLE_DSN: of the pooler, in transaction mode, or of the server
	Schema string   // WATTLE_SCHEMA: of the store, migrated; empty: wattle
	Keys   []string // WATTLE_KEYS: with which requests are signed, apart by blanks; empty: nobody signs
	Hints  string   // WATTLE_HINTS: where the projection is pushed to, an address; empty: nobody pushes
}

// FromEnv reads them.
func FromEnv() Settings {
	s := Settings{DSN: os.Getenv("WATTLE_DSN"), Schema: os.Getenv("WATTLE_SCHEMA"), Keys: strings.Fields(os.Getenv("WATTLE_KEYS")), Hints: os.Getenv("WATTLE_HINTS")}
	if s.Schema == "" {
		s.Schema = "wattle"
	}
	return s
}

// verifier is nil where nobody signs.
func (s Settings) verifier() (*httpcarrier.Verifier, error) {
	if len(s.Keys) == 0 {
		return nil, nil
	}
	return httpcarrier.NewVerifier(nil, s.Keys...)
}

// Signer signs with the keys; nil where nobody does.
func (s Settings) Signer() (*httpcarrier.Signer, error) {
	if len(s.Keys) == 0 {
		return nil, nil
	}
	return httpcarrier.NewSigner(s.Keys...)
}

// open returns a store on one connection, made when it is needed. Nothing of it runs in
// the background but what pgx has to notice that the connection idles.
func (s Settings) open(ctx context.Context, name string) (*pgxpool.Pool, *eventstore.Store, error) {
	config, err := pgxpool.ParseConfig(s.DSN)
	if err != nil {
		return nil, nil, errors.New("WATTLE_DSN: wanted the URL of a database") // err may tell the password
	}
	config.MaxConns, config.MinConns = 1, 0
	config.MaxConnIdleTime = 30 * time.Second
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // a pooler keeps no prepared statements
	config.ConnConfig.RuntimeParams["application_name"] = name
	o := &eventstore.Options{}
	if s.Hints != "" {
		signer, err := s.Signer()
		if err != nil {
			return nil, nil, err
		}
		o.Announcer = pusher{s.Hints, signer}
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	log, err := pglog.Open(ctx, pool, &pglog.Options{Schema: s.Schema, ReclaimEvery: -1, Senders: -1})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return pool, eventstore.New(log, o), nil
}

// Function is an http.Handler with an end.
type Function struct {
	http.Handler
	close func()
}

// Close ends what is open. No call may be under way.
func (f *Function) Close() { f.close() }

// CommandName is the command function's application_name.
const CommandName = "wattle-command"

// Command returns the command side: commands by the contract or as CloudEvents are
// executed by their ID, once.
func Command(ctx context.Context, s Settings) (*Function, error) {
	verifier, err := s.verifier()
	if err != nil {
		return nil, err
	}
	pool, store, err := s.open(ctx, CommandName)
	if err != nil {
		return nil, err
	}
	closing := func() { _ = store.Close(); pool.Close() }
	exec, err := aggregate.NewExecutor(ctx, store, wire.Applications(), nil)
	if err != nil {
		closing()
		return nil, err
	}
	service := aggregateguest.NewService(exec, wire.Category, wire.Events(), aggregateguest.CommandsOf(wire.Commands()), &aggregateguest.ServiceOptions{Name: "loan"})
	h := httpcarrier.NewHandler(service, &httpcarrier.ServerOptions{Commands: wire.Category, Verifier: verifier, Ready: pool.Ping})
	return &Function{h, closing}, nil
}
