// The file as rules.

package policy

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// LineError says what is wrong with a line of a policy. Line 0 is the file as a whole.
type LineError struct {
	Line          int
	Wanted, Found string
}

func (e *LineError) Error() string {
	where := ""
	if e.Line > 0 {
		where = fmt.Sprintf("line %d: ", e.Line)
	}
	return fmt.Sprintf("policy: %swanted %s, found %s", where, e.Wanted, e.Found)
}

// Load reads a policy from a file of at most MaxFileBytes. An error is about the file, or
// a *LineError.
func Load(file string) (*Policy, error) {
	text, err := readBounded(file)
	if err != nil {
		return nil, err
	}
	return Parse(string(text))
}

func readBounded(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return text, nil
}

// Parse reads a policy. An error is a *LineError: the first that is wrong.
func Parse(text string) (*Policy, error) {
	switch {
	case len(text) > MaxFileBytes:
		return nil, &LineError{0, fmt.Sprintf("at most %d bytes", MaxFileBytes), "more"}
	case text != "" && !strings.HasSuffix(text, "\n"):
		return nil, &LineError{strings.Count(text, "\n") + 1, "a line break at the end of the file", "none: is it cut off?"}
	}
	p, by, n := &Policy{}, map[pattern][]int{}, 0
	for line := range strings.Lines(text) {
		n++
		r, err := parseLine(n, strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"))
		if err != nil {
			return nil, err
		}
		if r == nil {
			continue
		}
		if len(p.rules) == MaxRules {
			return nil, &LineError{n, fmt.Sprintf("at most %d rules", MaxRules), "more"}
		}
		if err := p.adds(r, by); err != nil {
			return nil, err
		}
		p.rules = append(p.rules, *r)
	}
	return p, nil
}

// adds refuses a rule all of which an earlier one says already. by has the rules with a
// name in their first field.
func (p *Policy) adds(r *rule, by map[pattern][]int) error {
	for _, i := range by[r.identities[0]] {
		if old := &p.rules[i]; within(r.identities, old.identities) && within(r.resources, old.resources) &&
			(old.verbs == nil || r.verbs != nil && !slices.ContainsFunc(r.verbs, func(v Verb) bool { return !slices.Contains(old.verbs, v) })) {
			return &LineError{r.line, "a rule that adds something", fmt.Sprintf("one that line %d says already", old.line)}
		}
	}
	for _, id := range r.identities {
		by[id] = append(by[id], len(p.rules))
	}
	return nil
}

// within says if each of some patterns is one of others too.
func within(some, others []pattern) bool {
	return !slices.ContainsFunc(some, func(p pattern) bool { return !slices.Contains(others, p) })
}

// parseLine returns nil for a line without a rule.
func parseLine(n int, line string) (*rule, error) {
	if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }) {
		return nil, &LineError{n, "UTF-8 without control characters", quoted(line)}
	}
	fields := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
	if i := slices.IndexFunc(fields, func(f string) bool { return strings.HasPrefix(f, "#") }); i >= 0 {
		fields = fields[:i]
	}
	switch {
	case len(fields) == 0:
		return nil, nil
	case len(fields) != 3:
		return nil, &LineError{n, "three fields: who, verbs, what", fmt.Sprintf("%d in %s", len(fields), quoted(line))}
	}
	r := &rule{line: n, text: strings.Join(fields, " ")}
	var err error
	if r.verbs, err = parseVerbs(n, fields[1]); err != nil {
		return nil, err
	}
	if r.identities, err = parsePatterns(n, "an identity", fields[0], identityRule); err != nil {
		return nil, err
	}
	check := categoryRule
	if r.may(Lease) {
		check = leaseRule
	}
	if r.verbs != nil && r.may(Lease) && len(r.verbs) > 1 {
		return nil, &LineError{n, "lease on a line of its own, for its names are those of leases", quoted(fields[1])}
	}
	if r.resources, err = parsePatterns(n, "a name", fields[2], check); err != nil {
		return nil, err
	}
	if r.verbs != nil && slices.Contains(r.verbs, Diagnose) && !slices.Contains(r.resources, pattern{"", true}) {
		return nil, &LineError{n, "diagnose on *, for it is about the whole store", quoted(fields[2])}
	}
	return r, nil
}

// parseVerbs returns nil for all.
func parseVerbs(n int, field string) ([]Verb, error) {
	if field == All {
		return nil, nil
	}
	var list []Verb
	for name := range strings.SplitSeq(field, ",") {
		v := Verb(name)
		switch {
		case !slices.Contains(verbs, v):
			return nil, &LineError{n, fmt.Sprintf("verbs: * or of %v", verbs), quoted(name)}
		case slices.Contains(list, v):
			return nil, &LineError{n, "each verb once", "twice " + name}
		}
		list = append(list, v)
	}
	return list, nil
}

// parsePatterns reads names of which a '*' may be the end; check says what is wrong with
// one, "" for nothing.
func parsePatterns(n int, what, field string, check func(pattern) string) ([]pattern, error) {
	var list []pattern
	for name := range strings.SplitSeq(field, ",") {
		p := pattern{name: name}
		p.name, p.prefix = strings.CutSuffix(name, All)
		wrong := check(p)
		switch {
		case name == "":
			wrong = what + " between commas"
		case len(name) > MaxNameBytes:
			wrong = fmt.Sprintf("%s of at most %d bytes", what, MaxNameBytes)
		case strings.Contains(p.name, All):
			wrong = "'*' at the end only"
		}
		switch {
		case wrong != "":
			return nil, &LineError{n, wrong, quoted(name)}
		case slices.Contains(list, p):
			return nil, &LineError{n, "each name once", "twice " + quoted(name)}
		case len(list) == MaxNames:
			return nil, &LineError{n, fmt.Sprintf("at most %d names in a field", MaxNames), "more"}
		}
		list = append(list, p)
	}
	return list, nil
}

// kinds are how identities begin.
var kinds = []string{"uri:", "dns:", "email:", "token:", "proxy:"}

// Anonymous is the identity of whoever comes without one, where that is allowed.
const Anonymous = "anonymous"

// identityRule refuses what no identity can be.
func identityRule(p pattern) string {
	if name, dns := strings.CutPrefix(p.name, "dns:"); dns && name != strings.ToLower(name) {
		return "a host name in lower case, as identities have it"
	}
	known := func(k string) bool { return strings.HasPrefix(p.name, k) && (p.prefix || len(p.name) > len(k)) }
	if p == (pattern{"", true}) || p == (pattern{Anonymous, false}) || slices.ContainsFunc(kinds, known) {
		return ""
	}
	return "an identity that begins with " + strings.Join(kinds, " ") + ", or is " + Anonymous + " or *"
}

// categoryRule refuses what no category can be called.
func categoryRule(p pattern) string {
	if strings.ContainsAny(p.name, "-.>") || len(p.name) > 64 {
		return "a category: at most 64 bytes, none of - . >"
	}
	return ""
}

func leaseRule(pattern) string { return "" }
