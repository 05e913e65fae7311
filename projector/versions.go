// What every Control demands of versions, whoever keeps them.

package projector

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// Clone returns a copy that shares no memory with v.
func (v Version) Clone() Version {
	v.Scope.Categories, v.Scope.Types = slices.Clone(v.Scope.Categories), slices.Clone(v.Scope.Types)
	v.Quiet, v.Lanes, v.Parked = slices.Clone(v.Quiet), slices.Clone(v.Lanes), slices.Clone(v.Parked)
	for i := range v.Lanes {
		v.Lanes[i].Recent = slices.Clone(v.Lanes[i].Recent)
	}
	for i := range v.Parked {
		v.Parked[i].Queue = slices.Clone(v.Parked[i].Queue)
	}
	return v
}

// CheckVersions is for implementations of [Control]: it says, by an ErrInvalid, what is
// wrong with the versions that the function given to Update has returned. Each is of the
// projector and there once, has a lane and at most one per slot, no key parked twice,
// and of one name at most one is live.
func CheckVersions(projector string, all []Version) error {
	seen, live := map[Key]bool{}, map[string]bool{}
	for i := range all {
		v := &all[i]
		parked := map[string]bool{}
		for _, k := range v.Parked {
			if parked[k.StreamKey] {
				return badVersion(v, "each key parked once", fmt.Sprintf("%q twice", k.StreamKey))
			}
			parked[k.StreamKey] = true
		}
		switch {
		case !v.Key.Of(projector) || v.Key.Projector == "":
			return badVersion(v, fmt.Sprintf("a version of projector %q", projector), "one of another")
		case v.Key.Lane != 0:
			return badVersion(v, "the key of lane 0", "that of another lane")
		case len(v.Lanes) == 0 || len(v.Lanes) > eventstore.Slots:
			return badVersion(v, fmt.Sprintf("1 to %d lanes", eventstore.Slots), fmt.Sprint(len(v.Lanes)))
		case v.Role > Shadow:
			return badVersion(v, "role live or shadow", fmt.Sprint(uint8(v.Role)))
		case seen[v.Key]:
			return badVersion(v, "each version once", "it twice")
		case v.Role == Live && live[v.Key.Projector]:
			return badVersion(v, "at most one live version of a projector", "a second one")
		}
		seen[v.Key] = true
		live[v.Key.Projector] = live[v.Key.Projector] || v.Role == Live
	}
	return nil
}

func badVersion(v *Version, wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "change projector", Wanted: wanted, Found: found + " (" + v.Key.String() + ")"}
}

// AdoptVersions is for implementations of [Control]: it adds to the registered versions
// those that have checkpoints only, as what Update is given has them, and returns all in
// their order. Of a projector without a registered version the highest one is live. Their
// scope is empty, until they run.
func AdoptVersions(registered []Version, kept map[Key]Checkpoint) []Version {
	at, live := map[Key]int{}, map[string]bool{}
	all := slices.Clone(registered)
	for i, v := range all {
		at[v.Key], live[v.Key.Projector] = i, true // whatever its role: it was given one
	}
	known := len(all)
	for key, c := range kept {
		lane := key.Lane
		key.Lane = 0
		i, ok := at[key]
		if !ok {
			i = len(all)
			at[key] = i
			all = append(all, Version{Key: key, Role: Shadow})
		} else if i < known {
			continue // what is no lane of it is nothing
		}
		v := &all[i]
		v.Lanes = append(v.Lanes, make([]Checkpoint, max(0, lane+1-len(v.Lanes)))...)
		v.Lanes[lane] = c
	}
	slices.SortFunc(all, func(a, b Version) int {
		return cmp.Or(cmp.Compare(a.Key.Projector, b.Key.Projector), cmp.Compare(a.Key.Version, b.Key.Version))
	})
	for i := range slices.Backward(all) {
		if v := &all[i]; !live[v.Key.Projector] {
			v.Role, live[v.Key.Projector] = Live, true
		}
	}
	return all
}
