// Linear, the clients: what they call, and what they believe of a stream.

package logtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// linearClient is one client of a history. It is one goroutine's, and its beliefs may
// be out of date.
type linearClient struct {
	*linearHistory
	id      int
	rng     *rand.Rand
	store   *eventstore.Store
	holder  eventstore.UUID
	believe map[*linearStream]eventstore.Head
	unsure  *linearBatch // the last one whose outcome it did not learn
}

func (h *linearHistory) client(id int) *linearClient {
	return &linearClient{linearHistory: h, id: id, rng: rand.New(rand.NewPCG(h.o.Seed, uint64(h.n)<<16|uint64(id))),
		store: h.stores[id%len(h.stores)], holder: h.holders[id%len(h.holders)], believe: map[*linearStream]eventstore.Head{}}
}

// act draws a call and makes it.
func (c *linearClient) act() {
	if c.unsure != nil && c.rng.IntN(2) == 0 {
		c.append(c.unsure)
		return
	}
	s := c.streams[c.rng.IntN(len(c.streams))]
	switch n := c.rng.IntN(100); {
	case n < 45:
		c.append(c.batch(s))
	case n < 50:
		c.ahead(s)
	case n < 59:
		c.again(s)
	case n < 69:
		c.fence(s)
	case n < 78:
		c.call(s, &linearCall{op: "head"})
	case n < 88:
		c.call(s, &linearCall{op: "read", after: eventstore.Seqno(c.rng.IntN(int(c.believe[s].Last.Seqno) + 3)), limit: 1 + c.rng.IntN(12)})
	case n < 94:
		c.call(s, &linearCall{op: "load", limit: 1 + c.rng.IntN(20)})
	default:
		c.call(s, &linearCall{op: "trim", through: eventstore.Seqno(c.rng.IntN(int(c.believe[s].Last.Seqno) + 2)), dry: c.rng.IntN(4) == 0})
	}
}

// batch is one that goes through if what the client believes is so, or that breaks
// the rules of epochs or of marks.
func (c *linearClient) batch(s *linearStream) *linearBatch {
	h := c.believe[s]
	b := eventstore.Batch{ID: eventstore.NewUUID(), Stream: s.name, Epoch: h.Epoch, Holder: h.Holder, After: c.after(s, h)}
	claim := func(at eventstore.Epoch) { b.Claim, b.Epoch, b.Holder = true, max(at, 1), c.holder }
	switch n := c.rng.IntN(20); {
	case n < 8 || h.Epoch == 0:
		claim(h.Epoch + 1 + eventstore.Epoch(n/7))
	case n < 9:
		claim(h.Epoch - eventstore.Epoch(c.rng.IntN(2)))
	case n < 10:
		b.Holder = c.holder
	case n < 11:
		b.Epoch++
	default: // as the holder, whoever that is
	}
	c.fill(&b)
	return c.sends(s, b)
}

func (c *linearClient) fill(b *eventstore.Batch) {
	for i := range 1 + c.rng.IntN(3) {
		b.Events = append(b.Events, eventstore.Event{Type: "linear", Version: 1 + i, Data: fmt.Appendf(nil, "c4n4ry %d %x", c.id, c.rng.Uint32())})
	}
}

// sends makes a batch known, so that others may send it too.
func (c *linearClient) sends(s *linearStream, b eventstore.Batch) *linearBatch {
	sent := newLinearBatch(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, sent)
	return sent
}

// after is where to append: behind the head as far as is known, or somewhere else.
func (c *linearClient) after(s *linearStream, h eventstore.Head) eventstore.Mark {
	at := h.Last
	switch n := c.rng.IntN(40); {
	case n < 5:
		at.ID = eventstore.UUID{} // as one may who sends ahead
	case n < 8:
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.marks) > 0 {
			at = s.marks[c.rng.IntN(len(s.marks))]
		}
	case n < 10 && at.Seqno > 0:
		at.ID = eventstore.NewUUID() // of another history
	case n < 12:
		at = eventstore.Mark{Seqno: at.Seqno + 1 + eventstore.Seqno(c.rng.IntN(2))}
	case n < 13:
		at = eventstore.Mark{Seqno: at.Seqno + 1, ID: eventstore.NewUUID()}
	}
	return at
}

