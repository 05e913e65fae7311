// The ways: appends and publications, embedded and through a server, on files and on
// PostgreSQL, and JetStream.

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	nats "github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/migrations"
	"github.com/wattle-es/wattle/migrations/pgtest"
	"github.com/wattle-es/wattle/server"
	"github.com/wattle-es/wattle/server/policy"
	"github.com/wattle-es/wattle/topic"
	"github.com/wattle-es/wattle/topic/remotetopic"
)

// bench is all that is measured, and what ends it.
type bench struct {
	ways   []*way
	sites  []*site
	ending []func() error
}

// site is a store with a server in front of it.
type site struct {
	name   string
	store  *eventstore.Store
	remote *eventstore.Store
	log    *remotelog.Log
	url    string
	topics topic.Service // embedded
	client topic.Service
}

func (b *bench) onEnd(f func() error) { b.ending = append(b.ending, f) }

func (b *bench) close() {
	for i := len(b.ending) - 1; i >= 0; i-- {
		_ = b.ending[i]() // the figures are there
	}
}

func openBench(ctx context.Context, publishers int) (b *bench, err error) {
	b = &bench{}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	dir, err := os.MkdirTemp("", "wattle-bench-")
	if err != nil {
		return b, err
	}
	b.onEnd(func() error { return os.RemoveAll(dir) })
	files, err := filelog.Open(filepath.Join(dir, "files"), nil)
	if err != nil {
		return b, err
	}
	if err := b.add(ctx, "files", files, publishers); err != nil {
		return b, err
	}
	pg, err := b.postgres(ctx)
	if err != nil {
		return b, err
	}
	if err := b.add(ctx, "PostgreSQL", pg, publishers); err != nil {
		return b, err
	}
	return b, b.jetStream(ctx, filepath.Join(dir, "nats"))
}

func (b *bench) postgres(ctx context.Context) (eventstore.Log, error) {
	s, err := pgtest.Launch()
	if err != nil {
		return nil, err
	}
	b.onEnd(func() error { s.Close(); return nil })
	pool, err := pgxpool.New(ctx, s.DSN())
	if err != nil {
		return nil, err
	}
	b.onEnd(func() error { pool.Close(); return nil })
	if err := migrations.Up(ctx, pool, migrations.DefaultSchema); err != nil {
		return nil, err
	}
	return pglog.Open(ctx, pool, nil)
}

// add serves a log and adds the ways on it.
func (b *bench) add(ctx context.Context, name string, log eventstore.Log, publishers int) error {
	hub := remotelog.NewHub(nil)
	x := &site{name: name, store: eventstore.New(log, &eventstore.Options{Announcer: hub})}
	b.onEnd(x.store.Close)
	broker, err := topic.NewBroker(ctx, x.store, nil)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- broker.Run(running) }()
	b.onEnd(func() error { stop(); return <-ran })
	x.topics = broker
	if err := b.serve(ctx, x, hub, broker); err != nil {
		return err
	}
	for _, c := range []eventstore.Category{"near", "far"} {
		if err := x.store.CreateCategory(ctx, eventstore.CategorySpec{Name: c, TrimFreely: true}); err != nil {
			return err
		}
	}
	if err := x.topics.Create(ctx, topic.Spec{Name: "orders"}); err != nil {
		return err
	}
	near, far := appends(x.store, "near", publishers), appends(x.remote, "far", publishers)
	b.ways = append(b.ways, &way{name: name + ": append, embedded", publish: near}, &way{name: name + ": append, server", publish: far},
		&way{name: name + ": publish, embedded", publish: publications(x.topics)}, &way{name: name + ": publish, server", publish: publications(x.client)})
	b.sites = append(b.sites, x)
	return nil
}

// serve puts a server in front of a site, with a policy and all limits, on loopback.
func (b *bench) serve(ctx context.Context, x *site, hub *remotelog.Hub, broker *topic.Broker) error {
	anybody, err := policy.Parse("anonymous * *\n")
	if err != nil {
		return err
	}
	s, err := server.New(server.Options{Policy: policy.Fixed(anybody), Anonymous: true})
	if err != nil {
		return err
	}
	for _, h := range remotelog.NewService(x.store, &remotelog.ServiceOptions{Hub: hub, Options: s.HandlerOptions()}).Handlers() {
		if err := s.Mount(h.Path, h); err != nil {
			return err
		}
	}
	if err := s.Mount(remotetopic.NewService(broker, &remotetopic.ServiceOptions{Options: s.HandlerOptions()}).Handler()); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- s.Serve(serving, l) }()
	b.onEnd(func() error { stop(); return <-served })
	x.url = "http://" + l.Addr().String()
	if x.log, err = remotelog.Open(ctx, x.url, nil); err != nil {
		return err
	}
	x.remote = eventstore.New(x.log, nil)
	b.onEnd(x.remote.Close)
	client, err := remotetopic.Open(ctx, []string{x.url}, nil)
	if err != nil {
		return err
	}
	b.onEnd(client.Close)
	x.client = client
	return nil
}

// appends has each publisher append to a stream of its own, as a warm handler does.
func appends(store *eventstore.Store, c eventstore.Category, publishers int) func(context.Context, int, []byte) error {
	holder, at := eventstore.NewUUID(), make([]eventstore.Mark, publishers)
	return func(ctx context.Context, p int, data []byte) error {
		b := eventstore.Batch{Stream: eventstore.Stream(string(c) + "-" + strconv.Itoa(p)), Epoch: 1, Holder: holder, Claim: at[p].Seqno == 0, After: at[p],
			Events: []eventstore.Event{{Type: "message", ContentType: "application/octet-stream", Data: data}}}
		done, err := store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
		if err == nil {
			at[p] = done.Receipts[0].Last
		}
		return err
	}
}

// publications has each publisher publish under a key of its own.
func publications(s topic.Service) func(context.Context, int, []byte) error {
	return func(ctx context.Context, p int, data []byte) error {
		m := topic.Publication{Topic: "orders", Key: strconv.Itoa(p), ID: eventstore.NewUUID(), Events: []eventstore.Event{{Type: "message", ContentType: "application/octet-stream", Data: data}}}
		for {
			_, err := s.Publish(ctx, m)
			if !errors.Is(err, topic.ErrNotOwner) { // the broker is taking its partitions still
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// jetStream adds NATS JetStream: embedded in this process, and over loopback.
func (b *bench) jetStream(ctx context.Context, dir string) error {
	s, err := nats.NewServer(&nats.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, SyncAlways: true, NoLog: true, NoSigs: true,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 64 << 30})
	if err != nil {
		return err
	}
	s.Start()
	b.onEnd(func() error { s.Shutdown(); s.WaitForShutdown(); return nil })
	if !s.ReadyForConnections(10 * time.Second) {
		return errors.New("NATS does not start")
	}
	for _, c := range []struct {
		name string
		o    []natsclient.Option
	}{{"embedded", []natsclient.Option{natsclient.InProcessServer(s)}}, {"server", nil}} {
		conn, err := natsclient.Connect(s.ClientURL(), c.o...)
		if err != nil {
			return err
		}
		b.onEnd(func() error { conn.Close(); return nil })
		js, err := jetstream.New(conn)
		if err != nil {
			return err
		}
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: c.name, Subjects: []string{c.name + ".*"}, Storage: jetstream.FileStorage}); err != nil {
			return err
		}
		b.ways = append(b.ways, &way{name: "JetStream, sync always, " + c.name, publish: func(ctx context.Context, p int, data []byte) error {
			_, err := js.Publish(ctx, fmt.Sprintf("%s.%d", c.name, p), data)
			return err
		}})
	}
	return nil
}
