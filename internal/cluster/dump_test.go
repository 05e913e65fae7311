// Dumps restored, into a fresh cluster and into the same one.

package cluster

import (
	"context"
	"fmt"
	"os"
	command "os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/projector"
)

// tools is a directory that has pg_dump and psql beside the server: a dump needs them of
// the server's version, so the test takes its servers from there.
func tools(t *testing.T) string {
	t.Helper()
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if path, err := command.LookPath("pg_dump"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	for _, dir := range slices.Backward(dirs) {
		if !slices.ContainsFunc([]string{"pg_dump", "psql", "postgres", "initdb"}, func(tool string) bool {
			_, err := os.Stat(filepath.Join(dir, tool))
			return err != nil
		}) {
			return dir
		}
	}
	t.Fatal("no directory with pg_dump, psql, postgres and initdb: install postgresql (and postgresql-client)")
	return ""
}

// dump writes the database to a file, as an administrator would.
func dump(t *testing.T, s *pgtest.Server, database string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "dump.sql")
	tool(t, s, "pg_dump", "--file="+file, url(s, database))
	return file
}

func restore(t *testing.T, s *pgtest.Server, database, file string) {
	t.Helper()
	if database != "postgres" {
		execOn(t, s, "drop database if exists "+database+" with (force)")
		execOn(t, s, "create database "+database)
	}
	tool(t, s, "psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--output="+os.DevNull, "--file="+file, url(s, database))
}

func execOn(t *testing.T, s *pgtest.Server, sql string) {
	t.Helper()
	p := newPool(t, s.DSN())
	exec(t, p, sql)
	p.Close()
}

