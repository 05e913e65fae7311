// The client by fetch, in Node.js.

package lean_test

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

func TestFetch(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("%v; install Node.js 20 or newer (apt-get install nodejs)", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	program := filepath.Join(t.TempDir(), "fetch.wasm")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./testdata/fetch")
	build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(service())
	defer s.Close()
	create(t, s.URL)
	out, err := exec.CommandContext(ctx, node, filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec_node.js"), program, s.URL).CombinedOutput()
	const want = "1 opened \"12345678901234567890\"\n2 empty \"\"\nrefused at epoch 1\n"
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}

func create(t *testing.T, url string) {
	t.Helper()
	l := client(t, url)
	if err := eventstore.New(l, nil).CreateCategory(t.Context(), eventstore.CategorySpec{Name: "account"}); err != nil {
		t.Fatal(err)
	}
}
