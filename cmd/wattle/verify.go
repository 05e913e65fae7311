// wattle verify: is what a store has stored as it should be.

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
)

// maxShown bounds --limit: -o json keeps what it shows in memory.
const maxShown = 100_000

func (a *app) verifyCommand() *cobra.Command {
	var fail failOn
	var limit int
	var repair, yes bool
	c := &cobra.Command{
		Use:   "verify",
		Short: "check everything that a store has stored",
		Long: `Verify reads everything that is stored and tells what is wrong: gaps, entries or heads that
disagree, epochs or times that fall, batches torn apart, snapshots, holds and checkpoints that
stand on nothing, payloads the server cannot read, lost tables and indexes, a sequence that
went back. It changes nothing, holds nothing up, and may run while the store is used.

A finding has a severity: a fault is damage; a warning may be one, or a caller's doing; a note
is no damage. With a fault the exit code is 8 (see --fail-on), and 1 to 7 mean that the store
could not be verified. A store in files has a checksum over every record. One in PostgreSQL has
none: there a payload changed into another valid one is not found.

With --repair a damaged store in files is made one that opens again. It first says what is lost
and asks. Every sound record is kept; a stream with a hole is trimmed through the hole, so that
nobody reads a shorter history; entries before the hole and damaged files are put aside in the
directory. Make a copy of the directory first.

With -o json it is one object: streams and entries that were checked, faults, warnings, notes,
and findings with check, severity, category, stream, seqno, position, wanted, found, hint.`,
		Example: `  wattle verify
  wattle verify --fail-on warning -o json | jq '.findings[] | select(.check == "gap")'`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkRange("--limit", limit, 1, maxShown); err != nil {
				return err
			}
			t, err := a.target("")
			if err != nil {
				return err
			}
			if repair {
				return a.repair(c.Context(), t, yes)
			}
			counts, err := a.verify(c.Context(), t, limit)
			if err != nil {
				return err
			}
			return fail.judge(counts)
		},
	}
	fail.add(c)
	c.Flags().BoolVar(&repair, "repair", false, "save what can be saved of a damaged store in files")
	c.Flags().BoolVar(&yes, "yes", false, "with --repair: do not ask")
	c.Flags().IntVar(&limit, "limit", 1000, "show at most `N` findings; all are counted")
	return c
}

// verifiedJSON is what -o json prints.
type verifiedJSON struct {
	Store   string `json:"store"`
	Streams int64  `json:"streams"`
	Entries int64  `json:"entries"`
	countsJSON
	Findings []findingJSON `json:"findings"`
}

// verify prints what is found, as it is found where it is a table.
func (a *app) verify(ctx context.Context, t *open.Target, limit int) (countsJSON, error) {
	out := verifiedJSON{Store: t.String(), Findings: []findingJSON{}}
	var at atomic.Pointer[eventstore.Progress]
	at.Store(&eventstore.Progress{})
	began := time.Now()
	stop := a.console.progress(func() string { return verifyLine(at.Load(), time.Since(began)) })
	defer stop()
	var table columns
	shown := 0
	for f, err := range t.Verify(ctx, func(p eventstore.Progress) { at.Store(&p) }) {
		if err != nil {
			return out.countsJSON, err
		}
		if out.add(f.Severity); shown == limit {
			continue
		}
		if shown++; a.output == outputJSON {
			out.Findings = append(out.Findings, toFindingJSON(f))
		} else if err := a.console.beside(func() error { return a.printFinding(&table, f) }); err != nil {
			return out.countsJSON, err
		}
	}
	stop()
	out.Streams, out.Entries = at.Load().Streams, at.Load().Entries
	if a.output == outputJSON {
		return out.countsJSON, a.printJSON(out)
	}
	_, err := fmt.Fprintf(a.stdout, "%s, %s of %s checked: %s\n", plural(out.Streams, "stream"), entriesOf(out.Entries), t, out.countsJSON.String())
	return out.countsJSON, err
}

// printFinding prints a row, before the first one the header.
func (a *app) printFinding(table *columns, f eventstore.Finding) error {
	if *table == nil {
		*table = columns{8, 18, 24, 0} // as wide as most need
		if err := table.print(a.stdout, []string{"SEVERITY", "CHECK", "WHERE", "WHAT"}); err != nil {
			return err
		}
	}
	return table.print(a.stdout, findingRow(f))
}

func entriesOf(n int64) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

// verifyLine is the progress of verify.
func verifyLine(p *eventstore.Progress, took time.Duration) string {
	share := "  0%"
	if p.Total > 0 {
		share = fmt.Sprintf("%3.0f%%", min(100*float64(p.Entries)/float64(p.Total), 100))
	}
	return fmt.Sprintf("%s  %d streams, %s in %v", share, p.Streams, entriesOf(p.Entries), took.Round(100*time.Millisecond))
}
