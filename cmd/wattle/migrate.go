// wattle migrate: making a store, and its schema in PostgreSQL.

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
)

func (a *app) migrateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "make, show or destroy a store, or its schema",
		Long: `Migrate makes the PostgreSQL schema of a store, says what of it is there, or destroys it.

A store in files has no schema and nothing to migrate: up makes it where there is none, as
programs and commands that write do by themselves; down removes it.

Any number of migrators may run at once: one works, the others wait for it. A migrator that
was killed has done nothing by halves; run it again.`,
	}
	group(c)
	c.AddCommand(a.migrateUpCommand(), a.migrateStatusCommand(), a.migrateDownCommand())
	return c
}

func (a *app) migrateUpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "create the schema if it is missing and apply what is pending",
		Long: `Up creates the schema of the store if it is missing and applies every pending migration.
It does nothing where none is. It prints the state afterwards, as migrate status does.`,
		Example: `  wattle migrate up --store 'postgres://app@localhost/bank?schema=wattle'
  wattle migrate up --store file:/var/lib/bank`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := a.target("")
			if err != nil {
				return err
			}
			if err := t.MigrateUp(c.Context()); err != nil {
				return err
			}
			return a.printMigrations(c, t)
		},
	}
}

func (a *app) migrateStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "list the migrations and when they were applied",
		Long:  `Status lists the migrations of this build and when each was applied. It changes nothing.`,
		Example: `  wattle migrate status
  wattle migrate status -o json | jq 'all(.[]; .applied != null)'`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := a.target("")
			if err != nil {
				return err
			}
			return a.printMigrations(c, t)
		},
	}
}

// migrationJSON is a migration as -o json prints it.
type migrationJSON struct {
	Version int64      `json:"version"`
	Name    string     `json:"name"`
	Applied *time.Time `json:"applied"` // null: pending
}

func (a *app) printMigrations(c *cobra.Command, t *open.Target) error {
	all, err := t.Migrations(c.Context())
	if err != nil {
		return err
	}
	if t.InFiles() {
		a.console.say(fmt.Sprintf("wattle: there is nothing to migrate: %s is a store in files", t))
		if a.output != outputJSON {
			return nil
		}
	}
	list := make([]migrationJSON, len(all))
	rows := [][]string{{"VERSION", "NAME", "APPLIED"}}
	for i, m := range all {
		list[i] = migrationJSON{Version: m.Version, Name: m.Name}
		applied := "pending"
		if !m.Pending() {
			list[i].Applied = &m.Applied
			applied = m.Applied.UTC().Format(time.RFC3339)
		}
		rows = append(rows, []string{fmt.Sprint(m.Version), m.Name, applied})
	}
	return a.printList(list, rows)
}

func (a *app) migrateDownCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "down",
		Short: "DESTROY every log of the store",
		Long: `Down takes back every migration. That DESTROYS EVERY LOG of the store, its snapshots, holds
and checkpoints. There is no way back but a backup. Of a store in files it removes the files; it
refuses where the directory holds anything else.

It asks on the terminal for the name of the schema or directory. Without a terminal it refuses, unless --yes is
given.`,
		Example: `  wattle migrate down
  wattle migrate down --yes --store 'postgres://app@localhost/test?schema=scratch'`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := a.target("")
			if err != nil {
				return err
			}
			if t.Word() != "" {
				what := fmt.Sprintf("This DESTROYS EVERY LOG of the store %s", t)
				if err := a.confirm(yes, what, t.Word()); err != nil {
					return err
				}
			}
			return t.MigrateDown(c.Context())
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}
