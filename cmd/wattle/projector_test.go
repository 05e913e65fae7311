// wattle projector beside workers that run, in PostgreSQL and in files.

package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/logcheckpoint"
	"github.com/wattle-es/wattle/projector/pgcheckpoint"
)

// projection is a store with a projector "p" of category account, whose workers run in
// the test's process.
type projection struct {
	t       *testing.T
	url     string
	s       *open.Store
	control projector.Control

	mu      sync.Mutex
	handled map[eventstore.Position]int // by the live version
	broken  bool                        // entries of type "bad" cannot be handled
	stuck   bool                        // nothing can
}

// newProjection opens a store and keeps checkpoints in its database, or in the log.
func newProjection(t *testing.T, url string) *projection {
	t.Helper()
	p := &projection{t: t, url: url, handled: map[eventstore.Position]int{}, broken: true}
	p.open()
	p.ok(p.s.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "account"}))
	return p
}

func (p *projection) ok(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *projection) open() {
	p.t.Helper()
	target, err := open.Parse(p.url)
	p.ok(err)
	p.s, err = target.Open(context.Background(), &open.Options{})
	p.ok(err)
	closed := sync.OnceFunc(func() { _ = p.s.Close() })
	p.t.Cleanup(closed)
	if p.s.Pool != nil {
		p.control = pgcheckpoint.NewCheckpoints(p.s.Pool, &pgcheckpoint.Options{Schema: p.s.Schema})
		return
	}
	p.control, err = logcheckpoint.New(context.Background(), p.s.Store, nil)
	p.ok(err)
}

// handle is the effects of all versions.
func (p *projection) handle(_ context.Context, _ projector.Key, batch []eventstore.Entry) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, e := range batch {
		if p.stuck || p.broken && e.Type == "bad" {
			return projector.NewEntryError(batch[i:i+1], errors.New("the handler\x1b[2J is broken"))
		}
		p.handled[e.Position]++
	}
	return nil
}

func (p *projection) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// times returns how often an entry was handled.
func (p *projection) times(at eventstore.Position) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.handled[at]
}

// run runs two workers of all versions until stop is called. When it returns one of them
// has registered the projector.
func (p *projection) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	for range 2 {
		v := projector.NewVersioned(p.s.Store, "p", "account", p.control, func(int) (projector.Handler, error) { return projector.Sink(p.control, p.handle), nil },
			&projector.Options{Lanes: 4, LeaseTTL: 2 * time.Second, PollInterval: 20 * time.Millisecond, Tries: 2})
		working.Go(func() {
			if err := v.Run(ctx); !errors.Is(err, context.Canceled) {
				p.t.Errorf("a worker ended: %v", err)
			}
		})
	}
	stop = sync.OnceFunc(func() { cancel(); working.Wait() })
	p.t.Cleanup(stop)
	until(p.t, "the projector to be registered", func() bool {
		all, err := p.control.Versions(p.t.Context(), "p")
		return err == nil && len(all) > 0
	})
	return stop
}

// append appends entries of a type to a stream each, and returns the last token.
func (p *projection) append(wire string, keys ...string) (token eventstore.Token) {
	p.t.Helper()
	for _, key := range keys {
		stream := eventstore.Stream("account-" + key)
		head, err := p.s.Head(p.t.Context(), stream)
		p.ok(err)
		done, err := p.s.Append(p.t.Context(), eventstore.Append{Batches: []eventstore.Batch{{Stream: stream, Claim: true, Epoch: head.Epoch + 1,
			Holder: eventstore.NewUUID(), After: head.Last, Events: []eventstore.Event{{Type: wire, Data: []byte("{}")}}}}})
		p.ok(err)
		token = done.Token
	}
	return token
}

func (p *projection) cli(args ...string) result {
	p.t.Helper()
	return wattle(p.t, append(append([]string{"projector"}, args...), "--store", p.url)...)
}

// waited waits until the live version has passed a token, by the command.
func (p *projection) waited(token eventstore.Token) {
	p.t.Helper()
	p.cli("wait", "p", token.String(), "--timeout", "20s").wants(p.t, 0, "has passed position "+token.Position.String())
}

func (p *projection) show(args ...string) healthJSON {
	p.t.Helper()
	return unmarshal[healthJSON](p.t, p.cli(append([]string{"show", "p", "-o", "json"}, args...)...).wants(p.t, 0))
}

