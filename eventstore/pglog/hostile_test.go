// Sessions whose settings the role or the database has changed: everything works as
// ever, or is refused by name.

package pglog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

// hostileSettings change how values look, how plans are made, how long things may take;
// none of them changes what the store does.
var hostileSettings = [][]string{
	{"search_path", "nowhere", "row_security", "off", "datestyle", "German, DMY", "timezone", "Asia/Kathmandu", "intervalstyle", "sql_standard",
		"bytea_output", "escape", "extra_float_digits", "-15", "standard_conforming_strings", "off", "backslash_quote", "off", "array_nulls", "off",
		"transform_null_equals", "on", "client_min_messages", "error"},
	{"jit", "off", "synchronous_commit", "off", "enable_indexscan", "off", "enable_indexonlyscan", "off", "enable_bitmapscan", "off",
		"plan_cache_mode", "force_generic_plan", "from_collapse_limit", "1", "join_collapse_limit", "1", "enable_partition_pruning", "off"},
	{"jit", "off", "synchronous_commit", "local", "enable_seqscan", "off", "enable_nestloop", "off", "enable_hashjoin", "off", "enable_material", "off", "enable_sort", "off", "enable_hashagg", "off",
		"plan_cache_mode", "force_custom_plan", "geqo_threshold", "2", "work_mem", "64kB"},
	{"parallel_setup_cost", "0", "parallel_tuple_cost", "0", "min_parallel_table_scan_size", "0", "min_parallel_index_scan_size", "0",
		"statement_timeout", "60s", "lock_timeout", "60s", "idle_in_transaction_session_timeout", "60s", "default_transaction_deferrable", "on"},
}

// TestHostileSettings runs a script of every kind of call under each group of settings.
func TestHostileSettings(t *testing.T) {
	c := freshCounted(t)
	if soak() { // every statement is compiled: two minutes
		hostileSettings = append(hostileSettings, []string{"jit", "on", "jit_above_cost", "0", "jit_inline_above_cost", "0", "jit_optimize_above_cost", "0"})
	}
	for i, settings := range hostileSettings {
		c.under(t, fmt.Sprint("s", i), func(p *pgxpool.Config) {
			for j := 0; j < len(settings); j += 2 {
				p.ConnConfig.RuntimeParams[settings[j]] = settings[j+1]
			}
		})
	}
}

// odd holds what is written differently under some setting: quotes, backslashes, bytes
// that are no text, letters that Latin-1 has, null as a word.
var odd = []byte("\x00\x01\\'\"\\\\x41 É null {,}\n\xff\xfe")

