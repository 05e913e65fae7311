// Creating, describing, listing and deleting topics.

package topic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// writeTries is how often an event about a topic is sent while its outcome is unknown.
const writeTries = 10

// alone does f while nobody else creates or deletes this topic. It waits for one who does
// until ctx ends; one who was killed is waited for as long as a lease lasts. f that takes
// longer than that is no longer alone, so it must not take for ever.
func (b *Broker) alone(ctx context.Context, name eventstore.Category, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 3*b.o.LeaseTTL)
	defer cancel()
	holder := eventstore.NewUUID() // of this call: others of this broker wait too
	for {
		lease, granted, err := b.store.AcquireLease(ctx, "topicadmin/"+string(name), holder, b.o.LeaseTTL)
		if err != nil {
			return err
		}
		if granted {
			err = f(ctx)
			_ = b.store.ReleaseLease(context.WithoutCancel(ctx), lease) // else it runs out
			b.wake()
			return err
		}
		if !pause(ctx, adminPause) {
			return ctx.Err()
		}
	}
}

// Create creates a topic; see [Service]. What a Create that was cut off has left undone
// is done by the next one.
func (b *Broker) Create(ctx context.Context, spec Spec) error {
	const op = "create topic"
	if err := spec.complete(op); err != nil {
		return err
	}
	return b.alone(ctx, spec.Name, func(ctx context.Context) error { return b.create(ctx, op, spec) })
}

func (b *Broker) create(ctx context.Context, op string, spec Spec) error {
	h, have, err := b.current(ctx, spec.Name)
	if err != nil {
		return err
	}
	if have.deleting {
		if err := b.finishDelete(ctx, spec.Name, h, have); err != nil {
			return err
		}
		if h, have, err = b.current(ctx, spec.Name); err != nil {
			return err
		}
	}
	switch {
	case have.id.IsZero():
		if err := b.unused(ctx, op, spec.Name); err != nil {
			return err
		}
		if err := b.consumers.forget(ctx, spec.Name); err != nil {
			return err
		}
		if err := b.write(ctx, topicStream(spec.Name), h, 0, typeCreated, known{spec: spec}.data()); err != nil {
			return err
		}
	case have.spec != spec:
		return invalid(op, spec.Name, spec.describe(), "it exists as "+have.spec.describe(), "use the spec it was created with, or delete it first")
	}
	if err := b.lay(ctx, spec); err != nil {
		return err
	}
	return b.refresh(ctx)
}

// unused refuses a category that is there already, but not as a topic's: its streams
// are somebody else's.
func (b *Broker) unused(ctx context.Context, op string, name eventstore.Category) error {
	all, err := b.store.ListCategories(ctx)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Name == name {
			return invalid(op, name, "a category of its own", "category "+string(name)+" that is not a topic's", "choose another name")
		}
	}
	return nil
}

// lay makes the category of a topic and its streams.
func (b *Broker) lay(ctx context.Context, spec Spec) error {
	c := eventstore.CategorySpec{Name: spec.Name, Layout: eventstore.Dedicated, TrimFreely: true}
	if err := b.store.CreateCategory(ctx, c); err != nil {
		return err
	}
	streams := make([]eventstore.Stream, spec.Partitions)
	for n := range streams {
		streams[n] = streamOf(spec.Name, n)
	}
	return b.store.CreateStreams(ctx, streams...)
}

// topicStream is where it is written what a topic is.
func topicStream(name eventstore.Category) eventstore.Stream {
	return eventstore.Stream(CategoryName + "-" + string(name))
}

// current reads what is written of a topic, and the head that goes with it.
func (b *Broker) current(ctx context.Context, name eventstore.Category) (h eventstore.Head, k known, err error) {
	if h, err = b.store.Head(ctx, topicStream(name)); err != nil || h.Last.Seqno == 0 {
		return h, known{}, err
	}
	page, err := b.store.ReadFrom(ctx, topicStream(name), h.Last.Seqno-1, 1)
	if err != nil {
		return h, known{}, err
	}
	if len(page.Entries) == 0 {
		return h, known{}, eventstore.DivergedError("topic", topicStream(name), h.Last, h)
	}
	e := page.Entries[0]
	if e.Type == typeDeleted {
		return h, known{}, nil
	}
	k, ok := knownOf(name, e)
	if !ok {
		err = &eventstore.Error{Kind: eventstore.ErrCorrupt, Op: "topic", Stream: topicStream(name), Category: name,
			Wanted: "what the topic is", Found: "an event of type " + e.Type + " that cannot be read"}
	}
	return h, k, err
}

// Delete removes a topic; see [Service]. That nobody may use it any more is settled first;
// then goes what belongs to it. A Delete that was cut off is finished by the next one, or
// by a Create.
func (b *Broker) Delete(ctx context.Context, name eventstore.Category) error {
	if _, err := eventstore.ParseCategory(string(name)); err != nil {
		return err
	}
	return b.alone(ctx, name, func(ctx context.Context) error { return b.delete(ctx, name) })
}

