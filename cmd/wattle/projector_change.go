// wattle projector pause, resume, reset, rebuild, switch, rollback and drop.

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/projector"
)

func (p *projecting) pauseCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "pause NAME",
		Short: "stop the work on a projector until it is resumed",
		Long: `Pause stops the work on a version at once. Workers keep running and do nothing; a batch that is
being handled is refused, and handled again when the version is resumed. What it has not come
to is held, so nothing of that is trimmed meanwhile.`,
		Example: `  wattle projector pause balances`,
		Args:    arguments("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			return p.changed(c, args[0], func(ctx context.Context, a *projector.Admin) (string, error) {
				return "paused", a.Pause(ctx, args[0], p.version)
			})
		},
		ValidArgsFunction: p.completeNames,
	}
	p.versionFlag(c)
	return c
}

func (p *projecting) resumeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "resume NAME",
		Short:   "go on with a projector that was paused",
		Long:    `Resume lets workers go on with a version that was paused, within some seconds.`,
		Example: `  wattle projector resume balances`,
		Args:    arguments("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			return p.changed(c, args[0], func(ctx context.Context, a *projector.Admin) (string, error) {
				return "resumed", a.Resume(ctx, args[0], p.version)
			})
		},
		ValidArgsFunction: p.completeNames,
	}
	p.versionFlag(c)
	return c
}

// trimmedFlag adds --accept-trimmed.
func trimmedFlag(c *cobra.Command, accept *bool) {
	c.Flags().BoolVar(accept, "accept-trimmed", false, "go on where entries were trimmed, without them: the handler takes snapshots")
}

func (p *projecting) resetCommand() *cobra.Command {
	var yes, accept bool
	c := &cobra.Command{
		Use:   "reset NAME",
		Short: "have a projector HANDLE EVERYTHING AGAIN, from the beginning",
		Long: `Reset sets a version back to the beginning: everything is handled again, parked keys included,
and its effects happen again. It does NOT empty the read model, which it knows nothing of: unless
the handler bears every entry twice, pause the projector, empty the read model, reset, resume.
While it catches up readers see less than there is; wattle projector rebuild does without that.

Workers keep running: they are fenced and begin anew. A version that is paused stays so.

It asks on the terminal for the projector's name. Without a terminal it refuses, unless --yes is
given. Where entries that it would handle were trimmed it refuses, unless --accept-trimmed is.`,
		Example: `  wattle projector reset balances
  wattle projector reset balances --version 2 --yes`,
		Args: arguments("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			return p.changed(c, args[0], func(ctx context.Context, a *projector.Admin) (string, error) {
				what := fmt.Sprintf("This sets projector %s back: it HANDLES EVERYTHING AGAIN and its effects happen again; its read model is not emptied", printable(args[0]))
				if err := p.app.confirm(yes, what, args[0]); err != nil {
					return "", err
				}
				return "reset: it begins anew", a.Reset(ctx, args[0], p.version, accept)
			})
		},
		ValidArgsFunction: p.completeNames,
	}
	p.versionFlag(c)
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	trimmedFlag(c, &accept)
	return c
}

// waiting is what --wait and --timeout say.
type waiting struct {
	wait    bool
	timeout time.Duration
}

func (w *waiting) flags(c *cobra.Command, what string) {
	c.Flags().BoolVar(&w.wait, "wait", false, what)
	timeoutFlag(c, &w.timeout)
}

// check refuses to wait where nobody can do what is waited for.
func (w *waiting) check(a *app) error {
	if !w.wait {
		return nil
	}
	t, err := a.target("")
	if err == nil && t.InFiles() {
		err = &usageError{"no --wait for a store in files", "it", "one process has the store: while this one waits no worker can run; see wattle projector show --watch"}
	}
	return err
}

func (p *projecting) rebuildCommand() *cobra.Command {
	var accept bool
	var w waiting
	c := &cobra.Command{
		Use:   "rebuild NAME",
		Short: "build a new version of a projector beside the live one",
		Long: `Rebuild registers a new version of a projector, which follows what the live one does, and prints
its number. Workers that build any version (projector.NewVersioned) begin with it within some
seconds, from the beginning and in the shadow of the live one: readers do not see it, and it has
no effects but on its own read model. When it has caught up, wattle projector switch makes it
live. With --wait it waits until it has, to within ten seconds.`,
		Example: `  wattle projector rebuild balances --wait
  wattle projector show balances --version 2 --watch
  wattle projector switch balances 2`,
		Args: arguments("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := w.check(p.app); err != nil {
				return err
			}
			return p.of(c.Context(), args[0], open.Options{}, func(s *open.Store, k open.Keeper) error {
				version, err := projector.NewAdmin(s.Store, k.Control).Rebuild(c.Context(), args[0], accept)
				if err != nil {
					return err
				}
				done := fmt.Sprintf("version %d is registered", version)
				if w.wait {
					done = fmt.Sprintf("version %d has caught up", version)
					ctx, cancel := within(c.Context(), w.timeout)
					defer cancel()
					if err := p.waitFor(ctx, s, k, args[0], version, accept); err != nil {
						return err
					}
				}
				return p.say(done, doneJSON{Projector: args[0], Version: version, Done: done})
			})
		},
		ValidArgsFunction: p.completeNames,
	}
	trimmedFlag(c, &accept)
	w.flags(c, "wait until it has caught up")
	return c
}

