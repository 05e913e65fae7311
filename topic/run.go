// Run: how brokers come to share the partitions.

package topic

import (
	"context"
	"errors"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/sharing"
)

// Run takes this broker's share of the partitions and works for them until ctx ends or
// Close is called; then it answers what is in flight, gives them up, and returns ctx's
// error, or nil. While the store cannot be reached it tries again; when the leases may
// have run out it stops to publish. One Run at a time.
//
// Of what a broker has that is killed or frozen the others have their shares within its
// lease's TTL and 5 s; what they have themselves is not touched but for what is above
// their share.
func (b *Broker) Run(ctx context.Context) error {
	outer := ctx
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := b.begin(stop); err != nil {
		return err
	}
	unsubscribe, err := b.store.Subscribe(ctx, []eventstore.Category{CategoryName}, func(eventstore.Announcement) { b.wake() })
	if err != nil {
		b.end()
		return err
	}
	defer unsubscribe()
	r := &runner{b: b, member: newMember(b)}
	for ctx.Err() == nil {
		r.rest(ctx, r.beat(ctx))
	}
	r.leaveAll()
	err = r.member.GiveUp(ctx)
	b.end()
	if err != nil {
		b.logger.WarnContext(ctx, "leases not released; they run out by themselves", "ttl", b.o.LeaseTTL, "error", err)
	}
	return outer.Err()
}

func (b *Broker) begin(stop context.CancelFunc) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.running {
		return &eventstore.Error{Kind: eventstore.ErrClosed, Op: "run broker", Wanted: "a broker that is open and not running yet", Found: "another"}
	}
	b.running, b.stop, b.ended = true, stop, make(chan struct{})
	return nil
}

func (b *Broker) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = false
	close(b.ended)
}

// Close has Run end, and waits until it has. The Store stays open.
func (b *Broker) Close() error {
	b.mu.Lock()
	b.closed = true
	stop, ended := b.stop, b.ended
	b.mu.Unlock()
	if ended != nil {
		stop()
		<-ended
	}
	return nil
}

// runner is one Run.
type runner struct {
	b        *Broker
	member   *sharing.Member
	seat     eventstore.Lease // that has been announced
	failures int
}

// rest waits until the next beat is due, or somebody pokes.
func (r *runner) rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-r.b.poke:
	case <-t.C:
	}
}

// beat looks at everything once and returns when to look again.
func (r *runner) beat(ctx context.Context) time.Duration {
	eager, err := r.look(ctx)
	full := min(r.b.o.LeaseTTL/3, maxBeat)
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		r.failures++
		if r.member.Expired() {
			r.stopAll() // others may have them by now
		}
		r.b.logger.WarnContext(ctx, "broker cannot see to its partitions; trying again", "tries", r.failures, "error", err)
		return min(full, resendMax)
	case eager:
		r.failures = 0
		return min(full, eagerBeat)
	}
	r.failures = 0
	return full
}

// look sees which topics there are and shares their partitions.
func (r *runner) look(ctx context.Context) (eager bool, err error) {
	// A store that does not answer must not keep what is held beyond its time.
	ctx, cancel := context.WithTimeout(ctx, r.patience())
	defer cancel()
	// Topics that cannot be listed now, and an address that cannot be told, keep nobody
	// from what is known already.
	trouble := r.b.refresh(ctx)
	var items []string
	wanted := map[string]place{}
	for _, spec := range r.b.specs() {
		for n := range spec.Partitions {
			p := place{spec.Name, n}
			items = append(items, p.item())
			wanted[leasePrefix+p.item()] = p
		}
	}
	got, err := r.member.Share(ctx, sharing.Division{Items: items, Leave: r.leave})
	if err != nil {
		return false, err
	}
	r.b.note(got.All)
	if got.Seat != nil && (got.Seat.Name != r.seat.Name || got.Seat.Epoch != r.seat.Epoch) {
		if err := r.b.announceSeat(ctx, *got.Seat); err != nil {
			trouble = errors.Join(trouble, err)
		} else {
			r.seat = *got.Seat
		}
	}
	again := r.assign(got, wanted)
	return got.Eager || again, trouble
}

// patience is how long a beat may take: until the leases have run out, and as long as one
// lasts when there are none.
func (r *runner) patience() time.Duration {
	if left := time.Until(r.member.Until()); left > 0 {
		return left
	}
	return r.b.o.LeaseTTL
}

// assign has the broker own just these partitions, and those that still answer what is in
// flight while it holds their leases. It says if one could not be kept.
func (r *runner) assign(got sharing.Shares, wanted map[string]place) (again bool) {
	term := term{until: r.member.Until(), clock: r.member.Clock()}
	held, has := map[string]bool{}, map[place]bool{}
	for _, lease := range got.All {
		held[lease.Name] = lease.Holder == r.b.holder
	}
	for _, lease := range got.Mine {
		at := wanted[lease.Name]
		has[at] = true
		k, ok := r.b.find(at.topic)
		if !ok {
			continue
		}
		again = r.b.take(k, at, lease, term) || again
	}
	for _, p := range r.b.owned() {
		if !has[p.place] && !(held[leasePrefix+p.place.item()] && p.answering(r.b.o.LeaseTTL)) {
			p.stop()
		}
	}
	return again
}

// leave has partitions answer what is in flight and take nothing more, waits for them a
// moment, and returns those that nobody works on any more.
func (r *runner) leave(items []string) (gone []string) {
	leaving := map[string]*partition{}
	for _, p := range r.b.owned() {
		leaving[p.place.item()] = p
	}
	patience := time.NewTimer(leaveWithin)
	defer patience.Stop()
	for _, item := range items {
		if p := leaving[item]; p != nil {
			p.leave()
		}
	}
	over := false
	for _, item := range items {
		if p := leaving[item]; p == nil || ended(p.done, patience.C, &over) {
			gone = append(gone, item)
		}
	}
	return gone
}

// ended says if done is closed, waiting for it as long as there is patience.
func ended(done <-chan struct{}, patience <-chan time.Time, over *bool) bool {
	if !*over {
		select {
		case <-done:
			return true
		case <-patience:
			*over = true
		}
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// stopAll ends the work on all partitions at once.
func (r *runner) stopAll() {
	for _, p := range r.b.owned() {
		p.stop()
	}
}

// leaveAll lets all partitions answer what is in flight, for as long as the leases last.
func (r *runner) leaveAll() {
	all := r.b.owned()
	for _, p := range all {
		p.leave()
	}
	late := time.AfterFunc(min(max(time.Until(r.member.Until()), 0), leaveAtEnd), r.stopAll)
	defer late.Stop()
	for _, p := range all {
		<-p.done
	}
}
