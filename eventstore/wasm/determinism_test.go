//go:build !wasm

package wasm_test

import (
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

func TestCheckDeterminism(t *testing.T) {
	m := openGo(t, wasm.Options{Instances: 1})
	ask := func(op, request string) wasm.Request { return wasm.Request{Op: op, Bytes: []byte(request)} }
	good := []wasm.Request{ask("describe", ""), ask("decide", "ehello"), ask("evolve", "o"), ask("decide", "e"+strings.Repeat("x", 100_000))}
	if err := m.CheckDeterminism(t.Context(), good); err != nil {
		t.Error(err)
	}
	if err := m.CheckDeterminism(t.Context(), nil); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		bad   wasm.Request
		found string
	}{
		"order of a map":   {ask("keys", "m"), "another byte "},
		"memory of calls":  {ask("evolve", "c"), "another byte 0 of 1, \"5\""},
		"clock and random": {ask("decide", "w"), "another byte "},
	} {
		err := m.CheckDeterminism(t.Context(), append(good[:len(good):len(good)], c.bad))
		e := isError(t, err, wasm.ErrNondeterministic)
		if e.Op != c.bad.Op || !strings.HasPrefix(e.Found, c.found) || !strings.Contains(e.Wanted, "request 4") || e.Module != m.Hash() {
			t.Errorf("%s: wanted operation, request and byte, found %v", name, e)
		}
	}
	// What fails by itself is told as it is.
	err := m.CheckDeterminism(t.Context(), append(good[:len(good):len(good)], ask("decide", "n")))
	if isError(t, err, wasm.ErrTrap); !strings.Contains(err.Error(), "request 4") {
		t.Errorf("wanted the request named, found %v", err)
	}
	isError(t, m.CheckDeterminism(t.Context(), []wasm.Request{ask("compute", "")}), wasm.ErrInvalid)
	// Nothing of it reaches those that are called.
	answers(t, m, wasm.OpDecide, "c", "1")
}

// A guest that answers differently from the second call on, but only to its first request.
func TestRemembering(t *testing.T) {
	m := open(t, counting(count...).bytes(), wasm.Options{Instances: 1})
	err := m.CheckDeterminism(t.Context(), []wasm.Request{{Op: "evolve", Bytes: []byte("x")}, {Op: "decide"}})
	if e := isError(t, err, wasm.ErrNondeterministic); e.Op != "decide" || !strings.Contains(e.Found, "byte 0 of 1") || !strings.Contains(e.Found, "after 3 calls") {
		t.Errorf("wanted it found in the second round, found %v", e)
	}
	if err := m.CheckDeterminism(t.Context(), []wasm.Request{{Op: "evolve", Bytes: []byte("x")}, {Op: "describe"}}); err != nil {
		t.Error(err)
	}
}
