// wattle projector: seeing to projectors while their workers run. What its commands share.

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/logcheckpoint"
)

// projecting is what the flags that several of the commands have say.
type projecting struct {
	app        *app
	checkpoint string // category
	database   string // URL
	version    int
}

const projectorLong = `A projector feeds the entries of a store to a handler, in workers that are elsewhere. These
commands see to it from outside, by what is kept in the store: workers keep running, and do as
they are told at once or within some seconds. Whatever is changed is changed in one step that
fences the workers: what they are at is refused and done anew, and nothing is lost.

Checkpoints are found beside the store in PostgreSQL, and in the store itself (package
logcheckpoint, see --checkpoints). Where the read models have a database of their own, as beside
a store at a server or in files, --database or ` + databaseVariable + ` names it. A store in files has one
process: what only looks works beside it; what changes something is refused while it runs.`

// databaseVariable names the environment variable that stands in for --database.
const databaseVariable = "WATTLE_DATABASE"

func (a *app) projectorCommand() *cobra.Command {
	p := &projecting{app: a}
	c := &cobra.Command{Use: "projector", Short: "see to projectors: health, pause, reset, rebuild, switch, parked keys", Long: projectorLong}
	group(c)
	c.PersistentFlags().StringVar(&p.checkpoint, "checkpoints", string(logcheckpoint.DefaultCategory), "`CATEGORY` of checkpoints that are kept in the store itself")
	// As with --store, help must not print what the environment says.
	c.PersistentFlags().StringVar(&p.database, "database", "", "`URL` of the database, postgres://…, with the checkpoints, if not the store's (default $"+databaseVariable+")")
	c.AddCommand(p.listCommand(), p.showCommand(), p.pauseCommand(), p.resumeCommand(), p.resetCommand(), p.rebuildCommand(), p.switchCommand(),
		p.rollbackCommand(), p.dropCommand(), p.parkedCommand(), p.skippedCommand(), p.retryCommand(), p.skipCommand(), p.waitCommand())
	return c
}

// versionFlag adds --version.
func (p *projecting) versionFlag(c *cobra.Command) {
	c.Flags().IntVar(&p.version, "version", 0, "`N` of the version; 0 is the live one")
	_ = c.RegisterFlagCompletionFunc("version", p.completeVersions)
}

// timeoutFlag adds --timeout.
func timeoutFlag(c *cobra.Command, d *time.Duration) {
	c.Flags().DurationVar(d, "timeout", 0, "how long to wait at most, as 30s; 0: for ever")
}

// within is a context with a timeout, if there is one.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// opened opens the store and finds who keeps checkpoints.
func (p *projecting) opened(ctx context.Context, o open.Options, f func(*open.Store, []open.Keeper) error) error {
	category, err := eventstore.ParseCategory(p.checkpoint)
	if err != nil {
		return err
	}
	database, err := p.beside(ctx)
	if err != nil {
		return err
	}
	if database != nil {
		defer database.Close()
	}
	err = p.app.opened(ctx, o, func(s *open.Store) error {
		all, err := s.Keepers(ctx, database, category)
		if err != nil {
			return err
		}
		return f(s, all)
	})
	if e, ok := errors.AsType[*eventstore.Error](err); ok && errors.Is(err, filelog.ErrOwned) {
		c := *e
		c.Hint = "the workers are in that process, and only it can change them: with projector.Admin, or end it first; list, show, parked, skipped and wait work beside it"
		return &c
	}
	return err
}

// beside opens the database that --database names; nil without.
func (p *projecting) beside(ctx context.Context) (*open.Database, error) {
	address := p.database
	if address == "" {
		address = p.app.env(databaseVariable)
	}
	if address == "" {
		return nil, nil
	}
	t, err := open.Parse(address)
	if err != nil {
		return nil, err
	}
	return t.Database(ctx)
}

