// The workers of a demo: processes of their own where the store is shared by processes.

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/wattle-es/wattle/examples/loan/bank"
)

const (
	workerConnections = 4               // of a worker process to its database: so many lanes in a transaction at once
	workerPatience    = 5 * time.Second // for one to end, before it is killed
	workerWords       = 4 << 10         // of its stderr that are kept, in bytes
	flagWorker        = "worker"        // be one
	flagParent        = "until-eof"     // end with the process that started this one
)

var errParentGone = errors.New("the demo that started this worker has ended")

// demoWorker projects for the demos on a store until it is interrupted.
func (a *app) demoWorker(ctx context.Context, d demo) error {
	t, _, err := a.demoTarget(d)
	if err != nil {
		return err
	}
	if !t.InPostgres() {
		return &usageError{"--" + flagWorker + " with a store in PostgreSQL", t.String(), "elsewhere the workers are part of the demo's process: give that --workers"}
	}
	d.writers = workerConnections
	s, err := a.demoStore(ctx, t, d)
	if err != nil {
		return err
	}
	defer s.Close()
	view, err := demoView(ctx, s, d)
	if err != nil {
		return err
	}
	service, err := bank.New(ctx, s.Store, view)
	if err != nil {
		return err
	}
	if d.parent {
		var stop context.CancelCauseFunc
		ctx, stop = context.WithCancelCause(ctx)
		go func() { // ends with the process
			_, _ = io.Copy(io.Discard, a.stdin)
			stop(errParentGone)
		}()
	}
	err = service.Project(ctx)
	if context.Cause(ctx) == errParentGone {
		return nil
	}
	return cmp.Or(context.Cause(ctx), err)
}

// crew are the worker processes of a demo.
type crew struct {
	a       *app
	workers []*worker
}

// worker is one of them.
type worker struct {
	*exec.Cmd
	number int // the demo's own is 1
	alive  io.Closer
	words  limited
	ended  chan struct{}
}

// startWorkers starts all but the first, which is in this process. They end with it,
// however it ends. One that ends before is told of; the others go on with its lanes.
func (a *app) startWorkers(d demo) (*crew, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start workers: %w", err)
	}
	c := &crew{a: a}
	for n := 2; n <= d.workers; n++ {
		w := &worker{Cmd: exec.Command(binary, "demo", "--"+flagWorker, "--"+flagParent), number: n, ended: make(chan struct{})}
		if d.nats != "" {
			w.Args = append(w.Args, "--nats", d.nats)
		}
		w.Env = append(os.Environ(), storeVariable+"="+cmp.Or(a.store, a.env(storeVariable))) // not in sight of others, as an argument is
		w.Stderr = &w.words
		if w.alive, err = w.StdinPipe(); err == nil {
			err = w.Start()
		}
		if err != nil {
			c.stop()
			return nil, fmt.Errorf("start worker %d: %w", n, err)
		}
		c.workers = append(c.workers, w)
		go func() {
			err := w.Wait()
			close(w.ended)
			if err != nil {
				a.console.say(fmt.Sprintf("wattle: worker %d (process %d) ended: %v; the others take over what it had%s", n, w.Process.Pid, err, w.words.said()))
			}
		}()
	}
	return c, nil
}

// stop ends the workers and waits for them.
func (c *crew) stop() {
	for _, w := range c.workers {
		_ = w.alive.Close()
	}
	patience := time.After(workerPatience)
	for _, w := range c.workers {
		select {
		case <-w.ended:
		case <-patience: // frozen, or waiting for a database that does not answer
			for _, w := range c.workers {
				_ = w.Process.Kill()
			}
			<-w.ended
		}
	}
}

// limited keeps the end of what is written to it.
type limited struct {
	mu   sync.Mutex
	last []byte
}

func (l *limited) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = append(l.last, b...)
	l.last = l.last[max(0, len(l.last)-workerWords):]
	return len(b), nil
}

// said is what was written, to be put behind a sentence.
func (l *limited) said() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if words := bytes.TrimSpace(l.last); len(words) > 0 {
		return ": " + string(bytes.ReplaceAll(words, []byte("\n"), []byte("; ")))
	}
	return ""
}
