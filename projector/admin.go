// Admin: what people, and other processes, do to projectors while workers keep running.

package projector

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/wattle-es/wattle/eventstore"
)

// Admin changes projectors from outside. Every change is one atomic step that fences all
// lanes of what it changes, so it holds at once, whatever workers are doing: they lose
// the batch they are at, load anew and go on by what they find. Methods may be called
// from several goroutines and processes at once.
//
// Where a version is to be named, 0 is the live one. [ErrNotRegistered] if there is none.
type Admin struct {
	store   *eventstore.Store
	control Control
}

// NewAdmin returns an Admin of the projectors whose control it is given.
func NewAdmin(store *eventstore.Store, c Control) *Admin { return &Admin{store: store, control: c} }

// Versions returns the versions of a projector in all backends, of all if name is empty.
func (a *Admin) Versions(ctx context.Context, name string) ([]Version, error) {
	return a.control.Versions(ctx, name)
}

// update has f change the versions of a projector that have a number, one a backend.
func (a *Admin) update(ctx context.Context, name string, version int, f func(all []Version, chosen []*Version) error) (chosen int, err error) {
	if name == "" {
		return 0, invalidAdmin("the name of a projector", "none")
	}
	return chosen, a.control.Update(ctx, name, func(all []Version) ([]Version, error) {
		v, err := number(all, name, version)
		if err != nil {
			return nil, err
		}
		chosen = v
		return all, f(all, numbered(all, v))
	})
}

// number is the version's number, that of the live one for 0.
func number(all []Version, name string, version int) (int, error) {
	for _, v := range all {
		if v.Key.Version == version || version == 0 && v.Role == Live {
			return v.Key.Version, nil
		}
	}
	return 0, NotRegistered(Key{Projector: name, Version: version})
}

func numbered(all []Version, version int) (chosen []*Version) {
	for i := range all {
		if all[i].Key.Version == version {
			chosen = append(chosen, &all[i])
		}
	}
	return chosen
}

func invalidAdmin(wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "projector", Wanted: wanted, Found: found}
}

// Pause stops the work on a version until it is resumed. A batch that is being handled
// is refused; nothing is lost.
func (a *Admin) Pause(ctx context.Context, name string, version int) error {
	_, err := a.update(ctx, name, version, func(_ []Version, chosen []*Version) error {
		for _, v := range chosen {
			v.Fence(pausedHolder)
		}
		return nil
	})
	return err
}

// Resume lets workers go on with a version that was paused.
func (a *Admin) Resume(ctx context.Context, name string, version int) error {
	_, err := a.update(ctx, name, version, func(_ []Version, chosen []*Version) error {
		for _, v := range chosen {
			for i := range v.Lanes {
				if v.Lanes[i].Paused() {
					v.Lanes[i].Epoch, v.Lanes[i].Holder = v.Lanes[i].Epoch+1, eventstore.UUID{}
				}
			}
		}
		return nil
	})
	return err
}

// Paused says if a version, or some lane of it, is paused.
func (v Version) Paused() bool { return slices.ContainsFunc(v.Lanes, Checkpoint.Paused) }

// Reset has a version handle everything again from the beginning, parked keys included;
// its effects happen again. A read model must be emptied with it, see [Admin.ResetWith];
// better, rebuild under a new version, which readers do not see before it is done. A
// version that is paused stays so.
//
// ErrTrimmed if what is to be handled is gone, unless acceptTrimmed.
func (a *Admin) Reset(ctx context.Context, name string, version int, acceptTrimmed bool) error {
	return a.ResetWith(ctx, name, version, acceptTrimmed, func(_ int, reset func([]Version) ([]Version, error)) error {
		return a.control.Update(ctx, name, reset)
	})
}

