// Package servetest runs a real wattle serve for the tests of foreign clients, with files
// that hold all that its callers need to be known.
package servetest

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wattle-es/wattle/server/devcert"
)

// envOverlay names an overlay of files to build the program with, for planted bugs.
const envOverlay = "WATTLE_TEST_OVERLAY"

// deadline bounds the beginning and the end of a process, on a busy machine too.
const deadline = time.Minute

// Identities of the clients, and the token of one.
const (
	Teller = "spiffe://bank/teller" // may everything with the categories of Policy
	Clerk  = "token:clerk"          // the same
	Token  = "c4n4ry-token-for-the-clerk-of-this-test"
)

// Policy is what the server allows: nobody may anything with "vault".
const Policy = `uri:spiffe://bank/teller,token:clerk  read,append,fence,admin,publish,consume  account,orders*
`

// Server is a process of wattle serve.
type Server struct {
	URL, Addr string
	Dir       string // with what its clients need

	program string
	args    []string
	process *exec.Cmd
	output  *os.File // the end of the pipe that is read
	reading sync.WaitGroup
	said    log
}

// Path returns the path of a file in the server's directory: ca.crt, teller.crt,
// teller.key, and the same of stranger, whom another authority certified.
func (s *Server) Path(name string) string { return filepath.Join(s.Dir, name) }

// Build builds the program of the module at root into a directory.
func Build(root, dir string) (program string, err error) {
	if err := watch(root); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "wattle")
	args := []string{"build", "-o", program}
	if overlay := os.Getenv(envOverlay); overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	c := exec.Command("go", append(args, "./cmd/wattle")...)
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %v: %w\n%s", c.Args, err, out)
	}
	return program, nil
}

// watch looks at the folders of the sources, so that go test knows that a result which it
// has kept depends on them. (It does not look outside a test's module.)
func watch(root string) error {
	return filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{".git", "node_modules", "gen"}, d.Name()) {
			return filepath.SkipDir
		}
		return err
	})
}

// StartDev starts a server without TLS for everybody who reaches it, on a new file store.
// The test's end stops it.
func StartDev(t testing.TB, program string, args ...string) *Server {
	s := &Server{Dir: t.TempDir()}
	s.start(t, program, append([]string{"--dev"}, args...)...)
	s.URL = "http://" + s.Addr
	return s
}

// StartTokens starts a server without TLS, on loopback, for who has the Token: it may
// everything with a category. It is for clients that cannot be given an authority.
func StartTokens(t testing.TB, program, category string, args ...string) *Server {
	s := &Server{Dir: t.TempDir()}
	must(t, os.WriteFile(s.Path("policy"), []byte(Clerk+" * "+category+"\n"), 0o600))
	must(t, os.WriteFile(s.Path("tokens"), []byte("clerk "+Token+"\n"), 0o600))
	s.start(t, program, append([]string{"--policy", s.Path("policy"), "--tokens", s.Path("tokens")}, args...)...)
	s.URL = "http://" + s.Addr
	return s
}

// Start starts a server with TLS that asks for certificates or a token, under Policy, on a
// new file store. The test's end stops it.
func Start(t testing.TB, program string, args ...string) *Server {
	s := &Server{Dir: t.TempDir()}
	ca := s.certify(t)
	must(t, os.WriteFile(s.Path("policy"), []byte(Policy), 0o600))
	must(t, os.WriteFile(s.Path("tokens"), []byte("clerk "+Token+"\n"), 0o600))
	s.start(t, program, append([]string{"--tls-cert", s.Path("server.crt"), "--tls-key", s.Path("server.key"), "--tls-client-cas", ca, "--tls-optional",
		"--policy", s.Path("policy"), "--tokens", s.Path("tokens")}, args...)...)
	s.URL = "https://" + s.Addr
	return s
}

// certify makes the files of two authorities and those they signed.
func (s *Server) certify(t testing.TB) (ca string) {
	now := time.Now()
	own, err := devcert.New("test", now, 0)
	must(t, err)
	other, err := devcert.New("another", now, 0)
	must(t, err)
	for _, c := range []struct {
		name string
		by   *devcert.Authority
		r    devcert.Request
	}{
		{"server", own, devcert.Request{Names: []string{"localhost", "127.0.0.1"}, Server: true}},
		{"teller", own, devcert.Request{Names: []string{Teller}, Client: true}},
		{"stranger", other, devcert.Request{Names: []string{Teller}, Client: true}},
	} {
		pair, err := c.by.Issue(c.r, now)
		must(t, err)
		must(t, pair.Save(s.Dir, c.name, false))
	}
	must(t, own.Save(s.Dir, "ca", false))
	ca, _ = devcert.Files(s.Dir, "ca")
	return ca
}

// Restart ends the server in order and starts it again, at its address and on its store.
func (s *Server) Restart(t testing.TB) {
	s.stop(t)
	s.launch(t, s.Addr)
}

// Kill ends the server with SIGKILL, in the middle of whatever it does.
func (s *Server) Kill(t testing.TB) {
	must(t, s.process.Process.Kill())
	_ = s.process.Wait() // it was killed
	s.reading.Wait()
	_ = s.output.Close()
	s.process = nil
}

// Revive starts a server that was killed, at its address and on its store.
func (s *Server) Revive(t testing.TB) { s.launch(t, s.Addr) }

// start runs the server until the test ends.
func (s *Server) start(t testing.TB, program string, args ...string) {
	s.program, s.args = program, args
	t.Cleanup(func() {
		s.stop(t)
		if t.Failed() {
			t.Logf("the server said:\n%s", &s.said)
		}
	})
	s.launch(t, "127.0.0.1:0")
}

// launch runs the process and waits for the line that tells its address.
func (s *Server) launch(t testing.TB, listen string) {
	c := exec.Command(s.program, append([]string{"serve", "--store", "file:" + s.Path("store"), "--listen", listen}, s.args...)...)
	c.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "WATTLE_") })
	r, w, err := os.Pipe()
	must(t, err)
	c.Stdout, c.Stderr = w, w
	err = c.Start()
	_ = w.Close()
	must(t, err)
	addr := make(chan string, 1)
	s.process, s.output = c, r
	s.reading.Go(func() { s.said.read(r, addr) })
	s.Addr = ""
	select {
	case s.Addr = <-addr:
	case <-time.After(deadline):
	}
	if s.Addr == "" {
		t.Fatal("wanted a server, found none that says where it listens")
	}
}

// stop ends the process, if it runs, and waits for what it said.
func (s *Server) stop(t testing.TB) {
	if s.process == nil {
		return
	}
	end(t, s.process)
	s.reading.Wait()
	_ = s.output.Close()
	s.process = nil
}

// end asks the process to end in order, and kills it where it does not.
func end(t testing.TB, c *exec.Cmd) {
	_ = c.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(deadline, func() { _ = c.Process.Kill() })
	defer late.Stop()
	if err := c.Wait(); err != nil {
		t.Errorf("wanted the server to end in order, found %v", err)
	}
}

// log keeps what the server says.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// maxLog bounds what is kept.
const maxLog = 1 << 20

func (l *log) read(r *os.File, addr chan<- string) {
	defer close(addr)
	told := false
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line := lines.Text()
		l.add(line)
		if _, at, found := strings.Cut(line, " at "); found && !told && strings.HasPrefix(line, "wattle: serving ") {
			told = true
			addr <- at
		}
	}
}

func (l *log) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() < maxLog {
		l.text.WriteString(line + "\n")
	}
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
