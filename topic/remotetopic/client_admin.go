// The client: topics, and the positions of consumers.

package remotetopic

import (
	"context"
	"errors"
	"slices"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
	"github.com/wattle-es/wattle/topic"
)

var _ topic.Service = (*Client)(nil)

// Create creates a topic; see [topic.Service].
func (c *Client) Create(ctx context.Context, spec topic.Spec) error {
	a := wire.Act{Op: "create topic", Category: spec.Name, Writes: true}
	_, _, _, err := call(ctx, c, a, &wattlev1.CreateTopicRequest{Topic: fromSpec(spec)}, wattlev1.TopicServiceClient.CreateTopic)
	return err
}

// Describe tells all about a topic; see [topic.Service].
func (c *Client) Describe(ctx context.Context, name eventstore.Category) (topic.Description, error) {
	return c.describe(ctx, name, false)
}

// DescribeWithoutConsumers is Describe but for the consumers, whose positions take reads.
func (c *Client) DescribeWithoutConsumers(ctx context.Context, name eventstore.Category) (topic.Description, error) {
	return c.describe(ctx, name, true)
}

func (c *Client) describe(ctx context.Context, name eventstore.Category, withoutConsumers bool) (topic.Description, error) {
	a := wire.Act{Op: "describe topic", Category: name}
	m, t, _, err := call(ctx, c, a, &wattlev1.DescribeTopicRequest{Name: string(name), WithoutConsumers: withoutConsumers}, wattlev1.TopicServiceClient.DescribeTopic)
	if err != nil {
		return topic.Description{}, err
	}
	d, err := read(m, (*reader).description)
	if err == nil && d.Spec.Name != name {
		err = &eventstore.Error{Wanted: "topic " + string(name), Found: string(d.Spec.Name)}
	}
	if err != nil {
		return topic.Description{}, t.caller.Misfit(a, err)
	}
	return d, nil
}

// List returns the topics that the caller may know of, ordered by name.
func (c *Client) List(ctx context.Context) ([]topic.Spec, error) {
	a := wire.Act{Op: "list topics"}
	m, t, _, err := call(ctx, c, a, &wattlev1.ListTopicsRequest{}, wattlev1.TopicServiceClient.ListTopics)
	if err != nil {
		return nil, err
	}
	specs, err := read(m.GetTopics(), func(r *reader, m []*wattlev1.Topic) []topic.Spec { return each(r, m, (*reader).spec) })
	if err != nil {
		return nil, t.caller.Misfit(a, err)
	}
	return specs, nil
}

// Delete removes a topic; see [topic.Service].
func (c *Client) Delete(ctx context.Context, name eventstore.Category) error {
	a := wire.Act{Op: "delete topic", Category: name, Writes: true}
	_, _, lost, err := call(ctx, c, a, &wattlev1.DeleteTopicRequest{Name: string(name)}, wattlev1.TopicServiceClient.DeleteTopic)
	if lost && errors.Is(err, topic.ErrNoSuchTopic) {
		return nil // by a server whose answer was lost
	}
	return err
}

// Commit stores how far a member has come; see [topic.Service]. Where the member is being
// consumed for by this client, it goes by the assignment that was yielded last.
func (c *Client) Commit(ctx context.Context, q topic.Commit) (lost []int, err error) {
	m := fromCommit(q)
	m.Generation = c.commits.of(memberKey{q.Topic, q.Consumer, q.Member})
	return c.commit(ctx, m)
}

func (c *Client) commit(ctx context.Context, m *wattlev1.CommitRequest) (lost []int, err error) {
	a := wire.Act{Op: "commit", Category: eventstore.Category(m.GetTopic()), Writes: true}
	answer, t, _, err := call(ctx, c, a, m, wattlev1.TopicServiceClient.Commit)
	if err != nil {
		return nil, err
	}
	for _, n := range answer.GetLost() {
		if !slices.ContainsFunc(m.GetPlaces(), func(p *wattlev1.Place) bool { return p.GetPartition() == n }) {
			return nil, t.caller.Misfit(a, nil)
		}
		lost = append(lost, int(n))
	}
	slices.Sort(lost)
	return lost, nil
}
