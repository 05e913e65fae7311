// The host's side: what it believes, what it sends, and what it makes of failures.

package guest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
	"github.com/wattle-es/wattle/projector/timer"
)

// bent is a handler whose answers a test can change.
type bent struct {
	handler.Handler
	bend func(r *handler.Request, reply *handler.Reply, err error) (*handler.Reply, error)
}

func (b *bent) Handle(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
	reply, err := b.Handler.Handle(ctx, r)
	if b.bend == nil || r.Op == handler.Describe && err == nil {
		return reply, err
	}
	return b.bend(r, reply, err)
}

// has says if a request has an entry of a type.
func has(r *handler.Request, name string) bool {
	for _, e := range r.Events {
		if e.Type == name {
			return true
		}
	}
	return false
}

// parked returns the keys that a projection has parked.
func parked(t testing.TB, docs guest.Documents, name string) (keys []projector.Parked) {
	t.Helper()
	all, err := docs.Keeps().(projector.Control).Versions(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		keys = append(keys, v.Parked...)
	}
	return keys
}

// without are the entries that are not behind the first of a type under the same key, that
// one included.
func without(all []eventstore.Entry, name string) (rest []eventstore.Entry) {
	bad := map[eventstore.Stream]bool{}
	for _, e := range all {
		if bad[e.Stream] = bad[e.Stream] || e.Type == name; !bad[e.Stream] {
			rest = append(rest, e)
		}
	}
	return rest
}

// one cursed entry among many, of three streams.
func cursed(e *env) (token eventstore.Token) {
	for i := range 30 {
		token = e.append(eventstore.Stream(fmt.Sprint("account-", i%3)), Deposited{i})
		if i == 13 {
			token = e.append("account-1", Cursed{"panic"}, Closed{})
		}
	}
	return token
}

// What goes wrong with an entry parks its key, with nothing of the entry kept; other keys
// go on, and when it is mended the key does.
func TestPoisonParksItsKey(t *testing.T) {
	refuse := func(how error) func(*handler.Request, *handler.Reply, error) (*handler.Reply, error) {
		return func(r *handler.Request, reply *handler.Reply, err error) (*handler.Reply, error) {
			if r.Op == handler.Project && has(r, "cursed") {
				return nil, how
			}
			return reply, err
		}
	}
	lie := func(how func(*handler.Reply)) func(*handler.Request, *handler.Reply, error) (*handler.Reply, error) {
		return func(r *handler.Request, reply *handler.Reply, err error) (*handler.Reply, error) {
			if r.Op == handler.Project && has(r, "cursed") {
				with := handler.Reply{Key: r.Key, Put: map[string][]byte{"account-1": []byte("0")}}
				how(&with)
				return &with, nil
			}
			return reply, err
		}
	}
	for name, c := range map[string]struct {
		bend     func(*handler.Request, *handler.Reply, error) (*handler.Reply, error)
		kind     string
		attempts int
	}{
		"entry named":            {nil, "cannot be applied", 2}, // once among others
		"bad request":            {refuse(&handler.Error{Kind: handler.ErrBadRequest}), "bad request", 1},
		"refused":                {refuse(&handler.Rejected{Code: "no"}), "bad reply", 1},
		"trap":                   {refuse(&handler.Error{Kind: handler.ErrFailed}), "handler failed", projector.DefaultTries},
		"time-out":               {refuse(context.DeadlineExceeded), "handler failed", projector.DefaultTries},
		"key of another call":    {lie(func(r *handler.Reply) { r.Key = eventstore.NewUUID() }), "bad reply", 1},
		"document not named":     {lie(func(r *handler.Reply) { r.Put["other"] = []byte("1") }), "named by keys", 1},
		"removed, and not named": {lie(func(r *handler.Reply) { r.Delete = []string{"other"} }), "named by keys", 1},
		"document of no JSON":    {lie(func(r *handler.Reply) { r.Put["account-1"] = []byte("{") }), "of JSON", 1},
		"command of no entry": {lie(func(r *handler.Reply) {
			r.Commands = []handler.Issue{{Position: 1 << 40, Stream: "a-1", Command: handler.Command{Type: "x", Data: []byte("1")}}}
		}), "bad reply", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, docs, issued := newEnv(t, nil), &guest.MemoryDocuments{}, &commands{}
				token := cursed(e)
				h := &bent{guest.New(accounts), c.bend}
				p := guest.NewProjector(e.store, "p", caller(t, h, &handler.Options{Retries: -1}), docs, &guest.Options{Issue: issued.issue})
				stop := run(t, p)
				e.ok(p.Wait(within(t), token))
				time.Sleep(time.Minute)
				keys := parked(t, docs, "p")
				if len(keys) != 1 || keys[0].StreamKey != "1" || keys[0].Type != "cursed" || !strings.Contains(keys[0].Cause, c.kind) || keys[0].Attempts != c.attempts {
					t.Fatalf("parked %+v", keys)
				}
				want, wanted := fold(t, "p", without(e.all(), "cursed"))
				same(t, docs, "p", 1, want)
				issued.check(t, wanted)
				e.okOrCanceled(stop())
			})
		})
	}
}

