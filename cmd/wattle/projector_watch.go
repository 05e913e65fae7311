// Watching a projector come nearer: how far, how fast, how long it will take.

package main

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/projector"
)

// progressJSON is a line of show --watch.
type progressJSON struct {
	Projector   string   `json:"projector"`
	Version     int      `json:"version"`
	Percent     float64  `json:"percent"`
	Place       uint64   `json:"place"` // position, of a stream: seqno
	Goal        uint64   `json:"goal"`
	Rate        float64  `json:"rate"` // places a second, since the watch began
	SecondsLeft *float64 `json:"seconds_left"`
	Ready       bool     `json:"ready"`
	Reasons     []string `json:"reasons"`
}

func (j *progressJSON) String() string {
	left := "not getting nearer"
	if j.SecondsLeft != nil {
		left = "about " + time.Duration(*j.SecondsLeft*float64(time.Second)).Round(time.Second).String() + " left"
	}
	state := "ready"
	if !j.Ready && len(j.Reasons) > 0 {
		state = left + ": " + printable(j.Reasons[0])
	}
	return fmt.Sprintf("%5.1f%%  %d of %d, %.0f/s, %s", j.Percent, j.Place, j.Goal, j.Rate, state)
}

// watcher looks at a version again and again.
type watcher struct {
	admin   *projector.Admin
	control projector.Control
	name    string
	version int
	o       projector.HealthOptions
	began   time.Time
	first   uint64
}

// look looks once. Over several backends places are sums.
func (w *watcher) look(ctx context.Context) (j progressJSON, err error) {
	h, err := w.admin.Health(ctx, w.name, w.version, &w.o)
	if err != nil {
		return j, err
	}
	w.version = h.Key.Version // it stays with the one it began with, also after a switch
	all, err := w.control.Versions(ctx, w.name)
	if err != nil {
		return j, err
	}
	j = progressJSON{Projector: w.name, Version: h.Key.Version, Ready: h.Ready, Reasons: append([]string{}, h.Reasons...)}
	parts := h.Parts
	if len(parts) == 0 {
		parts = []projector.Health{h}
	}
	for _, part := range parts {
		if part.Seqno > 0 { // of one stream
			j.Place += uint64(part.Seqno)
		} else {
			j.Place += uint64(part.Position)
		}
		j.Goal += goalOf(part, all)
	}
	w.estimate(&j)
	return j, nil
}

// goalOf is how far a version is to come: to where the live one is, or the head.
func goalOf(h projector.Health, all []projector.Version) uint64 {
	goal := uint64(h.Head) + uint64(h.HeadSeqno)
	for _, v := range all {
		if h.Role == projector.Shadow && v.Key.Projector == h.Key.Projector && v.Role == projector.Live {
			goal = math.MaxUint64
			for _, c := range v.Lanes {
				goal = min(goal, placeOf(v, c))
			}
		}
	}
	return goal
}

func placeOf(v projector.Version, c projector.Checkpoint) uint64 {
	if v.Scope.Stream != "" {
		return uint64(c.Seqno)
	}
	return uint64(c.Position)
}

func (w *watcher) estimate(j *progressJSON) {
	j.Percent = 100
	if j.Goal > 0 {
		j.Percent = min(100, 100*float64(j.Place)/float64(j.Goal))
	}
	if w.began.IsZero() {
		w.began, w.first = time.Now(), j.Place
		return
	}
	if took := time.Since(w.began).Seconds(); took > 0 && j.Place > w.first {
		j.Rate = float64(j.Place-w.first) / took
		left := float64(max(j.Goal, j.Place)-j.Place) / j.Rate
		j.SecondsLeft = &left
	}
}

func (p *projecting) watcher(s *open.Store, k open.Keeper, name string, version int, o projector.HealthOptions) *watcher {
	return &watcher{admin: projector.NewAdmin(s.Store, k.Control), control: k.Control, name: name, version: version, o: o}
}

// watch prints how a version gets on until it is ready.
func (p *projecting) watch(ctx context.Context, s *open.Store, k open.Keeper, name string, f *showing) error {
	w := p.watcher(s, k, name, p.version, f.o)
	return p.follow(ctx, w, f.every, func(j progressJSON) error {
		if p.app.output == outputJSON {
			return p.app.printJSON(j)
		}
		_, err := fmt.Fprintln(p.app.stdout, j.String())
		return err
	})
}

// follow looks until the version is ready; outages are waited out.
func (p *projecting) follow(ctx context.Context, w *watcher, every time.Duration, each func(progressJSON) error) error {
	var last progressJSON
	for down := false; ; {
		j, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return w.late(ctx, last)
		case err != nil && codeOf(err) != exitUnavailable:
			return err
		case err != nil && !down:
			p.app.console.say(message(err) + "; going on when it is back")
		}
		if down = err != nil; !down {
			if last = j; each != nil {
				if err := each(j); err != nil {
					return err
				}
			}
			if j.Ready {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return w.late(ctx, last)
		case <-time.After(every):
		}
	}
}

// late is the error of a wait that ended before the version was ready.
func (w *watcher) late(ctx context.Context, last progressJSON) error {
	return &lateError{fmt.Sprintf("version %d of projector %s caught up", w.version, printable(w.name)), last, ctx.Err()}
}

// lateError is a wait for a version that took longer than was said.
type lateError struct {
	wanted string
	last   progressJSON // zero: it could not be looked at
	err    error        // of the context
}

func (e *lateError) Error() string {
	found := "none, it could not be looked at"
	if e.last.Version > 0 {
		found = "it at " + e.last.String()
	}
	return fmt.Sprintf("wanted %s, found %s: %v", e.wanted, found, e.err)
}

func (e *lateError) Unwrap() error { return e.err }

// waitTolerates is what a version may lack that is waited for: enough not to wait for ever
// while entries keep coming.
var waitTolerates = projector.HealthOptions{MaxLag: 10 * time.Second, MaxParked: math.MaxInt}

// waitFor waits until a version has caught up, with progress on a terminal.
func (p *projecting) waitFor(ctx context.Context, s *open.Store, k open.Keeper, name string, version int, acceptTrimmed bool) error {
	o := waitTolerates
	o.AcceptTrimmed = acceptTrimmed
	w := p.watcher(s, k, name, version, o)
	var line atomic.Value
	line.Store("")
	stop := p.app.console.progress(func() string { return line.Load().(string) })
	defer stop()
	return p.follow(ctx, w, 200*time.Millisecond, func(j progressJSON) error {
		line.Store(j.String())
		return nil
	})
}
