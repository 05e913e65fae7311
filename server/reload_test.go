// Files that change while the server serves.

package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/server/devcert"
)

// Certificate, key and authorities change while calls go on: none of those fails, and what
// is new counts at once.
func TestReloadUnderLoad(t *testing.T) {
	w := newWorld(t, nil)
	good := w.issue(w.ca, "spiffe://bank/teller")
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var calls [2]int
	for i := range calls {
		c := w.client(good, func(_ *tls.Config, t *http.Transport) { t.DisableKeepAlives = i == 0 })
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := w.call(c); err != nil {
					t.Error(err)
					return
				}
				calls[i]++
			}
		})
	}
	seen := map[string]bool{}
	for i := range 8 {
		w.saveServer([]*devcert.Authority{w.ca, w.other}[i%2])
		if i%2 == 0 {
			w.save("ca.crt", string(w.ca.Cert)+string(w.other.Cert))
		} else {
			w.save("ca.crt", string(w.ca.Cert))
		}
		if err := w.server.Reload(); err != nil {
			t.Fatal(err)
		}
		c, err := tls.Dial("tcp", w.server.addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		seen[fingerprintOf(c.ConnectionState().PeerCertificates[0])] = true
		_ = c.Close()
		theirs := i%2 == 0
		if err := w.call(w.client(w.issue(w.other, "spiffe://bank/x"), nil)); (err == nil) != theirs {
			t.Errorf("round %d: the other authority's client: %v", i, err)
		}
	}
	stop()
	wg.Wait()
	if len(seen) != 8 || calls[0] == 0 || calls[1] == 0 {
		t.Errorf("%d certificates seen, calls %v", len(seen), calls)
	}
}

