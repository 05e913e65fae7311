// Requests that no host sends: the guest answers them all, and as the handler in Go does.

package guest_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/handler"
)

// seeds are requests in their encoded form: of some cases, and some that have everything
// that a request may have.
func seeds(t testing.TB) [][]byte {
	t.Helper()
	all, h := cases(t, 7), native(t)
	var seeds [][]byte
	for i := 0; i < len(all); i += 1 + len(all)/60 {
		for _, r := range requestsOf(t, h, &all[i]) {
			if request := handler.AppendRequest(nil, r); len(request) < 3000 {
				seeds = append(seeds, request)
			}
		}
	}
	for _, s := range full {
		seeds = append(seeds, []byte(s))
	}
	return seeds
}

const uuid = `"0b8d4e0a-93a6-5b1c-8f35-0f2f5a6d1c11"`

var full = []string{
	`{"v":1,"op":"decide","key":` + uuid + `,"deadline":"2026-01-02T03:04:05Z","traceparent":"00-a","tracestate":"b","now":"2026-01-02T03:04:05.5Z","id":` + uuid +
		`,"stream":"application-ä/1","after":{"seqno":"2","id":` + uuid + `},"stateVersion":1,"state":{"amount":5,"last":"2026-01-02T03:04:05.120+02:00","submitted":true,` +
		`"outcome":"approved","offers":{"selected":1},"work":{"W_b":{"scheduled":2},"W_a \u2028":{"started":1},"\ud83c\udf88":{}}},"projector":"p","projectorVersion":3,` +
		`"events":[{"seqno":"3","position":"9","id":` + uuid + `,"time":"2026-01-02T03:04:05Z","stream":"application-1","type":"loan.work_started","version":1,"contentType":"application/json",` +
		`"data":{"at":"2026-01-02T03:04:06-00:30","item":"\"\\\b\n\u0001<é>"},"meta":{"a":"b"},"quiet":true}],` +
		`"command":{"type":"loan.partly_submit","version":1,"data":{"at":"2026-01-02T05:04:06.000000001+02:00","resource":"r\ud800\u00e9\t"},"meta":{"c":"d"}},"docs":{"k":[1,{"x":null}]}}`,
	`{"v":1,"op":"evolve","stream":"application-1","stateVersion":1,"state":{"AMOUNT":-7,"Offers":{"created":1,"SENT":2,"returned":3,"cancelled":4,"accepted":true,"declined":true},` +
		`"\u017fubmitted":true,"partly_submitted":true,"preaccepted":true,"accepted":true,"finalized":true,"registered":true,"activated":true,"wor\u212a":{"":{"completed":1}},"outcome":"cancelled"}}`,
	`{"v":1,"op":"decide","stream":"application-1","command":{"type":"loan.submit","data":{"at":"2011-10-01T00:38:44.546+02:00","amount":20000,"customer":"c","resource":"112"}}}`,
}

