// The names of a topic's consumers.

package topic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
)

// nameList is what is kept of the names: all of them in one entry, replaced by
// compare-and-swap. So it is read in one call, and old lists are trimmed.
type nameList struct {
	Names []string `json:"names"`
}

func namesStream(topic eventstore.Category) eventstore.Stream {
	return eventstore.Stream(string(positionCategory) + "-" + string(topic))
}

// prepare creates the category of positions where it is missing.
func (c *consumers) prepare(ctx context.Context) error {
	c.mu.Lock()
	ready := c.ready
	c.mu.Unlock()
	if ready {
		return nil
	}
	err := c.store.CreateCategory(ctx, eventstore.CategorySpec{Name: positionCategory, TrimFreely: true})
	if err == nil {
		c.mu.Lock()
		c.ready = true
		c.mu.Unlock()
	}
	return err
}

// names returns the consumers of a topic by name, and the head they were read at.
func (c *consumers) names(ctx context.Context, topic eventstore.Category) (names []string, h eventstore.Head, err error) {
	stream := namesStream(topic)
	for try := 0; ; try++ {
		h, err = c.store.Head(ctx, stream)
		if errors.Is(err, eventstore.ErrNoSuchCategory) {
			return nil, eventstore.Head{}, nil // nobody ever consumed under a name
		}
		if err != nil || h.Last.Seqno == 0 {
			return nil, h, err
		}
		page, err := c.store.ReadFrom(ctx, stream, h.Last.Seqno-1, 1)
		if try < commitTries && errors.Is(err, eventstore.ErrTrimmed) {
			continue // another list came between
		}
		if err != nil {
			return nil, h, err
		}
		var list nameList
		if len(page.Entries) == 0 || page.Entries[0].Mark() != h.Last || json.Unmarshal(page.Entries[0].Data, &list) != nil {
			return nil, h, &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: "read consumers", Stream: stream, Wanted: "a list of names", Found: "something else"}
		}
		return list.Names, h, nil
	}
}

// changeNames replaces the list by what change makes of it, nothing if that is the same.
func (c *consumers) changeNames(ctx context.Context, topic eventstore.Category, change func([]string) ([]string, error)) error {
	stream := namesStream(topic)
	for try := 1; ; try++ {
		names, h, err := c.names(ctx, topic)
		if err != nil {
			return err
		}
		wanted, err := change(slices.Clone(names))
		if err != nil || slices.Equal(names, wanted) {
			return err
		}
		data, err := json.Marshal(nameList{Names: wanted})
		if err != nil {
			return err
		}
		b := eventstore.Batch{ID: eventstore.NewUUID(), Stream: stream, Claim: true, Epoch: h.Epoch + 1, Holder: eventstore.NewUUID(), After: h.Last,
			Events: []eventstore.Event{{Type: typeNamed, Data: data}}}
		done, err := c.append(ctx, []eventstore.Batch{b})
		if err == nil {
			c.tidy(ctx, &position{stream: stream, last: done.Receipts[0].Last, trimmed: h.Trimmed})
			return nil
		}
		if try == MaxConsumers || !refused(err) {
			return err
		}
	}
}

// register adds a consumer to those of a topic.
func (c *consumers) register(ctx context.Context, topic eventstore.Category, name string) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	return c.changeNames(ctx, topic, func(names []string) ([]string, error) {
		at, is := slices.BinarySearch(names, name)
		if is {
			return names, nil
		}
		if len(names) >= MaxConsumers {
			return nil, &eventstore.Error{Kind: eventstore.ErrTooLarge, Op: "consume", Category: topic,
				Wanted: fmt.Sprintf("at most %d consumers", MaxConsumers), Found: "as many already", Hint: "delete those that are not used"}
		}
		return slices.Insert(names, at, name), nil
	})
}

// forget removes all names of a topic that is not there: a member that had not heard of
// that may have left one.
func (c *consumers) forget(ctx context.Context, topic eventstore.Category) error {
	return c.changeNames(ctx, topic, func([]string) ([]string, error) { return nil, nil })
}

// refused says if an append lost against another one: look again and decide anew.
func refused(err error) bool {
	for _, kind := range []error{eventstore.ErrFenced, eventstore.ErrAlreadyWritten, eventstore.ErrDiverged, eventstore.ErrGap} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
