// The campaign: a server, a database for each participant, interleaved runs.

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/wattle-es/wattle/migrations/pgtest"
)

const (
	eventType  = "bench.happened"
	payloadTop = `{"kind":"order.line-added","order":"4711","at":"2026-01-02T03:04:05.678Z","data":"`
	minPayload = len(payloadTop) + 2
)

// payloads are JSON objects of n bytes each, the same in every run.
func payloads(n int) [][]byte {
	random := mrand.New(mrand.NewPCG(1, 2))
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	all := make([][]byte, 64)
	for i := range all {
		all[i] = []byte(payloadTop)
		for len(all[i]) < n-2 {
			all[i] = append(all[i], letters[random.IntN(len(letters))])
		}
		all[i] = append(all[i], `"}`...)
	}
	return all
}

// serverSettings are those of a server for one busy store; what makes it durable is pgtest's default, as in production.
var serverSettings = map[string]string{
	"shared_buffers": "1GB", "max_wal_size": "4GB", "min_wal_size": "1GB", "checkpoint_timeout": "15min",
	"wal_level": "replica", "random_page_cost": "1.1", "jit": "off",
}

// bench is one campaign at work.
type bench struct {
	*options
	log      io.Writer // progress
	config   *pgxpool.Config
	control  *pgxpool.Pool
	payloads [][]byte
	acked    map[string]int64 // appends by participant
	report   *report
}

func campaign(ctx context.Context, o *options, log io.Writer) (*report, error) {
	b := &bench{options: o, log: log, payloads: payloads(o.payload), acked: map[string]int64{}, report: newReport(o)}
	dsn := o.dsn
	if dsn == "" {
		var settings []pgtest.Option
		for name, value := range serverSettings {
			settings = append(settings, pgtest.Setting(name, value))
		}
		server, err := pgtest.Launch(settings...)
		if err != nil {
			return nil, err
		}
		defer server.Close()
		dsn = server.DSN()
	}
	var err error
	if b.config, err = pgxpool.ParseConfig(dsn); err != nil {
		return nil, err
	}
	if b.control, err = pgxpool.NewWithConfig(ctx, b.config); err != nil {
		return nil, err
	}
	defer b.control.Close()
	if err := b.report.describe(ctx, b.control); err != nil {
		return nil, err
	}
	if o.appends {
		err = b.allAppends(ctx)
	}
	if o.reads && err == nil {
		err = b.allReads(ctx)
	}
	if err != nil {
		return nil, err
	}
	b.report.finish()
	return b.report, nil
}

// opened is a participant with its database.
type opened struct {
	participant
	store
	setup    *setup
	database string
}

// open makes a database for each of the participants and opens them.
func (b *bench) open(ctx context.Context, of []participant, streams, connections int) (all []*opened, err error) {
	for _, p := range of {
		var tag [4]byte
		rand.Read(tag[:])
		o := &opened{participant: p, database: "wattle_bench_" + strings.ReplaceAll(p.name, "-", "_") + "_" + hex.EncodeToString(tag[:])}
		if _, err := b.control.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{o.database}.Sanitize()); err != nil {
			return all, err
		}
		all = append(all, o)
		o.setup = &setup{config: b.config.Copy(), payloads: b.payloads, streams: streams, entries: b.readEntries}
		o.setup.config.ConnConfig.Database = o.database
		o.setup.config.MaxConns = int32(connections)
		if o.store, err = p.open(ctx, o.setup); err != nil {
			return all, fmt.Errorf("%s: %w", p.name, err)
		}
		if v := o.version(); v != "" {
			b.report.Versions[p.name] = v
		}
	}
	return all, nil
}

// close ends them and drops their databases, which a cancelled campaign does too.
func (b *bench) close(all []*opened) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, o := range all {
		if o.store != nil {
			o.store.close()
		}
		_, dropping := b.control.Exec(ctx, "DROP DATABASE "+pgx.Identifier{o.database}.Sanitize()+" WITH (FORCE)")
		err = errors.Join(err, dropping)
	}
	return err
}

