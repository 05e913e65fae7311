// The sizes of programs for WebAssembly.

package importtest

import (
	"bytes"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// sizes are the limits for a stripped program for js, compressed with gzip -9. Of these
// 1.1 MB are Go's runtime, fmt, encoding/json, log/slog and context. What comes near a
// limit has grown: look for a new import before you raise it.
//
// A remotelog brings net/http and Protocol Buffers. The tag leaves out the HTTP/2 of
// net/http, which fetch does not need and which is 160 kB of it. The lean client brings
// 0.16 MB to what eventstore alone is.
var sizes = []struct {
	program, folder, tags string
	limit                 int // bytes
}{
	{"eventstore, schema, memlog, aggregate", "program", "small", 1_400_000},
	{"these, handler, aggregate/guest, projector", "program", "", 1_900_000},
	{"eventstore/remotelog", "remote", "nethttpomithttp2", 4_000_000},
	{"eventstore/remotelog/lean", "lean", "", 1_400_000},
}

func TestSizes(t *testing.T) {
	for _, c := range sizes {
		file := filepath.Join(t.TempDir(), "program.wasm")
		build := exec.Command("go", "build", "-tags="+c.tags, "-trimpath", "-ldflags=-s -w", "-o", file, "./"+c.folder)
		build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var packed bytes.Buffer
		w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.2f MB, compressed %.2f MB", c.program, float64(len(data))/1e6, float64(packed.Len())/1e6)
		if packed.Len() > c.limit {
			t.Errorf("%s: %d bytes compressed, limit %d", c.program, packed.Len(), c.limit)
		}
	}
}
