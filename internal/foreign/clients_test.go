// The examples of eventstore/remotelog/CLIENTS.md, run as they stand there.

package foreign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/internal/foreign/servetest"
)

// example is a block of commands and the JSON that stands behind it, if any.
type example struct{ commands, wanted string }

var block = regexp.MustCompile("(?ms)^```(sh|json)\n(.*?)^```$")

// separator stands between the outputs of two examples.
const separator = "\x1e"

func TestClientsDocument(t *testing.T) {
	all := examples(t, "../../eventstore/remotelog/CLIENTS.md")
	var script strings.Builder
	script.WriteString("set -u\n")
	for _, e := range all {
		fmt.Fprintf(&script, "%s\nprintf '\\036'\n", e.commands)
	}
	s := servetest.StartDev(t, program)
	c := command(t, "bash", "-c", script.String())
	c.Env = append(os.Environ(), "WATTLE_URL="+s.URL)
	var warnings bytes.Buffer
	c.Stderr = &warnings
	out, err := c.Output()
	if err != nil || warnings.Len() > 0 {
		t.Errorf("wanted commands without complaint, found %v\n%s", err, &warnings)
	}
	outputs := strings.Split(string(out), separator)
	if len(outputs) != len(all)+1 {
		t.Fatalf("wanted %d outputs, found %d\n%s", len(all), len(outputs)-1, out)
	}
	for i, e := range all {
		if why := differs(e.wanted, outputs[i]); why != "" {
			t.Errorf("%s\n%s", e.commands, why)
		}
	}
}

func examples(t *testing.T, file string) (all []example) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		switch {
		case m[1] == "sh":
			all = append(all, example{commands: m[2]})
		case len(all) == 0 || all[len(all)-1].wanted != "":
			t.Fatalf("wanted commands before this:\n%s", m[2])
		default:
			all[len(all)-1].wanted = m[2]
		}
	}
	if len(all) < 5 {
		t.Fatalf("wanted the document's examples, found %d", len(all))
	}
	return all
}

// differs says how two texts of JSON differ; "…" in the first stands for any string.
func differs(wanted, found string) string {
	if wanted == "" && found == "" {
		return ""
	}
	w, err := decode(wanted)
	if err != nil {
		return fmt.Sprintf("the document's JSON: %v\n%s", err, wanted)
	}
	f, err := decode(found)
	if err != nil {
		return fmt.Sprintf("the answer: %v\n%s", err, found)
	}
	return compare("", w, f)
}

func decode(text string) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return v, d.Decode(&v)
}

func compare(path string, wanted, found any) string {
	switch w := wanted.(type) {
	case map[string]any:
		f, ok := found.(map[string]any)
		if !ok || len(f) != len(w) {
			return fmt.Sprintf("at %q: wanted %v, found %v", path, wanted, found)
		}
		for name := range w {
			if why := compare(path+"."+name, w[name], f[name]); why != "" {
				return why
			}
		}
		return ""
	case []any:
		f, ok := found.([]any)
		if !ok || len(f) != len(w) {
			return fmt.Sprintf("at %q: wanted %v, found %v", path, wanted, found)
		}
		for i := range w {
			if why := compare(fmt.Sprintf("%s[%d]", path, i), w[i], f[i]); why != "" {
				return why
			}
		}
		return ""
	}
	if s, ok := found.(string); wanted == "…" && ok && s != "" || wanted == found {
		return ""
	}
	return fmt.Sprintf("at %q: wanted %v, found %v", path, wanted, found)
}
