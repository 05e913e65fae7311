// Decisions.

package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Policy is a parsed policy. It does not change and may be used by several goroutines at
// once. A nil one allows nothing.
type Policy struct {
	rules []rule
}

// rule is one line.
type rule struct {
	line       int
	text       string
	identities []pattern
	verbs      []Verb // nil: all
	resources  []pattern
}

// pattern is a name, or how names begin.
type pattern struct {
	name   string
	prefix bool
}

func (p pattern) String() string {
	if p.prefix {
		return p.name + All
	}
	return p.name
}

// covers says if the pattern stands for all that name stands for. A name that ends in '*'
// stands for all that begin so: only a pattern that is as wide or wider covers it.
func (p pattern) covers(name string) bool {
	if p.prefix {
		return strings.HasPrefix(name, p.name)
	}
	return p.name == name && !strings.HasSuffix(name, All)
}

func (r *rule) may(verb Verb) bool {
	return verb == Any || r.verbs == nil || slices.Contains(r.verbs, verb)
}

func (r *rule) is(identity string) bool {
	return slices.ContainsFunc(r.identities, func(p pattern) bool { return p.covers(identity) })
}

func (r *rule) holds(resource string) bool {
	return slices.ContainsFunc(r.resources, func(p pattern) bool { return p.covers(resource) })
}

// Decision is the answer to a question, and why.
type Decision struct {
	Allowed bool
	// Rule is the line that allows it, as "line 3: who verbs what"; of what is denied it
	// says what is missing.
	Rule string
}

// Decide says if an identity may do something with a resource: a category, topic or name
// of a lease. A resource that ends in '*' stands for all that begin so, "*" for all there
// are. Verb Any asks if it may do anything with it.
func (p *Policy) Decide(identity string, verb Verb, resource string) Decision {
	return p.decide(identity, verb, func(r *rule) bool { return r.holds(resource) }, "on "+quoted(resource))
}

// DecideAny says if there is a resource with which an identity may do something.
func (p *Policy) DecideAny(identity string, verb Verb) Decision {
	return p.decide(identity, verb, func(*rule) bool { return true }, "on anything")
}

func (p *Policy) decide(identity string, verb Verb, on func(*rule) bool, what string) Decision {
	if p == nil || identity == "" || strings.HasSuffix(identity, All) {
		return Decision{Rule: "no line is for nobody"}
	}
	known, able := false, false
	for i := range p.rules {
		r := &p.rules[i]
		if !r.is(identity) {
			continue
		}
		known = true
		if !r.may(verb) {
			continue
		}
		able = true
		if on(r) {
			return Decision{Allowed: true, Rule: fmt.Sprintf("line %d: %s", r.line, r.text)}
		}
	}
	return Decision{Rule: missing(known, able, verb, what)}
}

// missing says how far a question got. It repeats nothing that was not cleaned.
func missing(known, able bool, verb Verb, what string) string {
	name := string(verb)
	if verb == Any {
		name = "any verb"
	}
	switch {
	case !known:
		return "no line is for this identity"
	case !able:
		return "no line for this identity has " + name
	}
	return "no line for this identity has " + name + " " + what
}

func quoted(s string) string {
	if len(s) > maxShownBytes {
		s = strings.ToValidUTF8(s[:maxShownBytes], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

// Len returns how many rules there are.
func (p *Policy) Len() int {
	if p == nil {
		return 0
	}
	return len(p.rules)
}
