// wattle projector parked, skipped, retry and skip: entries that cannot be handled.

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// parkedJSON is a parked key, or an entry that was skipped, as -o json prints it.
type parkedJSON struct {
	Projector string              `json:"projector"` // with its backend, if it has several
	Version   int                 `json:"version"`
	Key       string              `json:"key"`
	Stream    eventstore.Stream   `json:"stream"`
	Seqno     eventstore.Seqno    `json:"seqno"`
	Position  eventstore.Position `json:"position"`
	ID        eventstore.UUID     `json:"id"`
	Type      string              `json:"type"`
	Waiting   uint64              `json:"waiting"`
	Attempts  int                 `json:"attempts"`
	Since     time.Time           `json:"since"`
	Request   string              `json:"request"`
	Cause     string              `json:"cause"`
	Stack     string              `json:"stack,omitempty"`
	Trace     string              `json:"traceparent,omitempty"`
	Why       string              `json:"why,omitempty"`
}

func toParkedJSON(of projector.Key, k projector.Parked) parkedJSON {
	return parkedJSON{of.Projector, of.Version, k.StreamKey, k.Stream, k.Seqno, k.Position, k.ID, k.Type, k.Count, k.Attempts, k.Since, k.Request.String(), k.Cause, k.Stack, k.Trace, k.Note}
}

// chosen are the versions of a projector, one a backend, that --version names.
func (p *projecting) chosen(ctx context.Context, k open.Keeper, name string) (list []projector.Version, err error) {
	all, err := k.Versions(ctx, name)
	if err != nil {
		return nil, err
	}
	version := p.version
	for _, v := range all {
		if version == 0 && v.Role == projector.Live {
			version = v.Key.Version
		}
	}
	for _, v := range all {
		if v.Key.Version == version {
			list = append(list, v)
		}
	}
	if len(list) == 0 {
		err = projector.NotRegistered(projector.Key{Projector: name, Version: p.version})
	}
	return list, err
}

func (p *projecting) parkedCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "parked NAME",
		Short: "list the keys that wait because an entry cannot be handled",
		Long: `Parked lists the parked keys of a version: the entry at fault, how many entries of the key wait
(that one among them), how often it was tried, and why it failed. Other keys go on. Mend what the
handler needs, then wattle projector retry; or wattle projector skip gives up the entry.

With -o json there is also the stack of a panic.`,
		Example: `  wattle projector parked balances
  wattle projector parked balances -o json | jq -r '.[].stack'`,
		Args: arguments("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			return p.of(c.Context(), args[0], open.Options{ReadOnly: true}, func(_ *open.Store, k open.Keeper) error {
				versions, err := p.chosen(c.Context(), k, args[0])
				if err != nil {
					return err
				}
				list, rows := []parkedJSON{}, [][]string{{"KEY", "STREAM", "SEQNO", "TYPE", "WAITING", "ATTEMPTS", "SINCE", "REQUEST", "CAUSE"}}
				for _, v := range versions {
					for _, one := range v.Parked {
						list = append(list, toParkedJSON(v.Key, one))
						rows = append(rows, []string{printable(one.StreamKey), printable(string(one.Stream)), one.Seqno.String(), printable(one.Type), fmt.Sprint(one.Count), fmt.Sprint(one.Attempts),
							one.Since.UTC().Format(timeFormat), one.Request.String(), printable(one.Cause)})
					}
				}
				return p.app.printList(list, rows)
			})
		},
		ValidArgsFunction: p.completeNames,
	}
	p.versionFlag(c)
	return c
}

