// The module as a user builds and opens it.

package main

import (
	"context"
	"testing"
	"time"

	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/wasm"
	process "github.com/wattle-es/wattle/examples/loan"
	"github.com/wattle-es/wattle/examples/loan/wire/wiretest"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/internal/guests"
)

// A whole application is decided by the guest, and ends as it does natively.
func TestGuestDecides(t *testing.T) {
	module, cache, err := guests.Build("../../..", "./examples/guest/loan", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m, err := wasm.Open(t.Context(), module, &wasm.Options{CacheDir: cache, Timeout: 30 * time.Second, StartTimeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(context.Background())
	caller, err := handler.NewCaller(t.Context(), handler.Over(m, "loan.wasm"), &handler.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if d := caller.Description(); !d.Can(handler.Decide) || !d.Can(handler.Project) {
		t.Fatalf("it can %v, want decide and project", d.Capabilities)
	}
	store := eventstore.New(memlog.New(nil), nil)
	defer store.Close()
	exec, err := guest.NewExecutor(t.Context(), store, caller, nil)
	if err != nil {
		t.Fatal(err)
	}
	for app := range process.Generate(1, 1) {
		for i := range app.Events {
			command, err := process.CommandFor(app, i)
			if err != nil {
				t.Fatal(err)
			}
			wired, err := wiretest.Command(command)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := exec.Execute(t.Context(), app.Key, guest.Command{Command: wired}); err != nil {
				t.Fatalf("event %d: %v", i, err)
			}
		}
		head, err := store.Head(t.Context(), eventstore.Stream("application-"+app.Key))
		if err != nil || int(head.Last.Seqno) != len(app.Events) {
			t.Errorf("%+v, %v: want %d entries", head, err, len(app.Events))
		}
	}
}
