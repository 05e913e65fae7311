// wattle policy: access policies of a server: is one well, and what does it decide?

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/server/policy"
)

// policyVariable names the environment variable that stands in for --policy.
const policyVariable = "WATTLE_POLICY"

const policyLong = `A policy says who may do what with a server. It is a file of lines with three fields, each a list
separated by commas; what no line allows is denied:

  # who                          verbs             what
  uri:spiffe://bank/teller       read,append       account,loan
  uri:spiffe://bank/batch/*      lease             projector/*
  dns:ops.bank.example           *                 *

Who is "uri:", "dns:" or "email:" and the name in the client's certificate, "token:" and the name of
a token, "proxy:" and what a trusted proxy says, or anonymous. Verbs are read, append, fence, trim,
snapshot, hold, lease, admin, diagnose, publish and consume. What is categories and topics, for
lease names of leases. A '*' at the end of a name stands for all that begin so.`

func (a *app) policyCommand() *cobra.Command {
	c := &cobra.Command{Use: "policy", Short: "check a server's access policy, and what it decides", Long: policyLong}
	group(c)
	c.AddCommand(a.policyCheckCommand(), a.policyLintCommand())
	return c
}

// decisionJSON is a decision as -o json prints it.
type decisionJSON struct {
	Identity string      `json:"identity"`
	Verb     policy.Verb `json:"verb"`
	Resource string      `json:"resource"`
	Allowed  bool        `json:"allowed"`
	Rule     string      `json:"rule"`
}

func (a *app) policyCheckCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "check IDENTITY VERB CATEGORY",
		Short: "explain what a policy decides",
		Long: `Check prints if an identity may do something with a category, topic or (verb lease) lease, and the
line of the policy that says so, or what is missing. "*" asks for all categories, as a feed without
a filter does. It ends with exit code 4 if it is denied.`,
		Example: `  wattle policy check uri:spiffe://bank/teller append account --policy policy
  wattle policy check token:dev read '*' --policy policy -o json`,
		Args: arguments("IDENTITY", "VERB", "CATEGORY"),
		RunE: func(_ *cobra.Command, args []string) error {
			verb := policy.Verb(args[1])
			if !slices.Contains(policy.Verbs(), verb) {
				return &usageError{"a verb: " + verbNames(", "), fmt.Sprintf("%q", args[1]), ""}
			}
			if file == "" {
				file = a.env(policyVariable)
			}
			if file == "" {
				return &usageError{"the file of a policy", "none", "give --policy or set " + policyVariable}
			}
			p, err := policy.Load(file)
			if err != nil {
				return &coded{err, exitBadInput}
			}
			return a.printDecision(decisionJSON{Identity: args[0], Verb: verb, Resource: args[2]}, p.Decide(args[0], verb, args[2]))
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return strings.Split(verbNames(","), ","), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	c.Flags().StringVar(&file, "policy", "", "`FILE` with the policy (default $"+policyVariable+")")
	return c
}

func verbNames(between string) string {
	var names []string
	for _, v := range policy.Verbs() {
		names = append(names, string(v))
	}
	return strings.Join(names, between)
}

func (a *app) printDecision(j decisionJSON, d policy.Decision) error {
	j.Allowed, j.Rule = d.Allowed, d.Rule
	var err error
	if a.output == outputJSON {
		err = a.printJSON(j)
	} else {
		word := map[bool]string{true: "allowed", false: "denied"}[d.Allowed]
		err = a.printRows([][]string{{"DECISION", "WHY"}, {word, printable(d.Rule)}})
	}
	if err == nil && !d.Allowed {
		err = &refusal{printable(fmt.Sprintf("a right of %s to %s on %s", j.Identity, j.Verb, j.Resource)), printable(d.Rule), "add a line to the policy"}
	}
	return err
}

func (a *app) policyLintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE",
		Short: "say if a policy is well formed",
		Long: `Lint reads a policy as a server does: a verb that is not known, a name that can never match, a line
that adds nothing, a file that is cut off are errors that name the line, with exit code 7.`,
		Example: "  wattle policy lint policy",
		Args:    arguments("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := policy.Load(args[0])
			if err != nil {
				return &coded{err, exitBadInput}
			}
			if a.output == outputJSON {
				return a.printJSON(map[string]int{"rules": p.Len()})
			}
			return a.printRows([][]string{{"RULES"}, {fmt.Sprint(p.Len())}})
		},
	}
}