func tool(t *testing.T, s *pgtest.Server, name string, args ...string) {
	t.Helper()
	if out, err := command.Command(filepath.Join(s.BinDir(), name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func url(s *pgtest.Server, database string) string {
	return fmt.Sprintf("postgres://postgres:c4n4ry@127.0.0.1:%d/%s?sslmode=disable", s.Port(), database)
}

// TestCaseR6DumpRestored: a dump works on in a fresh cluster, its projectors too. One
// that is older than a checkpoint elsewhere stops the projector, by whatever it differs.
func TestCaseR6DumpRestored(t *testing.T) {
	bin := tools(t)
	a := pgtest.NewServer(t, pgtest.Bin(bin))
	migrated(t, a)
	p := newPool(t, a.DSN())
	_, s := open(t, p)
	create(t, s, "account")
	create(t, s, "other")
	model := project(t, s, p)
	w := start(t, s, 6, 2)
	w.working("start", time.Now())
	w.stop(s)
	last := batch("account-kept", 3)
	last.Events[0].Data = append([]byte(`{"Amount":1}`), slices.Repeat([]byte("    "), 50_000)...)
	must(t, s, last)
	model.stop(s)
	older := dump(t, a, "postgres")

	fresh := pgtest.NewServer(t, pgtest.Bin(bin))
	restore(t, fresh, "postgres", older)
	worksOn(t, fresh, s, last)
	olderThanCheckpoints(t, a, s, p)
	inFlight(t, a)
}

// worksOn: the copy holds what the original does, takes appends above it, and the
// projector whose checkpoint came along goes on.
func worksOn(t *testing.T, fresh *pgtest.Server, s *eventstore.Store, last eventstore.Batch) {
	p := newPool(t, fresh.DSN())
	_, copied := open(t, p)
	was, is := feed(t, s), feed(t, copied)
	if !slices.EqualFunc(was, is, func(a, b eventstore.Entry) bool {
		return a.Position == b.Position && a.ID == b.ID && a.Stream == b.Stream && a.Seqno == b.Seqno && string(a.Data) == string(b.Data) && a.Time.Equal(b.Time)
	}) {
		t.Fatalf("the copy has %d entries, not the %d of the original", len(is), len(was))
	}
	done := must(t, copied, next(last, 2), batch("other-new", 1)) // a warm writer, and a new stream
	if top := was[len(was)-1].Position; done.Token.Position <= top {
		t.Errorf("position %d is not above %d", done.Token.Position, top)
	}
	create(t, copied, "third")
	must(t, copied, batch("third-1", 1))
	model := project(t, copied, p)
	w := start(t, copied, 2, 1)
	w.working("in the copy", time.Now())
	w.cancel()
	w.wg.Wait()
	all := slices.DeleteFunc(feed(t, copied), func(e eventstore.Entry) bool { return e.Stream.Category() != "account" })
	if err := model.p.Wait(t.Context(), eventstore.Token{Incarnation: done.Token.Incarnation, Position: all[len(all)-1].Position}); err != nil {
		t.Fatal(err)
	}
	checkModel(t, p, all)
}

// olderThanCheckpoints: the database goes back to before what projectors elsewhere have
// seen; then it grows beyond that.
func olderThanCheckpoints(t *testing.T, a *pgtest.Server, s *eventstore.Store, p *pgxpool.Pool) {
	older := dump(t, a, "postgres")
	b := batch("account-gone", 5)
	token := must(t, s, b).Token
	at := checkpoints(t, s, token)
	restore(t, a, "copy", older)
	cp := newPool(t, url(a, "copy"))
	_, copied := open(t, cp)
	at.diverged(t, "a store that was restored to before the checkpoint", copied)
	must(t, copied, batch("account-grown", 20))
	at.diverged(t, "and has grown again", copied)
	exec(t, cp, "update wattle.store set incarnation = gen_random_uuid()")
	_, copied = open(t, cp)
	at.diverged(t, "and was given an incarnation of its own", copied)
	_, err := copied.Append(t.Context(), one(next(b, 1)))
	wantKind(t, "a warm writer of a stream that was lost", err, eventstore.ErrFenced)
}

// inFlight: an append is in flight when the dump is made, one behind it is not. In the
// copy the entry at the mark stands and the one before is missing.
func inFlight(t *testing.T, a *pgtest.Server) {
	execOn(t, a, "create database flight")
	p := newPool(t, url(a, "flight"))
	up(t, p)
	_, s := open(t, p)
	create(t, s, "account")
	tx, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pglog.AppendTx(t.Context(), s, tx, one(batch("account-late", 1))); err != nil {
		t.Fatal(err)
	}
	token := must(t, s, batch("account-early", 1)).Token
	file := dump(t, a, "flight")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := checkpoints(t, s, token)
	p.Close()
	fresh := pgtest.NewServer(t, pgtest.Bin(a.BinDir()))
	for _, x := range []struct {
		server   *pgtest.Server
		database string
	}{{fresh, "postgres"}, {a, "flight"}} { // in place of the original too
		restore(t, x.server, x.database, file)
		_, copied := open(t, newPool(t, url(x.server, x.database)))
		if all := feed(t, copied); len(all) != 1 || all[0].Position != token.Position {
			t.Fatalf("%d entries there, so this proves nothing", len(all))
		}
		at.diverged(t, "a copy that lacks an entry before the mark", copied)
	}
}

// checkpointed are checkpoints of projectors that have passed a token.
type checkpointed map[string]*projector.MemoryCheckpoints

func checkpoints(t *testing.T, s *eventstore.Store, token eventstore.Token) checkpointed {
	t.Helper()
	all := checkpointed{}
	for _, name := range []string{"p"} {
		all[name] = &projector.MemoryCheckpoints{}
		p := all.projector(name, s)
		if _, err := p.CatchUp(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func (c checkpointed) projector(name string, s *eventstore.Store) *projector.Projector {
	h := projector.Sink(c[name], func(_ context.Context, _ projector.Key, _ []eventstore.Entry) error { return nil })
	return projector.New(s, name, "account", h, &projector.Options{NoHold: true})
}

// diverged: none goes on with the store.
func (c checkpointed) diverged(t *testing.T, what string, s *eventstore.Store) {
	t.Helper()
	for name := range c {
		x := run(t, c.projector(name, s))
		select {
		case err := <-x.done:
			wantKind(t, what, err, eventstore.ErrDiverged)
			x.done <- err
		case <-time.After(resumes):
			t.Errorf("%s: the projector goes on: %+v", what, x.p.Status())
		}
	}
}
