// Entries: their JSON, which is for good, and what is read back.

package logcheckpoint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// Wire names of the entries.
const (
	typeCheckpoint = "wattle.checkpoint"
	typeParked     = "wattle.parked"
	typeSkipped    = "wattle.skipped"
	typeVersions   = "wattle.versions"
	typeNames      = "wattle.projectors"
	typeLoose      = "wattle.loose"
)

type checkpointJSON struct {
	Epoch       eventstore.Epoch    `json:"epoch"`
	Holder      eventstore.UUID     `json:"holder"`
	Incarnation eventstore.UUID     `json:"incarnation"`
	Timeline    uint64              `json:"timeline,omitempty"`
	Position    eventstore.Position `json:"position"`
	MarkAt      eventstore.Position `json:"mark_position"`
	MarkID      eventstore.UUID     `json:"mark_id"`
	Seqno       eventstore.Seqno    `json:"seqno,omitempty"`
	Recent      []byte              `json:"recent,omitempty"`
}

type parkedJSON struct {
	StreamKey string              `json:"key"`
	Stream    eventstore.Stream   `json:"stream"`
	Seqno     eventstore.Seqno    `json:"seqno"`
	Position  eventstore.Position `json:"position"`
	ID        eventstore.UUID     `json:"id"`
	Type      string              `json:"type"`
	Queue     []queuedJSON        `json:"queue"`
	Through   eventstore.Position `json:"through"`
	Count     uint64              `json:"count"`
	Cause     string              `json:"cause"`
	Stack     string              `json:"stack,omitempty"`
	Attempts  int                 `json:"attempts"`
	Trace     string              `json:"traceparent,omitempty"`
	Since     time.Time           `json:"since"`
	Request   projector.Request   `json:"request,omitempty"`
	Note      string              `json:"note,omitempty"`
}

type queuedJSON struct {
	Stream eventstore.Stream `json:"stream"`
	From   eventstore.Seqno  `json:"from"`
}

type looseJSON struct {
	Projector string `json:"projector"`
	Version   int    `json:"version"`
	Lane      int    `json:"lane"`
}

type versionJSON struct {
	Projector  string                `json:"projector"`
	Version    int                   `json:"version"`
	Lanes      int                   `json:"lanes"`
	Role       projector.Role        `json:"role"`
	Categories []eventstore.Category `json:"categories,omitempty"`
	Types      []string              `json:"types,omitempty"`
	Stream     eventstore.Stream     `json:"stream,omitempty"`
	Quiet      []uint64              `json:"quiet,omitempty"`
	Created    time.Time             `json:"created"`
}

func event(typ string, v any) eventstore.Event {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers, strings and times of this century: cannot fail
	}
	return eventstore.Event{Type: typ, Version: 1, Data: data}
}

// decode reads the last entry of a stream into v; no entry leaves it as it is.
func decode(e *eventstore.Entry, typ string, v any) error {
	if e == nil {
		return nil
	}
	var err error
	if e.Type != typ || e.Version != 1 {
		err = fmt.Errorf("found %q, version %d", e.Type, e.Version)
	} else {
		err = json.Unmarshal(e.Data, v)
	}
	if err != nil {
		return &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: opLoad, Stream: e.Stream, Wanted: "an entry " + typ + ", version 1", Found: e.Mark().String(), Err: err,
			Hint: "the category is for checkpoints alone; a newer release may have written it"}
	}
	return nil
}

func checkpointEvent(c projector.Checkpoint) eventstore.Event {
	return event(typeCheckpoint, checkpointJSON{c.Epoch, c.Holder, c.Incarnation, c.Timeline, c.Position, c.Mark.Position, c.Mark.ID, c.Seqno, c.Recent})
}

func decodeCheckpoint(e *eventstore.Entry) (projector.Checkpoint, error) {
	var j checkpointJSON
	err := decode(e, typeCheckpoint, &j)
	return projector.Checkpoint{Epoch: j.Epoch, Holder: j.Holder, Incarnation: j.Incarnation, Timeline: j.Timeline, Position: j.Position,
		Mark: eventstore.PositionMark{Position: j.MarkAt, ID: j.MarkID}, Seqno: j.Seqno, Recent: j.Recent}, err
}

