// The conformance suite on PostgreSQL.

package pglog_test

import (
	"context"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/pglog"
	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	pool, schema := pgtest.Schema(t)
	l, err := pglog.Open(ctx, pool, &pglog.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	s := eventstore.New(l, nil)
	if err := s.CreateCategory(ctx, eventstore.CategorySpec{Name: "account"}); err != nil {
		t.Fatal(err)
	}
	h := eventstore.NewUUID()
	b := eventstore.Batch{ID: eventstore.NewUUID(), Stream: "account-a", Epoch: 1, Holder: h, Claim: true, Events: []eventstore.Event{{Type: "x"}, {Type: "y", Data: []byte("1")}}}
	for range 2 {
		a, err := s.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b}})
		t.Log(a, err)
		if err != nil {
			t.Fatal(err)
		}
	}
	b2 := b
	b2.ID = eventstore.NewUUID()
	_, err = s.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b2}})
	t.Log(err)
	b3 := b2
	b3.Stream = "account-b"
	_, err = s.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b3, b2}})
	t.Log(err)
	b2.Stream = "account-c"
	b2.ID = eventstore.NewUUID()
	a, err := s.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{b3, b2}, Guards: []eventstore.Guard{{Stream: "account-z"}}})
	t.Log(a, err)
	p, err := s.ReadFeed(ctx, 0, eventstore.Filter{}, 0)
	t.Log(p, err)
	p, err = s.ReadFeed(ctx, 0, eventstore.Filter{Categories: []eventstore.Category{"account"}, Types: []string{"y"}}, 0)
	t.Log(p, err)
	l1, err := s.Load(ctx, "account-a", "fp")
	t.Log(l1, err)
	hd, err := s.Fence(ctx, "account-a", h)
	t.Log(hd, err)
	hd, err = s.FenceAt(ctx, "account-q", 7, h)
	t.Log(hd, err)
	t.Log(s.SaveSnapshot(ctx, eventstore.Snapshot{Stream: "account-a", At: hd.Last, Fingerprint: "fp"}))
	tr, err := s.Trim(ctx, "account-a", 1, false)
	t.Log(tr, err)
	ls, ok, err := s.AcquireLease(ctx, "n", h, 0)
	t.Log(ls, ok, err)
	ls, err = s.RenewLease(ctx, ls, 0)
	t.Log(ls, err)
	t.Log(s.SetHold(ctx, eventstore.Hold{Name: "x", Category: "account"}))
	t.Log(s.SetHold(ctx, eventstore.Hold{Name: "x", Stream: "account-a", Seqno: 1}))
	t.Log(s.ListHolds(ctx))
	t.Log(s.DeleteCategory(ctx, "account"))
	_, err = s.Head(ctx, "account-a")
	t.Log(err)
}