// of opens the store and finds who keeps a projector.
func (p *projecting) of(ctx context.Context, name string, o open.Options, f func(*open.Store, open.Keeper) error) error {
	return p.opened(ctx, o, func(s *open.Store, all []open.Keeper) error {
		k, err := keeperOf(ctx, all, name)
		if err != nil {
			return err
		}
		return f(s, k)
	})
}

// keeperOf finds who keeps a projector.
func keeperOf(ctx context.Context, all []open.Keeper, name string) (found open.Keeper, err error) {
	for _, k := range all {
		versions, err := k.Versions(ctx, name)
		if err != nil {
			return found, err
		}
		if len(versions) == 0 || name == "" {
			continue
		}
		if found.Control != nil {
			return found, &usageError{"one projector " + printable(name), "one in the database and another one in the log", "give --checkpoints a category that is none, to mean the one in the database"}
		}
		found = k
	}
	if found.Control == nil {
		return found, &eventstore.Error{Kind: projector.ErrNotRegistered, Op: "projector", Wanted: "projector " + name, Found: "none of that name in the store",
			Hint: "it is registered when it first runs, in its workers' database if that is another one (--database); see: wattle projector list"}
	}
	return found, nil
}

// changed opens the store to write and has an Admin change a projector.
func (p *projecting) changed(c *cobra.Command, name string, f func(context.Context, *projector.Admin) (string, error)) error {
	return p.of(c.Context(), name, open.Options{}, func(s *open.Store, k open.Keeper) error {
		said, err := f(c.Context(), projector.NewAdmin(s.Store, k.Control))
		if err != nil {
			return err
		}
		return p.say(said, doneJSON{Projector: name, Done: said})
	})
}

// doneJSON is what -o json prints of a change.
type doneJSON struct {
	Projector string `json:"projector"`
	Version   int    `json:"version,omitempty"`
	Keys      int    `json:"keys,omitempty"`
	Done      string `json:"done"`
}

// say prints what was done.
func (p *projecting) say(line string, out doneJSON) error {
	if p.app.output == outputJSON {
		return p.app.printJSON(out)
	}
	_, err := fmt.Fprintln(p.app.stdout, line)
	return err
}

// names lists the projectors of a store, without backends and versions.
func names(all []projector.Version) (list []string) {
	for _, v := range all {
		list = append(list, v.Key.Name())
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// completing bounds what the shell waits for.
const completing = 3 * time.Second

// complete lets the shell complete what f finds in the versions of a store.
func (p *projecting) complete(c *cobra.Command, f func([]projector.Version) []string) ([]string, cobra.ShellCompDirective) {
	var words []string
	ctx, cancel := context.WithTimeout(c.Context(), completing)
	defer cancel()
	err := p.opened(ctx, open.Options{ReadOnly: true}, func(_ *open.Store, keepers []open.Keeper) error {
		for _, k := range keepers {
			all, err := k.Versions(ctx, "")
			if err != nil {
				return err
			}
			words = append(words, f(all)...)
		}
		return nil
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeNames completes the first argument by the names of projectors.
func (p *projecting) completeNames(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.complete(c, names)
}

// completeVersions completes the number of a version.
func (p *projecting) completeVersions(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return p.complete(c, func(all []projector.Version) (list []string) {
		for _, v := range all {
			if len(args) > 0 && v.Key.Projector == args[0] {
				list = append(list, fmt.Sprint(v.Key.Version))
			}
		}
		return list
	})
}

// completeThenVersions completes a name, and then a version.
func (p *projecting) completeThenVersions(c *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return p.completeVersions(c, args, to)
	}
	return p.completeNames(c, args, to)
}

// completeThenKeys completes a name, and then a parked key.
func (p *projecting) completeThenKeys(c *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return p.completeNames(c, args, to)
	}
	return p.complete(c, func(all []projector.Version) (list []string) {
		for _, v := range all {
			if !v.Key.Of(args[0]) {
				continue
			}
			for _, k := range v.Parked {
				list = append(list, k.StreamKey)
			}
		}
		return list
	})
}
