// Signatures: the published vector, and what must not pass.

package httpcarrier_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

var (
	secretA = "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of at least 24 bytes"))
	secretB = "whsec_" + base64.StdEncoding.EncodeToString([]byte("another one of at least 24 bytes"))
)

func pair(seed byte) (private, public string) {
	k := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
	return "whsk_" + base64.StdEncoding.EncodeToString(k), "whpk_" + base64.StdEncoding.EncodeToString(k.Public().(ed25519.PublicKey))
}

func at(seconds int64) func() time.Time { return func() time.Time { return time.Unix(seconds, 0) } }

// The example of the scheme's documentation, made by somebody else's code.
func TestKnownSignature(t *testing.T) {
	const key, id, body, want = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	s, err := httpcarrier.NewSigner(key)
	ok(t, err)
	h := http.Header{}
	s.Sign(h, id, time.Unix(1614265330, 0), []byte(body))
	if got := h.Get("Webhook-Signature"); got != want {
		t.Errorf("wanted %s, found %s", want, got)
	}
	v, err := httpcarrier.NewVerifier(&httpcarrier.VerifierOptions{Now: at(1614265330)}, key)
	ok(t, err)
	if got, err := v.Verify(h, []byte(body)); err != nil || got != id {
		t.Errorf("%q %v", got, err)
	}
}

// Whichever key signs, one of the verifier's has to be it; both sides may have several.
func TestKeysChange(t *testing.T) {
	private1, public1 := pair('1')
	private2, public2 := pair('2')
	for _, c := range []struct {
		sign, verify []string
		passes       bool
	}{
		{[]string{secretA}, []string{secretA}, true},
		{[]string{secretA}, []string{secretB}, false},
		{[]string{secretA}, []string{secretB, secretA}, true},
		{[]string{secretA, secretB}, []string{secretB}, true},
		{[]string{private1}, []string{public1}, true},
		{[]string{private1}, []string{private1}, true},
		{[]string{private1}, []string{public2}, false},
		{[]string{private1}, []string{secretA, public2, public1}, true},
		{[]string{secretA, private2}, []string{public2}, true},
		{[]string{secretA}, []string{public1}, false},
		{[]string{private1}, []string{secretA}, false},
	} {
		s, err := httpcarrier.NewSigner(c.sign...)
		ok(t, err)
		v, err := httpcarrier.NewVerifier(&httpcarrier.VerifierOptions{Now: at(1000)}, c.verify...)
		ok(t, err)
		h := http.Header{}
		s.Sign(h, "id", time.Unix(1000, 0), []byte("body"))
		if _, err := v.Verify(h, []byte("body")); (err == nil) != c.passes || err != nil && !errors.Is(err, httpcarrier.ErrBadSignature) {
			t.Errorf("signed by %v, verified by %v: %v", c.sign, c.verify, err)
		}
	}
	for _, bad := range []string{"", "whsec_", "whsec_!", "whsec_c2hvcnQ=", "whpk_c2hvcnQ=", "secret", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65))} {
		_, err1 := httpcarrier.NewSigner(bad)
		_, err2 := httpcarrier.NewVerifier(nil, bad)
		if err1 == nil || err2 == nil || bad != "" && strings.Contains(err1.Error(), "c2hvcnQ") {
			t.Errorf("%q: %v, %v", bad, err1, err2)
		}
	}
	if _, err := httpcarrier.NewSigner(public1); err == nil {
		t.Error("a public key signs")
	}
	if _, err := httpcarrier.NewVerifier(nil); err == nil {
		t.Error("a verifier without keys")
	}
}

