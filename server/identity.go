// Who asks.

package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/wattle-es/wattle/server/policy"
)

// Proxy is a proxy that ends TLS before the server and says who asks.
type Proxy struct {
	// Identities are those of the proxies' own client certificates, as "uri:spiffe://edge/proxy".
	Identities []string
	// Header names the real caller. The proxy must remove it from what it receives.
	Header string
}

// caller is who asks, and whether he may still.
type caller struct {
	identity string
	until    time.Time // when the certificate expires; zero: never
	// still says why the caller is no longer known; "" while he is. It looks at what is in
	// force when it is called.
	still func() string
}

// errNobody says why nobody is known; its text goes to the log, and to the caller.
type errNobody string

func (e errNobody) Error() string { return string(e) }

// authenticate says who asks, by the rule in the package comment.
func (s *Server) authenticate(r *http.Request) (*caller, error) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return s.byCertificate(r)
	}
	if header := r.Header["Authorization"]; len(header) > 0 {
		return s.byToken(header)
	}
	if s.anonymous {
		return &caller{identity: policy.Anonymous, still: func() string { return "" }}, nil
	}
	return nil, errNobody("neither")
}

// byCertificate takes the identity from a certificate whose chain the handshake has verified.
func (s *Server) byCertificate(r *http.Request) (*caller, error) {
	leaf := r.TLS.PeerCertificates[0]
	if len(r.TLS.VerifiedChains) == 0 {
		return nil, errNobody("a certificate that is not verified")
	}
	identity, err := identityOf(leaf)
	if err != nil {
		return nil, err
	}
	c := &caller{identity: identity, until: leaf.NotAfter, still: func() string { return s.keys.refused(r.TLS.PeerCertificates) }}
	if why := c.still(); why != "" {
		return nil, errNobody(why)
	}
	return s.behindProxy(c, r.Header)
}

// behindProxy believes the header of a configured proxy, and of nobody else.
func (s *Server) behindProxy(c *caller, header http.Header) (*caller, error) {
	if s.proxy == nil || !s.proxies[c.identity] {
		return c, nil
	}
	switch values := header.Values(s.proxy.Header); {
	case len(values) == 0:
		return c, nil
	case len(values) > 1:
		return nil, errNobody("several identities from a proxy")
	default:
		if err := checkName(values[0]); err != nil {
			return nil, err
		}
		c.identity = "proxy:" + values[0]
		return c, nil
	}
}

// identityOf is the rule for names in certificates.
func identityOf(leaf *x509.Certificate) (string, error) {
	var kind string
	var names []string
	switch {
	case len(leaf.URIs) > 0:
		kind = "uri:"
		for _, u := range leaf.URIs {
			names = append(names, u.String())
		}
	case len(leaf.DNSNames) > 0:
		kind = "dns:"
		for _, n := range leaf.DNSNames {
			names = append(names, strings.ToLower(n))
		}
	case len(leaf.EmailAddresses) > 0:
		kind, names = "email:", leaf.EmailAddresses
	default:
		return "", errNobody("a certificate without a URI, host name or e-mail address")
	}
	if len(names) != 1 {
		return "", errNobody(fmt.Sprintf("a certificate with %d names of the kind %s: wanted one", len(names), strings.TrimSuffix(kind, ":")))
	}
	if err := checkName(names[0]); err != nil {
		return "", err
	}
	return kind + names[0], nil
}

// checkName refuses what could be taken for a pattern or forge a line.
func checkName(name string) error {
	if name == "" || len(name) > maxIdentityBytes || !utf8.ValidString(name) || strings.Contains(name, policy.All) ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }) {
		return errNobody("a name that is empty, over long, or has blanks, '*' or characters that cannot be printed")
	}
	return nil
}

// token is a bearer token: its digest is kept, it itself is not.
type token struct {
	identity string
	digest   [sha256.Size]byte
}

// byToken compares with every token there is, in the same time whichever it is.
func (s *Server) byToken(header []string) (*caller, error) {
	scheme, value, _ := strings.Cut(header[0], " ")
	if len(header) > 1 || !strings.EqualFold(scheme, "Bearer") || len(value) < minTokenBytes || len(value) > maxTokenBytes {
		return nil, errNobody("no bearer token")
	}
	digest := sha256.Sum256([]byte(value))
	identity := s.tokens.find(digest)
	if identity == "" {
		return nil, errNobody("a token that is not known")
	}
	return &caller{identity: identity, still: func() string {
		if s.tokens.find(digest) != identity {
			return "a token that is not known any more"
		}
		return ""
	}}, nil
}

func findToken(all []token, digest [sha256.Size]byte) (identity string) {
	for _, t := range all {
		if subtle.ConstantTimeCompare(t.digest[:], digest[:]) == 1 {
			identity = t.identity
		}
	}
	return identity
}

// parseTokens reads lines "NAME TOKEN"; what is behind a '#' at the start of a line is a
// comment. Errors name the line and never repeat what is in it.
func parseTokens(text []byte) (all []token, err error) {
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		wrong := func(wanted string) error { return fmt.Errorf("line %d: wanted %s", n, wanted) }
		switch {
		case len(fields) != 2:
			return nil, wrong("NAME TOKEN")
		case checkName(fields[0]) != nil:
			return nil, wrong("a name that can be printed, without '*'")
		case len(fields[1]) < minTokenBytes || len(fields[1]) > maxTokenBytes:
			return nil, wrong(fmt.Sprintf("a token of %d to %d bytes", minTokenBytes, maxTokenBytes))
		case len(all) == maxTokens:
			return nil, wrong(fmt.Sprintf("at most %d tokens", maxTokens))
		}
		t := token{"token:" + fields[0], sha256.Sum256([]byte(fields[1]))}
		for _, other := range all {
			if other.digest == t.digest || other.identity == t.identity {
				return nil, wrong("each name and each token once")
			}
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, errors.New("wanted at least one line NAME TOKEN, found none")
	}
	return all, nil
}
