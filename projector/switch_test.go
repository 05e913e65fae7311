// What a switch refuses, and a shadow does not do, so that no effect is had by nobody.

package projector_test

import (
	"context"
	"strings"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// stuckLane is a sink of effects that has none of a lane of version 1 while it is down.
func stuckLane(c projector.Checkpoints, f *effects, down *bool) projector.Handler {
	return projector.Sink(c, func(_ context.Context, k projector.Key, batch []eventstore.Entry) error {
		if *down && k.Version == 1 && k.Lane == 0 {
			return errOutage
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, e := range batch {
			f.had[e.Position]++
		}
		return nil
	})
}

// Lanes of a shadow that become one are brought to one place, but not beyond the live
// version: it would pass quietly what that never comes to.
func TestSetLanesOfAShadow(t *testing.T) {
	for _, to := range []int{1, 3, 4} {
		e, f, down := newEnv(t, nil), &effects{had: map[eventstore.Position]int{}}, true
		var c projector.MemoryCheckpoints
		h := stuckLane(&c, f, &down)
		one := projector.New(e.store, "p", "account", h, &projector.Options{Lanes: 2})
		two := projector.New(e.store, "p", "account", h, &projector.Options{Lanes: 2, Version: 2})
		e.spread(100, 20)
		_, err := one.CatchUp(t.Context(), 0)
		wantKind(t, err, eventstore.ErrUnavailable)
		_, err = two.CatchUp(t.Context(), 0)
		e.ok(err)
		err = two.SetLanes(t.Context(), to)
		if to == 4 { // none becomes another's
			e.ok(err)
		} else {
			wantKind(t, err, eventstore.ErrOverloaded)
		}
		admin := projector.NewAdmin(e.store, &c)
		e.ok(admin.Switch(t.Context(), "p", 2, nil))
		down = false
		_, err = two.CatchUp(t.Context(), 0)
		e.ok(err)
		e.ok(one.SetLanes(t.Context(), 1)) // to where the live one is
		_, err = one.CatchUp(t.Context(), 0)
		e.ok(err)
		f.once(t, e.all("account"))
	}
}

// A shadow of other lanes than those of the live version keeps them however it is ahead
// somewhere of what that has come to elsewhere.
func TestSetLanesOfAShadowThatIsAhead(t *testing.T) {
	e, h := newEnv(t, nil), newLoud()
	admin := projector.NewAdmin(e.store, h)
	one := projector.New(e.store, "p", "account", h, &projector.Options{Lanes: 2})
	e.spread(100, 20)
	_, err := one.CatchUp(t.Context(), 0)
	e.ok(err)
	next, err := admin.Rebuild(t.Context(), "p", false)
	e.ok(err)
	e.ok(admin.Switch(t.Context(), "p", next, &projector.SwitchOptions{Force: true}))
	e.ok(one.SetLanes(t.Context(), 1)) // it is ahead of the live one, and need not go on
	e.spread(20, 20)
	_, err = projector.New(e.store, "p", "account", h, &projector.Options{Version: next}).CatchUp(t.Context(), 0)
	e.ok(err)
	h.once(t, e.all("account"))
}

// A version that has passed quietly what the live one has not had is not made live.
func TestSwitchRefusesWhatIsAhead(t *testing.T) {
	e, h := newEnv(t, nil), newLoud()
	admin := projector.NewAdmin(e.store, h)
	of := func(version, lanes int) *projector.Projector {
		return projector.New(e.store, "p", "account", h, &projector.Options{Version: version, Lanes: lanes})
	}
	up := func(p *projector.Projector) {
		_, err := p.CatchUp(t.Context(), 0)
		e.ok(err)
	}
	e.spread(100, 20)
	up(of(1, 3))
	up(of(2, 2))
	clear(h.had)
	e.ok(admin.Reset(t.Context(), "p", 1, false))
	for _, o := range []*projector.SwitchOptions{nil, {Force: true}} {
		wantKind(t, admin.Switch(t.Context(), "p", 2, o), eventstore.ErrInvalid)
	}
	if all := versions(t, h); all[0].Role != projector.Live || all[1].Role != projector.Shadow {
		t.Errorf("versions %+v", all)
	}
	up(of(1, 3))
	e.spread(20, 20)
	e.ok(admin.Switch(t.Context(), "p", 2, nil))
	up(of(2, 2))
	h.once(t, e.all("account"))
}

// Keys that are parked in the live version are owed their effects, and what readers see of
// a version is to be whole: nothing of that is given up by accident, forwards or back.
func TestSwitchRefusesParkedKeys(t *testing.T) {
	e, h := newEnv(t, nil), newLoud()
	admin := projector.NewAdmin(e.store, h)
	up := func(version int) {
		t.Helper()
		_, err := projector.New(e.store, "p", "account", &pickyLoud{h}, &projector.Options{Version: version, Tries: 1}).CatchUp(t.Context(), 0)
		e.ok(err)
	}
	e.spread(10, 5)
	up(1)
	up(2)
	e.ok(admin.Switch(t.Context(), "p", 2, nil))
	e.append("account-1", Renamed{"x"})
	e.append("account-2", Renamed{"x"})
	e.spread(10, 5)
	up(2) // has parked two keys
	up(1) // passes them quietly

	if n := len(versions(t, h)[1].Parked); n != 2 {
		t.Fatalf("%d keys parked", n)
	}
	// Only what is named by an option is given up, and the error tells what it would be.
	parked := func(err error, wanted, key string) {
		t.Helper()
		got := wantKind(t, err, eventstore.ErrParked)
		if !strings.Contains(got.Wanted, wanted) || !strings.Contains(got.Found, key) {
			t.Errorf("%v", err)
		}
	}
	back := func(o *projector.SwitchOptions) error {
		_, err := admin.Rollback(t.Context(), "p", o)
		return err
	}
	for _, o := range []*projector.SwitchOptions{nil, {Force: true, TakeParked: true}} {
		parked(back(o), "in the live version", `2 ("1", "2")`)
		parked(admin.Switch(t.Context(), "p", 1, o), "in the live version", `"2"`)
	}
	e.ok(back(&projector.SwitchOptions{LeaveParked: true}))
	for _, o := range []*projector.SwitchOptions{nil, {Force: true, LeaveParked: true}} {
		parked(admin.Switch(t.Context(), "p", 2, o), "that becomes live", `2 ("1", "2")`)
	}
	e.ok(admin.Switch(t.Context(), "p", 2, &projector.SwitchOptions{TakeParked: true}))
	up(3)
	e.ok(admin.Switch(t.Context(), "p", 3, &projector.SwitchOptions{LeaveParked: true}))
	parked(back(&projector.SwitchOptions{LeaveParked: true}), "that becomes live", `2 ("1", "2")`)
	e.ok(back(&projector.SwitchOptions{TakeParked: true}))
	if all := versions(t, h); all[1].Role != projector.Live || len(all[1].Parked) != 2 {
		t.Errorf("versions %+v", all)
	}
}

// pickyLoud cannot handle the renamed in version 2.
type pickyLoud struct{ *loud }

func (h *pickyLoud) Handle(ctx context.Context, s projector.Step) error {
	for i, e := range s.Batch {
		if e.Type == "renamed" && s.Key.Version == 2 {
			return projector.NewEntryError(s.Batch[i:i+1], errBad)
		}
	}
	return h.loud.Handle(ctx, s)
}