// Whatever of a signed request is changed, it does not pass; nor does it too early or late.
func TestForged(t *testing.T) {
	s, err := httpcarrier.NewSigner(secretA)
	ok(t, err)
	const now, body = 10_000, "body"
	for name, c := range map[string]struct {
		change func(h http.Header, body *string)
		now    int64
		want   error
	}{
		"nothing":               {func(http.Header, *string) {}, now, nil},
		"at the end":            {func(http.Header, *string) {}, now + 300, nil},
		"clock behind":          {func(http.Header, *string) {}, now - 300, nil},
		"too late":              {func(http.Header, *string) {}, now + 301, httpcarrier.ErrExpired},
		"too early":             {func(http.Header, *string) {}, now - 301, httpcarrier.ErrExpired},
		"another body":          {func(_ http.Header, b *string) { *b = "bodY" }, now, httpcarrier.ErrBadSignature},
		"another id":            {func(h http.Header, _ *string) { h.Set("Webhook-Id", "di") }, now, httpcarrier.ErrBadSignature},
		"another time":          {func(h http.Header, _ *string) { h.Set("Webhook-Timestamp", "10001") }, now, httpcarrier.ErrBadSignature},
		"the id moved":          {func(h http.Header, b *string) { h.Set("Webhook-Id", "id.10000"); h.Set("Webhook-Timestamp", "10000") }, now, httpcarrier.ErrBadSignature},
		"the time spelt other":  {func(h http.Header, _ *string) { h.Set("Webhook-Timestamp", "+10000") }, now, httpcarrier.ErrBadSignature},
		"no time":               {func(h http.Header, _ *string) { h.Del("Webhook-Timestamp") }, now, httpcarrier.ErrNotSigned},
		"no id":                 {func(h http.Header, _ *string) { h.Del("Webhook-Id") }, now, httpcarrier.ErrNotSigned},
		"no signature":          {func(h http.Header, _ *string) { h.Del("Webhook-Signature") }, now, httpcarrier.ErrNotSigned},
		"an empty signature":    {func(h http.Header, _ *string) { h.Set("Webhook-Signature", "") }, now, httpcarrier.ErrNotSigned},
		"two ids":               {func(h http.Header, _ *string) { h.Add("Webhook-Id", "id") }, now, httpcarrier.ErrNotSigned},
		"half a signature":      {func(h http.Header, _ *string) { h.Set("Webhook-Signature", h.Get("Webhook-Signature")[:20]) }, now, httpcarrier.ErrBadSignature},
		"a version without one": {func(h http.Header, _ *string) { h.Set("Webhook-Signature", "v1,") }, now, httpcarrier.ErrBadSignature},
		"an unknown version":    {func(h http.Header, _ *string) { h.Set("Webhook-Signature", "v2"+h.Get("Webhook-Signature")[2:]) }, now, httpcarrier.ErrBadSignature},
		"one among others":      {func(h http.Header, _ *string) { h.Set("Webhook-Signature", "v9,x v1,AAAA "+h.Get("Webhook-Signature")) }, now, nil},
		"very many": {func(h http.Header, _ *string) {
			h.Set("Webhook-Signature", strings.Repeat("v1,AAAA ", 1000)+h.Get("Webhook-Signature"))
		}, now, httpcarrier.ErrBadSignature},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := httpcarrier.NewVerifier(&httpcarrier.VerifierOptions{Now: at(c.now)}, secretA)
			ok(t, err)
			h, b := http.Header{}, body
			s.Sign(h, "id", time.Unix(now, 0), []byte(body))
			c.change(h, &b)
			if _, err := v.Verify(h, []byte(b)); !errors.Is(err, c.want) {
				t.Errorf("wanted %v, found %v", c.want, err)
			}
		})
	}
}

