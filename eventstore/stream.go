// Names: Category and Stream, with the rule that makes each valid, and Slot.

package eventstore

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Category is a named family of streams, as "account". It is valid if it is 1 to
// MaxCategoryBytes bytes of UTF-8 without blanks, control characters and any of
// - . * >, so that it is one NATS token and cannot widen a subject.
type Category string

// Stream names one log: "category-key". The category is what stands before the
// first '-'; the key, 1 to MaxKeyBytes bytes of UTF-8 without control
// characters, may hold further '-'.
type Stream string

// Slots is the number of slots that streams are spread over.
const Slots = 1024

// Slot is the share of a stream: the first 8 bytes (big endian) of the SHA-256 of
// its key, modulo Slots. Parallel consumers divide slots among them.
type Slot uint16

// ParseCategory returns s as a Category, or ErrInvalid saying which character of
// it is wrong.
func ParseCategory(s string) (Category, error) {
	if err := checkText("category", s, MaxCategoryBytes); err != nil {
		return "", err
	}
	for i, r := range s {
		if unicode.IsSpace(r) || strings.ContainsRune("-.*>", r) {
			return "", invalidAt("category", s, i, r, "no blank and none of - . * >")
		}
	}
	return Category(s), nil
}

// ParseStream returns s as a Stream, or ErrInvalid saying what of it is wrong.
func ParseStream(s string) (Stream, error) {
	category, key, found := strings.Cut(s, "-")
	if !found {
		return "", invalid("stream", `"category-key"`, fmt.Sprintf("no '-' in %q", clip(s)))
	}
	return NewStream(Category(category), key)
}

// NewStream returns the stream of a category and a key, or ErrInvalid.
func NewStream(c Category, key string) (Stream, error) {
	if _, err := ParseCategory(string(c)); err != nil {
		return "", err
	}
	if err := checkText("key", key, MaxKeyBytes); err != nil {
		return "", err
	}
	return Stream(string(c) + "-" + key), nil
}

// Category returns what stands before the first '-'.
func (s Stream) Category() Category {
	c, _, _ := strings.Cut(string(s), "-")
	return Category(c)
}

// Key returns what stands behind the first '-'.
func (s Stream) Key() string {
	_, k, _ := strings.Cut(string(s), "-")
	return k
}

// Slot returns the slot of the stream's key.
func (s Stream) Slot() Slot {
	sum := sha256.Sum256([]byte(s.Key()))
	return Slot(binary.BigEndian.Uint64(sum[:8]) % Slots)
}

func (s Stream) check() error {
	_, err := ParseStream(string(s))
	return err
}

func (c Category) check() error {
	_, err := ParseCategory(string(c))
	return err
}

// checkText is the rule for every name: not empty, not over long, valid UTF-8,
// no control character (NUL, line breaks: they would forge log lines).
func checkText(what, s string, most int) error {
	switch {
	case s == "":
		return invalid(what, fmt.Sprintf("1 to %d bytes", most), "an empty one")
	case len(s) > most:
		return invalid(what, fmt.Sprintf("at most %d bytes", most), fmt.Sprintf("%d bytes", len(s)))
	case !utf8.ValidString(s):
		return invalid(what, "valid UTF-8", fmt.Sprintf("%q", clip(s)))
	}
	for i, r := range s {
		if unicode.IsControl(r) {
			return invalidAt(what, s, i, r, "no control character")
		}
	}
	return nil
}

func invalidAt(what, s string, i int, r rune, wanted string) error {
	return invalid(what, wanted, fmt.Sprintf("%q at byte %d of %q", r, i, clip(s)))
}
