// wattle verify --repair: saving what can be saved of a damaged store in files.

package main

import (
	"context"
	"fmt"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
)

// repairedJSON is what -o json prints.
type repairedJSON struct {
	Store    string `json:"store"`
	Repaired bool   `json:"repaired"`
	countsJSON
	Findings []findingJSON `json:"findings"`
}

// repair says what would be done, asks, and does it.
func (a *app) repair(ctx context.Context, t *open.Target, yes bool) error {
	if !t.InFiles() {
		return &usageError{"a store in files for --repair", t.String(), "restore a backup of the database"}
	}
	found, err := t.Repair(ctx, true)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return a.printRepaired(t, nil, false)
	}
	if a.output != outputJSON {
		if err := a.printFindings(found); err != nil {
			return err
		}
	}
	what := fmt.Sprintf("This repairs the store %s: every fault above is lost for good, unless you have a backup; damaged files are kept under other names", t)
	if err := a.confirm(yes, what, t.Word()); err != nil {
		return err
	}
	if found, err = t.Repair(ctx, false); err != nil {
		return err
	}
	return a.printRepaired(t, found, true)
}

func (a *app) printFindings(found []eventstore.Finding) error {
	var table columns
	for _, f := range found {
		if err := a.printFinding(&table, f); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printRepaired(t *open.Target, found []eventstore.Finding, repaired bool) error {
	out := repairedJSON{Store: t.String(), Repaired: repaired, Findings: []findingJSON{}}
	for _, f := range found {
		out.add(f.Severity)
		out.Findings = append(out.Findings, toFindingJSON(f))
	}
	if a.output == outputJSON {
		return a.printJSON(out)
	}
	if !repaired {
		_, err := fmt.Fprintf(a.stdout, "nothing to repair in %s\n", t)
		return err
	}
	var aside []eventstore.Finding
	for _, f := range found {
		if f.Check == "aside" {
			aside = append(aside, f)
		}
	}
	if err := a.printFindings(aside); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.stdout, "repaired %s: %s; run wattle verify now\n", t, out.countsJSON.String())
	return err
}