// Broken files keep what was in force, and are shown; half of a pair is broken too.
func TestBrokenPair(t *testing.T) {
	w := newWorld(t, nil)
	good := w.issue(w.ca, "spiffe://bank/teller")
	before := w.server.expires()
	for name, text := range map[string]string{"server.crt": "no certificate", "server.key": string(good.Key), "ca.crt": "-----BEGIN", "revoked": "serial:xyz\n"} {
		old, err := readBounded(w.file(name))
		if err != nil {
			t.Fatal(err)
		}
		w.save(name, text)
		for range 2 {
			if err := w.server.Reload(); note(err) == nil {
				t.Errorf("%s: taken", name)
			}
		}
		if err := w.call(w.client(good, nil)); err != nil || w.server.expires() != before {
			t.Errorf("%s: %v", name, err)
		}
		if r := w.server.readyNow(); len(r.Broken) != 1 || r.Broken[0] != "tls" || !r.Ready {
			t.Errorf("%s: %+v", name, r)
		}
		w.save(name, string(old))
		if err := w.server.Reload(); err != nil {
			t.Errorf("%s: whole again: %v", name, err)
		}
		if r := w.server.readyNow(); len(r.Broken) != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Who is revoked, or whose authority is gone, is out at once, on connections that are open
// too, and so are his streams.
func TestRevokedWhileConnected(t *testing.T) {
	for name, change := range map[string]func(w *world, leaf *x509.Certificate){
		"revoked":      func(w *world, leaf *x509.Certificate) { w.save("revoked", serialOf(leaf)+"\n") },
		"no authority": func(w *world, _ *x509.Certificate) { w.save("ca.crt", string(w.other.Cert)) },
	} {
		w := newWorld(t, nil)
		good := w.issue(w.ca, "spiffe://bank/teller")
		pair, err := good.TLS()
		if err != nil {
			t.Fatal(err)
		}
		c := w.client(good, func(_ *tls.Config, t *http.Transport) { t.DisableKeepAlives = false })
		service := wattlev1.NewLogServiceClient(c, "https://"+w.server.addr)
		f, err := service.Follow(within(t), &wattlev1.FollowRequest{Stream: "account-1"})
		if err != nil || !f.Receive() {
			t.Fatal(err)
		}
		change(w, pair.Leaf)
		if err := w.server.Reload(); err != nil {
			t.Fatal(err)
		}
		for f.Receive() {
		}
		if kind(t, f.Err()) != wattlev1.ErrorKind_ERROR_KIND_UNAUTHENTICATED {
			t.Errorf("%s: stream: %v", name, f.Err())
		}
		_ = f.Close()
		if _, err := service.Read(t.Context(), &wattlev1.ReadRequest{Stream: "account-1"}); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_UNAUTHENTICATED {
			t.Errorf("%s: call: %v", name, err)
		}
	}
}

// A stream does not outlive the certificate that opened it.
func TestCertificateExpires(t *testing.T) {
	w := newWorld(t, nil)
	soon := w.custom(func(c *x509.Certificate) {
		uris(c, "spiffe://bank/teller")
		c.NotAfter = time.Now().Add(3 * time.Second)
	})
	c := w.client(soon, nil)
	f, err := wattlev1.NewLogServiceClient(c, "https://"+w.server.addr, connect.WithGRPC()).Follow(within(t), &wattlev1.FollowRequest{Stream: "account-1"})
	if err != nil {
		t.Fatal(err)
	}
	for f.Receive() {
	}
	if kind(t, f.Err()) != wattlev1.ErrorKind_ERROR_KIND_UNAUTHENTICATED {
		t.Errorf("%v", f.Err())
	}
	_ = f.Close()
}

// Without TLS only this machine is let in, unless asked.
func TestLoopbackOnly(t *testing.T) {
	for _, insecure := range []bool{false, true} {
		s, err := New(Options{Insecure: insecure})
		if err != nil {
			t.Fatal(err)
		}
		l := &everywhere{closed: make(chan struct{})}
		err = s.Serve(t.Context(), l)
		if refused := err != nil && strings.Contains(err.Error(), "loopback"); refused == insecure {
			t.Errorf("insecure %v: %v", insecure, err)
		}
		select {
		case <-l.closed:
		case <-time.After(10 * time.Second):
			t.Error("not closed")
		}
		_ = s.Shutdown(t.Context())
	}
}

// A page in a browser on this machine, under a name that its owner has lead here, is not
// this machine's.
func TestNamesThatLeadHere(t *testing.T) {
	s := start(t, usual(t), fakes{logs: logs{read: func(context.Context, *wattlev1.ReadRequest) (*wattlev1.ReadResponse, error) {
		return &wattlev1.ReadResponse{}, nil
	}}})
	for _, d := range []struct {
		host, origin string
		status       int
	}{
		{"localhost:4440", "", 200}, {"127.0.0.1", "", 200}, {"[::1]:4440", "", 200}, {"box", "", 200}, {"localhost:4440", "http://localhost:4440", 200},
		{"evil.example:4440", "", 421}, {"evil.example.", "", 421}, {"localhost:4440", "https://evil.example", 421}, {"localhost:4440", "null", 421},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.addr+"/wattle.v1.LogService/Read", strings.NewReader(`{"stream": "a-1"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = d.host
		req.Header.Set("Content-Type", "application/json")
		if d.origin != "" {
			req.Header.Set("Origin", d.origin)
		}
		resp, err := httpClient(t, false, "ops").Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != d.status {
			t.Errorf("%+v: %s", d, resp.Status)
		}
	}
}

// A file that was moved away and back is in force again.
func TestFileBackAgain(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/tokens"
	writeTokens(t, file, "ops")
	old := time.Now().Add(-time.Hour)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(os.Chtimes(file, old, old))
	w, err := openTokens(file)
	ok(err)
	ok(os.Rename(file, dir+"/away"))
	if _, err := w.reload(); err == nil || w.whyBroken() == nil {
		t.Error("a file that is gone is not told")
	}
	ok(os.Rename(dir+"/away", file))
	if _, err := w.reload(); err != nil || w.whyBroken() != nil {
		t.Errorf("it is back: %v", err)
	}
}

func TestMistakesInFiles(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/tokens"
	for text, want := range map[string]string{
		"":                                "at least one",
		"a\n":                             "line 1: wanted NAME TOKEN",
		"a short\n":                       "line 1: wanted a token of 16",
		"# x\n\na* " + canaryToken + "\n": "line 3: wanted a name",
		"a " + canaryToken + "\na " + canaryToken + "x\n": "line 2: wanted each name",
		"a " + canaryToken + "\nb " + canaryToken + "\n":  "line 2: wanted each name",
		"a " + strings.Repeat("x", 600) + "\n":            "16 to 512",
	} {
		writeFile(t, file, text)
		if _, err := New(Options{Tokens: file}); note(err) == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), canaryToken) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, o := range []Options{{Tokens: dir + "/none"}, {TLS: &TLS{}}, {TLS: &TLS{Cert: file, Key: file}}, {TLS: &TLS{Cert: dir + "/none", Key: file}}} {
		if _, err := New(o); note(err) == nil {
			t.Errorf("%+v", o)
		}
	}
	for _, text := range []string{"", "serial:1\nserial:2"} { // being written
		if _, err := parseRevoked([]byte(text)); err == nil {
			t.Errorf("%q", text)
		}
	}
	for _, text := range []string{"serial\n", "serial:\n", "serial:xx\n", "sha256:00\n", "md5:00\n", "00\n"} {
		if _, err := parseRevoked([]byte(text)); err == nil {
			t.Errorf("%q", text)
		}
	}
}
