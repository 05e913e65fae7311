// What a message is in memory, which is more than its bytes: a few of them can be many parts.

package wire

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

// What parts take beside their bytes: as messages of Go (some 130 bytes for an empty event,
// measured) and as what is made of these.
const (
	partBytes = 300 // an event, a batch, any message
	pairBytes = 100 // a key and its value
	nameBytes = 50  // one in a list
)

// Weight is about how many bytes a decoded message and what is made of it have in memory.
func Weight(m proto.Message) int { return proto.Size(m) + overhead(m) }

// overhead is counted by hand for the messages that come in numbers.
func overhead(m proto.Message) int {
	switch m := m.(type) {
	case *wattlev1.AppendRequest:
		return ofAppend(m.GetBatches(), m.GetGuards())
	case *wattlev1.ProduceRequest:
		return ofAppend(m.GetBatches(), m.GetGuards())
	case *wattlev1.PublishRequest:
		return ofEvents(m.GetEvents())
	case *wattlev1.PublishStreamRequest:
		return ofEvents(m.GetPublish().GetEvents())
	}
	return ofAny(m.ProtoReflect())
}

func ofAppend(batches []*wattlev1.Batch, guards []*wattlev1.Guard) int {
	n := partBytes * (1 + len(batches) + len(guards))
	for _, b := range batches {
		n += ofEvents(b.GetEvents())
	}
	return n
}

func ofEvents(events []*wattlev1.Event) int {
	n := partBytes * (1 + len(events))
	for _, e := range events {
		n += pairBytes * len(e.GetMetadata())
	}
	return n
}

// ofAny is for every other message.
func ofAny(m protoreflect.Message) int {
	n := partBytes
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			n += pairBytes * v.Map().Len()
		case f.IsList():
			list := v.List()
			if f.Message() == nil {
				n += nameBytes * list.Len()
				break
			}
			for i := range list.Len() {
				n += ofAny(list.Get(i).Message())
			}
		case f.Message() != nil:
			n += ofAny(v.Message())
		}
		return true
	})
	return n
}
