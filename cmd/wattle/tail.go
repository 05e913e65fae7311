// wattle tail: the entries of a category, and those that come.

package main

import (
	"bufio"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
)

// tailing is what the flags of tail say.
type tailing struct {
	from   string
	follow bool
	nats   string
	types  []string
	poll   time.Duration
}

// fromEnd is the --from that leaves out all that is there.
const fromEnd = "end"

const (
	firstSoon    = 5 * time.Millisecond // the first short pause
	maxTailPause = 2 * time.Second      // bounds the pauses while the store is down
)

func (a *app) tailCommand() *cobra.Command {
	var t tailing
	c := &cobra.Command{
		Use:   "tail CATEGORY",
		Short: "print the entries of a category, and follow it",
		Long: `Tail prints the entries of all streams of a category in the one order of the store. With -f it
then goes on with those that come, until it is interrupted, which is its regular end (exit 0).

It looks every --poll, and with --nats whenever an append is announced. It goes on by itself
when the store was down for a while. Without --from it begins with the first entry that has
not been trimmed; with --from POSITION it is an error if entries from there on were.

With -o json each entry is one object on a line, as wattle read prints it.`,
		Example: `  wattle tail application
  wattle tail application -f --from end
  wattle tail application --from 1042 --types loan.approved,loan.declined -o json
  wattle tail application -f --nats nats://localhost:4222`,
		Args: arguments("CATEGORY"),
		RunE: func(c *cobra.Command, args []string) error {
			category, err := eventstore.ParseCategory(args[0])
			if err != nil {
				return err
			}
			if t.poll < time.Millisecond {
				return &usageError{"--poll of at least 1ms", t.poll.String(), ""}
			}
			err = a.opened(c.Context(), open.Options{NATS: t.nats, ReadOnly: true}, func(s *open.Store) error {
				return a.tail(c.Context(), s, category, t)
			})
			if _, ok := errors.AsType[interruption](context.Cause(c.Context())); ok {
				return nil
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&t.from, "from", "", "position of the first entry to print, or end: only those that come")
	f.BoolVarP(&t.follow, "follow", "f", false, "go on with the entries that come")
	f.StringVar(&t.nats, "nats", "", "`URL` of a NATS server that announces appends")
	f.StringSliceVar(&t.types, "types", nil, "print only entries of these types")
	f.DurationVar(&t.poll, "poll", eventstore.DefaultPollInterval, "how often to look when nothing announces")
	return c
}

// tailer is one tail at work.
type tailer struct {
	app    *app
	store  *open.Store
	filter eventstore.Filter
	after  eventstore.Position
	hinted atomic.Uint64 // highest position that was announced
	wake   chan struct{}
	down   bool          // the last look failed
	soon   time.Duration // the next short pause
	out    *bufio.Writer
	print  *entryPrinter
}

func (a *app) tail(ctx context.Context, s *open.Store, category eventstore.Category, t tailing) error {
	out := bufio.NewWriter(a.stdout)
	w := &tailer{app: a, store: s, wake: make(chan struct{}, 1), soon: firstSoon, out: out,
		filter: eventstore.Filter{Categories: []eventstore.Category{category}, Types: t.types, AcceptTrimmed: t.from == "" || t.from == fromEnd},
		print:  &entryPrinter{w: out, json: a.output == outputJSON, feed: true}}
	if err := w.begin(ctx, t.from); err != nil {
		return err
	}
	if !t.follow {
		return w.catchUp(ctx)
	}
	stop, err := s.Subscribe(ctx, w.filter.Categories, w.hear)
	if err != nil {
		return err
	}
	defer stop()
	return w.follow(ctx, t.poll)
}

// begin finds the place to begin at.
func (w *tailer) begin(ctx context.Context, from string) error {
	switch from {
	case "":
		return nil
	case fromEnd:
		p, err := w.store.ReadFeed(ctx, 0, w.filter, 1)
		w.after = p.Horizon
		return err
	}
	at, err := eventstore.ParsePosition(from)
	if at > 0 {
		w.after = at - 1
	}
	return err
}

// catchUp prints what is there.
func (w *tailer) catchUp(ctx context.Context) error {
	for {
		p, err := w.store.ReadFeed(ctx, w.after, w.filter, 0)
		if err != nil {
			return err
		}
		for _, e := range p.Entries {
			if err := w.print.print(e); err != nil {
				return err
			}
		}
		if err := w.out.Flush(); err != nil {
			return err
		}
		w.after = max(w.after, p.Through.Position)
		if p.End {
			return nil
		}
	}
}

// follow prints what comes, over outages, until ctx ends.
func (w *tailer) follow(ctx context.Context, poll time.Duration) error {
	for {
		err := w.catchUp(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && codeOf(err) != exitUnavailable:
			return err
		case err != nil && !w.down:
			w.app.console.say(message(err) + "; going on when it is back")
		}
		w.down = err != nil
		if err := w.wait(ctx, w.pause(poll)); err != nil {
			return err
		}
	}
}

// pause is how long to wait before the next look: as long as was asked for, but
// less, and longer each time, while the store is down or while something that was
// announced is not below the horizon yet.
func (w *tailer) pause(poll time.Duration) time.Duration {
	early := w.hinted.Load() > uint64(w.after)
	if !w.down && !early {
		w.soon = firstSoon
		return poll
	}
	most := poll
	if w.down {
		most = max(poll, maxTailPause)
	}
	pause := min(w.soon, most)
	w.soon = 2 * pause
	return pause
}

// wait pauses; a hint ends the pause unless the store is down.
func (w *tailer) wait(ctx context.Context, d time.Duration) error {
	wake := w.wake
	if w.down {
		wake = nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	case <-wake:
	}
	return nil
}

// hear takes a hint.
func (w *tailer) hear(a eventstore.Announcement) {
	for {
		last := w.hinted.Load()
		if uint64(a.Position) <= last || w.hinted.CompareAndSwap(last, uint64(a.Position)) {
			break
		}
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
