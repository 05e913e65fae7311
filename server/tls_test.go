// Certificates: who is let in by one and who is not, and what happens when they change.

package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/server/devcert"
)

// world is an authority, and a server that it and its clients are made with.
type world struct {
	t      *testing.T
	dir    string
	ca     *devcert.Authority
	other  *devcert.Authority
	o      Options
	read   logs
	server *site
}

func newWorld(t *testing.T, change func(*world)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), ca: newAuthority(t, "ours"), other: newAuthority(t, "theirs")}
	w.saveServer(w.ca)
	w.save("ca.crt", string(w.ca.Cert))
	w.save("revoked", "# none\n")
	w.o = Options{TLS: &TLS{Cert: w.file("server.crt"), Key: w.file("server.key"), ClientCAs: []string{w.file("ca.crt")}, Revoked: w.file("revoked")},
		Policy: rules(t, "uri:spiffe://bank/*,dns:*,email:*,proxy:*,token:*,anonymous read,append account\n")}
	w.read.read = func(context.Context, *wattlev1.ReadRequest) (*wattlev1.ReadResponse, error) {
		return &wattlev1.ReadResponse{End: true}, nil
	}
	w.read.follow, w.read.produce = endless(nil), echo
	if change != nil {
		change(w)
	}
	w.server = start(t, w.o, fakes{logs: w.read})
	return w
}