// ready waits until a version is ready and the two workers have two lanes each: then they
// stay with them.
func (p *projection) ready(args ...string) {
	p.t.Helper()
	until(p.t, "a projector that is ready", func() bool {
		h, lanes := p.show(args...), map[eventstore.UUID]int{}
		for _, l := range h.Lanes {
			if l.Owner != nil {
				lanes[*l.Owner]++
			}
		}
		ready := h.Ready && len(lanes) == 2
		for _, n := range lanes {
			ready = ready && n == 2
		}
		return ready
	})
}

var keys = []string{"a", "b", "c", "d", "e", "f", "g", "h"}

func TestProjectorBesideWorkers(t *testing.T) {
	t.Parallel()
	p := newProjection(t, migrated(t))
	p.cli("list").wants(t, 0, "NAME")
	p.cli("show", "p").wants(t, exitNotFound, "projector p", "wattle projector list")
	p.run()
	first := p.append("good", keys...)
	p.waited(first)
	p.ready()
	p.cli("show", "p", "--check").wants(t, 0, "p version 1, live, kept in the database, follows account", ": ready", "LANE", "OWNER")
	if h := p.show(); len(h.Lanes) != 4 || h.Behind != 0 || h.Position != first.Position && h.Head != first.Position || h.Lanes[0].Owner == nil || !h.Lanes[0].Claimed || h.Created == nil {
		t.Errorf("%+v", h)
	}
	p.cli("list").wants(t, 0, "p     1        live", "database", "ready")

	// Paused it does nothing, resumed it goes on.
	p.cli("pause", "p").wants(t, 0, "paused")
	second := p.append("good", "a")
	time.Sleep(300 * time.Millisecond)
	if n := p.times(second.Position); n != 0 {
		t.Errorf("handled %d times while it was paused", n)
	}
	p.cli("show", "p").wants(t, 0, "NOT ready", "  paused", "1 entries")
	p.cli("show", "p", "--check").wants(t, exitFound, "wanted that it is ready", "paused")
	p.cli("list").wants(t, 0, "paused")
	p.cli("wait", "p", second.Position.String(), "--timeout", "50ms").wants(t, exitBehind, "has not passed position "+second.Position.String(), "1 entries behind")
	p.cli("resume", "p").wants(t, 0, "resumed")
	p.waited(second)

	// Reset it handles everything again.
	p.cli("reset", "p").wants(t, exitRefused, "HANDLES EVERYTHING AGAIN", "--yes", "no terminal")
	if r := asked(t, "q\n", "projector", "reset", "p", "--store", p.url); r.code != exitRefused || !strings.Contains(r.err, "Type p to go on") {
		t.Errorf("found %d: %s", r.code, r.err)
	}
	p.cli("reset", "p", "--yes").wants(t, 0, "it begins anew")
	until(t, "the first entries to be handled again", func() bool { return p.times(first.Position) == 2 && p.times(second.Position) == 2 })
	p.ready()
}

func TestProjectorParked(t *testing.T) {
	t.Parallel()
	p := newProjection(t, migrated(t))
	p.run()
	bad := p.append("bad", "a", "b")
	behind := p.append("good", keys...)
	p.waited(behind)
	until(t, "two parked keys", func() bool { return len(p.parked("parked")) == 2 })
	p.cli("parked", "p").wants(t, 0, "account-a", "account-b", `the handler\u001b[2J is broken`, "WAITING")
	all := p.parked("parked")
	if k := all[0]; k.Key != "a" || k.Stream != "account-a" || k.Seqno != 1 || k.Type != "bad" || k.Waiting != 2 || k.Attempts != 2 || k.Request != "wait" || k.Since.IsZero() {
		t.Errorf("%+v", k)
	}
	p.cli("show", "p", "--check").wants(t, exitFound, "2 keys parked, at most 0")
	p.ready("--max-parked", "2")
	p.cli("show", "p", "--check", "--max-parked", "2").wants(t, 0)
	p.cli("wait", "p", bad.String()).wants(t, exitRefused, "parked", "wattle projector parked")

	p.cli("retry", "p").wants(t, exitUsage, "NAME and KEY (or --all)")
	p.cli("retry", "p", "nobody").wants(t, exitNotFound, "which is not parked")
	p.cli("skip", "p", "nobody", "--why", "x").wants(t, exitNotFound, "which is not parked")
	p.cli("skip", "p", "a").wants(t, exitUsage, "--why")
	p.cli("retry", "p", "--all").wants(t, 0, "2 keys to be retried")
	until(t, "both to be tried again", func() bool {
		all := p.parked("parked")
		return len(all) == 2 && all[0].Attempts == 3 && all[1].Attempts == 3 && all[0].Request == "wait" && all[1].Request == "wait"
	})
	p.cli("skip", "p", "a", "--why", "TICKET-7").wants(t, 0, "1 entry to be skipped")
	until(t, "one key less", func() bool { return len(p.parked("parked")) == 1 })
	p.cli("skipped", "p").wants(t, 0, "account-a", "TICKET-7", "is broken")
	if all := p.parked("skipped"); len(all) != 1 || all[0].Seqno != 1 || all[0].Why != "TICKET-7" {
		t.Errorf("%+v", all)
	}
	p.set(func() { p.broken = false })
	p.cli("retry", "p", "b").wants(t, 0, "1 key to be retried")
	until(t, "no parked key", func() bool { return len(p.parked("parked")) == 0 })
	p.waited(bad)
	p.ready()
	if n := p.times(bad.Position); n != 1 {
		t.Errorf("the entry that was retried was handled %d times", n)
	}
	if n := p.times(bad.Position - 1); n != 0 {
		t.Errorf("the entry that was skipped was handled %d times", n)
	}
	for at := bad.Position + 1; at <= behind.Position; at++ {
		if n := p.times(at); n != 1 {
			t.Errorf("position %d was handled %d times", at, n)
		}
	}
}

