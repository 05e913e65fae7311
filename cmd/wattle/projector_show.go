// wattle projector list and show: health, and the progress of a rebuild.

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// healthJSON is the health of a version as -o json prints it.
type healthJSON struct {
	Projector  string              `json:"projector"`
	Version    int                 `json:"version"`
	Role       string              `json:"role"`
	Kept       string              `json:"kept"` // in the database, or the log
	Categories []string            `json:"categories,omitempty"`
	Stream     eventstore.Stream   `json:"stream,omitempty"`
	Ready      bool                `json:"ready"`
	Reasons    []string            `json:"reasons"`
	Head       eventstore.Position `json:"head"`
	HeadSeqno  eventstore.Seqno    `json:"head_seqno,omitempty"`
	Position   eventstore.Position `json:"position"`
	Seqno      eventstore.Seqno    `json:"seqno,omitempty"`
	Behind     int                 `json:"behind"`
	More       bool                `json:"more"`
	LagSeconds float64             `json:"lag_seconds"`
	Parked     int                 `json:"parked"`
	Created    *time.Time          `json:"created,omitempty"`
	Lanes      []laneJSON          `json:"lanes"`
	Backends   []healthJSON        `json:"backends,omitempty"`
}

type laneJSON struct {
	Lane       int                 `json:"lane"`
	Position   eventstore.Position `json:"position"`
	Seqno      eventstore.Seqno    `json:"seqno,omitempty"`
	Epoch      eventstore.Epoch    `json:"epoch"`
	Holder     eventstore.UUID     `json:"holder"`
	Owner      *eventstore.UUID    `json:"owner"` // of the lease that runs; null: nobody
	Claimed    bool                `json:"claimed"`
	Paused     bool                `json:"paused"`
	Behind     int                 `json:"behind"`
	More       bool                `json:"more"`
	LagSeconds float64             `json:"lag_seconds"`
	Parked     int                 `json:"parked"`
}

func toHealthJSON(h projector.Health, where string, versions []projector.Version) healthJSON {
	j := healthJSON{Projector: h.Key.Projector, Version: h.Key.Version, Role: h.Role.String(), Kept: where, Ready: h.Ready, Reasons: append([]string{}, h.Reasons...),
		Head: h.Head, HeadSeqno: h.HeadSeqno, Position: h.Position, Seqno: h.Seqno, Behind: h.Behind, More: h.More, LagSeconds: h.Lag.Seconds(), Parked: h.Parked, Lanes: []laneJSON{}}
	for _, v := range versions {
		if v.Key == h.Key {
			j.Created, j.Stream = &v.Created, v.Scope.Stream
			for _, c := range v.Scope.Categories {
				j.Categories = append(j.Categories, string(c))
			}
		}
	}
	for _, l := range h.Lanes {
		lane := laneJSON{Lane: l.Lane, Position: l.Checkpoint.Position, Seqno: l.Checkpoint.Seqno, Epoch: l.Checkpoint.Epoch, Holder: l.Checkpoint.Holder,
			Claimed: l.Claimed, Paused: l.Paused, Behind: l.Behind, More: l.More, LagSeconds: l.Lag.Seconds(), Parked: l.Parked}
		if l.Left > 0 {
			lane.Owner = &l.Owner
		}
		j.Lanes = append(j.Lanes, lane)
	}
	for _, part := range h.Parts {
		j.Backends = append(j.Backends, toHealthJSON(part, where, versions))
	}
	return j
}

// atLeast is a count that may be too low.
func atLeast(n int, more bool) string {
	if more {
		return fmt.Sprintf("%d+", n)
	}
	return fmt.Sprint(n)
}

func seconds(s float64) string { return fmt.Sprintf("%.1fs", s) }

func (j *healthJSON) state() string {
	if j.Ready {
		return "ready"
	}
	state := printable(j.Reasons[0])
	if more := len(j.Reasons) - 1; more > 0 {
		state += fmt.Sprintf("; and %d more", more)
	}
	return state
}

func (j *healthJSON) place() string {
	if j.Stream != "" {
		return j.Seqno.String()
	}
	return j.Position.String()
}

func (p *projecting) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "list the projectors and their health",
		Long: `List lists all versions of all projectors of the store. BEHIND is how many entries the version
has still to handle, with + if there may be more, and LAG how old the oldest of them is. STATE
is ready, or says why not; see wattle projector show.`,
		Example: `  wattle projector list
  wattle projector list -o json | jq -r '.[] | select(.ready | not) | .projector'`,
		Args: arguments(),
		RunE: func(c *cobra.Command, _ []string) error {
			return p.opened(c.Context(), open.Options{ReadOnly: true}, func(s *open.Store, all []open.Keeper) error {
				return p.list(c.Context(), s, all)
			})
		},
	}
}

func (p *projecting) list(ctx context.Context, s *open.Store, keepers []open.Keeper) error {
	list, rows := []healthJSON{}, [][]string{{"NAME", "VERSION", "ROLE", "KEPT", "LANES", "POSITION", "BEHIND", "LAG", "PARKED", "STATE"}}
	for _, k := range keepers {
		versions, err := k.Versions(ctx, "")
		if err != nil {
			return err
		}
		seen := map[projector.Key]bool{}
		for _, v := range versions {
			key := projector.Key{Projector: v.Key.Name(), Version: v.Key.Version}
			if seen[key] {
				continue
			}
			seen[key] = true
			// An error is one of its reasons.
			h, _ := projector.NewAdmin(s.Store, k.Control).Health(ctx, key.Projector, key.Version, nil)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			j := toHealthJSON(h, k.Where, versions)
			list = append(list, j)
			rows = append(rows, []string{printable(j.Projector), fmt.Sprint(j.Version), j.Role, j.Kept, fmt.Sprint(len(v.Lanes)), j.place(), atLeast(j.Behind, j.More), seconds(j.LagSeconds), fmt.Sprint(j.Parked), j.state()})
		}
	}
	return p.app.printList(list, rows)
}

