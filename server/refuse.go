// What the server itself answers, as errors of wattle.v1.

package server

import (
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

// refusal makes an error with its detail. What it says goes to the caller: it never holds
// rules, payloads, tokens or what a store's error says.
func refusal(code connect.Code, d *wattlev1.ErrorDetail) *connect.Error {
	text := "wattle: " + kindText(d.GetKind())
	for _, part := range [][2]string{{": wanted ", d.GetWanted()}, {", found ", d.GetFound()}} {
		if part[1] != "" {
			text += part[0] + part[1]
		}
	}
	if d.GetHint() != "" {
		text += " (" + d.GetHint() + ")"
	}
	e := connect.NewError(code, errors.New(text))
	if detail, err := connect.NewErrorDetail(d); err == nil {
		e.AddDetail(detail)
	}
	return e
}

func kindText(k wattlev1.ErrorKind) string {
	switch k {
	case wattlev1.ErrorKind_ERROR_KIND_UNAUTHENTICATED:
		return "not authenticated"
	case wattlev1.ErrorKind_ERROR_KIND_UNSPECIFIED:
		return "internal error"
	}
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(k.String(), "ERROR_KIND_")), "_", " ")
}

func unauthenticated(found string) *connect.Error {
	return refusal(connect.CodeUnauthenticated, &wattlev1.ErrorDetail{Kind: wattlev1.ErrorKind_ERROR_KIND_UNAUTHENTICATED,
		Wanted: "a client certificate or a token that this server knows", Found: found})
}

func denied(what string) *connect.Error {
	return refusal(connect.CodePermissionDenied, &wattlev1.ErrorDetail{Kind: wattlev1.ErrorKind_ERROR_KIND_DENIED,
		Wanted: "the right to " + what, Hint: "wattle policy check tells why"})
}

func goingAway() *connect.Error {
	return refusal(connect.CodeUnavailable, &wattlev1.ErrorDetail{Kind: wattlev1.ErrorKind_ERROR_KIND_GOING_AWAY,
		Hint: "this server ends: go on at another one, or here later"})
}

func overloaded(wanted, found string) *connect.Error {
	return refusal(connect.CodeResourceExhausted, &wattlev1.ErrorDetail{Kind: wattlev1.ErrorKind_ERROR_KIND_OVERLOADED,
		Wanted: wanted, Found: found, Hint: "try again later"})
}

// tooLarge has no code that says: try again.
func tooLarge(wanted, found string) *connect.Error {
	return refusal(connect.CodeInvalidArgument, &wattlev1.ErrorDetail{Kind: wattlev1.ErrorKind_ERROR_KIND_TOO_LARGE,
		Wanted: wanted, Found: found})
}

func late() *connect.Error {
	return refusal(connect.CodeDeadlineExceeded, &wattlev1.ErrorDetail{Kind: wattlev1.ErrorKind_ERROR_KIND_DEADLINE, Wanted: "a whole request in time"})
}

// internal tells nothing: what failed is in the log.
func internal() *connect.Error {
	return refusal(connect.CodeInternal, &wattlev1.ErrorDetail{Hint: "the server's log tells more"})
}

// clean is a text from outside as a log or an error may repeat it: short, on one line.
func clean(s string) string {
	if len(s) > maxLoggedBytes {
		s = strings.ToValidUTF8(s[:maxLoggedBytes], "?") + "…"
	}
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || !unicode.IsPrint(r) }) {
		return s
	}
	return strconv.QuoteToASCII(s)
}
