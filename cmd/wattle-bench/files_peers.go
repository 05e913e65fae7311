// The participants in files.

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/tidwall/wal"
	"go.etcd.io/bbolt"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/filelog"
)

// fileWattle is the product.
type fileWattle struct {
	store *eventstore.Store
	next  []eventstore.Batch // of each writer's stream, without events
}

func openFileWattle(dir string, writers int) (fileStore, error) {
	log, err := filelog.Open(dir, nil)
	if err != nil {
		return nil, err
	}
	w := &fileWattle{store: eventstore.New(log, nil)}
	for i := range writers {
		w.next = append(w.next, eventstore.Batch{Stream: streamName(i), Epoch: 1, Holder: eventstore.NewUUID(), Claim: true})
	}
	return w, w.store.CreateCategory(context.Background(), eventstore.CategorySpec{Name: category})
}

func (w *fileWattle) append(ctx context.Context, writer int, data []byte) error {
	b := w.next[writer]
	b.Events = []eventstore.Event{{Type: eventType, Data: data}}
	done, err := w.store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
	if err == nil {
		w.next[writer].Claim, w.next[writer].After = false, done.Receipts[0].Last
	}
	return err
}

func (w *fileWattle) count(ctx context.Context) (n int64, err error) {
	for i := range w.next {
		h, err := w.store.Head(ctx, streamName(i))
		if err != nil {
			return 0, err
		}
		n += int64(h.Last.Seqno)
	}
	return n, nil
}

func (w *fileWattle) close() error { return w.store.Close() }

// bolt keeps an event under writer and number.
type bolt struct {
	db   *bbolt.DB
	do   func(func(*bbolt.Tx) error) error
	next []uint64
}

var boltBucket = []byte("events")

func openBolt(update bool) func(dir string, writers int) (fileStore, error) {
	return func(dir string, writers int) (fileStore, error) {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		db, err := bbolt.Open(filepath.Join(dir, "db"), 0o600, nil)
		if err != nil {
			return nil, err
		}
		b := &bolt{db: db, do: db.Batch, next: make([]uint64, writers)}
		if update {
			b.do = db.Update
		}
		db.MaxBatchSize = writers
		return b, db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket(boltBucket); return err })
	}
}

func (b *bolt) append(_ context.Context, writer int, data []byte) error {
	var key [16]byte
	binary.BigEndian.PutUint64(key[:], uint64(writer))
	binary.BigEndian.PutUint64(key[8:], b.next[writer])
	b.next[writer]++
	return b.do(func(tx *bbolt.Tx) error { return tx.Bucket(boltBucket).Put(key[:], data) })
}

func (b *bolt) count(context.Context) (n int64, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		n = int64(tx.Bucket(boltBucket).Stats().KeyN)
		return nil
	})
	return n, err
}

func (b *bolt) close() error { return b.db.Close() }

// tidwall writes one entry at a time.
type tidwall struct {
	log  *wal.Log
	mu   sync.Mutex
	last uint64
}

func openTidwall(dir string, _ int) (fileStore, error) {
	log, err := wal.Open(dir, nil)
	return &tidwall{log: log}, err
}

func (t *tidwall) append(_ context.Context, _ int, data []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	return t.log.Write(t.last, data)
}

func (t *tidwall) count(context.Context) (int64, error) {
	n, err := t.log.LastIndex()
	return int64(n), err
}

func (t *tidwall) close() error { return t.log.Close() }

// tidwallGrouped writes what waits as one batch.
type tidwallGrouped struct {
	tidwall
	queue chan waiting
	ended chan struct{}
}

type waiting struct {
	data []byte
	done chan error
}

func openTidwallGrouped(dir string, writers int) (fileStore, error) {
	log, err := wal.Open(dir, nil)
	if err != nil {
		return nil, err
	}
	t := &tidwallGrouped{tidwall: tidwall{log: log}, queue: make(chan waiting, writers), ended: make(chan struct{})}
	go t.run()
	return t, nil
}

func (t *tidwallGrouped) run() {
	defer close(t.ended)
	var batch wal.Batch
	for first := range t.queue {
		group := []waiting{first}
		for more := true; more; {
			select {
			case w, ok := <-t.queue:
				if more = ok; ok {
					group = append(group, w)
				}
			default:
				more = false
			}
		}
		batch.Clear()
		for _, w := range group {
			t.last++
			batch.Write(t.last, w.data)
		}
		err := t.log.WriteBatch(&batch)
		for _, w := range group {
			w.done <- err
		}
	}
}

func (t *tidwallGrouped) append(_ context.Context, _ int, data []byte) error {
	w := waiting{data, make(chan error, 1)}
	t.queue <- w
	return <-w.done
}

func (t *tidwallGrouped) close() error {
	close(t.queue)
	<-t.ended
	return t.tidwall.close()
}

// natsStore is a JetStream of one file stream in this process.
type natsStore struct {
	server *server.Server
	conn   *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
}

func openNATS(dir string, _ int) (fileStore, error) {
	s, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: dir, SyncAlways: true, NoLog: true, NoSigs: true,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 64 << 30})
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("the server does not start")
	}
	n := &natsStore{server: s}
	if n.conn, err = nats.Connect("", nats.InProcessServer(s)); err != nil {
		return n, err
	}
	if n.js, err = jetstream.New(n.conn); err != nil {
		return n, err
	}
	n.stream, err = n.js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "bench", Subjects: []string{"bench.*"}, Storage: jetstream.FileStorage})
	return n, err
}

func (n *natsStore) append(ctx context.Context, writer int, data []byte) error {
	_, err := n.js.Publish(ctx, fmt.Sprintf("bench.%d", writer), data)
	return err
}

func (n *natsStore) count(ctx context.Context) (int64, error) {
	info, err := n.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int64(info.State.Msgs), nil
}

func (n *natsStore) close() error {
	if n.conn != nil {
		n.conn.Close()
	}
	n.server.Shutdown()
	n.server.WaitForShutdown()
	return nil
}