func (p *projection) parked(command string) []parkedJSON {
	p.t.Helper()
	return unmarshal[[]parkedJSON](p.t, p.cli(command, "p", "-o", "json").wants(p.t, 0))
}

func TestProjectorVersions(t *testing.T) {
	t.Parallel()
	p := newProjection(t, migrated(t))
	p.run()
	p.waited(p.append("good", keys...))
	p.cli("rollback", "p").wants(t, exitNotFound, "a version below 1")
	p.cli("drop", "p", "1", "--yes").wants(t, 0, "version 1 is dropped") // workers register it anew
	until(t, "it to be registered again", func() bool { return p.cli("show", "p").code == 0 })
	p.cli("rebuild", "p", "--wait", "--timeout", "30s").wants(t, 0, "version 2 has caught up")
	if h := p.show("--version", "2"); h.Role != "shadow" || len(h.Lanes) != 4 {
		t.Errorf("%+v", h)
	}
	p.cli("show", "p", "--version", "2", "--watch", "--every", "20ms").wants(t, 0, "100.0%", "ready")
	p.cli("switch", "p", "x").wants(t, exitUsage, "the number of a version")
	p.cli("switch", "p", "9").wants(t, exitNotFound, "p/9/0")
	p.cli("switch", "p", "2", "--wait", "--timeout", "30s", "-o", "json").wants(t, 0, `"version":2`, "version 2 is live")
	p.cli("drop", "p", "2", "--yes").wants(t, exitRefused, "switch to another one first")
	r := p.cli("list").wants(t, 0)
	if !strings.Contains(r.out, "p     1        shadow") || !strings.Contains(r.out, "p     2        live") {
		t.Errorf("found\n%s", r.out)
	}
	p.append("bad", "a")
	p.waited(p.append("good", keys[1:]...))
	until(t, "a parked key", func() bool { return len(p.parked("parked")) == 1 })
	p.cli("rollback", "p").wants(t, exitRefused, "no parked keys in the live version", `1 ("a")`)
	p.cli("rollback", "p", "--leave-parked").wants(t, 0, "version 1 is live")
	p.cli("switch", "p", "2", "--force").wants(t, exitRefused, "no parked keys in the version that becomes live", `1 ("a")`)
	if h := p.show(); h.Version != 1 {
		t.Errorf("%+v", h)
	}
	p.waited(p.append("good", keys...))
	p.cli("drop", "p", "2").wants(t, exitRefused, "REMOVES version 2", "--yes")
	p.cli("drop", "p", "2", "--yes").wants(t, 0, "version 2 is dropped")
	p.cli("show", "p", "--version", "2").wants(t, exitNotFound)

	r = wattle(t, "__complete", "projector", "switch", "--store", p.url, "").wants(t, 0)
	if !strings.HasPrefix(r.out, "p\n") {
		t.Errorf("completed %q", r.out)
	}
	r = wattle(t, "__complete", "projector", "switch", "--store", p.url, "p", "").wants(t, 0)
	if !strings.HasPrefix(r.out, "1\n") {
		t.Errorf("completed %q", r.out)
	}
}

