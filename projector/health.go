// Health: what can be said of a projector in any process, and if it is ready.

package projector

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// HealthOptions say what is tolerated; nil and the zero value are the defaults, which
// tolerate nothing.
type HealthOptions struct {
	// MaxLag is how old the oldest entry that is not handled may be. 0: there may be none
	// that was there when the look began.
	MaxLag time.Duration
	// MaxParked is how many keys may be parked, in one backend.
	MaxParked int
	// NoWorkers is for versions that only CatchUp works on: their lanes need no owner.
	NoWorkers bool
	// AcceptTrimmed is for a projector that goes on without entries that were trimmed before
	// it came to them: Options.AcceptTrimmed, or Snapshots. Projector.Health knows.
	AcceptTrimmed bool
	// ProveWrites proves, by an Update that changes nothing, that the Control takes changes.
	// It waits for the steps under way, so give ctx a deadline, and it is no step for free.
	// Without it that is known of the store (its leases), and of the Control as soon as
	// there is something to handle, or a lane has a new owner.
	ProveWrites bool
	// Entries is how many entries not handled are looked at, at most; 0 means
	// DefaultHealthEntries, at most eventstore.MaxPageEntries. Those of other lanes that
	// lie between count.
	Entries int
}

// Health is the state of a version of a projector as one look found it.
type Health struct {
	Key  Key
	Role Role
	// Ready: every entry that was in the store when the look began is handled, but for what
	// HealthOptions tolerate, none was trimmed before that, all lanes have a worker that has claimed them, none is paused,
	// no key is parked, and no error is known. Of a shadow: all that the live version has
	// come to is handled.
	Ready   bool
	Reasons []string // why it is not ready, for people; some of them if there are many

	Began time.Time // on this process's clock

	Head      eventstore.Position // horizon of the feed
	HeadSeqno eventstore.Seqno    // of the one stream that is followed
	Position  eventstore.Position // of the lowest lane
	Seqno     eventstore.Seqno
	Behind    int           // entries that are not handled, as far as they were counted
	More      bool          // there may be more than Behind
	Lag       time.Duration // of the lane that is most behind
	Parked    int           // keys
	Lanes     []LaneHealth
	LastError error // that this process knows of; see Projector.Health

	// Parts are the states in each backend if there are several. The whole is ready if all
	// are; it has no place and no lanes of its own.
	Parts []Health
}

// LaneHealth is the state of one lane.
type LaneHealth struct {
	Lane       int
	Checkpoint Checkpoint
	Paused     bool
	Owner      eventstore.UUID // who has the lease, while it runs; zero: nobody
	Left       time.Duration   // of the lease
	Claimed    bool            // the owner has claimed the checkpoint
	Behind     int
	More       bool
	// Lag is the age of the oldest entry that is not handled, from its Time, by the clock of
	// the store where a lease tells it, else by that of this process. 0 if there is none;
	// of a lane with More and no entry counted, that of the oldest entry looked at.
	Lag       time.Duration
	Parked    int
	LastError error
}

// Health looks at a version from outside, whichever processes work on it: one read of the
// control, one of the leases and one page of the feed for all lanes. If something is
// behind the control is read once more, so that what is handled meanwhile does not count.
//
// What cannot be read is not ready: then the error says why, and so do the Reasons.
func (a *Admin) Health(ctx context.Context, name string, version int, o *HealthOptions) (Health, error) {
	x := &examination{store: a.store, o: o.orDefault(), leased: true, control: a.control,
		versions: func(ctx context.Context) ([]Version, error) { return a.control.Versions(ctx, name) }}
	return x.examine(ctx, name, version)
}

// Health is [Admin.Health] of this projector, together with what this process knows of it
// beside: the last errors of the lanes it works on. It is what a readiness probe asks for.
//
// Where no leases are kept, for a read model in memory or a handler without Control, this
// process is the only one it knows of: then it is not ready unless Run is on here.
func (p *Projector) Health(ctx context.Context, o *HealthOptions) (Health, error) {
	h := Health{Key: p.key, Began: time.Now()}
	if p.mistake != nil {
		h.refuse(p.mistake)
		return h, p.mistake
	}
	x := &examination{store: p.store, o: o.orDefault(), leased: p.leased, control: p.control, versions: p.asVersions, local: p}
	x.o.AcceptTrimmed = x.o.AcceptTrimmed || p.o.AcceptTrimmed || p.o.Snapshots
	return x.examine(ctx, p.whole.Projector, p.whole.Version)
}

