// What arrives is checked, so that no message comes twice and none is missing.

package remotetopic

import (
	"fmt"
	"maps"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/topic"
)

// checker knows how far a consumption has come.
type checker struct {
	topic  eventstore.Category
	member bool
	only   bool
	// at is the last message of each partition. Without a name those partitions of which
	// something came, or whose place was said; of a member those that it has.
	at map[int]eventstore.Seqno
}

func newChecker(q topic.Consumption) checker {
	c := checker{topic: q.Topic, member: q.Consumer != "", only: q.Only, at: map[int]eventstore.Seqno{}}
	for _, p := range q.Places {
		c.at[p.Partition] = p.Offset
	}
	return c
}

// resume begins a new stream: a member is told anew what it has.
func (c *checker) resume() {
	if c.member {
		c.at = nil
	}
}

// request is a consumption from here on.
func (c *checker) request(q topic.Consumption) topic.Consumption {
	if c.member {
		return q
	}
	q.Places = nil
	for _, p := range slices.Sorted(maps.Keys(c.at)) {
		q.Places = append(q.Places, topic.Place{Partition: p, Offset: c.at[p]})
	}
	return q
}

// next checks a delivery and goes on behind it.
func (c *checker) next(d *topic.Delivery) error {
	if d.Assignment != nil {
		if err := c.assign(d.Assignment); err != nil {
			return err
		}
	}
	if len(d.Messages) == 0 {
		return nil
	}
	at, known := c.at[d.Partition]
	if !known && (c.member || c.only) {
		return corrupt(c.topic, "messages of partitions that were asked for", fmt.Sprintf("some of partition %d", d.Partition))
	}
	for i := range d.Messages {
		m := &d.Messages[i]
		// What a member has committed already is passed over at the beginning.
		free := i == 0 && (!known || c.member && m.Offset > at)
		if m.Offset == 0 || m.Offset != at+1 && !free {
			return corrupt(c.topic, fmt.Sprintf("message %v of partition %d", at+1, d.Partition), m.Offset.String())
		}
		if m.ID.IsZero() {
			return corrupt(c.topic, "messages with an ID", fmt.Sprintf("none of message %v of partition %d", m.Offset, d.Partition))
		}
		at = m.Offset
	}
	c.at[d.Partition] = at
	return nil
}

func (c *checker) assign(places []topic.Place) error {
	if !c.member {
		return corrupt(c.topic, "messages", "an assignment, of no member")
	}
	c.at = make(map[int]eventstore.Seqno, len(places))
	for _, p := range places {
		if _, twice := c.at[p.Partition]; twice || p.Partition >= topic.MaxPartitions {
			return corrupt(c.topic, "each partition once", fmt.Sprintf("partition %d", p.Partition))
		}
		c.at[p.Partition] = p.Offset
	}
	return nil
}

func corrupt(name eventstore.Category, wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: "consume", Category: name, Wanted: wanted, Found: found,
		Hint: "the server has sent what no topic holds"}
}