// values are put in the place of others.
var values = []string{
	`null`, `true`, `false`, `0`, `-0`, `1`, `2`, `-1`, `1.0`, `1e2`, `01`, `9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `2147483648`, `1000000000001`,
	`""`, `"x"`, `"open"`, `"declined"`, `"application-1"`, `"application-"`, `"application-\u0085"`, `"appli cation-1"`, `"other-1"`, `"\ud83c\udf88"`, `"\udf88"`, `"\ud83cx"`, `"\u0000"`, `"\u00e9"`, `"\x"`, "\"\xff\"", "\"\xc3\xa9\"",
	`"2026-01-02T03:04:05Z"`, `"2026-01-02T3:04:05Z"`, `"2026-01-02T03:04:05,5Z"`, `"2026-01-02T03:04:05.1234567891Z"`, `"2026-01-02T03:04:05+24:00"`, `"2026-01-02T03:04:05-07:60"`, `"2026-02-29T03:04:05Z"`,
	`"2024-02-29T23:59:59.999999999+14:00"`, `"0001-01-01T00:00:00Z"`, `"0001-01-01T00:30:00+01:00"`, `"0000-01-01T00:00:00Z"`, `"9998-12-31T23:59:59-00:01"`, `"9999-12-31T23:59:59Z"`, `"1969-12-31T23:59:59.5Z"`, `"2026-01-02"`, `"2026-01-02T03:04:05"`, `"2026-01-02T24:00:00Z"`,
	`{}`, `[]`, `[1]`, `{"a":1}`, `{"a":{"b":[{}]}}`, `"loan.submit"`, `"loan.submitted"`, `"loan.work_started"`, `"W_Afhandelen leads"`, `"application/json"`, `"text/plain"`,
	`"00000000-0000-0000-0000-000000000000"`, `"0B8D4E0A-93a6-5b1c-8f35-0f2f5a6d1c11"`, `"0b8d4e0a93a65b1c8f350f2f5a6d1c11"`, `"18446744073709551616"`, `"007"`,
	strings.Repeat("[", 127) + strings.Repeat("]", 127), strings.Repeat("[", 126) + strings.Repeat("]", 126), strings.Repeat("[", 125) + strings.Repeat("]", 125), strings.Repeat("[", 5000),
	`"` + strings.Repeat("a", 1024) + `"`, `"` + strings.Repeat("ä", 512) + `a"`,
}

// fields are put behind an opening bracket. The first of them are for payloads.
const payloadFields = 21

var fields = []string{
	`"amount":1`, `"at":null`, `"at":"2026-01-02T03:04:05Z"`, `"AT":"2012-02-02T02:02:02+02:00"`, `"item":"W_x"`, `"resource":"\ud800"`, `"offers":null`, `"work":null`, `"work":{"W_x":{"started":3}}`, `"outcome":null`, `"unknown":{"a":[]}`,
	`"last":"2012-01-02T03:04:05.100000000+05:30"`, `"last":"2026-01-02T03:04:05+24:00"`, `"submitted":null`, `"sent":9223372036854775807`, `"created":1`, `"cancelled":-9223372036854775808`,
	`"customer":"\u2028\u001f\u007f<&>"`, `"Scheduled":2`, `"resource":"ä\ud83c\udf88\/"`, `"outcome":"approved"`,
	`"v":1`, `"v":2`, `"op":"evolve"`, `"data":{}`, `"data64":"e30="`, `"meta":{"a":"1","a":"2"}`, `"meta":{"a":1}`, `"docs":{"a":1,"\u0061":2}`, `"contentType":"application/json"`, `"version":0`, `"version":2`, `"quiet":1`,
	`"stateVersion":1`, `"stateVersion":7`, `"state":null`, `"at":5`, `"At":{"a":1}`,
}

var value = regexp.MustCompile(`"(?:\\.|[^"\\])*"|-?\d+(?:\.\d+)?|true|false|null|\{\}|\[\]`)

// inside is where the payloads of a request begin, and what stands for a moment in them.
var (
	inside = regexp.MustCompile(`"(?:data|state|offers|work)":\{`)
	moment = regexp.MustCompile(`"(?:at|last)":("[^"]*")`)
)

// bend makes another request of one that still keeps the contract: its payloads are odd.
func bend(r *rand.Rand, b []byte) []byte {
	if spans := moment.FindAllSubmatchIndex(b, -1); len(spans) > 0 && r.IntN(2) == 0 {
		s := spans[r.IntN(len(spans))]
		return bytes.Join([][]byte{b[:s[2]], anyMoment(r), b[s[3]:]}, nil)
	}
	spans := inside.FindAllIndex(b, -1)
	if len(spans) == 0 {
		return b
	}
	at := spans[r.IntN(len(spans))][1]
	field := fields[r.IntN(payloadFields)]
	if b[at] != '}' {
		field += ","
	}
	return bytes.Join([][]byte{b[:at], []byte(field), b[at:]}, nil)
}

// anyMoment is a time, of the years that the cases are in or of any.
func anyMoment(r *rand.Rand) []byte {
	year := 2011 + r.IntN(2)
	if r.IntN(8) == 0 {
		year = r.IntN(10_000)
	}
	text := fmt.Sprintf(`"%04d-%02d-%02dT%02d:%02d:%02d`, year, 1+r.IntN(12), 1+r.IntN(29), r.IntN(24), r.IntN(60), r.IntN(60))
	if r.IntN(2) == 0 {
		text += fmt.Sprintf(".%0*d", 1+r.IntN(10), r.IntN(10))
	}
	if r.IntN(2) == 0 {
		return []byte(text + `Z"`)
	}
	return fmt.Appendf(nil, `%s%c%02d:%02d"`, text, "+-"[r.IntN(2)], r.IntN(15), r.IntN(60))
}

