// Real processes on a real file system: killed at random, killed at a system call, and
// with system calls that fail.

package filelog_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

// acked is what children were told, by stream.
type acked struct {
	dir                string
	last, epoch, trims map[eventstore.Stream]uint64
	acks, failures     int
}

func newAcked(t *testing.T) *acked {
	return &acked{dir: filepath.Join(t.TempDir(), "store"), last: map[eventstore.Stream]uint64{}, epoch: map[eventstore.Stream]uint64{}, trims: map[eventstore.Stream]uint64{}}
}

// note takes in what a child has told. The last line may be torn.
func (a *acked) note(t *testing.T, out []byte) {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(out[:bytes.LastIndexByte(out, '\n')+1]))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch fields[0] {
		case "!":
			t.Errorf("child: %s", lines.Text())
		case "e":
			a.failures++
		case "a", "f", "t":
			n, err := strconv.ParseUint(fields[2], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			a.acks++
			to := map[string]map[eventstore.Stream]uint64{"a": a.last, "f": a.epoch, "t": a.trims}[fields[0]]
			to[eventstore.Stream(fields[1])] = max(to[eventstore.Stream(fields[1])], n)
		default:
			t.Fatalf("child: %s", lines.Text())
		}
	}
}

// check opens the store and demands all that was acked.
func (a *acked) check(t *testing.T) {
	t.Helper()
	log, err := filelog.Open(a.dir, childOptions())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	store, ctx := eventstore.New(log, nil), context.Background()
	for s, n := range a.epoch {
		h, err := store.Head(ctx, s)
		if err != nil || uint64(h.Epoch) < n || uint64(h.Last.Seqno) < a.last[s] || uint64(h.Trimmed) < a.trims[s] {
			t.Errorf("%s: head %+v, %v, acked were epoch %d, seqno %d, trim %d", s, h, err, n, a.last[s], a.trims[s])
		}
		next := h.Trimmed + 1
		for e, err := range store.Read(ctx, s, h.Trimmed) {
			if err != nil || e.Seqno != next || string(e.Data) != content(s, next) {
				t.Fatalf("%s: entry %d is %d %.60q, %v, want %.60q", s, next, e.Seqno, e.Data, err, content(s, next))
			}
			next++
		}
		if next != h.Last.Seqno+1 {
			t.Errorf("%s: the last entry is %d, head %+v", s, next-1, h)
		}
	}
}

func (a *acked) command(ctx context.Context, clients, steps int, before ...string) *exec.Cmd {
	args := append(slices.Clone(before), os.Args[0])
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), childDir+"="+a.dir, fmt.Sprint(childClients, "=", clients), fmt.Sprint(childSteps, "=", steps))
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// told is the output of a child, and when it has begun.
type told struct {
	all   bytes.Buffer // a field: its ReadFrom would pass Write by
	once  sync.Once
	begun chan struct{}
}

func (w *told) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.begun) })
	return w.all.Write(b)
}

// TestKill kills a process that appends under load at random moments: every second one
// counted from its start, so while it opens, the others from its first ack, however long
// the machine takes until then.
func TestKill(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 3))
	a := newAcked(t)
	rounds := scale(5, 20, 1000)
	for i := range rounds {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := a.command(ctx, 4, 100_000)
		out := &told{begun: make(chan struct{})}
		cmd.Stdout = out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			select {
			case <-out.begun:
			case <-ctx.Done():
				t.Fatal("nothing was acked in a minute")
			}
		}
		time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		cancel()
		a.note(t, out.all.Bytes())
		a.check(t)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d processes killed, %d acks", rounds, a.acks)
	if a.acks == 0 || a.failures > 0 {
		t.Errorf("%d acks, %d failures", a.acks, a.failures)
	}
}

// TestSystemCalls has strace kill a process at a system call, or make one fail.
func TestSystemCalls(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Fatalf("%v; install strace (apt-get install strace)", err)
	}
	rng := rand.New(rand.NewPCG(seed(t), 4))
	for _, c := range []struct{ call, inject string }{
		{"fdatasync", "error=EIO"}, {"fdatasync", "error=ENOSPC"}, {"pwrite64", "error=ENOSPC"}, {"pwrite64", "error=EIO"}, {"fallocate", "error=ENOSPC"},
		{"fsync", "error=EIO"}, {"renameat,renameat2", "error=EIO"}, {"pwrite64", "signal=KILL"}, {"fdatasync", "signal=KILL"}, {"fsync", "signal=KILL"},
		{"renameat,renameat2", "signal=KILL"}, {"unlinkat", "signal=KILL"}, {"openat", "signal=KILL"}, {"ftruncate", "signal=KILL"}, {"fallocate", "signal=KILL"},
	} {
		t.Run(c.call+" "+c.inject, func(t *testing.T) {
			a, hits := newAcked(t), 0
			for i := range scale(1, 2, 60) {
				when := 1 + rng.IntN(1+20*i)
				hits += a.traced(t, fmt.Sprintf("inject=%s:%s:when=%d", c.call, c.inject, when))
				a.check(t)
				if t.Failed() {
					t.Fatalf("at number %d", when)
				}
			}
			t.Logf("%d times met, %d acks", hits, a.acks)
			if hits == 0 {
				t.Error("never met")
			}
		})
	}
}

// traced runs a child under strace and returns 1 if it was killed or something failed.
func (a *acked) traced(t *testing.T, inject string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	failures := a.failures
	cmd := a.command(ctx, 1, 60, "strace", "-f", "-qq", "--seccomp-bpf", "-o", os.DevNull, "-e", inject)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	a.note(t, out.Bytes())
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err != nil && !ok:
		t.Fatal(err)
	case a.failures > failures:
		return 1
	case err == nil:
		return 0
	case !strings.Contains(exit.String(), "killed"):
		t.Fatalf("%v: %s %s", err, out.String(), errOut.String())
	}
	return 1
}
