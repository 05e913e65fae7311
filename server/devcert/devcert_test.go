// What is signed verifies as what it is for and nothing else, and keys stay private.

package devcert

import (
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func authority(t *testing.T) *Authority {
	t.Helper()
	a, err := New("test authority", time.Now(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func leaf(t *testing.T, p Pair) *x509.Certificate {
	t.Helper()
	pair, err := p.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func TestIssue(t *testing.T) {
	a := authority(t)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	names := []string{"Host.Example", "127.0.0.1", "::1", "spiffe://bank/teller", "a@b.example"}
	for _, r := range []Request{{Names: names, Server: true}, {Names: names, Client: true}, {Names: names, Server: true, Client: true}} {
		p, err := a.Issue(r, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		c := leaf(t, p)
		verifies := func(usage x509.ExtKeyUsage, at time.Time) bool {
			_, err := c.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: at})
			return err == nil
		}
		now := time.Now()
		if verifies(x509.ExtKeyUsageServerAuth, now) != r.Server || verifies(x509.ExtKeyUsageClientAuth, now) != r.Client {
			t.Errorf("%+v: usage", r)
		}
		if verifies(x509.ExtKeyUsageAny, now.Add(Lifetime+time.Minute)) || !verifies(x509.ExtKeyUsageAny, now.Add(Lifetime-time.Hour)) || verifies(x509.ExtKeyUsageAny, now.Add(-time.Hour)) {
			t.Errorf("%+v: lifetime %v to %v", r, c.NotBefore, c.NotAfter)
		}
		if len(c.DNSNames) != 1 || c.DNSNames[0] != "host.example" || len(c.IPAddresses) != 2 || len(c.URIs) != 1 || c.URIs[0].String() != names[3] || len(c.EmailAddresses) != 1 || c.IsCA {
			t.Errorf("%+v: names", r)
		}
		if key, ok := c.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve.Params().BitSize != 256 {
			t.Errorf("%+v: key", r)
		}
	}
	if p, err := a.Issue(Request{Names: names, Client: true, Lifetime: 10 * AuthorityLifetime}, time.Now()); err != nil || leaf(t, p).NotAfter.After(a.cert.NotAfter) {
		t.Errorf("longer than its authority: %v", err)
	}
}

func TestBadNames(t *testing.T) {
	a := authority(t)
	for _, names := range [][]string{nil, {""}, {"a b"}, {"a\nb"}, {"a:b"}, {"*.example"}, {"x/y"}, {"é"}, {"spiffe://"}, {"://x"}, {"https://user:secret@x/"}, {strings.Repeat("x", 251)}, make([]string, 33)} {
		if _, err := a.Issue(Request{Names: names, Client: true}, time.Now()); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", names, err)
		}
	}
	if _, err := a.Issue(Request{Names: []string{"a"}}, time.Now()); err == nil {
		t.Error("for nothing")
	}
}

// An authority that has expired certifies nothing.
func TestExpired(t *testing.T) {
	a := authority(t)
	if _, err := a.Issue(Request{Names: []string{"localhost"}, Server: true}, time.Now().AddDate(100, 0, 0)); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("%v", err)
	}
}

func TestFiles(t *testing.T) {
	a, dir := authority(t), filepath.Join(t.TempDir(), "certs")
	if err := a.Save(dir, "ca", false); err != nil {
		t.Fatal(err)
	}
	cert, key := Files(dir, "ca")
	for file, mode := range map[string]fs.FileMode{cert: 0o644, key: 0o600, dir: 0o700 | fs.ModeDir} {
		if s, err := os.Stat(file); err != nil || s.Mode() != mode {
			t.Errorf("%s: %v %v", file, s.Mode(), err)
		}
	}
	other := authority(t)
	if err := other.Save(dir, "ca", false); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("overwritten: %v", err)
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	if err := other.Save(dir, "ca", false); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "ca.key") {
		t.Errorf("key overwritten: %v", err)
	}
	if _, err := os.Stat(cert); !errors.Is(err, fs.ErrNotExist) {
		t.Error("half of it was written")
	}
	if err := other.Save(dir, "ca", true); err != nil {
		t.Fatal(err)
	}
	p, err := Load(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(p)
	if err != nil {
		t.Fatal(err)
	}
	if issued, err := again.Issue(Request{Names: []string{"x"}, Client: true}, time.Now()); err != nil || leaf(t, issued).CheckSignatureFrom(other.cert) != nil {
		t.Errorf("signed by another one: %v", err)
	} else if _, err := Parse(issued); err == nil {
		t.Error("a client as authority")
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("left over: %v %v", files, err)
	}
}
