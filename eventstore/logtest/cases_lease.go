// Cases: leases. Time is the store's: nothing here compares it with a local clock.

package logtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

var leaseCases = []testCase{
	{name: "exclusive", rule: "a lease that is held is granted to nobody else, in this process or another", run: leaseExclusive},
	{name: "epochs rise", rule: "every acquisition has a strictly greater epoch, across release, expiry and the same holder", run: leaseEpochsRise},
	{name: "expires", rule: "a silent holder is believed until its time is up and no longer; who comes too late has lost it", run: leaseExpires},
	{name: "renew", rule: "a renewal keeps the epoch and prolongs from now; one that is not the holder's, or of an old epoch, is lost (L1)", run: leaseRenew},
	{name: "release", rule: "a released lease is free at once; releasing what is lost is nil and harms nobody", run: leaseRelease},
	{name: "names", rule: "leases of other names do not touch one another", run: leaseNames},
	{name: "many at once", rule: "an update renews, acquires, releases and lists at once, each by the rule it has alone", run: leaseUpdate},
	{name: "many racing", rule: "of many updates at once exactly one is granted each lease, and none waits for another for ever", run: leaseUpdatesRacing},
	{name: "racing", rule: "of many that ask at once exactly one is granted", run: leaseRacing},
}

const longTTL = time.Minute

// acquire asks for a lease; granted says whether it must be granted.
func (e *env) acquire(name string, holder eventstore.UUID, ttl time.Duration, granted bool) eventstore.Lease {
	e.Helper()
	l, ok, err := e.store.AcquireLease(e.ctx, e.leaseName(name), holder, ttl)
	if err != nil || ok != granted {
		e.Fatalf("AcquireLease(%q) = %+v, %t, %v, want granted %t", name, l, ok, err, granted)
	}
	if l.Name != e.leaseName(name) || l.Epoch == 0 || l.Until.IsZero() || l.Left <= 0 || l.Left > longTTL || granted && (l.Holder != holder || l.Left > ttl) {
		e.Errorf("AcquireLease(%q) granted %t to %v for %v: %+v", name, granted, holder, ttl, l)
	}
	return l
}

// leaseName makes a name that no other case uses.
func (e *env) leaseName(name string) string { return string(e.category) + " " + name }

func (e *env) renewLost(l eventstore.Lease) {
	e.Helper()
	_, err := e.store.RenewLease(e.ctx, l, longTTL)
	wantKind(e, err, eventstore.ErrLeaseLost)
}

func (e *env) releaseLease(l eventstore.Lease) {
	e.Helper()
	if err := e.store.ReleaseLease(e.ctx, l); err != nil {
		e.Fatalf("ReleaseLease(%+v) = %v, want nil", l, err)
	}
}

func leaseExclusive(e *env) {
	a, b := eventstore.NewUUID(), eventstore.NewUUID()
	mine := e.acquire("x", a, longTTL, true)
	for _, from := range []*env{e, e.through(e.another())} {
		seen := from.acquire("x", b, longTTL, false)
		if seen.Holder != a || seen.Epoch != mine.Epoch || !seen.Until.Equal(mine.Until) {
			e.Errorf("the lease that was refused = %+v, want it as granted %+v", seen, mine)
		}
	}
}

func leaseEpochsRise(e *env) {
	a, b := eventstore.NewUUID(), eventstore.NewUUID()
	last := eventstore.Epoch(0)
	rises := func(l eventstore.Lease) eventstore.Lease {
		if l.Epoch <= last {
			e.Errorf("epoch %d was granted after %d", l.Epoch, last)
		}
		last = l.Epoch
		return l
	}
	e.releaseLease(rises(e.acquire("x", a, longTTL, true)))
	e.releaseLease(rises(e.acquire("x", b, longTTL, true)))
	rises(e.acquire("x", a, longTTL, true))
	rises(e.acquire("x", a, eventstore.MinLeaseTTL, true)) // nobody else holds it
	var l eventstore.Lease
	e.poll("the lease runs out", func() bool {
		var ok bool
		var err error
		if l, ok, err = e.store.AcquireLease(e.ctx, e.leaseName("x"), b, longTTL); err != nil {
			e.Fatalf("AcquireLease = %v, want nil", err)
		}
		return ok
	})
	rises(l)
}

