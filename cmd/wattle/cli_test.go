// The commands beside the demo: what they print, refuse and exit with.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/wasm"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]struct {
		args []string
		want []string
	}{
		"unknown command":      {[]string{"categry", "list"}, []string{`found "categry"`, "did you mean category?"}},
		"unknown subcommand":   {[]string{"category", "lst"}, []string{`found "lst"`, "did you mean list?", "create, delete, list"}},
		"unknown flag":         {[]string{"read", "x-1", "--nope"}, []string{"--nope", "wattle read --help"}},
		"no argument":          {[]string{"read"}, []string{"wanted STREAM", "found none"}},
		"too many arguments":   {[]string{"version", "x"}, []string{"wanted no argument", `["x"]`}},
		"no store":             {[]string{"category", "list"}, []string{"wanted the URL of a store", "WATTLE_STORE"}},
		"unknown scheme":       {[]string{"category", "list", "--store", "mysql://x"}, []string{`scheme "mysql"`, "file:DIR, mem:", "postgres://"}},
		"no scheme":            {[]string{"category", "list", "--store", "/tmp/x"}, []string{"no scheme", "file:DIR"}},
		"no directory":         {[]string{"category", "list", "--store", "file:"}, []string{"file:DIR", "no directory"}},
		"files of a host":      {[]string{"category", "list", "--store", "file://host/dir"}, []string{"file:DIR", "a host"}},
		"files with settings":  {[]string{"category", "list", "--store", "file:dir?readonly=1"}, []string{"no settings"}},
		"files at home":        {[]string{"category", "list", "--store", "file:~/x"}, []string{"file:$HOME/"}},
		"nowhere to be":        {[]string{"demo"}, []string{"HOME", "--store file:DIR", "mem:"}},
		"fresh and named":      {[]string{"demo", "--fresh", "--store", "mem:"}, []string{"--fresh", "wattle migrate down"}},
		"named memory":         {[]string{"category", "list", "--store", "mem:x"}, []string{"mem:"}},
		"two schemas":          {[]string{"category", "list", "--store", "postgres://h/d?schema=a&schema=b"}, []string{"one schema"}},
		"bad sslmode":          {[]string{"category", "list", "--store", "postgres://h/d?sslmode=nope"}, []string{"sslmode"}},
		"migrating memory":     {[]string{"migrate", "up", "--store", "mem:"}, []string{"needs no migration"}},
		"verifying memory":     {[]string{"verify", "--store", "mem:"}, []string{"outlives the process", "found mem:"}},
		"examining memory":     {[]string{"doctor", "--store", "mem:"}, []string{"outlives the process", "found mem:"}},
		"bad severity":         {[]string{"doctor", "--fail-on", "ok", "--store", "mem:"}, []string{"fault, warning or note", `"ok"`}},
		"bad limit":            {[]string{"verify", "--limit", "0", "--store", "mem:"}, []string{"--limit of 1 to"}},
		"long schema":          {[]string{"migrate", "status", "--store", "postgres://h/d?schema=" + strings.Repeat("x", 64)}, []string{"64 bytes, 63 are allowed"}},
		"bad output":           {[]string{"version", "-o", "xml"}, []string{"-o table or -o json", `"xml"`}},
		"bad stream":           {[]string{"read", "nodash", "--store", "mem:"}, []string{"category-key", "nodash"}},
		"bad category":         {[]string{"category", "create", "a.b", "--store", "mem:"}, []string{`'.'`, "byte 1"}},
		"bad seqno":            {[]string{"read", "a-1", "--from", "-1", "--store", "mem:"}, []string{"seqno", `"-1"`}},
		"bad position":         {[]string{"tail", "application", "--from", "1.5", "--store", "mem:"}, []string{"position", `"1.5"`}},
		"from and last":        {[]string{"read", "a-1", "--from", "1", "--last", "2", "--store", "mem:"}, []string{"--from or --last"}},
		"bad poll":             {[]string{"tail", "a", "--poll", "0s", "--store", "mem:"}, []string{"--poll of at least"}},
		"too many writers":     {[]string{"demo", "--writers", "257"}, []string{"--writers of 1 to 256"}},
		"too few cases":        {[]string{"demo", "--cases", "-1"}, []string{"--cases of 0 to"}},
		"a file is no seed":    {[]string{"demo", "--xes", "x", "--seed", "2"}, []string{"--xes or --seed"}},
		"bad rps":              {[]string{"bench", "append", "--rps", "-1", "--store", "mem:"}, []string{"--rps of 0 to 1000000", "-1"}},
		"no logs":              {[]string{"bench", "append", "--logs", "0", "--store", "mem:"}, []string{"--logs of 1 to"}},
		"no batch":             {[]string{"bench", "append", "--batch", "0", "--store", "mem:"}, []string{"--batch of 1 to 10000"}},
		"bad sizes":            {[]string{"bench", "append", "--sizes", "1k:0", "--store", "mem:"}, []string{"--sizes", `"1k:0"`}},
		"too large a batch":    {[]string{"bench", "append", "--sizes", "1m", "--batch", "33", "--store", "mem:"}, []string{"32 MiB", "33 of up to 1048576 bytes"}},
		"bad retain":           {[]string{"bench", "append", "--retain", "-5", "--store", "mem:"}, []string{"--retain of 0 to"}},
		"bad duration":         {[]string{"bench", "append", "--duration", "0s", "--store", "mem:"}, []string{"--duration of at least 1ms"}},
		"bad interval":         {[]string{"bench", "append", "--interval", "1ms", "--store", "mem:"}, []string{"--interval of at least 10ms"}},
		"bad layout":           {[]string{"bench", "append", "--layout", "round", "--store", "mem:"}, []string{"--layout shared or dedicated", `"round"`}},
		"no stream":            {[]string{"stream", "create", "--store", "mem:"}, []string{"STREAM for wattle stream create"}},
		"bad prefix":           {[]string{"bench", "append", "--prefix", "a-b", "--store", "mem:"}, []string{"category", "a-b"}},
		"bad epoch":            {[]string{"bench", "append", "--epoch", "9223372036854775808", "--store", "mem:"}, []string{"epoch", "2^63-1"}},
		"nats without a host":  {[]string{"demo", "--store", "mem:", "--nats", "localhost"}, []string{"nats://host:4222"}},
		"nats of another kind": {[]string{"demo", "--store", "mem:", "--nats", "http://localhost"}, []string{"nats://host:4222"}},
	} {
		t.Run(name, func(t *testing.T) {
			if r := wattle(t, d.args...).wants(t, exitUsage, d.want...); r.out != "" {
				t.Errorf("wanted nothing on stdout, found %q", r.out)
			}
		})
	}
}

