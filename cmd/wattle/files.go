// wattle dump and wattle backup: tools for stores in files.

package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/eventstore/filelog"
)

func (a *app) dumpCommand() *cobra.Command {
	var o filelog.DumpOptions
	c := &cobra.Command{
		Use:   "dump DIR",
		Short: "print what stands in the files of a store",
		Long: `Dump prints the manifest, the registry, and every segment of the store in a directory with its
records and its index: file, offset, length, kind, position and content. It reads only, works
beside a process that has the store open, and on a damaged store, of which it says what is
damaged. What stands there need not have been acked.

With -o json it is one object a line.`,
		Example: `  wattle dump /var/lib/bank | less
  wattle dump /var/lib/bank -o json | jq 'select(.damage)'`,
		Args: arguments("DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			o.JSON = a.output == outputJSON
			return filelog.Dump(c.Context(), a.stdout, args[0], &o)
		},
		ValidArgsFunction: completeDirs,
	}
	c.Flags().Uint64Var(&o.Segment, "segment", 0, "only the segment with base position `N`")
	c.Flags().BoolVar(&o.Data, "data", false, "print payloads too; they may be secret")
	return c
}

func (a *app) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "backup DIR TO",
		Short: "copy a store in files while it is used",
		Long: `Backup copies the store in directory DIR into directory TO, which must be empty or absent. It
works beside a process that appends: the copy is the store as it was at one moment, with
everything that was acked when the command began. Every record is checked on its way, so a
damaged store is an error, and the copy is durable when the command ends. It opens like any
store, as --store file:TO.`,
		Example: `  wattle backup /var/lib/bank /backup/bank-$(date +%F)`,
		Args:    arguments("DIR", "TO"),
		RunE: func(c *cobra.Command, args []string) error {
			began := time.Now()
			var at atomic.Pointer[filelog.BackupProgress]
			at.Store(&filelog.BackupProgress{})
			stop := a.console.progress(func() string { return backupLine(*at.Load(), time.Since(began)) })
			defer stop()
			err := filelog.Backup(c.Context(), args[0], args[1], func(p filelog.BackupProgress) { at.Store(&p) })
			stop()
			if err != nil {
				return err
			}
			return a.printBackup(args[0], args[1], at.Load().Done, time.Since(began))
		},
		ValidArgsFunction: completeDirs,
	}
}

// backupJSON is what -o json prints.
type backupJSON struct {
	From    string  `json:"from"`
	To      string  `json:"to"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

func (a *app) printBackup(from, to string, bytes int64, took time.Duration) error {
	if a.output == outputJSON {
		return a.printJSON(backupJSON{from, to, bytes, took.Seconds()})
	}
	_, err := fmt.Fprintf(a.stdout, "copied %s to %s: %s in %v\n", from, to, megabytes(bytes), took.Round(time.Millisecond))
	return err
}

func backupLine(p filelog.BackupProgress, took time.Duration) string {
	share, left := 0.0, ""
	if p.Total > 0 {
		share = float64(p.Done) / float64(p.Total)
	}
	if share > 0.05 {
		left = fmt.Sprintf(", %v left", time.Duration(float64(took)*(1-share)/share).Round(time.Second))
	}
	return fmt.Sprintf("%3.0f%%  %s of %s%s", 100*share, megabytes(p.Done), megabytes(p.Total), left)
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// completeDirs lets the shell complete directories.
func completeDirs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}
