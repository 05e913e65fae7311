// The store of a demo: its own in the user's state folder, or one that was named.

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/examples/loan/bankpg"
)

// demoTarget is the store that a demo works on, and whether it is the demo's own.
func (a *app) demoTarget(d demo) (t *open.Target, own bool, err error) {
	if a.store != "" || a.env(storeVariable) != "" {
		if d.fresh {
			return nil, false, &usageError{"--fresh for the demo's own store alone", "--store or " + storeVariable,
				"wattle migrate down destroys another store"}
		}
		t, err = a.target("")
		return t, false, err
	}
	dir, err := stateDir(runtime.GOOS, a.env)
	if err != nil {
		return nil, false, err
	}
	return open.Files(filepath.Join(dir, "wattle", "demo")), true, nil
}

// demoStore opens the store, and makes it or migrates its schema if it must: the demo is
// to run with nothing prepared, and says so.
func (a *app) demoStore(ctx context.Context, t *open.Target, d demo) (*open.Store, error) {
	if d.fresh {
		if err := a.demoFresh(t); err != nil {
			return nil, err
		}
	}
	o := &open.Options{Connections: d.writers, NATS: d.nats, Logger: a.logger(), Create: true}
	if t.InFiles() {
		return t.Open(ctx, o)
	}
	s, err := t.Open(ctx, o)
	if !errors.Is(err, eventstore.ErrNotMigrated) {
		return s, err
	}
	all, err := t.Migrations(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if !m.Pending() { // another version than ours: not for a demo to change
			return t.Open(ctx, o)
		}
	}
	a.console.say(fmt.Sprintf("wattle: schema %q is not migrated: doing it, as a demo may", t.Schema()))
	if err := t.MigrateUp(ctx); err != nil {
		return nil, err
	}
	return t.Open(ctx, o)
}

// demoFresh removes the demo's own store, if there is one and nothing beside it.
func (a *app) demoFresh(t *open.Target) error {
	found, err := t.Exists()
	if err != nil || !found {
		return err
	}
	err = t.Remove()
	if errors.Is(err, eventstore.ErrInvalid) {
		return &coded{err, exitRefused}
	}
	return err
}

// demoView keeps the read model beside the store.
func demoView(ctx context.Context, s *open.Store, d demo) (bank.View, error) {
	if s.Pool == nil {
		return &bank.MemoryView{}, nil
	}
	return bankpg.Open(ctx, s.Pool, s.Store, bankpg.Options{Schema: bankpg.SchemaBeside(s.Schema), StoreSchema: s.Schema, Rebuild: d.rebuild})
}

// catchUp makes the read model of what a store in files holds already, since it was in
// the memory of the process before, and says where all of it is.
func (a *app) catchUp(ctx context.Context, t *open.Target, own bool, service *bank.Service) error {
	began := time.Now()
	stop := a.console.progress(func() string { return fmt.Sprintf("reading %s", t) })
	err := service.CatchUp(ctx)
	stop()
	if err != nil {
		return err
	}
	report, err := service.Report(ctx)
	if err != nil {
		return err
	}
	if report.Events == 0 {
		a.console.say(fmt.Sprintf("wattle: new events go to %s", t))
		return nil
	}
	fresh := ""
	if own {
		fresh = "; --fresh begins anew"
	}
	a.console.say(fmt.Sprintf("wattle: going on with %s: %d applications, %d events, projected anew in %v%s",
		t, report.Cases, report.Events, time.Since(began).Round(time.Millisecond), fresh))
	return nil
}