func TestNotFound(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"mem:", migrated(t), filed(t)} {
		wattle(t, "read", "nope-1", "--store", store).wants(t, exitNotFound, "no such category", "nope")
		wattle(t, "tail", "nope", "--store", store).wants(t, exitNotFound, "no such category", "nope")
		wattle(t, "tail", "nope", "-f", "--store", store).wants(t, exitNotFound, "no such category")
		wattle(t, "category", "delete", "nope", "--yes", "--store", store).wants(t, exitNotFound, "no such category")
	}
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	const closed = "127.0.0.1:1"
	store := "postgres://user@" + closed + "/db?sslmode=disable"
	for _, args := range [][]string{
		{"category", "list"}, {"read", "a-1"}, {"tail", "a"}, {"tail", "a", "-f"}, {"demo"}, {"bench", "append"},
		{"migrate", "up"}, {"migrate", "status"}, {"migrate", "down", "--yes"}, {"verify"}, {"doctor"},
	} {
		wattle(t, append(args, "--store", store)...).wants(t, exitUnavailable, closed)
	}
	wattle(t, "demo", "--store", "mem:", "--nats", "nats://"+closed).wants(t, exitUnavailable, closed, "leave out --nats")
	wattle(t, "tail", "a", "--store", "mem:", "--nats", "nats://"+closed).wants(t, exitUnavailable, closed)
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	store := storeURL(t)
	wattle(t, "migrate", "status", "--store", store).wants(t, 0, "VERSION", "00001_store.sql", "pending")
	for _, args := range [][]string{{"category", "list"}, {"category", "create", "a"}, {"read", "a-1"}, {"tail", "a"}, {"bench", "append"}, {"verify"}} {
		wattle(t, append(args, "--store", store)...).wants(t, exitNotMigrated, "wattle migrate up")
	}
	wattle(t, "migrate", "up", "--store", store).wants(t, 0, "00001_store.sql")
	wattle(t, "migrate", "up", "--store", store).wants(t, 0)
	r := wattle(t, "migrate", "status", "-o", "json", "--store", store).wants(t, 0)
	var list []migrationJSON
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list) != int(migrations.Version) || list[len(list)-1].Applied == nil {
		t.Errorf("wanted all migrations applied, found %q (%v)", r.out, err)
	}
	wattle(t, "category", "create", "a", "--store", store).wants(t, 0)

	wattle(t, "migrate", "down", "--store", store).wants(t, exitRefused, "DESTROYS EVERY LOG", "--yes", "no terminal")
	wattle(t, "category", "list", "--store", store).wants(t, 0, "a ")
	wattle(t, "category", "create", "log", "--layout", "dedicated", "--store", store).wants(t, 0)
	wattle(t, "read", "log-1", "--store", store).wants(t, exitNotFound, "no such stream", "create it first")
	wattle(t, "stream", "create", "a-1", "--store", store).wants(t, exitUsage, "dedicated category")
	wattle(t, "stream", "create", "log-1", "log-2", "--store", store).wants(t, 0)
	wattle(t, "read", "log-1", "--store", store).wants(t, exitNotFound, "a stream with entries")
	wattle(t, "stream", "drop", "log-1", "--yes", "--store", store).wants(t, 0)
	wattle(t, "stream", "drop", "log-1", "--yes", "--store", store).wants(t, exitNotFound)
	wattle(t, "migrate", "down", "--yes", "--store", store).wants(t, 0)
	wattle(t, "category", "list", "--store", store).wants(t, exitNotMigrated)
	wattle(t, "migrate", "down", "--yes", "--store", store).wants(t, 0)
}

