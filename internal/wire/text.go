// Text that goes over the wire beside payloads, for people to read.

package wire

import (
	"strconv"
	"strings"
	"unicode"
)

// maxText bounds a text of an error, in bytes.
const maxText = 2 << 10

// clean makes a text from the other side, or for it, one printable line of valid UTF-8
// that is not over long.
func clean(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
}

// quote shows a value that was refused.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}
