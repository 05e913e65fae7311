// The report as tables for people.

package loan

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// WriteTable prints the report as aligned tables, with the same figures as the
// JSON. The error is the first of w.
func (r Report) WriteTable(w io.Writer) error {
	text := fmt.Sprintf("%d applications, %d events\n", r.Cases, r.Events)
	for _, t := range []table{r.outcomeTable(), r.monthTable(), r.workTable()} {
		text += "\n" + t.String()
	}
	_, err := io.WriteString(w, text)
	return err
}

// table is rows of cells, the header first.
type table [][]string

// String aligns the first column left and the others right.
func (t table) String() string {
	widths := make([]int, len(t[0]))
	for _, row := range t {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range t {
		fmt.Fprintf(&b, "%-*s", widths[0], row[0])
		for i, cell := range row[1:] {
			fmt.Fprintf(&b, "  %*s", widths[i+1], cell)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (r Report) outcomeTable() table {
	t := table{{"outcome", "applications", "amount sum", "amount median", "hours median", "hours p90"}}
	for _, o := range []Outcome{OutcomeApproved, OutcomeDeclined, OutcomeCancelled, OutcomeOpen} {
		a, h := r.Amount[o], r.Hours[o]
		t = append(t, []string{
			o.String(), fmt.Sprint(r.Outcomes[o]), fmt.Sprint(a.Sum), euros(a.Median), hours(h.Median), hours(h.P90),
		})
	}
	return t
}

func (r Report) monthTable() table {
	t := table{{"month", "submissions"}}
	for _, month := range slices.Sorted(maps.Keys(r.Months)) {
		t = append(t, []string{month, fmt.Sprint(r.Months[month])})
	}
	return t
}

// workTable shows every item that has hours or completions without a start.
func (r Report) workTable() table {
	t := table{{"work item", "hours", "completed without a start"}}
	items := slices.AppendSeq(slices.Collect(maps.Keys(r.Work)), maps.Keys(r.NoStart))
	slices.Sort(items)
	for _, item := range slices.Compact(items) {
		worked := r.Work[item]
		t = append(t, []string{string(item), hours(&worked), fmt.Sprint(r.NoStart[item])})
	}
	return t
}

func euros(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func hours(h *Hours) string {
	if h == nil {
		return "-"
	}
	return fmt.Sprintf("%.4f", float64(*h))
}
