// wattle policy and wattle cert.

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func policyFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestPolicyCheck(t *testing.T) {
	t.Parallel()
	file := policyFile(t, "# x\nuri:spiffe://bank/* read,append account,loan*\n")
	wattle(t, "policy", "check", "uri:spiffe://bank/teller", "append", "loanbook", "--policy", file).wants(t, 0, "allowed", "line 2: uri:spiffe://bank/* read,append account,loan*")
	wattle(t, "policy", "check", "uri:spiffe://bank/teller", "read", "*", "--policy", file).wants(t, exitRefused, "denied", `no line for this identity has read on "*"`)
	wattle(t, "policy", "check", "dns:x", "read", "account", "--policy", file).wants(t, exitRefused, "no line is for this identity")
	wattle(t, "policy", "check", "dns:x\r\nforged", "read", "account", "--policy", file).wants(t, exitRefused, "no line is for this identity")
	env := func(name string) string { return map[string]string{policyVariable: file}[name] }
	var d decisionJSON
	r := wattleIn(t, env, "", "policy", "check", "uri:spiffe://bank/a", "read", "account", "-o", "json").wants(t, 0)
	if err := json.Unmarshal([]byte(r.out), &d); err != nil || !d.Allowed || d.Verb != "read" || d.Rule == "" {
		t.Errorf("%s %v", r.out, err)
	}
	wattle(t, "policy", "check", "a", "read", "b").wants(t, exitUsage, "WATTLE_POLICY")
	wattle(t, "policy", "check", "a", "write", "b", "--policy", file).wants(t, exitUsage, "append", `"write"`)
	wattle(t, "policy", "check", "a", "read").wants(t, exitUsage, "IDENTITY and VERB and CATEGORY")
	wattle(t, "policy", "check", "a", "read", "b", "--policy", policyFile(t, "dns:a read\n")).wants(t, exitBadInput, "line 1")
}

func TestPolicyLint(t *testing.T) {
	t.Parallel()
	wattle(t, "policy", "lint", policyFile(t, "dns:a read b\ndns:b read c\n")).wants(t, 0, "2")
	wattle(t, "policy", "lint", policyFile(t, "dns:a read b\n"), "-o", "json").wants(t, 0, `{"rules":1}`)
	wattle(t, "policy", "lint", policyFile(t, "dns:a read b\n\nwho? read c\n")).wants(t, exitBadInput, "line 3", "who?")
	wattle(t, "policy", "lint", "/nowhere/policy").wants(t, exitBadInput, "/nowhere/policy")
}

func TestCert(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "certs")
	wattle(t, "cert", "--dir", dir).wants(t, 0, "authority", "localhost 127.0.0.1 ::1", "spiffe://wattle/client")
	for _, name := range []string{"ca", "server", "client"} {
		if s, err := os.Stat(filepath.Join(dir, name+".key")); err != nil || s.Mode() != 0o600 {
			t.Errorf("%s: %v %v", name, s, err)
		}
	}
	before, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	wattle(t, "cert", "--dir", dir).wants(t, exitRefused, "server.crt", "--force")
	wattle(t, "cert", "--dir", dir, "--force").wants(t, 0)
	r := wattle(t, "cert", "--dir", dir, "--client", "teller=spiffe://bank/teller", "--server", "api=api.bank.example,10.0.0.7", "-o", "json").wants(t, 0)
	var made []certJSON
	if err := json.Unmarshal([]byte(r.out), &made); err != nil || len(made) != 2 || made[0].For != "server" || strings.Join(made[0].Names, " ") != "api.bank.example 10.0.0.7" || made[1].Until.IsZero() {
		t.Errorf("%s %v", r.out, err)
	}
	alone := filepath.Join(t.TempDir(), "certs")
	wattle(t, "cert", "--dir", alone).wants(t, 0)
	if err := os.Remove(filepath.Join(alone, "ca.key")); err != nil {
		t.Fatal(err)
	}
	wattle(t, "cert", "--dir", alone, "--client", "another=spiffe://a/b").wants(t, exitRefused, "ca.key", "another --dir")
	if after, err := os.ReadFile(filepath.Join(dir, "ca.crt")); err != nil || string(after) != string(before) {
		t.Errorf("the authority is another one: %v", err)
	}
	for _, args := range [][]string{{"--client", "x"}, {"--client", "=x"}, {"--client", "x="}, {"--client", "ca=x"}, {"--client", "../x=y"}, {"--client", "x=a,b"}, {"--server", "x=a b"}, {"--days", "0"}, {"--days", "9999"}, {"x"}} {
		wattle(t, append([]string{"cert", "--dir", dir}, args...)...).wants(t, exitUsage, "wanted")
	}
}
