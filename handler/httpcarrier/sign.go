// Signatures of requests, as Standard Webhooks has them: over id, time and the body as it
// is sent, with HMAC-SHA256 or Ed25519, by several keys at once while keys change.

package httpcarrier

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of a signed request.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// What is wrong with a signature; the Err of a *handler.Error of kind ErrDenied.
var (
	ErrNotSigned    = errors.New("not signed")
	ErrBadSignature = errors.New("signature of no key")
	ErrExpired      = errors.New("signed too long ago, or in the future")
	ErrReused       = errors.New("key used for another request")
)

// SignatureError says what a Verifier or ReplayGuard refuses.
type SignatureError struct {
	Kind   error // one of the four above
	Wanted string
	Found  string
}

// Error returns one line.
func (e *SignatureError) Error() string {
	return fmt.Sprintf("%v: wanted %s, found %s", e.Kind, e.Wanted, e.Found)
}

// Unwrap returns the kind.
func (e *SignatureError) Unwrap() error { return e.Kind }

// key is one key, of either kind.
type key struct {
	secret  []byte             // of HMAC
	private ed25519.PrivateKey // to sign with
	public  ed25519.PublicKey  // to verify with
}

// Prefixes of keys in text, and of signatures.
const (
	secretPrefix  = "whsec_"
	privatePrefix = "whsk_"
	publicPrefix  = "whpk_"

	hmacVersion    = "v1"
	ed25519Version = "v1a"

	minSecret, maxSecret = 24, 64 // bytes
)

// parseKey reads a key. No part of it goes into an error.
func parseKey(text string) (key, error) {
	prefix, encoded, _ := strings.Cut(text, "_")
	prefix += "_"
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return key{}, fmt.Errorf("wattle: key: wanted base64 behind %s", prefix)
	}
	switch {
	case prefix == secretPrefix && len(raw) >= minSecret && len(raw) <= maxSecret:
		return key{secret: raw}, nil
	case prefix == privatePrefix && len(raw) == ed25519.SeedSize:
		raw = ed25519.NewKeyFromSeed(raw)
		fallthrough
	case prefix == privatePrefix && len(raw) == ed25519.PrivateKeySize:
		private := ed25519.PrivateKey(raw)
		return key{private: private, public: private.Public().(ed25519.PublicKey)}, nil
	case prefix == publicPrefix && len(raw) == ed25519.PublicKeySize:
		return key{public: raw}, nil
	}
	return key{}, fmt.Errorf("wattle: key: wanted whsec_ and %d to %d bytes in base64, whsk_ and an Ed25519 private key or whpk_ and a public one, found another of %d bytes", minSecret, maxSecret, len(raw))
}

