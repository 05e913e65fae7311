// The service: topics, and the positions of consumers.

package remotetopic

import (
	"context"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/internal/wire"
	"github.com/wattle-es/wattle/topic"
)

// CreateTopic implements the service.
func (s *Service) CreateTopic(ctx context.Context, m *wattlev1.CreateTopicRequest) (*wattlev1.CreateTopicResponse, error) {
	const op = "create topic"
	spec, err := read(m.GetTopic(), (*reader).spec)
	if err == nil {
		err = s.topics.Create(ctx, spec)
	}
	if err != nil {
		return nil, s.fail(ctx, op, m.GetTopic().GetName(), err)
	}
	return &wattlev1.CreateTopicResponse{}, nil
}

// describer is what topics may do beside topic.Service: a Broker does.
type describer interface {
	DescribeWithoutConsumers(ctx context.Context, name eventstore.Category) (topic.Description, error)
}

// DescribeTopic implements the service.
func (s *Service) DescribeTopic(ctx context.Context, m *wattlev1.DescribeTopicRequest) (*wattlev1.DescribeTopicResponse, error) {
	describe := s.topics.Describe
	if t, can := s.topics.(describer); can && m.GetWithoutConsumers() {
		describe = t.DescribeWithoutConsumers
	}
	d, err := describe(ctx, eventstore.Category(m.GetName()))
	if err != nil {
		return nil, s.fail(ctx, "describe topic", m.GetName(), err)
	}
	return fromDescription(d), nil
}

// ListTopics implements the service.
func (s *Service) ListTopics(ctx context.Context, _ *wattlev1.ListTopicsRequest) (*wattlev1.ListTopicsResponse, error) {
	specs, err := s.topics.List(ctx)
	if err != nil {
		return nil, s.fail(ctx, "list topics", "", err)
	}
	m := &wattlev1.ListTopicsResponse{}
	for _, spec := range specs {
		if s.o.Visible == nil || s.o.Visible(ctx, spec.Name) {
			m.Topics = append(m.Topics, fromSpec(spec))
		}
	}
	return m, nil
}

// DeleteTopic implements the service.
func (s *Service) DeleteTopic(ctx context.Context, m *wattlev1.DeleteTopicRequest) (*wattlev1.DeleteTopicResponse, error) {
	if err := s.topics.Delete(ctx, eventstore.Category(m.GetName())); err != nil {
		return nil, s.fail(ctx, "delete topic", m.GetName(), err)
	}
	return &wattlev1.DeleteTopicResponse{}, nil
}

// Commit implements the service. Places under an assignment of a partition that the
// member, as this server knows it, has lost since are not stored.
func (s *Service) Commit(ctx context.Context, m *wattlev1.CommitRequest) (*wattlev1.CommitResponse, error) {
	const op = "commit"
	c, err := read(m, (*reader).commit)
	if err != nil {
		return nil, s.fail(ctx, op, m.GetTopic(), err)
	}
	stream := s.memberOf(memberKey{c.Topic, c.Consumer, c.Member})
	var lost []int
	places := c.Places
	c.Places = nil
	for _, p := range places {
		if stream.stale(p.Partition, m.GetGeneration()) {
			lost = append(lost, p.Partition)
		} else {
			c.Places = append(c.Places, p)
		}
	}
	if len(c.Places) > 0 || len(places) == 0 && !m.GetLeave() {
		more, err := s.topics.Commit(ctx, c)
		if err != nil {
			return nil, s.fail(ctx, op, m.GetTopic(), err)
		}
		lost = append(lost, more...)
	}
	if m.GetLeave() {
		stream.leave()
	}
	return &wattlev1.CommitResponse{Lost: all(lost, wire.FromCount)}, nil
}
