// Positions: how far a named consumer has come in a partition, and how that is kept.

package topic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/wattle-es/wattle/eventstore"
)

// positionCategory holds what is kept about consumers, in shared layout, trimmed freely:
//
//	wattle_consumers-TOPIC                     names of the topic's consumers, see position_names.go
//	wattle_consumers-TOPIC-PARTITION-CONSUMER  position of a consumer in a partition
//
// A topic's name holds no '-' and a partition is a number, so no two names are alike
// whatever a consumer is called, and the longest is within MaxKeyBytes. The last entry of
// a stream says what holds; those before it are trimmed.
//
// Who acquires a partition's lease fences the stream of its position at the lease's
// epoch, reads the position behind the fence and only then delivers. A commit is an
// append under that epoch: one of a member that has lost the partition, and was frozen
// meanwhile, is refused.
const positionCategory eventstore.Category = "wattle_consumers"

// Types of what is kept.
const (
	typeMoved  = "consumer.moved"
	typeErased = "consumer.erased" // begin anew
	typeNamed  = "consumer.named"
)

// positionData is a position as it is kept: the offset of the last message done, and that
// message's ID, by which a log that lost its history is noticed. The ID is missing when
// the message had been trimmed already. One of another topic, that had the same name and
// was deleted, counts for nothing.
type positionData struct {
	Topic  eventstore.UUID  `json:"topic"` // the one it is of
	Offset eventstore.Seqno `json:"offset"`
	ID     eventstore.UUID  `json:"id,omitzero"`
}

func (d positionData) mark() eventstore.Mark { return eventstore.Mark{Seqno: d.Offset, ID: d.ID} }

// position is what is known of one.
type position struct {
	stream  eventstore.Stream
	topic   eventstore.UUID
	at      eventstore.Mark // in the partition
	is      bool            // there is one; else the consumer begins
	epoch   eventstore.Epoch
	holder  eventstore.UUID
	last    eventstore.Mark // of the stream
	trimmed eventstore.Seqno
}

func positionStream(topic eventstore.Category, partition int, consumer string) eventstore.Stream {
	return eventstore.Stream(fmt.Sprintf("%s-%s-%d-%s", positionCategory, topic, partition, consumer))
}

// checkConsumer is the rule for names of consumers.
func checkConsumer(op string, topic eventstore.Category, name string) error {
	e := &eventstore.Error{Kind: eventstore.ErrInvalid, Op: op, Category: topic,
		Wanted: fmt.Sprintf("the name of a consumer: 1 to %d bytes of UTF-8 without control characters", MaxConsumerBytes)}
	switch {
	case name == "" || len(name) > MaxConsumerBytes:
		e.Found = fmt.Sprintf("%d bytes", len(name))
		return e
	case !utf8.ValidString(name):
		e.Found = fmt.Sprintf("%q", name)
		return e
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			e.Found = fmt.Sprintf("%q", name)
			return e
		}
	}
	return nil
}

// loadPosition reads a position as it stands. Between its two reads others may commit;
// then it reads again.
func (c *consumers) loadPosition(ctx context.Context, topic eventstore.UUID, stream eventstore.Stream) (position, error) {
	for try := 0; ; try++ {
		h, err := c.store.Head(ctx, stream)
		if err != nil {
			return position{}, err
		}
		pos, err := c.positionAt(ctx, topic, stream, h)
		if try < commitTries && errors.Is(err, eventstore.ErrTrimmed) {
			continue
		}
		return pos, err
	}
}

// positionAt reads the position that stands at the head of its stream. Behind a fence that
// head is final.
func (c *consumers) positionAt(ctx context.Context, topic eventstore.UUID, stream eventstore.Stream, h eventstore.Head) (position, error) {
	pos := position{stream: stream, topic: topic, epoch: h.Epoch, holder: h.Holder, last: h.Last, trimmed: h.Trimmed}
	if h.Last.Seqno == 0 {
		return pos, nil
	}
	page, err := c.store.ReadFrom(ctx, stream, h.Last.Seqno-1, 1)
	if err != nil {
		return position{}, err
	}
	if len(page.Entries) == 0 || page.Entries[0].Mark() != h.Last {
		return position{}, eventstore.DivergedError("read position", stream, h.Last, h)
	}
	e := page.Entries[0]
	if e.Type == typeErased {
		return pos, nil
	}
	var d positionData
	if err := json.Unmarshal(e.Data, &d); err != nil || e.Type != typeMoved || d.Offset > eventstore.MaxNumber {
		return position{}, &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: "read position", Stream: stream,
			Wanted: "a position", Found: "an entry of type " + e.Type, Err: err}
	}
	if d.Topic == topic {
		pos.at, pos.is = d.mark(), true
	}
	return pos, nil
}

// batch is the append that moves a position.
func (p *position) batch(to eventstore.Mark) eventstore.Batch {
	data, _ := json.Marshal(positionData{Topic: p.topic, Offset: to.Seqno, ID: to.ID}) // numbers and hex: never fails
	return eventstore.Batch{ID: eventstore.NewUUID(), Stream: p.stream, Epoch: p.epoch, Holder: p.holder, After: p.last,
		Events: []eventstore.Event{{Type: typeMoved, Data: data}}}
}

// moved takes note of an append that moved it.
func (p *position) moved(to eventstore.Mark, r eventstore.Receipt) {
	p.at, p.is, p.last = to, true, r.Last
}

// append writes positions in one step, all or none. An outcome that is not known is
// settled by sending the same again.
func (c *consumers) append(ctx context.Context, batches []eventstore.Batch) (eventstore.Appended, error) {
	return appendKnown(ctx, c.store, batches, unknownTries)
}

// tidy trims what stands before a position, once in a while.
func (c *consumers) tidy(ctx context.Context, p *position) {
	if p.last.Seqno < p.trimmed+keptPositions {
		return
	}
	if _, err := c.store.Trim(ctx, p.stream, p.last.Seqno-1, false); err != nil {
		c.o.logger.WarnContext(ctx, "old positions not trimmed; the next commit tries again", "stream", p.stream, "error", err)
		return
	}
	p.trimmed = p.last.Seqno - 1
}

// markOf returns the mark of a message in a partition: without an ID if it is trimmed. A
// place above the head is ErrGap.
func (c *consumers) markOf(ctx context.Context, op string, stream eventstore.Stream, at eventstore.Seqno) (eventstore.Mark, error) {
	m := eventstore.Mark{Seqno: at}
	if at == 0 {
		return m, nil
	}
	page, err := c.store.ReadFrom(ctx, stream, at-1, 1)
	switch {
	case errors.Is(err, eventstore.ErrTrimmed):
		return m, nil
	case err != nil:
		return m, err
	case len(page.Entries) == 0:
		return m, &eventstore.Error{Kind: eventstore.ErrGap, Op: op, Stream: stream, Wanted: "the offset of a message that was published", Found: at.String() + ", above the head"}
	}
	return page.Entries[0].Mark(), nil
}
