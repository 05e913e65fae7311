// Entries that nobody of this package has written are refused or read, never more.

package logcheckpoint

import (
	"errors"
	"reflect"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

func zeros(keys []projector.Key) map[projector.Key]projector.Checkpoint {
	kept := map[projector.Key]projector.Checkpoint{}
	for _, k := range keys {
		kept[k] = projector.Checkpoint{}
	}
	return kept
}

func FuzzDecode(f *testing.F) {
	for _, data := range []string{`{"epoch":1,"position":2,"recent":"Bw=="}`, `[{"key":"a","queue":[{"stream":"account-a","from":1}]}]`,
		`{"key":"a"}`, `[{"projector":"p","version":1,"lanes":2}]`, `[{"projector":"p","version":1,"lanes":-2}]`, `["p"]`, `[1,2]`, `[{"projector":"p","version":1,"lane":2}]`, `[{"projector":"p","lane":-2}]`, `null`, `{`, ``} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		entry := func(typ string) *eventstore.Entry {
			return &eventstore.Entry{Stream: "checkpoint-x", Event: eventstore.Event{Type: typ, Version: 1, Data: data}}
		}
		check := func(err error) {
			if err != nil && !errors.Is(err, eventstore.ErrCorrupt) {
				t.Errorf("%v", err)
			}
		}
		c, err := decodeCheckpoint(entry(typeCheckpoint))
		if check(err); err == nil {
			e := checkpointEvent(c)
			again, err := decodeCheckpoint(&eventstore.Entry{Event: e})
			if err != nil || !again.Same(c) || again.Mark != c.Mark {
				t.Errorf("%+v became %+v, %v", c, again, err)
			}
		}
		parked, err := decodeParked(entry(typeParked))
		if check(err); err == nil && len(parked) > 0 && parked[0].Since.Year() >= 0 && parked[0].Since.Year() < 9999 {
			e := parkedEvent(parked[:1])
			again, err := decodeParked(&eventstore.Entry{Event: e})
			if err != nil || again[0].StreamKey != parked[0].StreamKey || !reflect.DeepEqual(again[0].Queue, parked[0].Queue) {
				t.Errorf("%+v became %+v, %v", parked[0], again, err)
			}
		}
		_, err = decodeSkipped(entry(typeSkipped))
		check(err)
		versions, err := decodeVersions(entry(typeVersions))
		check(err)
		for _, v := range versions {
			if len(v.Lanes) == 0 {
				t.Errorf("a version without lanes: %+v", v)
			}
		}
		_, err = decodeNames(entry(typeNames))
		check(err)
		loose, err := decodeLoose(entry(typeLoose))
		if check(err); len(projector.AdoptVersions(nil, zeros(loose))) > len(loose) { // does not panic
			t.Errorf("more versions than %v", loose)
		}
	})
}
