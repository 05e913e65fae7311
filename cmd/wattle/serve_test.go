// A store at a server: every verb gives what it gives without one, and who may not, cannot.

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// office is a server of the test's own and the folder of its certificates.
type office struct {
	t     testing.TB
	dir   string
	host  string
	stop  func() result
	lines *syncBuffer
}

// syncBuffer is what was written so far.
type syncBuffer struct {
	mu  sync.Mutex
	all strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

const officePolicy = `uri:spiffe://wattle/client  *     *
uri:spiffe://wattle/reader  read  account
`

// newOffice serves a store with mutual TLS.
func newOffice(t testing.TB, store string, more ...string) *office {
	t.Helper()
	o := &office{t: t, dir: t.TempDir()}
	wattle(t, "cert", "--dir", o.dir, "--server", "server=localhost,127.0.0.1", "--client", "client=spiffe://wattle/client", "--client", "reader=spiffe://wattle/reader").wants(t, 0)
	if err := os.WriteFile(o.file("policy"), []byte(officePolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	o.serve(append([]string{"--store", store, "--tls-cert", o.file("server.crt"), "--tls-key", o.file("server.key"), "--tls-client-cas", o.file("ca.crt"), "--policy", o.file("policy")}, more...)...)
	return o
}

func (o *office) file(name string) string { return filepath.Join(o.dir, name) }

var servingLine = regexp.MustCompile(`wattle: serving \S+ at (\S+)`)

// serve runs wattle serve until the test ends.
func (o *office) serve(args ...string) {
	o.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	o.lines = &syncBuffer{}
	ended := make(chan result, 1)
	go func() {
		code := run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...), strings.NewReader(""), io.Discard, write, noEnv)
		_ = write.Close()
		ended <- result{code: code}
	}()
	at := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(io.TeeReader(read, o.lines)); lines.Scan(); {
			if m := servingLine.FindStringSubmatch(lines.Text()); m != nil {
				at <- m[1]
			}
		}
		close(at)
	}()
	o.stop = sync.OnceValue(func() result {
		cancel()
		r := <-ended
		r.err = o.lines.String()
		return r
	})
	o.t.Cleanup(func() { o.stop() })
	select {
	case host, ok := <-at:
		if !ok {
			o.t.Fatalf("it did not serve: %s", o.lines)
		}
		o.host = host
	case <-time.After(time.Minute):
		o.t.Fatal("it does not serve")
	}
}

// url is the store for a client.
func (o *office) url(client string) string {
	q := url.Values{"ca": {o.file("ca.crt")}}
	if client != "" {
		q.Set("cert", o.file(client+".crt"))
		q.Set("key", o.file(client+".key"))
	}
	return "https://" + o.host + "?" + q.Encode()
}

func TestServe(t *testing.T) {
	t.Parallel()
	want := wattle(t, "demo", "--store", "mem:", "--cases", "30").wants(t, 0)
	for name, store := range map[string]func(testing.TB) string{"memory": func(testing.TB) string { return "mem:" }, "files": filed, "postgres": migrated} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t, store(t))
			at := func(args ...string) result { return wattle(t, append(args, "--store", o.url("client"))...) }
			at("category", "create", "account").wants(t, 0)
			at("category", "list").wants(t, 0, "account", "shared")
			at("category", "create", "clicks", "--layout", "dedicated", "--trim-freely").wants(t, 0)
			at("stream", "create", "clicks-eu").wants(t, 0)
			at("stream", "drop", "clicks-eu", "--yes").wants(t, 0)
			at("category", "delete", "clicks", "--yes").wants(t, 0)
			if got := at("demo", "--cases", "30").wants(t, 0); figures(got.out) != figures(want.out) {
				t.Errorf("the demo's figures are\n%s\nwant\n%s", figures(got.out), figures(want.out))
			}
			at("tail", "application", "--from", "1", "-o", "json").wants(t, 0, `"type":"loan.submitted"`)
			at("projector", "list").wants(t, 0)
			at("bench", "append", "--duration", "100ms", "--logs", "2").wants(t, 0)
			at("read", "nope-1").wants(t, exitNotFound, "no such category", "nope")
			at("migrate", "up").wants(t, exitUsage, "where the server runs")
			if name != "memory" {
				at("verify").wants(t, 0, "0 faults")
				at("doctor").wants(t, 0)
			}
			o.topics(t)
			if r := o.stop(); r.code != 0 {
				t.Errorf("it ended with %d: %s", r.code, r.err)
			}
			at("category", "list").wants(t, exitUnavailable, o.host)
		})
	}
}