// under runs the script: append, first and next, to several streams with a guard, in
// Within and AppendTx; a refusal, a proof; reads each way; snapshot and load; fence;
// trim; hold; lease; category; feed; reclaim.
func (c counted) under(t *testing.T, name string, bend func(*pgxpool.Config)) {
	t.Helper()
	ctx := t.Context()
	p := pool(t, pgtest.DSN(t), func(config *pgxpool.Config) { config.MaxConns = 2; bend(config) })
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %s: %v", name, what, err)
		}
	}
	l, err := pglog.Open(ctx, p, &pglog.Options{Schema: c.schema})
	ok("open", err)
	s := eventstore.New(l, nil)
	create(t, s, eventstore.Category("cat"+name))
	b := batch(eventstore.Stream("cat"+name+"-É'\\\"x"), 3)
	b.Events[1].Data, b.Events[1].Metadata = odd, eventstore.Metadata{"k\\'\"": "É\\'\" null {}"}
	done, err := s.Append(ctx, one(b))
	ok("append", err)
	again, err := s.Append(ctx, one(b))
	if ok("proof", err); !again.Receipts[0].Replays || again.Token != done.Token {
		t.Errorf("%s: proof: %+v, first %+v", name, again, done)
	}
	other := b
	other.ID = eventstore.NewUUID()
	if _, err := s.Append(ctx, one(other)); !errors.Is(err, eventstore.ErrFenced) {
		t.Errorf("%s: another's: %v, want ErrFenced", name, err)
	}
	n := next(b, done.Receipts[0], 1)
	done, err = c.within(ctx, s, one(n), func() {})
	ok("within", err)
	n = next(b, done.Receipts[0], 1)
	ok("transaction", pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error {
		pending, err := pglog.AppendTx(ctx, s, tx, one(n))
		if err == nil {
			done.Receipts = pending.Receipts()
		}
		return err
	}))
	two := eventstore.Append{Batches: []eventstore.Batch{batch(eventstore.Stream("cat"+name+"-b"), 1), batch(eventstore.Stream("cat"+name+"-c"), 2)},
		Guards: []eventstore.Guard{{Stream: b.Stream, At: done.Receipts[0].Last}}}
	_, err = s.Append(ctx, two)
	ok("several", err)
	ok("snapshot", s.SaveSnapshot(ctx, eventstore.Snapshot{Stream: b.Stream, At: eventstore.Mark{Seqno: 1, ID: b.Events[0].ID}, Fingerprint: "v", Data: odd}))
	_, err = s.Fence(ctx, eventstore.Stream("cat"+name+"-c"), eventstore.NewUUID())
	ok("fence", err)
	lease, granted, err := s.AcquireLease(ctx, name, b.Holder, time.Minute)
	if ok("lease", err); !granted || lease.Left < 50*time.Second || time.Until(lease.Until).Abs() > 2*time.Minute {
		t.Errorf("%s: lease %+v", name, lease)
	}
	_, err = s.RenewLease(ctx, lease, time.Minute)
	ok("renew", err)
	ok("hold", s.SetHold(ctx, eventstore.Hold{Name: name, Category: b.Stream.Category(), Stream: b.Stream, Seqno: 1}))
	c.sameAsPlain(t, name, s, b.Stream)
	ok("release", s.ReleaseHold(ctx, name, b.Stream.Category(), b.Stream))
	_, err = s.Trim(ctx, b.Stream, 1, false)
	ok("trim", err)
	_, err = l.Reclaim(ctx, 0)
	ok("reclaim", err)
	ok("delete", s.DeleteCategory(ctx, b.Stream.Category()))
}

// sameAsPlain reads in every way and compares with a session at the defaults.
func (c counted) sameAsPlain(t *testing.T, name string, s *eventstore.Store, st eventstore.Stream) {
	t.Helper()
	for what, read := range map[string]func(s *eventstore.Store) (any, error){
		"read":     func(s *eventstore.Store) (any, error) { return s.ReadFrom(t.Context(), st, 0, 0) },
		"backward": func(s *eventstore.Store) (any, error) { return s.ReadBackwardPage(t.Context(), st, 0, 0) },
		"head":     func(s *eventstore.Store) (any, error) { return s.Head(t.Context(), st) },
		"load":     func(s *eventstore.Store) (any, error) { return loaded(t.Context(), s, st, "v") },
		"holds":    func(s *eventstore.Store) (any, error) { return s.ListHolds(t.Context()) },
		"feed": func(s *eventstore.Store) (any, error) {
			page, err := s.ReadFeed(t.Context(), 0, eventstore.Filter{Categories: []eventstore.Category{st.Category()}}, 0)
			return page.Entries, err
		},
	} {
		want, err := read(c.store)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(s)
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s: %s: %+v %v, want %+v", name, what, got, err, want)
		}
	}
	page, err := s.ReadFrom(t.Context(), st, 1, 1)
	if err != nil || len(page.Entries) != 1 || !slices.Equal(page.Entries[0].Data, odd) {
		t.Errorf("%s: %+v %v, want the bytes that were appended", name, page, err)
	}
}

