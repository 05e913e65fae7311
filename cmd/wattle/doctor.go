// wattle doctor: is what surrounds a store as it should be.

package main

import (
	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/eventstore"
)

func (a *app) doctorCommand() *cobra.Command {
	var fail failOn
	c := &cobra.Command{
		Use:   "doctor",
		Short: "examine what surrounds a store: server, settings and sessions, or files and space",
		Long: `Doctor looks at what surrounds a store and tells what to do about it: version and settings of
the server as the store's role has them, durability, a pooler in between and whether the query
mode suits it, sessions and transactions that hold others up, room for connections, locks and
statements, space, the schema's version and its sequence. Of a store in files: who has it open,
who else may read them, room on the disk, space that trims have left. It changes nothing, and
works where the store cannot be opened.

A finding has a severity: with a fault the store does not keep its promises here, or refuses
to work; a warning can become one; a note can be left as it is. With a fault the exit code is 8
(see --fail-on). Give the URL that your program uses: its settings count.

With -o json it is one object: faults, warnings, notes, and findings with check, severity (ok
too), wanted, found, hint.`,
		Example: `  wattle doctor
  wattle doctor --fail-on warning
  wattle doctor -o json | jq '.findings[] | select(.severity != "ok")'`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := a.target("")
			if err != nil {
				return err
			}
			all, err := t.Examine(c.Context())
			if err != nil {
				return err
			}
			counts, err := a.printExamined(t.String(), all)
			if err != nil {
				return err
			}
			return fail.judge(counts)
		},
	}
	fail.add(c)
	return c
}

// examinedJSON is what -o json prints.
type examinedJSON struct {
	Store string `json:"store"`
	countsJSON
	Findings []findingJSON `json:"findings"`
}

func (a *app) printExamined(store string, all []eventstore.Finding) (countsJSON, error) {
	out := examinedJSON{Store: store, Findings: []findingJSON{}}
	rows := [][]string{{"SEVERITY", "CHECK", "WHAT"}}
	for _, f := range all {
		out.add(f.Severity)
		out.Findings = append(out.Findings, toFindingJSON(f))
		row := findingRow(f)
		rows = append(rows, []string{row[0], row[1], row[3]})
	}
	if a.output == outputJSON {
		return out.countsJSON, a.printJSON(out)
	}
	return out.countsJSON, a.printRows(rows)
}