func (p *projecting) skippedCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "skipped NAME",
		Short: "list the entries that were given up",
		Long: `Skipped lists the records of the entries that a version has given up, by wattle projector skip,
with the reason that was given. Nothing else ever skips an entry.`,
		Example: `  wattle projector skipped balances`,
		Args:    arguments("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			return p.of(c.Context(), args[0], open.Options{ReadOnly: true}, func(_ *open.Store, k open.Keeper) error {
				versions, err := p.chosen(c.Context(), k, args[0])
				if err != nil {
					return err
				}
				list, rows := []parkedJSON{}, [][]string{{"KEY", "STREAM", "SEQNO", "TYPE", "SINCE", "WHY", "CAUSE"}}
				for _, v := range versions {
					records, err := k.Skipped(c.Context(), v.Key)
					if err != nil {
						return err
					}
					for _, one := range records {
						list = append(list, toParkedJSON(v.Key, one))
						rows = append(rows, []string{printable(one.StreamKey), printable(string(one.Stream)), one.Seqno.String(), printable(one.Type), one.Since.UTC().Format(timeFormat), printable(one.Note), printable(one.Cause)})
					}
				}
				return p.app.printList(list, rows)
			})
		},
		ValidArgsFunction: p.completeNames,
	}
	p.versionFlag(c)
	return c
}

func (p *projecting) retryCommand() *cobra.Command {
	var every bool
	c := &cobra.Command{
		Use:   "retry NAME [KEY]",
		Short: "have the entries of parked keys handled again",
		Long: `Retry has the worker handle the entries that wait under a parked key, or with --all under every
one, from the entry at fault on and in order. What cannot be handled now either stays parked. It
does not wait for that: see wattle projector parked.`,
		Example: `  wattle projector retry balances alice
  wattle projector retry balances --all`,
		Args: func(c *cobra.Command, args []string) error {
			if every {
				return arguments("NAME")(c, args)
			}
			return arguments("NAME", "KEY (or --all)")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			key := ""
			if !every {
				if key = args[1]; key == "" {
					return &usageError{"a parked key", "an empty one", "see: wattle projector parked " + args[0]}
				}
			}
			return p.of(c.Context(), args[0], open.Options{}, func(s *open.Store, k open.Keeper) error {
				keys, err := projector.NewAdmin(s.Store, k.Control).Retry(c.Context(), args[0], p.version, key)
				if err != nil {
					return notParked(err)
				}
				done := plural(int64(keys), "key") + " to be retried"
				return p.say(done, doneJSON{Projector: args[0], Keys: keys, Done: done})
			})
		},
		ValidArgsFunction: p.completeThenKeys,
	}
	p.versionFlag(c)
	c.Flags().BoolVar(&every, "all", false, "all parked keys")
	return c
}

// notParked is for an error that says that a key is not parked: it was not found.
func notParked(err error) error {
	if errors.Is(err, eventstore.ErrInvalid) {
		return &coded{err, exitNotFound}
	}
	return err
}

func (p *projecting) skipCommand() *cobra.Command {
	var why string
	c := &cobra.Command{
		Use:   "skip NAME KEY --why TEXT",
		Short: "GIVE UP the entry at fault of a parked key",
		Long: `Skip gives up the entry at fault of a parked key: this version will never handle it. The entries
behind it are handled, in order; the next one that cannot be parks the key again. The entry
itself stays in the store, and a record of it with the reason given in --why is kept, see wattle
projector skipped.`,
		Example: `  wattle projector skip balances alice --why 'TICKET-7: written by a broken importer'`,
		Args:    arguments("NAME", "KEY"),
		RunE: func(c *cobra.Command, args []string) error {
			if why == "" {
				return &usageError{"--why, the reason for giving it up", "none", "it is kept with the entry: say who and why"}
			}
			if len(why) > projector.MaxNoteBytes {
				return &usageError{fmt.Sprintf("--why of at most %d bytes", projector.MaxNoteBytes), fmt.Sprint(len(why)), ""}
			}
			return p.of(c.Context(), args[0], open.Options{}, func(s *open.Store, k open.Keeper) error {
				if err := projector.NewAdmin(s.Store, k.Control).Skip(c.Context(), args[0], p.version, args[1], why); err != nil {
					return notParked(err)
				}
				return p.say("1 entry to be skipped", doneJSON{Projector: args[0], Keys: 1, Done: "1 entry to be skipped"})
			})
		},
		ValidArgsFunction: p.completeThenKeys,
	}
	p.versionFlag(c)
	c.Flags().StringVar(&why, "why", "", "the reason, which is kept")
	return c
}