// A version that does not get on is waited for as long as was said, and the reason told.
func TestProjectorWatchesWhatIsStuck(t *testing.T) {
	t.Parallel()
	p := newProjection(t, migrated(t))
	p.run()
	p.waited(p.append("good", keys...))
	p.cli("pause", "p").wants(t, 0)
	p.append("good", keys...)
	// A shadow is to come to where the live version is, and no further.
	p.cli("rebuild", "p", "--wait", "--timeout", "30s").wants(t, 0)
	p.cli("pause", "p", "--version", "2").wants(t, 0)
	p.cli("switch", "p", "2", "--wait", "--timeout", "100ms").wants(t, exitBehind, "wanted version 2 of projector p caught up", "paused")
	ctx, cancel := context.WithCancelCause(t.Context())
	var out, errs buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"projector", "show", "p", "--watch", "--every", "10ms", "--store", p.url}, strings.NewReader(""), &out, &errs, noEnv)
	}()
	until(t, "lines of progress", func() bool { return strings.Count(out.String(), "paused") > 3 })
	p.cli("resume", "p").wants(t, 0)
	if got := <-code; got != 0 || !strings.Contains(out.String(), "100.0%") {
		t.Errorf("ended with %d: %s%s", got, out.String(), errs.String())
	}
	cancel(nil)
}

// Beside the process that has a store in files everything can be seen and nothing changed;
// once it has ended, changes are made, and hold when it runs again.
func TestProjectorInFiles(t *testing.T) {
	t.Parallel()
	p := newProjection(t, filed(t))
	stop := p.run()
	bad := p.append("bad", "a")
	p.waited(p.append("good", keys...))
	until(t, "a parked key", func() bool { return len(p.parked("parked")) == 1 })
	p.cli("list").wants(t, 0, "p     1        live", "log", "1 keys parked")
	until(t, "workers to be seen", func() bool {
		h := p.show("--max-parked", "1")
		return h.Ready && h.Lanes[3].Owner != nil
	})
	p.cli("wait", "p", bad.String()).wants(t, exitRefused, "parked")
	for _, args := range [][]string{{"pause", "p"}, {"resume", "p"}, {"reset", "p", "--yes"}, {"rebuild", "p"}, {"switch", "p", "1"}, {"rollback", "p"},
		{"drop", "p", "1", "--yes"}, {"retry", "p", "a"}, {"skip", "p", "a", "--why", "x"}} {
		p.cli(args...).wants(t, exitUnavailable, "that has it open", "the workers are in that process", "projector.Admin")
	}
	stop()
	p.ok(p.s.Close())
	p.cli("show", "p", "--check", "--max-parked", "1").wants(t, exitFound, "no worker has lane")
	p.cli("show", "p", "--check", "--max-parked", "1", "--no-workers").wants(t, 0)
	p.cli("switch", "p", "1", "--wait").wants(t, exitUsage, "--wait", "one process has the store")
	p.cli("skip", "p", "a", "--why", "TICKET-8").wants(t, 0)
	p.cli("pause", "p").wants(t, 0, "paused")
	p.cli("rebuild", "p").wants(t, 0, "version 2 is registered")

	p.open()
	stop = p.run()
	token := p.append("good", keys...)
	until(t, "the shadow to be worked on", func() bool { return p.show("--version", "2").Ready })
	if n := p.times(token.Position); n != 0 {
		t.Errorf("handled %d times while it was paused", n)
	}
	stop()
	p.ok(p.s.Close())
	p.cli("resume", "p").wants(t, 0, "resumed")
	p.open()
	p.run()
	p.waited(token)
	until(t, "no parked key", func() bool { return len(p.parked("parked")) == 0 })
	if all := p.parked("skipped"); len(all) != 1 || all[0].Why != "TICKET-8" || all[0].Position != bad.Position {
		t.Errorf("%+v", all)
	}
}

// Checkpoints in the log of a store in PostgreSQL are found too, and told from those in
// the database.
func TestProjectorKeptInTheLog(t *testing.T) {
	t.Parallel()
	p := newProjection(t, migrated(t))
	var err error
	p.control, err = logcheckpoint.New(t.Context(), p.s.Store, &logcheckpoint.Options{Category: "marks"})
	p.ok(err)
	stop := p.run()
	until(t, "it to be registered", func() bool { return p.cli("show", "p", "--checkpoints", "marks").code == 0 })
	p.cli("list").wants(t, 0, "NAME")
	p.cli("show", "p").wants(t, exitNotFound)
	token := p.append("good", keys...)
	p.cli("wait", "p", token.String(), "--checkpoints", "marks", "--timeout", "20s").wants(t, 0)
	p.cli("list", "--checkpoints", "marks").wants(t, 0, "p     1        live", "log")
	p.cli("pause", "p", "--checkpoints", "marks").wants(t, 0)
	stop()
	p.control = pgcheckpoint.NewCheckpoints(p.s.Pool, &pgcheckpoint.Options{Schema: p.s.Schema})
	p.run()
	until(t, "it to be registered in the database", func() bool { return p.cli("show", "p").code == 0 })
	p.cli("show", "p", "--checkpoints", "marks").wants(t, exitUsage, "one in the database and another one in the log")
	r := p.cli("list", "--checkpoints", "marks").wants(t, 0)
	if strings.Count(r.out, "p     1        live") != 2 {
		t.Errorf("found\n%s", r.out)
	}
}