func newAuthority(t *testing.T, name string) *devcert.Authority {
	t.Helper()
	a, err := devcert.New(name, time.Now(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

func (w *world) save(name, text string) { writeFile(w.t, w.file(name), text) }

func (w *world) saveServer(by *devcert.Authority) {
	p, err := by.Issue(devcert.Request{Names: []string{"127.0.0.1", "localhost"}, Server: true}, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	w.save("server.key", string(p.Key))
	w.save("server.crt", string(p.Cert))
}

// issue makes a client certificate.
func (w *world) issue(by *devcert.Authority, names ...string) devcert.Pair {
	w.t.Helper()
	p, err := by.Issue(devcert.Request{Names: names, Client: true}, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// custom makes a certificate that devcert would not.
func (w *world) custom(change func(*x509.Certificate)) devcert.Pair {
	w.t.Helper()
	parent, err := w.ca.TLS()
	if err != nil {
		w.t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "spiffe://bank/teller"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature}
	by, signer := parent.Leaf, parent.PrivateKey
	if change != nil {
		change(c)
	}
	if c.Issuer.CommonName == "self" {
		by, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, signer)
	if err != nil {
		w.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		w.t.Fatal(err)
	}
	return devcert.Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}
}

// client speaks HTTP/2 or 1.1 over TLS with a certificate, if there is one.
func (w *world) client(p devcert.Pair, change func(*tls.Config, *http.Transport)) *http.Client {
	w.t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(w.ca.Cert)
	pool.AppendCertsFromPEM(w.other.Cert)
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if p.Cert != nil {
		pair, err := p.TLS()
		if err != nil {
			w.t.Fatal(err)
		}
		// Sent whatever authorities the server names.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	if change != nil {
		change(config, transport)
	}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (w *world) call(c *http.Client, o ...connect.ClientOption) error {
	_, err := wattlev1.NewLogServiceClient(c, "https://"+w.server.addr, o...).Read(w.t.Context(), &wattlev1.ReadRequest{Stream: "account-1"})
	return note(err)
}

func uris(c *x509.Certificate, list ...string) {
	for _, s := range list {
		u, _ := url.Parse(s)
		c.URIs = append(c.URIs, u)
	}
}

// Identities come from the verified certificate's SAN, by the rule, and never from its CN.
func TestIdentities(t *testing.T) {
	w := newWorld(t, nil)
	for name, c := range map[string]struct {
		change   func(*x509.Certificate)
		identity string
	}{
		"uri":            {func(c *x509.Certificate) { uris(c, "spiffe://bank/teller") }, "uri:spiffe://bank/teller"},
		"uri before dns": {func(c *x509.Certificate) { uris(c, "spiffe://bank/a"); c.DNSNames = []string{"b.example", "c.example"} }, "uri:spiffe://bank/a"},
		"dns": {func(c *x509.Certificate) {
			c.DNSNames = []string{"B.Example"}
			c.EmailAddresses = []string{"a@b", "c@d"}
		}, "dns:b.example"},
		"email":             {func(c *x509.Certificate) { c.EmailAddresses = []string{"a@b.example"} }, "email:a@b.example"},
		"cn only":           {nil, ""},
		"two uris":          {func(c *x509.Certificate) { uris(c, "spiffe://bank/a", "spiffe://bank/b") }, ""},
		"two uris, one dns": {func(c *x509.Certificate) { uris(c, "spiffe://bank/a", "spiffe://bank/b"); c.DNSNames = []string{"x"} }, ""},
		"two dns":           {func(c *x509.Certificate) { c.DNSNames = []string{"a.example", "b.example"} }, ""},
		"wildcard":          {func(c *x509.Certificate) { c.DNSNames = []string{"*.example"} }, ""},
		"pattern in uri":    {func(c *x509.Certificate) { uris(c, "spiffe://bank/*") }, ""},
		"over long":         {func(c *x509.Certificate) { uris(c, "spiffe://bank/"+strings.Repeat("x", 300)) }, ""},
		"another's prefix":  {func(c *x509.Certificate) { uris(c, "token:ops") }, ""},
		"any usage": {func(c *x509.Certificate) {
			uris(c, "spiffe://bank/x")
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
		}, "uri:spiffe://bank/x"},
		"both usages":        {func(c *x509.Certificate) { uris(c, "spiffe://bank/x"); c.ExtKeyUsage = []x509.ExtKeyUsage{1, 2} }, "uri:spiffe://bank/x"},
		"no usage extension": {func(c *x509.Certificate) { uris(c, "spiffe://bank/x"); c.ExtKeyUsage = nil }, "uri:spiffe://bank/x"},
	} {
		for i, o := range [][]connect.ClientOption{nil, {connect.WithGRPC()}, {connect.WithGRPCWeb(), connect.WithProtoJSON()}} {
			err := w.call(w.client(w.custom(c.change), nil), o...)
			if (err == nil) != (c.identity != "") {
				t.Errorf("%s, way %d: %v", name, i, err)
			}
			if reached := w.server.takeReached(); (len(reached) > 0) != (c.identity != "") {
				t.Errorf("%s reached %v", name, reached)
			}
		}
		if c.identity != "" && !strings.Contains(w.server.log.String(), "identity="+c.identity+" ") {
			t.Errorf("%s: not known as %s", name, c.identity)
		}
	}
	for name, why := range map[string]string{"cn only": "without a URI", "two uris": "with 2 names"} {
		if !strings.Contains(w.server.log.String(), why) {
			t.Errorf("%s: the log does not say %q", name, why)
		}
	}
}

// Certificates that are not good end the handshake: nothing of ours is reached.
func TestBadCertificates(t *testing.T) {
	w := newWorld(t, nil)
	teller := func(c *x509.Certificate) { uris(c, "spiffe://bank/teller") }
	good := w.custom(teller)
	if err := w.call(w.client(good, nil)); err != nil {
		t.Fatal(err)
	}
	w.server.takeReached()
	revoked := w.custom(teller)
	pair, err := revoked.TLS()
	if err != nil {
		t.Fatal(err)
	}
	bySerial := w.custom(teller)
	serial, err := bySerial.TLS()
	if err != nil {
		t.Fatal(err)
	}
	w.save("revoked", fmt.Sprintf("%s # left\n\nserial:00:%X\n", fingerprintOf(pair.Leaf), serial.Leaf.SerialNumber))
	if err := w.server.Reload(); err != nil {
		t.Fatal(err)
	}
	server, err := w.ca.Issue(devcert.Request{Names: []string{"spiffe://bank/teller"}, Server: true}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]devcert.Pair{
		"none": {}, "wrong authority": w.issue(w.other, "spiffe://bank/teller"), "usage of servers": server, "revoked": revoked, "serial revoked": bySerial,
		"expired":       w.custom(func(c *x509.Certificate) { teller(c); c.NotAfter = time.Now().Add(-time.Minute) }),
		"not yet valid": w.custom(func(c *x509.Certificate) { teller(c); c.NotBefore = time.Now().Add(time.Minute) }),
		"self-signed":   w.custom(func(c *x509.Certificate) { teller(c); c.Issuer.CommonName = "self" }),
		"usage of code": w.custom(func(c *x509.Certificate) { teller(c); c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} }),
		"unknown critical extension": w.custom(func(c *x509.Certificate) {
			teller(c)
			c.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
		}),
	} {
		for _, http2 := range []bool{true, false} {
			err := w.call(w.client(p, func(_ *tls.Config, t *http.Transport) { t.ForceAttemptHTTP2 = http2 }))
			if err == nil || detail(err) != nil {
				t.Errorf("%s: %v", name, err)
			}
			if reached := w.server.takeReached(); len(reached) > 0 {
				t.Errorf("%s reached %v", name, reached)
			}
		}
	}
	if err := w.call(w.client(good, nil)); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

func TestVersions(t *testing.T) {
	for _, min12 := range []bool{false, true} {
		w := newWorld(t, func(w *world) { w.o.TLS.Min12 = min12 })
		good := w.issue(w.ca, "spiffe://bank/teller")
		for version, want := range map[uint16]bool{tls.VersionTLS13: true, tls.VersionTLS12: min12, tls.VersionTLS11: false} {
			err := w.call(w.client(good, func(c *tls.Config, _ *http.Transport) { c.MinVersion, c.MaxVersion = version, version }))
			if (err == nil) != want {
				t.Errorf("TLS %x, 1.2 allowed %v: %v", version, min12, err)
			}
		}
	}
}

// A proxy that is configured says who asks; from others the header counts for nothing.
func TestProxy(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.o.Proxy = &Proxy{Header: "x-wattle-identity", Identities: []string{"uri:spiffe://edge/proxy"}}
		w.o.Policy = rules(t, "proxy:alice read account\nuri:spiffe://bank/teller read account\n")
	})
	for name, c := range map[string]struct {
		cert   string
		header []string
		want   bool
	}{
		"proxy for alice":      {"spiffe://edge/proxy", []string{"alice"}, true},
		"proxy for bob":        {"spiffe://edge/proxy", []string{"bob"}, false},
		"proxy for itself":     {"spiffe://edge/proxy", nil, false},
		"proxy as another":     {"spiffe://edge/proxy", []string{"uri:spiffe://bank/teller"}, false},
		"two at once":          {"spiffe://edge/proxy", []string{"alice", "bob"}, false},
		"two of one":           {"spiffe://edge/proxy", []string{"alice", "alice"}, false},
		"pattern":              {"spiffe://edge/proxy", []string{"al*"}, false},
		"empty":                {"spiffe://edge/proxy", []string{""}, false},
		"list":                 {"spiffe://edge/proxy", []string{"alice, bob"}, false},
		"another proxy":        {"spiffe://edge/proxy2", []string{"alice"}, false},
		"teller":               {"spiffe://bank/teller", nil, true},
		"teller with header":   {"spiffe://bank/teller", []string{"bob"}, true},
		"stranger with header": {"spiffe://bank/stranger", []string{"alice"}, false},
	} {
		client := w.client(w.issue(w.ca, c.cert), nil)
		client.Transport = headed{client.Transport, "X-Wattle-Identity", c.header}
		if err := w.call(client); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, p := range []*Proxy{{}, {Header: "X"}, {Identities: []string{"uri:a"}}, {[]string{"uri:a"}, "Authorization"}, {[]string{"a"}, "X"}, {[]string{"uri:*"}, "X"}, {[]string{"uri:a"}, "X\r\n"}} {
		if _, err := New(Options{Proxy: p}); err == nil {
			t.Errorf("%+v", p)
		}
	}
}

type headed struct {
	http.RoundTripper
	name   string
	values []string
}

func (h headed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if h.values != nil {
		r.Header[h.name] = h.values
	}
	return h.RoundTripper.RoundTrip(r)
}

// Without a certificate, where that is allowed: a token, or nobody in particular.
func TestOptionalCertificates(t *testing.T) {
	w := newWorld(t, func(w *world) {
		w.o.TLS.Optional, w.o.Tokens = true, tokensFile(t, "dev")
	})
	with := func(name string, p devcert.Pair) error {
		c := w.client(p, nil)
		c.Transport = bearing{c.Transport, name}
		return w.call(c)
	}
	if err := with("dev", devcert.Pair{}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", "other"} {
		if err := with(name, devcert.Pair{}); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_UNAUTHENTICATED {
			t.Error(err)
		}
	}
	if err := with("dev", w.issue(w.other, "spiffe://bank/x")); err == nil || detail(err) != nil {
		t.Errorf("a bad certificate with a good token: %v", err)
	}
	if err := with("dev", w.custom(nil)); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_UNAUTHENTICATED {
		t.Errorf("a certificate of nobody with a good token: %v", err)
	}
	a := newWorld(t, func(w *world) { w.o.TLS.Optional, w.o.Anonymous = true, true })
	if err := a.call(a.client(devcert.Pair{}, nil)); err != nil {
		t.Errorf("anonymous: %v", err)
	}
}
