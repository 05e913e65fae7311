// The bench from end to end on a small scale, with its children.

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestMain lets the test's own program be the children.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childFlag {
		main()
	}
	os.Exit(m.Run())
}

func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	var out, said bytes.Buffer
	args := []string{"-seconds", "0.02", "-repeats", "2", "-entries", "20000", "-dir", t.TempDir(), "-json", file}
	if code := run(args, &out, &said); code != 0 {
		t.Fatalf("code %d: %s", code, said.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	of := map[string]int{}
	for _, row := range r.Rows {
		of[row.Part]++
		if row.Value <= 0 || row.Ratio != nil && (row.Floor <= 0 || row.Ratio.Median <= 0 || row.Ratio.Min > row.Ratio.Max) {
			t.Errorf("%+v", row)
		}
	}
	if len(of) != len(parts) {
		t.Errorf("rows of %v, wanted %d parts", of, len(parts))
	}
	t.Log(out.String())
}

func TestRefuses(t *testing.T) {
	for _, args := range [][]string{{"-only", "nothing"}, {"-repeats", "0"}, {"-seconds", "0"}, {"-entries", "1"}, {childFlag, "open"}, {childFlag, "none", "x", "1"}} {
		var out, said bytes.Buffer
		if code := run(args, &out, &said); code != 2 || said.Len() == 0 {
			t.Errorf("%v: code %d, %s", args, code, said.String())
		}
	}
}
