// Clusters of servers: standbys, promotion, and servers that change their part.

package pgtest

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Standby makes a physical standby of s by a base backup and starts it; it ends with the test. It streams from the
// server, or the [Proxy], at port, under its own port as application_name (see [Server.Name]), and has the settings of s
// and those given.
func (s *Server) Standby(t testing.TB, port int, options ...Option) *Server {
	t.Helper()
	b := &Server{bin: s.bin, settings: slices.Clone(s.settings), env: s.env}
	for _, o := range options {
		o(b)
	}
	endWith(t, b)
	if err := b.place(); err != nil {
		t.Fatal(err)
	}
	if err := s.backup(b.data()); err != nil {
		t.Fatalf("pgtest: base backup: %v", err)
	}
	b.Follow(t, port)
	return b
}

// Name is the application_name under which a server streams from another: what synchronous_standby_names takes.
func (s *Server) Name() string { return fmt.Sprintf("standby%d", s.port) }

// Follow starts a stopped server as a standby of the one at port, 0 for a standby that follows nobody.
func (s *Server) Follow(t testing.TB, port int) {
	t.Helper()
	signal := filepath.Join(s.data(), "standby.signal")
	if err := os.WriteFile(signal, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := own(signal); err != nil {
		t.Fatal(err)
	}
	conninfo := ""
	if port > 0 {
		conninfo = fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=%s", port, s.Name())
	}
	s.settings = append(s.settings, "primary_conninfo="+conninfo, "wal_retrieve_retry_interval=100ms")
	s.Start(t)
}

// Promote makes a standby a primary, on a new timeline, and returns when it takes writes.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	var done bool
	if err := s.queryRow("SELECT pg_promote(true, 60)").Scan(&done); err != nil || !done {
		t.Fatalf("pgtest: promote: %v, %v\n%s", done, err, s.Log(20))
	}
}

// Set changes a setting that needs no restart and was not given by [Setting], for good, and returns when it holds.
func (s *Server) Set(t testing.TB, name, value string) {
	t.Helper()
	line := fmt.Sprintf("%s = '%s'\n", name, strings.ReplaceAll(value, "'", "''"))
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(line)
	if e := f.Close(); err != nil || e != nil {
		t.Fatal(err, e)
	}
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(stopLimit); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		var now string
		if err := s.queryRow("SELECT current_setting($1)", name).Scan(&now); err == nil && now == value {
			return
		}
	}
	t.Fatalf("pgtest: %s is not %q", name, value)
}

// KillBackend ends one session's process with SIGKILL: the server ends all others and recovers as after a crash. It
// returns when the server answers again.
func (s *Server) KillBackend(t testing.TB, pid uint32) {
	t.Helper()
	var ours bool
	err := s.queryRow("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", int64(pid)).Scan(&ours)
	if err != nil || !ours {
		t.Fatalf("pgtest: %d is no process of this server (%v)", pid, err)
	}
	before := s.started(t)
	if err := syscall.Kill(int(pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(startLimit); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		// Until the server has noticed it takes connections still: look for another checkpointer.
		var pid int
		if err := s.queryRow(checkpointer).Scan(&pid); err == nil && pid != before {
			return
		}
	}
	t.Fatalf("pgtest: the server does not come back\n%s", s.Log(20))
}

const checkpointer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"

// started is the process that every start and every crash recovery begins anew.
func (s *Server) started(t testing.TB) (pid int) {
	t.Helper()
	if err := s.queryRow(checkpointer).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

// CaughtUp waits until a standby has replayed all that is written on its primary s now.
func (s *Server) CaughtUp(t testing.TB, standby *Server) {
	t.Helper()
	var lsn string
	if err := s.queryRow("SELECT pg_current_wal_flush_lsn()::text").Scan(&lsn); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(stopLimit); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		var there bool
		if err := standby.queryRow("SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", lsn).Scan(&there); err == nil && there {
			return
		}
	}
	t.Fatalf("pgtest: the standby does not come to %s\n%s", lsn, standby.Log(20))
}

// row is a query on a connection of its own.
type row struct {
	s    *Server
	sql  string
	args []any
}

func (s *Server) queryRow(sql string, args ...any) row { return row{s, sql, args} }

func (r row) Scan(targets ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*startLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.s.DSN())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, r.sql, r.args...).Scan(targets...)
}

// backup is what pg_basebackup does, which not every distribution of the server has: begin, copy the files, end, and
// keep the label that tells recovery where to begin. The WAL from there on is streamed.
func (s *Server) backup(to string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*startLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.DSN())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	begin, end := "SELECT pg_backup_start('pgtest', true)::text", "SELECT labelfile FROM pg_backup_stop(false)"
	if conn.PgConn().ParameterStatus("server_version") < "15" {
		begin, end = "SELECT pg_start_backup('pgtest', true, false)::text", "SELECT labelfile FROM pg_stop_backup(false, false)"
	}
	var lsn, label string
	if err := conn.QueryRow(ctx, begin).Scan(&lsn); err != nil {
		return err
	}
	if err := copyCluster(s.data(), to); err != nil {
		return err
	}
	if err := conn.QueryRow(ctx, end).Scan(&label); err != nil {
		return err
	}
	file := filepath.Join(to, "backup_label")
	if err := os.WriteFile(file, []byte(label), 0o600); err != nil {
		return err
	}
	return own(file)
}

// emptied are the directories whose content is not part of a backup; pg_wal is streamed.
var emptied = []string{"pg_wal", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans"}

func copyCluster(from, to string) error {
	const control = "global/pg_control" // must be copied last
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) {
				return nil // the server works on: files come and go
			}
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case e.IsDir():
			if err := os.Mkdir(target, 0o700); err != nil {
				return err
			}
			return own(target)
		case slices.Contains(emptied, strings.SplitN(name, "/", 2)[0]), name == control,
			strings.HasPrefix(name, "postmaster."), strings.HasPrefix(e.Name(), "pgsql_tmp"), e.Name() == "pg_internal.init":
			return nil
		}
		return copyFile(path, target)
	})
	if err != nil {
		return err
	}
	return copyFile(filepath.Join(from, control), filepath.Join(to, control))
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if e := out.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return own(to)
}