// ResetWith is Reset for a read model that is kept beside the checkpoints, and emptied in
// the transaction that resets them: update has reset done to the versions of the projector
// as Control.Update would, and whatever else belongs to it, by pgcheckpoint's UpdateTx for
// one; version is the number of the one that is reset. It is not called where what is to be
// handled again is gone.
func (a *Admin) ResetWith(ctx context.Context, name string, version int, acceptTrimmed bool, update func(version int, reset func([]Version) ([]Version, error)) error) error {
	if name == "" {
		return invalidAdmin("the name of a projector", "none")
	}
	all, err := a.control.Versions(ctx, name)
	if err == nil {
		version, err = number(all, name, version)
	}
	if err != nil {
		return err
	}
	chosen := numbered(all, version)
	// Held first: what is behind the reset checkpoint is there and stays.
	if err := a.holdAll(ctx, chosen, acceptTrimmed); err != nil {
		return err
	}
	if err := update(version, func(all []Version) ([]Version, error) {
		if _, err := number(all, name, version); err != nil {
			return nil, err
		}
		for _, v := range numbered(all, version) {
			v.reset()
		}
		return all, nil
	}); err != nil {
		return err
	}
	// And again: until then workers moved the holds to where the version was.
	return a.holdAll(ctx, chosen, acceptTrimmed)
}

// reset sets a version back to the beginning.
func (v *Version) reset() {
	for i, c := range v.Lanes {
		v.Lanes[i] = Checkpoint{Epoch: c.Epoch + 1}
		if c.Paused() {
			v.Lanes[i].Holder = pausedHolder
		}
	}
	v.Parked = nil
}

func (a *Admin) holdAll(ctx context.Context, all []*Version, acceptTrimmed bool) error {
	for _, v := range all {
		if err := a.hold(ctx, v, acceptTrimmed); err != nil {
			return err
		}
	}
	return nil
}

// hold holds all that a version follows.
func (a *Admin) hold(ctx context.Context, v *Version, acceptTrimmed bool) error {
	name := holdName(v.Key)
	if v.Scope.Stream != "" {
		return a.setHold(ctx, eventstore.Hold{Name: name, Stream: v.Scope.Stream}, acceptTrimmed)
	}
	for _, c := range v.Scope.Categories {
		if err := a.setHold(ctx, eventstore.Hold{Name: name, Category: c}, acceptTrimmed); err != nil {
			return err
		}
	}
	return nil
}

func (a *Admin) setHold(ctx context.Context, h eventstore.Hold, acceptTrimmed bool) error {
	for range maxHoldMoves {
		err := a.store.SetHold(ctx, h)
		refused, ok := errors.AsType[*eventstore.Error](err)
		if !ok || refused.Kind != eventstore.ErrTrimmed || !acceptTrimmed {
			return err
		}
		if h.Stream != "" {
			h.Seqno = refused.First
		} else {
			h.Position = refused.FirstPosition + 1
		}
	}
	return &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: "set hold", Wanted: "a hold on what is there", Found: "trims that ran ahead of it each time", Hint: "try again"}
}