func (b *Broker) delete(ctx context.Context, name eventstore.Category) error {
	h, have, err := b.current(ctx, name)
	if err != nil {
		return err
	}
	if have.id.IsZero() {
		return noSuchTopic("delete topic", name)
	}
	if !have.deleting {
		if err := b.write(ctx, topicStream(name), h, 0, typeDeleting, have.data()); err != nil {
			return err
		}
		if h, have, err = b.current(ctx, name); err != nil {
			return err
		}
	}
	return b.finishDelete(ctx, name, h, have)
}

// finishDelete removes what a topic that is being deleted has, and then says that it is gone.
func (b *Broker) finishDelete(ctx context.Context, name eventstore.Category, h eventstore.Head, have known) error {
	if err := b.refresh(ctx); err != nil { // this broker's own publishers and consumers end
		return err
	}
	if err := b.consumers.drop(ctx, have); err != nil {
		return err
	}
	if err := b.store.DeleteCategory(ctx, name); err != nil && !errors.Is(err, eventstore.ErrNoSuchCategory) {
		return err
	}
	if err := b.write(ctx, topicStream(name), h, 0, typeDeleted, have.data()); err != nil {
		return err
	}
	return b.refresh(ctx)
}

// List returns all topics ordered by name.
func (b *Broker) List(ctx context.Context) ([]Spec, error) {
	if err := b.refresh(ctx); err != nil {
		return nil, err
	}
	return b.specs(), nil
}

// specs are the topics known, by name.
func (b *Broker) specs() (all []Spec) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(b.topics.by)) {
		if k := b.topics.by[name]; !k.deleting {
			all = append(all, k.spec)
		}
	}
	return all
}

// Describe tells all about a topic.
func (b *Broker) Describe(ctx context.Context, name eventstore.Category) (Description, error) {
	d, k, err := b.describe(ctx, name)
	if err != nil {
		return Description{}, err
	}
	d.Consumers, err = b.consumers.describe(ctx, k, d.Partitions)
	return d, err
}

// DescribeWithoutConsumers is Describe but for the consumers, of which each takes a few reads
// for each partition.
func (b *Broker) DescribeWithoutConsumers(ctx context.Context, name eventstore.Category) (Description, error) {
	d, _, err := b.describe(ctx, name)
	return d, err
}

func (b *Broker) describe(ctx context.Context, name eventstore.Category) (d Description, k known, err error) {
	if err = b.refresh(ctx); err != nil {
		return d, k, err
	}
	if k, err = b.lookup(ctx, "describe topic", name); err != nil {
		return d, k, err
	}
	if err = b.seeOwners(ctx, true); err != nil {
		return d, k, err
	}
	d = Description{Spec: k.spec, Partitions: make([]Partition, k.spec.Partitions)}
	err = each(k.spec.Partitions, func(n int) error {
		h, err := b.store.Head(ctx, streamOf(name, n))
		owner, _ := b.ownerOf(place{name, n})
		d.Partitions[n] = Partition{Number: n, Head: h, Owner: owner}
		return err
	})
	return d, k, err
}

// complete fills in what is left to a default and refuses what breaks a rule.
func (s *Spec) complete(op string) error {
	if _, err := eventstore.ParseCategory(string(s.Name)); err != nil {
		return err
	}
	if s.Partitions == 0 {
		s.Partitions = DefaultPartitions
	}
	if s.DedupWindow == 0 {
		s.DedupWindow = DefaultDedupWindow
	}
	r := s.Retention
	switch {
	case s.Partitions < 1 || s.Partitions > MaxPartitions:
		return invalid(op, s.Name, fmt.Sprintf("1 to %d partitions", MaxPartitions), fmt.Sprint(s.Partitions), "")
	case s.DedupWindow < 0 || s.DedupWindow > MaxDedupWindow:
		return invalid(op, s.Name, fmt.Sprintf("a dedup window of at most %v", MaxDedupWindow), s.DedupWindow.String(), "")
	case r.MaxBytes < 0 || r.MaxAge < 0:
		return invalid(op, s.Name, "bounds of retention of 0 (none) or more", fmt.Sprintf("%d bytes, %v", r.MaxBytes, r.MaxAge), "")
	case s.Name == CategoryName || strings.HasPrefix(string(s.Name), "wattle_"):
		return invalid(op, s.Name, "a name that does not begin with wattle_", string(s.Name), "choose another name")
	}
	return nil
}

// describe is one line for people.
func (s Spec) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "topic %s, %d partitions, dedup window %v", s.Name, s.Partitions, s.DedupWindow)
	if s.Retention.MaxBytes > 0 {
		fmt.Fprintf(&b, ", at most %d bytes", s.Retention.MaxBytes)
	}
	if s.Retention.MaxAge > 0 {
		fmt.Fprintf(&b, ", at most %v", s.Retention.MaxAge.Round(time.Nanosecond))
	}
	if s.Retention.Consumed {
		b.WriteString(", until consumed")
	}
	return b.String()
}