func (e *env) okOrCanceled(err error) {
	e.t.Helper()
	if !errors.Is(err, context.Canceled) {
		e.t.Fatal(err)
	}
}

// A handler that cannot be reached is an outage: nothing is parked, the lane is red, and
// all proceeds when it is back.
func TestAwayIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, docs := newEnv(t, nil), &guest.MemoryDocuments{}
		h := &flaky{Handler: guest.New(accounts), chance: &chance{}}
		h.healed.Store(true)
		p := guest.NewProjector(e.store, "p", caller(t, h, nil), docs, nil)
		stop := run(t, p)
		e.ok(p.Wait(within(t), e.append("account-1", Deposited{1})))
		h.away.Store(true)
		token := e.append("account-1", Deposited{2})
		time.Sleep(time.Hour)
		health, err := p.Health(t.Context(), nil)
		e.ok(err)
		if health.Ready || health.Parked > 0 || !errors.Is(p.Status().LastError, eventstore.ErrUnavailable) || !errors.Is(p.Status().LastError, handler.ErrFailed) {
			t.Errorf("ready %v, %d parked, %v", health.Ready, health.Parked, p.Status().LastError)
		}
		h.away.Store(false)
		e.ok(p.Wait(within(t), token))
		want, _ := fold(t, "p", e.all())
		same(t, docs, "p", 1, want)
		time.Sleep(time.Minute)
		if health, err := p.Health(t.Context(), nil); err != nil || !health.Ready {
			t.Errorf("%v", health.Reasons)
		}
		e.okOrCanceled(stop())
	})
}

// What is no entry's fault stops the projector, and blames none.
func TestMistakesStop(t *testing.T) {
	denied := func(r *handler.Request, _ *handler.Reply, _ error) (*handler.Reply, error) {
		return nil, &handler.Error{Kind: handler.ErrDenied, Op: r.Op}
	}
	for name, c := range map[string]struct {
		bend  func(*handler.Request, *handler.Reply, error) (*handler.Reply, error)
		event Event
		want  error
	}{
		"denied":          {denied, Deposited{1}, handler.ErrDenied},
		"nobody to issue": {nil, Closed{}, eventstore.ErrInvalid},
		"nobody to set a timer": {func(r *handler.Request, reply *handler.Reply, err error) (*handler.Reply, error) {
			if r.Op == handler.Project {
				reply = &handler.Reply{Key: r.Key, Timers: []handler.Timer{{Name: "x", Cancel: true}}}
			}
			return reply, err
		}, Deposited{1}, eventstore.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, docs := newEnv(t, nil), &guest.MemoryDocuments{}
				e.append("account-1", c.event)
				p := guest.NewProjector(e.store, "p", caller(t, &bent{guest.New(accounts), c.bend}, nil), docs, nil)
				if err := p.Run(within(t)); !errors.Is(err, c.want) {
					t.Error(err)
				}
				if keys := parked(t, docs, "p"); len(keys) > 0 {
					t.Errorf("parked %v", keys)
				}
				same(t, docs, "p", 1, map[string]string{})
			})
		})
	}
}

// counted counts steps and the calls in them, and measures requests.
type counted struct {
	*guest.MemoryDocuments
	handler.Handler
	steps, calls, entries, bytes int
}

func (c *counted) Step(ctx context.Context, s projector.Step, f func(context.Context, guest.Tx) error) error {
	err := c.MemoryDocuments.Step(ctx, s, f)
	if err == nil {
		c.steps++
	}
	return err
}

func (c *counted) Handle(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
	if r.Op == handler.Project {
		c.calls++
		c.entries = max(c.entries, len(r.Events))
	}
	c.bytes = max(c.bytes, len(handler.AppendRequest(nil, r)))
	return c.Handler.Handle(ctx, r)
}

