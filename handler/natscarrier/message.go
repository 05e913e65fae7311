// What requests and replies have beside their body.

package natscarrier

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

const (
	// DefaultPrefix is the first token of subjects where Serve is not given others.
	DefaultPrefix = "handler"
	// MaxPrefixBytes bounds a prefix.
	MaxPrefixBytes = 128

	headerContract    = "Wattle-Contract"
	headerKey         = "Wattle-Key"
	headerTimeout     = "Wattle-Timeout"
	headerTraceparent = "traceparent"
	headerTracestate  = "tracestate"

	maxTracestate    = 512     // bytes; a longer one stays in the body alone
	maxReasonBytes   = 200     // of the text in an error's header
	replyHeaderBytes = 1 << 10 // more than the headers of a reply take
	contract         = "1"
)

// The codes of micro errors, as those of HTTP.
const (
	codeInvalid    = "400"
	codeDenied     = "403"
	codeConflict   = "409"
	codeTooLarge   = "413"
	codeFailed     = "500"
	codeOverloaded = "503"
)

// codeOf is the micro error's code for a Failure.
func codeOf(f *handler.Failure) string {
	switch f.Code {
	case handler.CodeInvalid:
		return codeInvalid
	case handler.CodeState, handler.CodeConflict:
		return codeConflict
	case handler.CodeTooLarge:
		return codeTooLarge
	}
	return codeFailed
}

// kindOf is the kind of error that a micro error's code stands for. What is not known to
// be the request's fault says nothing about it, so it is ErrFailed.
func kindOf(code string) error {
	switch code {
	case codeInvalid, "404", "405", "422":
		return handler.ErrBadRequest
	case "401", codeDenied:
		return handler.ErrDenied
	case codeTooLarge:
		return eventstore.ErrTooLarge
	case "429", codeOverloaded:
		return eventstore.ErrOverloaded
	}
	return handler.ErrFailed
}

// requestHeader is what goes with a request that its caller awaits until then.
func requestHeader(r *handler.Request, until time.Time) nats.Header {
	h := nats.Header{headerContract: {contract}}
	if !r.Key.IsZero() {
		h[headerKey] = []string{r.Key.String()}
	}
	if left := time.Until(until); !until.IsZero() {
		h[headerTimeout] = []string{strconv.FormatInt(max(left.Milliseconds(), 1), 10)}
	}
	if r.Traceparent != "" {
		h[headerTraceparent] = []string{oneLine(r.Traceparent, 64)}
		if r.Tracestate != "" && len(r.Tracestate) <= maxTracestate {
			h[headerTracestate] = []string{oneLine(r.Tracestate, maxTracestate)}
		}
	}
	return h
}

// timeoutOf reads how long the caller waits; most where it does not say.
func timeoutOf(h micro.Headers, most time.Duration) time.Duration {
	ms, err := strconv.ParseInt(h.Get(headerTimeout), 10, 64)
	if err != nil || ms <= 0 || ms > most.Milliseconds() {
		return most
	}
	return time.Duration(ms) * time.Millisecond
}

func replyHeader(key eventstore.UUID, f *handler.Failure) nats.Header {
	h := nats.Header{headerContract: {contract}}
	if !key.IsZero() {
		h[headerKey] = []string{key.String()}
	}
	if f != nil {
		h[micro.ErrorCodeHeader] = []string{codeOf(f)}
		h[micro.ErrorHeader] = []string{oneLine(f.String(), maxReasonBytes)}
	}
	return h
}

// oneLine makes a text fit for a header: short, without control characters.
func oneLine(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// validSubject says if s is tokens without wildcards.
func validSubject(s string) bool {
	if s == "" || len(s) > MaxPrefixBytes || !utf8.ValidString(s) || s[0] == '$' {
		return false
	}
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '*' || r == '>' }) {
			return false
		}
	}
	return true
}

// validOp says if op is one token, so that it cannot widen a subject.
func validOp(op handler.Op) bool {
	return validSubject(string(op)) && !strings.Contains(string(op), ".")
}
