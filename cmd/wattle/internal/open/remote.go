// Stores at a server: what their URL says, and the connections to it.

package open

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog"
)

// likeRemote is what the URL of a store at a server may look like.
const likeRemote = "https://host:4440?ca=ca.crt&cert=app.crt&key=app.key"

// remote is the URL of a server that was taken apart.
type remote struct {
	url                        string // without parameters
	ca, cert, key, token, name string // files, and the name in the server's certificate
}

// parseRemote takes the URL of a server apart. Secrets are in files that it names, never
// in itself.
func parseRemote(address string) (*Target, error) {
	u, err := parse(address)
	if err != nil {
		return nil, invalid("a URL like "+likeRemote, "one that cannot be taken apart", encodeHint)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, invalid("parameters like ?ca=FILE&cert=FILE&key=FILE", "some that cannot be taken apart", encodeHint)
	}
	switch {
	case u.User != nil:
		return nil, invalid("a URL without user and password", "one with", "give a certificate (cert=FILE&key=FILE) or a token (token=FILE)")
	case u.Host == "" || u.Fragment != "":
		return nil, invalid("a URL like "+likeRemote, "one without a host, or with a fragment", "")
	}
	r := &remote{}
	for _, p := range []struct {
		name string
		to   *string
	}{{"ca", &r.ca}, {"cert", &r.cert}, {"key", &r.key}, {"token", &r.token}, {"name", &r.name}} {
		if len(query[p.name]) > 1 {
			return nil, invalid("one "+p.name, "several", "")
		}
		*p.to = query.Get(p.name)
		query.Del(p.name)
	}
	insecure := query.Get("insecure") == "true"
	query.Del("insecure")
	switch {
	case len(query) > 0:
		return nil, invalid("the parameters ca, cert, key, token, name and insecure", "another one", "")
	case (r.cert == "") != (r.key == ""):
		return nil, invalid("cert and key, both files", "one of them", "")
	case u.Scheme == "http" && r.ca+r.cert+r.name != "":
		return nil, invalid("https:// with certificates", "http://", "")
	case u.Scheme == "http" && !insecure && !loopback(u.Hostname()):
		return nil, invalid("https://", "http:// to another machine, which anybody on the way can read and change", "insecure=true is for who accepts that")
	}
	u.RawQuery, u.Path = "", strings.TrimSuffix(u.Path, "/")
	r.url = u.String()
	return &Target{name: r.url, remote: r}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// AtServer says if the store is behind a server.
func (t *Target) AtServer() bool { return t.remote != nil }

// Transport makes the connections to a server at a URL, known by authorities in a file
// ("": those of the system) and, if there is one, with a client certificate.
func Transport(address, ca, cert, key string) (*http.Transport, error) {
	return (&remote{url: address, ca: ca, cert: cert, key: key}).transport()
}

// open opens the log at the server.
func (r *remote) open(ctx context.Context) (*remotelog.Log, error) {
	transport, err := r.transport()
	if err != nil {
		return nil, err
	}
	return remotelog.Open(ctx, r.url, &remotelog.Options{Transport: transport, Token: func(context.Context) (string, error) { return r.bearer() }})
}

// verify has the server check what is stored.
func (r *remote) verify(ctx context.Context, progress func(eventstore.Progress)) iter.Seq2[eventstore.Finding, error] {
	return func(yield func(eventstore.Finding, error) bool) {
		log, err := r.open(ctx)
		if err != nil {
			yield(eventstore.Finding{}, err)
			return
		}
		defer log.Close()
		for f, err := range log.Verify(ctx, progress) {
			if !yield(f, err) {
				return
			}
		}
	}
}

// transport makes the connections to the server: HTTP/2, over TLS 1.3 or none. Certificate
// and key are read at each handshake, so that they can be renewed.
func (r *remote) transport() (*http.Transport, error) {
	t := &http.Transport{Protocols: new(http.Protocols), Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: connectTimeout, IdleConnTimeout: 90 * time.Second,
		DialContext: (&net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second}).DialContext,
		HTTP2:       &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second}}
	if strings.HasPrefix(r.url, "http:") {
		t.Protocols.SetUnencryptedHTTP2(true)
		return t, nil
	}
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetHTTP1(true)
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13, ServerName: r.name}
	if r.ca != "" {
		pem, err := os.ReadFile(r.ca)
		if err != nil {
			return nil, invalid("a file of certificates: ca", err.Error(), "")
		}
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalid("certificates in PEM form in "+r.ca, "none", "")
		}
	}
	if r.cert == "" {
		return t, nil
	}
	load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(r.cert, r.key)
		return &c, err
	}
	if _, err := load(nil); err != nil {
		return nil, invalid("a certificate and its key: cert and key", err.Error(), "")
	}
	t.TLSClientConfig.GetClientCertificate = load
	return t, nil
}

// bearer reads the token, "" if there is none.
func (r *remote) bearer() (string, error) {
	if r.token == "" {
		return "", nil
	}
	b, err := os.ReadFile(r.token)
	if err != nil {
		return "", invalid("a file with a token: token", err.Error(), "")
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", invalid("one token in "+r.token, fmt.Sprintf("%d bytes that are none", len(b)), "")
	}
	return token, nil
}
