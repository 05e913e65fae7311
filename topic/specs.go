// What topics and brokers there are, as it is written to the store.

package topic

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Types of the events in CategoryName. The last one of a stream says all there is to
// say, so those before it are trimmed.
const (
	typeCreated  = "topic.created"  // with the spec; the category may still be on its way
	typeDeleting = "topic.deleting" // nobody may use it; something of it may still be there
	typeDeleted  = "topic.deleted"
	typeSeated   = "broker.seated" // who has a seat, and its address
)

// seatKey is what the keys of seats' streams begin with: no topic has a '-' in its name.
const seatKey = "-"

type specData struct {
	Topic       eventstore.UUID `json:"topic,omitzero"` // its id, where it is being deleted
	Partitions  int             `json:"partitions"`
	DedupWindow time.Duration   `json:"dedup_window"`
	MaxBytes    int64           `json:"max_bytes,omitempty"`
	MaxAge      time.Duration   `json:"max_age,omitempty"`
	Consumed    bool            `json:"consumed,omitempty"`
}

type seatData struct {
	Holder  eventstore.UUID `json:"holder"`
	Address string          `json:"address"`
}

// topics is what this broker knows of the category: b.mu guards it.
type topics struct {
	by        map[eventstore.Category]known
	addresses map[eventstore.UUID]string // of brokers, by holder
	seats     map[string]eventstore.UUID // who wrote last to the stream of a seat
	at        eventstore.Position
	asOf      time.Time // when the store was asked last, on this process's clock
}

// known is a topic that exists, or one half deleted.
type known struct {
	spec     Spec
	id       eventstore.UUID // of the event that created it: another one after it was deleted and created again
	deleting bool
}

// refresh reads what has been written to the category since the last time.
func (b *Broker) refresh(ctx context.Context) error {
	began := time.Now()
	b.mu.Lock()
	after := b.topics.at
	b.mu.Unlock()
	f := eventstore.Filter{Categories: []eventstore.Category{CategoryName}, AcceptTrimmed: true}
	for {
		page, err := b.store.ReadFeed(ctx, after, f, 0)
		if err != nil {
			return err
		}
		b.mu.Lock()
		if page.Drawn < after { // another history: the store was restored
			b.topics, after = topics{}, 0
			b.mu.Unlock()
			continue
		}
		for _, e := range page.Entries {
			// Two that read at once come to the same: what is older is passed over.
			if e.Position > b.topics.at {
				b.topics.take(e)
			}
		}
		if p := page.Through.Position; p > after {
			after = p
			b.topics.at = max(b.topics.at, p)
		}
		if page.End {
			b.topics.asOf = began
			b.mu.Unlock()
			return nil
		}
		b.mu.Unlock()
	}
}

// take applies one entry. What cannot be read was written by a later version: it is
// passed over.
func (t *topics) take(e eventstore.Entry) {
	if t.by == nil {
		t.by, t.addresses, t.seats = map[eventstore.Category]known{}, map[eventstore.UUID]string{}, map[string]eventstore.UUID{}
	}
	key := e.Stream.Key()
	if seat, ok := strings.CutPrefix(key, seatKey); ok {
		t.seated(seat, e)
		return
	}
	name := eventstore.Category(key)
	switch e.Type {
	case typeCreated, typeDeleting:
		if k, ok := knownOf(name, e); ok {
			t.by[name] = k
		}
	case typeDeleted:
		delete(t.by, name)
	}
}

func (t *topics) seated(seat string, e eventstore.Entry) {
	var d seatData
	if e.Type != typeSeated || json.Unmarshal(e.Data, &d) != nil {
		return
	}
	before := t.seats[seat]
	t.seats[seat] = d.Holder
	// Brokers whose leases ran out may have taken one another's seats.
	if !slices.Contains(slices.Collect(maps.Values(t.seats)), before) {
		delete(t.addresses, before)
	}
	t.addresses[d.Holder] = d.Address
}

