// wattle version: what this binary is.

package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/migrations"
)

// versionJSON is what -o json prints.
type versionJSON struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the source, when it was built from a repository
	Modified bool   `json:"modified,omitempty"` // the source had changes beside that
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Schema   int64  `json:"schema"` // version of the PostgreSQL schema it works with
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version of this binary",
		Long:  `Version prints what this binary was built from, and which version of the PostgreSQL schema it works with.`,
		Example: `  wattle version
  wattle version -o json`,
		Args: arguments(),
		RunE: func(*cobra.Command, []string) error {
			v := versionOf()
			if a.output == outputJSON {
				return a.printJSON(v)
			}
			rows := [][]string{{"wattle", v.Version}, {"go", v.Go + " " + v.Platform}, {"schema", str(v.Schema)}}
			if v.Revision != "" {
				rows = append(rows, []string{"revision", v.Revision})
			}
			return a.printRows(rows)
		},
	}
}

func versionOf() versionJSON {
	v := versionJSON{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Schema: migrations.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