// TestStricterIsolation completes TestIsolation: what begins its own transaction works
// under every default of the role; what relies on the session's is refused by name.
func TestStricterIsolation(t *testing.T) {
	c := freshCounted(t)
	b := batch(newStream(), 3)
	done := must(t, c.store, one(b))
	n := next(b, done.Receipts[0], 1)
	for _, level := range []string{"read uncommitted", "repeatable read", "serializable"} {
		strict := level != "read uncommitted" // which PostgreSQL carries out as READ COMMITTED, and names otherwise
		p := pool(t, pgtest.DSN(t), withParam("default_transaction_isolation", level))
		_, s := open(t, p, c.schema)
		ctx := t.Context()
		for what, f := range map[string]func() error{
			"append in a transaction": func() error {
				return pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error { _, err := pglog.AppendTx(ctx, s, tx, one(n)); return err })
			},
			"append":       func() error { _, err := s.Append(ctx, one(n)); return err },
			"proof":        func() error { _, err := s.Append(ctx, one(b)); return err },
			"feed":         func() error { _, err := s.ReadFeed(ctx, 0, eventstore.Filter{}, 0); return err },
			"fence":        func() error { _, err := s.Fence(ctx, b.Stream, b.Holder); return err },
			"fence at":     func() error { _, err := s.FenceAt(ctx, b.Stream, 1, b.Holder); return err },
			"acquire":      func() error { _, _, err := s.AcquireLease(ctx, "l", b.Holder, 0); return err },
			"load (free)":  func() error { _, err := loaded(ctx, s, b.Stream, "v"); return err },
			"read (free)":  func() error { _, err := s.ReadFrom(ctx, b.Stream, 0, 0); return err },
			"trim (free)":  func() error { _, err := s.Trim(ctx, b.Stream, 1, true); return err },
			"holds (free)": func() error { _, err := s.ListHolds(ctx); return err },
			"within (free)": func() error {
				_, err := c.within(ctx, s, one(batch(newStream(), 1)), func() {})
				return err
			},
			"category (free)": func() error {
				return s.CreateCategory(ctx, eventstore.CategorySpec{Name: "account"})
			},
		} {
			free := what[len(what)-1] == ')'
			err := f()
			switch {
			case strict && !free && !errors.Is(err, eventstore.ErrIsolation):
				t.Errorf("%s under %s: %v, want ErrIsolation", what, level, err)
			case free && err != nil:
				t.Errorf("%s under %s: %v, want it to work", what, level, err)
			case !strict && err != nil && !errors.Is(err, eventstore.ErrIsolation) && !errors.Is(err, eventstore.ErrFenced):
				t.Errorf("%s under %s: %v", what, level, err)
			}
		}
	}
}

// loaded is all that a load gives.
func loaded(ctx context.Context, s *eventstore.Store, st eventstore.Stream, fingerprint string) (out whole, err error) {
	l, err := s.Log().(eventstore.Snapshots).Load(ctx, st, fingerprint, 100)
	if err != nil {
		return out, err
	}
	out.Head, out.Entries = l.Head, l.Entries
	if l.Snapshot != nil {
		out.Snapshot = *l.Snapshot
	}
	return out, nil
}

// TestForeignEncoding: in a session that the server takes for Latin-1 every key beyond
// ASCII would be stored as another one, so nothing is written there, and Configure heals
// it.
func TestForeignEncoding(t *testing.T) {
	c := freshCounted(t)
	latin := withParam("client_encoding", "LATIN1")
	if _, err := pglog.Open(t.Context(), pool(t, pgtest.DSN(t), latin), &pglog.Options{Schema: c.schema}); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("open: %v, want ErrInvalid", err)
	}
	c.under(t, "configured", func(p *pgxpool.Config) { latin(p); pglog.Configure(p.ConnConfig) })

	// The role's default changes when the log is open: new connections have it.
	var foreign bool
	p := pool(t, pgtest.DSN(t), func(p *pgxpool.Config) {
		p.BeforeConnect = func(_ context.Context, cc *pgx.ConnConfig) error {
			if foreign {
				cc.RuntimeParams["client_encoding"] = "LATIN1"
			}
			return nil
		}
	})
	l, err := pglog.Open(t.Context(), p, &pglog.Options{Schema: c.schema})
	if err != nil {
		t.Fatal(err)
	}
	p.Reset()
	foreign = true
	s := eventstore.New(l, nil)
	b := batch("account-É", 1)
	for what, f := range map[string]func() error{
		"append": func() error { _, err := s.Append(t.Context(), one(b)); return err },
		"within": func() error { _, err := c.within(t.Context(), s, one(b), func() {}); return err },
		"fence":  func() error { _, err := s.Fence(t.Context(), b.Stream, b.Holder); return err },
		"transaction": func() error {
			return pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error { _, err := pglog.AppendTx(t.Context(), s, tx, one(b)); return err })
		},
	} {
		if err := f(); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
	if n := number(t, c.pool, "select count(*) from "+c.schema+".streams"); n != 0 {
		t.Errorf("%d streams, want none", n)
	}
}
