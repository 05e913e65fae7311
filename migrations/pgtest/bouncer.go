// PgBouncer in transaction mode, the worst case for what a session keeps.

package pgtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Bouncer starts PgBouncer in transaction mode, with so many connections to the server of dsn, and returns the URL of the
// same database through it; it ends with the test. Connect with pgx's exec or simple query mode.
func Bouncer(t testing.TB, dsn string, connections int) string {
	t.Helper()
	c, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		if bin = "/usr/sbin/pgbouncer"; !executable(bin) {
			t.Fatal("pgbouncer is not installed: install the package pgbouncer (apt-get install pgbouncer, brew install pgbouncer)")
		}
	}
	dir, err := os.MkdirTemp("", "wattle-bouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	password := c.Password
	if password == "" {
		password = "none"
	}
	config := fmt.Sprintf(`[databases]
%s = host=%s port=%d dbname=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
ignore_startup_parameters = extra_float_digits
`, c.Database, c.Host, c.Port, c.Database, c.User, password, port, connections)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := own(dir); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-q", file)
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	if err := asServerUser(cmd); err != nil { // it refuses to run as root
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for limit := time.Now().Add(startLimit); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return fmt.Sprintf("postgres://postgres:%s@%s/%s?sslmode=disable", password, address, c.Database)
		}
		if time.Now().After(limit) {
			t.Fatalf("pgtest: pgbouncer does not listen: %v", err)
		}
	}
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}
