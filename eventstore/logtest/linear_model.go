// Linear, the model: one stream as porcupine sees it, a pure function from a state,
// a call and its answer to the next state. The rules are the model's (see model.go).

package logtest

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
	"github.com/wattle-es/wattle/eventstore"
)

// linearCall is a call that concerns one stream.
type linearCall struct {
	op     string // append, fence, head, read, load, trim
	stream eventstore.Stream

	sent    *linearBatch     // append
	holder  eventstore.UUID  // fence
	at      eventstore.Epoch // fence; 0: the next
	after   eventstore.Seqno // read
	limit   int              // read, load
	through eventstore.Seqno // trim
	dry     bool             // trim
}

// linearBatch is a batch, as one or several calls send it, and its entries. A batch
// goes nowhere but behind its mark, so where they would stand is known.
type linearBatch struct {
	batch   eventstore.Batch
	entries []*modelEntry
}

func newLinearBatch(b eventstore.Batch) *linearBatch {
	sent := &linearBatch{batch: whole(b)}
	for i, e := range sent.batch.Events {
		sent.entries = append(sent.entries, &modelEntry{event: untraced(e), batch: &sent.batch, stream: b.Stream, seqno: b.After.Seqno + eventstore.Seqno(i) + 1})
	}
	return sent
}

// linearAnswer is what the log answered.
type linearAnswer struct {
	unknown bool               // nothing is known of the call: its effect may come at any time, or never
	err     *eventstore.Error  // a refusal
	head    eventstore.Head    // fence, head, load
	receipt eventstore.Receipt // append
	page    []eventstore.Entry // read, load; events without their trace
	end     bool               // read, load
	trim    eventstore.TrimResult
	token   eventstore.Position // append; compared with what is read, not by the model
}

// linearModel is the model for porcupine. States are *modelStream and never change.
var linearModel = porcupine.Model{
	Partition: byStream,
	Init:      func() any { return &modelStream{} },
	Step: func(state, input, output any) (bool, any) {
		ok, next := input.(*linearCall).step(state.(*modelStream), output.(*linearAnswer))
		return ok, next
	},
	Equal: func(a, b any) bool {
		x, y := a.(*modelStream), b.(*modelStream)
		return x == y || x.head == y.head && slices.Equal(x.entries, y.entries)
	},
	Hash: func(state any) uint64 {
		h := state.(*modelStream).head
		return binary.BigEndian.Uint64(h.Last.ID[8:]) ^ uint64(h.Last.Seqno)<<8 ^ uint64(h.Epoch)<<20 ^ uint64(h.Trimmed)<<40
	},
	DescribeOperation: func(input, output any) string { return describeCall(input.(*linearCall), output.(*linearAnswer)) },
	DescribeState:     func(state any) string { return describeHead(state.(*modelStream).head) },
}

// byStream: a log is linearizable if each of its streams is, as long as no call
// concerns two of them.
func byStream(history []porcupine.Operation) [][]porcupine.Operation {
	of := map[eventstore.Stream]int{}
	var parts [][]porcupine.Operation
	for _, op := range history {
		s := op.Input.(*linearCall).stream
		i, ok := of[s]
		if !ok {
			i = len(parts)
			of[s] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], op)
	}
	return parts
}

// step says if the stream could have given this answer, and what it is then.
//
// A call of which nothing is known takes effect as far as it can. That it never did
// is the same as taking effect behind all that was seen, which its open end allows.
func (c *linearCall) step(st *modelStream, a *linearAnswer) (bool, *modelStream) {
	if a.err != nil && a.err.Stream != c.stream {
		return false, st
	}
	switch c.op {
	case "append":
		return c.stepAppend(st, a)
	case "fence":
		return c.stepFence(st, a)
	case "trim":
		return c.stepTrim(st, a)
	case "head":
		return !a.unknown && a.err == nil && a.head == st.head, st
	case "read":
		return c.stepRead(st, a, c.after), st
	default: // load
		return (a.err != nil || a.head == st.head) && c.stepRead(st, a, 0), st
	}
}