// A batch over a limit is cut into calls, in one transaction; a document that has grown
// makes them smaller.
func TestLimits(t *testing.T) {
	e := newEnv(t, nil)
	for i := range 100 {
		e.append(eventstore.Stream(fmt.Sprint("account-", i%7)), Deposited{i})
	}
	grows := accounts
	grows.Apply = func(e projector.Event[Event], docs *guest.Docs) error {
		var s string
		docs.Get(string(e.Stream), &s)
		docs.Put(string(e.Stream), s+strings.Repeat("x", 300))
		return nil
	}
	for name, c := range map[string]struct {
		p       guest.Projection[Event]
		l       handler.Limits
		entries int
		calls   int // at least
	}{
		"no limit":  {accounts, handler.Limits{}, 100, 1},
		"entries":   {accounts, handler.Limits{Batch: 8}, 8, 13},
		"bytes":     {accounts, handler.Limits{RequestBytes: 12_000}, 11, 10},
		"documents": {grows, handler.Limits{RequestBytes: 12_000}, 11, 10},
	} {
		t.Run(name, func(t *testing.T) {
			h := &counted{MemoryDocuments: &guest.MemoryDocuments{}, Handler: guest.New(c.p)}
			p := guest.NewProjector(e.store, "p", caller(t, h, &handler.Options{Limits: c.l}), h, nil)
			if more, err := p.CatchUp(within(t), 0); more || err != nil {
				t.Fatal(more, err)
			}
			if h.steps != 1 || h.calls < c.calls || h.entries > c.entries || c.l.RequestBytes > 0 && h.bytes > c.l.RequestBytes {
				t.Errorf("%d steps, %d calls of at most %d entries and %d bytes", h.steps, h.calls, h.entries, h.bytes)
			}
			if c.p.Name == "accounts" && name != "documents" {
				want, _ := fold(t, "p", e.all())
				same(t, h, "p", 1, want)
			}
		})
	}
}

// An entry that is over the limit by itself is its key's fault alone.
func TestTooLargeEntryIsParked(t *testing.T) {
	e := newEnv(t, nil)
	e.append("account-1", Deposited{1}, Closed{strings.Repeat("x", 20_000)})
	e.append("account-2", Deposited{1})
	h := &counted{MemoryDocuments: &guest.MemoryDocuments{}, Handler: guest.New(accounts)}
	h.Handler = &bent{h.Handler, func(r *handler.Request, reply *handler.Reply, err error) (*handler.Reply, error) {
		if has(r, "closed") { // as a carrier does that has a limit of its own
			return nil, &handler.Error{Kind: eventstore.ErrTooLarge, Op: r.Op}
		}
		return reply, err
	}}
	p := guest.NewProjector(e.store, "p", caller(t, h, nil), h, nil)
	if _, err := p.CatchUp(within(t), 0); err != nil {
		t.Fatal(err)
	}
	if keys := parked(t, h, "p"); len(keys) != 1 || keys[0].Type != "closed" {
		t.Errorf("parked %v", keys)
	}
	want, _ := fold(t, "p", without(e.all(), "closed"))
	same(t, h, "p", 1, want)
}

// The checkpoint has not passed an entry when its commands are issued; a command is issued
// again, as the same, when that was in vain.
func TestCommandsComeFirst(t *testing.T) {
	e, docs := newEnv(t, nil), &guest.MemoryDocuments{}
	e.append("account-1", Deposited{1}, Deposited{2})
	e.append("account-1", Closed{"why"})
	issued := &commands{}
	tries := 0
	issued.fail = func() error {
		kept, err := docs.Keeps().Load(t.Context(), projector.Key{Projector: "p", Version: 1})
		if err != nil || kept.Position > 2 {
			t.Errorf("issued behind the checkpoint %v, %v", kept, err)
		}
		if tries++; tries == 2 { // the second command of the entry: the first was issued
			return errors.New("not now")
		}
		return nil
	}
	p := guest.NewProjector(e.store, "p", caller(t, guest.New(accounts), nil), docs, &guest.Options{Issue: issued.issue})
	if _, err := p.CatchUp(within(t), 0); err != nil {
		t.Fatal(err)
	}
	want, wanted := fold(t, "p", e.all())
	same(t, docs, "p", 1, want)
	issued.check(t, wanted)
	if issued.times != 3 {
		t.Errorf("issued %d times", issued.times)
	}
}