// A request that was caught does what it was made for, at most: the handler sees it again
// under its key, or not at all.
func TestCaughtRequest(t *testing.T) {
	s, err := httpcarrier.NewSigner(secretA)
	ok(t, err)
	v, err := httpcarrier.NewVerifier(&httpcarrier.VerifierOptions{Now: at(5000)}, secretA)
	ok(t, err)
	h := &accounts{}
	address := serve(t, httpcarrier.NewHandler(h, &httpcarrier.ServerOptions{Verifier: v, Commands: "account"}))
	r := decide(5)
	body := encoded(r)
	signed := http.Header{}
	s.Sign(signed, r.Key.String(), time.Unix(5000, 0), []byte(body))
	send := func(body string, more ...string) int {
		headers := append([]string{"Content-Type", "application/json"}, more...)
		for name := range signed {
			headers = append(headers, name, signed.Get(name))
		}
		resp, _ := post(t, address, body, headers...)
		return resp.StatusCode
	}
	event := func(more ...string) []string {
		return append([]string{"Ce-Specversion", "1.0", "Ce-Source", "/x"}, more...)
	}
	other := eventstore.NewUUID().String()
	for _, c := range []struct {
		name   string
		status int
		reach  int64
	}{
		{"as it was", send(body), 1},
		{"again", send(body), 2},
		{"with another body", send(strings.Replace(body, "5", "6", 1)), 2},
		{"under another ce-id", send(body, event("Ce-Type", "wattle.decide.v1", "Ce-Id", other)...), 2},
		{"for another stream", send(body, event("Ce-Type", "wattle.decide.v1", "Ce-Id", r.Key.String(), "Ce-Subject", "account-bob")...), 2},
		{"as another operation", send(body, event("Ce-Type", "wattle.evolve.v1", "Ce-Id", r.Key.String())...), 2},
		{"as a command", send(body, event("Ce-Type", "deposit", "Ce-Id", r.Key.String(), "Ce-Subject", "bob")...), 2},
		{"as compressed", send(body, "Content-Encoding", "gzip"), 2},
	} {
		want := 400
		switch c.name {
		case "as it was", "again":
			want = 200
		case "with another body":
			want = 401
		case "as a command":
			want = 415
		}
		if c.status != want {
			t.Errorf("%s: status %d, wanted %d", c.name, c.status, want)
		}
	}
	if n := h.calls.Load(); n != 2 {
		t.Errorf("%d calls reached the handler, wanted 2", n)
	}
	unsigned, _ := post(t, address, body, "Content-Type", "application/json")
	if unsigned.StatusCode != 401 {
		t.Errorf("unsigned: %d", unsigned.StatusCode)
	}
	s.Sign(signed, other, time.Unix(5000, 0), []byte(body))
	if got := send(body); got != 400 {
		t.Errorf("signed under another id than its key: %d", got)
	}
}

// The signature is checked before anything of the body is read or unpacked.
func TestSignatureFirst(t *testing.T) {
	v, err := httpcarrier.NewVerifier(nil, secretA)
	ok(t, err)
	address := serve(t, httpcarrier.NewHandler(&accounts{}, &httpcarrier.ServerOptions{Verifier: v}))
	for name, headers := range map[string][]string{
		"no JSON":    {"Content-Type", "application/json"},
		"no gzip":    {"Content-Type", "application/json", "Content-Encoding", "gzip"},
		"no type":    {"Content-Type", "nonsense"},
		"no event":   {"Content-Type", "application/cloudevents+json"},
		"a coding":   {"Content-Encoding", "br"},
		"wrong ones": {"Webhook-Id", "x", "Webhook-Timestamp", strconv.FormatInt(time.Now().Unix(), 10), "Webhook-Signature", "v1,AAAA"},
	} {
		if resp, body := post(t, address, "\x00{", headers...); resp.StatusCode != 401 {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
}

func TestReplayGuard(t *testing.T) {
	h := &accounts{}
	address := serve(t, httpcarrier.NewHandler(h, &httpcarrier.ServerOptions{Replay: httpcarrier.NewReplayGuard(2)}))
	c := client(t, address, nil)
	r := decide(5)
	for i := range 3 { // tries differ in their deadline
		r.Deadline = time.Now().Add(time.Duration(i+1) * time.Minute)
		_, err := c.Handle(t.Context(), r)
		ok(t, err)
	}
	other := *r
	other.Command = decide(6).Command
	if _, err := c.Handle(t.Context(), &other); !errors.Is(err, handler.ErrDenied) || h.calls.Load() != 3 {
		t.Errorf("%v, %d calls", err, h.calls.Load())
	}
	for range 2 {
		_, err := c.Handle(t.Context(), decide(1))
		ok(t, err)
	}
	if _, err := c.Handle(t.Context(), &other); err != nil {
		t.Errorf("of three keys it remembers two: %v", err)
	}
	for n := range 2 { // no key is no other request's
		keyless := decide(n)
		keyless.Key = eventstore.UUID{}
		if resp, body := post(t, address, encoded(keyless)); resp.StatusCode != 200 {
			t.Errorf("without a key: %d %s", resp.StatusCode, body)
		}
	}
}