// figures is what a demo prints of the reports, without how long it took.
func figures(out string) string {
	_, tables, _ := strings.Cut(out, "\n\n")
	return tables
}

// topics goes through the commands for topics.
func (o *office) topics(t *testing.T) {
	t.Helper()
	at := func(stdin string, args ...string) result {
		return wattleIn(t, noEnv, stdin, append(args, "--store", o.url("client"))...)
	}
	at("", "topic", "create", "orders", "--partitions", "2").wants(t, 0)
	at("", "topic", "list").wants(t, 0, "orders", "2", "all")
	at("", "publish", "orders", `{"n":12345678901234567890}`, "--key", "alice", "--id", "first").wants(t, 0, "offset 1")
	at("", "publish", "orders", `{"n":12345678901234567890}`, "--key", "alice", "--id", "first").wants(t, 0, "offset 1", "there already")
	at("", "publish", "orders", `{"n":2}`, "--key", "alice", "--id", "first").wants(t, exitRefused, "batch ID reused")
	at("bob,two\n\nbob,three\n", "publish", "orders", "--key-separator", ",").wants(t, 0)
	at("bob", "publish", "orders", "--key-separator", ",").wants(t, exitUsage, "line 1")
	at("", "publish", "orders", "x", "--key-separator", ",").wants(t, exitUsage, "--key-separator")
	at("", "publish", "orders", "--key", "a", "--key-separator", ",").wants(t, exitUsage, "--key-separator")
	at("", "consume", "orders").wants(t, 0, "alice", `{"n":12345678901234567890}`, "two", "three")
	at("", "consume", "orders", "--consumer", "billing", "-o", "json").wants(t, 0, `"data":{"n":12345678901234567890}`)
	if r := at("", "consume", "orders", "--consumer", "billing").wants(t, 0); r.out != "" {
		t.Errorf("what was committed came again: %s", r.out)
	}
	at("", "topic", "describe", "orders", "-o", "json").wants(t, 0, `"consumer":"billing"`, `"lag":0`)
	partition := func(args ...string) result {
		return at("", append([]string{"consume", "orders", "--partition", regexp.MustCompile(`partition (\d)`).FindStringSubmatch(at("", "publish", "orders", "last", "--key", "alice").wants(t, 0).out)[1]}, args...)...)
	}
	partition().wants(t, 0, "last")
	if r := partition("--from", "new").wants(t, 0); strings.Contains(r.out, "last") {
		t.Errorf("old messages are printed as new ones:\n%s", r.out)
	}
	partition("--offset", "1").wants(t, 0, "last")
	at("", "consume", "orders", "--partition", "9").wants(t, exitUsage, "0 to 1", "9")
	at("", "consume", "nope").wants(t, exitNotFound, "no such topic")
	at("", "topic", "delete", "orders", "--yes").wants(t, 0)
	at("", "topic", "describe", "orders").wants(t, exitNotFound, "no such topic")
}

// A store without a server has topics, too.
func TestTopicsInFiles(t *testing.T) {
	t.Parallel()
	store := filed(t)
	wattle(t, "topic", "create", "orders", "--store", store).wants(t, 0)
	wattle(t, "publish", "orders", "one", "--store", store).wants(t, 0, "offset 1")
	wattle(t, "consume", "orders", "--store", store).wants(t, 0, "one")
}

