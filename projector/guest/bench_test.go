// How much the contract costs: a projection behind it beside one that is a projector's
// handler itself.

package guest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
)

// direct is what accounts does with deposits, on Go values, without documents.
func direct() projector.Handler {
	open, totals := map[eventstore.Stream]Account{}, map[string]Total{}
	return projector.Memory(events, func(_ context.Context, e projector.Event[Event]) error {
		v := e.Value.(Deposited)
		a, t := open[e.Stream], totals[totalOf(e.Stream)]
		open[e.Stream], totals[totalOf(e.Stream)] = Account{a.Sum + v.Amount, a.N + 1, e.Seqno}, Total{t.N + 1, t.Sum + v.Amount}
		return nil
	})
}

// directJSON is the same with its values kept as JSON.
func directJSON() projector.Handler {
	docs := map[string][]byte{}
	get := func(key string, into any) {
		if doc := docs[key]; doc != nil {
			_ = json.Unmarshal(doc, into)
		}
	}
	return projector.Memory(events, func(_ context.Context, e projector.Event[Event]) (err error) {
		v := e.Value.(Deposited)
		var a Account
		var t Total
		get(string(e.Stream), &a)
		get(totalOf(e.Stream), &t)
		if docs[string(e.Stream)], err = json.Marshal(Account{a.Sum + v.Amount, a.N + 1, e.Seqno}); err != nil {
			return err
		}
		docs[totalOf(e.Stream)], err = json.Marshal(Total{t.N + 1, t.Sum + v.Amount})
		return err
	})
}

func BenchmarkProjection(b *testing.B) {
	e := newEnv(b, nil)
	r := rand.New(rand.NewPCG(1, 2))
	const entries = 10_000
	for range entries / 10 {
		var ten []Event
		for range 10 {
			ten = append(ten, Deposited{r.IntN(100)})
		}
		e.append(eventstore.Stream(fmt.Sprint("account-", r.IntN(200))), ten...)
	}
	far := func(h handler.Handler) func() projector.Handler {
		return func() projector.Handler { return guest.NewHandler(caller(b, h, nil), &guest.MemoryDocuments{}, nil) }
	}
	for _, c := range []struct {
		name string
		h    func() projector.Handler
	}{{"direct", direct}, {"direct-json", directJSON}, {"handler", far(guest.New(accounts))}, {"bytes", far(overBytes(guest.New(accounts)))}} {
		for _, batch := range []int{1, 100, 500} {
			b.Run(fmt.Sprintf("%s/batch=%d", c.name, batch), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					p := projector.New(e.store, "p", "account", c.h(), &projector.Options{PageSize: batch, NoHold: true})
					if _, err := p.CatchUp(b.Context(), 0); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*entries)/b.Elapsed().Seconds(), "entries/s")
			})
		}
	}
}
