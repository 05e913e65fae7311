// Taking up a partition: fence its position, read it, begin behind it.

package topic

import (
	"context"
	"errors"

	"github.com/wattle-es/wattle/eventstore"
)

// take takes up a partition under its lease. Only when the position is fenced at the
// lease's epoch is it read: what a member before could still commit is refused from then
// on, so what is read stays true.
func (m *member) take(ctx context.Context, p int, lease eventstore.Lease) error {
	stream := positionStream(m.spec.Name, p, m.name)
	m.takesAnew(p, false)
	h, err := m.c.store.FenceAt(ctx, stream, lease.Epoch, m.id)
	if errors.Is(err, eventstore.ErrFenced) {
		if lease, h, err = m.raise(ctx, stream, lease, err); lease.Epoch == 0 {
			return err // somebody else has it
		}
	}
	if err != nil {
		return err
	}
	pos, err := m.c.positionAt(ctx, m.topic, stream, h)
	if err != nil {
		return err
	}
	m.takesAnew(p, !pos.is)
	fresh := !pos.is && m.start == First
	if pos.is {
		err = m.verify(ctx, p, pos.at)
	} else {
		err = m.beginAt(ctx, p, &pos)
	}
	if refused(err) && !pos.is {
		return nil // fenced since: the next beat learns who has it
	}
	if err != nil {
		return gone("consume", m.spec.Name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if since := m.stored[p]; since.epoch == lease.Epoch && since.last.Seqno > pos.last.Seqno {
		pos = since // a Commit of its own came between, under the new epoch
	}
	if m.failed == nil {
		m.parts[p] = &part{lease: lease, pos: pos, delivered: pos.at, fresh: fresh}
	}
	return nil
}

// raise acquires a lease again until its epoch is above that of the position: the consumer
// was deleted, or the store restored. Its epoch is 0 if the lease is not to be had.
func (m *member) raise(ctx context.Context, stream eventstore.Stream, lease eventstore.Lease, cause error) (eventstore.Lease, eventstore.Head, error) {
	for range maxRaises {
		h, err := m.c.store.Head(ctx, stream)
		for range maxRaises {
			if err != nil || lease.Epoch > h.Epoch {
				break
			}
			var granted bool
			if lease, granted, err = m.c.store.AcquireLease(ctx, lease.Name, m.id, m.c.o.ttl); err == nil && !granted {
				return eventstore.Lease{}, h, nil
			}
		}
		if err != nil {
			return eventstore.Lease{}, h, err
		}
		if h, err = m.c.store.FenceAt(ctx, stream, lease.Epoch, m.id); err == nil || !errors.Is(err, eventstore.ErrFenced) {
			return lease, h, err
		}
		cause = err
	}
	return eventstore.Lease{}, eventstore.Head{}, cause
}

// beginAt is the first position of a consumer in a partition. It is kept at once: what is
// published behind it is the consumer's, whatever happens before its first commit.
func (m *member) beginAt(ctx context.Context, p int, pos *position) error {
	h, err := m.c.store.Head(ctx, streamOf(m.spec.Name, p))
	if err != nil {
		return err
	}
	if err := m.c.register(ctx, m.spec.Name, m.name); err != nil { // it may have been deleted
		return err
	}
	at := eventstore.Mark{Seqno: h.Trimmed}
	if m.start == New {
		if at = m.heads[p].Last; m.begun[p] {
			at = h.Last
		}
	}
	done, err := m.c.append(ctx, []eventstore.Batch{pos.batch(at)})
	if err != nil {
		return err
	}
	m.begun[p] = true
	pos.moved(at, done.Receipts[0])
	return nil
}

// verify compares the message at a position with what it was when it was committed.
func (m *member) verify(ctx context.Context, p int, at eventstore.Mark) error {
	stream := streamOf(m.spec.Name, p)
	found, err := m.c.markOf(ctx, "consume", stream, at.Seqno)
	if errors.Is(err, eventstore.ErrGap) || err == nil && !found.ID.IsZero() && !at.ID.IsZero() && found.ID != at.ID {
		h, herr := m.c.store.Head(ctx, stream)
		if herr != nil {
			return herr
		}
		return eventstore.DivergedError("consume", stream, at, h)
	}
	return err
}