// inTurn calls run for each participant, in another order every repeat, behind a checkpoint.
func (b *bench) inTurn(ctx context.Context, repeat int, all []*opened, run func(*opened) error) error {
	if _, err := b.control.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	first := repeat % len(all)
	for _, o := range slices.Concat(all[first:], all[:first]) {
		err := run(o)
		o.rest()
		if err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	return nil
}

func (b *bench) allAppends(ctx context.Context) (err error) {
	most := slices.Max(b.writers)
	all, err := b.open(ctx, b.chosen, most*b.streams, most)
	defer func() { err = errors.Join(err, b.close(all)) }()
	if err != nil {
		return err
	}
	for repeat := range b.repeats {
		for _, n := range b.writers {
			fmt.Fprintf(b.log, "appends: repeat %d of %d, %d writers\n", repeat+1, b.repeats, n)
			err := b.inTurn(ctx, repeat, all, func(o *opened) error { return b.appendRun(ctx, o, n) })
			if err != nil {
				return err
			}
		}
	}
	for _, o := range all {
		found, err := o.count(ctx)
		if err == nil && found != b.acked[o.name] {
			err = fmt.Errorf("%d appends were acknowledged, %d events are there", b.acked[o.name], found)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	return nil
}

// appendRun measures behind a short run that makes connections, statements and streams.
func (b *bench) appendRun(ctx context.Context, o *opened, writers int) error {
	warm, err := o.store.appends(ctx, writers, b.streams, b.duration()/5)
	b.acked[o.name] += int64(warm.events)
	if err != nil {
		return err
	}
	m, err := startMeter(ctx, b.control)
	if err != nil {
		return err
	}
	s, err := o.store.appends(ctx, writers, b.streams, b.duration())
	b.acked[o.name] += int64(s.events)
	if err != nil {
		return err
	}
	f, err := m.stop(ctx, s)
	b.report.append(o.participant, writers, f)
	return err
}

func (b *bench) allReads(ctx context.Context) (err error) {
	var of []participant
	for _, p := range b.chosen {
		if p.reads {
			of = append(of, p)
		}
	}
	if len(of) == 0 {
		return nil
	}
	all, err := b.open(ctx, of, b.readStreams, 4)
	defer func() { err = errors.Join(err, b.close(all)) }()
	if err != nil {
		return err
	}
	for _, o := range all {
		fmt.Fprintf(b.log, "reads: filling %s\n", o.name)
		if err := b.fill(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	for repeat := range b.repeats {
		fmt.Fprintf(b.log, "reads: repeat %d of %d\n", repeat+1, b.repeats)
		if err := b.inTurn(ctx, repeat, all, func(o *opened) error { return b.readRun(ctx, o) }); err != nil {
			return err
		}
	}
	return nil
}

// fill writes the events to be read, and vacuums as a server does by itself some time later.
func (b *bench) fill(ctx context.Context, o *opened) error {
	if err := o.fill(ctx); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, o.setup.config.ConnConfig)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "VACUUM (ANALYZE)")
	return err
}

func (b *bench) readRun(ctx context.Context, o *opened) error {
	var r readFigures
	_, err := o.loads(ctx, b.duration()/5) // makes connections and statements
	if err == nil {
		var loads sample
		loads, err = o.loads(ctx, b.duration())
		r.Load = rateOf(loads)
		r.LoadP50, r.LoadP99 = quantiles(loads.times)
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("loading: %w", err)
	}
	if r.Feed, err = b.repeated(ctx, o.catchUp); err != nil {
		return fmt.Errorf("catching up: %w", err)
	}
	if r.Scan, err = b.repeated(ctx, o.store.scan); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	b.report.read(o.participant, r)
	return nil
}

// repeated reads everything again and again for the duration and gives events per second, 0 where it cannot be done.
func (b *bench) repeated(ctx context.Context, read func(context.Context) (sample, error)) (float64, error) {
	var sum sample
	for sum.took < b.duration() {
		s, err := read(ctx)
		if errors.Is(err, errors.ErrUnsupported) {
			return 0, nil
		}
		if want := b.readStreams * b.readEntries; err == nil && s.events != want {
			err = fmt.Errorf("wanted %d events, found %d", want, s.events)
		}
		if err != nil {
			return 0, err
		}
		sum.events += s.events
		sum.took += s.took
	}
	return rateOf(sum), nil
}
