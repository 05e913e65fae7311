// Configurations: strict, and the same from file, environment and flags.

package server

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	file, rules := dir+"/server.json", dir+"/policy"
	writeFile(t, rules, "dns:a read b\n")
	writeFile(t, file, `{
  "store": "file:/var/lib/bank", "listen": "127.0.0.1:4440",
  "tls": {"cert": "s.crt", "key": "s.key", "client_cas": ["a.crt", "b.crt"], "min": "1.2"},
  "policy": "`+rules+`",
  "limits": {"message_bytes": 1000, "read_timeout": "1m30s"}
}
`)
	c, err := LoadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"WATTLE_LISTEN": "127.0.0.1:1", "WATTLE_TLS_CLIENT_CAS": "c.crt,d.crt", "WATTLE_LIMITS_IDLE_TIMEOUT": "5s", "WATTLE_REFLECTION": "true", "WATTLE_LIMITS_CALLS": "7"}
	if err := c.FromEnv(func(name string) string { return env[name] }); err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Settings() {
		if s.Flag() == "limits-ratio" {
			if err := s.Set("9"); err != nil {
				t.Fatal(err)
			}
		}
	}
	o, err := c.Options()
	if err != nil {
		t.Fatal(err)
	}
	want := Limits{MessageBytes: 1000, ReadTimeout: 90 * time.Second, IdleTimeout: 5 * time.Second, Calls: 7, Ratio: 9}
	if c.Store != "file:/var/lib/bank" || c.Listen != "127.0.0.1:1" || !o.Reflection || o.Limits != want || !o.TLS.Min12 || strings.Join(o.TLS.ClientCAs, " ") != "c.crt d.crt" || !o.Policy.Decide("dns:a", "read", "b").Allowed {
		t.Errorf("%+v\n%+v", c, o)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var again Config
	if err := again.parse(text); err != nil || !reflect.DeepEqual(again, c) {
		t.Errorf("written and read again: %v\n%+v", err, again)
	}
}

func TestConfigMistakes(t *testing.T) {
	file := t.TempDir() + "/server.json"
	for text, want := range map[string]string{
		"":                                "line 1: EOF",
		"{\n\"listn\": \"x\"\n}":          `unknown field "listn"`,
		"{\n\"tls\": {\n\"crt\": \"x\"}}": `unknown field "crt"`,
		"{\"listen\": \"a\",\n\"listen\": \"b\"}":        `line 2: "listen" is there twice`,
		"{\"listen\": \"a\",\n\"LISTEN\": \"b\"}":        "is there twice",
		"{\"tls\": {\"key\": \"a\",\n\n\"key\": \"b\"}}": `line 3: "tls.key" is there twice`,
		"{\"listen\": 5}":                           "listen: wanted a value of type string, found a number",
		"{\"limits\": {\"calls\":\n 1.5}}":          "line 2: limits.calls: wanted a value of type int",
		"{\"limits\": {\"read_timeout\": \"5\"}}":   "wanted a duration as 1m30s",
		"{\"limits\": {\"read_timeout\": \"-5s\"}}": "wanted a duration as 1m30s",
		"{}\n{}":                   "line 2: wanted one object, found more",
		"{\n\"listen\": \"x\",\n}": "line 3: ",
		"[]":                       "wanted a value of type",
	} {
		writeFile(t, file, text)
		if _, err := LoadConfig(file); note(err) == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for name, change := range map[string]func(*Config){
		"cert and key": func(c *Config) { c.TLS.Cert = "x" }, "without": func(c *Config) { c.TLS.Min = "1.3" }, "1.3 or 1.2": func(c *Config) { c.TLS.Cert, c.TLS.Key, c.TLS.Min = "x", "y", "1.1" },
		"client_cas with it, found none": func(c *Config) { c.TLS.Cert, c.TLS.Key, c.TLS.Revoked = "x", "y", "z" }, "header and identities": func(c *Config) { c.Proxy.Header = "X" },
		"peer: wanted cert and key": func(c *Config) { c.Peer.Cert = "x" },
		"known by its certificate":  func(c *Config) { c.Proxy.Header, c.Proxy.Identities = "X", []string{"uri:a"} }, "no such file": func(c *Config) { c.Policy = file + ".none" },
	} {
		var c Config
		change(&c)
		if _, err := c.Options(); note(err) == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for env, want := range map[string]string{"WATTLE_INSECURE": "true or false", "WATTLE_LIMITS_CALLS": "a number", "WATTLE_LIMITS_READ_TIMEOUT": "a duration"} {
		var c Config
		err := c.FromEnv(func(name string) string { return map[string]string{env: canaryDSN}[name] })
		if note(err) == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), env) {
			t.Errorf("%s: %v", env, err)
		}
	}
}

// Every setting has a name, a text and one variable and flag of its own.
func TestSettings(t *testing.T) {
	var c Config
	seen := map[string]bool{}
	for _, s := range c.Settings() {
		if s.Name == "" || strings.HasSuffix(s.Name, ".") || s.Help == "" || seen[s.Env()] || seen[s.Flag()] {
			t.Errorf("%+v", s)
		}
		seen[s.Env()], seen[s.Flag()] = true, true
		value := map[bool]string{true: "true", false: "7"}[s.Bool()]
		if strings.HasSuffix(s.Name, "timeout") || s.Name == "lease_ttl" {
			value = "7s"
		}
		if err := s.Set(value); err != nil || s.String() != value {
			t.Errorf("%s: %v %s", s.Name, err, s)
		}
	}
	if !seen["WATTLE_STORE"] || !seen["tls-client-cas"] || len(seen) < 60 {
		t.Error(len(seen))
	}
}
