// Messages as the words of topics. What a message says is never trusted: what cannot be
// is ErrInvalid on whichever side it comes in.

package remotetopic

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
	"github.com/wattle-es/wattle/topic"
)

// maxPlaces bounds the places of one message.
const maxPlaces = topic.MaxPartitions

// reader reads one message and keeps the first thing that is wrong with it.
type reader struct{ err error }

// take keeps what is wrong.
func take[T any](r *reader, v T, err error) T {
	if err != nil && r.err == nil {
		r.err = err
	}
	return v
}

// wrong notes what is wrong with a field.
func (r *reader) wrong(field, wanted, found string) {
	if r.err == nil {
		r.err = &eventstore.Error{Kind: eventstore.ErrInvalid, Wanted: field + ": " + wanted, Found: found}
	}
}

// there notes that a part is missing that must be there.
func there[M any](r *reader, field string, m *M) bool {
	if m == nil {
		r.wrong(field, "it to be set", "nothing")
	}
	return m != nil
}

func (r *reader) count(field string, n uint32) int {
	v, err := wire.ToCount(field, n)
	return take(r, v, err)
}

func (r *reader) offset(field string, n uint64) eventstore.Seqno {
	v, err := wire.ToNumber[eventstore.Seqno](field, n)
	return take(r, v, err)
}

func (r *reader) uuid(field, s string) eventstore.UUID {
	v, err := wire.ToUUID(field, s)
	return take(r, v, err)
}

func (r *reader) duration(field string, d *durationpb.Duration) time.Duration {
	v, err := wire.ToDuration(field, d)
	return take(r, v, err)
}

// each makes a list of a list of messages; none is nil.
func each[M, T any](r *reader, messages []M, value func(*reader, M) T) []T {
	if len(messages) == 0 {
		return nil
	}
	values := make([]T, len(messages))
	for i, m := range messages {
		if values[i] = value(r, m); r.err != nil {
			return nil
		}
	}
	return values
}

// read returns the value of a message, or what is wrong with it and nothing.
func read[M, T any](m M, value func(*reader, M) T) (T, error) {
	var r reader
	v := value(&r, m)
	if r.err != nil {
		var none T
		return none, r.err
	}
	return v, nil
}

func (r *reader) spec(m *wattlev1.Topic) (s topic.Spec) {
	if !there(r, "topic", m) {
		return s
	}
	s = topic.Spec{Name: eventstore.Category(m.GetName()), Partitions: r.count("topic.partitions", m.GetPartitions()),
		DedupWindow: r.duration("topic.dedup_window", m.GetDedupWindow())}
	t := m.GetRetention()
	if t.GetMaxBytes() > math.MaxInt64 {
		r.wrong("topic.retention.max_bytes", "at most 2^63-1", fmt.Sprint(t.GetMaxBytes()))
	}
	s.Retention = topic.Retention{MaxBytes: int64(t.GetMaxBytes()), MaxAge: r.duration("topic.retention.max_age", t.GetMaxAge()), Consumed: t.GetConsumed()}
	return s
}

func (r *reader) publication(m *wattlev1.PublishRequest) (p topic.Publication) {
	if !there(r, "publish", m) {
		return p
	}
	tried, err := wire.ToTime("first_tried", m.GetFirstTried())
	take(r, tried, err)
	events, err := wire.ToEvents(m.GetEvents())
	take(r, events, err)
	return topic.Publication{Topic: eventstore.Category(m.GetTopic()), Key: m.GetKey(), ID: r.uuid("id", m.GetId()), FirstTried: tried, Events: events}
}

// published reads the answer to a publication of so many events.
func (r *reader) published(m *wattlev1.PublishResponse, events int) (p topic.Published) {
	if !there(r, "published", m) {
		return p
	}
	p = topic.Published{Partition: r.count("partition", m.GetPartition()), First: r.offset("first", m.GetFirst()), Last: r.offset("last", m.GetLast()), Replays: m.GetReplays()}
	switch {
	case p.Partition >= topic.MaxPartitions:
		r.wrong("partition", fmt.Sprintf("below %d", topic.MaxPartitions), fmt.Sprint(p.Partition))
	case p.First == 0 || uint64(p.Last)-uint64(p.First)+1 != uint64(events) || p.Last < p.First:
		r.wrong("first, last", fmt.Sprintf("the offsets of %d messages", events), fmt.Sprintf("%v, %v", p.First, p.Last))
	}
	return p
}

