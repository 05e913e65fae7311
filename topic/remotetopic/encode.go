// The words of topics as messages.

package remotetopic

import (
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
	"github.com/wattle-es/wattle/topic"
)

// all makes a message of each.
func all[T, M any](values []T, message func(T) M) []M {
	if len(values) == 0 {
		return nil
	}
	messages := make([]M, len(values))
	for i := range values {
		messages[i] = message(values[i])
	}
	return messages
}

// fromCount is a number that must not be below 0; one that is is too large where it is read.
func fromCount(n int) uint32 {
	if n < 0 {
		return 1<<32 - 1
	}
	return wire.FromCount(n)
}

func fromSpec(s topic.Spec) *wattlev1.Topic {
	m := &wattlev1.Topic{Name: string(s.Name), Partitions: fromCount(s.Partitions), DedupWindow: wire.FromDuration(s.DedupWindow)}
	if r := s.Retention; r != (topic.Retention{}) {
		m.Retention = &wattlev1.Retention{MaxBytes: uint64(r.MaxBytes), MaxAge: wire.FromDuration(r.MaxAge), Consumed: r.Consumed}
	}
	return m
}

// fromPublication refers to the events' data and metadata.
func fromPublication(p topic.Publication) *wattlev1.PublishRequest {
	return &wattlev1.PublishRequest{Topic: string(p.Topic), Key: p.Key, Id: wire.FromUUID(p.ID), FirstTried: wire.FromTime(p.FirstTried),
		Events: wire.FromEvents(p.Events)}
}

func fromPublished(p topic.Published) *wattlev1.PublishResponse {
	return &wattlev1.PublishResponse{Partition: wire.FromCount(p.Partition), First: uint64(p.First), Last: uint64(p.Last), Replays: p.Replays}
}

func fromDescription(d topic.Description) *wattlev1.DescribeTopicResponse {
	return &wattlev1.DescribeTopicResponse{Topic: fromSpec(d.Spec), Partitions: all(d.Partitions, fromPartition), Consumers: all(d.Consumers, fromConsumer)}
}

func fromPartition(p topic.Partition) *wattlev1.Partition {
	return &wattlev1.Partition{Number: wire.FromCount(p.Number), Head: wire.FromHead(p.Head), Owner: p.Owner}
}

func fromConsumer(c topic.Consumer) *wattlev1.Consumer {
	return &wattlev1.Consumer{Name: c.Name, Positions: all(c.Positions, func(p topic.ConsumerPosition) *wattlev1.ConsumerPosition {
		return &wattlev1.ConsumerPosition{Partition: wire.FromCount(p.Partition), Offset: uint64(p.Offset), Lag: p.Lag, Member: wire.FromUUID(p.Member)}
	})}
}

func fromPlace(p topic.Place) *wattlev1.Place {
	return &wattlev1.Place{Partition: fromCount(p.Partition), Offset: uint64(p.Offset)}
}

func fromConsumption(c topic.Consumption) *wattlev1.ConsumeRequest {
	return &wattlev1.ConsumeRequest{Topic: string(c.Topic), Places: all(c.Places, fromPlace), OnlyPlaces: c.Only,
		Start: wattlev1.Start(c.Start) + wattlev1.Start_START_FIRST, Consumer: c.Consumer, Member: wire.FromUUID(c.Member),
		Heartbeat: wire.FromDuration(c.Heartbeat)}
}

// fromMessage refers to the message's data and metadata.
func fromMessage(m topic.Message) *wattlev1.Message {
	return &wattlev1.Message{Offset: uint64(m.Offset), Key: m.Key, Event: wire.FromEvent(m.Event), Time: wire.FromTime(m.Time)}
}

// fromDelivery leaves the generation of an assignment to be set.
func fromDelivery(d topic.Delivery) *wattlev1.ConsumeResponse {
	m := &wattlev1.ConsumeResponse{Messages: all(d.Messages, fromMessage), Partition: wire.FromCount(d.Partition), End: d.End}
	if d.Assignment != nil {
		m.Assignment = &wattlev1.Assignment{Places: all(d.Assignment, fromPlace)}
	}
	return m
}

func fromCommit(c topic.Commit) *wattlev1.CommitRequest {
	return &wattlev1.CommitRequest{Topic: string(c.Topic), Consumer: c.Consumer, Member: wire.FromUUID(c.Member), Places: all(c.Places, fromPlace)}
}