// asked runs the command on a pretended terminal.
func asked(t *testing.T, answer string, args ...string) result {
	t.Helper()
	var out, err bytes.Buffer
	a := newApp(strings.NewReader(answer), &out, &err, noEnv)
	a.terminal = func(any) bool { return true }
	return result{a.run(t.Context(), args), out.String(), err.String()}
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	store := migrated(t)
	schema := schemaOf(t, store)
	wattle(t, "category", "create", "clicks", "--store", store).wants(t, 0)

	for _, answer := range []string{"", "\n", "y\n", "Clicks\n", "clicksx"} {
		r := asked(t, answer, "category", "delete", "clicks", "--store", store)
		if r.code != exitRefused || !strings.Contains(r.err, "Type clicks to go on: ") || !strings.Contains(r.err, "nothing was done") {
			t.Errorf("answer %q: wanted a refusal, found %d: %s", answer, r.code, r.err)
		}
	}
	wattle(t, "category", "list", "--store", store).wants(t, 0, "clicks")
	if r := asked(t, "clicks\n", "category", "delete", "clicks", "--store", store); r.code != 0 {
		t.Errorf("wanted it done, found %d: %s", r.code, r.err)
	}
	if r := wattle(t, "category", "list", "-o", "json", "--store", store); r.out != "[]\n" {
		t.Errorf("wanted no category, found %s", r.out)
	}
	if r := asked(t, "yes\n", "migrate", "down", "--store", store); r.code != exitRefused {
		t.Errorf("wanted a refusal, found %d: %s", r.code, r.err)
	}
	if r := asked(t, schema+"\n", "migrate", "down", "--store", store); r.code != 0 {
		t.Errorf("wanted it done, found %d: %s", r.code, r.err)
	}
}

func TestCategory(t *testing.T) {
	t.Parallel()
	store := migrated(t)
	wattle(t, "category", "create", "clicks", "--trim-freely", "--store", store).wants(t, 0)
	wattle(t, "category", "create", "account", "--store", store).wants(t, 0)
	wattle(t, "category", "create", "account", "--store", store).wants(t, 0)
	wattle(t, "category", "create", "account", "--trim-freely", "--store", store).wants(t, exitRefused, "account")

	const table = `NAME     LAYOUT  TRIM
account  shared  behind snapshots
clicks   shared  freely
`
	if r := wattle(t, "category", "list", "--store", store); r.out != table {
		t.Errorf("wanted\n%sfound\n%s", table, r.out)
	}
	const list = `[{"name":"account","layout":"shared","trim_freely":false},{"name":"clicks","layout":"shared","trim_freely":true}]` + "\n"
	env := func(name string) string { return map[string]string{storeVariable: store}[name] }
	if r := wattleIn(t, env, "", "category", "list", "-o", "json"); r.out != list {
		t.Errorf("wanted %s found %s", list, r.out)
	}
	wattle(t, "category", "delete", "clicks", "--store", store).wants(t, exitRefused, "--yes")
	wattle(t, "category", "delete", "clicks", "--yes", "--store", store).wants(t, 0)
	wattleIn(t, env, "", "category", "list", "--store", "mem:").wants(t, 0, "NAME") // the flag goes first
}