func (c *linearCall) stepAppend(st *modelStream, a *linearAnswer) (bool, *modelStream) {
	b := &c.sent.batch
	there, kind := st.judge(b)
	if a.err != nil {
		e := a.err
		right := e.Kind == kind || st.loose(b) && (e.Kind == eventstore.ErrBatchIDReused || e.Kind == st.rank(b))
		return right && e.Head != nil && *e.Head == st.head && e.Unprovable == (e.Kind == eventstore.ErrUnknown), st
	}
	next := st
	if !there && kind == nil {
		next = st.with(c.sent)
	}
	if a.unknown {
		return true, next
	}
	h, last := next.head, len(b.Events)-1
	want := eventstore.Receipt{Stream: b.Stream, First: b.After.Seqno + 1, Last: eventstore.Mark{Seqno: b.Last(), ID: b.Events[last].ID},
		Replays: there, Fenced: h.Epoch != b.Epoch || h.Holder != b.Holder}
	return kind == nil && a.receipt == want, next
}

// loose says that a batch has the ID, and another content, of one that was trimmed in
// part or wholly. What is left may or may not prove that; none of it lets it pass.
func (st *modelStream) loose(b *eventstore.Batch) bool {
	was := st.standing(b)
	return was != nil && was != b && st.head.Trimmed > b.After.Seqno && !sameContent(*was, *b)
}

// with returns the stream with a batch written to it.
func (st *modelStream) with(sent *linearBatch) *modelStream {
	next, b := *st, &sent.batch
	next.entries = append(slices.Clip(st.entries), sent.entries...)
	next.head.Epoch, next.head.Holder = b.Epoch, b.Holder
	next.head.Last = eventstore.Mark{Seqno: b.Last(), ID: b.Events[len(b.Events)-1].ID}
	return &next
}

func (c *linearCall) stepFence(st *modelStream, a *linearAnswer) (bool, *modelStream) {
	next, at := *st, c.at
	if at == 0 {
		at = st.head.Epoch + 1
	}
	granted := at > st.head.Epoch || at == st.head.Epoch && c.holder == st.head.Holder
	if granted {
		next.head.Epoch, next.head.Holder = at, c.holder
	}
	switch {
	case a.unknown:
		return true, &next
	case a.err != nil:
		return !granted && a.err.Kind == eventstore.ErrFenced && a.err.Head != nil && *a.err.Head == st.head, st
	}
	return granted && a.head == next.head, &next
}

func (c *linearCall) stepTrim(st *modelStream, a *linearAnswer) (bool, *modelStream) {
	next := *st
	to := max(min(c.through, st.head.Last.Seqno), st.head.Trimmed)
	if !c.dry {
		next.head.Trimmed = to
	}
	if a.unknown || a.err != nil {
		return a.unknown, &next
	}
	// Whether the head is named is not said.
	named := a.trim.StoppedBy == "" || c.through > st.head.Last.Seqno && strings.HasPrefix(a.trim.StoppedBy, "head at ")
	return a.trim.Trimmed == to && named, &next
}

func (c *linearCall) stepRead(st *modelStream, a *linearAnswer, after eventstore.Seqno) bool {
	if trimmed := after < st.head.Trimmed; trimmed || a.unknown || a.err != nil {
		return trimmed && a.err != nil && a.err.Kind == eventstore.ErrTrimmed && a.err.First == st.head.Trimmed+1
	}
	want := st.entries[min(after, eventstore.Seqno(len(st.entries))):]
	end := len(want) <= c.limit
	return a.end == end && slices.EqualFunc(a.page, want[:min(len(want), c.limit)], isEntry)
}

func isEntry(e eventstore.Entry, m *modelEntry) bool {
	return e.Stream == m.stream && e.Seqno == m.seqno && e.Epoch == m.batch.Epoch && e.BatchID == m.batch.ID && sameEvent(e.Event, m.event)
}

// linearKind returns the one kind of an error, or nil if it has none or several.
func linearKind(err error) (kind error) {
	for _, s := range sentinels {
		switch {
		case !errors.Is(err, s):
		case kind != nil:
			return nil
		default:
			kind = s
		}
	}
	return kind
}
