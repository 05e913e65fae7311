// Which procedure needs what: the table of accesses.

package server

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/server/policy"
)

// Access is what a message needs: a verb on a resource. See package policy.
type Access struct {
	Verb     policy.Verb
	Resource string
	// Somewhere: the verb on any resource will do; the service shows what the caller may
	// see and no more.
	Somewhere bool
}

func (a Access) String() string {
	verb := string(a.Verb)
	if a.Verb == policy.Any {
		verb = "do anything"
	}
	if a.Somewhere {
		return verb + " anywhere"
	}
	return verb + " on " + clean(a.Resource)
}

// accesses says what a message needs. None is no right: such a message is denied.
type accesses func(proto.Message) []Access

// needs makes a row of the table for messages of one type; of any other type nothing is
// allowed.
func needs[M proto.Message](f func(M) []Access) accesses {
	return func(m proto.Message) []Access {
		if typed, ok := m.(M); ok {
			return f(typed)
		}
		return nil
	}
}

// one is a row for messages with one stream.
func one[M interface {
	proto.Message
	GetStream() string
}](verb policy.Verb) accesses {
	return needs(func(m M) []Access { return []Access{onStream(verb, m.GetStream())} })
}

// named is a row for messages with one name.
func named[M interface {
	proto.Message
	GetName() string
}](verb policy.Verb) accesses {
	return needs(func(m M) []Access { return []Access{{Verb: verb, Resource: m.GetName()}} })
}

// onTopic is a row for messages with one topic.
func onTopic[M interface {
	proto.Message
	GetTopic() string
}](verb policy.Verb) accesses {
	return needs(func(m M) []Access { return []Access{{Verb: verb, Resource: m.GetTopic()}} })
}

// whole is a row for what is about the whole store, somewhere one for what is filtered.
func whole(verb policy.Verb) accesses {
	return func(proto.Message) []Access { return []Access{{Verb: verb, Resource: policy.All}} }
}

func somewhere(verb policy.Verb) accesses {
	return func(proto.Message) []Access { return []Access{{Verb: verb, Somewhere: true}} }
}

func onStream(verb policy.Verb, stream string) Access {
	return Access{Verb: verb, Resource: string(eventstore.Stream(stream).Category())}
}

