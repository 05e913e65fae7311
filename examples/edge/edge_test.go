//go:build edge

// The Workers in a real workerd, on loopback. make test-edge builds them first.

package edge_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire/wiretest"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
	"github.com/wattle-es/wattle/handler/httpcarrier"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// startLimit is how long workerd may take to listen, on a busy machine.
const startLimit = 30 * time.Second

// process is a workerd that listens.
type process struct {
	began   time.Time
	address map[string]string // of a socket's name
}

// start runs workerd with config.capnp on free ports, until the test ends.
func start(t *testing.T, env ...string) *process {
	t.Helper()
	found, _ := filepath.Glob("node_modules/@cloudflare/workerd-*/bin/workerd*")
	if len(found) != 1 {
		t.Fatalf("wanted one workerd in node_modules, found %q: run make test-edge", found)
	}
	told, tell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	c := exec.Command(found[0], "serve", "config.capnp", "--socket-addr=decide=127.0.0.1:0", "--socket-addr=execute=127.0.0.1:0", "--socket-addr=remote=127.0.0.1:0", "--control-fd=3")
	c.Env = append(append(os.Environ(), "DATABASE_URL=", "WATTLE_SCHEMA=", "WATTLE_SERVER=", "WATTLE_TOKEN="), env...)
	c.ExtraFiles, c.Stdout, c.Stderr = []*os.File{tell}, os.Stderr, os.Stderr
	p := &process{began: time.Now(), address: map[string]string{}}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	tell.Close()
	_ = told.SetReadDeadline(time.Now().Add(startLimit))
	for events := json.NewDecoder(told); len(p.address) < 3; {
		var e struct {
			Event, Socket string
			Port          int
		}
		if err := events.Decode(&e); err != nil {
			t.Fatalf("workerd does not listen: %v", err)
		}
		if e.Event == "listen" {
			p.address[e.Socket] = "http://127.0.0.1:" + strconv.Itoa(e.Port)
		}
	}
	return p
}

// client is a handler that POSTs to a Worker.
func (p *process) client(t *testing.T, socket string) *httpcarrier.Client {
	t.Helper()
	c, err := httpcarrier.NewClient(p.address[socket], nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// busy are the limits of a caller that asks a machine which is busy with other things.
var busy = &handler.Options{Timeout: time.Minute}

// TestDecide: the domain in the Worker is the domain, and keeps to its limits.
func TestDecide(t *testing.T) {
	p := start(t)
	h := p.client(t, "decide")
	describe := &handler.Request{Op: handler.Describe, Key: eventstore.NewUUID()}
	if _, err := h.Handle(t.Context(), describe); err != nil {
		t.Fatal(err)
	}
	t.Logf("from the process's start to the first answer: %v", time.Since(p.began).Round(time.Millisecond))

	cases, err := wiretest.Cases(1, 3, 8)
	if err != nil {
		t.Fatal(err)
	}
	result, err := conformance.Run(t.Context(), h, &conformance.Options{Cases: spread(cases, 20), Parallel: 3, Caller: busy})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range result.Findings {
		t.Error(f)
	}
	if len(result.Rules) < 10 || result.Calls < 100 {
		t.Errorf("%d rules and %d calls: the suite did not run", len(result.Rules), result.Calls)
	}
	t.Logf("%d rules, %d calls", len(result.Rules), result.Calls)

	took := make([]time.Duration, 40)
	for i := range took {
		began := time.Now()
		if _, err := h.Handle(t.Context(), describe); err != nil {
			t.Fatal(err)
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	t.Logf("a request, a Go program each: least %v, p50 %v, most %v", took[0].Round(time.Millisecond), took[20].Round(time.Millisecond), took[39].Round(time.Millisecond))
}

// spread takes about n of the cases, from all of them.
func spread(cases []conformance.Case, n int) (some []conformance.Case) {
	step := max(1, len(cases)/n)
	for i := 0; i < len(cases); i += step {
		some = append(some, cases[i])
	}
	return some
}

// TestBadRequests: what is too large, no request at all, or cut off, harms nothing.
func TestBadRequests(t *testing.T) {
	p := start(t)
	for name, c := range map[string]struct {
		method, body string
		status       int
	}{
		"not JSON":  {http.MethodPost, "{", http.StatusBadRequest},
		"too large": {http.MethodPost, strings.Repeat("x", handler.DefaultRequestBytes+1), http.StatusRequestEntityTooLarge},
		"empty":     {http.MethodPost, "", http.StatusBadRequest},
		"no POST":   {http.MethodPut, "{}", http.StatusMethodNotAllowed},
	} {
		q, err := http.NewRequestWithContext(t.Context(), c.method, p.address["decide"], strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != c.status {
			t.Errorf("%s: wanted %d, found %s: %s", name, c.status, answer.Status, text)
		}
	}
	// Want of a database is no decision: the caller may try again.
	reply, err := p.client(t, "execute").Handle(t.Context(), submit(t, "application-x", eventstore.NewUUID()))
	if err != nil || reply.Failure == nil || reply.Failure.Code != handler.CodeFailed {
		t.Errorf("without a database: %+v, %v, want a failure %q", reply, err, handler.CodeFailed)
	}
	// A fetch does not tell whether the server had the request.
	away := start(t, "WATTLE_SERVER=http://127.0.0.1:1").client(t, "remote")
	if reply, err := away.Handle(t.Context(), submit(t, "application-x", eventstore.NewUUID())); err != nil || reply.Failure == nil || reply.Failure.Code != handler.CodeUnknown {
		t.Errorf("without a server: %+v, %v, want a failure %q", reply, err, handler.CodeUnknown)
	}
	// A program that could not even begin makes no decision.
	_, err = start(t, "DATABASE_URL=nonsense").client(t, "execute").Handle(t.Context(), submit(t, "application-x", eventstore.NewUUID()))
	if !errors.Is(err, handler.ErrFailed) {
		t.Errorf("without the address of a database: %v, want ErrFailed", err)
	}
}

// sizes are what a Worker may have: 3 MB compressed on Cloudflare's free plan, 10 MB on
// others. What is here is well below, so that growth is noticed.
var sizes = map[string]int{"decide": 2_500_000, "execute": 5_000_000, "remote": 2_800_000}

func TestSizes(t *testing.T) {
	for name, limit := range sizes {
		data, err := os.ReadFile(filepath.Join("dist", name+".wasm"))
		if err != nil {
			t.Fatal(err)
		}
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		_, _ = w.Write(data)
		_ = w.Close()
		t.Logf("%s: %.2f MB, compressed %.2f MB", name, float64(len(data))/1e6, float64(packed.Len())/1e6)
		if packed.Len() > limit {
			t.Errorf("%s: %d bytes compressed, limit %d", name, packed.Len(), limit)
		}
	}
}

// submit is the first command of an application.
func submit(t *testing.T, stream eventstore.Stream, id eventstore.UUID) *handler.Request {
	t.Helper()
	r := &handler.Request{Op: handler.Execute, Key: id, ID: id, Now: time.Now().UTC(), Stream: stream}
	for app := range loan.Generate(1, 1) {
		c, err := loan.CommandFor(app, 0)
		if err != nil {
			t.Fatal(err)
		}
		command, err := wiretest.Command(c)
		if err != nil {
			t.Fatal(err)
		}
		r.Command = &command
	}
	return r
}
