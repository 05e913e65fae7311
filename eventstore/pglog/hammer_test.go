// hammer: several processes on the same streams, some of them killed.

package pglog_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/logtest"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// hammer is one run, seen by the process that starts the workers.
type hammer struct {
	*testing.T
	pool     *pgxpool.Pool
	schema   string
	store    *eventstore.Store
	category eventstore.Category
	workers  []*hammerProcess
	history  *logtest.History
	streams  map[eventstore.Stream]bool
	counts   map[string]int
	ctx      context.Context // of what runs beside the workers
	beside   sync.WaitGroup  // what runs beside the workers
}

type hammerProcess struct {
	*exec.Cmd
	journal string
	err     bytes.Buffer
	killed  bool
	ended   chan error
}

// TestHammer: processes append to one or several streams, with guards, claim, fence,
// trim and create the same streams. Half of them are killed half way, and sessions of
// the others are ended. In the end what all of them were told is held against what is
// there, and against what readers of the feed were given meanwhile.
func TestHammer(t *testing.T) {
	workers, clients, operations := 4, 3, 40
	if soak() {
		workers, clients, operations = 8, 6, 2000
	}
	seed := rand.Uint64()
	h := newHammer(t)
	deadlocks := h.deadlocks()
	began := time.Now()
	for i := range workers {
		h.start(hammerConfig{DSN: pgtest.DSN(t), Schema: h.schema, Category: h.category, Worker: i, Clients: clients, Operations: operations, Limit: 4 * time.Minute, Seed: seed})
	}
	judge := h.follow()
	stop := h.endSessions()
	h.halfWay(min(int64(workers*clients*operations)/4, 3000))
	killed := h.kill(workers / 2)
	h.wait()
	ended := stop()
	h.readJournals()
	judge()
	logtest.Check(t, h.store, h.history)
	h.checkRegistry()
	t.Logf("hammer: %d processes, %d killed, %d sessions ended, %.1f s; %s; %d streams, %d entries; %d deadlocks; seed %d", workers, killed, ended,
		time.Since(began).Seconds(), h.told(), len(h.streams), number(t, h.pool, "select count(*) from "+h.schema+".entries"), h.deadlocks()-deadlocks, seed)
	for _, op := range []string{"append ok", "first ok", "several ok", "guarded ok", "fence ok", "trim ok", "append refused", "several refused"} {
		if h.counts[op] == 0 {
			t.Errorf("no %q among %s", op, h.told())
		}
	}
}

func newHammer(t *testing.T) *hammer {
	h := &hammer{T: t, category: "hammer", history: logtest.NewHistory(), streams: map[eventstore.Stream]bool{}, counts: map[string]int{}}
	h.pool, h.schema = pgtest.Schema(t)
	// Whatever fails first must not be hidden by readers without a pool.
	ctx, cancel := context.WithCancel(context.Background())
	h.ctx = ctx
	t.Cleanup(func() { cancel(); h.beside.Wait() })
	_, h.store = open(t, h.pool, h.schema)
	if err := h.store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: h.category, TrimFreely: true}); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *hammer) start(c hammerConfig) {
	h.Helper()
	c.Journal = filepath.Join(h.TempDir(), "journal")
	task, err := json.Marshal(c)
	if err != nil {
		h.Fatal(err)
	}
	w := &hammerProcess{Cmd: exec.Command(os.Args[0]), journal: c.Journal, ended: make(chan error, 1)}
	w.Env = append(os.Environ(), hammerTask+"="+string(task))
	w.Stderr = &w.err
	if err := w.Start(); err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = w.Process.Kill() })
	go func() { w.ended <- w.Wait() }()
	h.workers = append(h.workers, w)
}

// wait waits for all workers; those that were not killed must end well.
func (h *hammer) wait() {
	h.Helper()
	limit := time.After(5 * time.Minute)
	for i, w := range h.workers {
		select {
		case err := <-w.ended:
			if err != nil && !w.killed {
				h.Errorf("worker %d: %v: %s", i, err, w.err.String())
			}
		case <-limit:
			h.Fatalf("worker %d does not end", i)
		}
	}
}

