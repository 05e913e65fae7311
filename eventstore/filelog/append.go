// Append, Fence and Trim: decisions on heads.

package filelog

import (
	"context"

	"github.com/wattle-es/wattle/eventstore"
)

// Append writes all batches or none, as one record.
func (l *Log) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if err := a.CheckShape(); err != nil {
		return eventstore.Appended{}, err
	}
	var done eventstore.Appended
	err := l.change(ctx, "append", a.Batches[0].Stream, payload(&a), func(g *group) (body, error) {
		write, receipts, token, err := l.decideAppend(g, &a)
		if err != nil {
			return nil, err
		}
		if !write {
			done = l.appended(receipts, token)
			return nil, nil
		}
		b, last := g.append(&a)
		done = l.appended(nil, last)
		for i := range a.Batches {
			done.Receipts = append(done.Receipts, a.Batches[i].Written())
		}
		return b, nil
	})
	if err != nil {
		return eventstore.Appended{}, err
	}
	return done, nil
}

func payload(a *eventstore.Append) (n int) {
	for i := range a.Batches {
		for j := range a.Batches[i].Events {
			n += len(a.Batches[i].Events[j].Data)
		}
	}
	return n
}

func (l *Log) appended(receipts []eventstore.Receipt, last eventstore.Position) eventstore.Appended {
	out := eventstore.Appended{Receipts: receipts}
	if last > 0 {
		out.Token = eventstore.Token{Incarnation: l.incarnation, Position: last}
	}
	return out
}

// decideAppend says whether the batches are to be written, are there already (with
// their receipts and the position of the last one), or are refused.
func (l *Log) decideAppend(g *group, a *eventstore.Append) (write bool, receipts []eventstore.Receipt, last eventstore.Position, err error) {
	var v eventstore.Verdict
	g.found = g.found[:0]
	for i := range a.Batches {
		b := &a.Batches[i]
		c, st, err := g.find("append", b.Stream)
		g.found = append(g.found, found{c, st})
		switch {
		case err == errStaged:
			return false, nil, 0, err
		case err != nil:
			v.Refuse(err)
			continue
		case b.Passes(headIn(st)):
			v.Pass()
			continue
		case g.streams[b.Stream] != nil:
			return false, nil, 0, errStaged // its entries can be read once they are written
		}
		seen, err := l.seen(b, st)
		if err != nil {
			return false, nil, 0, err
		}
		receipt, err := b.Judge(seen)
		if err != nil {
			v.Refuse(err)
			continue
		}
		v.Prove(b, seen.Head)
		receipts = append(receipts, receipt)
		last = max(last, positionOf(seen.Around, b.Last()))
	}
	for _, gd := range a.Guards {
		_, st, err := g.find("append", gd.Stream)
		switch {
		case err == errStaged:
			return false, nil, 0, err
		case err != nil:
			v.RefuseGuard(err)
		case !gd.Passes(headIn(st)):
			v.RefuseGuard(gd.Refusal(headIn(st)))
		}
	}
	write, err = v.Settle()
	return write, receipts, last, err
}

func positionOf(entries []eventstore.Entry, n eventstore.Seqno) eventstore.Position {
	for i := range entries {
		if entries[i].Seqno == n {
			return entries[i].Position
		}
	}
	return 0
}

// seen gathers what Judge wants to know of a batch's stream.
func (l *Log) seen(b *eventstore.Batch, st *stagedStream) (eventstore.Seen, error) {
	s := eventstore.Seen{Head: headIn(st)}
	if st == nil || b.After.Seqno > s.Head.Last.Seqno {
		return s, nil
	}
	from := max(b.After.Seqno, s.Head.Trimmed+1, 1)
	to := min(b.Last()+1, s.Head.Last.Seqno)
	for from <= to {
		p, err := l.page("append", b.Stream, from-1, int(to-from)+1)
		if err != nil {
			return s, err
		}
		if len(p.Entries) == 0 {
			break
		}
		s.Around = append(s.Around, p.Entries...)
		from = p.Entries[len(p.Entries)-1].Seqno + 1
	}
	return s, nil
}

