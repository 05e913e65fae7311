// UUID: the 128-bit identifier of events, batches, holders and stores.

package eventstore

import (
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"
)

// UUID is an identifier as of RFC 9562. The zero UUID means "none".
//
// It is our own type since the usual library links package net, which the
// contract must not (see the package comment).
type UUID [16]byte

// wattleSpace is the RFC 9562 name space of the UUIDs that Wattle derives from
// names: UUIDv5 of the DNS name space and "wattle-es.github.com".
var wattleSpace = newV5(UUID{0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8}, "wattle-es.github.com")

// NewUUID returns a new UUIDv7: 48 bits of Unix milliseconds, then random bits.
// It may be called from several goroutines at once.
func NewUUID() UUID {
	var u UUID
	rand.Read(u[:]) // never fails since Go 1.24: it ends the program instead
	putMillis(&u, uint64(time.Now().UnixMilli()))
	return withVersion(u, 7)
}

// NameUUID returns the UUIDv5 of a name: the same name gives the same UUID,
// everywhere. It turns a string key (an order number, a message id) into a
// Batch.ID or a command's ID.
func NameUUID(name string) UUID { return newV5(wattleSpace, name) }

// DeriveUUID returns the i-th UUID derived from u: always the same for the same
// u and i. Derived from a UUIDv7 it is a UUIDv7 of the same millisecond, so that
// it sorts beside its parent; derived from any other it is a UUIDv5.
func DeriveUUID(u UUID, i int) UUID {
	if u[6]>>4 != 7 {
		return newV5(u, strconv.Itoa(i))
	}
	sum := sha256.Sum256(append(u[:], strconv.Itoa(i)...))
	d := UUID(sum[:16])
	copy(d[:6], u[:6])
	return withVersion(d, 7)
}

// ParseUUID reads the form that String writes (36 characters, lower or upper
// case); anything else is ErrInvalid.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		plain := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
		if _, err := hex.Decode(u[:], []byte(plain)); err == nil {
			return u, nil
		}
	}
	return UUID{}, invalid("UUID", "8-4-4-4-12 hexadecimal digits", strconv.Quote(clip(s)))
}

// String returns the 36-character lower-case form; ParseUUID is its inverse.
func (u UUID) String() string {
	var b [36]byte
	hex.Encode(b[:8], u[:4])
	hex.Encode(b[9:13], u[4:6])
	hex.Encode(b[14:18], u[6:8])
	hex.Encode(b[19:23], u[8:10])
	hex.Encode(b[24:], u[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// IsZero says if u is the zero UUID, which means "none".
func (u UUID) IsZero() bool { return u == UUID{} }

// MarshalText writes the form of String.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText reads the form of String.
func (u *UUID) UnmarshalText(b []byte) (err error) {
	*u, err = ParseUUID(string(b))
	return err
}

func newV5(space UUID, name string) UUID {
	sum := sha1.Sum(append(space[:], name...))
	return withVersion(UUID(sum[:16]), 5)
}

func withVersion(u UUID, version byte) UUID {
	u[6] = u[6]&0x0f | version<<4
	u[8] = u[8]&0x3f | 0x80
	return u
}

func putMillis(u *UUID, ms uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], ms<<16)
	copy(u[:6], b[:6])
}