func TestVersion(t *testing.T) {
	t.Parallel()
	wattle(t, "version").wants(t, 0, "wattle", "go", "schema")
	var v versionJSON
	r := wattle(t, "version", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || v.Schema == 0 || v.Go == "" {
		t.Errorf("wanted a version, found %q (%v)", r.out, err)
	}
}

// Every command that does something is documented, with an example.
func TestHelp(t *testing.T) {
	t.Parallel()
	var each func(c *cobra.Command)
	each = func(c *cobra.Command) {
		topic := !c.HasSubCommands() && !c.Runnable()
		if c.Short == "" || c.Long == "" {
			t.Errorf("%s has no description", c.CommandPath())
		}
		if !topic && !c.HasSubCommands() && c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each(newApp(nil, nil, nil, noEnv).root())
	wattle(t).wants(t, 0, "Usage:", "file:DIR", "mem:")
	wattle(t, "help", "exit-codes").wants(t, 0, "not migrated", "wattle verify", "130")
	wattle(t, "completion", "bash").wants(t, 0, "wattle")
	if r := wattle(t, "__complete", "version", "-o", ""); !strings.HasPrefix(r.out, "table\njson\n") {
		t.Errorf("wanted table and json completed, found %q", r.out)
	}
	if r := wattle(t, "__complete", "verify", "--store", ""); !strings.HasPrefix(r.out, "file:\nmem:\npostgres://\n") {
		t.Errorf("wanted the kinds of stores completed, found %q", r.out)
	}
}

// A password is printed nowhere: not in help, not in errors, however broken the
// URL is that holds it.
func TestPasswordIsNeverPrinted(t *testing.T) {
	t.Parallel()
	const canary = "c4n4ry"
	server := strings.TrimPrefix(strings.TrimPrefix(pgtest.DSN(t), "postgres://"), "postgresql://")
	if _, rest, ok := strings.Cut(server, "@"); ok {
		server = rest
	}
	address, _, _ := strings.Cut(server, "/")
	stores := []string{
		"postgres://user:" + canary + "@127.0.0.1:1/db?sslmode=disable",
		"postgres://user:" + canary + "@" + address + "/no-such-database?sslmode=disable",
		"postgres://no-such-user:" + canary + "@" + server,
		"postgres://user:" + canary + "/" + canary + "@127.0.0.1:1/db",
		"postgres://user:" + canary + "%zz@127.0.0.1:1/db",
		"postgres://user:" + canary + "@host:port/db",
		"postgres://user:" + canary + " @127.0.0.1:1/db",
		"postgres://user:" + canary + "@127.0.0.1:1/db?sslmode=" + "nope",
		"postgres://user:" + canary + "@127.0.0.1:1/db?%zz=1",
		"postgres://user@127.0.0.1:1/db?password=" + canary,
		"postgres://user@127.0.0.1:1/db?sslmode=nope&password=" + canary,
		"postgres://user@127.0.0.1:1/db?sslmode=nope&sslpassword=" + canary,
		"mysql://user:" + canary + "@host/db",
		"host=127.0.0.1 port=1 user=user password=" + canary,
		"user:" + canary + "@host",
		canary,
		"mem:" + canary,
	}
	for _, store := range stores {
		env := func(name string) string { return map[string]string{storeVariable: store}[name] }
		for _, args := range [][]string{{"category", "list"}, {"migrate", "up"}, {"migrate", "down"}, {"demo"}, {"tail", "a", "-f"}, {"bench", "append"}, {"verify"}, {"doctor"}, {"--help"}, {"demo", "--help"}} {
			r := wattleIn(t, env, "", args...)
			if strings.Contains(r.out+r.err, canary) {
				t.Errorf("%q with %q printed it:\n%s%s", args, store, r.out, r.err)
			}
			if r.code == 0 && !strings.Contains(args[len(args)-1], "help") {
				t.Errorf("%q with %q: wanted a failure", args, store)
			}
		}
		r := asked(t, "no\n", "migrate", "down", "--store", store)
		if strings.Contains(r.out+r.err, canary) {
			t.Errorf("the question printed it: %s%s", r.out, r.err)
		}
	}
	for _, nats := range []string{"nats://user:" + canary + "@127.0.0.1:1", "nats://user:" + canary + "%zz@h", "nats://u:" + canary + "/@h", canary} {
		if r := wattle(t, "demo", "--store", "mem:", "--nats", nats); r.code == 0 || strings.Contains(r.out+r.err, canary) {
			t.Errorf("%q: exit code %d and %s", nats, r.code, r.err)
		}
	}
}

// Nobody who writes events has a say over the reader's terminal.
func TestDataText(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`{"a": 1.50, "b": [ 1e2 ]}`: `{"a":1.50,"b":[1e2]}`,
		`"<&>"`:                     `"<&>"`,
		"\"\u009b31m\u202e\x7f\"":   `"\u009b31m\u202e\u007f"`,
		"12345678901234567890":      "12345678901234567890",
		"":                          `""`,
		"plain\ttext\x1b[2J":        `"plain\ttext\x1b[2J"`,
		"\xff\x00":                  "base64:/wA=",
		"\"\xff\"":                  "base64:Iv8i",
	} {
		if got := dataText([]byte(data)); got != want {
			t.Errorf("%q: wanted %s, found %s", data, want, got)
		}
		j := toJSON(eventstore.Entry{Event: eventstore.Event{Data: []byte(data)}})
		if isJSON := j.DataBase64 == nil; isJSON != (strings.HasPrefix(want, "{") || want == `"<&>"` || want[0] == '1' || strings.Contains(want, "009b")) {
			t.Errorf("%q: as JSON it is %+v", data, j)
		}
		if _, err := json.Marshal(j); err != nil {
			t.Errorf("%q: %v", data, err)
		}
	}
}

func TestMessageIsOneLine(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("outside: %w", &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "open", Found: "a\n\tb", Err: os.ErrDeadlineExceeded})
	if got, want := message(err), "wattle: outside: open unavailable, found a b: i/o timeout"; strings.ReplaceAll(got, ": found", ", found") != want {
		t.Errorf("wanted %q, found %q", want, got)
	}
}