// halfWay waits until some entries were written.
func (h *hammer) halfWay(entries int64) {
	h.Helper()
	for end := time.Now().Add(3 * time.Minute); h.progress() < entries; time.Sleep(5 * time.Millisecond) {
		for i, w := range h.workers {
			select {
			case err := <-w.ended:
				h.Fatalf("worker %d ended with %d of %d entries there: %v: %s", i, h.progress(), entries, err, w.err.String())
			default:
			}
		}
		if time.Now().After(end) {
			h.Fatalf("%d of %d entries are there", h.progress(), entries)
		}
	}
}

// kill kills the first n workers with SIGKILL.
func (h *hammer) kill(n int) (killed int) {
	for _, w := range h.workers[:n] {
		if w.killed = w.Process.Kill() == nil; w.killed {
			killed++
		}
	}
	return killed
}

// progress is how many entries were written.
func (h *hammer) progress() int64 {
	return number(h, h.pool, "select coalesce(sum(last_seqno), 0)::bigint from "+h.schema+".streams")
}

// endSessions ends a session of the workers for every 25 entries that they write,
// until stop is called.
func (h *hammer) endSessions() (stop func() int64) {
	ctx, cancel := context.WithCancel(h.ctx)
	var n atomic.Int64
	h.beside.Go(func() {
		for due := int64(25); ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			if h.progress() < due {
				continue
			}
			due += 25
			tag, err := h.pool.Exec(ctx, "select pg_terminate_backend(pid) from (select pid from pg_stat_activity where application_name = $1 order by random() limit 1) x", h.schema)
			if err != nil && ctx.Err() == nil {
				h.Errorf("end a session: %v", err)
				return
			}
			n.Add(tag.RowsAffected())
		}
	})
	return func() int64 { cancel(); return n.Load() }
}

// follow starts readers of the feed. judge waits until they have seen all there is and
// holds that against the streams.
func (h *hammer) follow() (judge func()) {
	readers := []*logtest.Reader{
		{Name: "of everything", Filter: eventstore.Filter{AcceptTrimmed: true}, Limit: 500},
		{Name: "in small pages", Filter: eventstore.Filter{AcceptTrimmed: true, Categories: []eventstore.Category{h.category}}, Limit: 5},
	}
	var last atomic.Int64 // position; negative while the workers write
	last.Store(-1)
	for _, r := range readers {
		h.beside.Go(func() {
			err := r.Follow(h.ctx, h.store, func() (eventstore.Position, bool) { n := last.Load(); return eventstore.Position(n), n >= 0 })
			if err != nil && h.ctx.Err() == nil {
				h.Error(err)
			}
		})
	}
	return func() {
		h.quiet()
		found := map[eventstore.Stream][]eventstore.Entry{}
		for s := range h.streams {
			for e, err := range h.store.Read(h.Context(), s, h.head(s).Trimmed) {
				if err != nil {
					h.Fatal(err)
				}
				found[s] = append(found[s], e)
			}
		}
		last.Store(number(h.T, h.pool, "select coalesce(max(position), 0) from "+h.schema+".entries"))
		h.beside.Wait()
		for _, r := range readers {
			r.Judge(h, found)
		}
	}
}

// quiet waits until the sessions of killed workers have ended: what they had been sent
// is carried out still.
func (h *hammer) quiet() {
	h.Helper()
	eventually(h, "the workers' sessions have ended", func() bool {
		return number(h.T, h.pool, "select count(*) from pg_stat_activity where application_name = $1", h.schema) == 0
	})
}

func (h *hammer) head(s eventstore.Stream) eventstore.Head {
	h.Helper()
	head, err := h.store.Head(h.Context(), s)
	if err != nil {
		h.Fatal(err)
	}
	return head
}

