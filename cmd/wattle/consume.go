// wattle consume: the messages of a topic, and those that come.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/topic"
)

// consuming is what the flags of consume say.
type consuming struct {
	topic.Consumption
	from      string
	partition int
	follow    bool
	placed    bool // there is an --offset
}

func (a *app) consumeCommand() *cobra.Command {
	w := consuming{partition: -1}
	var offset uint64
	c := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "print the messages of a topic, and follow it",
		Long: `Consume prints the messages that are in a topic: of each partition in their order. With -f it goes
on with those that are published, until it is interrupted, which is its regular end (exit 0).

With --consumer it goes on where the consumer of that name left off, and commits what it has
printed. Several that run under one name share the partitions.`,
		Example: `  wattle consume orders
  wattle consume orders -f --from new -o json
  wattle consume orders --partition 2 --offset 41
  wattle consume orders -f --consumer billing`,
		Args: arguments("TOPIC"),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if w.Topic, err = eventstore.ParseCategory(args[0]); err != nil {
				return err
			}
			switch w.from {
			case "first":
			case "new":
				w.Start = topic.New
			default:
				return &usageError{"--from first or --from new", fmt.Sprintf("%q", w.from), ""}
			}
			w.placed = c.Flags().Changed("offset")
			switch {
			case w.partition >= 0:
				w.Only, w.Places = true, []topic.Place{{Partition: w.partition, Offset: eventstore.Seqno(offset)}}
			case w.placed:
				return &usageError{"--partition with --offset", "none", ""}
			}
			if w.Consumer != "" {
				w.Member = eventstore.NewUUID()
			}
			err = a.topics(c.Context(), func(s topic.Service) error { return a.consume(c.Context(), s, w) })
			if _, ok := errors.AsType[interruption](context.Cause(c.Context())); ok {
				return nil
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&w.Consumer, "consumer", "", "`NAME` of the consumer whose position is kept")
	f.StringVar(&w.from, "from", "first", "where a partition begins whose position is not known: first or new")
	f.IntVar(&w.partition, "partition", -1, "only this one")
	f.Uint64Var(&offset, "offset", 0, "begin behind this offset of it")
	f.BoolVarP(&w.follow, "follow", "f", false, "go on with the messages that come")
	return c
}

// messageJSON is a message as -o json prints it, one a line: data as that of an entry.
type messageJSON struct {
	Partition   int                 `json:"partition"`
	Offset      eventstore.Seqno    `json:"offset"`
	Key         string              `json:"key"`
	Time        time.Time           `json:"time"`
	ID          eventstore.UUID     `json:"id"`
	Type        string              `json:"type"`
	ContentType string              `json:"content_type"`
	Metadata    eventstore.Metadata `json:"metadata,omitempty"`
	Data        json.RawMessage     `json:"data,omitempty"`
	DataBase64  *string             `json:"data_base64,omitempty"`
}

// consumer is one consume at work.
type consumer struct {
	app  *app
	s    topic.Service
	w    consuming
	goal map[int]eventstore.Seqno // without -f: where each partition ends
	at   map[int]eventstore.Seqno // of the partitions that it has
	out  *bufio.Writer

	columns columns // of the table, once it has begun
}

func (a *app) consume(ctx context.Context, s topic.Service, w consuming) error {
	c := &consumer{app: a, s: s, w: w, at: map[int]eventstore.Seqno{}, out: bufio.NewWriter(a.stdout)}
	if !w.follow || w.Only {
		if err := c.aim(ctx); err != nil {
			return err
		}
	}
	if !w.follow {
		if w.Consumer == "" && c.arrived() {
			return nil
		}
	}
	for d, err := range s.Consume(ctx, c.w.Consumption) {
		if err == nil {
			err = c.take(ctx, d)
		}
		if err != nil {
			return err
		}
		if !w.follow && (w.Consumer == "" || c.assigned()) && c.arrived() {
			return nil
		}
	}
	return nil
}

// aim notes where the partitions end now.
func (c *consumer) aim(ctx context.Context) error {
	d, err := c.s.Describe(ctx, c.w.Topic)
	if err != nil {
		return err
	}
	c.goal = map[int]eventstore.Seqno{}
	for _, p := range d.Partitions {
		if c.w.Only && p.Number != c.w.partition {
			continue
		}
		c.goal[p.Number] = p.Head.Last.Seqno
		if c.w.Consumer == "" {
			c.at[p.Number] = p.Head.Trimmed
			if c.w.Start == topic.New {
				c.at[p.Number] = p.Head.Last.Seqno
			}
		}
	}
	if !c.w.Only {
		return nil
	}
	if _, there := c.goal[c.w.partition]; !there {
		return &usageError{fmt.Sprintf("a partition of %s: 0 to %d", c.w.Topic, len(d.Partitions)-1), fmt.Sprint(c.w.partition), ""}
	}
	if !c.w.placed {
		c.w.Places[0].Offset = c.at[c.w.partition]
	}
	c.at = map[int]eventstore.Seqno{c.w.partition: c.w.Places[0].Offset}
	return nil
}

// assigned says if it knows which partitions it has.
func (c *consumer) assigned() bool { return len(c.at) > 0 }

// arrived says if nothing is left of what was there.
func (c *consumer) arrived() bool {
	for partition, at := range c.at {
		if at < c.goal[partition] {
			return false
		}
	}
	return true
}

// take prints messages and then commits them.
func (c *consumer) take(ctx context.Context, d topic.Delivery) error {
	if d.Assignment != nil {
		clear(c.at)
		for _, p := range d.Assignment {
			c.at[p.Partition] = p.Offset
		}
	}
	if len(d.Messages) == 0 {
		return nil
	}
	for _, m := range d.Messages {
		if err := c.print(m); err != nil {
			return err
		}
	}
	if err := c.out.Flush(); err != nil {
		return err
	}
	place := topic.Place{Partition: d.Partition, Offset: d.Messages[len(d.Messages)-1].Offset}
	c.at[d.Partition] = place.Offset
	if c.w.Consumer == "" {
		return nil
	}
	_, err := c.s.Commit(ctx, topic.Commit{Topic: c.w.Topic, Consumer: c.w.Consumer, Member: c.w.Member, Places: []topic.Place{place}})
	return err // what was lost is another member's: it comes again there
}

func (c *consumer) print(m topic.Message) error {
	if c.app.output == outputJSON {
		j := messageJSON{Partition: m.Partition, Offset: m.Offset, Key: m.Key, Time: m.Time, ID: m.ID, Type: m.Type, ContentType: m.ContentType, Metadata: m.Metadata}
		j.Data, j.DataBase64 = dataJSON(m.Data)
		return encoder(c.out).Encode(j)
	}
	if c.columns == nil {
		c.columns = columns{9, 6, 20, 0}
		if err := c.columns.print(c.out, []string{"PARTITION", "OFFSET", "KEY", "DATA"}); err != nil {
			return err
		}
	}
	return c.columns.print(c.out, []string{strconv.Itoa(m.Partition), m.Offset.String(), printable(m.Key), dataText(m.Data)})
}
