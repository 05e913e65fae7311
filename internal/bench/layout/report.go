// Medians and tables.

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// median of f over all of runs.
func median[T any](runs []T, f func(T) float64) float64 {
	values := make([]float64, len(runs))
	for i, r := range runs {
		values[i] = f(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// medianRatio is the median of f over f of the base in the same repeat.
func medianRatio[T any](runs, base []T, f func(T) float64) float64 {
	ratios := make([]float64, len(runs))
	for i := range runs {
		ratios[i] = f(runs[i]) / f(base[i])
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

// number keeps three or so digits.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// table is one of the report's.
type table struct {
	title string
	rows  [][]string
}

func newTable(title string, columns ...string) *table { return &table{title, [][]string{columns}} }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// print aligns the first column left, the others right, as Markdown.
func (t *table) print(w io.Writer) {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	fmt.Fprintf(w, "\n%s\n\n", t.title)
	for n, row := range t.rows {
		for i, cell := range row {
			if i == 0 {
				fmt.Fprintf(w, "| %-*s |", widths[i], cell)
				continue
			}
			fmt.Fprintf(w, " %*s |", widths[i], cell)
		}
		fmt.Fprintln(w)
		if n == 0 {
			fmt.Fprint(w, "|-", strings.Repeat("-", widths[0]), "-|")
			for _, width := range widths[1:] {
				fmt.Fprint(w, strings.Repeat("-", width+1), ":|")
			}
			fmt.Fprintln(w)
		}
	}
}
