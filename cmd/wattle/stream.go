// wattle stream: creating and dropping streams of dedicated categories.

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
)

func (a *app) streamCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "stream",
		Short: "create or drop streams of dedicated categories",
		Long: `A stream of a dedicated category has tables of its own, so it is created before it is used. One
of a shared category comes with its first append.`,
	}
	group(c)
	c.AddCommand(a.streamCreateCommand(), a.streamDropCommand())
	return c
}

func (a *app) streamCreateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "create STREAM ...",
		Short: "create streams",
		Long: `Create creates the streams that are missing, all in one go. Those that exist stay as they are.
Their category must exist and be dedicated.`,
		Example: `  wattle category create clicks --layout dedicated --trim-freely
  wattle stream create clicks-eu clicks-us`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return arguments("STREAM")(c, args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			streams := make([]eventstore.Stream, len(args))
			for i, arg := range args {
				var err error
				if streams[i], err = eventstore.ParseStream(arg); err != nil {
					return err
				}
			}
			return a.opened(c.Context(), open.Options{}, func(s *open.Store) error { return s.CreateStreams(c.Context(), streams...) })
		},
	}
}

func (a *app) streamDropCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "drop STREAM",
		Short: "DESTROY a stream",
		Long: `Drop removes a stream of a dedicated category with its entries, snapshot and holds. There is no
way back but a backup. It asks on the terminal for the name. Without a terminal it refuses,
unless --yes is given.`,
		Example: `  wattle stream drop clicks-eu --yes`,
		Args:    arguments("STREAM"),
		RunE: func(c *cobra.Command, args []string) error {
			stream, err := eventstore.ParseStream(args[0])
			if err != nil {
				return err
			}
			return a.opened(c.Context(), open.Options{}, func(s *open.Store) error {
				if err := a.confirm(yes, fmt.Sprintf("This DESTROYS stream %s", stream), string(stream)); err != nil {
					return err
				}
				return s.DropStream(c.Context(), stream)
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}