// readJournals tells the history what all workers were told.
func (h *hammer) readJournals() {
	h.Helper()
	for i, w := range h.workers {
		f, err := os.Open(w.journal)
		if err != nil {
			h.Fatalf("worker %d: %v: %s", i, err, w.err.String())
		}
		open := map[int]hammerLine{}
		lines := bufio.NewReader(f)
		for {
			text, err := lines.ReadBytes('\n')
			if err != nil {
				break // what is left is half a line of a worker that was killed
			}
			var l hammerLine
			if err := json.Unmarshal(text, &l); err != nil {
				h.Fatalf("worker %d: %v: %s", i, err, text)
			}
			if l.Outcome == "" {
				open[l.N] = l
				continue
			}
			delete(open, l.N)
			h.note(l)
		}
		f.Close()
		if len(open) > 0 && !w.killed {
			h.Errorf("worker %d: %d operations have no end", i, len(open))
		}
		for _, n := range slices.Sorted(maps.Keys(open)) {
			l := open[n]
			l.Outcome = "cut off"
			h.note(l)
		}
	}
}

// note takes a line of a journal into the history.
func (h *hammer) note(l hammerLine) {
	h.counts[l.Op+" "+l.Outcome]++
	if l.Append == nil {
		if l.Outcome == "ok" && l.Op == "fence" {
			h.streams[l.Stream] = true
			h.history.Granted(l.Stream, l.Epoch, l.Holder)
		}
		return
	}
	for _, b := range l.Append.Batches {
		h.streams[b.Stream] = true
	}
	h.history.Sent(*l.Append, func(eventstore.Append) error {
		switch l.Outcome {
		case "ok":
			return nil
		case "refused":
			return errors.New(l.Said)
		}
		return &eventstore.Error{Kind: eventstore.ErrUnknown}
	})
}

func (h *hammer) told() string {
	total := 0
	text := ""
	for _, k := range slices.Sorted(maps.Keys(h.counts)) {
		total += h.counts[k]
		text += fmt.Sprintf(", %s %d", k, h.counts[k])
	}
	return fmt.Sprintf("%d operations%s", total, text)
}

// checkRegistry: the registry says of every stream what its entries say, and no
// stream is there that nobody wrote to, nor an entry without a stream.
func (h *hammer) checkRegistry() {
	h.Helper()
	for what, sql := range map[string]string{
		"streams whose registry is not as their entries": `select count(*) from {s}.streams s left join lateral (
			select count(*) n, max(seqno) last, max(epoch) epoch, max(time) time, (array_agg(id order by seqno desc))[1] id from {s}.entries e where e.stream = s.ordinal and e.seqno > s.trimmed) e on true
			where e.n <> s.last_seqno - s.trimmed or e.n > 0 and (e.last <> s.last_seqno or e.id <> s.last_id or e.time <> s.last_time or e.epoch > s.epoch)`,
		"entries without a stream":                       `select count(*) from {s}.entries e where not exists (select from {s}.streams s where s.ordinal = e.stream and s.category = e.category and s.slot = e.slot)`,
		"entries whose order in the store is not theirs": `select count(*) from (select stream, position - lag(position) over (partition by stream order by seqno) as d from {s}.entries) x where d <= 0`,
	} {
		if n := number(h.T, h.pool, strings.ReplaceAll(sql, "{s}", h.schema)); n != 0 {
			h.Errorf("%d %s", n, what)
		}
	}
	rows, err := h.pool.Query(h.Context(), "select key from "+h.schema+".streams where last_seqno > 0")
	if err != nil {
		h.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			h.Fatal(err)
		}
		if !h.streams[eventstore.Stream(string(h.category)+"-"+key)] {
			h.Errorf("stream %s has entries, and nobody wrote to it", key)
		}
	}
}

// deadlocks is how many the server has seen. It learns it from sessions that end.
func (h *hammer) deadlocks() int64 {
	return number(h.T, h.pool, "select deadlocks from pg_stat_database where datname = current_database()")
}