func leaseExpires(e *env) {
	const ttl = 200 * time.Millisecond
	a, b := eventstore.NewUUID(), eventstore.NewUUID()
	mine := e.acquire("x", a, ttl, true)
	var next eventstore.Lease
	e.poll("the lease runs out", func() bool {
		var ok bool
		var err error
		if next, ok, err = e.store.AcquireLease(e.ctx, e.leaseName("x"), b, longTTL); err != nil {
			e.Fatalf("AcquireLease = %v, want nil", err)
		}
		return ok
	})
	if granted := next.Until.Add(-longTTL); granted.Before(mine.Until.Add(-time.Millisecond)) || next.Epoch <= mine.Epoch {
		e.Errorf("granted anew at %v under epoch %d, want not before %v and above %d", granted, next.Epoch, mine.Until, mine.Epoch)
	}
	e.renewLost(mine)
	e.releaseLease(mine)
	if seen := e.acquire("x", a, longTTL, false); seen.Holder != b || seen.Epoch != next.Epoch {
		e.Errorf("after the late holder's renewal and release the lease is %+v, want it as %+v", seen, next)
	}
}

func leaseRenew(e *env) {
	a := eventstore.NewUUID()
	short := e.acquire("x", a, longTTL/2, true)
	l, err := e.store.RenewLease(e.ctx, short, longTTL)
	if err != nil || l.Name != short.Name || l.Holder != a || l.Epoch != short.Epoch || !l.Until.After(short.Until) || l.Left <= longTTL/2 || l.Left > longTTL {
		e.Errorf("RenewLease(%+v) = %+v, %v, want the same epoch for a minute", short, l, err)
	}
	other, old, absent := l, l, l
	other.Holder, old.Epoch, absent.Name = eventstore.NewUUID(), l.Epoch-1, e.leaseName("absent")
	for _, lost := range []eventstore.Lease{other, old, absent} {
		e.renewLost(lost)
	}
	anew := e.acquire("x", a, longTTL, true)
	e.renewLost(l)
	e.releaseLease(anew)
	e.renewLost(anew)

	brief := e.acquire("y", a, eventstore.MinLeaseTTL, true)
	e.poll("the lease runs out", func() bool {
		time.Sleep(5 * eventstore.MinLeaseTTL) // longer than it lasts from the last renewal
		_, err := e.store.RenewLease(e.ctx, brief, eventstore.MinLeaseTTL)
		return err != nil
	})
	e.renewLost(brief)
}

func leaseRelease(e *env) {
	a, b := eventstore.NewUUID(), eventstore.NewUUID()
	first := e.acquire("x", a, longTTL, true)
	e.releaseLease(first)
	second := e.acquire("x", b, longTTL, true)
	e.releaseLease(first)
	e.releaseLease(eventstore.Lease{Name: e.leaseName("absent"), Holder: a, Epoch: 3})
	stolen := second
	stolen.Holder = a
	e.releaseLease(stolen)
	if seen := e.acquire("x", a, longTTL, false); seen.Epoch != second.Epoch || seen.Holder != b {
		e.Errorf("after foreign releases the lease is %+v, want it as %+v", seen, second)
	}
}

func leaseNames(e *env) {
	a, b := eventstore.NewUUID(), eventstore.NewUUID()
	e.acquire("x", a, longTTL, true)
	e.acquire("X", b, longTTL, true)
	y := e.acquire("y", b, longTTL, true)
	e.releaseLease(y)
	e.acquire("x", b, longTTL, false)
}

func leaseRacing(e *env) {
	won := count(10, func(int) bool {
		_, ok, err := e.store.AcquireLease(e.ctx, e.leaseName("x"), eventstore.NewUUID(), longTTL)
		if err != nil {
			e.Errorf("AcquireLease = %v, want nil", err)
		}
		return ok
	})
	if won != 1 {
		e.Errorf("%d of 10 were granted the lease, want 1", won)
	}
}