func knownOf(name eventstore.Category, e eventstore.Entry) (known, bool) {
	var d specData
	if err := json.Unmarshal(e.Data, &d); err != nil || d.Partitions < 1 || d.Partitions > MaxPartitions {
		return known{}, false
	}
	id := e.ID
	if e.Type == typeDeleting && !d.Topic.IsZero() {
		id = d.Topic // what is kept about its consumers goes by it
	}
	return known{id: id, deleting: e.Type == typeDeleting, spec: Spec{Name: name, Partitions: d.Partitions, DedupWindow: d.DedupWindow,
		Retention: Retention{MaxBytes: d.MaxBytes, MaxAge: d.MaxAge, Consumed: d.Consumed}}}, true
}

func (k known) data() []byte {
	s := k.spec
	data, _ := json.Marshal(specData{k.id, s.Partitions, s.DedupWindow, s.Retention.MaxBytes, s.Retention.MaxAge, s.Retention.Consumed}) // cannot fail
	return data
}

// find returns a topic that exists, without asking the store.
func (b *Broker) find(name eventstore.Category) (known, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k, ok := b.topics.by[name]
	return k, ok && !k.deleting
}

// lookup returns a topic, or ErrNoSuchTopic. What is known is believed for as long as a
// beat, and for staleAfter by a broker that does not run; what is not known is asked for.
func (b *Broker) lookup(ctx context.Context, op string, name eventstore.Category) (known, error) {
	if _, err := eventstore.ParseCategory(string(name)); err != nil {
		return known{}, err
	}
	k, ok := b.find(name)
	b.mu.Lock()
	stale := !b.running && time.Since(b.topics.asOf) > staleAfter
	b.mu.Unlock()
	if ok && !stale {
		return k, nil
	}
	if err := b.refresh(ctx); err != nil {
		return known{}, err
	}
	if k, ok = b.find(name); !ok {
		return known{}, noSuchTopic(op, name)
	}
	return k, nil
}

func noSuchTopic(op string, name eventstore.Category) error {
	return &eventstore.Error{Kind: ErrNoSuchTopic, Op: op, Category: name, Wanted: "topic " + string(name), Found: "none of that name",
		Hint: "create it first"}
}

// write appends the one event that now says all of a stream of CategoryName, and trims
// what stood before it. The caller has read the stream's head: that is the check.
func (b *Broker) write(ctx context.Context, s eventstore.Stream, h eventstore.Head, epoch eventstore.Epoch, kind string, data []byte) error {
	batch := eventstore.Batch{Stream: s, Epoch: max(epoch, h.Epoch+1), Holder: b.holder, Claim: true, After: h.Last,
		ID: eventstore.NewUUID(), Events: []eventstore.Event{{Type: kind, Data: data}}}
	done, err := appendKnown(ctx, b.store, []eventstore.Batch{batch}, writeTries)
	if err != nil {
		return err
	}
	if last := done.Receipts[0].Last.Seqno; last > 1 {
		_, err = b.store.Trim(ctx, s, last-1, false)
	}
	return err
}

// pause waits, or says that ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// seatStream is the stream of a seat whose lease has this name.
func seatStream(lease string) eventstore.Stream {
	return eventstore.Stream(fmt.Sprintf("%s-%s%s", CategoryName, seatKey, strings.TrimPrefix(lease, leasePrefix)))
}

// announceSeat writes this broker's address to the stream of its seat, once for each
// time that it gets one.
func (b *Broker) announceSeat(ctx context.Context, seat eventstore.Lease) error {
	s := seatStream(seat.Name)
	h, err := b.store.Head(ctx, s)
	if err != nil || h.Holder == b.holder && h.Epoch >= seat.Epoch {
		return err
	}
	data, err := json.Marshal(seatData{b.holder, b.o.Address})
	if err != nil {
		return err
	}
	return b.write(ctx, s, h, seat.Epoch, typeSeated, data)
}
