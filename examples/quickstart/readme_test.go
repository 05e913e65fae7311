// The README shows code that runs: its first two blocks are lines of the Example.

package quickstart

import (
	"os"
	"strings"
	"testing"
)

func TestReadmeShowsTheExample(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("quickstart_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(readme), "```go\n")
	if len(blocks) < 3 {
		t.Fatalf("%d blocks of Go in the README, want at least 2", len(blocks)-1)
	}
	for _, b := range blocks[1:3] {
		code, _, _ := strings.Cut(b, "```")
		var indented strings.Builder
		for line := range strings.Lines(code) {
			if strings.TrimSpace(line) != "" {
				line = "\t" + line
			}
			indented.WriteString(line)
		}
		if !strings.Contains(string(source), indented.String()) {
			t.Errorf("this block of the README is not in quickstart_test.go:\n%s", code)
		}
	}
}
