// The numbers that have a meaning, each a type: Seqno, Position, Epoch.

package eventstore

import (
	"fmt"
	"math"
	"strconv"
)

// MaxNumber is the highest Seqno, Position and Epoch, 2^63−1, so that every
// backend can keep them in a signed 64-bit column.
const MaxNumber = math.MaxInt64

// Seqno is the place of an entry in its stream: 1, 2, 3… without a gap.
// 0 stands before the first entry. It is the version of the aggregate.
type Seqno uint64

// Position is the place of an entry in the whole store: rising, with gaps.
// 0 is the start. Positions of different stores cannot be compared.
type Position uint64

// Epoch is the fencing number of a stream. It never falls; 0 means nobody.
type Epoch uint64

// String returns the decimal form; ParseSeqno is its inverse.
func (s Seqno) String() string { return strconv.FormatUint(uint64(s), 10) }

// String returns the decimal form; ParsePosition is its inverse.
func (p Position) String() string { return strconv.FormatUint(uint64(p), 10) }

// String returns the decimal form; ParseEpoch is its inverse.
func (e Epoch) String() string { return strconv.FormatUint(uint64(e), 10) }

// ParseSeqno reads a decimal number of 0…2^63−1; anything else is ErrInvalid.
func ParseSeqno(s string) (Seqno, error) {
	n, err := parseNumber("seqno", s)
	return Seqno(n), err
}

// ParsePosition reads a decimal number of 0…2^63−1; anything else is ErrInvalid.
func ParsePosition(s string) (Position, error) {
	n, err := parseNumber("position", s)
	return Position(n), err
}

// ParseEpoch reads a decimal number of 0…2^63−1; anything else is ErrInvalid.
func ParseEpoch(s string) (Epoch, error) {
	n, err := parseNumber("epoch", s)
	return Epoch(n), err
}

// parseNumber accepts only the form that String writes: no sign, no leading
// zero, no blank, so that String and Parse are exact inverses.
func parseNumber(what, s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > MaxNumber || strconv.FormatUint(n, 10) != s {
		return 0, invalid(what, "a decimal number of 0 to 2^63-1", strconv.Quote(clip(s)))
	}
	return n, nil
}

// checkNumber refuses what a signed 64-bit column cannot hold.
func checkNumber(what string, n uint64) error {
	if n > MaxNumber {
		return invalid(what, "at most 2^63-1", fmt.Sprint(n))
	}
	return nil
}

// clip shortens text from outside before it goes into an error message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
