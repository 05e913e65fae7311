// The keeper of a member: leases, beat by beat, and what is taken up and given up.

package topic

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/sharing"
)

// keep beats until ctx ends or something fails that does not pass by itself.
func (m *member) keep(ctx context.Context) {
	var failing time.Time
	pause := time.Duration(0)
	for ctx.Err() == nil {
		eager, err := m.beat(ctx)
		m.setIll(err != nil)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failing, pause = time.Time{}, min(m.c.o.ttl/3, maxBeat)
			if eager {
				pause = min(pause, eagerInterval)
			}
		case !temporary(err) && !errors.Is(err, eventstore.ErrUnknown):
			m.fail(err)
			return
		default:
			if failing.IsZero() {
				failing, pause = time.Now(), 0
			}
			if time.Since(failing) > m.c.o.ttl {
				m.fail(err)
				return
			}
			pause = min(max(2*pause, minRetryPause), maxRetryPause)
		}
		m.rest(ctx, pause)
	}
}

// rest pauses. When leases run out meanwhile what is held is left.
func (m *member) rest(ctx context.Context, pause time.Duration) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-m.kick:
	}
	if m.share != nil && m.share.Expired() {
		m.drop(func(int, *part) bool { return true })
	}
}

func (m *member) setIll(is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ill = is
}

// healthy says if the member has reached the store when it tried last.
func (m *member) healthy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.ill && time.Now().Before(m.until)
}

// beat looks at everything once. eager says that there is more to come.
func (m *member) beat(ctx context.Context) (eager bool, err error) {
	if m.share == nil || m.share.Expired() {
		m.drop(func(int, *part) bool { return true })
		if err := m.takeUp(ctx); err != nil {
			return false, err
		}
	}
	if err := m.refresh(ctx); err != nil {
		return false, err
	}
	items := make([]string, m.spec.Partitions)
	for p := range items {
		items[p] = partitionItem(p)
	}
	s, err := m.share.Share(ctx, sharing.Division{Items: items, Leave: m.leave, Stand: m.stand})
	if err == nil {
		_, err = m.stand(ctx, nil)
	}
	if errors.Is(err, eventstore.ErrLeaseLost) {
		m.share = nil // what is held is the other's, or nobody's
	}
	if err != nil {
		return false, err
	}
	m.reconcile(s)
	more, err := m.acquire(ctx, s.Mine)
	return more || s.Eager, err
}

// takeUp takes up anew all leases that are this member's, from a Consume call before this
// one: it keeps them, under higher epochs, and that call ends. But that may be frozen and
// learn of it late, so none of them is released before they would have run out for it. If
// the member has no seat it takes one.
func (m *member) takeUp(ctx context.Context) error {
	u := eventstore.LeaseUpdate{Holder: m.id, TTL: m.c.o.ttl, Prefix: consumerPrefix(m.spec.Name, m.name)}
	all, err := m.c.store.UpdateLeases(ctx, u)
	if err != nil {
		return err
	}
	seat, taken := "", map[string]bool{}
	for _, l := range all {
		item := strings.TrimPrefix(l.Name, u.Prefix)
		if l.Left <= 0 || l.Holder.IsZero() {
			continue
		}
		taken[item] = true
		if l.Holder != m.id {
			continue
		}
		if strings.HasPrefix(item, seatNames) {
			if m.seat != 0 && l.Epoch != m.seat {
				return m.superseded()
			}
			seat = l.Name
		}
		u.Acquire = append(u.Acquire, l.Name)
	}
	before := len(u.Acquire) > 0
	if seat == "" {
		seat = u.Prefix + sharing.FreeSeat(seatNames, func(seat string) bool { return taken[seat] })
		u.Acquire = append(u.Acquire, seat)
	}
	if all, err = m.c.store.UpdateLeases(ctx, u); err != nil {
		return err
	}
	if before {
		m.alone = time.Now().Add(m.c.o.ttl)
	}
	m.seat = 0
	if i := slices.IndexFunc(all, func(l eventstore.Lease) bool { return l.Name == seat && l.Holder == m.id && l.Left > 0 }); i >= 0 {
		m.seat = all[i].Epoch
	}
	m.share = sharing.New(m.c.store, sharing.Options{Holder: m.id, TTL: m.c.o.ttl, Prefix: u.Prefix, Seats: seatNames})
	return nil
}

