// wattle guest, with modules made by hand: a compiler would take longer than the tests.

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

const described = `{"v":1,"description":{"name":"tiny","capabilities":[]}}`

// The bodies of es1_decide: answer with the request, trap, answer with how often it ran.
const (
	bodyEcho  = "\x00\x42\x80\x08\x42\x20\x86\x20\x00\xad\x84\x0b"
	bodyTrap  = "\x00\x00\x0b"
	bodyCount = "\x00\x23\x00\x41\x01\x6a\x24\x00\x41\x80\x08\x23\x00\x3a\x00\x00\x42\x81\x80\x80\x80\x80\x80\x01\x0b"
)

// tiny writes a guest that describes itself so, and decides so, into a file.
func tiny(t *testing.T, description, body string) string {
	t.Helper()
	sized := func(s string) string {
		if len(s) > 127 {
			t.Fatalf("too long for one byte: %q", s)
		}
		return string(rune(len(s))) + s
	}
	describe := "\x00\x42" + string([]byte{0x80 | byte(len(description)&0x7f), 0x80, 0x80, 0x80, 0x80, 0x01}) + "\x0b" // 8<<32 | length
	m := "\x00asm\x01\x00\x00\x00" +
		"\x01" + sized("\x03\x60\x01\x7f\x01\x7f\x60\x00\x01\x7e\x60\x01\x7f\x01\x7e") + // types: alloc, describe, decide
		"\x03" + sized("\x03\x00\x01\x02") +
		"\x05" + sized("\x01\x00\x11") + // 17 pages
		"\x06" + sized("\x01\x7f\x01\x41\x00\x0b") + // a counter
		"\x07" + sized("\x04"+sized("memory")+"\x02\x00"+sized("es1_alloc")+"\x00\x00"+sized("es1_describe")+"\x00\x01"+sized("es1_decide")+"\x00\x02") +
		"\x0a" + sized("\x03"+sized("\x00\x41\x80\x08\x0b")+sized(describe)+sized(body)) +
		"\x0b" + sized("\x01\x00\x41\x08\x0b"+sized(description))
	file := filepath.Join(t.TempDir(), "tiny.wasm")
	if err := os.WriteFile(file, []byte(m), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestGuestInspect(t *testing.T) {
	t.Parallel()
	file := tiny(t, described, bodyEcho)
	wattle(t, "guest", "inspect", file).wants(t, 0, "sha256 ", "operations  describe decide\n", "memory      17\n", "export      es1_decide (i32) (i64)\n",
		"section     code 30 bytes\n", "describes   "+described+"\n")
	var info infoJSON
	r := wattle(t, "guest", "inspect", file, "-o", "json").wants(t, 0, `"description":`+described)
	if err := json.Unmarshal([]byte(r.out), &info); err != nil || len(info.SHA256) != 64 || info.Bytes < 150 || info.Memory != "17" || len(info.Exports) != 4 || info.Refused != "" {
		t.Errorf("found %+v (%v)", info, err)
	}
	// What is refused is shown too, as far as it goes.
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bad := strings.Replace(string(module), "es1_alloc", "es2\x1b[2Jxy", 1)
	if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
		t.Fatal(err)
	}
	wattle(t, "guest", "inspect", file).wants(t, exitBadInput, `export      es2\u001b[2Jxy`, "refused     wattle: guest ", "wanted es1_alloc")
	if err := os.WriteFile(file, []byte("\x00asm\x0d\x00\x01\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	wattle(t, "guest", "inspect", file, "-o", "json").wants(t, exitBadInput, `"component":true`, "a core module", "wasip1")
	wattle(t, "guest", "inspect", file+".gone").wants(t, exitBadInput, "tiny.wasm.gone")
}

func TestGuestRun(t *testing.T) {
	t.Parallel()
	file := tiny(t, described, bodyEcho)
	wattle(t, "guest", "run", file, "describe").wants(t, 0, described)
	if r := wattleIn(t, noEnv, "{\"a\":1}\n", "guest", "run", file, "decide", "--timeout", "20s").wants(t, 0, "memory 1.1 MiB of 32.0 MiB, time ", " of 20s"); r.out != "{\"a\":1}\n" {
		t.Errorf("wanted the reply alone on stdout, found %q", r.out)
	}
	request := filepath.Join(t.TempDir(), "request")
	if err := os.WriteFile(request, []byte{0xff}, 0o600); err != nil {
		t.Fatal(err)
	}
	wattle(t, "guest", "run", file, "decide", request, "-o", "json", "--memory", "20").wants(t, 0, `"memory_bytes":1114112,"memory_bytes_limit":1310720,"reply":{"base64":"/w=="}`)
	wattle(t, "guest", "run", file, "decide", request+".gone").wants(t, exitBadInput, "request.gone")
	wattle(t, "guest", "run", file, "compute").wants(t, exitUsage, `"compute"`)
	wattle(t, "guest", "run", file, "keys").wants(t, exitBadInput, "es1_keys")
	wattle(t, "__complete", "guest", "run", file, "").wants(t, 0, "describe\ndecide\n")
	wattle(t, "guest", "run", file).wants(t, exitUsage, "FILE.wasm and OPERATION")
	wattle(t, "guest", "run", file, "decide", "--memory", "16").wants(t, exitFailure, "raise MemoryPages")
	wattle(t, "guest", "run", file, "decide", "--memory", "-1").wants(t, exitUsage, "MemoryPages")
	wattle(t, "guest", "run", tiny(t, described, bodyTrap), "decide").wants(t, exitFailure, "trapped", "unreachable", "memory 1.1 MiB of 32.0 MiB")
}

func TestGuestTest(t *testing.T) {
	t.Parallel()
	check := func(file string, more ...string) result {
		return wattle(t, append([]string{"guest", "test", file, "--timeout", "20s"}, more...)...)
	}
	check(tiny(t, described, bodyEcho)).wants(t, 0, "tiny: ", " 0 findings\n")
	check(tiny(t, described, bodyTrap)).wants(t, exitFound, "not trapped on: decide, half an object: guest", "unreachable", " 9 findings")
	check(tiny(t, described, bodyCount)).wants(t, exitFound, "equal requests have equal replies", "guest not deterministic", `found another byte 0 of 1`)
	check(tiny(t, "{}", bodyEcho)).wants(t, exitFound, "describes itself as a handler", "tiny.wasm: 3 rules")
	check(tiny(t, described, bodyTrap), "-o", "json").wants(t, exitFound, `"name":"tiny"`, `"case":"decide, nothing"`)

	requests := filepath.Join(t.TempDir(), "requests")
	for content, want := range map[string]string{`{"op":"decide","request":{"a":1}}` + "\n" + `{"op":"keys","request":{}}`: "request 1", `{"op":"compute"}`: "compute"} {
		if err := os.WriteFile(requests, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		check(tiny(t, described, bodyEcho), "--requests", requests).wants(t, exitFound, want)
	}
	if err := os.WriteFile(requests, []byte(`{"op":"decide"}{`), 0o600); err != nil {
		t.Fatal(err)
	}
	check(tiny(t, described, bodyEcho), "--requests", requests).wants(t, exitUsage, "request 1")
	check(tiny(t, described, bodyEcho), "--requests", requests+".gone").wants(t, exitFailure, "requests.gone")
}

func TestGuestPrecompile(t *testing.T) {
	t.Parallel()
	file, cache := tiny(t, described, bodyEcho), filepath.Join(t.TempDir(), "cache")
	wattle(t, "guest", "precompile", file).wants(t, exitUsage, "wanted --cache DIR")
	wattle(t, "guest", "precompile", file, "--cache", cache).wants(t, 0, "compiled "+file+" (", ") into "+cache)
	wattle(t, "guest", "precompile", file, "--cache", cache, "-o", "json").wants(t, 0, `"trusted":false`)
	files := func() int {
		all, err := filepath.Glob(cache + "/*/*")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	wattle(t, "guest", "run", file, "describe", "--cache", cache).wants(t, 0, described)
	if n := files(); n != 1 {
		t.Errorf("wanted one file, used by the run, found %d", n)
	}
	wattle(t, "guest", "precompile", file, "--cache", cache, "--trusted").wants(t, 0)
	if n := files(); n != 2 {
		t.Errorf("wanted another file for --trusted, found %d", n)
	}
}

// All that a guest wrote to stderr is shown, beside the one line of the error.
func TestGuestsLastWords(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	g := &guests{app: &app{stdout: &out}}
	e := &wasm.Error{Kind: wasm.ErrTrap, Stderr: "panic: lost\n\n\tmain.go:7 \x1b[2J"}
	if err := g.failed(e); err != error(e) || out.String() != "guest: panic: lost\nguest: \nguest:     main.go:7 \\u001b[2J\n" {
		t.Errorf("found %q and %v", out.String(), err)
	}
}
