// The report: one row for each figure, with its floor and the ratio to it.

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

type report struct {
	Began      time.Time `json:"began"`
	Took       float64   `json:"took_s"`
	Cores      int       `json:"cores"`
	LoadBefore string    `json:"load_average_before"`
	LoadAfter  string    `json:"load_average_after"`
	Seconds    float64   `json:"seconds"`
	Repeats    int       `json:"repeats"`
	Rows       []row     `json:"rows"`
}

// row is one figure: medians of interleaved repeats.
type row struct {
	Part   string  `json:"part"`
	What   string  `json:"what"`
	Unit   string  `json:"unit"`
	Value  float64 `json:"value"`
	Floor  float64 `json:"floor,omitempty"` // in the same unit; 0: there is none
	Ratio  *ratio  `json:"ratio,omitempty"` // above 1 is better than the floor, whatever the unit
	Wanted float64 `json:"wanted_ratio,omitempty"`
	Note   string  `json:"note,omitempty"`
}

// ratio is that of the two figures of one repeat.
type ratio struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func ratioOf(all []float64) *ratio {
	slices.Sort(all)
	return &ratio{Median: all[len(all)/2], Min: all[0], Max: all[len(all)-1]}
}

func (r *row) verdict() string {
	switch {
	case r.Ratio == nil || r.Wanted == 0:
		return ""
	case r.Ratio.Median >= r.Wanted:
		return fmt.Sprintf("≥ %v", r.Wanted)
	}
	return fmt.Sprintf("MISSED ≥ %v", r.Wanted)
}

func (b *bench) row(r row) { b.report.Rows = append(b.report.Rows, r) }

func (r *report) head(w io.Writer) {
	fmt.Fprintf(w, "%d cores, load average %s at the start; %v s × %d interleaved repeats, medians\n", r.Cores, r.LoadBefore, r.Seconds, r.Repeats)
}

// printRows prints the rows of one part.
func printRows(out io.Writer, rows []row) {
	if len(rows) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s\tunit\tfilelog\tfloor\tratio\tmin…max\twanted\t\n", rows[0].Part)
	for i := range rows {
		r := &rows[i]
		floor, median, spread := "", "", ""
		if r.Floor > 0 {
			floor = number(r.Floor)
		}
		if r.Ratio != nil {
			median, spread = fmt.Sprintf("%.2f", r.Ratio.Median), fmt.Sprintf("%.2f…%.2f", r.Ratio.Min, r.Ratio.Max)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.What, r.Unit, number(r.Value), floor, median, spread, r.verdict(), r.Note)
	}
	w.Flush()
}

func number(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
