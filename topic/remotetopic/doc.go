// Package remotetopic is a topic's service at the other end of a network: a server of the
// TopicService of wattle.v1 over any topic.Service, and a client that is itself one.
//
// Any server may be asked to publish. One that does not own the partition forwards the
// publication to the owner, over at most one hop, under the same ID. So whoever resends,
// the publisher, the client or a server between, a publication is written once.
//
// The client goes on by itself: a publication is sent again under its ID until the outcome
// is known, a consumption is taken up again behind the last message, or as the same member
// of its consumer.
package remotetopic