// table has a row for every procedure there is.
var table = map[string]accesses{
	wattlev1.LogServiceAppendProcedure:       needs(appending[*wattlev1.AppendRequest]),
	wattlev1.LogServiceProduceProcedure:      needs(appending[*wattlev1.ProduceRequest]),
	wattlev1.LogServiceReadProcedure:         one[*wattlev1.ReadRequest](policy.Read),
	wattlev1.LogServiceReadBackwardProcedure: one[*wattlev1.ReadBackwardRequest](policy.Read),
	wattlev1.LogServiceReadFeedProcedure: needs(func(m *wattlev1.ReadFeedRequest) []Access {
		return reading(m.GetFilter().GetCategories())
	}),
	wattlev1.LogServiceLoadProcedure:    one[*wattlev1.LoadRequest](policy.Read),
	wattlev1.LogServiceGetHeadProcedure: one[*wattlev1.GetHeadRequest](policy.Read),
	wattlev1.LogServiceFenceProcedure:   one[*wattlev1.FenceRequest](policy.Fence),
	wattlev1.LogServiceTrimProcedure:    one[*wattlev1.TrimRequest](policy.Trim),
	wattlev1.LogServiceSaveSnapshotProcedure: needs(func(m *wattlev1.SaveSnapshotRequest) []Access {
		return []Access{onStream(policy.Snapshot, m.GetSnapshot().GetStream())}
	}),
	wattlev1.LogServiceListTrimmedProcedure: needs(func(m *wattlev1.ListTrimmedRequest) []Access { return reading([]string{m.GetCategory()}) }),
	wattlev1.LogServiceWaitProcedure:        somewhere(policy.Read), // it tells of a projector, which no category names
	wattlev1.LogServiceFollowProcedure:      one[*wattlev1.FollowRequest](policy.Read),
	wattlev1.LogServiceFollowFeedProcedure: needs(func(m *wattlev1.FollowFeedRequest) []Access {
		return reading(m.GetFilter().GetCategories())
	}),
	wattlev1.LogServiceWatchProcedure: needs(func(m *wattlev1.WatchRequest) []Access { return reading(m.GetCategories()) }),

	wattlev1.AdminServiceCreateCategoryProcedure: needs(func(m *wattlev1.CreateCategoryRequest) []Access {
		return []Access{{Verb: policy.Admin, Resource: m.GetSpec().GetName()}}
	}),
	wattlev1.AdminServiceDeleteCategoryProcedure: named[*wattlev1.DeleteCategoryRequest](policy.Admin),
	wattlev1.AdminServiceListCategoriesProcedure: somewhere(policy.Any),
	wattlev1.AdminServiceCreateStreamsProcedure: needs(func(m *wattlev1.CreateStreamsRequest) []Access {
		return orAll(policy.Admin, onStreams(policy.Admin, m.GetStreams()))
	}),
	wattlev1.AdminServiceDropStreamProcedure: one[*wattlev1.DropStreamRequest](policy.Admin),
	wattlev1.AdminServiceSetHoldProcedure: needs(func(m *wattlev1.SetHoldRequest) []Access {
		return holding(m.GetHold().GetCategory(), m.GetHold().GetStream())
	}),
	wattlev1.AdminServiceReleaseHoldProcedure: needs(func(m *wattlev1.ReleaseHoldRequest) []Access { return holding(m.GetCategory(), m.GetStream()) }),
	wattlev1.AdminServiceListHoldsProcedure:   somewhere(policy.Read),
	wattlev1.AdminServiceVerifyProcedure:      whole(policy.Diagnose),
	wattlev1.AdminServiceExamineProcedure:     whole(policy.Diagnose),

	wattlev1.LeaseServiceAcquireLeaseProcedure: named[*wattlev1.AcquireLeaseRequest](policy.Lease),
	wattlev1.LeaseServiceRenewLeaseProcedure:   needs(func(m *wattlev1.RenewLeaseRequest) []Access { return leasing(m.GetLease().GetName()) }),
	wattlev1.LeaseServiceReleaseLeaseProcedure: needs(func(m *wattlev1.ReleaseLeaseRequest) []Access { return leasing(m.GetLease().GetName()) }),
	wattlev1.LeaseServiceUpdateLeasesProcedure: needs(updatingLeases),

	wattlev1.TopicServiceCreateTopicProcedure: needs(func(m *wattlev1.CreateTopicRequest) []Access {
		return []Access{{Verb: policy.Admin, Resource: m.GetTopic().GetName()}}
	}),
	wattlev1.TopicServiceDescribeTopicProcedure: named[*wattlev1.DescribeTopicRequest](policy.Any),
	wattlev1.TopicServiceListTopicsProcedure:    somewhere(policy.Any),
	wattlev1.TopicServiceDeleteTopicProcedure:   named[*wattlev1.DeleteTopicRequest](policy.Admin),
	wattlev1.TopicServicePublishProcedure:       onTopic[*wattlev1.PublishRequest](policy.Publish),
	wattlev1.TopicServicePublishStreamProcedure: needs(func(m *wattlev1.PublishStreamRequest) []Access {
		return []Access{{Verb: policy.Publish, Resource: m.GetPublish().GetTopic()}}
	}),
	wattlev1.TopicServiceConsumeProcedure: onTopic[*wattlev1.ConsumeRequest](policy.Consume),
	wattlev1.TopicServiceCommitProcedure:  onTopic[*wattlev1.CommitRequest](policy.Consume),

	// Schemas are no secret, but whoever asks must be known.
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      somewhere(policy.Any),
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": somewhere(policy.Any),
}

