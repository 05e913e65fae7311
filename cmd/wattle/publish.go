// wattle publish: messages to a topic, from the command line or a line each from stdin.

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/topic"
)

// publishing is what the flags of publish say.
type publishing struct {
	topic                            eventstore.Category
	key, kind, content, id, separate string
	timeout                          time.Duration
}

func (a *app) publishCommand() *cobra.Command {
	var p publishing
	c := &cobra.Command{
		Use:   "publish TOPIC [DATA]",
		Short: "publish messages to a topic",
		Long: `Publish writes DATA as one message, or without it each line of its input as one. It prints where
each went once it is durable. Messages of one key are in one partition, in their order; without a
key they may be in any. Empty lines are passed over.

What is not answered is sent again with the same ID, which the topic knows: no message is there
twice. With --id that holds over runs of the command, too, within the topic's dedup window.

Where servers run on a database, publish through one of them (--store https://…): beside them it
is refused with the database's own URL.`,
		Example: `  wattle publish orders '{"order": 1}' --key alice
  jq -c '.[]' orders.json | wattle publish orders
  printf 'alice\t{"order": 1}\n' | wattle publish orders --key-separator "$(printf '\t')"`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if p.topic, err = eventstore.ParseCategory(args[0]); err != nil {
				return err
			}
			if p.id != "" && len(args) == 1 {
				return &usageError{"DATA with --id, which names one message", "none", ""}
			}
			if p.separate != "" && (len(args) == 2 || p.key != "") {
				return &usageError{"--key-separator with lines of input, each with a key of its own", "it with DATA or --key", ""}
			}
			return a.topicsBy(c.Context(), (*open.Target).Publishing, &open.Options{Logger: a.logger()}, func(s topic.Service) error {
				if len(args) == 2 {
					return a.publish(c.Context(), s, p, p.key, args[1])
				}
				return a.publishLines(c.Context(), s, p)
			})
		},
	}
	f := c.Flags()
	f.StringVarP(&p.key, "key", "k", "", "key of the messages")
	f.StringVar(&p.separate, "key-separator", "", "each line is a key, `TEXT`, and the data")
	f.StringVar(&p.kind, "type", "message", "type of the messages, a wire name")
	f.StringVar(&p.content, "content-type", "", "of the data (default application/json)")
	f.StringVar(&p.id, "id", "", "`ID` of the message: a UUIDv7, or any text")
	f.DurationVar(&p.timeout, "timeout", 30*time.Second, "how long to try with each message")
	return c
}

// retryPause is how long to wait before what may be possible soon is tried again.
const retryPause = 50 * time.Millisecond

// maxLine bounds a line of the input.
const maxLine = eventstore.MaxEventBytes + topic.MaxKeyBytes + 1024

func (a *app) publishLines(ctx context.Context, s topic.Service, p publishing) error {
	lines := bufio.NewScanner(a.stdin)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		key, data := p.key, lines.Text()
		if data == "" {
			continue
		}
		if p.separate != "" {
			var found bool
			if key, data, found = strings.Cut(data, p.separate); !found {
				return &usageError{fmt.Sprintf("a key, %q and data", p.separate), fmt.Sprintf("line %d without it", n), "all before it is published"}
			}
		}
		if err := a.publish(ctx, s, p, key, data); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return &usageError{fmt.Sprintf("lines of at most %d bytes", maxLine), "a longer one", "all before it is published"}
	}
	return lines.Err()
}

// publishedJSON is what -o json prints, a line a message.
type publishedJSON struct {
	Partition int              `json:"partition"`
	Offset    eventstore.Seqno `json:"offset"`
	Replays   bool             `json:"replays"`
}

func (a *app) publish(ctx context.Context, s topic.Service, p publishing, key, data string) error {
	m := topic.Publication{Topic: p.topic, Key: key, ID: eventstore.NewUUID(), Events: []eventstore.Event{{Type: p.kind, ContentType: p.content, Data: []byte(data)}}}
	if p.id != "" {
		id, err := eventstore.ParseUUID(p.id)
		if err != nil {
			id = eventstore.NameUUID(p.id)
		}
		m.ID, m.FirstTried = id, time.Now()
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	done, err := published(ctx, s, m)
	if err != nil {
		return err
	}
	if a.output == outputJSON {
		return a.printJSON(publishedJSON{done.Partition, done.First, done.Replays})
	}
	note := ""
	if done.Replays {
		note = ", it was there already"
	}
	_, err = fmt.Fprintf(a.stdout, "partition %d, offset %d%s\n", done.Partition, done.First, note)
	return err
}

// published publishes, again and again while that may still help.
//
// A later try that wrote nothing says nothing of one before it that may have.
func published(ctx context.Context, s topic.Service, m topic.Publication) (topic.Published, error) {
	var unknown error
	for {
		done, err := s.Publish(ctx, m)
		if err == nil || proves(err) {
			return done, err
		}
		if errors.Is(err, eventstore.ErrUnknown) {
			unknown = err
		}
		if !passing(err) {
			return done, cmp.Or(unknown, err)
		}
		select {
		case <-ctx.Done():
			return done, cmp.Or(unknown, err)
		case <-time.After(retryPause):
		}
	}
}

// proves says if an error is the outcome of all tries.
func proves(err error) bool {
	e, ok := errors.AsType[*eventstore.Error](err)
	return ok && e.Unprovable || errors.Is(err, eventstore.ErrBatchIDReused)
}

// passing says if an error may be gone when the same is tried again.
func passing(err error) bool {
	for _, kind := range []error{topic.ErrNotOwner, eventstore.ErrUnknown, eventstore.ErrUnavailable, eventstore.ErrOverloaded} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