// spoil makes another request of one.
func spoil(r *rand.Rand, b []byte) []byte {
	at := r.IntN(len(b) + 1)
	end := min(len(b), at+1+r.IntN(8))
	switch r.IntN(12) {
	case 0:
		return append(b[:at:at], b[end:]...)
	case 1:
		return b[:at]
	case 2:
		return append(append(b[:end:end], b[at:end]...), b[end:]...)
	case 3:
		return append(append(b[:at:at], byte(r.IntN(256))), b[at:]...)
	case 4, 5, 6:
		if i := bytes.IndexByte(b[at:], '{'); i >= 0 {
			return bytes.Join([][]byte{b[:at+i+1], []byte(fields[r.IntN(len(fields))] + ","), b[at+i+1:]}, nil)
		}
	}
	spans := value.FindAllIndex(b, -1)
	if len(spans) == 0 {
		return b
	}
	s := spans[r.IntN(len(spans))]
	return bytes.Join([][]byte{b[:s[0]], []byte(values[r.IntN(len(values))]), b[s[1]:]}, nil)
}

// Every odd value in every place of a request, and every odd field in every object.
func TestOddRequests(t *testing.T) {
	var requests [][]byte
	for _, f := range full {
		b := []byte(f)
		for _, s := range value.FindAllIndex(b, -1) {
			for _, v := range values {
				requests = append(requests, bytes.Join([][]byte{b[:s[0]], []byte(v), b[s[1]:]}, nil))
			}
		}
		for i, c := range b {
			for _, v := range fields {
				if c == '{' && b[i+1] != '}' {
					requests = append(requests, bytes.Join([][]byte{b[:i+1], []byte(v + ","), b[i+1:]}, nil))
				}
			}
		}
	}
	h := native(t)
	wanted := make([][]byte, len(requests))
	for i, request := range requests {
		wanted[i] = handler.Serve(t.Context(), h, opOf(request), request)
	}
	each(t, fast, func(t *testing.T, g *host) {
		count := map[string]int{}
		for i, request := range requests {
			code, err := answers(t, g, request, wanted[i])
			if err != nil {
				t.Fatalf("%q\n%v", request, err)
			}
			count[code]++
		}
		t.Logf("%d requests, by codes: %v", len(requests), count)
	})
}

func TestRandomRequests(t *testing.T) {
	seed, rounds := rand.Uint64(), 2000
	if os.Getenv("WATTLE_SOAK") != "" {
		rounds = 300_000
	}
	t.Logf("seed %d", seed)
	all, h := seeds(t), native(t)
	each(t, fast, func(t *testing.T, g *host) {
		r := rand.New(rand.NewPCG(seed, 1))
		count := map[string]int{}
		for range rounds {
			request := all[r.IntN(len(all))]
			gentle := r.IntN(2) == 0
			for range 1 + r.IntN(3) {
				if gentle {
					request = bend(r, request)
				} else {
					request = spoil(r, request)
				}
			}
			code, err := asNative(t, h, g, request)
			if err != nil {
				t.Fatalf("%q\n%v", request, err)
			}
			count[code]++
		}
		t.Logf("%v", count)
	})
}

// opOf is the operation that a request names.
func opOf(request []byte) string {
	if bytes.Contains(request, []byte(`"op":"evolve"`)) {
		return "evolve"
	}
	return "decide"
}

// asNative sends a request to both.
func asNative(t testing.TB, h handler.Handler, g *host, request []byte) (code string, err error) {
	return answers(t, g, request, handler.Serve(t.Context(), h, opOf(request), request))
}

// answers says what the guest answers otherwise than is wanted, and the code of its answer.
func answers(t testing.TB, g *host, request, want []byte) (code string, err error) {
	got, err := g.Call(t.Context(), opOf(request), request)
	if err != nil {
		return "", err
	}
	if bytes.Contains(request, []byte("data64")) { // which a handler may refuse, and these do
		_, err := handler.ParseReply(got)
		return "data64", err
	}
	return same(want, got)
}

func FuzzRequest(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s)
	}
	h := native(f)
	var hosts []*host
	for _, l := range languages {
		hosts = append(hosts, newHost(f, l.built(f), fast))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		for i, g := range hosts {
			if _, err := asNative(t, h, g, request); err != nil {
				t.Errorf("%s: %v", languages[i].name, err)
			}
		}
	})
}
