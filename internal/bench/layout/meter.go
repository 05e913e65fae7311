// What a run cost the server: WAL, and CPU where /proc tells it.

package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// meter measures from its start to its stop.
type meter struct {
	b     *campaign
	began time.Time
	wal   int64
	cpu   time.Duration
}

func (b *campaign) startMeter(ctx context.Context) (*meter, error) {
	m := &meter{b: b}
	var err error
	if m.wal, err = b.walPosition(ctx); err != nil {
		return nil, err
	}
	m.cpu = b.serverCPU(ctx)
	m.began = time.Now()
	return m, nil
}

// stop gives the figures per append.
func (m *meter) stop(ctx context.Context, times []time.Duration) (figures, error) {
	f := evaluate(times, time.Since(m.began))
	cpu := m.b.serverCPU(ctx) - m.cpu
	wal, err := m.b.walPosition(ctx)
	f.cpu = float64(cpu.Microseconds()) / float64(len(times))
	f.wal = float64(wal-m.wal) / float64(len(times))
	return f, err
}

// walPosition in bytes.
func (b *campaign) walPosition(ctx context.Context) (n int64, err error) {
	err = b.pool.QueryRow(ctx, `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&n)
	return n, err
}

// serverCPU is the time that the server's processes have used so far, 0 where it cannot be known.
func (b *campaign) serverCPU(ctx context.Context) time.Duration {
	var data string
	if b.pool.QueryRow(ctx, `SHOW data_directory`).Scan(&data) != nil {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0
	}
	postmaster, _, _ := strings.Cut(string(text), "\n")
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var ticks int64
	for _, path := range stats {
		ticks += processTicks(path, postmaster)
	}
	return time.Duration(ticks) * (time.Second / 100) // USER_HZ is 100 on every Linux
}

// processTicks is the CPU of one process if it is the postmaster, its ended children included, or a child of it.
func processTicks(path, postmaster string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0 // it has ended
	}
	pid := filepath.Base(filepath.Dir(path))
	_, rest, _ := strings.Cut(string(text), ") ") // the command may hold anything but ends so
	fields := strings.Fields(rest)                // from field 3, state; 4 is the parent
	if len(fields) < 15 {
		return 0
	}
	used := fields[11:13] // utime, stime
	if pid == postmaster {
		used = fields[11:15] // and those of waited-for children
	} else if fields[1] != postmaster {
		return 0
	}
	var sum int64
	for _, f := range used {
		n, _ := strconv.ParseInt(f, 10, 64)
		sum += n
	}
	return sum
}

// private is a backend's private memory in kB, "-" where it cannot be known.
func private(pid uint32) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/smaps_rollup")
	if err != nil {
		return "-"
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Private_Dirty:"); ok {
			return strings.TrimSuffix(strings.TrimSpace(rest), " kB")
		}
	}
	return "-"
}
