// wattle topic: creating, listing, describing and deleting topics.

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/topic"
)

func (a *app) topicCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "topic",
		Short: "create, list, describe or delete topics",
		Long: `A topic is for plain publishers and consumers: who publishes names the topic and a key, and gets a
partition and an offset. Its partitions are dedicated logs, each owned by one server under a
lease. See also wattle publish and wattle consume.`,
	}
	group(c)
	c.AddCommand(a.topicCreateCommand(), a.topicListCommand(), a.topicDescribeCommand(), a.topicDeleteCommand())
	return c
}

// topics opens the topics of the store and closes them when f has ended.
func (a *app) topics(ctx context.Context, f func(topic.Service) error) error {
	return a.topicsBy(ctx, (*open.Target).Topics, &open.Options{Logger: a.logger()}, f)
}

func (a *app) topicsBy(ctx context.Context, by func(*open.Target, context.Context, *open.Options) (*open.Topics, error), o *open.Options, f func(topic.Service) error) error {
	t, err := a.target("")
	if err != nil {
		return err
	}
	topics, err := by(t, ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(f(topics), topics.Close())
}

func (a *app) topicCreateCommand() *cobra.Command {
	var spec topic.Spec
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "create a topic",
		Long: `Create creates a topic. Where it exists alike already, nothing happens; where it exists with other
settings, it is refused. The number of partitions is fixed.

Messages are kept until they are over one of the bounds of retention, for ever without any.
--consumed removes what all named consumers have committed, and keeps what one of them still needs.`,
		Example: `  wattle topic create orders
  wattle topic create clicks --partitions 16 --max-age 72h --max-bytes 10000000000`,
		Args: arguments("NAME"),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if spec.Name, err = eventstore.ParseCategory(args[0]); err != nil {
				return err
			}
			o := &open.Options{Create: true, Logger: a.logger()}
			return a.topicsBy(c.Context(), (*open.Target).Topics, o, func(s topic.Service) error { return s.Create(c.Context(), spec) })
		},
	}
	f := c.Flags()
	f.IntVar(&spec.Partitions, "partitions", topic.DefaultPartitions, "how many logs, 1 to "+strconv.Itoa(topic.MaxPartitions))
	f.Int64Var(&spec.Retention.MaxBytes, "max-bytes", 0, "most `BYTES` of messages that one partition keeps; 0: all")
	f.DurationVar(&spec.Retention.MaxAge, "max-age", 0, "how long a message is kept; 0: for ever")
	f.BoolVar(&spec.Retention.Consumed, "consumed", false, "remove what all named consumers have committed")
	f.DurationVar(&spec.DedupWindow, "dedup-window", topic.DefaultDedupWindow, "how long a publication is known by its ID")
	return c
}

// topicJSON is a topic as -o json prints it.
type topicJSON struct {
	Name        eventstore.Category `json:"name"`
	Partitions  int                 `json:"partitions"`
	MaxBytes    int64               `json:"max_bytes"`
	MaxAge      string              `json:"max_age"`
	Consumed    bool                `json:"consumed"`
	DedupWindow string              `json:"dedup_window"`
}

func jsonOfTopic(s topic.Spec) topicJSON {
	return topicJSON{s.Name, s.Partitions, s.Retention.MaxBytes, s.Retention.MaxAge.String(), s.Retention.Consumed, s.DedupWindow.String()}
}

// kept is the retention in words.
func kept(r topic.Retention) string {
	words := ""
	add := func(s string) {
		if words != "" {
			words += ", "
		}
		words += s
	}
	if r.MaxBytes > 0 {
		add(fmt.Sprintf("%d bytes", r.MaxBytes))
	}
	if r.MaxAge > 0 {
		add(r.MaxAge.String())
	}
	if r.Consumed {
		add("until consumed")
	}
	if words == "" {
		return "all"
	}
	return words
}

