// Processes: whose they are, and that none outlives the test binary.

package pgtest

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// serverUsers are tried in turn when we are root, as whom PostgreSQL refuses to run.
var serverUsers = []string{"postgres", "nobody"}

// serverUser is nil unless we are root.
func serverUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range serverUsers {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
}

// asServerUser makes cmd run as the server's user, in a session of its own: an interrupt from the terminal is for the
// test binary, which then ends the server in order.
func asServerUser(cmd *exec.Cmd) error {
	credential, err := serverUser()
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: credential}
	return nil
}

// own gives dir to the server's user.
func own(dir string) error {
	credential, err := serverUser()
	if err != nil || credential == nil {
		return err
	}
	return os.Chown(dir, int(credential.Uid), int(credential.Gid))
}

// watchdogScript waits for the end of its input, which is the end of the test binary, however it came about; then it
// ends the server of data directory $2 and removes directory $1. That the process is ours is seen by its arguments: a
// pid file can outlive its process.
const watchdogScript = `
read -r _
pid=$(head -n 1 "$2/postmaster.pid" 2>/dev/null)
ours() { case "$(ps -o args= -p "$pid" 2>/dev/null)" in *"$2"*) return 0;; esac; return 1; }
if [ -n "$pid" ] && ours "$@"; then
	kill -QUIT "$pid"
	n=0
	while ours "$@" && [ $n -lt 50 ]; do sleep 0.1; n=$((n+1)); done
	if ours "$@"; then kill -KILL "$pid"; fi
fi
rm -rf "$1"
`

// watchdog is a shell that outlives us for a moment. Pdeathsig would do it on Linux only, and there when a thread ends.
type watchdog struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func watch(dir, data string) (*watchdog, error) {
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "pgtest-watchdog", dir, data)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &watchdog{cmd, stdin}, nil
}

// end lets the watchdog do its work now and waits for it.
func (w *watchdog) end() {
	_ = w.stdin.Close()
	_ = w.cmd.Wait()
}
