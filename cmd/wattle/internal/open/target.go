// Store URLs: taking them apart without ever repeating a password.

package open

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations"
)

// connectTimeout bounds an attempt to connect unless the URL does
// (connect_timeout): a command that hangs tells nobody why.
const connectTimeout = 10 * time.Second

// spareConnections are for the projection and for what is asked beside the work.
const spareConnections = 4

// Target is a store URL that was taken apart.
type Target struct {
	name   string          // the URL without its secrets
	dir    string          // of files; "" for others
	schema string          // of PostgreSQL; "" for others
	config *pgxpool.Config // of PostgreSQL; nil for others
	sized  bool            // the URL bounds the pool
	remote *remote         // of a server; nil for others
}

// Parse takes a store URL apart; ErrInvalid says what is wrong with it.
func Parse(address string) (*Target, error) {
	scheme := schemeOf(address)
	switch scheme {
	case "file":
		return parseFiles(address)
	case "mem":
		if address != "mem:" {
			return nil, invalid(known, "something behind mem:", "it has no name and no settings")
		}
		return &Target{name: address}, nil
	case "postgres", "postgresql":
		return parsePostgres(address)
	case "http", "https":
		return parseRemote(address)
	}
	return nil, unknownScheme(scheme)
}

// schemeOf returns what stands before the first colon if it can be a scheme, and
// so holds no secret.
func schemeOf(address string) string {
	scheme, _, found := strings.Cut(address, ":")
	odd := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '+' }
	if !found || len(scheme) > 20 || strings.ContainsFunc(scheme, odd) {
		return ""
	}
	return scheme
}

// parse is url.Parse without its error, which repeats the URL.
func parse(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("it cannot be taken apart")
	}
	return u, nil
}

func parsePostgres(address string) (*Target, error) {
	const like = "postgres://user@host:5432/database?schema=wattle"
	u, err := parse(address)
	if err != nil {
		return nil, invalid("a URL like "+like, "one that cannot be taken apart", encodeHint)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, invalid("parameters like ?schema=wattle&sslmode=disable", "some that cannot be taken apart", encodeHint)
	}
	t := &Target{schema: migrations.DefaultSchema, sized: query.Has("pool_max_conns")}
	switch names := query["schema"]; {
	case len(names) > 1:
		return nil, invalid("one schema", "several", "")
	case query.Get("schema") != "":
		t.schema = query.Get("schema")
	}
	query.Del("schema")
	password, _ := u.User.Password()
	if query.Has("password") {
		password = query.Get("password")
		query.Del("password")
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	u.RawQuery = query.Encode()
	// From here on the URL is without its password, so messages may repeat it.
	if t.config, err = pgxpool.ParseConfig(u.String()); err != nil {
		found := "one of which a parameter is not what it should be"
		if !query.Has("sslpassword") {
			found = err.Error()
		}
		return nil, invalid("a URL like "+like, found, "")
	}
	if password != "" {
		t.config.ConnConfig.Password = password
	}
	if !query.Has("connect_timeout") {
		t.config.ConnConfig.ConnectTimeout = connectTimeout
	}
	if t.config.ConnConfig.RuntimeParams["application_name"] == "" {
		t.config.ConnConfig.RuntimeParams["application_name"] = "wattle"
	}
	u.RawQuery = url.Values{"schema": {t.schema}}.Encode()
	t.name = u.String()
	return t, nil
}

// String returns the URL without password and settings.
func (t *Target) String() string { return t.name }

// pool makes a pool; it connects when it is first used. trips, unless nil, counts.
func (t *Target) pool(ctx context.Context, connections int, trips *Trips) (*pgxpool.Pool, error) {
	config := t.config.Copy()
	if trips != nil {
		config.ConnConfig.DialFunc = trips.around(config.ConnConfig.DialFunc)
	}
	if connections > 0 && !t.sized {
		config.MaxConns = max(config.MaxConns, int32(connections+spareConnections))
	}
	pglog.Configure(config.ConnConfig)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, unavailable("open store", err)
	}
	return pool, nil
}

// Migrations lists the migrations of this build and whether they are applied. A store in
// files has none: the list is empty, or the error ErrNotMigrated where there is no store.
func (t *Target) Migrations(ctx context.Context) (all []migrations.Migration, err error) {
	if t.InFiles() {
		return nil, t.mustExist("migrate")
	}
	err = t.migrate(ctx, func(pool *pgxpool.Pool) error {
		all, err = migrations.Status(ctx, pool, t.schema)
		return err
	})
	return all, err
}

// MigrateUp creates the schema if it is missing and applies what is pending. A store in
// files is made if there is none.
func (t *Target) MigrateUp(ctx context.Context) error {
	if t.InFiles() {
		return t.makeFiles()
	}
	return t.migrate(ctx, func(pool *pgxpool.Pool) error { return migrations.Up(ctx, pool, t.schema) })
}

// MigrateDown takes back every migration and so destroys every log of the store. A store
// in files is removed.
func (t *Target) MigrateDown(ctx context.Context) error {
	if t.InFiles() {
		return t.removeFiles()
	}
	return t.migrate(ctx, func(pool *pgxpool.Pool) error { return migrations.Down(ctx, pool, t.schema) })
}

// Schema returns the name of the store's schema; "" where there is none.
func (t *Target) Schema() string { return t.schema }

// Word is what to type to have the store destroyed: its schema, or the last element of
// its directory. "" where there is nothing to destroy.
func (t *Target) Word() string {
	if !t.InFiles() {
		return t.schema
	}
	dir, err := filepath.Abs(t.dir)
	if err != nil {
		dir = t.dir
	}
	return filepath.Base(dir)
}

func (t *Target) migrate(ctx context.Context, f func(*pgxpool.Pool) error) error {
	const op = "migrate"
	if t.remote != nil {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: op, Wanted: "the store itself, as file:DIR or postgres://…", Found: t.name,
			Hint: "migrate where the server runs, with the --store that it was started with"}
	}
	if t.config == nil {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: op, Wanted: "a store that outlives the process, as file:DIR or postgres://…", Found: t.name,
			Hint: "a store in memory needs no migration"}
	}
	pool, err := t.pool(ctx, 2, nil)
	if err != nil {
		return err
	}
	defer pool.Close()
	err = f(pool)
	if bad, ok := errors.AsType[*migrations.SchemaNameError](err); ok {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: op, Wanted: "another schema name", Found: bad.Error()}
	}
	if errors.Is(err, migrations.ErrPoolTooSmall) {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: op, Wanted: "pool_max_conns of at least 2", Found: "1"}
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return unavailable(op, err)
	}
	return err
}
