// Package sharing divides named items among members by leases: the lanes of a projector
// among its workers, the partitions of topics among brokers, those of one topic among the
// members of a consumer.
//
// Each member holds a seat, by which the members count one another, and a lease for each
// item it has. Seats are numbered, so that there are never more names than members at
// once. All shares differ by one at most. Who joins, leaves, is killed or frozen changes
// who has which as soon as a beat sees it: the others keep what they have, but for what
// is above their share. A lease is advice: that nobody else acts on an item is promised
// by the fence that its holder sets at the lease's epoch.
package sharing

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

const (
	seatTries     = 3               // for a seat in one beat
	giveUpTimeout = 2 * time.Second // for releasing leases at the end
)

// Options of a Member.
type Options struct {
	Holder eventstore.UUID // zero: a new one
	TTL    time.Duration
	Prefix string // of all names, as "topic/"
	Seats  string // of the seats' names behind Prefix, as "broker/"
}

// Member is one of those who share. Its methods are called by one goroutine at a time.
type Member struct {
	store *eventstore.Store
	o     Options
	seat  *eventstore.Lease
	taken eventstore.Epoch            // of the seat if the last beat took it
	held  map[string]eventstore.Lease // items, by the lease's name
	until time.Time                   // when what is held may have run out, on this process's clock
	clock Clock
}

// Clock is the store's clock as a round trip showed it.
type Clock struct {
	store        time.Time // what it showed…
	began, ended time.Time // …at some moment between these, on this process's clock
}

// Now returns the bounds between which the store's clock is now.
func (c Clock) Now() (low, high time.Time) {
	now := time.Now()
	return c.store.Add(now.Sub(c.ended)), c.store.Add(now.Sub(c.began))
}

// New returns a member that has nothing yet.
func New(store *eventstore.Store, o Options) *Member {
	if o.Holder.IsZero() {
		o.Holder = eventstore.NewUUID()
	}
	return &Member{store: store, o: o, held: map[string]eventstore.Lease{}}
}

// Division is what is to be shared, and the member's own say in it.
type Division struct {
	// Items are the names behind the prefix of all there is to share, each once.
	Items []string
	// Stand says if the member takes its share now, or none; nil: it does. It gets all
	// leases that somebody holds.
	Stand func(context.Context, []eventstore.Lease) (bool, error)
	// Leave is told which items are to be given up and returns those that can be, nobody
	// working on them any more. Nil: all.
	Leave func(items []string) []string
}

// Shares is what a beat came to.
type Shares struct {
	// Mine are the leases of the items to work on, by name.
	Mine []eventstore.Lease
	// All are the leases under the prefix that somebody holds, seats among them, by name.
	All []eventstore.Lease
	// Seat is the member's own, nil if it has none yet.
	Seat *eventstore.Lease
	// Eager says that there is more to come: look again soon.
	Eager bool
}

// Share renews what is held, gives up what is more than the member's share or no item any
// more, and takes what is free of it: two round trips at most when somebody has come or
// gone, one when not. After an error what is held stays until [Member.Expired].
func (m *Member) Share(ctx context.Context, d Division) (Shares, error) {
	m.taken = 0
	all, err := m.renew(ctx, nil, nil)
	for range seatTries { // one that others took at the same moment is not had
		if err == nil && m.seat == nil {
			if all, err = m.renew(ctx, nil, []string{m.freeSeat(all)}); m.seat != nil {
				m.taken = m.seat.Epoch
			}
		}
	}
	if err != nil {
		return Shares{}, err
	}
	stand := true
	if d.Stand != nil {
		if stand, err = d.Stand(ctx, all); err != nil {
			return Shares{}, err
		}
	}
	most := 0
	if stand && m.seat != nil {
		most = m.shareOf(all, len(d.Items))
	}
	surplus := m.surplus(most, d.Items)
	drop := surplus
	if d.Leave != nil {
		drop = d.Leave(slices.Clone(surplus))
	}
	acquire := m.pick(all, d.Items, most)
	if len(drop) > 0 || len(acquire) > 0 {
		if all, err = m.renew(ctx, drop, acquire); err != nil {
			return Shares{}, err
		}
	}
	s := Shares{All: all, Seat: m.seat, Mine: m.mine(surplus)}
	s.Eager = len(surplus) > len(drop) || m.seat == nil || len(s.Mine) < most
	return s, nil
}

// mine are the items held but those that are to be given up.
func (m *Member) mine(surplus []string) (mine []eventstore.Lease) {
	leaving := setOf(surplus)
	for name, lease := range m.held {
		if !leaving[m.item(name)] {
			mine = append(mine, lease)
		}
	}
	slices.SortFunc(mine, func(a, b eventstore.Lease) int { return strings.Compare(a.Name, b.Name) })
	return mine
}

// item is the name of an item whose lease has this name.
func (m *Member) item(lease string) string { return strings.TrimPrefix(lease, m.o.Prefix) }

// shareOf is how many items the member is to have: all shares differ by one at most, and
// together they are all items.
func (m *Member) shareOf(all []eventstore.Lease, items int) int {
	var seats []string
	for _, lease := range all { // by name
		if m.isSeat(lease) {
			seats = append(seats, lease.Name)
		}
	}
	share := items / len(seats)
	if slices.Index(seats, m.seat.Name) < items%len(seats) {
		share++
	}
	return share
}

func (m *Member) isSeat(l eventstore.Lease) bool {
	return strings.HasPrefix(l.Name, m.o.Prefix+m.o.Seats)
}

