// Findings of verify and doctor: printing them, counting them, failing on them.

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/eventstore"
)

// findingJSON is a finding as -o json prints it.
type findingJSON struct {
	Check    string              `json:"check"`
	Severity eventstore.Severity `json:"severity"`
	Category eventstore.Category `json:"category,omitempty"`
	Stream   eventstore.Stream   `json:"stream,omitempty"`
	Seqno    eventstore.Seqno    `json:"seqno,omitempty"`
	Position eventstore.Position `json:"position,omitempty"`
	Wanted   string              `json:"wanted,omitempty"`
	Found    string              `json:"found"`
	Hint     string              `json:"hint,omitempty"`
}

// countsJSON is how many findings there were of each severity, shown or not.
type countsJSON struct {
	Faults   int64 `json:"faults"`
	Warnings int64 `json:"warnings"`
	Notes    int64 `json:"notes"`
}

func (c *countsJSON) add(s eventstore.Severity) {
	switch s {
	case eventstore.SeverityFault:
		c.Faults++
	case eventstore.SeverityWarning:
		c.Warnings++
	case eventstore.SeverityNote:
		c.Notes++
	}
}

// atLeast counts those of a severity and above.
func (c *countsJSON) atLeast(s eventstore.Severity) int64 {
	switch s {
	case eventstore.SeverityFault:
		return c.Faults
	case eventstore.SeverityWarning:
		return c.Faults + c.Warnings
	}
	return c.Faults + c.Warnings + c.Notes
}

func (c *countsJSON) String() string {
	return plural(c.Faults, "fault") + ", " + plural(c.Warnings, "warning") + ", " + plural(c.Notes, "note")
}

func plural(n int64, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// foundError is findings of a severity that makes the command fail.
type foundError struct{ counts countsJSON }

func (e *foundError) Error() string { return "found " + e.counts.String() }

// failOn is the flag --fail-on: from which severity on findings fail the command.
type failOn struct{ severity eventstore.Severity }

func (f *failOn) add(c *cobra.Command) {
	f.severity = eventstore.SeverityFault
	c.Flags().Var(f, "fail-on", "exit with 8 from this severity on: fault, warning or note")
	// It cannot fail: the flag is there.
	_ = c.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions([]string{"fault", "warning", "note"}, cobra.ShellCompDirectiveNoFileComp))
}

// String, Set and Type make it a flag's value.
func (f *failOn) String() string { return f.severity.String() }

func (f *failOn) Set(s string) error {
	severity, err := eventstore.ParseSeverity(s)
	if err != nil || severity == eventstore.SeverityOK {
		return fmt.Errorf("wanted fault, warning or note, found %q", s)
	}
	f.severity = severity
	return nil
}

func (f *failOn) Type() string { return "severity" }

// judge is the error that findings become.
func (f *failOn) judge(c countsJSON) error {
	if c.atLeast(f.severity) == 0 {
		return nil
	}
	return &foundError{c}
}

func toFindingJSON(f eventstore.Finding) findingJSON {
	return findingJSON{f.Check, f.Severity, f.Category, f.Stream, f.Seqno, f.Position, f.Wanted, f.Found, f.Hint}
}

// findingRow is a finding in a table: what is wrong with it in one line.
func findingRow(f eventstore.Finding) []string {
	text := printable(f.Found)
	if f.Wanted != "" {
		text = "wanted " + printable(f.Wanted) + ", found " + text
	}
	if f.Hint != "" {
		text += " (" + printable(strings.TrimSuffix(f.Hint, ".")) + ")"
	}
	return []string{f.Severity.String(), f.Check, printable(f.Where()), text}
}