// showing is what the flags of show say.
type showing struct {
	watch, check bool
	every        time.Duration
	o            projector.HealthOptions
}

func (p *projecting) showCommand() *cobra.Command {
	var f showing
	c := &cobra.Command{
		Use:   "show NAME",
		Short: "show the health of a projector, lane by lane",
		Long: `Show says how far a version of a projector has come, lane by lane: OWNER is the worker that has
the lane, BEHIND how many entries it has still to handle, LAG how old the oldest of them is, by
the store's clock where a worker has a lease there.

It is ready if every entry that was in the store when the look began is handled, every lane has
a worker, none is paused and no key is parked; of a shadow, if it has come to where the live
version is. It is not if entries were trimmed before it came to them. --max-lag, --max-parked,
--no-workers and --accept-trimmed say what is tolerated. With --check the exit code is 8 if it is
not ready, for probes.

With --watch it prints how it gets on, until it is ready: how far it is, how fast, and how long
it will take at that rate. Positions are those of the whole store.`,
		Example: `  wattle projector show balances
  wattle projector show balances --version 2 --watch
  wattle projector show balances --check --max-lag 30s -o json`,
		Args: arguments("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			if f.every < 10*time.Millisecond {
				return &usageError{"--every of at least 10ms", f.every.String(), ""}
			}
			if f.o.MaxLag < 0 || f.o.MaxParked < 0 {
				return &usageError{"--max-lag and --max-parked of at least 0", "less", ""}
			}
			return p.of(c.Context(), args[0], open.Options{ReadOnly: true}, func(s *open.Store, k open.Keeper) error {
				if f.watch {
					return p.watch(c.Context(), s, k, args[0], &f)
				}
				return p.show(c.Context(), s, k, args[0], &f)
			})
		},
		ValidArgsFunction: p.completeNames,
	}
	p.versionFlag(c)
	flags := c.Flags()
	flags.BoolVar(&f.watch, "watch", false, "print how it gets on until it is ready")
	flags.BoolVar(&f.check, "check", false, "exit with 8 if it is not ready")
	flags.DurationVar(&f.every, "every", time.Second, "how often --watch looks")
	flags.DurationVar(&f.o.MaxLag, "max-lag", 0, "how old the oldest entry that is not handled may be, as 30s")
	flags.IntVar(&f.o.MaxParked, "max-parked", 0, "how many keys may be parked")
	flags.BoolVar(&f.o.NoWorkers, "no-workers", false, "lanes need no worker: they are worked on now and then (CatchUp)")
	trimmedFlag(c, &f.o.AcceptTrimmed)
	return c
}

func (p *projecting) show(ctx context.Context, s *open.Store, k open.Keeper, name string, f *showing) error {
	h, err := projector.NewAdmin(s.Store, k.Control).Health(ctx, name, p.version, &f.o)
	if err != nil {
		return err
	}
	versions, err := k.Versions(ctx, name)
	if err != nil {
		return err
	}
	j := toHealthJSON(h, k.Where, versions)
	if p.app.output == outputJSON {
		err = p.app.printJSON(j)
	} else {
		err = p.printHealth(&j)
	}
	if err == nil && f.check && !h.Ready {
		err = &coded{&eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "projector " + h.Key.Projector, Wanted: "that it is ready", Found: j.state()}, exitFound}
	}
	return err
}

func (p *projecting) printHealth(j *healthJSON) error {
	parts := []healthJSON{*j}
	if len(j.Backends) > 0 {
		parts = j.Backends
	}
	for i := range parts {
		part := &parts[i]
		follows := strings.Join(part.Categories, ", ")
		if part.Stream != "" {
			follows = "stream " + printable(string(part.Stream))
		}
		head := part.Head.String()
		if part.Stream != "" {
			head = part.HeadSeqno.String()
		}
		_, err := fmt.Fprintf(p.app.stdout, "%s version %d, %s, kept in the %s, follows %s\nat %s of %s, %s entries (%s) behind, %d parked: %s\n",
			printable(part.Projector), part.Version, part.Role, part.Kept, follows, part.place(), head, atLeast(part.Behind, part.More), seconds(part.LagSeconds), part.Parked, readyWord(part.Ready))
		if err != nil {
			return err
		}
		for _, why := range part.Reasons {
			if _, err := fmt.Fprintf(p.app.stdout, "  %s\n", printable(why)); err != nil {
				return err
			}
		}
		if err := p.printLanes(part); err != nil {
			return err
		}
	}
	return nil
}

func readyWord(ready bool) string {
	if ready {
		return "ready"
	}
	return "NOT ready"
}

func (p *projecting) printLanes(j *healthJSON) error {
	rows := [][]string{{"LANE", "POSITION", "EPOCH", "BEHIND", "LAG", "PARKED", "OWNER"}}
	for _, l := range j.Lanes {
		at, owner := l.Position.String(), "none"
		if j.Stream != "" {
			at = l.Seqno.String()
		}
		switch {
		case l.Paused:
			owner = "paused"
		case l.Owner != nil && l.Claimed:
			owner = l.Owner.String()
		case l.Owner != nil:
			owner = l.Owner.String() + " (has not claimed it)"
		}
		rows = append(rows, []string{fmt.Sprint(l.Lane), at, l.Epoch.String(), atLeast(l.Behind, l.More), seconds(l.LagSeconds), fmt.Sprint(l.Parked), owner})
	}
	return p.app.printRows(rows)
}
