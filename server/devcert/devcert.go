// The authority and what it signs.

package devcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"strings"
	"time"
	"unicode"
)

// How long certificates are good for where nothing else is said.
const (
	AuthorityLifetime = 365 * 24 * time.Hour
	Lifetime          = 90 * 24 * time.Hour
	MaxNames          = 32 // of one certificate
	skew              = 5 * time.Minute
)

// Pair is a certificate with its key, as PEM.
type Pair struct {
	Cert, Key []byte
}

// TLS returns the pair for a tls.Config.
func (p Pair) TLS() (tls.Certificate, error) { return tls.X509KeyPair(p.Cert, p.Key) }

// Authority signs certificates.
type Authority struct {
	Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority with a name, good from now on for a lifetime; 0 means
// AuthorityLifetime.
func New(name string, now time.Time, lifetime time.Duration) (*Authority, error) {
	if lifetime <= 0 {
		lifetime = AuthorityLifetime
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(name, now, lifetime)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	pair, cert, err := sign(template, template, key, key)
	if err != nil {
		return nil, err
	}
	return &Authority{pair, cert, key}, nil
}

// Parse reads an authority back from its PEM.
func Parse(p Pair) (*Authority, error) {
	pair, err := p.TLS()
	if err != nil {
		return nil, fmt.Errorf("devcert: authority: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || pair.Leaf == nil || !pair.Leaf.IsCA {
		return nil, errors.New("devcert: wanted a certificate authority with an ECDSA key, found another certificate")
	}
	return &Authority{p, pair.Leaf, key}, nil
}

// Request says what to certify.
type Request struct {
	// Names are host names, IP addresses, URIs ("spiffe://bank/teller") and e-mail
	// addresses, at least one. The server takes a client's identity from the only URI, else
	// the only host name, else the only e-mail address.
	Names          []string
	Server, Client bool          // what it is for; at least one
	Lifetime       time.Duration // 0: Lifetime, and never longer than the authority's
}

// Issue makes a key and a certificate for it that is good from now on.
func (a *Authority) Issue(r Request, now time.Time) (Pair, error) {
	if len(r.Names) == 0 || len(r.Names) > MaxNames || !r.Server && !r.Client {
		return Pair{}, fmt.Errorf("devcert: wanted 1 to %d names, for a server or a client, found %d", MaxNames, len(r.Names))
	}
	if r.Lifetime <= 0 {
		r.Lifetime = Lifetime
	}
	template, err := newTemplate(r.Names[0], now, r.Lifetime)
	if err != nil {
		return Pair{}, err
	}
	if now.After(a.cert.NotAfter) {
		return Pair{}, fmt.Errorf("devcert: wanted an authority that counts, found one that has expired at %s: make another, in another folder", a.cert.NotAfter.UTC().Format(time.DateTime))
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	for _, name := range r.Names {
		if err := addName(template, name); err != nil {
			return Pair{}, err
		}
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	if r.Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if r.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	pair, _, err := sign(template, a.cert, key, a.key)
	return pair, err
}

func newTemplate(name string, now time.Time, lifetime time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	if len(name) > 64 { // what a common name may have
		name = name[:64]
	}
	return &x509.Certificate{SerialNumber: serial.Add(serial, big.NewInt(1)), Subject: pkix.Name{CommonName: strings.ToValidUTF8(name, "")},
		NotBefore: now.Add(-skew), NotAfter: now.Add(lifetime)}, nil
}

// addName puts a name where one of its kind stands in a certificate.
func addName(c *x509.Certificate, name string) error {
	wrong := fmt.Errorf("devcert: wanted a host name, IP address, URI or e-mail address, found %.100q", name)
	if name == "" || len(name) > 250 || strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII || r <= ' ' || r == 0x7f }) {
		return wrong
	}
	switch u, err := url.Parse(name); {
	case strings.Contains(name, "://"):
		if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil {
			return wrong
		}
		c.URIs = append(c.URIs, u)
	case net.ParseIP(name) != nil:
		c.IPAddresses = append(c.IPAddresses, net.ParseIP(name))
	case strings.Contains(name, "@"):
		c.EmailAddresses = append(c.EmailAddresses, name)
	case strings.ContainsAny(name, ":/*,"):
		return wrong
	default:
		c.DNSNames = append(c.DNSNames, strings.ToLower(name))
	}
	return nil
}

func sign(template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) (Pair, *x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		return Pair{}, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return Pair{}, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, nil, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}, cert, nil
}