// appending needs append on each batch's category and read on each guard's. One that
// writes nothing needs append everywhere: it is refused later, but nobody asks for free.
func appending[M interface {
	GetBatches() []*wattlev1.Batch
	GetGuards() []*wattlev1.Guard
}](m M) []Access {
	set := newAccessSet()
	for _, b := range m.GetBatches() {
		set.add(onStream(policy.Append, b.GetStream()))
	}
	if len(set.list) == 0 {
		set.add(Access{Verb: policy.Append, Resource: policy.All})
	}
	for _, g := range m.GetGuards() {
		set.add(onStream(policy.Read, g.GetStream()))
	}
	return set.list
}

// reading needs read on each category, on all if none is named.
func reading(categories []string) []Access {
	set := newAccessSet()
	for _, c := range categories {
		set.add(Access{Verb: policy.Read, Resource: c})
	}
	return orAll(policy.Read, set.list)
}

func orAll(verb policy.Verb, list []Access) []Access {
	if len(list) == 0 {
		return []Access{{Verb: verb, Resource: policy.All}}
	}
	return list
}

func onStreams(verb policy.Verb, streams []string) []Access {
	set := newAccessSet()
	for _, s := range streams {
		set.add(onStream(verb, s))
	}
	return set.list
}

// holding needs hold on the category, the stream's and, if both are named, on both.
func holding(category, stream string) []Access {
	set := newAccessSet()
	if stream != "" {
		set.add(onStream(policy.Hold, stream))
	}
	if category != "" || stream == "" {
		set.add(Access{Verb: policy.Hold, Resource: category})
	}
	return set.list
}

func leasing(name string) []Access { return []Access{{Verb: policy.Lease, Resource: name}} }

// updatingLeases needs lease on all names that are listed, and on each that is changed.
func updatingLeases(m *wattlev1.UpdateLeasesRequest) []Access {
	set := newAccessSet()
	set.add(Access{Verb: policy.Lease, Resource: m.GetPrefix() + policy.All})
	for _, list := range [][]*wattlev1.Lease{m.GetRenew(), m.GetRelease()} {
		for _, l := range list {
			set.add(Access{Verb: policy.Lease, Resource: l.GetName()})
		}
	}
	for _, name := range m.GetAcquire() {
		set.add(Access{Verb: policy.Lease, Resource: name})
	}
	return set.list
}

// accessSet is a list without repeats.
type accessSet struct {
	list []Access
	seen map[Access]bool
}

func newAccessSet() *accessSet { return &accessSet{seen: map[Access]bool{}} }

func (s *accessSet) add(a Access) {
	if !s.seen[a] {
		s.seen[a] = true
		s.list = append(s.list, a)
	}
}

// procedure is one that the server can serve.
type procedure struct {
	path     string // as "/wattle.v1.LogService/Append"
	service  string // as "/wattle.v1.LogService/"
	stream   bool   // in either direction
	pours    bool   // the client sends any number of messages
	accesses accesses
}

// services are those of wattle.v1.
func services() (all []protoreflect.ServiceDescriptor) {
	for _, file := range []protoreflect.FileDescriptor{wattlev1.File_wattle_v1_log_proto, wattlev1.File_wattle_v1_admin_proto,
		wattlev1.File_wattle_v1_lease_proto, wattlev1.File_wattle_v1_topic_proto} {
		for i := range file.Services().Len() {
			all = append(all, file.Services().Get(i))
		}
	}
	return all
}

// procedures are those of the services that have a row in the table, by path.
func procedures(all []protoreflect.ServiceDescriptor) map[string]*procedure {
	found := map[string]*procedure{}
	for _, service := range all {
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			p := &procedure{service: "/" + string(service.FullName()) + "/", stream: m.IsStreamingClient() || m.IsStreamingServer(), pours: m.IsStreamingClient()}
			p.path = p.service + string(m.Name())
			if p.accesses = table[p.path]; p.accesses != nil {
				found[p.path] = p
			}
		}
	}
	return found
}
