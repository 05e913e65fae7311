// Commit: moving the positions of a member.

package topic

import (
	"context"
	"errors"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// commitment is one place of a Commit.
type commitment struct {
	Place
	pos   position
	known bool // pos is what is believed to stand
	over  bool // nothing is left to do
	lost  bool
	to    eventstore.Mark
}

// commit is Service.Commit. Any broker serves it: that the member has the partition is
// what the fence of the position's stream says, and the append goes through only under
// it. The places of one call are written in one append.
func (c *consumers) commit(ctx context.Context, q Commit) (lost []int, err error) {
	k, err := c.lookup(ctx, "commit", q.Topic)
	if err != nil {
		return nil, err
	}
	if err := q.check(k.spec); err != nil {
		return nil, err
	}
	m := c.memberOf(memberKey{q.Topic, q.Consumer, q.Member})
	if m != nil { // those of one member would only refuse one another
		select {
		case m.committing <- struct{}{}:
			defer func() { <-m.committing }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	all := make([]*commitment, len(q.Places))
	for i, p := range q.Places {
		all[i] = &commitment{Place: p}
		if m != nil {
			all[i].pos, all[i].known = m.position(p.Partition)
		}
	}
	if err := c.settle(ctx, k.id, q, all, m); err != nil {
		return nil, err
	}
	for _, one := range all {
		if one.lost {
			lost = append(lost, one.Partition)
		}
	}
	slices.Sort(lost)
	return lost, nil
}

func (q *Commit) check(spec Spec) error {
	if q.Member.IsZero() {
		return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "commit", Category: spec.Name, Wanted: "the UUID of a member", Found: "the zero UUID"}
	}
	if err := checkConsumer("commit", spec.Name, q.Consumer); err != nil {
		return err
	}
	return checkPlaces("commit", spec, q.Places)
}

// settle writes what is to be written until nothing is left.
func (c *consumers) settle(ctx context.Context, topic eventstore.UUID, q Commit, all []*commitment, m *member) error {
	for try := 1; ; try++ {
		if err := each(len(all), func(i int) error { return c.weigh(ctx, topic, q, all[i], m) }); err != nil {
			return err
		}
		var batches []eventstore.Batch
		var moving []*commitment
		for _, one := range all {
			if !one.over {
				batches, moving = append(batches, one.pos.batch(one.to)), append(moving, one)
			}
		}
		if len(batches) == 0 {
			return nil
		}
		done, err := c.append(ctx, batches)
		if err == nil {
			return c.settled(ctx, moving, done, m)
		}
		if !refused(err) || try == commitTries {
			return err
		}
		for _, one := range moving { // one was refused: none is written
			one.known = false
		}
	}
}

// weigh decides what is to be done about a place.
func (c *consumers) weigh(ctx context.Context, topic eventstore.UUID, q Commit, one *commitment, m *member) (err error) {
	if one.over {
		return nil
	}
	if !one.known {
		one.pos, err = c.loadPosition(ctx, topic, positionStream(q.Topic, one.Partition, q.Consumer))
		if err != nil && !errors.Is(err, eventstore.ErrNoSuchCategory) {
			return err
		}
		one.known = true
	}
	switch {
	case one.pos.holder != q.Member, !one.pos.is, m != nil && m.outdated(one.Partition):
		one.lost, one.over = true, true
		if m != nil {
			m.lost(one.Partition, one.pos.epoch)
		}
		return nil
	case one.Offset <= one.pos.at.Seqno:
		one.over = true // it never falls
		return nil
	case one.to.Seqno != 0:
		return nil
	}
	if m != nil {
		one.to = m.markOf(one.Place)
	}
	if one.to.Seqno == 0 {
		one.to, err = c.markOf(ctx, "commit", streamOf(q.Topic, one.Partition), one.Offset)
	}
	return gone("commit", q.Topic, err)
}

// settled takes note of what was written.
func (c *consumers) settled(ctx context.Context, moving []*commitment, done eventstore.Appended, m *member) error {
	for i, one := range moving {
		one.pos.moved(one.to, done.Receipts[i])
		c.tidy(ctx, &one.pos)
		if m != nil {
			m.committed(one.Partition, one.pos)
		}
	}
	return nil
}
