// The campaign in files, from end to end with everybody, and what it refuses.

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	var out, said bytes.Buffer
	args := []string{"files", "-seconds", "0.05", "-repeats", "2", "-writers", "1,3", "-payloads", "128", "-dir", t.TempDir(), "-json", file}
	if code := run(t.Context(), args, &out, &said); code != 0 {
		t.Fatalf("code %d: %s", code, said.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r filesReport
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if want := 2 * len(filePeers); len(r.Rows) != want {
		t.Fatalf("%d rows, wanted %d", len(r.Rows), want)
	}
	for _, row := range r.Rows {
		if row.Rate <= 0 || row.P50 <= 0 || row.Ratio.Median <= 0 || row.Ratio.Min > row.Ratio.Max {
			t.Errorf("%+v", *row)
		}
	}
	for _, p := range filePeers {
		if !strings.Contains(out.String(), p.name) || !strings.Contains(out.String(), p.about) {
			t.Errorf("%s is not in the table or not explained", p.name)
		}
	}
}

func TestFilesAhead(t *testing.T) {
	r := &filesReport{}
	r.add([]*filesRow{
		{Participant: productName, Writers: 2, Payload: 10, runs: []sample{{events: 100, took: 1e9}, {events: 100, took: 1e9}}},
		{Participant: "slower", Writers: 2, Payload: 10, runs: []sample{{events: 50, took: 1e9}, {events: 80, took: 1e9}}},
		{Participant: "faster", Writers: 2, Payload: 10, runs: []sample{{events: 150, took: 1e9}, {events: 150, took: 1e9}}},
	})
	if len(r.Ahead) != 1 || r.Ahead[0] != "faster at 2 writers of 10 bytes, 1.50 times" {
		t.Errorf("ahead: %q", r.Ahead)
	}
}

func TestFilesRefuses(t *testing.T) {
	for _, args := range [][]string{{"-writers", "0"}, {"-payloads", "3"}, {"-seconds", "0"}, {"-repeats", "0"}} {
		var out, said bytes.Buffer
		if code := run(t.Context(), append([]string{"files"}, args...), &out, &said); code != 2 || !strings.Contains(said.String(), args[0]) {
			t.Errorf("%v: code %d, %s", args, code, said.String())
		}
	}
}