func (a *app) topicListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "list the topics",
		Long:    `List lists the topics by name. KEPT says what is not removed.`,
		Example: `  wattle topic list -o json | jq -r '.[].name'`,
		Args:    arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.topics(c.Context(), func(s topic.Service) error {
				all, err := s.List(c.Context())
				if err != nil {
					return err
				}
				list := make([]topicJSON, len(all))
				rows := [][]string{{"NAME", "PARTITIONS", "KEPT", "DEDUP WINDOW"}}
				for i, t := range all {
					list[i] = jsonOfTopic(t)
					rows = append(rows, []string{string(t.Name), strconv.Itoa(t.Partitions), kept(t.Retention), t.DedupWindow.String()})
				}
				return a.printList(list, rows)
			})
		},
	}
}

// partitionJSON and consumerJSON are what wattle topic describe -o json prints.
type partitionJSON struct {
	Partition int              `json:"partition"`
	First     eventstore.Seqno `json:"first"`
	Last      eventstore.Seqno `json:"last"`
	Epoch     eventstore.Epoch `json:"epoch"`
	Owner     string           `json:"owner"`
}

type consumerJSON struct {
	Consumer  string           `json:"consumer"`
	Partition int              `json:"partition"`
	Offset    eventstore.Seqno `json:"offset"`
	Lag       uint64           `json:"lag"`
	Member    string           `json:"member"`
}

func (a *app) topicDescribeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "describe NAME",
		Short: "show partitions, owners, consumers and their lag",
		Long: `Describe shows the partitions of a topic with the first and last offset that is there and the
server that owns it, and how far each named consumer has come, with the member that has the
partition now.`,
		Example: `  wattle topic describe orders`,
		Args:    arguments("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := eventstore.ParseCategory(args[0])
			if err != nil {
				return err
			}
			return a.topics(c.Context(), func(s topic.Service) error {
				d, err := s.Describe(c.Context(), name)
				if err != nil {
					return err
				}
				return a.printTopic(d)
			})
		},
	}
}

func (a *app) printTopic(d topic.Description) error {
	out := struct {
		topicJSON
		All       []partitionJSON `json:"all"`
		Consumers []consumerJSON  `json:"consumers"`
	}{jsonOfTopic(d.Spec), []partitionJSON{}, []consumerJSON{}}
	rows := [][]string{{"PARTITION", "FIRST", "LAST", "EPOCH", "OWNER"}}
	for _, p := range d.Partitions {
		j := partitionJSON{p.Number, p.Head.Trimmed + 1, p.Head.Last.Seqno, p.Head.Epoch, p.Owner}
		out.All = append(out.All, j)
		rows = append(rows, []string{strconv.Itoa(j.Partition), j.First.String(), j.Last.String(), j.Epoch.String(), dash(j.Owner)})
	}
	consumers := [][]string{{"CONSUMER", "PARTITION", "OFFSET", "LAG", "MEMBER"}}
	for _, c := range d.Consumers {
		for _, p := range c.Positions {
			j := consumerJSON{c.Name, p.Partition, p.Offset, p.Lag, ""}
			if !p.Member.IsZero() {
				j.Member = p.Member.String()
			}
			out.Consumers = append(out.Consumers, j)
			consumers = append(consumers, []string{c.Name, strconv.Itoa(j.Partition), j.Offset.String(), fmt.Sprint(j.Lag), dash(j.Member)})
		}
	}
	if a.output == outputJSON {
		return a.printJSON(out)
	}
	if err := a.printRows(rows); err != nil || len(consumers) == 1 {
		return err
	}
	if _, err := fmt.Fprintln(a.stdout); err != nil {
		return err
	}
	return a.printRows(consumers)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a *app) topicDeleteCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "delete NAME",
		Short: "DESTROY a topic, its messages and its consumers' positions",
		Long: `Delete removes a topic with its messages and its consumers' positions. There is no way back but a
backup. It asks on the terminal for the name. Without a terminal it refuses, unless --yes is given.`,
		Example: `  wattle topic delete clicks --yes`,
		Args:    arguments("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := eventstore.ParseCategory(args[0])
			if err != nil {
				return err
			}
			return a.topics(c.Context(), func(s topic.Service) error {
				if err := a.confirm(yes, fmt.Sprintf("This DESTROYS topic %s and all its messages", name), string(name)); err != nil {
					return err
				}
				return s.Delete(c.Context(), name)
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}