func (r *reader) partition(m *wattlev1.Partition) (p topic.Partition) {
	if !there(r, "partition", m) {
		return p
	}
	h, err := wire.ToHead(m.GetHead())
	return topic.Partition{Number: r.count("partition.number", m.GetNumber()), Head: take(r, h, err), Owner: m.GetOwner()}
}

func (r *reader) consumer(m *wattlev1.Consumer) (c topic.Consumer) {
	if !there(r, "consumer", m) {
		return c
	}
	return topic.Consumer{Name: m.GetName(), Positions: each(r, m.GetPositions(), func(r *reader, m *wattlev1.ConsumerPosition) (p topic.ConsumerPosition) {
		if !there(r, "consumer.positions", m) {
			return p
		}
		return topic.ConsumerPosition{Lag: m.GetLag(), Member: r.uuid("consumer.positions.member", m.GetMember()),
			Place: topic.Place{Partition: r.count("consumer.positions.partition", m.GetPartition()), Offset: r.offset("consumer.positions.offset", m.GetOffset())}}
	})}
}

func (r *reader) description(m *wattlev1.DescribeTopicResponse) (d topic.Description) {
	d = topic.Description{Spec: r.spec(m.GetTopic()), Partitions: each(r, m.GetPartitions(), (*reader).partition), Consumers: each(r, m.GetConsumers(), (*reader).consumer)}
	if len(d.Partitions) != d.Spec.Partitions || d.Spec.Partitions > topic.MaxPartitions {
		r.wrong("partitions", fmt.Sprintf("%d, and at most %d", d.Spec.Partitions, topic.MaxPartitions), fmt.Sprint(len(d.Partitions)))
		return d
	}
	for n, p := range d.Partitions {
		if p.Number != n {
			r.wrong("partition.number", fmt.Sprint(n), fmt.Sprint(p.Number))
		}
	}
	return d
}

func (r *reader) place(m *wattlev1.Place) (p topic.Place) {
	if !there(r, "place", m) {
		return p
	}
	return topic.Place{Partition: r.count("place.partition", m.GetPartition()), Offset: r.offset("place.offset", m.GetOffset())}
}

func (r *reader) places(m []*wattlev1.Place) []topic.Place {
	if len(m) > maxPlaces {
		r.wrong("places", fmt.Sprintf("at most %d", maxPlaces), fmt.Sprint(len(m)))
		return nil
	}
	return each(r, m, (*reader).place)
}

func (r *reader) consumption(m *wattlev1.ConsumeRequest) topic.Consumption {
	c := topic.Consumption{Topic: eventstore.Category(m.GetTopic()), Places: r.places(m.GetPlaces()), Only: m.GetOnlyPlaces(), Consumer: m.GetConsumer(),
		Member: r.uuid("member", m.GetMember()), Heartbeat: r.duration("heartbeat", m.GetHeartbeat())}
	switch s := m.GetStart(); s {
	case wattlev1.Start_START_UNSPECIFIED, wattlev1.Start_START_FIRST:
	case wattlev1.Start_START_NEW:
		c.Start = topic.New
	default:
		r.wrong("start", "first or new", fmt.Sprint(int32(s)))
	}
	return c
}

func (r *reader) message(m *wattlev1.Message) (v topic.Message) {
	if !there(r, "message", m) {
		return v
	}
	e, err := wire.ToEvent(m.GetEvent())
	take(r, e, err)
	at, err := wire.ToTime("message.time", m.GetTime())
	return topic.Message{Event: e, Offset: r.offset("message.offset", m.GetOffset()), Key: m.GetKey(), Time: take(r, at, err)}
}

func (r *reader) delivery(m *wattlev1.ConsumeResponse) topic.Delivery {
	d := topic.Delivery{Partition: r.count("partition", m.GetPartition()), Messages: each(r, m.GetMessages(), (*reader).message), End: m.GetEnd()}
	if d.Partition >= topic.MaxPartitions {
		r.wrong("partition", fmt.Sprintf("below %d", topic.MaxPartitions), fmt.Sprint(d.Partition))
	}
	for i := range d.Messages {
		d.Messages[i].Partition = d.Partition
	}
	if a := m.GetAssignment(); a != nil {
		if d.Assignment = r.places(a.GetPlaces()); d.Assignment == nil {
			d.Assignment = []topic.Place{}
		}
	}
	return d
}

func (r *reader) commit(m *wattlev1.CommitRequest) topic.Commit {
	return topic.Commit{Topic: eventstore.Category(m.GetTopic()), Consumer: m.GetConsumer(), Member: r.uuid("member", m.GetMember()), Places: r.places(m.GetPlaces())}
}