// again sends a batch that somebody has sent, as it was, from another span, or with
// another content.
func (c *linearClient) again(s *linearStream) {
	s.mu.Lock()
	var sent *linearBatch
	if n := len(s.sent); n > 0 {
		sent = s.sent[max(0, n-1-c.rng.IntN(8))]
	}
	s.mu.Unlock()
	if sent == nil {
		return
	}
	b := whole(sent.batch)
	switch c.rng.IntN(6) {
	case 0:
		b.Events[0].Metadata = eventstore.Metadata{eventstore.MetaTraceparent: "another span"}
	case 1:
		b.Events[len(b.Events)-1].Data = []byte("another content")
	case 2:
		b.Events = append(b.Events, eventstore.Event{Type: "linear", Data: []byte("one more")})
	case 3:
		b.Events = b.Events[:max(1, len(b.Events)-1)]
	default:
		c.append(sent)
		return
	}
	c.append(c.sends(s, b))
}

// ahead sends batches as an owner does who does not wait for the answers.
func (c *linearClient) ahead(s *linearStream) {
	h := c.believe[s]
	if h.Epoch == 0 {
		c.append(c.batch(s))
		return
	}
	after := h.Last
	answers := make(chan func(), 3)
	n := 2 + c.rng.IntN(2)
	for i := range n {
		b := eventstore.Batch{ID: eventstore.NewUUID(), Stream: s.name, Epoch: h.Epoch, Holder: h.Holder, After: after}
		c.fill(&b)
		sent := c.sends(s, b)
		after = eventstore.Mark{Seqno: b.Last()}
		if c.rng.IntN(2) == 0 {
			after.ID = sent.batch.Events[len(b.Events)-1].ID
		}
		call := &linearCall{op: "append", stream: s.name, sent: sent}
		id, begin := c.id+i*(c.o.Clients+1), c.clock.Add(1) // a row of its own in the drawing
		go func() {
			learn := c.send(c.ctx, id, begin, s, call)
			answers <- learn
		}()
	}
	for range n {
		(<-answers)()
	}
}

func (c *linearClient) fence(s *linearStream) {
	call := &linearCall{op: "fence", holder: c.holder}
	if h := c.believe[s]; c.rng.IntN(2) == 0 {
		call.at = max(h.Epoch+eventstore.Epoch(c.rng.IntN(4)), 2) - 1
		if c.rng.IntN(2) == 0 && !h.Holder.IsZero() {
			call.holder = h.Holder
		}
	}
	c.call(s, call)
}

func (c *linearClient) append(sent *linearBatch) {
	for _, s := range c.streams {
		if s.name == sent.batch.Stream {
			c.call(s, &linearCall{op: "append", sent: sent})
		}
	}
}

// call makes a call and learns from the answer. Some give up meanwhile, and some
// answers are lost: of a call that was not made, was made, or will be made later.
func (c *linearClient) call(s *linearStream, call *linearCall) {
	call.stream = s.name
	begin := c.clock.Add(1)
	writes := call.op == "append" || call.op == "fence" || call.op == "trim"
	ctx := c.ctx
	if c.rng.IntN(40) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.rng.IntN(3000))*time.Microsecond)
		defer cancel()
	}
	if writes && c.rng.IntN(40) == 0 {
		c.lose(begin, call)
		return
	}
	runtime.Gosched() // the call has begun: others may overtake it
	c.send(ctx, c.id, begin, s, call)()
}

func (c *linearClient) lose(begin int64, call *linearCall) {
	fate, pause := c.rng.IntN(3), time.Duration(c.rng.IntN(2000))*time.Microsecond
	c.unsure = call.sent
	switch fate {
	case 1:
		c.do(c.ctx, call)
	case 2:
		c.late.Go(func() {
			time.Sleep(pause)
			c.do(c.ctx, call)
		})
	}
	c.note(c.id, begin, call, &linearAnswer{unknown: true}, "lost")
}

// send makes the call, notes the answer and returns what is to be learned from it.
func (c *linearClient) send(ctx context.Context, id int, begin int64, s *linearStream, call *linearCall) (learn func()) {
	a, err := c.do(ctx, call)
	outcome := c.outcome(call, a, err)
	nothing := outcome == "unavailable" || outcome == "overloaded" || outcome == "gave up"
	if nothing {
		a = nil
	}
	c.note(id, begin, call, a, outcome)
	return func() {
		switch {
		case outcome == "unavailable" || outcome == "overloaded":
			c.left.Add(1) // a server that is away would use up the whole history
			time.Sleep(time.Duration(1+c.rng.IntN(8)) * time.Millisecond)
		case nothing:
		case a.unknown:
			c.unsure = call.sent
		default:
			c.learn(s, call, a)
		}
	}
}