func parkedToJSON(k projector.Parked) parkedJSON {
	j := parkedJSON{StreamKey: k.StreamKey, Stream: k.Stream, Seqno: k.Seqno, Position: k.Position, ID: k.ID, Type: k.Type,
		Through: k.Through, Count: k.Count, Cause: k.Cause, Stack: k.Stack, Attempts: k.Attempts, Trace: k.Trace, Since: k.Since, Request: k.Request, Note: k.Note}
	for _, q := range k.Queue {
		j.Queue = append(j.Queue, queuedJSON(q))
	}
	return j
}

func (j parkedJSON) parked() projector.Parked {
	k := projector.Parked{StreamKey: j.StreamKey, Stream: j.Stream, Seqno: j.Seqno, Position: j.Position, ID: j.ID, Type: j.Type,
		Through: j.Through, Count: j.Count, Cause: j.Cause, Stack: j.Stack, Attempts: j.Attempts, Trace: j.Trace, Since: j.Since, Request: j.Request, Note: j.Note}
	for _, q := range j.Queue {
		k.Queue = append(k.Queue, projector.Queued(q))
	}
	return k
}

func parkedEvent(parked []projector.Parked) eventstore.Event {
	all := make([]parkedJSON, len(parked))
	for i, k := range parked {
		all[i] = parkedToJSON(k)
	}
	return event(typeParked, all)
}

func decodeParked(e *eventstore.Entry) (parked []projector.Parked, err error) {
	var all []parkedJSON
	err = decode(e, typeParked, &all)
	for _, j := range all {
		parked = append(parked, j.parked())
	}
	return parked, err
}

func skippedEvent(k projector.Parked) eventstore.Event { return event(typeSkipped, parkedToJSON(k)) }

func decodeSkipped(e *eventstore.Entry) (projector.Parked, error) {
	var j parkedJSON
	err := decode(e, typeSkipped, &j)
	return j.parked(), err
}

func versionsEvent(versions []projector.Version) eventstore.Event {
	all := make([]versionJSON, len(versions))
	for i, v := range versions {
		all[i] = versionJSON{v.Key.Projector, v.Key.Version, len(v.Lanes), v.Role, v.Scope.Categories, v.Scope.Types, v.Scope.Stream, v.Quiet, v.Created}
	}
	return event(typeVersions, all)
}

// decodeVersions reads the versions, with as many empty lanes as they have.
func decodeVersions(e *eventstore.Entry) (versions []projector.Version, err error) {
	var all []versionJSON
	err = decode(e, typeVersions, &all)
	for _, j := range all {
		if j.Lanes < 1 || j.Lanes > projector.MaxLanes {
			return nil, &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: opLoad, Stream: e.Stream, Wanted: fmt.Sprintf("1 to %d lanes", projector.MaxLanes), Found: fmt.Sprint(j.Lanes)}
		}
		versions = append(versions, projector.Version{Key: projector.Key{Projector: j.Projector, Version: j.Version}, Role: j.Role, Quiet: j.Quiet,
			Scope: projector.Scope{Categories: j.Categories, Types: j.Types, Stream: j.Stream}, Lanes: make([]projector.Checkpoint, j.Lanes), Created: j.Created})
	}
	return versions, err
}

func namesEvent(names []string) eventstore.Event { return event(typeNames, names) }

func decodeNames(e *eventstore.Entry) (names []string, err error) {
	err = decode(e, typeNames, &names)
	return names, err
}

func looseEvent(keys []projector.Key) eventstore.Event {
	all := make([]looseJSON, len(keys))
	for i, k := range keys {
		all[i] = looseJSON(k)
	}
	return event(typeLoose, all)
}

func decodeLoose(e *eventstore.Entry) (keys []projector.Key, err error) {
	var all []looseJSON
	err = decode(e, typeLoose, &all)
	for _, j := range all {
		if j.Lane < 0 || j.Lane >= projector.MaxLanes {
			return nil, &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: opLoad, Stream: e.Stream, Wanted: fmt.Sprintf("a lane below %d", projector.MaxLanes), Found: fmt.Sprint(j.Lane)}
		}
		keys = append(keys, projector.Key(j))
	}
	return keys, err
}

func byKey(parked []projector.Parked) []projector.Parked {
	slices.SortFunc(parked, func(a, b projector.Parked) int { return cmp.Compare(a.StreamKey, b.StreamKey) })
	return parked
}

func byVersion(a, b projector.Version) int {
	return cmp.Or(cmp.Compare(a.Key.Projector, b.Key.Projector), cmp.Compare(a.Key.Version, b.Key.Version))
}
