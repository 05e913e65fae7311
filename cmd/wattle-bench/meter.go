// What a run cost: WAL, and CPU time of server, client and others where /proc tells it.

package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// figures are those of one run of appends, or medians.
type figures struct {
	Rate      float64 `json:"appends_per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	WAL       float64 `json:"wal_bytes_per_append"`
	ServerCPU float64 `json:"server_cpu_us_per_append"` // 0: unknown
	ClientCPU float64 `json:"client_cpu_us_per_append"`
	Others    float64 `json:"cpu_of_others"` // share of the machine used by neither server nor client
}

// meter measures from its start to its stop.
type meter struct {
	control    *pgxpool.Pool
	postmaster string // its process id; empty: not on this machine
	wal        int64
	server     time.Duration
	busy       time.Duration // of the machine
	began      time.Time
}

func startMeter(ctx context.Context, control *pgxpool.Pool) (*meter, error) {
	m := &meter{control: control, postmaster: findPostmaster(ctx, control)}
	var err error
	m.wal, err = m.walPosition(ctx)
	m.server, m.busy, m.began = serverCPU(m.postmaster), busyCPU(), time.Now()
	return m, err
}

func (m *meter) stop(ctx context.Context, s sample) (figures, error) {
	server, busy, took := serverCPU(m.postmaster)-m.server, busyCPU()-m.busy, time.Since(m.began)
	wal, err := m.walPosition(ctx)
	n := float64(max(s.events, 1))
	f := figures{Rate: rateOf(s), WAL: float64(wal-m.wal) / n, ServerCPU: micros(server) / n, ClientCPU: micros(s.cpu) / n}
	f.P50, f.P99 = quantiles(s.times)
	if busy > 0 && m.postmaster != "" {
		f.Others = max(0, float64(busy-server-s.cpu)/float64(took)/float64(runtime.NumCPU()))
	}
	return f, err
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func rateOf(s sample) float64 { return float64(s.events) / s.took.Seconds() }

// quantiles are median and 99th percentile in µs.
func quantiles(times []time.Duration) (p50, p99 float64) {
	if len(times) == 0 {
		return 0, 0
	}
	times = slices.Sorted(slices.Values(times))
	return micros(times[(len(times)-1)/2]), micros(times[(len(times)-1)*99/100])
}

// walPosition in bytes.
func (m *meter) walPosition(ctx context.Context) (n int64, err error) {
	err = m.control.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&n)
	return n, err
}

// findPostmaster is the parent of a backend of a server on this machine.
func findPostmaster(ctx context.Context, control *pgxpool.Pool) string {
	host := control.Config().ConnConfig.Host
	if ip := net.ParseIP(host); host != "localhost" && !strings.HasPrefix(host, "/") && (ip == nil || !ip.IsLoopback()) {
		return ""
	}
	var pid int
	if control.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid) != nil {
		return ""
	}
	name, fields := processStat(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if len(fields) < 15 || !strings.Contains(name, "postgres") { // another's process with that number
		return ""
	}
	return fields[1]
}

// serverCPU is what the server's processes have used so far, the ended ones too.
func serverCPU(postmaster string) time.Duration {
	if postmaster == "" {
		return 0
	}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the only error is a malformed pattern
	var ticks int64
	for _, path := range paths {
		_, fields := processStat(path)
		switch {
		case len(fields) < 15: // it has ended
		case filepath.Base(filepath.Dir(path)) == postmaster:
			ticks += sum(fields[11:15]) // utime, stime and those of waited-for children
		case fields[1] == postmaster:
			ticks += sum(fields[11:13])
		}
	}
	return ofTicks(ticks)
}

// processStat is a process's command and the fields from the third on: state, parent, …
func processStat(path string) (string, []string) {
	text, err := os.ReadFile(path)
	i := strings.LastIndexByte(string(text), ')') // the command may hold anything
	if err != nil || i < 0 {
		return "", nil
	}
	return string(text[:i]), strings.Fields(string(text[i+1:]))
}

// busyCPU is what the whole machine has used so far, 0 where it cannot be known.
func busyCPU() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	f := strings.Fields(line)
	if len(f) < 9 {
		return 0
	}
	return ofTicks(sum(f[1:4]) + sum(f[6:9])) // user, nice, system; irq, softirq, steal
}

func sum(fields []string) (n int64) {
	for _, f := range fields {
		v, _ := strconv.ParseInt(f, 10, 64)
		n += v
	}
	return n
}

func ofTicks(n int64) time.Duration { return time.Duration(n) * (time.Second / 100) } // USER_HZ is 100 on every Linux

// loadAverage of the last minute, as /proc tells it; empty elsewhere.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
