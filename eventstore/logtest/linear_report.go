// Linear, the report: a history that is not linearizable, made small, printed, drawn.

package logtest

import (
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
	"github.com/wattle-es/wattle/eventstore"
)

// report prints and draws the streams of a history that are not linearizable.
func (h *linearHistory) report(parts [][]porcupine.Operation) {
	for _, part := range parts {
		if linear(part) {
			continue
		}
		small := shrink(part)
		var text strings.Builder
		for _, op := range small {
			fmt.Fprintf(&text, "  %4d…%-4d client %-2d %s\n", op.Call, op.Return, op.ClientId, linearModel.DescribeOperation(op.Input, op.Output))
		}
		h.Errorf("history %d is not linearizable: no order of these %d of %d calls on %s explains their answers (start…return, ? is unknown); seed %d\n%sdrawn whole in %s",
			h.n, len(small), len(part), part[0].Input.(*linearCall).stream, h.o.Seed, text.String(), h.draw(part))
	}
}

func linear(part []porcupine.Operation) bool {
	return porcupine.CheckOperationsTimeout(linearModel, part, checkLimit) != porcupine.Illegal
}

// shrink returns a part of a stream's history that is not linearizable either: the
// shortest beginning, without the calls that it does without. What is taken out has
// had no effect, so it cannot be what the others lack.
func shrink(part []porcupine.Operation) []porcupine.Operation {
	var times []int64
	for _, op := range part {
		times = append(times, op.Return)
	}
	slices.Sort(times)
	if n := sort.Search(len(times), func(i int) bool { return !linear(until(part, times[i])) }); n < len(times) {
		part = until(part, times[n])
	}
	for i := len(part) - 1; i >= 0; i-- {
		if less := slices.Delete(slices.Clone(part), i, i+1); idle(part[i]) && !linear(less) {
			part = less
		}
	}
	slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	return part
}

// until is a history as it was known at a time: what had not returned is unknown, or
// is not there if it only reads.
func until(part []porcupine.Operation, at int64) (known []porcupine.Operation) {
	for _, op := range part {
		if op.Call > at {
			continue
		}
		if op.Return > at {
			if c := op.Input.(*linearCall); c.op == "head" || c.op == "read" || c.op == "load" {
				continue
			}
			op.Output, op.Return = &linearAnswer{unknown: true}, at+1
		}
		known = append(known, op)
	}
	return known
}

// idle says that a call has had no effect: it reads, was refused, or found its batch
// there.
func idle(op porcupine.Operation) bool {
	c, a := op.Input.(*linearCall), op.Output.(*linearAnswer)
	return c.op == "head" || c.op == "read" || c.op == "load" || a.err != nil || a.receipt.Replays
}

// draw writes a picture of a stream's history and returns the file's name.
func (h *linearHistory) draw(part []porcupine.Operation) string {
	f, err := os.CreateTemp(h.o.Dir, "wattle-linear-*.html")
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	_, info := porcupine.CheckOperationsVerbose(linearModel, part, checkLimit)
	if err := porcupine.Visualize(linearModel, info, f); err != nil {
		return err.Error()
	}
	return f.Name()
}

func describeCall(c *linearCall, a *linearAnswer) string {
	call := c.op
	switch c.op {
	case "append":
		b := &c.sent.batch
		claim := ""
		if b.Claim {
			claim = " claim"
		}
		call = fmt.Sprintf("append %s: %d after %s at%s epoch %d of %s", short(b.ID), len(b.Events), shortMark(b.After), claim, b.Epoch, short(b.Holder))
	case "fence":
		call = fmt.Sprintf("fence at %d for %s", c.at, short(c.holder))
	case "read", "load":
		call = fmt.Sprintf("%s %d after %d", c.op, c.limit, c.after)
	case "trim":
		call = fmt.Sprintf("trim through %d, dry %t", c.through, c.dry)
	}
	return call + " -> " + describeAnswer(c, a)
}

func describeAnswer(c *linearCall, a *linearAnswer) string {
	switch {
	case a.unknown:
		return "?"
	case a.err != nil && a.err.Head != nil:
		return a.err.Kind.Error() + " at " + describeHead(*a.err.Head)
	case a.err != nil:
		return fmt.Sprintf("%v, the first is %d", a.err.Kind, a.err.First)
	}
	switch c.op {
	case "append":
		return fmt.Sprintf("%d…%s, fenced %t, replays %t", a.receipt.First, shortMark(a.receipt.Last), a.receipt.Fenced, a.receipt.Replays)
	case "trim":
		return fmt.Sprintf("%d %s", a.trim.Trimmed, a.trim.StoppedBy)
	case "fence", "head":
		return describeHead(a.head)
	}
	var text []string
	for _, e := range a.page {
		text = append(text, fmt.Sprintf("%s of %s at %d", shortMark(e.Mark()), short(e.BatchID), e.Epoch))
	}
	if c.op == "load" {
		text = append([]string{describeHead(a.head)}, text...)
	}
	return fmt.Sprintf("[%s] end %t", strings.Join(text, ", "), a.end)
}

func describeHead(h eventstore.Head) string {
	return fmt.Sprintf("{epoch %d of %s, last %s, trimmed %d}", h.Epoch, short(h.Holder), shortMark(h.Last), h.Trimmed)
}

// short is the end of a UUID, which is random.
func short(u eventstore.UUID) string { return fmt.Sprintf("%x", u[13:]) }

func shortMark(m eventstore.Mark) string { return fmt.Sprintf("%d/%s", m.Seqno, short(m.ID)) }