// update updates leases of the case; names come and go without the case's prefix.
func (e *env) update(u eventstore.LeaseUpdate) map[string]eventstore.Lease {
	e.Helper()
	u.Prefix = e.leaseName("")
	for i, name := range u.Acquire {
		u.Acquire[i] = e.leaseName(name)
	}
	all, err := e.store.UpdateLeases(e.ctx, u)
	if err != nil {
		e.Fatalf("UpdateLeases(%+v) = %v, want nil", u, err)
	}
	out := map[string]eventstore.Lease{}
	for i, l := range all {
		if i > 0 && all[i-1].Name >= l.Name {
			e.Errorf("UpdateLeases lists %q behind %q", l.Name, all[i-1].Name)
		}
		out[strings.TrimPrefix(l.Name, u.Prefix)] = l
	}
	return out
}

func leaseUpdate(e *env) {
	a, b := eventstore.NewUUID(), eventstore.NewUUID()
	is := func(l eventstore.Lease, holder eventstore.UUID, epoch eventstore.Epoch, atLeast time.Duration) {
		e.Helper()
		held := l.Left > 0 && l.Left <= longTTL && l.Left > atLeast && l.Holder == holder
		if l.Epoch != epoch || !held && holder != (eventstore.UUID{}) || holder == (eventstore.UUID{}) && l.Left != 0 {
			e.Errorf("lease %+v, want holder %v at epoch %d for more than %v", l, holder, epoch, atLeast)
		}
	}
	if all := e.update(eventstore.LeaseUpdate{Holder: a}); len(all) != 0 {
		e.Errorf("leases before there are any: %v", all)
	}
	all := e.update(eventstore.LeaseUpdate{Holder: a, TTL: longTTL / 4, Acquire: []string{"3", "1", "2"}})
	for _, name := range []string{"1", "2", "3"} {
		is(all[name], a, 1, 0)
	}
	other := e.acquire("4", b, longTTL, true)
	lost := all["2"]
	lost.Epoch++
	all = e.update(eventstore.LeaseUpdate{Holder: a, TTL: longTTL, Acquire: []string{"4", "5"}, Renew: []eventstore.Lease{all["1"], lost}, Release: []eventstore.Lease{all["3"]}})
	is(all["1"], a, 1, longTTL/2)
	is(all["2"], a, 1, 0)
	if all["2"].Left > longTTL/4 {
		e.Errorf("a lease renewed at another epoch: %+v", all["2"])
	}
	is(all["3"], eventstore.UUID{}, 1, 0)
	is(all["4"], b, other.Epoch, 0)
	is(all["5"], a, 1, longTTL/2)
	// What another one's update names changes nothing, and released ones are free at once.
	seen := e.through(e.another()).update(eventstore.LeaseUpdate{Holder: b, TTL: longTTL, Acquire: []string{"3"}, Renew: []eventstore.Lease{all["1"]}, Release: []eventstore.Lease{all["5"]}})
	is(seen["1"], a, 1, 0)
	is(seen["3"], b, 2, longTTL/2)
	is(seen["5"], a, 1, 0)
	for name, u := range map[string]eventstore.LeaseUpdate{
		"no holder":    {Prefix: "x"},
		"no prefix":    {Holder: a},
		"other prefix": {Holder: a, Prefix: "x", Acquire: []string{"y"}},
		"twice":        {Holder: a, Prefix: "x", Acquire: []string{"x"}, Renew: []eventstore.Lease{{Name: "x", Epoch: 1}}},
	} {
		if _, err := e.store.UpdateLeases(e.ctx, u); err == nil {
			e.Errorf("UpdateLeases with %s = nil", name)
		} else {
			wantKind(e, err, eventstore.ErrInvalid)
		}
	}
}

func leaseUpdatesRacing(e *env) {
	const clients, names = 8, 6
	var all []string
	for i := range names {
		all = append(all, fmt.Sprint(i))
	}
	granted := make([]map[string]eventstore.Lease, clients)
	holders := make([]eventstore.UUID, clients)
	together(clients, func(i int) {
		holders[i] = eventstore.NewUUID()
		asked := slices.Clone(all)
		rand.Shuffle(names, func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
		granted[i] = e.update(eventstore.LeaseUpdate{Holder: holders[i], TTL: longTTL, Acquire: asked})
	})
	for _, name := range all {
		n := 0
		for i := range clients {
			if granted[i][name].Holder == holders[i] {
				n++
			}
		}
		if n != 1 {
			e.Errorf("lease %s was granted to %d of %d", name, n, clients)
		}
	}
}