// asVersions lists the versions, also of a handler without Control.
func (p *Projector) asVersions(ctx context.Context) (all []Version, err error) {
	if p.control != nil {
		return p.versions(ctx)
	}
	for _, leaf := range p.leaves() {
		kept, err := leaf.loadKey(ctx, leaf.key)
		if err != nil {
			return nil, err
		}
		all = append(all, Version{Key: leaf.key, Scope: leaf.scope(), Lanes: []Checkpoint{leaf.start(kept)}})
	}
	return all, nil
}

func (o *HealthOptions) orDefault() HealthOptions {
	var all HealthOptions
	if o != nil {
		all = *o
	}
	if all.Entries <= 0 {
		all.Entries = DefaultHealthEntries
	}
	all.Entries = min(all.Entries, eventstore.MaxPageEntries)
	return all
}

// examination is one look at a version.
type examination struct {
	store    *eventstore.Store
	o        HealthOptions
	control  Control // nil: none
	versions func(context.Context) ([]Version, error)
	leased   bool
	local    *Projector // whose status is known; nil: nobody's

	owners map[int]eventstore.Lease
	ahead  time.Duration // by how much the store's clock is ahead of this process's
}

func (x *examination) examine(ctx context.Context, name string, version int) (Health, error) {
	h := Health{Key: Key{Projector: name, Version: version}, Began: time.Now()}
	all, err := x.begin(ctx, &h)
	if err != nil {
		h.refuse(err)
		return h, err
	}
	chosen := numbered(all, h.Key.Version)
	reads := make([]unhandled, len(chosen))
	late := false
	for i, v := range chosen {
		if reads[i], err = x.read(ctx, v); err != nil {
			h.refuse(err)
			return h, err
		}
		late = late || reads[i].gone > 0 || reads[i].behind(v)
	}
	if late { // what was handled while it was read does not count
		if all, err = x.versions(ctx); err == nil {
			chosen = numbered(all, h.Key.Version)
		}
		if err == nil && len(chosen) != len(reads) {
			err = NotRegistered(h.Key)
		}
		if err != nil {
			h.refuse(err)
			return h, err
		}
	}
	for i, v := range chosen {
		h.Parts = append(h.Parts, x.judge(v, liveOf(all, v), reads[i], h.Began))
	}
	h.join()
	return h, nil
}

// begin reads the versions and the leases, and proves what is to be proved.
func (x *examination) begin(ctx context.Context, h *Health) ([]Version, error) {
	if h.Key.Projector == "" {
		return nil, invalidAdmin("the name of a projector", "none")
	}
	if x.o.ProveWrites && x.control != nil {
		if err := x.control.Update(ctx, h.Key.Projector, func(all []Version) ([]Version, error) { return all, nil }); err != nil {
			return nil, err
		}
	}
	all, err := x.versions(ctx)
	if err != nil {
		return nil, err
	}
	if h.Key.Version, err = number(all, h.Key.Projector, h.Key.Version); err != nil {
		return nil, err
	}
	return all, x.seeOwners(ctx, h.Key)
}

// seeOwners notes who has the lanes.
func (x *examination) seeOwners(ctx context.Context, key Key) error {
	x.owners = map[int]eventstore.Lease{}
	if !x.leased {
		x.seeMyself()
		return nil
	}
	prefix := leasePrefixOf(key)
	all, err := x.store.UpdateLeases(ctx, eventstore.LeaseUpdate{Holder: eventstore.NewUUID(), Prefix: prefix})
	if err != nil {
		return err
	}
	for _, l := range all {
		if lane := 0; l.Left > 0 && scanLane(l.Name[len(prefix):], &lane) {
			x.owners[lane], x.ahead = l, time.Until(l.Until)-l.Left
		}
	}
	return nil
}

// seeMyself takes this process for the owner of what it works on, where no leases are.
func (x *examination) seeMyself() {
	if x.local == nil || !x.local.running.Load() {
		return
	}
	for _, leaf := range x.local.leaves() {
		for _, l := range leaf.Status().Lanes {
			x.owners[l.Lane] = eventstore.Lease{Holder: l.Checkpoint.Holder, Left: x.local.o.LeaseTTL}
		}
	}
}

// liveOf is the live version that one is the shadow of; nil: it is none, or there is none.
func liveOf(all []Version, v *Version) *Version {
	i := slices.IndexFunc(all, func(o Version) bool { return o.Key.Projector == v.Key.Projector && o.Role == Live })
	if i < 0 || v.Role == Live {
		return nil
	}
	return &all[i]
}