// A store at a server, and read models with their checkpoints in a database beside the
// workers: --database names it.
func TestProjectorAtAServer(t *testing.T) {
	t.Parallel()
	o, database := newOffice(t, filed(t)), migrated(t)
	p := newProjection(t, o.url("client"))
	beside := func(args ...string) result { return p.cli(append(args, "--database", database)...) }
	beside("list").wants(t, 0, "NAME")
	target, err := open.Parse(database)
	p.ok(err)
	models, err := target.Open(t.Context(), nil)
	p.ok(err)
	t.Cleanup(func() { _ = models.Close() })
	p.control = pgcheckpoint.NewCheckpoints(models.Pool, &pgcheckpoint.Options{Schema: models.Schema})
	p.run()
	until(t, "the projector to be registered", func() bool { return beside("show", "p").code == 0 })
	p.cli("show", "p").wants(t, exitNotFound, "projector p", "--database")
	token := p.append("good", keys...)
	beside("wait", "p", token.String(), "--timeout", "20s").wants(t, 0, "has passed position "+token.Position.String())
	beside("list").wants(t, 0, "p     1        live", "database")
	beside("pause", "p").wants(t, 0, "paused")
	beside("resume", "p").wants(t, 0, "resumed")
	beside("reset", "p", "--yes").wants(t, 0, "it begins anew")
	until(t, "the entries to be handled again", func() bool { return p.times(token.Position) == 2 })
	env := func(name string) string { return map[string]string{databaseVariable: database}[name] }
	wattleIn(t, env, "", "projector", "list", "--store", p.url).wants(t, 0, "p     1        live", "database")
	p.cli("list", "--database", "mem:").wants(t, exitUsage, "a database like postgres://")
	p.cli("list", "--database", "postgres://user:secretword@127.0.0.1:1/db?sslmode=disable").wants(t, exitUnavailable, "127.0.0.1:1")
}

func TestProjectorUsage(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"no command":      {[]string{"nope"}, exitUsage, []string{`found "nope"`, "pause"}},
		"no name":         {[]string{"show"}, exitUsage, []string{"wanted NAME"}},
		"bad category":    {[]string{"list", "--checkpoints", "a-b"}, exitUsage, []string{"category", "a-b"}},
		"bad pace":        {[]string{"show", "p", "--watch", "--every", "0s"}, exitUsage, []string{"--every of at least 10ms"}},
		"bad lag":         {[]string{"show", "p", "--max-lag", "-1s"}, exitUsage, []string{"--max-lag"}},
		"bad timeout":     {[]string{"wait", "p", "1", "--timeout", "-1s"}, exitUsage, []string{"--timeout"}},
		"long reason":     {[]string{"skip", "p", "k", "--why", strings.Repeat("x", 1025)}, exitUsage, []string{"at most 1024 bytes"}},
		"nothing there":   {[]string{"show", "p"}, exitNotFound, []string{"projector p", "none of that name"}},
		"nothing to wait": {[]string{"wait", "p", "1"}, exitNotFound, []string{"projector p"}},
	} {
		t.Run(name, func(t *testing.T) {
			wattle(t, append(append([]string{"projector"}, d.args...), "--store", "mem:")...).wants(t, d.code, d.want...)
		})
	}
	p := newProjection(t, migrated(t))
	p.run()
	p.waited(p.append("good", "a"))
	p.cli("wait", "p", "x").wants(t, exitUsage, "INCARNATION.POSITION", `"x"`)
	p.cli("wait", "p", "x.1").wants(t, exitUsage)
	p.cli("wait", "p", eventstore.Token{Incarnation: eventstore.NewUUID(), Position: 1}.String(), "--timeout", "20s").wants(t, exitRefused, "another store")
	for _, args := range [][]string{{"list"}, {"show", "p"}, {"pause", "p"}, {"wait", "p", "1"}} {
		wattle(t, append(append([]string{"projector"}, args...), "--store", "postgres://user@127.0.0.1:1/db?sslmode=disable")...).wants(t, exitUnavailable, "127.0.0.1:1")
		wattle(t, append(append([]string{"projector"}, args...), "--store", storeURL(t))...).wants(t, exitNotMigrated, "wattle migrate up")
	}
}
