// Topics that do what a test says, and a server of them.

package remotetopic

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/internal/wire"
	"github.com/wattle-es/wattle/topic"
)

// fakeTopics is a topic.Service of functions; those that are nil are not to be called.
type fakeTopics struct {
	describe func() (topic.Description, error)
	publish  func(context.Context, topic.Publication) (topic.Published, error)
	consume  func(context.Context, topic.Consumption, func(topic.Delivery) bool) error
	commit   func(topic.Commit) ([]int, error)
}

var errNotToBeCalled = errors.New("not to be called")

func (f *fakeTopics) Create(context.Context, topic.Spec) error { return errNotToBeCalled }

func (f *fakeTopics) Describe(context.Context, eventstore.Category) (topic.Description, error) {
	if f.describe == nil {
		return topic.Description{}, errNotToBeCalled
	}
	return f.describe()
}

func (f *fakeTopics) List(context.Context) ([]topic.Spec, error) { return nil, nil }

func (f *fakeTopics) Delete(context.Context, eventstore.Category) error { return errNotToBeCalled }

func (f *fakeTopics) Publish(ctx context.Context, p topic.Publication) (topic.Published, error) {
	if f.publish == nil {
		return topic.Published{}, errNotToBeCalled
	}
	return f.publish(ctx, p)
}

func (f *fakeTopics) Consume(ctx context.Context, c topic.Consumption) iter.Seq2[topic.Delivery, error] {
	return func(yield func(topic.Delivery, error) bool) {
		err := f.consume(ctx, c, func(d topic.Delivery) bool { return yield(d, nil) })
		if err != nil {
			yield(topic.Delivery{}, err)
		}
	}
}

func (f *fakeTopics) Commit(_ context.Context, c topic.Commit) ([]int, error) { return f.commit(c) }

// fake is a server of topics that are not a broker's.
type fake struct {
	*httptest.Server
	service *Service
}

// serve serves topics until the test ends.
func serve(t testing.TB, topics topic.Service, o ServiceOptions) *fake {
	t.Helper()
	s := NewService(topics, &o)
	s.minHeartbeat = testBeat / 4
	mux := http.NewServeMux()
	s.Mount(mux)
	t.Cleanup(func() { ok(t, s.Close()) })
	f := &fake{Server: serveHTTP(t, mux), service: s}
	t.Cleanup(s.Drain) // before the server ends
	return f
}

// serveHTTP serves HTTP/1.1 and HTTP/2 until the test ends.
func serveHTTP(t testing.TB, h http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	server.Config.Protocols = &p
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// clientOf opens a client without an env.
func clientOf(t testing.TB, o *Options, urls ...string) *Client {
	t.Helper()
	return (&env{t: t}).client(o, urls...)
}

// act is any.
var act = wire.Act{Op: "test"}

// caller tells errors of the service as a client does.
func (s *Service) caller() *wire.Caller { return &wire.Caller{Target: "http://test", Kinds: kinds} }
