// From one version of a projector to another, and back.

package projector

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/wattle-es/wattle/eventstore"
)

// SwitchOptions say when a version may take the live one's place; nil and the zero value
// are the defaults.
type SwitchOptions struct {
	// MaxBehind is how many positions the new version may lack of the live one in its
	// lowest lane; what it lacks it handles after the switch. 0 means DefaultMaxBehind, but
	// no more than a tenth of what the live one has come through.
	MaxBehind uint64
	// Force switches however far it is behind. A version that is ahead of the live one (which
	// was reset, say) is refused all the same.
	Force bool
	// LeaveParked switches although keys are parked in the live version. What waits there
	// has had no effects outside of the read model yet, and never will: the new version
	// takes the live one to have had all through the place where it stands.
	LeaveParked bool
	// TakeParked switches although keys are parked in the version that is to become live.
	// Readers then see these keys as they stood, and wait for them, until they are retried
	// or skipped there.
	TakeParked bool
	// Compare, if given, is called first with the numbers of both; an error of it leaves
	// everything as it is.
	Compare func(ctx context.Context, live, next int) error
}

// Switch makes a version live and the one that was its shadow, in all backends at once.
// Readers and waiters that follow the live version follow. What the old version has had
// effects of the new one has not again, though it may still have to handle it; the old
// one goes on in the shadow for as long as workers build it, so that switching back, too,
// is one step. Switching to the version that is live changes nothing.
func (a *Admin) Switch(ctx context.Context, name string, version int, o *SwitchOptions) error {
	if o == nil {
		o = &SwitchOptions{}
	}
	if version < 1 {
		return invalidAdmin("the number of a version", strconv.Itoa(version))
	}
	if o.Compare != nil {
		all, err := a.control.Versions(ctx, name)
		if err != nil {
			return err
		}
		live, err := number(all, name, 0)
		if err != nil {
			return err
		}
		if err := o.Compare(ctx, live, version); err != nil {
			return err
		}
	}
	_, err := a.update(ctx, name, version, func(all []Version, chosen []*Version) error {
		for _, v := range chosen {
			if err := o.takeOver(all, v); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// most is how far a version may be behind the live one.
func (o *SwitchOptions) most(live *Version) uint64 {
	if o.MaxBehind > 0 {
		return o.MaxBehind
	}
	return min(DefaultMaxBehind, live.lowest()/10)
}

// takeOver makes one version live in its backend.
func (o *SwitchOptions) takeOver(all []Version, next *Version) error {
	i := slices.IndexFunc(all, func(v Version) bool { return v.Key.Projector == next.Key.Projector && v.Role == Live })
	if next.Role == Live {
		return nil
	}
	if len(next.Parked) > 0 && !o.TakeParked {
		return &eventstore.Error{Kind: eventstore.ErrParked, Op: "switch " + next.Key.String(), Wanted: "no parked keys in the version that becomes live",
			Found: next.parkedKeys(), Hint: "retry or skip them first, or take them along: then readers see these keys as they stood, until they are retried or skipped"}
	}
	if i >= 0 {
		live := &all[i]
		if len(live.Parked) > 0 && !o.LeaveParked {
			return &eventstore.Error{Kind: eventstore.ErrParked, Op: "switch " + next.Key.String(), Wanted: "no parked keys in the live version, " + live.Key.String(),
				Found: live.parkedKeys(), Hint: "retry or skip them first, or leave them: then they never have effects outside of the read model"}
		}
		if behind := live.aheadOf(next); behind > o.most(live) && !o.Force {
			return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "switch " + next.Key.String(), Wanted: fmt.Sprintf("a version at most %d positions behind the live one", o.most(live)),
				Found: fmt.Sprintf("%d", behind), Hint: "wait until it is built (wattle projector show), or force it"}
		}
		done := live.done()
		if lane, ok := next.beyond(done); ok {
			return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "switch " + next.Key.String(), Wanted: "a version that nowhere is ahead of the live one, " + live.Key.String(),
				Found: fmt.Sprintf("lane %d, at position %d, ahead of it", lane, next.place(next.Lanes[lane])),
				Hint:  "wait until the live version has come there: what lies between would never have effects outside of the read model"}
		}
		next.Quiet = done
		live.Role = Shadow
		live.Fence(live.holderBehind())
	}
	next.Role = Live
	next.Fence(next.holderBehind())
	return nil
}

// parkedKeys names the parked keys of a version, not too many, and tells of the first.
func (v *Version) parkedKeys() string {
	var names []string
	for _, k := range v.Parked[:min(len(v.Parked), maxReasons)] {
		names = append(names, strconv.Quote(k.StreamKey))
	}
	if len(v.Parked) > len(names) {
		names = append(names, "…")
	}
	return fmt.Sprintf("%d (%s), as %s", len(v.Parked), strings.Join(names, ", "), v.Parked[0])
}

// holderBehind is who holds the lanes behind a change: nobody, or the pause.
func (v *Version) holderBehind() eventstore.UUID {
	if v.Paused() {
		return pausedHolder
	}
	return eventstore.UUID{}
}

// place measures a checkpoint of the version.
func (v *Version) place(c Checkpoint) uint64 {
	if v.Scope.Stream != "" {
		return uint64(c.Seqno)
	}
	return uint64(c.Position)
}

func (v *Version) lowest() uint64 {
	low := v.place(v.Lanes[0])
	for _, c := range v.Lanes {
		low = min(low, v.place(c))
	}
	return low
}

// aheadOf is by how much the version's lowest lane is ahead of another's.
func (v *Version) aheadOf(o *Version) uint64 { return v.lowest() - min(v.lowest(), o.lowest()) }

// done are the places through which the effects of a version have been had, by it or by
// one before it, lane by lane. A version that has lanes of other slots than the one it
// took over from needs them slot by slot, as long as it is not past all of that.
func (v *Version) done() []uint64 {
	done := make([]uint64, len(v.Lanes))
	for i, c := range v.Lanes {
		done[i] = v.place(c)
	}
	if len(v.Quiet) == 0 || slices.Max(v.Quiet) <= v.lowest() {
		return done
	}
	slots := make([]uint64, eventstore.Slots)
	for s := range slots {
		slots[s] = max(done[LaneOf(eventstore.Slot(s), len(done))], v.Quiet[LaneOf(eventstore.Slot(s), len(v.Quiet))])
	}
	return slots
}

// beyond returns a lane of the version that has come further than what is done, of however
// many lanes that is.
func (v *Version) beyond(done []uint64) (lane int, ok bool) {
	for s := range eventstore.Slot(eventstore.Slots) {
		if lane = LaneOf(s, len(v.Lanes)); v.place(v.Lanes[lane]) > done[LaneOf(s, len(done))] {
			return lane, true
		}
	}
	return 0, false
}

// Rollback makes the version live again that the live one stands in the shadow of: the
// highest version below it that is still there, however far behind that is. It returns its
// number. ErrParked if keys are parked in the one or the other, unless the options say so,
// as for Switch: what the live one has parked the old one has passed quietly.
func (a *Admin) Rollback(ctx context.Context, name string, o *SwitchOptions) (version int, err error) {
	all, err := a.control.Versions(ctx, name)
	if err != nil {
		return 0, err
	}
	live, err := number(all, name, 0)
	if err != nil {
		return 0, err
	}
	for _, v := range all {
		if v.Key.Version < live {
			version = max(version, v.Key.Version)
		}
	}
	if version == 0 {
		return 0, &eventstore.Error{Kind: ErrNotRegistered, Op: "rollback " + name, Wanted: "a version below " + strconv.Itoa(live), Found: "none", Hint: "name the version to switch to"}
	}
	if o == nil {
		o = &SwitchOptions{}
	}
	// It is instant: what the old version lacks it handles after the switch.
	return version, a.Switch(ctx, name, version, &SwitchOptions{Force: true, LeaveParked: o.LeaveParked, TakeParked: o.TakeParked, Compare: o.Compare})
}
