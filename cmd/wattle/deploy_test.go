// What is shipped to run a server: it is what the server takes.

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/server"
	"github.com/wattle-es/wattle/server/policy"
)

func TestDeploy(t *testing.T) {
	t.Parallel()
	c, err := server.LoadConfig("../../deploy/wattle.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Load("../../deploy/policy"); err != nil {
		t.Fatal(err)
	}
	for file, wants := range map[string][]string{
		"wattle.service": {"StateDirectory=wattle\n", "serve --config /etc/wattle/wattle.json\n"},
		"Dockerfile":     {`"serve", "--config", "/etc/wattle/wattle.json"`, "EXPOSE 4440", "golang:1.26 "},
	} {
		text, err := os.ReadFile("../../deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q", file, want)
			}
		}
	}
	if !regexp.MustCompile(`^file:/var/lib/wattle/`).MatchString(c.Store) || c.Listen != ":4440" {
		t.Errorf("the configuration has the store %s and listens on %s", c.Store, c.Listen)
	}
}