// With the URL of the database beside a server: what owns no partitions works, and leaves the
// server what it has; publishing is refused with the way to go.
func TestTopicsBesideAServer(t *testing.T) {
	t.Parallel()
	store := migrated(t)
	o := newOffice(t, store, "--advertise", "https://server:4440")
	at := func(args ...string) result { return wattle(t, append(args, "--store", store)...) }
	at("topic", "create", "orders", "--partitions", "3").wants(t, 0)
	wattle(t, "publish", "orders", "one", "--store", o.url("client")).wants(t, 0, "offset 1")
	for range 3 {
		at("topic", "list").wants(t, 0, "orders")
		at("consume", "orders", "--consumer", "billing").wants(t, 0)
		if n := strings.Count(at("topic", "describe", "orders").wants(t, 0).out, "https://server:4440"); n != 3 {
			t.Fatalf("the server owns %d of 3 partitions", n)
		}
	}
	at("publish", "orders", "two").wants(t, exitUnavailable, "https://server:4440", "publish through it")
	if r := o.stop(); r.code != 0 {
		t.Fatal(r.err)
	}
	at("publish", "orders", "three").wants(t, 0)
}

func TestServeRefuses(t *testing.T) {
	t.Parallel()
	o := newOffice(t, "mem:")
	wattle(t, "category", "create", "account", "--store", o.url("client")).wants(t, 0)
	wattle(t, "tail", "account", "--store", o.url("reader")).wants(t, 0)
	for _, args := range [][]string{{"category", "create", "x"}, {"read", "other-1"}, {"demo"}, {"topic", "create", "t"}, {"publish", "t", "x"}, {"verify"}} {
		wattle(t, append(args, "--store", o.url("reader"))...).wants(t, exitRefused, "denied")
	}
	wattle(t, "category", "list", "--store", o.url("")).wants(t, exitUnavailable)
	wattle(t, "category", "list", "--store", "https://"+o.host).wants(t, exitUnavailable)
	if err := os.WriteFile(o.file("policy"), []byte("uri:spiffe://wattle/client read account\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); wattle(t, "category", "create", "y", "--store", o.url("client")).code != exitRefused; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the new policy is not in force")
		}
	}
}

func TestServeConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, d := range map[string]struct {
		args []string
		want string
	}{
		"no policy":         {nil, "--policy"},
		"a broken file":     {[]string{"--config", file("broken", "{\n\"listn\": 1}")}, "line 2"},
		"no file":           {[]string{"--config", filepath.Join(dir, "none")}, "none"},
		"half of a pair":    {[]string{"--tls-cert", "x"}, "cert and key"},
		"a bad limit":       {[]string{"--dev", "--limits-calls", "-1"}, "limits.calls"},
		"dev for everybody": {[]string{"--dev", "--listen", "0.0.0.0:0"}, "loopback"},
		"dev and a policy":  {[]string{"--dev", "--policy", file("policy", "anonymous * *\n")}, "--dev"},
		"a bad level":       {[]string{"--dev", "--log-level", "loud"}, "--log-level"},
		"nowhere to listen": {[]string{"--dev", "--listen", "nowhere"}, "--listen"},
		"nobody is known":   {[]string{"--policy", file("policy", "anonymous * *\n")}, "a way to know who asks"},
		"no URL for others": {[]string{"--dev", "--advertise", "wattle-1:4440"}, "--advertise is a URL"},
		"no file for them":  {[]string{"--dev", "--advertise", "https://wattle-1:4440", "--peer-ca", filepath.Join(dir, "none")}, "--peer-*"},
		"peers for nothing": {[]string{"--dev", "--peer-ca", file("ca", "")}, "--advertise with --peer-*"},
		"a broken policy":   {[]string{"--policy", file("bad", "who knows\n")}, "line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"serve", "--store", "mem:"}, d.args...)
			if r := wattle(t, args...); r.code == 0 || !strings.Contains(r.err, d.want) {
				t.Errorf("code %d, %q, want an error with %q", r.code, r.err, d.want)
			}
		})
	}
	o := &office{t: t, dir: dir}
	o.serve("--config", file("config", fmt.Sprintf(`{"store": "mem:", "policy": %q, "anonymous": true}`, file("all", "anonymous * *\n"))))
	wattle(t, "category", "create", "a", "--store", "http://"+o.host).wants(t, 0)
}