// do makes a call through the store.
func (c *linearClient) do(ctx context.Context, call *linearCall) (*linearAnswer, error) {
	a := &linearAnswer{}
	var err error
	switch call.op {
	case "append":
		var done eventstore.Appended
		if done, err = c.store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{call.sent.batch}}); err == nil {
			a.receipt, a.token = done.Receipts[0], done.Token.Position
		}
	case "fence":
		if call.at == 0 {
			a.head, err = c.store.Fence(ctx, call.stream, call.holder)
		} else {
			a.head, err = c.store.FenceAt(ctx, call.stream, call.at, call.holder)
		}
	case "head":
		a.head, err = c.store.Head(ctx, call.stream)
	case "read":
		var p eventstore.Page
		p, err = c.store.ReadFrom(ctx, call.stream, call.after, call.limit)
		a.page, a.end = p.Entries, p.End
	case "load":
		var l eventstore.Loaded
		l, err = c.store.Log().(eventstore.Snapshots).Load(ctx, call.stream, "", call.limit)
		a.head, a.page, a.end = l.Head, l.Entries, l.End
	case "trim":
		a.trim, err = c.store.Trim(ctx, call.stream, call.through, call.dry)
	}
	for i := range a.page {
		a.page[i].Event = untraced(a.page[i].Event)
	}
	return a, err
}

// outcome names what became of a call and completes its answer with the error.
// Whatever is neither a refusal nor an answer to a fault is an error of the log.
func (c *linearClient) outcome(call *linearCall, a *linearAnswer, err error) string {
	if err == nil {
		if a.receipt.Replays {
			return "replayed"
		}
		return "ok"
	}
	kind := linearKind(err)
	e, ours := errors.AsType[*eventstore.Error](err)
	ended := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	switch {
	case !ours && ended:
		return "gave up"
	case !ours || kind == nil || kind != e.Kind:
		c.Errorf("%s %s: %T %v, want an *eventstore.Error of one kind", call.op, call.stream, err, err)
		return "gave up"
	case kind == eventstore.ErrUnavailable || kind == eventstore.ErrOverloaded:
		if !c.faulty && !ended {
			c.Errorf("%s %s: %v, and nothing was done to the log", call.op, call.stream, err)
		}
		return kind.Error()
	case kind == eventstore.ErrUnknown && !e.Unprovable:
		if !c.faulty && !ended {
			c.Errorf("%s %s: %v, and nothing was done to the log", call.op, call.stream, err)
		}
		a.unknown = true
		return kind.Error()
	}
	if kind != eventstore.ErrTrimmed && (e.Wanted == "" || e.Found == "") {
		c.Errorf("%s %s: %v does not say what was wanted and found", call.op, call.stream, err)
	}
	if a.err = e; kind == eventstore.ErrUnknown {
		return "unprovable"
	}
	return kind.Error()
}

// learn takes from an answer what it says of the stream.
func (c *linearClient) learn(s *linearStream, call *linearCall, a *linearAnswer) {
	if call.sent != nil && call.sent == c.unsure {
		c.unsure = nil
	}
	h := c.believe[s]
	switch {
	case a.err != nil && a.err.Head != nil:
		h = *a.err.Head
	case a.err != nil:
	case call.op == "append":
		if a.receipt.Last.Seqno > h.Last.Seqno {
			h.Last = a.receipt.Last
		}
		if !a.receipt.Fenced {
			h.Epoch, h.Holder = call.sent.batch.Epoch, call.sent.batch.Holder
		}
	case a.head != eventstore.Head{}:
		h = a.head
	}
	c.believe[s] = h
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Last.Seqno > 0 {
		s.marks = append(s.marks, h.Last)
	}
	for _, e := range a.page {
		s.marks = append(s.marks, e.Mark())
	}
}

// conclude reads every stream when all is over, so that what is there in the end
// must be explained too.
func (c *linearClient) conclude() {
	for _, s := range c.streams {
		for _, call := range []linearCall{{op: "head"}, {op: "load", limit: 1000}, {op: "read", limit: 1000}} {
			c.insist(s, call)
		}
		if n := c.believe[s].Trimmed; n > 0 {
			c.insist(s, linearCall{op: "read", after: n, limit: 1000})
		}
	}
}

// insist makes a call until it is answered.
func (c *linearClient) insist(s *linearStream, call linearCall) {
	for c.ctx.Err() == nil {
		made := call
		made.stream = s.name
		begin := c.clock.Add(1)
		a, err := c.do(c.ctx, &made)
		outcome := c.outcome(&made, a, err)
		if outcome == "ok" || a.err != nil {
			c.note(c.id, begin, &made, a, outcome)
			c.learn(s, &made, a)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
