// Transport: certificates, authorities and what is revoked, all of which may change.

package server

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// TLS says how connections are secured. All are names of files.
type TLS struct {
	Cert, Key string   // the server's own, PEM
	ClientCAs []string // authorities that sign clients, PEM; none: no client certificates
	// Revoked is a list of client certificates that count no longer: on each line the serial
	// number in hex as "serial:0a1b…", or the SHA-256 of the certificate as "sha256:…".
	// '#' begins a comment.
	Revoked string
	// Min12 allows TLS 1.2. Without it 1.3 is demanded.
	Min12 bool
	// Optional lets clients without a certificate connect: they need a token then, or are
	// anonymous. A certificate that is sent must be good in any case.
	Optional bool
}

// keys is what TLS comes to now.
type keys struct{ *watched[*keyring] }

type keyring struct {
	config  *tls.Config
	leaf    *x509.Certificate
	revoked map[string]bool
	// verified are fingerprints of what these authorities have signed, as far as remembered.
	verified   sync.Map
	remembered atomic.Int64
}

// maxVerified bounds what is remembered; beyond it is verified each time.
const maxVerified = 10_000

// openKeys reads all files; nil without TLS.
func openKeys(o *TLS) (*keys, error) {
	if o == nil {
		return nil, nil
	}
	if o.Cert == "" || o.Key == "" {
		return nil, errors.New("server: TLS: wanted the files of a certificate and its key")
	}
	files := append([]string{o.Cert, o.Key}, o.ClientCAs...)
	if o.Revoked != "" {
		files = append(files, o.Revoked)
	}
	k := &keys{}
	w, err := watch(files, func(texts [][]byte) (*keyring, error) { return k.keyring(o, texts) })
	if err != nil {
		return nil, fmt.Errorf("server: TLS: %w", err)
	}
	k.watched = w
	return k, nil
}

// keyring makes one of the texts of its files.
func (k *keys) keyring(o *TLS, texts [][]byte) (*keyring, error) {
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", o.Cert, o.Key, err)
	}
	ring := &keyring{leaf: pair.Leaf, config: &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{"h2", "http/1.1"},
		// A ticket would carry a verified chain past a change of authorities.
		SessionTicketsDisabled: true,
		VerifyConnection:       k.verify,
	}}
	if o.Min12 {
		ring.config.MinVersion = tls.VersionTLS12
	}
	if len(o.ClientCAs) > 0 {
		pool := x509.NewCertPool()
		for i, file := range o.ClientCAs {
			if !pool.AppendCertsFromPEM(texts[2+i]) {
				return nil, fmt.Errorf("%s: wanted certificates in PEM, found none", file)
			}
		}
		ring.config.ClientCAs, ring.config.ClientAuth = pool, tls.RequireAndVerifyClientCert
		if o.Optional {
			ring.config.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	if o.Revoked != "" {
		if ring.revoked, err = parseRevoked(texts[len(texts)-1]); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Revoked, err)
		}
	}
	return ring, nil
}

// config is what a listener serves with: each connection gets what is in force then.
func (k *keys) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, // the rest is in the other's
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return (*k.value.Load()).config, nil }}
}

// verify ends the handshake of who is revoked.
func (k *keys) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	if why := k.refused(state.PeerCertificates); why != "" {
		return errors.New(why)
	}
	return nil
}

// refused says why a chain that was verified once counts no longer; "": it does. It is
// asked with every call, since connections live long.
func (k *keys) refused(chain []*x509.Certificate) string {
	ring, leaf := *k.value.Load(), chain[0]
	if expired(leaf) {
		return "a certificate that has expired"
	}
	print := fingerprintOf(leaf)
	if len(ring.revoked) > 0 && (ring.revoked[serialOf(leaf)] || ring.revoked[print]) {
		return "a certificate that is revoked"
	}
	if _, ok := ring.verified.Load(print); ok {
		return ""
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: ring.config.ClientCAs, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil || ring.config.ClientCAs == nil {
		return "a certificate that no authority of this server has signed"
	}
	if ring.remembered.Add(1) <= maxVerified {
		ring.verified.Store(print, true)
	}
	return ""
}

func serialOf(c *x509.Certificate) string { return "serial:" + c.SerialNumber.Text(16) }

func fingerprintOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// parseRevoked reads the list. Colons between bytes and leading zeros do not matter. A file
// that is cut off, or empty, may be one that is being written: to take it would have revoked
// certificates count for a moment.
func parseRevoked(text []byte) (map[string]bool, error) {
	if len(text) == 0 || text[len(text)-1] != '\n' {
		return nil, errors.New("wanted lines that all end, of which one may be a comment, found a file that is empty or cut off")
	}
	list, n := map[string]bool{}, 0
	for line := range strings.Lines(string(text)) {
		n++
		entry, _, _ := strings.Cut(line, "#")
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		kind, value, _ := strings.Cut(strings.ToLower(entry), ":")
		value = strings.ReplaceAll(value, ":", "")
		_, err := hex.DecodeString(strings.Repeat("0", len(value)%2) + value)
		if err != nil || value == "" || kind != "serial" && (kind != "sha256" || len(value) != 2*sha256.Size) {
			return nil, fmt.Errorf("line %d: wanted serial:HEX or sha256:HEX (64 digits), found %.100q", n, entry)
		}
		if kind == "serial" {
			value = strings.TrimLeft(value, "0")
			if value == "" {
				value = "0"
			}
		}
		list[kind+":"+value] = true
	}
	return list, nil
}

// expired goes by this machine's clock, as the handshake does.
func expired(c *x509.Certificate) bool { return time.Now().After(c.NotAfter) }
