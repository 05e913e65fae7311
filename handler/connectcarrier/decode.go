// Messages as the contract's types, read as strictly as the contract's JSON.

package connectcarrier

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/connectcarrier/handlerv1"
)

// reader reads one message and keeps the first thing that is wrong with it.
type reader struct {
	what string // request or reply
	err  error
}

func (d *reader) wrong(name string, err error) {
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("%s: %s: %w", d.what, name, err)
	}
}

// known notes fields that a message has and the contract does not.
func (d *reader) known(name string, m proto.Message) {
	if n := len(m.ProtoReflect().GetUnknown()); n > 0 {
		d.wrong(name, fmt.Errorf("wanted the fields of version %d of the contract, found %d bytes of others", handler.Version, n))
	}
}

func (d *reader) version(v uint32) {
	if v != handler.Version {
		d.wrong("v", fmt.Errorf("wanted version %d of the contract, found %d", handler.Version, v))
	}
}

// parsed reads a text that has a form; the empty one is none.
func parsed[T any](d *reader, name, s string, parse func(string) (T, error)) (value T) {
	if s == "" {
		return value
	}
	value, err := parse(s)
	d.wrong(name, err)
	return value
}

func (d *reader) uuid(name, s string) eventstore.UUID {
	return parsed(d, name, s, eventstore.ParseUUID)
}

func (d *reader) stream(s string) eventstore.Stream {
	return parsed(d, "stream", s, eventstore.ParseStream)
}

func (d *reader) count(name string, n uint32) int {
	if n > math.MaxInt32 {
		d.wrong(name, fmt.Errorf("wanted a whole number below 2147483648, found %d", n))
	}
	return int(n)
}

func number[T ~uint64](d *reader, name string, n uint64) T {
	if n > eventstore.MaxNumber {
		d.wrong(name, fmt.Errorf("wanted a number up to 2^63-1, found %d", n))
	}
	return T(n)
}

func (d *reader) time(name string, t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	d.known(name, t)
	d.wrong(name, t.CheckValid())
	return t.AsTime()
}

// json reads a value that must be JSON; nil is none.
func (d *reader) json(name string, b []byte) []byte {
	if b == nil {
		return nil
	}
	value, err := handler.JSON(b)
	d.wrong(name, err)
	return value
}

func (d *reader) mark(name string, m *handlerv1.Mark) (mark eventstore.Mark) {
	if m == nil {
		return mark
	}
	d.known(name, m)
	return eventstore.Mark{Seqno: number[eventstore.Seqno](d, name, m.GetSeqno()), ID: d.uuid(name, m.GetId())}
}

func (d *reader) documents(name string, m map[string][]byte) map[string][]byte {
	if len(m) == 0 {
		return nil
	}
	docs := make(map[string][]byte, len(m))
	for k, doc := range m {
		docs[k] = d.json(name, present(doc))
	}
	return docs
}

func meta(m map[string]string) eventstore.Metadata {
	if len(m) == 0 {
		return nil
	}
	return m
}

// read makes a list of a list of messages.
func read[T, M any](messages []*M, value func(*M) T) []T {
	if len(messages) == 0 {
		return nil
	}
	all := make([]T, len(messages))
	for i, m := range messages {
		all[i] = value(m)
	}
	return all
}

// decodeRequest is the request of a message, to whose payloads it refers.
func decodeRequest(m *handlerv1.Request) (*handler.Request, error) {
	d := &reader{what: "request"}
	d.version(m.GetV())
	d.known("request", m)
	r := &handler.Request{Op: handler.Op(m.GetOp()), Key: d.uuid("key", m.GetKey()), Deadline: d.time("deadline", m.GetDeadline()),
		Traceparent: m.GetTraceparent(), Tracestate: m.GetTracestate(), Now: d.time("now", m.GetNow()), ID: d.uuid("id", m.GetId()),
		Stream: d.stream(m.GetStream()), After: d.mark("after", m.GetAfter()),
		StateVersion: d.count("state_version", m.GetStateVersion()), State: d.json("state", m.GetState()),
		Projector: m.GetProjector(), ProjectorVersion: d.count("projector_version", m.GetProjectorVersion()),
		Events: read(m.GetEvents(), d.entry), Docs: d.documents("docs", m.GetDocs())}
	if c := m.GetCommand(); c != nil {
		command := d.command(c)
		r.Command = &command
	}
	if d.err != nil {
		return nil, d.err
	}
	return r, nil
}

