//go:build edge

// The command side in the Worker, on a real PostgreSQL behind a real PgBouncer, and on a
// log at a real wattle serve.

package edge_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/internal/foreign/servetest"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// side is a command side: workerd, and the same log seen from outside.
type side struct {
	socket string
	env    []string
	store  *eventstore.Store
}

func newSide(t *testing.T) *side {
	t.Helper()
	pool, schema := pgtest.Schema(t)
	log, err := pglog.Open(t.Context(), pool, &pglog.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return &side{socket: "execute", store: eventstore.New(log, nil), env: []string{"DATABASE_URL=" + pgtest.Bouncer(t, pgtest.DSN(t), 3), "WATTLE_SCHEMA=" + schema}}
}

// newServed is a side whose log is at a server, over HTTP with a token.
func newServed(t *testing.T) *side {
	t.Helper()
	program, err := servetest.Build("../..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := servetest.StartTokens(t, program, "application")
	log, err := remotelog.Open(t.Context(), s.URL, &remotelog.Options{Token: func(context.Context) (string, error) { return servetest.Token, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return &side{socket: "remote", store: eventstore.New(log, nil), env: []string{"WATTLE_SERVER=" + s.URL, "WATTLE_TOKEN=" + servetest.Token}}
}

// sides are the command sides that there are.
var sides = map[string]func(*testing.T) *side{"PostgreSQL": newSide, "server": newServed}

// entries are what stands in a stream, seen from outside.
func (s *side) entries(t *testing.T, stream eventstore.Stream) []eventstore.Entry {
	t.Helper()
	p, err := s.store.ReadFrom(t.Context(), stream, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	return p.Entries
}

// TestExecute: a command that is sent twice stands in the log once.
func TestExecute(t *testing.T) {
	for name, side := range sides {
		t.Run(name, func(t *testing.T) { side(t).execute(t) })
	}
}

func (s *side) execute(t *testing.T) {
	p := start(t, s.env...)
	h := p.client(t, s.socket)
	q := submit(t, "application-one", eventstore.NewUUID())
	first, err := h.Handle(t.Context(), q)
	if err != nil || first.Rejected != nil || first.Failure != nil {
		t.Fatalf("%+v, %v", first, err)
	}
	t.Logf("from the process's start to the first event in the log: %v", time.Since(p.began).Round(time.Millisecond))
	again, err := h.Handle(t.Context(), q)
	if err != nil || again.Rejected != nil || again.Failure != nil {
		t.Fatalf("%+v, %v", again, err)
	}
	if first.Replayed || !again.Replayed || again.Mark != first.Mark || first.Mark.Seqno == 0 {
		t.Errorf("wanted the same mark, the second time replayed; found %+v, then %+v", first, again)
	}
	all := s.entries(t, q.Stream)
	if len(all) != int(first.Mark.Seqno) || len(all) != len(first.Events) || all[len(all)-1].ID != first.Mark.ID {
		t.Fatalf("wanted %d entries up to %v, found %+v", len(first.Events), first.Mark, all)
	}
	for i, e := range all {
		if e.Type != first.Events[i].Type || string(e.Data) != string(first.Events[i].Data) || e.Metadata[eventstore.MetaCommand] != q.ID.String() {
			t.Errorf("entry %d: %+v, wanted %+v of command %v", i, e, first.Events[i], q.ID)
		}
	}
	s.refused(t, h, q.Stream, len(all))
	s.times(t, h)
}

// refused: a command that the domain refuses, and one that expects another state of the
// stream, write nothing.
func (s *side) refused(t *testing.T, h handler.Handler, stream eventstore.Stream, n int) {
	t.Helper()
	if reply, err := h.Handle(t.Context(), submit(t, stream, eventstore.NewUUID())); err != nil || reply.Rejected == nil {
		t.Errorf("submitted twice: %+v, %v, want a refusal", reply, err)
	}
	q := submit(t, stream, eventstore.NewUUID())
	q.After = eventstore.Mark{Seqno: 99, ID: eventstore.NewUUID()}
	if reply, err := h.Handle(t.Context(), q); err != nil || reply.Failure == nil || reply.Failure.Code != handler.CodeConflict {
		t.Errorf("at another mark: %+v, %v, want a failure %q", reply, err, handler.CodeConflict)
	}
	if found := len(s.entries(t, stream)); found != n {
		t.Errorf("wanted %d entries after the refusals, found %d", n, found)
	}
}

// times logs what a command costs: a program, a connection, a load and an append.
func (s *side) times(t *testing.T, h handler.Handler) {
	t.Helper()
	took := make([]time.Duration, 20)
	for i := range took {
		id := eventstore.NewUUID()
		began := time.Now()
		if reply, err := h.Handle(t.Context(), submit(t, eventstore.Stream("application-"+id.String()), id)); err != nil || reply.Mark.Seqno == 0 {
			t.Fatalf("%+v, %v", reply, err)
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	t.Logf("a command, a Go program and a connection each: least %v, p50 %v, most %v", took[0].Round(time.Millisecond), took[10].Round(time.Millisecond), took[19].Round(time.Millisecond))
}

// TestTwoWorkers: the same command, and different ones, sent to two processes at once
// make one history.
func TestTwoWorkers(t *testing.T) {
	for name, side := range sides {
		t.Run(name, func(t *testing.T) { side(t).twoWorkers(t) })
	}
}

func (s *side) twoWorkers(t *testing.T) {
	workers := []handler.Handler{start(t, s.env...).client(t, s.socket), start(t, s.env...).client(t, s.socket)}
	for round := range 5 {
		stream := eventstore.Stream("application-round" + strings.Repeat("x", round+1))
		same := submit(t, stream, eventstore.NewUUID())
		replies := s.together(t, workers, same, same)
		if replies[0].Mark != replies[1].Mark || replies[0].Mark.Seqno == 0 {
			t.Errorf("one command at two workers: %+v and %+v, want the same mark", replies[0], replies[1])
		}
		if all := s.entries(t, stream); len(all) != len(replies[0].Events) {
			t.Errorf("one command at two workers: %d entries, want %d", len(all), len(replies[0].Events))
		}
		other := eventstore.Stream(string(stream) + "-other")
		replies = s.together(t, workers, submit(t, other, eventstore.NewUUID()), submit(t, other, eventstore.NewUUID()))
		if (replies[0].Rejected == nil) == (replies[1].Rejected == nil) {
			t.Errorf("two submissions of one application: %+v and %+v, want one refused", replies[0], replies[1])
		}
		if all := s.entries(t, other); len(all) != max(len(replies[0].Events), len(replies[1].Events)) {
			t.Errorf("two submissions of one application: %d entries", len(all))
		}
	}
}

// together sends a request to each worker at once, again as long as the outcome is unknown
// or the stream was elsewhere, as a sender does.
func (s *side) together(t *testing.T, workers []handler.Handler, requests ...*handler.Request) []*handler.Reply {
	t.Helper()
	type answer struct {
		at    int
		reply *handler.Reply
		err   error
	}
	answers := make(chan answer)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range workers {
		go func() {
			caller, err := handler.NewCaller(ctx, workers[i], busy)
			if err != nil {
				answers <- answer{at: i, err: err}
				return
			}
			reply, err := caller.Call(ctx, requests[i])
			if refused, ok := errors.AsType[*handler.Rejected](err); ok {
				reply, err = &handler.Reply{Rejected: refused}, nil
			}
			answers <- answer{i, reply, err}
		}()
	}
	replies := make([]*handler.Reply, len(workers))
	for range workers {
		a := <-answers
		if a.err != nil {
			t.Fatal(a.err)
		}
		replies[a.at] = a.reply
	}
	return replies
}