// parseVersion reads the number of a version that is named.
func parseVersion(s string) (int, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 1 {
		return 0, &usageError{"the number of a version, from 1", fmt.Sprintf("%q", s), "see: wattle projector list"}
	}
	return int(n), nil
}

func (p *projecting) switchCommand() *cobra.Command {
	var o projector.SwitchOptions
	var accept bool
	var w waiting
	c := &cobra.Command{
		Use:   "switch NAME VERSION",
		Short: "make a version of a projector live",
		Long: `Switch makes a version live, and the one that was its shadow, in one step. Readers and waiters
that follow the live version follow. What the old one has had effects of the new one has not
again. The old one goes on in the shadow, so that wattle projector rollback is instant.

A version that is more than --max-behind positions behind is refused, unless --force is given:
what it lacks it handles after the switch. So is leaving parked keys of the live version, unless
--leave-parked is given, and a version with parked keys of its own, unless --take-parked is. With
--wait it waits first until the version has caught up, to within ten seconds; in vain if entries
were trimmed before it came to them, unless --accept-trimmed is given.`,
		Example: `  wattle projector switch balances 2 --wait --timeout 10m`,
		Args:    arguments("NAME", "VERSION"),
		RunE: func(c *cobra.Command, args []string) error {
			version, err := parseVersion(args[1])
			if err == nil {
				err = w.check(p.app)
			}
			if err != nil {
				return err
			}
			return p.of(c.Context(), args[0], open.Options{}, func(s *open.Store, k open.Keeper) error {
				if w.wait {
					ctx, cancel := within(c.Context(), w.timeout)
					defer cancel()
					if err := p.waitFor(ctx, s, k, args[0], version, accept); err != nil {
						return err
					}
				}
				if err := projector.NewAdmin(s.Store, k.Control).Switch(c.Context(), args[0], version, &o); err != nil {
					return refusedIfInvalid(err)
				}
				done := fmt.Sprintf("version %d is live", version)
				return p.say(done, doneJSON{Projector: args[0], Version: version, Done: done})
			})
		},
		ValidArgsFunction: p.completeThenVersions,
	}
	c.Flags().Uint64Var(&o.MaxBehind, "max-behind", 0, fmt.Sprintf("how many positions it may lack (default %d, but no more than a tenth of what the live one has come through)", projector.DefaultMaxBehind))
	parkedFlags(c, &o)
	c.Flags().BoolVar(&o.Force, "force", false, "switch however far it is behind")
	trimmedFlag(c, &accept)
	w.flags(c, "wait until it has caught up, then switch")
	return c
}

// parkedFlags adds --leave-parked and --take-parked.
func parkedFlags(c *cobra.Command, o *projector.SwitchOptions) {
	c.Flags().BoolVar(&o.LeaveParked, "leave-parked", false, "switch although keys are parked in the live version: what waits there never has effects outside of the read model")
	c.Flags().BoolVar(&o.TakeParked, "take-parked", false, "switch although keys are parked in the version that becomes live: readers see them as they stood until they are retried or skipped")
}

// refusedIfInvalid tells a rule of projectors from a command line that is wrong.
func refusedIfInvalid(err error) error {
	if codeOf(err) == exitUsage {
		return &coded{err, exitRefused}
	}
	return err
}

func (p *projecting) rollbackCommand() *cobra.Command {
	var o projector.SwitchOptions
	c := &cobra.Command{
		Use:   "rollback NAME",
		Short: "make the version before the live one live again",
		Long: `Rollback makes the highest version below the live one live, at once, however far it is behind:
what it lacks it handles then. It prints its number.

Leaving parked keys of the live version is refused, unless --leave-parked is given: the version
before has passed their entries without effects. So is a version with parked keys of its own,
unless --take-parked is.`,
		Example: `  wattle projector rollback balances`,
		Args:    arguments("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			return p.changed(c, args[0], func(ctx context.Context, a *projector.Admin) (string, error) {
				version, err := a.Rollback(ctx, args[0], &o)
				return fmt.Sprintf("version %d is live", version), err
			})
		},
		ValidArgsFunction: p.completeNames,
	}
	parkedFlags(c, &o)
	return c
}

func (p *projecting) dropCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "drop NAME VERSION",
		Short: "REMOVE a version of a projector",
		Long: `Drop removes a version that is not live: its checkpoints, parked keys, records of what was
skipped, and holds. Its read model is yours to remove. Workers of that version alone end. The
last version can be dropped too, with the projector.

It asks on the terminal for the projector's name. Without a terminal it refuses, unless --yes is
given.`,
		Example: `  wattle projector drop balances 1 --yes`,
		Args:    arguments("NAME", "VERSION"),
		RunE: func(c *cobra.Command, args []string) error {
			version, err := parseVersion(args[1])
			if err != nil {
				return err
			}
			return p.changed(c, args[0], func(ctx context.Context, a *projector.Admin) (string, error) {
				what := fmt.Sprintf("This REMOVES version %d of projector %s with its checkpoints and parked keys", version, printable(args[0]))
				if err := p.app.confirm(yes, what, args[0]); err != nil {
					return "", err
				}
				return fmt.Sprintf("version %d is dropped", version), refusedIfInvalid(a.Drop(ctx, args[0], version))
			})
		},
		ValidArgsFunction: p.completeThenVersions,
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}
