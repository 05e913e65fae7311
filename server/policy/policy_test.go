// Decisions, the parser's refusals, and files that change.

package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sample = `# the bank
uri:spiffe://bank/teller    read,append  account,loan*   # its own
uri:spiffe://bank/batch/*   read         *
uri:spiffe://bank/batch/*	lease        projector/*,one lease*
dns:ops.bank.example        *            *
token:dev                   publish      clicks
token:dev                   consume      click*
token:doctor                diagnose     *
anonymous                   read         public
`

func parsed(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDecide(t *testing.T) {
	p := parsed(t, strings.ReplaceAll(sample, "one lease*", "one-lease"))
	for _, c := range []struct {
		identity string
		verb     Verb
		resource string
		want     bool
		rule     string
	}{
		{"uri:spiffe://bank/teller", Read, "account", true, "line 2: uri:spiffe://bank/teller read,append account,loan*"},
		{"uri:spiffe://bank/teller", Append, "loan", true, "line 2"},
		{"uri:spiffe://bank/teller", Append, "loanbook", true, "line 2"},
		{"uri:spiffe://bank/teller", Append, "loan*", true, "line 2"},
		{"uri:spiffe://bank/teller", Append, "loa*", false, `no line for this identity has append on "loa*"`},
		{"uri:spiffe://bank/teller", Append, "*", false, ""},
		{"uri:spiffe://bank/teller", Append, "Account", false, ""},
		{"uri:spiffe://bank/teller", Append, "accounts", false, ""},
		{"uri:spiffe://bank/teller", Append, "account*", false, ""},
		{"uri:spiffe://bank/teller", Append, "", false, ""},
		{"uri:spiffe://bank/teller", Fence, "account", false, "no line for this identity has fence"},
		{"uri:spiffe://bank/teller2", Read, "account", false, "no line is for this identity"},
		{"uri:spiffe://bank/Teller", Read, "account", false, ""},
		{"dns:uri:spiffe://bank/teller", Read, "account", false, ""},
		{"spiffe://bank/teller", Read, "account", false, ""},
		{"uri:spiffe://bank/batch/", Read, "any", true, "line 3"},
		{"uri:spiffe://bank/batch/a", Read, "*", true, "line 3"},
		{"uri:spiffe://bank/batch", Read, "*", false, ""},
		{"uri:spiffe://bank/batch/*", Read, "*", false, "nobody"},
		{"uri:spiffe://bank/batch/a", Lease, "projector/x/1", true, "line 4"},
		{"uri:spiffe://bank/batch/a", Lease, "one-lease", true, "line 4"},
		{"uri:spiffe://bank/batch/a", Lease, "projector/*", true, "line 4"},
		{"uri:spiffe://bank/batch/a", Lease, "proj*", false, ""},
		{"uri:spiffe://bank/batch/a", Append, "projector/x", false, ""},
		{"dns:ops.bank.example", Diagnose, "*", true, "line 5"},
		{"dns:ops.bank.example", Lease, "whatever", true, "line 5"},
		{"dns:ops.bank.example.evil", Read, "account", false, ""},
		{"token:dev", Publish, "clicks", true, "line 6"},
		{"token:dev", Consume, "clicky", true, "line 7"},
		{"token:dev", Publish, "clicky", false, ""},
		{"token:dev", Read, "clicks", false, ""},
		{"token:dev", Any, "clicky", true, "line 7"},
		{"token:dev", Any, "account", false, `any verb on "account"`},
		{"token:doctor", Diagnose, "*", true, "line 8"},
		{"anonymous", Read, "public", true, "line 9"},
		{"anonymous", Read, "account", false, ""},
		{"", Read, "public", false, "nobody"},
		{"*", Read, "public", false, "nobody"},
	} {
		d := p.Decide(c.identity, c.verb, c.resource)
		if d.Allowed != c.want || !strings.Contains(d.Rule, c.rule) || d.Rule == "" {
			t.Errorf("%s %s %q: %+v, want %v by %q", c.identity, c.verb, c.resource, d, c.want, c.rule)
		}
	}
	if d := p.DecideAny("token:dev", Consume); !d.Allowed {
		t.Errorf("%+v", d)
	}
	if d := p.DecideAny("token:dev", Read); d.Allowed || !strings.Contains(d.Rule, "read") {
		t.Errorf("%+v", d)
	}
	if d := p.DecideAny("token:none", Any); d.Allowed {
		t.Errorf("%+v", d)
	}
}

// Nothing is allowed where nothing is said.
func TestDenyByDefault(t *testing.T) {
	var none *Policy
	for _, p := range []*Policy{none, parsed(t, ""), parsed(t, "# only this\n\n")} {
		for _, v := range append(Verbs(), Any) {
			if p.Decide("dns:a", v, All).Allowed || p.DecideAny("dns:a", v).Allowed || p.Decide("", v, "").Allowed {
				t.Errorf("%s is allowed", v)
			}
		}
		if p.Len() != 0 {
			t.Error(p.Len())
		}
	}
}

// What is asked comes from outside: it cannot make a line of a log.
func TestQuestionsAreClean(t *testing.T) {
	p := parsed(t, "dns:a read b\n")
	d := p.Decide("dns:a", Read, "x\r\nlevel=INFO forged"+strings.Repeat("y", 10_000))
	if strings.ContainsAny(d.Rule, "\r\n") || len(d.Rule) > 300 {
		t.Errorf("%q", d.Rule)
	}
}

func TestMistakes(t *testing.T) {
	long := strings.Repeat("x", MaxNameBytes+1)
	for text, want := range map[string]string{
		"dns:a read b":                                   "line 1: wanted a line break at the end of the file",
		"dns:a read b\ndns:b read":                       "line 2: wanted a line break",
		"\n\ndns:a read\n":                               "line 3: wanted three fields: who, verbs, what, found 2",
		"dns:a read b c\n":                               "found 4 in",
		"dns:a write b\n":                                `line 1: wanted verbs: * or of [read append`,
		"dns:a read,write b\n":                           `found "write"`,
		"dns:a READ b\n":                                 `found "READ"`,
		"dns:a read,read b\n":                            "each verb once",
		"dns:a read,* b\n":                               "wanted verbs",
		"dns:a , b\n":                                    "wanted verbs",
		"dns:Ops.Bank read b\n":                          "in lower case",
		"dns:OPS* read b\n":                              "in lower case",
		"a read b\n":                                     "an identity that begins with uri: dns:",
		"URI:a read b\n":                                 "an identity that begins with",
		"dns: read b\n":                                  "an identity that begins with",
		"dn* read b\n":                                   "an identity that begins with",
		"anon* read b\n":                                 "an identity that begins with",
		"dns:*a read b\n":                                "'*' at the end only",
		"dns:** read b\n":                                "'*' at the end only",
		"dns:a,dns:a read b\n":                           "each name once",
		"dns:a, read b\n":                                "an identity between commas",
		"dns:a read ,b\n":                                "a name between commas",
		"dns:a read b,b\n":                               "each name once",
		"dns:a read *b\n":                                "'*' at the end only",
		"dns:a read b-1\n":                               "a category",
		"dns:a read b.c\n":                               "a category",
		"dns:a read b-*\n":                               "a category",
		"dns:a read " + long[:65] + "\n":                 "a category: at most 64 bytes",
		"dns:a lease " + long + "\n":                     "at most 256 bytes",
		"dns:" + long + " read b\n":                      "at most 256 bytes",
		"dns:a read,lease b\n":                           "lease on a line of its own",
		"dns:a diagnose b\n":                             "diagnose on *",
		"dns:a read,diagnose b*\n":                       "diagnose on *",
		"dns:a read b\ndns:b read c\ndns:a read b\n":     "line 3: wanted a rule that adds something, found one that line 1 says already",
		"dns:a read,append b,c\ndns:a append c\n":        "line 2: wanted a rule that adds something",
		"dns:a * *\ndns:a read *\n":                      "line 2: wanted a rule that adds something",
		"dns:a\x00 read b\n":                             "control characters",
		"dns:\xff read b\n":                              "UTF-8",
		"dns:a\rread b c\n":                              "control characters",
		"dns:a read " + strings.Repeat("x,", 70) + "x\n": "each name once",
		"deny dns:a read b\n":                            "three fields",
		strings.Repeat("#", MaxFileBytes) + "\n":         "at most 1048576 bytes",
	} {
		_, err := Parse(text)
		if _, ok := errors.AsType[*LineError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
		if err != nil && (len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\r\n\x00")) {
			t.Errorf("%.60q: %q", text, err)
		}
	}
	var many strings.Builder
	for i := range MaxRules + 1 {
		fmt.Fprintf(&many, "dns:a%d read b\n", i)
	}
	if _, err := Parse(many.String()); err == nil || !strings.Contains(err.Error(), "at most 10000 rules") {
		t.Error(err)
	}
	if _, err := Parse("dns:a read b\r\ndns:b read c # with CR\r\n"); err != nil {
		t.Errorf("line breaks of Windows: %v", err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	next := file + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
}

// A change is in force at once and whole; a broken file changes nothing and is told.
func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy")
	if _, err := Follow(file); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("no file: %v", err)
	}
	write(t, file, "dns:a read")
	if _, err := Follow(file); err == nil {
		t.Fatal("a broken file at the start")
	}
	write(t, file, "dns:a read b\n")
	c, err := Follow(file)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(changed bool, broken string, generation uint64, b, x bool) {
		t.Helper()
		got, err := c.Reload()
		s := c.State()
		if got != changed || (err == nil) != (broken == "") || err != nil && !strings.Contains(err.Error(), broken) ||
			s.Generation != generation || (s.Broken == nil) != (broken == "") || s.Since.IsZero() != (broken == "") {
			t.Fatalf("changed %v, %v, state %+v", got, err, s)
		}
		if c.Decide("dns:a", Read, "b").Allowed != b || c.Decide("dns:a", Read, "x").Allowed != x {
			t.Fatal("another policy is in force")
		}
	}
	expect(false, "", 1, true, false)
	write(t, file, "dns:a read x\n")
	expect(true, "", 2, false, true)
	write(t, file, "dns:a read b\ndns:c\n")
	expect(false, "line 2", 2, false, true)
	since := c.State().Since
	expect(false, "line 2", 2, false, true)
	if c.State().Since != since {
		t.Error("broken since when has changed")
	}
	write(t, file, "dns:a read x\n")
	expect(false, "", 2, false, true)
	write(t, file, "") // by who writes it anew
	expect(false, "empty file", 2, false, true)
	write(t, file, "dns:a read x\n")
	expect(false, "", 2, false, true)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	expect(false, "no such file", 2, false, true)
	write(t, file, "dns:a read b,x\n")
	expect(true, "", 3, true, true)
	write(t, file, "# nobody\n")
	expect(true, "", 4, false, false)
	c.Set(nil)
	if c.Decide("dns:a", Read, "b").Allowed || c.State().Generation != 5 {
		t.Error("Set")
	}
	fixed := Fixed(c.State().Policy)
	if changed, err := fixed.Reload(); changed || err != nil || fixed.State().Generation != 1 {
		t.Error(changed, err)
	}
}

// Whoever decides while it changes gets the old policy or the new one.
func TestReloadWhileDeciding(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy")
	write(t, file, "dns:a read b\n")
	c, err := Follow(file)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				p := c.State().Policy
				if p.Decide("dns:a", Read, "b").Allowed == p.Decide("dns:a", Read, "x").Allowed {
					t.Error("neither the old policy nor the new one")
					return
				}
			}
		})
	}
	for i := range 50 {
		write(t, file, []string{"dns:a read x\n", "dns:a read b\n"}[i%2])
		if changed, err := c.Reload(); !changed || err != nil {
			t.Error(changed, err)
		}
	}
	close(done)
	wg.Wait()
}

// FuzzParse: a policy that parses allows nothing to nobody, and a rule of it says what it is.
func FuzzParse(f *testing.F) {
	f.Add(strings.ReplaceAll(sample, "one lease*", "one-lease"))
	f.Add("* * *\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			if _, ok := errors.AsType[*LineError](err); !ok {
				t.Fatal(err)
			}
			return
		}
		if p.Decide("", Any, "").Allowed || p.Decide("*", Any, "").Allowed {
			t.Fatal("allowed to nobody")
		}
		for _, r := range p.rules {
			again, err := Parse(r.text + "\n")
			if err != nil || again.Len() != 1 || again.rules[0].text != r.text {
				t.Fatalf("%q: %v", r.text, err)
			}
		}
	})
}