func parseKeys(texts []string, fits func(key) bool, wanted string) (keys []key, err error) {
	if len(texts) == 0 || len(texts) > MaxKeys {
		return nil, fmt.Errorf("wattle: keys: wanted 1 to %d, found %d", MaxKeys, len(texts))
	}
	for i, text := range texts {
		k, err := parseKey(text)
		if err != nil {
			return nil, err
		}
		if !fits(k) {
			return nil, fmt.Errorf("wattle: key %d: wanted %s", i, wanted)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// content is what is signed.
func content(id, timestamp string, body []byte) []byte {
	b := make([]byte, 0, len(id)+len(timestamp)+len(body)+2)
	b = append(append(append(append(b, id...), '.'), timestamp...), '.')
	return append(b, body...)
}

// Signer signs requests. It may be used from several goroutines at once.
type Signer struct {
	keys []key
}

// NewSigner returns a signer of 1 to MaxKeys keys: whsec_ and a secret of 24 to 64 bytes in
// base64, or whsk_ and an Ed25519 private key (or its seed). Each signs, so that verifiers
// may have any of them.
func NewSigner(keys ...string) (*Signer, error) {
	k, err := parseKeys(keys, func(k key) bool { return k.secret != nil || k.private != nil }, "one to sign with: whsec_ or whsk_")
	if err != nil {
		return nil, err
	}
	return &Signer{k}, nil
}

// Sign sets the three headers. The id must have no dot in it.
func (s *Signer) Sign(h http.Header, id string, at time.Time, body []byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signed := content(id, timestamp, body)
	var all []string
	for _, k := range s.keys {
		if k.secret != nil {
			all = append(all, hmacVersion+","+base64.StdEncoding.EncodeToString(k.hmac(signed)))
		} else {
			all = append(all, ed25519Version+","+base64.StdEncoding.EncodeToString(ed25519.Sign(k.private, signed)))
		}
	}
	h.Set(headerID, id)
	h.Set(headerTimestamp, timestamp)
	h.Set(headerSignature, strings.Join(all, " "))
}

func (k key) hmac(signed []byte) []byte {
	m := hmac.New(sha256.New, k.secret)
	m.Write(signed)
	return m.Sum(nil)
}

// VerifierOptions of a Verifier; nil and zero fields are the defaults.
type VerifierOptions struct {
	Tolerance time.Duration    // 0: DefaultTolerance
	Now       func() time.Time // nil: time.Now
}

// Verifier checks signatures. It may be used from several goroutines at once.
type Verifier struct {
	keys []key
	o    VerifierOptions
}

// NewVerifier returns a verifier that accepts what one of 1 to MaxKeys keys has signed:
// whsec_, whpk_ (an Ed25519 public key) or whsk_.
func NewVerifier(o *VerifierOptions, keys ...string) (*Verifier, error) {
	k, err := parseKeys(keys, func(k key) bool { return k.secret != nil || k.public != nil }, "one to verify with")
	if err != nil {
		return nil, err
	}
	v := &Verifier{keys: k}
	if o != nil {
		v.o = *o
	}
	if v.o.Tolerance <= 0 {
		v.o.Tolerance = DefaultTolerance
	}
	if v.o.Now == nil {
		v.o.Now = time.Now
	}
	return v, nil
}

// Verify checks the headers and the body as it came, and returns the id that is signed.
// The error is a *SignatureError.
func (v *Verifier) Verify(h http.Header, body []byte) (id string, err error) {
	for _, name := range []string{headerID, headerTimestamp, headerSignature} {
		if len(h[name]) != 1 || h[name][0] == "" {
			return "", &SignatureError{ErrNotSigned, "one header " + strings.ToLower(name), strconv.Itoa(len(h[name]))}
		}
	}
	id, timestamp := h[headerID][0], h[headerTimestamp][0]
	if strings.IndexByte(id, '.') >= 0 {
		return "", &SignatureError{ErrBadSignature, "an id without dots", "one with"}
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != timestamp {
		return "", &SignatureError{ErrBadSignature, "a timestamp in seconds", short(timestamp)}
	}
	if off := v.o.Now().Sub(time.Unix(seconds, 0)); off > v.o.Tolerance || off < -v.o.Tolerance {
		return "", &SignatureError{ErrExpired, "a time at most " + v.o.Tolerance.String() + " off", off.Round(time.Second).String()}
	}
	if err := v.match(content(id, timestamp, body), h[headerSignature][0]); err != nil {
		return "", err
	}
	return id, nil
}

// match finds a signature that is a key's. All are compared, whatever they are; each key
// goes over the content once for HMAC.
func (v *Verifier) match(signed []byte, header string) error {
	all := strings.Split(header, " ")
	if len(all) > maxSignatures {
		return &SignatureError{ErrBadSignature, fmt.Sprintf("at most %d signatures", maxSignatures), strconv.Itoa(len(all))}
	}
	by := map[string][][]byte{}
	for _, one := range all {
		version, encoded, _ := strings.Cut(one, ",")
		if signature, err := base64.StdEncoding.DecodeString(encoded); err == nil { // else one of another time
			by[version] = append(by[version], signature)
		}
	}
	found := false
	for _, k := range v.keys {
		if k.secret != nil && len(by[hmacVersion]) > 0 {
			right := k.hmac(signed)
			for _, signature := range by[hmacVersion] {
				found = hmac.Equal(signature, right) || found
			}
		}
		if k.public != nil {
			for _, signature := range by[ed25519Version] {
				found = ed25519.Verify(k.public, signed, signature) || found
			}
		}
	}
	if !found {
		return &SignatureError{ErrBadSignature, "that of a key", fmt.Sprintf("%d of none", len(all))}
	}
	return nil
}