// surplus are the items to give up: those that are none, and those above the share.
func (m *Member) surplus(most int, items []string) (drop []string) {
	is := setOf(items)
	var stay []string
	for name := range m.held {
		if item := m.item(name); is[item] {
			stay = append(stay, item)
		} else {
			drop = append(drop, item)
		}
	}
	slices.Sort(stay)
	if len(stay) > most {
		drop = append(drop, stay[most:]...)
	}
	return drop
}

func setOf(items []string) map[string]bool {
	is := make(map[string]bool, len(items))
	for _, item := range items {
		is[item] = true
	}
	return is
}

// FreeSeat is the lowest of the seats whose names begin so that is not taken.
func FreeSeat(names string, taken func(seat string) bool) string {
	for n := 0; ; n++ {
		if seat := fmt.Sprintf("%s%04d", names, n); !taken(seat) {
			return seat
		}
	}
}

// freeSeat is the lowest seat that nobody has.
func (m *Member) freeSeat(all []eventstore.Lease) string {
	return FreeSeat(m.o.Prefix+m.o.Seats, func(seat string) bool {
		return slices.ContainsFunc(all, func(l eventstore.Lease) bool { return l.Name == seat })
	})
}

// pick chooses free items up to the share. Which is left to chance, so that members that
// come at once do not all try the same.
func (m *Member) pick(all []eventstore.Lease, items []string, most int) (names []string) {
	taken := make(map[string]bool, len(all))
	for _, lease := range all {
		taken[m.item(lease.Name)] = true
	}
	free := slices.DeleteFunc(slices.Clone(items), func(item string) bool { return taken[item] })
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	for _, item := range free[:min(len(free), max(0, most-len(m.held)))] {
		names = append(names, m.o.Prefix+item)
	}
	return names
}

// renew does it all in one round trip, a few where there are more than fit into one, and
// takes note of what is held then. It returns the leases that somebody holds.
func (m *Member) renew(ctx context.Context, drop []string, acquire []string) (all []eventstore.Lease, err error) {
	u := eventstore.LeaseUpdate{Acquire: acquire}
	dropped := setOf(drop)
	for name, lease := range m.held {
		if dropped[m.item(name)] {
			u.Release = append(u.Release, lease)
		} else {
			u.Renew = append(u.Renew, lease)
		}
	}
	if m.seat != nil {
		u.Renew = append(u.Renew, *m.seat)
	}
	began := time.Now()
	for more := true; more; {
		part := cut(&u)
		more = len(u.Renew)+len(u.Acquire)+len(u.Release) > 0
		part.Holder, part.TTL, part.Prefix = m.o.Holder, m.o.TTL, m.o.Prefix
		if all, err = m.store.UpdateLeases(ctx, part); err != nil {
			return nil, err
		}
	}
	m.until = began.Add(m.o.TTL)
	for _, lease := range all {
		if lease.Holder == m.o.Holder && lease.Left > 0 {
			m.clock = Clock{lease.Until.Add(-lease.Left), began, time.Now()}
		}
	}
	return m.note(all), nil
}

// cut takes as much off an update as one call may carry: what is given up first, so that
// it is free for others.
func cut(u *eventstore.LeaseUpdate) (part eventstore.LeaseUpdate) {
	room := eventstore.MaxLeases
	part.Release, u.Release = take(u.Release, &room)
	part.Renew, u.Renew = take(u.Renew, &room)
	part.Acquire, u.Acquire = take(u.Acquire, &room)
	return part
}

func take[T any](from []T, room *int) (some, rest []T) {
	n := min(len(from), *room)
	*room -= n
	return from[:n], from[n:]
}

// note sorts what a round trip listed, and returns what somebody holds.
func (m *Member) note(listed []eventstore.Lease) (all []eventstore.Lease) {
	m.held, m.seat = map[string]eventstore.Lease{}, nil
	for _, lease := range listed {
		if lease.Left <= 0 || lease.Holder.IsZero() {
			continue
		}
		all = append(all, lease)
		switch {
		case lease.Holder != m.o.Holder:
		case m.isSeat(lease):
			m.seat = &lease
		default:
			m.held[lease.Name] = lease
		}
	}
	return all
}

// Seat returns the member's seat, nil if it has none, and says if the last beat has taken
// it. One that has another epoch than before and was not taken belongs to another member
// with the same holder.
func (m *Member) Seat() (seat *eventstore.Lease, taken bool) {
	return m.seat, m.seat != nil && m.seat.Epoch == m.taken
}

// Holder is who holds the member's leases.
func (m *Member) Holder() eventstore.UUID { return m.o.Holder }

// Expired says if what is held may be another's.
func (m *Member) Expired() bool { return !time.Now().Before(m.until) }

// Until is when it does, on this process's clock, if nothing is renewed before.
func (m *Member) Until() time.Time { return m.until }

// Clock is the store's as it was seen last; only to be asked after a Share that gave a seat.
func (m *Member) Clock() Clock { return m.clock }

// GiveUp releases all that is held, so that others need not wait for it to run out. It
// takes a moment at most, also when ctx has ended; after an error they run out.
func (m *Member) GiveUp(ctx context.Context) error {
	if len(m.held) == 0 && m.seat == nil || m.Expired() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTimeout)
	defer cancel()
	u := eventstore.LeaseUpdate{}
	for _, lease := range m.held {
		u.Release = append(u.Release, lease)
	}
	if m.seat != nil {
		u.Release = append(u.Release, *m.seat)
	}
	m.held, m.seat = map[string]eventstore.Lease{}, nil
	for len(u.Release) > 0 {
		part := cut(&u)
		part.Holder, part.TTL, part.Prefix = m.o.Holder, m.o.TTL, m.o.Prefix
		if _, err := m.store.UpdateLeases(ctx, part); err != nil {
			return err
		}
	}
	return nil
}