// Timers are set once, whatever is repeated; one that fired is not set again.
func TestTimers(t *testing.T) {
	e, docs := newEnv(t, nil), &guest.MemoryDocuments{}
	timers, err := timer.New(t.Context(), e.store, nil)
	e.ok(err)
	due := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	p := accounts
	p.Apply = func(ev projector.Event[Event], docs *guest.Docs) error {
		switch ev.Value.(type) {
		case Deposited:
			docs.SetTimer("remind-"+ev.Stream.Key(), due, ev.Seqno)
		case Closed:
			docs.CancelTimer("remind-" + ev.Stream.Key())
			docs.CancelTimer("never-" + ev.Stream.Key())
		}
		return nil
	}
	fail := true
	broken := &failing{docs, &fail}
	pr := guest.NewProjector(e.store, "p", caller(t, guest.New(p), nil), broken, &guest.Options{Timers: timers, Projector: projector.Options{StopOnPoison: true}})
	e.append("account-1", Deposited{1})
	for range 3 {
		if _, err := pr.CatchUp(within(t), 0); !errors.Is(err, eventstore.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	got, err := timers.Get(t.Context(), "remind-1")
	if e.ok(err); got.Generation != 1 || !got.Due.Equal(due) || string(got.Payload) != "1" {
		t.Errorf("%+v", got)
	}
	fail = false
	e.append("account-2", Deposited{1})
	e.append("account-2", Closed{})
	if _, err := pr.CatchUp(within(t), 0); err != nil {
		t.Fatal(err)
	}
	if got, err := timers.Get(t.Context(), "remind-1"); err != nil || got.Generation != 1 || got.State != timer.Pending {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := timers.Get(t.Context(), "remind-2"); err != nil || got.State != timer.Cancelled {
		t.Errorf("%+v, %v", got, err)
	}
}

// failing fails at the commit.
type failing struct {
	*guest.MemoryDocuments
	fail *bool
}

func (f *failing) Step(ctx context.Context, s projector.Step, do func(context.Context, guest.Tx) error) error {
	return f.MemoryDocuments.Step(ctx, s, func(ctx context.Context, tx guest.Tx) error {
		if err := do(ctx, tx); err != nil || !*f.fail || len(s.Batch) == 0 {
			return err
		}
		return &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "test"}
	})
}

// A handler without keys writes what it likes, and reads nothing.
func TestBlindHandler(t *testing.T) {
	e, docs := newEnv(t, nil), &guest.MemoryDocuments{}
	h := handler.Func(func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
		reply := &handler.Reply{Key: r.Key}
		if r.Op == handler.Describe {
			reply.Description = &handler.Description{Name: "audit", Category: "account", Capabilities: []string{"project"}}
			return reply, nil
		}
		if len(r.Docs) > 0 {
			t.Errorf("documents %q", r.Docs)
		}
		reply.Put = map[string][]byte{}
		for _, e := range r.Events {
			reply.Put["last "+string(e.Stream)] = e.Data
		}
		return reply, nil
	})
	e.append("account-1", Deposited{1}, Deposited{2})
	e.append("account-2", Closed{"x"})
	p := guest.NewProjector(e.store, "p", caller(t, h, nil), docs, &guest.Options{Projector: projector.Options{PageSize: 1}})
	if _, err := p.CatchUp(within(t), 0); err != nil {
		t.Fatal(err)
	}
	same(t, docs, "p", 1, map[string]string{"last account-1": `{"Amount":2}`, "last account-2": `{"Why":"x"}`})
}

// A stream of a dedicated layout has no positions: its entries are sent one by one, so that
// what is said of one is said of no other.
func TestWithoutPositions(t *testing.T) {
	e, docs := newEnv(t, nil), &guest.MemoryDocuments{}
	e.ok(e.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "journal", Layout: eventstore.Dedicated}))
	e.ok(e.log.CreateStreams(t.Context(), []eventstore.Stream{"journal-1"}))
	e.append("journal-1", Deposited{1}, Deposited{2}, Closed{})
	issued := &commands{}
	p := accounts
	p.Category = "journal"
	pr := guest.NewProjector(e.store, "p", caller(t, guest.New(p), nil), docs, &guest.Options{Issue: issued.issue, Projector: projector.Options{Stream: "journal-1"}})
	if _, err := pr.CatchUp(within(t), 0); err != nil {
		t.Fatal(err)
	}
	if issued.times != 2 || issued.had == nil {
		t.Errorf("issued %v", issued.had)
	}
	same(t, docs, "p", 1, map[string]string{totalOf("journal-1"): text(Total{2, 3})})
}