func (d *reader) entry(m *handlerv1.Entry) handler.Entry {
	d.known("events", m)
	return handler.Entry{Event: d.event(m.GetEvent()), Stream: d.stream(m.GetStream()), Seqno: number[eventstore.Seqno](d, "seqno", m.GetSeqno()),
		Position: number[eventstore.Position](d, "position", m.GetPosition()), ID: d.uuid("id", m.GetId()), Time: d.time("time", m.GetTime()),
		Metadata: meta(m.GetMeta()), Quiet: m.GetQuiet()}
}

func (d *reader) event(m *handlerv1.Event) handler.Event {
	if m == nil {
		return handler.Event{}
	}
	d.known("events", m)
	return handler.Event{Type: m.GetType(), Version: d.count("version", m.GetVersion()), ContentType: m.GetContentType(), Data: m.GetData()}
}

func (d *reader) command(m *handlerv1.Command) handler.Command {
	if m == nil {
		return handler.Command{}
	}
	d.known("command", m)
	return handler.Command{Type: m.GetType(), Version: d.count("version", m.GetVersion()), ContentType: m.GetContentType(),
		Data: m.GetData(), Metadata: meta(m.GetMeta())}
}

// decodeReply is the reply of a message, to whose payloads it refers.
func decodeReply(m *handlerv1.Reply) (*handler.Reply, error) {
	d := &reader{what: "reply"}
	d.version(m.GetV())
	d.known("reply", m)
	r := &handler.Reply{Key: d.uuid("key", m.GetKey()), Description: d.description(m.GetDescription()), Stream: d.stream(m.GetStream()),
		State: d.json("state", m.GetState()), Events: read(m.GetEvents(), d.event), Keys: m.GetKeys(), Put: d.documents("put", m.GetPut()),
		Delete: m.GetDelete(), Commands: read(m.GetCommands(), d.issue), Timers: read(m.GetTimers(), d.timer), Failed: read(m.GetFailed(), d.failed),
		Mark: d.mark("mark", m.GetMark()), Token: parsed(d, "token", m.GetToken(), eventstore.ParseToken), Replayed: m.GetReplayed(), More: m.GetMore()}
	if f := m.GetError(); f != nil {
		d.known("error", f)
		r.Failure = &handler.Failure{Code: f.GetCode(), Message: f.GetMessage()}
	}
	if j := m.GetRejected(); j != nil {
		d.known("rejected", j)
		r.Rejected = &handler.Rejected{Code: j.GetCode(), Message: j.GetMessage()}
	}
	if d.err != nil {
		return nil, d.err
	}
	return r, nil
}

func (d *reader) issue(m *handlerv1.Issue) handler.Issue {
	d.known("commands", m)
	return handler.Issue{Position: number[eventstore.Position](d, "position", m.GetPosition()), Stream: d.stream(m.GetStream()), Command: d.command(m.GetCommand())}
}

func (d *reader) timer(m *handlerv1.Timer) handler.Timer {
	d.known("timers", m)
	return handler.Timer{Position: number[eventstore.Position](d, "position", m.GetPosition()), Name: m.GetName(), Due: d.time("due", m.GetDue()),
		Data: d.json("data", m.GetData()), Cancel: m.GetCancel()}
}

func (d *reader) failed(m *handlerv1.EntryFailure) handler.EntryFailure {
	d.known("failed", m)
	return handler.EntryFailure{Position: number[eventstore.Position](d, "position", m.GetPosition()), Message: m.GetMessage()}
}

func (d *reader) description(m *handlerv1.Description) *handler.Description {
	if m == nil {
		return nil
	}
	d.known("description", m)
	return &handler.Description{Name: m.GetName(), Release: m.GetRelease(), Category: parsed(d, "category", m.GetCategory(), eventstore.ParseCategory),
		Capabilities: m.GetCapabilities(), Events: read(m.GetEvents(), d.wire), Commands: read(m.GetCommands(), d.wire),
		StateVersion: d.count("state_version", m.GetStateVersion())}
}

func (d *reader) wire(m *handlerv1.Wire) handler.Wire {
	d.known("wire names", m)
	return handler.Wire{Name: m.GetName(), Version: d.count("version", m.GetVersion())}
}