// judge puts together what is known of a version in one backend.
func (x *examination) judge(v, live *Version, r unhandled, began time.Time) Health {
	h := Health{Key: v.Key, Role: v.Role, Began: began, Head: eventstore.Position(r.head), Lanes: make([]LaneHealth, len(v.Lanes)), Parked: len(v.Parked)}
	if v.Scope.Stream != "" {
		h.Head, h.HeadSeqno = 0, eventstore.Seqno(r.head)
	}
	for i, c := range v.Lanes {
		owner := x.owners[i]
		h.Lanes[i] = LaneHealth{Lane: i, Checkpoint: c, Paused: c.Paused(), Owner: owner.Holder, Left: owner.Left,
			Claimed: owner.Left > 0 && c.Holder == owner.Holder}
		if v.place(c) == v.lowest() {
			h.Position, h.Seqno = c.Position, c.Seqno
		}
	}
	for _, k := range v.Parked {
		h.Lanes[LaneOf(k.Slot(), len(v.Lanes))].Parked++
	}
	r.count(&h, v, live, time.Now().Add(x.ahead))
	if x.local != nil {
		h.know(x.local, v.Key)
	}
	x.doubt(&h, v, &r)
	h.Ready = len(h.Reasons) == 0
	return h
}

// know adds what this process knows.
func (h *Health) know(p *Projector, key Key) {
	for _, leaf := range p.leaves() {
		if leaf.key != key {
			continue
		}
		s := leaf.Status()
		h.LastError = s.LastError
		for _, l := range s.Lanes {
			if l.Lane < len(h.Lanes) {
				h.Lanes[l.Lane].LastError = l.LastError
			}
		}
	}
}

// doubt collects the reasons why a version is not ready.
func (x *examination) doubt(h *Health, v *Version, r *unhandled) {
	if r.foreign != "" {
		h.reason("%s", r.foreign)
	}
	if v.lowest() < r.gone {
		h.reason("entries through %d were trimmed before it came to them", r.gone)
	}
	if h.LastError != nil {
		h.reason("last error: %v", h.LastError)
	}
	if h.Parked > x.o.MaxParked {
		h.reason("%d keys parked, at most %d", h.Parked, x.o.MaxParked)
	}
	paused := v.Paused()
	if paused {
		h.reason("paused")
	}
	for i := range h.Lanes {
		l := &h.Lanes[i]
		if l.late(x.o.MaxLag, r) {
			h.reason("lane %d is %s", i, l.lateness(r))
		}
		switch {
		case paused || x.o.NoWorkers || l.Claimed:
		case l.Left <= 0:
			h.reason("no worker has lane %d", i)
		default:
			h.reason("lane %d is leased by a worker that has not claimed it", i)
		}
	}
}

// late says if a lane is behind by more than is tolerated.
func (l *LaneHealth) late(most time.Duration, r *unhandled) bool {
	if most > 0 {
		return l.Lag > most || l.More && (r.held() || l.Lag == 0)
	}
	return l.Behind > 0 || l.More
}

func (l *LaneHealth) lateness(r *unhandled) string {
	atLeast := ""
	switch {
	case l.More && l.Behind == 0 && r.held():
		return fmt.Sprintf("not known to be up to date: appends under way hold the feed at position %d", r.head)
	case l.More:
		atLeast = "at least "
	}
	return fmt.Sprintf("%s%d entries (%.1f s) behind", atLeast, l.Behind, l.Lag.Seconds())
}

func (h *Health) reason(format string, args ...any) {
	if len(h.Reasons) < maxReasons {
		h.Reasons = append(h.Reasons, fmt.Sprintf(format, args...))
	} else if len(h.Reasons) == maxReasons {
		h.Reasons = append(h.Reasons, "and more")
	}
}

// refuse makes it not ready for an error.
func (h *Health) refuse(err error) {
	h.Ready, h.LastError = false, err
	h.reason("it cannot be looked at: %v", err)
}

// join makes one of the parts: the only one, or what holds of all.
func (h *Health) join() {
	if len(h.Parts) == 1 {
		*h = h.Parts[0]
		return
	}
	h.Ready = true
	for _, part := range h.Parts {
		h.Role = part.Role
		h.Ready = h.Ready && part.Ready
		h.Behind, h.More, h.Parked = h.Behind+part.Behind, h.More || part.More, h.Parked+part.Parked
		h.Lag = max(h.Lag, part.Lag)
		if h.LastError == nil {
			h.LastError = part.LastError
		}
		for _, why := range part.Reasons {
			h.reason("%s: %s", part.Key.Projector, why)
		}
	}
}