// Rebuild registers a new version that follows what the live one does, from the
// beginning and in its shadow, and returns its number. Workers that build any version,
// see [NewVersioned], begin with it by themselves. What was trimmed is not part of it
// unless its handler takes snapshots; ErrTrimmed then, unless acceptTrimmed.
func (a *Admin) Rebuild(ctx context.Context, name string, acceptTrimmed bool) (version int, err error) {
	var added []Version
	_, err = a.update(ctx, name, 0, func(all []Version, live []*Version) error {
		version, added = 0, nil
		for _, v := range all {
			version = max(version, v.Key.Version+1)
		}
		for _, v := range live {
			next := Version{Key: v.Key, Role: Shadow, Scope: v.Scope, Lanes: make([]Checkpoint, len(v.Lanes))}
			next.Key.Version = version
			for i := range next.Lanes {
				next.Lanes[i].Epoch = 1
			}
			added = append(added, next)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for i := range added {
		if err := a.hold(ctx, &added[i], acceptTrimmed); err != nil {
			return 0, err
		}
	}
	return version, a.control.Update(ctx, name, func(all []Version) ([]Version, error) {
		if _, err := number(all, name, version); err == nil {
			return nil, &eventstore.Error{Kind: eventstore.ErrAlreadyWritten, Op: "rebuild " + name, Wanted: "version " + strconv.Itoa(version) + " to be new",
				Found: "that it is registered already", Hint: "somebody else began a rebuild meanwhile"}
		}
		return append(all, slices.Clone(added)...), nil
	})
}

// Drop removes a version: its checkpoints, parked keys and holds. Its read model is the
// caller's to remove. Workers of it stop with ErrFenced, those of a Versioned go on with the
// others. ErrInvalid if it is live and others are there.
//
// For a day a lease of the store says that it was dropped: a worker that finds its version
// gone without that takes it to be lost in a failover, and registers it anew, as one does
// that is started.
func (a *Admin) Drop(ctx context.Context, name string, version int) error {
	if version < 1 {
		return invalidAdmin("the number of a version", strconv.Itoa(version))
	}
	takeBack, err := a.signDropped(ctx, name, version)
	if err != nil {
		return err
	}
	var gone []Version
	err = a.control.Update(ctx, name, func(all []Version) ([]Version, error) {
		if _, err := number(all, name, version); err != nil {
			return nil, err
		}
		for _, v := range all {
			if v.Key.Version == version && v.Role == Live && slices.ContainsFunc(all, func(o Version) bool { return o.Key.Version != version }) {
				return nil, invalidAdmin("a version that is not live", "version "+strconv.Itoa(version)+", which is: switch to another one first")
			}
		}
		gone = nil
		return slices.DeleteFunc(all, func(v Version) bool {
			if v.Key.Version == version {
				gone = append(gone, v)
			}
			return v.Key.Version == version
		}), nil
	})
	if err != nil {
		takeBack(err)
		return err
	}
	return releaseHolds(ctx, a.store, holdName(gone[0].Key))
}

// Retry has the worker handle the entries of a parked key again, those of all parked
// keys if streamKey is empty, and returns how many keys that are.
func (a *Admin) Retry(ctx context.Context, name string, version int, streamKey string) (keys int, err error) {
	return a.request(ctx, name, version, streamKey, func(k *Parked) { k.Request, k.Note = Retry, "" })
}

// Skip gives up the entry at fault of a parked key, for the reason given, which is kept
// with the entry; those behind it are handled. What was trimmed while it waited is given up
// too, and the same by Retry with Options.AcceptTrimmed. Nothing else ever skips an entry.
func (a *Admin) Skip(ctx context.Context, name string, version int, streamKey, why string) error {
	if streamKey == "" {
		return invalidAdmin("the key to skip an entry of", "none")
	}
	_, err := a.request(ctx, name, version, streamKey, func(k *Parked) { k.Request, k.Note = Skip, clip(why, MaxNoteBytes) })
	return err
}

func (a *Admin) request(ctx context.Context, name string, version int, streamKey string, f func(*Parked)) (keys int, err error) {
	_, err = a.update(ctx, name, version, func(_ []Version, chosen []*Version) error {
		keys = 0
		for _, v := range chosen {
			keys += v.request(streamKey, f)
		}
		if keys == 0 && streamKey != "" {
			return invalidAdmin("a parked key", strconv.Quote(streamKey)+", which is not parked")
		}
		return nil
	})
	return keys, err
}

// request changes parked keys and fences their lanes, so that their workers see it.
func (v *Version) request(streamKey string, f func(*Parked)) (keys int) {
	lanes := map[int]bool{}
	for i := range v.Parked {
		if k := &v.Parked[i]; streamKey == "" || k.StreamKey == streamKey {
			f(k)
			keys++
			lanes[LaneOf(k.Slot(), len(v.Lanes))] = true
		}
	}
	for lane := range lanes {
		c := &v.Lanes[lane]
		c.Epoch++
		if !c.Paused() {
			c.Holder = eventstore.UUID{}
		}
	}
	return keys
}

// Skipped returns the records of the entries that a version has given up.
func (a *Admin) Skipped(ctx context.Context, name string, version int) ([]Parked, error) {
	all, err := a.control.Versions(ctx, name)
	if err == nil {
		version, err = number(all, name, version)
	}
	if err != nil {
		return nil, err
	}
	var records []Parked
	for _, v := range numbered(all, version) {
		one, err := a.control.Skipped(ctx, v.Key)
		if err != nil {
			return nil, err
		}
		records = append(records, one...)
	}
	return records, nil
}
