// wattle category: creating, listing and deleting categories.

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
)

func (a *app) categoryCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "category",
		Short: "create, list or delete categories",
		Long: `A category is a named family of streams: the streams of "account" are account-alice,
account-bob and so on. It is created before its first stream, here or by the program that
uses it. Its name holds no blank and none of - . * >`,
	}
	group(c)
	c.AddCommand(a.categoryCreateCommand(), a.categoryListCommand(), a.categoryDeleteCommand())
	return c
}

func (a *app) categoryCreateCommand() *cobra.Command {
	var freely bool
	var name string
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "create a category",
		Long: `Create creates a category. Where it exists alike already, nothing happens; where it exists
with other settings, it is refused.

The streams of a shared category come with their first append, any number of them, and all are
in the feed. Those of a dedicated one are few and busy: they are created one by one (see wattle
stream), are read stream by stream, and give their space back as soon as it is trimmed.`,
		Example: `  wattle category create account
  wattle category create clicks --layout dedicated --trim-freely`,
		Args: arguments("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			category, err := eventstore.ParseCategory(args[0])
			if err != nil {
				return err
			}
			layout, err := parseLayout(name)
			if err != nil {
				return err
			}
			return a.opened(c.Context(), open.Options{Create: true}, func(s *open.Store) error {
				err := s.CreateCategory(c.Context(), eventstore.CategorySpec{Name: category, Layout: layout, TrimFreely: freely})
				if errors.Is(err, eventstore.ErrInvalid) { // the name is valid: another one is there
					return &coded{err, exitRefused}
				}
				return err
			})
		},
	}
	c.Flags().BoolVar(&freely, "trim-freely", false, "streams may be trimmed past their last snapshot")
	layoutFlag(c, &name)
	return c
}

// layoutFlag adds --layout, for parseLayout to read.
func layoutFlag(c *cobra.Command, name *string) {
	c.Flags().StringVar(name, "layout", eventstore.Shared.String(), "how the streams are kept: shared or dedicated")
	_ = c.RegisterFlagCompletionFunc("layout", cobra.FixedCompletions([]string{eventstore.Shared.String(), eventstore.Dedicated.String()}, cobra.ShellCompDirectiveNoFileComp))
}

func parseLayout(name string) (eventstore.Layout, error) {
	for _, l := range []eventstore.Layout{eventstore.Shared, eventstore.Dedicated} {
		if name == l.String() {
			return l, nil
		}
	}
	return 0, &usageError{"--layout shared or dedicated", fmt.Sprintf("%q", name), ""}
}

// categoryJSON is a category as -o json prints it.
type categoryJSON struct {
	Name       eventstore.Category `json:"name"`
	Layout     string              `json:"layout"`
	TrimFreely bool                `json:"trim_freely"`
}

func (a *app) categoryListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "list the categories",
		Long:  `List lists the categories by name. TRIM says what a trim of their streams keeps to.`,
		Example: `  wattle category list
  wattle category list -o json | jq -r '.[].name'`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.opened(c.Context(), open.Options{ReadOnly: true}, func(s *open.Store) error {
				all, err := s.ListCategories(c.Context())
				if err != nil {
					return err
				}
				list := make([]categoryJSON, len(all))
				rows := [][]string{{"NAME", "LAYOUT", "TRIM"}}
				for i, spec := range all {
					list[i] = categoryJSON{spec.Name, spec.Layout.String(), spec.TrimFreely}
					trim := "behind snapshots"
					if spec.TrimFreely {
						trim = "freely"
					}
					rows = append(rows, []string{string(spec.Name), spec.Layout.String(), trim})
				}
				return a.printList(list, rows)
			})
		},
	}
}

func (a *app) categoryDeleteCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "delete NAME",
		Short: "DESTROY a category and all its streams",
		Long: `Delete removes a category with all its streams, entries, snapshots and holds. There is no way
back but a backup. It asks on the terminal for the name. Without a terminal it refuses, unless
--yes is given.`,
		Example: `  wattle category delete clicks
  wattle category delete clicks --yes`,
		Args: arguments("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			name, err := eventstore.ParseCategory(args[0])
			if err != nil {
				return err
			}
			return a.opened(c.Context(), open.Options{}, func(s *open.Store) error {
				what := fmt.Sprintf("This DESTROYS category %s and all its streams", name)
				if err := a.confirm(yes, what, string(name)); err != nil {
					return err
				}
				return s.DeleteCategory(c.Context(), name)
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}