// append stages the batches that decideAppend has looked at just now, and returns their
// record and the position of its last entry.
func (g *group) append(a *eventstore.Append) (appendBody, eventstore.Position) {
	clock := g.log.now()
	position := eventstore.Position(g.next)
	out := appendBody{batches: make([]batch, len(a.Batches))}
	for i := range a.Batches {
		b := &a.Batches[i]
		c := g.found[i].category
		st := g.reach(c, g.found[i].stream, b.Stream)
		to := &out.batches[i]
		*to = batch{streamRef: st.streamRef, epoch: b.Epoch, holder: b.Holder, id: b.ID, time: g.now(st, clock),
			first: b.After.Seqno + 1, count: len(b.Events), lastID: b.Events[len(b.Events)-1].ID, events: b.Events}
		if !c.dedicated() {
			to.position = position
			position += eventstore.Position(len(b.Events))
		}
		st.time = to.time
		st.head.Epoch, st.head.Holder = b.Epoch, b.Holder
		st.head.Last = eventstore.Mark{Seqno: to.last(), ID: to.lastID}
	}
	if position == eventstore.Position(g.next) {
		return out, 0
	}
	return out, position - 1
}

// Fence grants the next epoch, or the one given.
func (l *Log) Fence(ctx context.Context, s eventstore.Stream, holder eventstore.UUID, at eventstore.Epoch) (eventstore.Head, error) {
	var head eventstore.Head
	err := l.change(ctx, "fence", s, 0, func(g *group) (body, error) {
		c, st, err := g.find("fence", s)
		if err != nil {
			return nil, err
		}
		granted, err := headIn(st).Grant(s, holder, at)
		if err != nil {
			return nil, err
		}
		st = g.reach(c, st, s)
		st.head.Epoch, st.head.Holder = granted, holder
		head = st.head
		return fenceBody{st.streamRef, granted, holder}, nil
	})
	if err != nil {
		return eventstore.Head{}, err
	}
	return head, nil
}

// Trim removes entries as far as is allowed. What is removed can no longer be read when
// it returns; its space comes back later, see Reclaim.
func (l *Log) Trim(ctx context.Context, s eventstore.Stream, through eventstore.Seqno, dry bool) (out eventstore.TrimResult, err error) {
	if dry && l.readOnly {
		return l.dryTrim(ctx, s, through)
	}
	err = l.change(ctx, "trim", s, 0, func(g *group) (body, error) {
		c, st, err := g.alone("trim", s)
		if err != nil || st == nil {
			return nil, err
		}
		before := st.head.Trimmed
		if out, err = l.trimmed(c, st, through); err != nil || dry || out.Trimmed == before {
			return nil, err
		}
		b := trimBody{streamRef: st.ref(), through: out.Trimmed}
		if !c.dedicated() {
			p, err := l.page("trim", s, out.Trimmed-1, 1)
			if err != nil {
				return nil, err
			}
			b.position = positionOf(p.Entries, out.Trimmed)
		}
		return b, nil
	})
	if err != nil {
		return eventstore.TrimResult{}, err
	}
	return out, nil
}

// dryTrim is a dry Trim on a log that has no writer. Nobody else changes its registry
// while the follower is held.
func (l *Log) dryTrim(ctx context.Context, s eventstore.Stream, through eventstore.Seqno) (eventstore.TrimResult, error) {
	if err := l.begin(ctx, "trim", s); err != nil {
		return eventstore.TrimResult{}, err
	}
	l.follower.mu.Lock()
	defer l.follower.mu.Unlock()
	c, st, err := l.reg.find("trim", s)
	if err != nil || st == nil {
		return eventstore.TrimResult{}, err
	}
	return l.trimmed(c, st, through)
}

// trimmed is what a trim comes to.
func (l *Log) trimmed(c *category, st *stream, through eventstore.Seqno) (eventstore.TrimResult, error) {
	f, err := l.floor(c, st, through)
	return eventstore.TrimResult{Trimmed: max(f.To, st.head.Trimmed), StoppedBy: f.StoppedBy}, err
}

// floor returns how far a trim may go and what stops it there.
func (l *Log) floor(c *category, st *stream, through eventstore.Seqno) (eventstore.TrimFloor, error) {
	f := eventstore.TrimFloor{To: through}
	f.Head(st.head.Last.Seqno)
	if !c.spec.TrimFreely {
		var sn *eventstore.Snapshot
		if st.snapshot != nil {
			sn = &eventstore.Snapshot{At: st.snapshot.at}
		}
		f.Snapshot(sn)
	}
	for _, h := range l.reg.holdsOver(st) {
		first := h.Seqno
		if h.Stream == "" {
			var err error
			if first, err = l.firstFrom(st, h.Position); err != nil {
				return f, err
			}
		}
		f.Hold(h, first)
	}
	return f, nil
}
