// Snapshots in the place of what was trimmed reach a projection that asks for them.

package guest_test

import (
	"encoding/json"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/projector"
	"github.com/wattle-es/wattle/projector/guest"
)

func TestSnapshots(t *testing.T) {
	e := newEnv(t, nil)
	e.append("account-1", Deposited{1}, Deposited{2}, Deposited{3})
	sn := eventstore.Snapshot{Stream: "account-1", At: e.marks["account-1"], Fingerprint: "f", ContentType: "application/json", Data: []byte(`{"Sum":6,"N":3,"Last":3}`)}
	e.ok(e.store.SaveSnapshot(t.Context(), sn))
	_, err := e.store.Trim(t.Context(), "account-1", 3, false)
	e.ok(err)
	e.append("account-1", Deposited{4})
	e.append("account-2", Deposited{5})
	p := accounts
	p.Keys = nil
	p.Apply = func(ev projector.Event[Event], docs *guest.Docs) error {
		var a Account
		if sn, ok := ev.Snapshot(); ok {
			if err := json.Unmarshal(sn.Data, &a); err != nil {
				return err
			}
			docs.Put(string(ev.Stream), a)
			return nil
		}
		docs.Get(string(ev.Stream), &a)
		docs.Put(string(ev.Stream), Account{a.Sum + ev.Value.(Deposited).Amount, a.N + 1, ev.Seqno})
		return nil
	}
	for name, h := range map[string]handler.Handler{"in process": guest.New(p), "bytes": overBytes(guest.New(p))} {
		docs := &guest.MemoryDocuments{}
		pr := guest.NewProjector(e.store, "p", caller(t, h, nil), docs, &guest.Options{Projector: projector.Options{Snapshots: true}})
		if _, err := pr.CatchUp(within(t), 0); err != nil {
			t.Fatal(name, err)
		}
		same(t, docs, "p", 1, map[string]string{"account-1": text(Account{10, 4, 4}), "account-2": text(Account{5, 1, 1})})
	}
}
