// The report on several workers: the same figures as with one, also when one is killed
// and one frozen half way.

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/examples/loan/bank"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestDemoWorkers(t *testing.T) {
	t.Parallel()
	want, _ := expiredReportOf(t, 1, cut)
	for _, kind := range []string{"memory", "files", "postgres"} {
		for _, nats := range []bool{false, true} {
			for _, workers := range []string{"1", "8"} {
				t.Run(fmt.Sprintf("%s, nats %v, %s workers", kind, nats, workers), func(t *testing.T) {
					store := map[string]func() string{"memory": func() string { return "mem:" }, "postgres": func() string { return migrated(t) },
						"files": func() string { return "file:" + filepath.Join(t.TempDir(), "demo") }}[kind]()
					args := []string{"demo", "--json", "--cases", fmt.Sprint(cut), "--writers", "4", "--workers", workers, "--store", store}
					if nats {
						args = append(args, "--nats", natsURL(t))
					}
					for range 2 { // the second time a model in memory is made anew of what is there
						if r := wattle(t, args...).wants(t, 0); r.out != want {
							t.Errorf("wanted\n%sfound\n%s%s", want, r.out, r.err)
						}
					}
				})
			}
		}
	}
}

// holders is how many workers have lanes of the report.
func (p *progress) holders() int {
	return p.count("SELECT count(DISTINCT holder) FROM " + pgx.Identifier{p.schema, "checkpoints"}.Sanitize() +
		" WHERE projector = '" + bank.Projection + "' AND holder <> '00000000-0000-0000-0000-000000000000'")
}

// A demo beside three workers, which share the lanes before it begins: one is killed and one
// frozen while events come in; the figures are exact, and those of the thawed one, which goes
// on, too.
func TestDemoWorkersKilledAndFrozen(t *testing.T) {
	t.Parallel()
	binary := build(t)
	for _, nats := range []bool{false, true} {
		t.Run(fmt.Sprintf("nats %v", nats), func(t *testing.T) {
			t.Parallel()
			store := migrated(t)
			progress := &progress{t: t, pool: pgtest.Pool(t), schema: schemaOf(t, store)}
			args := []string{"--store", store}
			if nats {
				args = append(args, "--nats", natsURL(t))
			}
			worker := func() *process { return start(t, binary, append([]string{"demo", "--worker"}, args...)...) }
			killed, frozen, left := worker(), worker(), worker()
			until(t, "three workers to have lanes", func() bool { return progress.holders() == 3 })
			const cases = 600
			demo := func(cases int) *process {
				return start(t, binary, append([]string{"demo", "--json", "--writers", "4", "--cases", fmt.Sprint(cases)}, args...)...)
			}
			first := demo(cases)
			until(t, "the import to go on", func() bool { return progress.recorded() > 200 })
			send(t, killed, syscall.SIGKILL)
			send(t, frozen, syscall.SIGSTOP)
			if half := progress.projected(); half > cases*15 {
				t.Errorf("%d events were projected already: no longer half way", half)
			}
			want, _ := expiredReportOf(t, 1, cases)
			if code := first.end(t); code != 0 || first.out.String() != want {
				t.Errorf("wanted\n%sfound exit code %d and\n%s%s", want, code, first.out.String(), first.err.String())
			}
			send(t, frozen, syscall.SIGCONT)
			second := demo(cases + 100)
			want, expired := expiredReportOf(t, 1, cases+100)
			if code := second.end(t); code != 0 || second.out.String() != want {
				t.Errorf("behind the thaw: wanted\n%sfound exit code %d and\n%s%s", want, code, second.out.String(), second.err.String())
			}
			if expired == 0 {
				t.Error("no offer expired")
			}
			for _, w := range []*process{frozen, left} {
				send(t, w, syscall.SIGTERM)
				if code := w.end(t); code != 143 {
					t.Errorf("a worker ended with %d: %s", code, w.err.String())
				}
			}
			entries(t, store)
		})
	}
}

func send(t *testing.T, p *process, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatalf("%v to %q: %v", s, p.Args, err)
	}
}

// The workers that a demo starts end with it, also when it is killed; it goes on when they
// are killed.
func TestDemoStartsWorkers(t *testing.T) {
	t.Parallel()
	binary := build(t)
	store := migrated(t)
	progress := &progress{t: t, pool: pgtest.Pool(t), schema: schemaOf(t, store)}
	demo := start(t, binary, "demo", "--json", "--cases", "100000", "--workers", "3", "--store", store)
	until(t, "three workers to have lanes", func() bool { return progress.holders() == 3 })
	workers := children(t, demo.Process.Pid)
	if len(workers) != 2 {
		t.Fatalf("wanted 2 worker processes, found %v", workers)
	}
	send(t, demo, syscall.SIGKILL)
	until(t, "the workers to end", func() bool { return !alive(workers[0]) && !alive(workers[1]) })

	const cases = 300
	demo = start(t, binary, "demo", "--json", "--cases", fmt.Sprint(cases), "--seed", "2", "--workers", "3", "--store", migrated(t))
	until(t, "worker processes", func() bool { return len(children(t, demo.Process.Pid)) == 2 })
	for _, pid := range children(t, demo.Process.Pid) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	want, _ := expiredReportOf(t, 2, cases)
	if code := demo.end(t); code != 0 || demo.out.String() != want || strings.Count(demo.err.String(), "ended: signal: killed; the others take over") != 2 {
		t.Errorf("wanted\n%sfound exit code %d and\n%s%s", want, code, demo.out.String(), demo.err.String())
	}
}

// children are the processes that a process has started.
func children(t *testing.T, pid int) (all []int) {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,stat=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[1] == strconv.Itoa(pid) && !strings.HasPrefix(f[2], "Z") {
			child, _ := strconv.Atoi(f[0])
			all = append(all, child)
		}
	}
	return all
}

func alive(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}

func TestDemoWorkerUsage(t *testing.T) {
	t.Parallel()
	wattle(t, "demo", "--worker", "--cases", "3", "--store", "mem:").wants(t, exitUsage, "--worker or --cases")
	wattle(t, "demo", "--worker", "--store", "mem:").wants(t, exitUsage, "--worker with a store in PostgreSQL")
	wattle(t, "demo", "--workers", "0", "--store", "mem:").wants(t, exitUsage, "--workers", "1 to 64")
}