// stand looks whose seat is held: that of a Consume of the same member that came since ends
// this one, before it touches what that one has. One that was lost, as the leases ran out
// while the process was frozen, is taken anew.
func (m *member) stand(context.Context, []eventstore.Lease) (bool, error) {
	seat, taken := m.share.Seat()
	switch {
	case seat == nil:
		return true, nil
	case m.seat != 0 && seat.Epoch != m.seat && !taken:
		return false, m.superseded()
	}
	m.seat = seat.Epoch
	return true, nil
}

// leave is told which items are above the share, and says which can be released now.
func (m *member) leave(items []string) (can []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, item := range items {
		p, ok := numberOf(item, m.spec.Partitions)
		held := m.parts[p]
		if !ok || held == nil && !time.Now().Before(m.alone) {
			can = append(can, item)
			continue
		}
		if held == nil {
			continue
		}
		if held.leaving.IsZero() {
			held.leaving = time.Now()
			m.tellLocked()
			m.wakeKeeper() // another broker may have taken the commits: see refresh
		}
		done := held.delivered.Seqno <= held.pos.at.Seqno || time.Since(held.leaving) >= m.c.o.ttl/2
		if done && !time.Now().Before(m.alone) {
			can = append(can, item)
		}
	}
	return can
}

// refresh reads the positions of partitions to be given up: they may have been committed
// through another broker.
func (m *member) refresh(ctx context.Context) error {
	m.mu.Lock()
	var waiting []int
	for p, held := range m.parts {
		if !held.leaving.IsZero() && held.delivered.Seqno > held.pos.at.Seqno {
			waiting = append(waiting, p)
		}
	}
	m.mu.Unlock()
	return each(len(waiting), func(i int) error {
		pos, err := m.c.loadPosition(ctx, m.topic, positionStream(m.spec.Name, waiting[i], m.name))
		if err == nil && pos.holder == m.id {
			m.committed(waiting[i], pos)
		}
		return err
	})
}

// reconcile drops what is no longer held.
func (m *member) reconcile(s sharing.Shares) {
	prefix := consumerPrefix(m.spec.Name, m.name)
	mine, held := map[int]eventstore.Epoch{}, map[int]eventstore.Epoch{}
	for _, l := range s.All {
		if p, ok := numberOf(strings.TrimPrefix(l.Name, prefix), m.spec.Partitions); ok && l.Holder == m.id {
			held[p] = l.Epoch
		}
	}
	for _, l := range s.Mine {
		if p, ok := numberOf(strings.TrimPrefix(l.Name, prefix), m.spec.Partitions); ok {
			mine[p] = l.Epoch
		}
	}
	m.drop(func(p int, one *part) bool { return held[p] != one.lease.Epoch })
	m.mu.Lock()
	defer m.mu.Unlock()
	if !time.Now().Before(m.until) {
		select {
		case m.changed <- struct{}{}: // the flow may be waiting for this
		default:
		}
	}
	m.until = m.share.Until()
	for p, one := range m.parts {
		if !one.leaving.IsZero() && mine[p] == one.lease.Epoch { // within the share again
			one.leaving = time.Time{}
			m.tellLocked()
		}
	}
}

// drop removes partitions from those that are delivered.
func (m *member) drop(lost func(p int, one *part) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p, one := range m.parts {
		if lost(p, one) {
			delete(m.parts, p)
			m.tellLocked()
		}
	}
}

// acquire takes up partitions whose leases are new, some at a time: meanwhile nothing is
// renewed.
func (m *member) acquire(ctx context.Context, mine []eventstore.Lease) (more bool, err error) {
	prefix := consumerPrefix(m.spec.Name, m.name)
	var fresh []eventstore.Lease
	m.mu.Lock()
	for _, l := range mine {
		p, ok := numberOf(strings.TrimPrefix(l.Name, prefix), m.spec.Partitions)
		if ok && m.parts[p] == nil {
			fresh = append(fresh, l)
		}
	}
	m.mu.Unlock()
	if more = len(fresh) > acquireAtOnce; more {
		fresh = fresh[:acquireAtOnce]
	}
	err = each(len(fresh), func(i int) error {
		p, _ := numberOf(strings.TrimPrefix(fresh[i].Name, prefix), m.spec.Partitions)
		return m.take(ctx, p, fresh[i])
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(fresh) > 0 || !m.met {
		m.met = true
		m.tellLocked()
	}
	return more, err
}
