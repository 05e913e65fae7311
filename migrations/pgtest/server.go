// A throwaway PostgreSQL server: made, started, ended in several ways, removed.

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	startLimit = 60 * time.Second // crash recovery of a test's data included
	stopLimit  = 30 * time.Second
)

// Server is a PostgreSQL of the caller's own, for those that need its settings or that stop, crash or restart it. Its
// port, socket and data stay the same over restarts. Methods are for one goroutine at a time.
type Server struct {
	bin      string // directory of the executables
	dir      string // everything of this server; removed at the end
	port     int
	settings []string // "name=value"
	env      []string // of its processes, beside the test's
	cmd      *exec.Cmd
	exited   chan struct{} // closed when the process has ended
	orphans  bool          // the main process was killed, children may be left
	watchdog *watchdog
}

// Option changes a server that [NewServer] makes.
type Option func(*Server)

// Setting sets a server setting as postgresql.conf would, over the defaults of this package.
func Setting(name, value string) Option {
	return func(s *Server) { s.settings = append(s.settings, name+"="+value) }
}

// Bin takes the executables from a directory instead of looking for them.
func Bin(dir string) Option {
	return func(s *Server) { s.bin = dir }
}

// Env adds a variable, as "name=value", to the environment of the server's processes.
func Env(variable string) Option {
	return func(s *Server) { s.env = append(s.env, variable) }
}

// NewServer makes and starts a server of the test's own, whatever WATTLE_TEST_DSN says; it ends with the test, which
// takes a second or two in all. When the test fails, the end of the server's log is in the test's.
func NewServer(t testing.TB, options ...Option) *Server {
	t.Helper()
	s, err := Launch(options...)
	if err != nil {
		t.Fatal(err)
	}
	endWith(t, s)
	return s
}

// endWith ends a server with the test.
func endWith(t testing.TB, s *Server) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the log of the server on port %d:\n%s", s.port, s.Log(40))
		}
		s.Close()
	})
}

// Launch is [NewServer] for benchmarks that are programs: the caller ends the server with Close. Should the program be
// killed, the server ends all the same.
func Launch(options ...Option) (_ *Server, err error) {
	s := &Server{settings: defaults()}
	for _, o := range options {
		o(s)
	}
	if s.bin == "" {
		if s.bin, err = find(); err != nil {
			return nil, err
		}
	}
	if err := s.create(); err != nil {
		s.Close()
		return nil, err
	}
	if err := s.start(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// defaults: durable as in production; the rest is room for many tests at once.
func defaults() []string {
	return []string{
		"fsync=on", "synchronous_commit=on", "full_page_writes=on",
		"max_connections=200", "max_prepared_transactions=20",
		"logging_collector=off", "log_line_prefix=%m [%p] %a ", "TimeZone=UTC", "log_timezone=UTC",
	}
}

// place gives the server a directory, a port and a watchdog.
func (s *Server) place() error {
	dir, err := os.MkdirTemp("", "wattle-pg-")
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	s.dir = dir
	if err := own(dir); err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	if s.port, err = freePort(); err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	if s.watchdog, err = watch(s.dir, s.data()); err != nil {
		return fmt.Errorf("pgtest: start the watchdog: %w", err)
	}
	return nil
}

// create makes the database cluster. Only this first step goes without fsync.
func (s *Server) create() error {
	if err := s.place(); err != nil {
		return err
	}
	initdb := exec.Command(filepath.Join(s.bin, "initdb"), "-D", s.data(), "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	initdb.Dir = s.dir
	if err := asServerUser(initdb); err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: initdb of %s as the user that owns %s: %w\n%s", s.bin, s.dir, err, out)
	}
	return nil
}

// Start starts the server again after [Server.Stop], [Server.Immediate] or [Server.KillPostmaster] and returns when it
// answers, crash recovery done.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	err := s.start()
	// A new main process refuses to start while a child of the old one still holds the shared memory.
	for limit := time.Now().Add(stopLimit); err != nil && s.orphans && time.Now().Before(limit); err = s.start() {
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.orphans = false
}

func (s *Server) start() error {
	log, err := os.OpenFile(s.logFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	defer log.Close()
	args := []string{"-D", s.data(), "-c", fmt.Sprintf("port=%d", s.port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=" + s.dir}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.Env = append(os.Environ(), s.env...)
	if err := asServerUser(cmd); err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	s.cmd, s.exited = cmd, make(chan struct{})
	go func(done chan struct{}) { _ = cmd.Wait(); close(done) }(s.exited)
	return s.ready()
}

// ready waits until the server answers.
func (s *Server) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.DSN())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.exited:
			return fmt.Errorf("pgtest: the server ended at its start:\n%s", s.Log(20))
		case <-ctx.Done():
			return fmt.Errorf("pgtest: the server does not answer: %w\n%s", err, s.Log(20))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the server cleanly: open transactions are rolled back, a checkpoint is written.
func (s *Server) Stop(t testing.TB) { t.Helper(); s.end(t, syscall.SIGINT) }

// Immediate ends the server as a crash would: nothing is flushed, the next start recovers from the WAL.
func (s *Server) Immediate(t testing.TB) { t.Helper(); s.end(t, syscall.SIGQUIT) }

// KillPostmaster ends the main process with SIGKILL. Its children notice and end themselves, which may be after this has
// returned; Start waits for it.
func (s *Server) KillPostmaster(t testing.TB) {
	t.Helper()
	s.end(t, syscall.SIGKILL)
	s.orphans = true
}

func (s *Server) end(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := s.signal(signal); err != nil {
		t.Fatalf("pgtest: %v\n%s", err, s.Log(20))
	}
}

// signal sends it to the main process and waits for its end; ended already is fine.
func (s *Server) signal(signal syscall.Signal) error {
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.exited:
		return nil
	case <-time.After(stopLimit):
		return fmt.Errorf("the server did not end within %v of signal %v", stopLimit, signal)
	}
}

// Close ends the server and removes its directory. Nothing in it is worth a checkpoint.
func (s *Server) Close() {
	if s.signal(syscall.SIGQUIT) != nil {
		_ = s.signal(syscall.SIGKILL)
	}
	if s.watchdog != nil {
		s.watchdog.end() // it removes the directory too
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// DSN is the URL of database postgres on this server, over loopback TCP, as its superuser.
func (s *Server) DSN() string {
	return fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", password, s.port)
}

// Port is the server's TCP port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// SocketDir is the directory of its Unix socket, usable as host in a DSN.
func (s *Server) SocketDir() string { return s.dir }

// DataDir is the server's data directory.
func (s *Server) DataDir() string { return s.data() }

// BinDir is the directory of its executables.
func (s *Server) BinDir() string { return s.bin }

// Log is the last n lines of the server's log.
func (s *Server) Log(n int) string {
	text, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error() + "\n"
	}
	lines := strings.SplitAfter(strings.TrimRight(string(text), "\n")+"\n", "\n")
	return strings.Join(lines[max(0, len(lines)-1-n):], "")
}

func (s *Server) data() string    { return filepath.Join(s.dir, "data") }
func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }

// freePort asks the kernel for one. Another process may take it before the server does; then the start fails and says so.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
