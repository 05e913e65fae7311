// Printing the report: Markdown tables that read as plain text too.

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%s\n", r.Server)
	var settings []string
	for _, name := range shownSettings {
		settings = append(settings, name+"="+r.Settings[name])
	}
	fmt.Fprintf(w, "%s\n", strings.Join(settings, " "))
	fmt.Fprintf(w, "%d cores, load average %s at the start, %s; clients and server share the machine\n", r.Cores, r.LoadAverage, r.Began.Format("2006-01-02 15:04 MST"))
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		fmt.Fprintf(w, "%s: %s\n", name, r.Versions[name])
	}
	fmt.Fprintf(w, "%v s × %d interleaved repeats, medians; %d bytes of data an event\n", r.Seconds, r.Repeats, r.Payload)
	r.printAppends(w)
	r.printReads(w)
	fmt.Fprintln(w)
	for _, p := range participants {
		if about := r.About[p.name]; about != "" {
			fmt.Fprintf(w, "%s: %s\n", p.name, about)
		}
	}
	r.printLines(w, "Who is ahead of "+productName+", in what, how many times", r.Ahead)
	r.printLines(w, "Warnings", r.Warnings)
}

func (r *report) printLines(w io.Writer, title string, all []string) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s:\n", title)
	for _, s := range all {
		fmt.Fprintf(w, "- %s\n", s)
	}
}

func (r *report) printAppends(w io.Writer) {
	if len(r.Appends) == 0 {
		return
	}
	t := &table{title: fmt.Sprintf("Appends of one event, each writer to %s of its own", counted(r.Streams, "stream")),
		rows: [][]string{{"participant", "writers", "appends/s", "× floor", "min…max", "p50 µs", "p99 µs", "WAL bytes", "server CPU µs", "client CPU µs", "best in"}}}
	for _, row := range r.Appends {
		f := row.Median
		t.row(row.Participant, fmt.Sprint(row.Writers), number(f.Rate), row.Ratio.text(), row.Ratio.spread(), number(f.P50), number(f.P99), number(f.WAL),
			number(f.ServerCPU), number(f.ClientCPU), strings.Join(row.Best, ", "))
	}
	t.print(w)
}

func (r *report) printReads(w io.Writer) {
	if len(r.Reads) == 0 {
		return
	}
	t := &table{title: fmt.Sprintf("Reading with one reader: a stream of %d events; all %d events in pages of %d, and a plain scan of the same table by the same driver",
		r.ReadEntries, r.ReadStreams*r.ReadEntries, page),
		rows: [][]string{{"participant", "loads/s", "load p50 µs", "load p99 µs", "feed events/s", "scan events/s", "feed × scan", "min…max", "best in"}}}
	for _, row := range r.Reads {
		f := row.Median
		t.row(row.Participant, number(f.Load), number(f.LoadP50), number(f.LoadP99), number(f.Feed), number(f.Scan),
			row.Ratio.text(), row.Ratio.spread(), strings.Join(row.Best, ", "))
	}
	t.print(w)
}

func (r *ratio) text() string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", r.Median)
}

func (r *ratio) spread() string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f…%.2f", r.Min, r.Max)
}

// number is without a fraction, "-" for what there is not.
func number(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", v)
}

// table is one of the report's; its first row names the columns.
type table struct {
	title string
	rows  [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// print aligns the first and the last column left, the others right.
func (t *table) print(w io.Writer) {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	left := func(i int) bool { return i == 0 || i == len(widths)-1 }
	fmt.Fprintf(w, "\n%s\n\n", t.title)
	for n, row := range t.rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if left(i) {
				fmt.Fprint(w, "| ", cell, pad, " ")
			} else {
				fmt.Fprint(w, "| ", pad, cell, " ")
			}
		}
		fmt.Fprintln(w, "|")
		if n > 0 {
			continue
		}
		for i, width := range widths {
			if left(i) {
				fmt.Fprint(w, "|", strings.Repeat("-", width+2))
			} else {
				fmt.Fprint(w, "|", strings.Repeat("-", width+1), ":")
			}
		}
		fmt.Fprintln(w, "|")
	}
}
