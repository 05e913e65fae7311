// Package conformance runs any handler on any carrier through the same cases: what the
// contract demands of all, and what the domain demands of this one.
//
// Each rule is a sentence that is true of a right handler. A [Case] says what the domain
// wants: given these events, when this command comes, then these events follow. Run it
// against the native handler, a URL, a subject and a WebAssembly module, and they are
// proved to be the same.
package conformance

import (
	"context"
	"fmt"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
)

// Case is a decision. Its name is unique among cases, the rest as in a Request.
type Case struct {
	Name     string
	Stream   eventstore.Stream
	Given    []handler.Event
	When     handler.Command
	Then     []handler.Event // that follow; not looked at if Rejected is set
	Rejected string          // the code of the refusal
}

// Options of a run; nil and zero fields are the defaults.
type Options struct {
	Cases []Case
	// Entries are what a handler that projects is given, in the order of their positions,
	// and Documents what it is to have made of them. Nil: whatever it makes.
	Entries   []handler.Entry
	Documents map[string][]byte
	// TooLarge is a request whose reply is longer than the carrier lets through, or the
	// caller: that is tried too. Nil: it is not.
	TooLarge *handler.Request
	// Parallel is how many calls are made at once where a rule wants several. 0: 4.
	Parallel int
	// Caller are the options of the caller, its limits among them.
	Caller *handler.Options
}

// Finding is a rule that was broken.
type Finding struct {
	Rule string
	Case string // empty: it is no single case
	Err  error
}

func (f Finding) String() string {
	if f.Case == "" {
		return fmt.Sprintf("%s: %v", f.Rule, f.Err)
	}
	return fmt.Sprintf("%s: %s: %v", f.Rule, f.Case, f.Err)
}

// Result is what came of a run.
type Result struct {
	Description handler.Description
	Rules       []string // that were tried
	Calls       int      // that were made
	Findings    []Finding
}

// maxFindings ends a run that would say the same over and over.
const maxFindings = 50

// rule is one sentence and what tries it.
type rule struct {
	says string
	ops  []handler.Op // tried only if the handler has all of them
	try  func(*run)
}

// Run tries all rules that concern the handler's capabilities. It makes a few calls for
// each rule and about ten for each case.
func Run(ctx context.Context, h handler.Handler, o *Options) (Result, error) {
	if o == nil {
		o = &Options{}
	}
	r := &run{ctx: ctx, h: h, o: *o}
	if r.o.Parallel <= 0 {
		r.o.Parallel = 4
	}
	caller, err := handler.NewCaller(ctx, r.counted(), r.o.Caller)
	if err != nil {
		return Result{}, err
	}
	r.caller, r.result.Description = caller, caller.Description()
	for _, rule := range slices.Concat(general, decisions, projections) {
		if slices.ContainsFunc(rule.ops, func(op handler.Op) bool { return !r.result.Description.Can(op) }) {
			continue
		}
		if ctx.Err() != nil {
			return r.result, ctx.Err()
		}
		if len(r.result.Findings) >= maxFindings {
			break
		}
		r.result.Rules = append(r.result.Rules, rule.says)
		r.rule = rule.says
		rule.try(r)
	}
	r.result.Calls = int(r.calls.Load())
	return r.result, nil
}
