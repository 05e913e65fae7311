//go:build !wasm

package wasm_test

import (
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

// saying is a guest that writes its request to stderr and answers with an internal error
// when it begins with '!'.
func saying() *guest {
	g := echo()
	g.imports = []imported{{"wasi_snapshot_preview1", "fd_write", sig(i32, i32, i32, i32).to(i32)}}
	const vector = 16 // address and length of what is to be written
	write := code(i32Const(vector), i32Const(arena), 0x36, 2, 0, i32Const(vector), opGet, 0, 0x36, 2, 4,
		i32Const(2), i32Const(vector), i32Const(1), i32Const(32), opCall, 0, opDrop)
	return g.decide(code(write, onBang(code(i64Const(0), opReturn)...))...)
}

func TestStderrOfOneCall(t *testing.T) {
	m := open(t, saying().bytes(), wasm.Options{Instances: 1})
	answers(t, m, wasm.OpDecide, "of no interest", "of no interest")
	if e := fails(t, m, t.Context(), "!of interest\n\x1b[2J", wasm.ErrBadReply); e.Stderr != "!of interest\n\x1b[2J" || strings.ContainsAny(e.Error(), "\n\x1b") {
		t.Errorf("wanted what this call wrote, quoted in the error's line, found %q in %q", e.Stderr, e)
	}
}

func TestEnds(t *testing.T) {
	var all string
	e := wasm.NewEnds(10)
	for i := range 200 {
		s := strings.Repeat(string(rune('a'+i%26)), i%14)
		all += s
		if n, err := e.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("wanted all taken, found %d %v", n, err)
		}
		want := all
		if len(all) > 10 {
			want = all[:5] + "\n…\n" + all[len(all)-5:]
		}
		if e.String() != want {
			t.Fatalf("wanted %q, found %q", want, e.String())
		}
	}
}
