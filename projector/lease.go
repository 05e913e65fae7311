// Leases: how workers share the lanes of a projector.

package projector

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/sharing"
)

// leases are those of one worker: a lane's is an item that the workers share.
type leases struct {
	p      *Projector
	prefix string
	member *sharing.Member
}

func newLeases(p *Projector) leases {
	prefix := p.leasePrefix()
	return leases{p: p, prefix: prefix, member: sharing.New(p.store, sharing.Options{TTL: p.o.LeaseTTL, Prefix: prefix, Seats: "worker/"})}
}

// share renews what is held, gives up what is more than this worker's share, and takes
// what is free of it. leave is told which lanes are to be given up and returns those
// that can be, nobody working on them any more. eager says that there is more to come.
func (l *leases) share(ctx context.Context, lanes int, leave func([]int) []int) (mine []int, eager bool, err error) {
	d := sharing.Division{Items: make([]string, lanes), Stand: l.mayWork,
		Leave: func(items []string) []string { return laneNames(leave(laneNumbers(items))) }}
	for lane := range lanes {
		d.Items[lane] = laneItem(lane)
	}
	got, err := l.member.Share(ctx, d)
	if err != nil {
		return nil, false, err
	}
	for _, lease := range got.Mine {
		mine = append(mine, laneNumbers([]string{strings.TrimPrefix(lease.Name, l.prefix)})...)
	}
	slices.Sort(mine)
	return mine, got.Eager || l.relaying(got.All), nil
}

// laneItem is the name of a lane's lease behind the prefix.
func laneItem(lane int) string { return fmt.Sprintf("lane/%04d", lane) }

func laneNames(lanes []int) (items []string) {
	for _, lane := range lanes {
		items = append(items, laneItem(lane))
	}
	return items
}

func laneNumbers(items []string) (lanes []int) {
	for _, item := range items {
		if lane := 0; scanLane(item, &lane) {
			lanes = append(lanes, lane)
		}
	}
	return lanes
}

func scanLane(item string, lane *int) bool {
	n, err := fmt.Sscanf(item, "lane/%d", lane)
	return n == 1 && err == nil && *lane >= 0
}

// expired says if what is held may be another's.
func (l *leases) expired() bool { return l.member.Expired() }

// relayLease is held by who changes the number of lanes: the workers stay away meanwhile.
const relayLease = "relay"

func (l *leases) relaying(all []eventstore.Lease) bool {
	return slices.ContainsFunc(all, func(lease eventstore.Lease) bool { return lease.Name == l.prefix+relayLease })
}

// mayWork says if the worker takes its share of the lanes now.
func (l *leases) mayWork(ctx context.Context, all []eventstore.Lease) (bool, error) {
	building, err := l.mayBuild(ctx)
	return building && !l.relaying(all), err
}

// giveUp releases all that is held, so that others need not wait for it to run out.
func (l *leases) giveUp(ctx context.Context) {
	if err := l.member.GiveUp(ctx); err != nil {
		l.p.logger.WarnContext(ctx, "leases not released; they run out by themselves", "ttl", l.p.o.LeaseTTL, "error", err)
	}
}

// mayBuild says if this version is live, or close behind the one that is, or one of the
// few that are built at a time. The workers of a version share its place among these.
func (l *leases) mayBuild(ctx context.Context) (bool, error) {
	behind := false
	for _, leaf := range l.p.leaves() {
		behind = behind || leaf.farBehind()
	}
	if !behind {
		return true, nil
	}
	as := eventstore.NameUUID(l.prefix)
	for n := range l.p.o.MaxRebuilds {
		_, granted, err := l.p.store.AcquireLease(ctx, fmt.Sprintf("projector-rebuild/%d", n), as, l.p.o.LeaseTTL)
		if granted || err != nil {
			return granted, err
		}
	}
	l.p.logger.InfoContext(ctx, "waiting: as many versions are being built as may be", "at most", l.p.o.MaxRebuilds)
	return false, nil
}

// farBehind says if this is a shadow that has much to read before it comes to the live
// version.
func (p *Projector) farBehind() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.layout.behind > uint64(nearPages*p.o.PageSize)
}