func TestCodes(t *testing.T) {
	t.Parallel()
	for code, errs := range map[int][]error{
		0:               {nil},
		exitFailure:     {errors.New("x"), eventstore.ErrCorrupt, eventstore.ErrClosed, context.Canceled, &pgconn.PgError{Code: "42601"}},
		exitUsage:       {&usageError{}, eventstore.ErrInvalid, fmt.Errorf("x: %w", errors.ErrUnsupported)},
		exitNotFound:    {eventstore.ErrNoSuchStream, eventstore.ErrTrimmed, projector.ErrNotRegistered},
		exitRefused:     {&refusal{}, eventstore.ErrFenced, eventstore.ErrGuard, eventstore.ErrDiverged, bank.ErrDiffers, loan.ErrRefused},
		exitUnavailable: {eventstore.ErrOverloaded, eventstore.ErrUnknown, context.DeadlineExceeded, &pgconn.PgError{Code: "57P01"}, &pgconn.PgError{Code: "53300"}},
		exitNotMigrated: {eventstore.ErrNotMigrated},
		exitFound:       {&foundError{}},
		exitBehind:      {&projector.LagError{Err: context.DeadlineExceeded}, &lateError{err: context.DeadlineExceeded}},
		exitBadInput:    {&loan.XESError{Err: eventstore.ErrInvalid}, &coded{os.ErrNotExist, exitBadInput}, &wasm.Error{Kind: wasm.ErrImport}},
		130:             {interruption{os.Interrupt}},
		143:             {fmt.Errorf("x: %w", interruption{syscall.SIGTERM})},
	} {
		for _, err := range errs {
			if got := codeOf(err); got != code {
				t.Errorf("%v: wanted %d, found %d", err, code, got)
			}
		}
	}
}
