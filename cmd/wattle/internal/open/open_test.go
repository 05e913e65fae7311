// Store URLs, and announcements within the process.

package open

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

func TestParse(t *testing.T) {
	for _, d := range []struct{ address, name, schema string }{
		{"mem:", "mem:", ""},
		{"file:data", "file:data", ""},
		{"file:./data//store/", "file:data/store", ""},
		{"file:/var/lib/a b%20c", "file:/var/lib/a b%20c", ""},
		{"file:///var/lib/a%20b", "file:/var/lib/a b", ""},
		{"file:.", "file:.", ""},
		{"postgres://h/d", "postgres://h/d?schema=wattle", "wattle"},
		{"postgresql://u:secret@h:6432/d?schema=a+b&sslmode=disable", "postgresql://u@h:6432/d?schema=a+b", "a b"},
		{"postgres://u@h1:1,h2:2/d?schema=x", "postgres://u@h1:1,h2:2/d?schema=x", "x"},
		{"postgres:///d?host=/tmp", "postgres:///d?schema=wattle", "wattle"},
	} {
		got, err := Parse(d.address)
		if err != nil {
			t.Errorf("%s: %v", d.address, err)
			continue
		}
		if got.String() != d.name || got.Schema() != d.schema {
			t.Errorf("%s: wanted %s, found %s of schema %q", d.address, d.name, got, got.Schema())
		}
	}
}

func TestParseRefusesFiles(t *testing.T) {
	for _, address := range []string{"file:", "file://", "file://host/dir", "file://user@/dir", "file:///dir?readonly=1", "file:///dir?",
		"file:///dir#x", "file:///%zz", "file:///a%00b", "file:dir?readonly=1", "file:~/dir", "file:a\x00b", "FILE:dir"} {
		if got, err := Parse(address); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%q: wanted it refused, found %v, %v", address, got, err)
		}
	}
}

// What is typed to have a store destroyed.
func TestWord(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{"mem:": "", "postgres://h/d?schema=s": "s", "file:/var/lib/bank": "bank", "file:.": filepath.Base(here)} {
		target, err := Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := target.Word(); got != want {
			t.Errorf("%s: wanted %q, found %q", address, want, got)
		}
	}
}

// A store in files is made only if that was said, gives back space within its budget, and
// is read by any number beside its owner.
func TestFiles(t *testing.T) {
	ctx, target := t.Context(), Files(filepath.Join(t.TempDir(), "store"))
	for _, o := range []*Options{nil, {ReadOnly: true}, {ReadOnly: true, Create: true}} {
		if _, err := target.Open(ctx, o); !errors.Is(err, eventstore.ErrNotMigrated) {
			t.Errorf("%+v: wanted ErrNotMigrated, found %v", o, err)
		}
	}
	owner, err := target.Open(ctx, &Options{Create: true, Trips: &Trips{}})
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	if owner.Aside != owner.Store || owner.RowsOf(eventstore.Dedicated) != nil {
		t.Error("files are one store, and cut nothing")
	}
	if _, err := owner.WAL(ctx); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("wanted no write-ahead log, found %v", err)
	}
	for _, budget := range []time.Duration{0, time.Minute} {
		if err := owner.Reclaim(ctx, budget); err != nil {
			t.Errorf("reclaim for %v: %v", budget, err)
		}
	}
	if _, err := target.Open(ctx, nil); !errors.Is(err, eventstore.ErrUnavailable) || !strings.Contains(err.Error(), "one process at a time writes") {
		t.Errorf("a second owner: %v", err)
	}
	if err := owner.CreateCategory(ctx, eventstore.CategorySpec{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		reader, err := target.Open(ctx, &Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		if all, err := reader.ListCategories(ctx); err != nil || len(all) != 1 {
			t.Errorf("wanted one category, found %v, %v", all, err)
		}
		if err := reader.CreateCategory(ctx, eventstore.CategorySpec{Name: "b"}); !errors.Is(err, eventstore.ErrReadOnly) {
			t.Errorf("wanted ErrReadOnly, found %v", err)
		}
	}
}

// What is pgx's reaches pgx; schema and password are handled here.
func TestParametersOfPgx(t *testing.T) {
	got, err := Parse("postgres://u:p%40ss@h/d?schema=s&default_query_exec_mode=exec&pool_max_conns=7&connect_timeout=3&application_name=x&search_path=y")
	if err != nil {
		t.Fatal(err)
	}
	c := got.config
	_, schema := c.ConnConfig.RuntimeParams["schema"]
	if c.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeExec || c.MaxConns != 7 || !got.sized || c.ConnConfig.ConnectTimeout != 3*time.Second ||
		c.ConnConfig.Password != "p@ss" || schema || c.ConnConfig.RuntimeParams["application_name"] != "x" || c.ConnConfig.RuntimeParams["search_path"] != "y" {
		t.Errorf("found %+v", c.ConnConfig)
	}
	got, err = Parse("postgres://u:a@h/d?password=b")
	if err != nil {
		t.Fatal(err)
	}
	if c := got.config.ConnConfig; c.Password != "b" || c.ConnectTimeout != connectTimeout || strings.Contains(c.ConnString(), "a@") || c.RuntimeParams["application_name"] != "wattle" {
		t.Errorf("found %+v", c)
	}
}

func TestPoolSize(t *testing.T) {
	for address, want := range map[string]int32{"postgres://h/d": 20, "postgres://h/d?pool_max_conns=3": 3} {
		target, err := Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		pool, err := target.pool(t.Context(), 16, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := pool.Config().MaxConns; got != want {
			t.Errorf("%s: wanted %d connections, found %d", address, want, got)
		}
		pool.Close()
	}
}
