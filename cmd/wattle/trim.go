// wattle trim: removing the oldest entries of a stream.

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
)

// trimming is what the flags of trim say.
type trimming struct {
	through string
	keep    uint64
	older   time.Duration
	dry     bool
}

func (a *app) trimCommand() *cobra.Command {
	var r trimming
	c := &cobra.Command{
		Use:   "trim STREAM",
		Short: "REMOVE the oldest entries of a stream",
		Long: `Trim removes the entries of a stream through a seqno, all but the last of them, or those older
than a time; with several of these flags, what all of them allow. There is no way back but a
backup. It never passes a hold, nor, in a category that trims behind snapshots, the last
snapshot, and says what stopped it. Their space comes back later.

With --dry-run it only tells how far it would come.`,
		Example: `  wattle trim account-alice --through 500 --dry-run
  wattle trim clicks-home --keep 10000
  wattle trim clicks-home --older-than 720h`,
		Args: arguments("STREAM"),
		RunE: func(c *cobra.Command, args []string) error {
			stream, err := eventstore.ParseStream(args[0])
			if err != nil {
				return err
			}
			f := c.Flags()
			if !f.Changed("through") && !f.Changed("keep") && !f.Changed("older-than") {
				return &usageError{"--through, --keep or --older-than", "none of them", "see: wattle trim --help"}
			}
			if r.older < 0 {
				return &usageError{"a time for --older-than", r.older.String(), "720h are 30 days"}
			}
			return a.opened(c.Context(), open.Options{ReadOnly: r.dry}, func(s *open.Store) error {
				return a.trim(c.Context(), s, stream, r)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&r.through, "through", "", "remove entries up to and including this `SEQNO`")
	f.Uint64Var(&r.keep, "keep", 0, "leave the last `N` entries")
	f.DurationVar(&r.older, "older-than", 0, "remove only entries older than this, as 720h")
	f.BoolVar(&r.dry, "dry-run", false, "tell how far it would come, remove nothing")
	return c
}

// trimmedJSON is what -o json prints.
type trimmedJSON struct {
	Stream    eventstore.Stream `json:"stream"`
	Before    eventstore.Seqno  `json:"trimmed_before"`
	Trimmed   eventstore.Seqno  `json:"trimmed"`
	Wanted    eventstore.Seqno  `json:"wanted"`
	StoppedBy string            `json:"stopped_by,omitempty"`
	DryRun    bool              `json:"dry_run"`
}

func (a *app) trim(ctx context.Context, s *open.Store, stream eventstore.Stream, r trimming) error {
	head, err := s.Head(ctx, stream)
	if err != nil {
		return err
	}
	if head == (eventstore.Head{}) {
		return &eventstore.Error{Kind: eventstore.ErrNoSuchStream, Op: "trim", Stream: stream, Wanted: "a stream with entries", Found: "none"}
	}
	to, err := r.target(ctx, s, stream, head)
	if err != nil {
		return err
	}
	done, err := s.Trim(ctx, stream, to, r.dry)
	if err != nil {
		return err
	}
	out := trimmedJSON{stream, head.Trimmed, done.Trimmed, to, "", r.dry}
	if done.Trimmed < to {
		out.StoppedBy = done.StoppedBy
	}
	if a.output == outputJSON {
		return a.printJSON(out)
	}
	return a.printTrimmed(out)
}

// target is how far what the flags say allows to go.
func (r *trimming) target(ctx context.Context, s *open.Store, stream eventstore.Stream, head eventstore.Head) (eventstore.Seqno, error) {
	to := head.Last.Seqno
	if r.through != "" {
		through, err := eventstore.ParseSeqno(r.through)
		if err != nil {
			return 0, err
		}
		to = min(to, through)
	}
	to = min(to, head.Last.Seqno-min(head.Last.Seqno, eventstore.Seqno(r.keep)))
	if r.older > 0 {
		last, err := s.LastBefore(ctx, stream, time.Now().Add(-r.older))
		if err != nil {
			return 0, err
		}
		to = min(to, last)
	}
	return to, nil
}

func (a *app) printTrimmed(t trimmedJSON) error {
	verb, n := "removed", int64(0)
	if t.Trimmed > t.Before {
		n = int64(t.Trimmed - t.Before)
	}
	if t.DryRun {
		verb = "would remove"
	}
	text := fmt.Sprintf("%s: %s %s, through %d", printable(string(t.Stream)), verb, entriesOf(n), t.Trimmed)
	if t.StoppedBy != "" {
		text += fmt.Sprintf("; wanted %d, stopped by %s", t.Wanted, printable(t.StoppedBy))
	}
	_, err := fmt.Fprintln(a.stdout, text)
	return err
}
