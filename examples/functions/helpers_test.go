// The functions as real processes, before a real PostgreSQL behind PgBouncer.

package functions_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/examples/functions"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
	"github.com/wattle-es/wattle/internal/cutproxy"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// asVariable says that this process is no test but a function.
const asVariable = "WATTLE_TEST_FUNCTION"

func TestMain(m *testing.M) {
	open, is := map[string]func(context.Context, functions.Settings) (*functions.Function, error){"command": functions.Command, "projection": functions.Projection}[os.Getenv(asVariable)]
	if !is {
		pgtest.Main(m)
	}
	if err := functions.Serve(open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// binary builds a function's program.
func binary(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-o", path, "./"+name)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	return path
}

// world is a store, its pooler, and what a test looks at it with.
type world struct {
	testing.TB
	pool   *pgxpool.Pool
	schema string
	pooled string // DSN
	store  *eventstore.Store
}

func newWorld(t testing.TB) *world {
	pool, schema := pgtest.Schema(t)
	log, err := pglog.Open(t.Context(), pool, &pglog.Options{Schema: schema})
	ok(t, err)
	store := eventstore.New(log, nil)
	t.Cleanup(func() { _ = store.Close() })
	return &world{TB: t, pool: pool, schema: schema, pooled: pgtest.Bouncer(t, pgtest.DSN(t), 3), store: store}
}

// process is a function that runs.
type process struct {
	*world
	cmd     *exec.Cmd
	address string
	began   time.Time
	ended   sync.Once
}

// start runs a function that is this program, so that the race detector sees it, and does
// not wait for it to listen.
func (w *world) start(name, dsn string, env ...string) *process {
	w.Helper()
	self, err := os.Executable()
	ok(w, err)
	return w.run(self, dsn, append(env, asVariable+"="+name)...)
}

// run runs a function's program.
func (w *world) run(path, dsn string, env ...string) *process {
	w.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(w, err)
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	p := &process{world: w, cmd: exec.Command(path), address: "http://127.0.0.1:" + port}
	p.cmd.Env = append(os.Environ(), append(env, "HOST=127.0.0.1", "PORT="+port, "WATTLE_DSN="+dsn, "WATTLE_SCHEMA="+w.schema)...)
	p.cmd.Stderr = os.Stderr
	p.began = time.Now()
	ok(w, p.cmd.Start())
	w.Cleanup(func() { p.kill() })
	return p
}

// ready waits until the function answers.
func (p *process) ready() *process {
	p.Helper()
	for limit := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		resp, err := http.Get(p.address + "/healthz")
		if err == nil {
			resp.Body.Close()
			return p
		}
		if time.Now().After(limit) {
			p.Fatal("the function does not listen: ", err)
		}
	}
}

func (p *process) signal(s syscall.Signal) { ok(p, p.cmd.Process.Signal(s)) }

// kill ends the process; the kernel's name for it is not used again before that.
func (p *process) kill() {
	p.ended.Do(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
}

// command is a command as an event of anybody.
type command struct {
	id, key, typ string
	data         any
}

func at(minute int) loan.Order {
	return loan.Order{At: time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC)}
}

func submit(id, key string) command {
	return command{id, key, "loan.submit", loan.Submit{Order: at(0), Amount: 5000}}
}

// work is a command that may follow a partial submission, any number of times.
func work(id, key string) command {
	return command{id, key, "loan.schedule_work", loan.ScheduleWork{Order: at(2), Item: loan.WorkLeads}}
}

// begun has an application submitted, by commands that count to 2.
func (p *process) begun(key string) {
	p.Helper()
	p.must(submit(key+" 1", key))
	p.must(command{key + " 2", key, "loan.partly_submit", loan.PartlySubmit{Order: at(1)}})
}

func (c command) body(t testing.TB) []byte {
	data, err := json.Marshal(c.data)
	ok(t, err)
	body, err := httpcarrier.AppendStructured(nil, &httpcarrier.CloudEvent{ID: c.id, Source: "/branch/7", Type: c.typ, Subject: c.key, Data: data})
	ok(t, err)
	return body
}

// send posts a command and returns the answer.
func (p *process) send(ctx context.Context, c command) (int, *handler.Reply, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, p.address, bytes.NewReader(c.body(p)))
	if err != nil {
		return 0, nil, err
	}
	q.Header.Set("Content-Type", httpcarrier.StructuredType)
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err
	}
	reply, err := handler.ParseReply(body)
	return resp.StatusCode, reply, err
}

// must sends a command that has to be executed.
func (p *process) must(c command) *handler.Reply {
	p.Helper()
	status, reply, err := p.send(p.Context(), c)
	if err != nil || status != 200 {
		p.Fatalf("%v: status %d, %+v, %v", c, status, reply, err)
	}
	return reply
}

// history is what a stream holds, by types.
func (w *world) history(key string) (types []string) {
	w.Helper()
	for e, err := range w.store.Read(w.Context(), eventstore.Stream(string(wire.Category)+"-"+key), 0) {
		ok(w, err)
		types = append(types, e.Type)
	}
	return types
}

// eventually waits for something.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	for limit := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			w.Fatal("waited in vain: ", what)
		}
	}
}

// connections is how many the server has of an application.
func (w *world) connections(name string) (n int) {
	w.Helper()
	ok(w, w.pool.QueryRow(w.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", name).Scan(&n))
	return n
}

// through starts a proxy before the pooler and returns a DSN that leads through it.
func (w *world) through() (*cutproxy.Proxy, string) {
	w.Helper()
	u, err := url.Parse(w.pooled)
	ok(w, err)
	p, err := cutproxy.New(u.Host)
	ok(w, err)
	w.Cleanup(func() { p.Close() })
	u.Host = fmt.Sprintf("127.0.0.1:%d", p.Port())
	return p, u.String()
}

// settings are those under which the documents are found.
func (w *world) settings() functions.Settings { return functions.Settings{Schema: w.schema} }

func (c command) String() string { return fmt.Sprintf("%s %s of %s", c.typ, c.id, c.key) }
