// The table of accesses: complete, and right for each procedure, over the wire.

package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/server/policy"
)

// A procedure that is added to the services needs a row, or nobody can call it.
func TestEveryProcedureHasARow(t *testing.T) {
	rows := 0
	for _, service := range services() {
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			path := "/" + string(service.FullName()) + "/" + string(m.Name())
			row := table[path]
			if row == nil {
				t.Errorf("%s has no row in the table of accesses", path)
				continue
			}
			rows++
			for _, empty := range []proto.Message{sample(m, "", ""), sample(m, "x", "x-1")} {
				list := row(empty)
				if len(list) == 0 {
					t.Errorf("%s needs nothing", path)
				}
			}
			if list := row(&wattlev1.Mark{}); len(list) > 0 && !list[0].Somewhere && list[0].Resource != policy.All {
				t.Errorf("%s takes another message: %v", path, list)
			}
			if _, ok := wanted[string(m.Name())]; !ok {
				t.Errorf("%s is not in the test's own table", path)
			}
		}
	}
	if reflection := 2; rows != len(table)-reflection || rows != len(wanted) {
		t.Errorf("%d rows, %d in the table, %d in the test's own", rows, len(table), len(wanted))
	}
}

// need is what a procedure needs, said once more and by hand.
type need struct {
	verb policy.Verb
	on   string // the category, "*", or "any": somewhere
}

var wanted = map[string]need{
	"Append": {policy.Append, "category"}, "Produce": {policy.Append, "category"},
	"Read": {policy.Read, "category"}, "ReadBackward": {policy.Read, "category"}, "ReadFeed": {policy.Read, "category"},
	"Load": {policy.Read, "category"}, "GetHead": {policy.Read, "category"}, "Fence": {policy.Fence, "category"}, "Trim": {policy.Trim, "category"},
	"SaveSnapshot": {policy.Snapshot, "category"}, "ListTrimmed": {policy.Read, "category"}, "Wait": {policy.Read, "any"},
	"Follow": {policy.Read, "category"}, "FollowFeed": {policy.Read, "category"}, "Watch": {policy.Read, "category"},
	"CreateCategory": {policy.Admin, "category"}, "DeleteCategory": {policy.Admin, "category"}, "ListCategories": {policy.Any, "any"},
	"CreateStreams": {policy.Admin, "category"}, "DropStream": {policy.Admin, "category"}, "SetHold": {policy.Hold, "category"},
	"ReleaseHold": {policy.Hold, "category"}, "ListHolds": {policy.Read, "any"}, "Verify": {policy.Diagnose, "*"}, "Examine": {policy.Diagnose, "*"},
	"AcquireLease": {policy.Lease, "category"}, "RenewLease": {policy.Lease, "category"}, "ReleaseLease": {policy.Lease, "category"}, "UpdateLeases": {policy.Lease, "category"},
	"CreateTopic": {policy.Admin, "category"}, "DescribeTopic": {policy.Any, "category"}, "ListTopics": {policy.Any, "any"}, "DeleteTopic": {policy.Admin, "category"},
	"Publish": {policy.Publish, "category"}, "PublishStream": {policy.Publish, "category"}, "Consume": {policy.Consume, "category"}, "Commit": {policy.Consume, "category"},
}

// sample is a message of a procedure about a category, or a stream of it, wherever it has
// a place for one. Names of leases are the category's.
func sample(m protoreflect.MethodDescriptor, category, stream string) proto.Message {
	switch string(m.Name()) {
	case "Append":
		return &wattlev1.AppendRequest{Batches: []*wattlev1.Batch{{Stream: stream}}}
	case "Produce":
		return &wattlev1.ProduceRequest{Batches: []*wattlev1.Batch{{Stream: stream}}}
	case "Read":
		return &wattlev1.ReadRequest{Stream: stream}
	case "ReadBackward":
		return &wattlev1.ReadBackwardRequest{Stream: stream}
	case "ReadFeed":
		return &wattlev1.ReadFeedRequest{Filter: &wattlev1.Filter{Categories: []string{category}}}
	case "Load":
		return &wattlev1.LoadRequest{Stream: stream}
	case "GetHead":
		return &wattlev1.GetHeadRequest{Stream: stream}
	case "Fence":
		return &wattlev1.FenceRequest{Stream: stream}
	case "Trim":
		return &wattlev1.TrimRequest{Stream: stream}
	case "SaveSnapshot":
		return &wattlev1.SaveSnapshotRequest{Snapshot: &wattlev1.Snapshot{Stream: stream}}
	case "ListTrimmed":
		return &wattlev1.ListTrimmedRequest{Category: category}
	case "Wait":
		return &wattlev1.WaitRequest{}
	case "Follow":
		return &wattlev1.FollowRequest{Stream: stream}
	case "FollowFeed":
		return &wattlev1.FollowFeedRequest{Filter: &wattlev1.Filter{Categories: []string{category}}}
	case "Watch":
		return &wattlev1.WatchRequest{Categories: []string{category}}
	case "CreateCategory":
		return &wattlev1.CreateCategoryRequest{Spec: &wattlev1.CategorySpec{Name: category}}
	case "DeleteCategory":
		return &wattlev1.DeleteCategoryRequest{Name: category}
	case "ListCategories":
		return &wattlev1.ListCategoriesRequest{}
	case "CreateStreams":
		return &wattlev1.CreateStreamsRequest{Streams: []string{stream}}
	case "DropStream":
		return &wattlev1.DropStreamRequest{Stream: stream}
	case "SetHold":
		return &wattlev1.SetHoldRequest{Hold: &wattlev1.Hold{Stream: stream}}
	case "ReleaseHold":
		return &wattlev1.ReleaseHoldRequest{Category: category}
	case "ListHolds":
		return &wattlev1.ListHoldsRequest{}
	case "Verify":
		return &wattlev1.VerifyRequest{}
	case "Examine":
		return &wattlev1.ExamineRequest{}
	}
	return sampleOfOthers(string(m.Name()), category)
}

func sampleOfOthers(name, category string) proto.Message {
	switch name {
	case "AcquireLease":
		return &wattlev1.AcquireLeaseRequest{Name: category}
	case "RenewLease":
		return &wattlev1.RenewLeaseRequest{Lease: &wattlev1.Lease{Name: category}}
	case "ReleaseLease":
		return &wattlev1.ReleaseLeaseRequest{Lease: &wattlev1.Lease{Name: category}}
	case "UpdateLeases":
		return &wattlev1.UpdateLeasesRequest{Prefix: category, Acquire: []string{category}}
	case "CreateTopic":
		return &wattlev1.CreateTopicRequest{Topic: &wattlev1.Topic{Name: category}}
	case "DescribeTopic":
		return &wattlev1.DescribeTopicRequest{Name: category}
	case "ListTopics":
		return &wattlev1.ListTopicsRequest{}
	case "DeleteTopic":
		return &wattlev1.DeleteTopicRequest{Name: category}
	case "Publish":
		return &wattlev1.PublishRequest{Topic: category, Key: canaryPayload}
	case "PublishStream":
		return &wattlev1.PublishStreamRequest{Publish: &wattlev1.PublishRequest{Topic: category}}
	case "Consume":
		return &wattlev1.ConsumeRequest{Topic: category}
	case "Commit":
		return &wattlev1.CommitRequest{Topic: category}
	}
	return nil
}

// asBytes is a request to a procedure as bytes, in one of the ways.
func asBytes(t testing.TB, m protoreflect.MethodDescriptor, message proto.Message, w way) (contentType string, data []byte) {
	t.Helper()
	data, form := marshal(t, message), "proto"
	if w.json {
		text, err := protojson.Marshal(message)
		if err != nil {
			t.Fatal(err)
		}
		data, form = text, "json"
	}
	streams := m.IsStreamingClient() || m.IsStreamingServer()
	if w.protocol == "connect" && !streams {
		return "application/" + form, data
	}
	framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data)))
	framed = append(framed, data...)
	if w.protocol == "connect" {
		return "application/connect+" + form, framed
	}
	return "application/" + w.protocol + "+" + form, framed
}

// answered is what a call came to: its code, as the protocol says it.
func answered(t testing.TB, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range []http.Header{resp.Header, resp.Trailer} {
		_, _ = fmt.Fprintln(&told, header)
		if code := header.Get("Grpc-Status"); code != "" {
			var n connect.Code
			if _, err := fmt.Sscan(code, (*uint32)(&n)); err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				return "ok"
			}
			return n.String()
		}
	}
	_, _ = told.Write(text)
	if i := bytes.Index(bytes.ToLower(text), []byte("grpc-status: ")); i >= 0 {
		var n connect.Code
		if _, err := fmt.Sscan(string(text[i+len("grpc-status: "):]), (*uint32)(&n)); err == nil {
			return n.String()
		}
	}
	if i := bytes.Index(text, []byte(`"code":"`)); i >= 0 {
		code, _, _ := strings.Cut(string(text[i+len(`"code":"`):]), `"`)
		return code
	}
	return fmt.Sprint(resp.StatusCode)
}

// matrixPolicy gives its identities less and less.
const matrixPolicy = `token:ops * *
token:narrow * account
token:reader read *
token:reader2 read account
token:writer append,fence,snapshot account,loan
token:broker publish,consume account
token:keeper hold,trim,admin account*
token:worker lease account*
token:doctor diagnose *
`

// mayByHand is the policy above once more.
func mayByHand(identity string, n need, category string) bool {
	if n.on == "*" {
		return identity == "ops" || identity == "doctor"
	}
	verbs, where := map[string][]policy.Verb{
		"ops": policy.Verbs(), "narrow": policy.Verbs(), "reader": {policy.Read}, "reader2": {policy.Read}, "writer": {policy.Append, policy.Fence, policy.Snapshot},
		"broker": {policy.Publish, policy.Consume}, "keeper": {policy.Hold, policy.Trim, policy.Admin}, "worker": {policy.Lease}, "doctor": {policy.Diagnose},
	}[identity], false
	if len(verbs) == 0 || n.verb != policy.Any && !slices.Contains(verbs, n.verb) {
		return false
	}
	switch identity {
	case "ops", "reader", "doctor":
		where = true
	case "writer":
		where = category == "account" || category == "loan"
	case "keeper", "worker":
		where = strings.HasPrefix(category, "account")
	default:
		where = category == "account"
	}
	return n.on == "any" || where
}

// Every procedure, everybody, several categories, in every protocol in turn: who may gets
// to the service, who may not does not, and is told so.
func TestMatrix(t *testing.T) {
	identities := []string{"ops", "narrow", "reader", "reader2", "writer", "broker", "keeper", "worker", "doctor", "stranger", ""}
	s := start(t, Options{Tokens: tokensFile(t, identities[:len(identities)-1]...), Policy: rules(t, matrixPolicy)}, fakes{logs: logs{produce: once}})
	clients := map[string][2]*http.Client{}
	for _, name := range identities {
		clients[name] = [2]*http.Client{httpClient(t, false, name), httpClient(t, true, name)}
	}
	cases, refused := 0, 0
	for _, service := range services() {
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			path := "/" + string(service.FullName()) + "/" + string(m.Name())
			n := wanted[string(m.Name())]
			for _, name := range identities {
				for _, category := range []string{"account", "accounts", "loan", "Account", ""} {
					w := ways[cases%len(ways)]
					if m.IsStreamingClient() && m.IsStreamingServer() && !w.http2 {
						w.http2 = true
					}
					cases++
					may := mayByHand(name, n, category)
					if string(m.Name()) == "UpdateLeases" && name == "narrow" {
						may = false // it lists account*, which is more than account
					}
					contentType, data := asBytes(t, m, sample(m, category, category+"-1"), w)
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.addr+path, bytes.NewReader(data))
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("Content-Type", contentType)
					resp, err := clients[name][map[bool]int{true: 1}[w.http2]].Do(req)
					if err != nil {
						t.Fatalf("%s by %q: %v", path, name, err)
					}
					want := "unimplemented" // what the service itself says
					switch {
					case name == "":
						want = "unauthenticated"
					case !may:
						want = "permission_denied"
					}
					got, reached := answered(t, resp), s.takeReached()
					if !may {
						refused++
					}
					if got != want || (len(reached) > 0) != may {
						t.Errorf("%s by %q on %q, %v: %s, reached %v; want %s, reached %v", path, name, category, w, got, reached, want, may)
					}
				}
			}
		}
	}
	if cases < 400 {
		t.Errorf("%d cases only", cases)
	}
	t.Logf("%d cases, %d to be refused", cases, refused)
}

// An append needs its right on every batch and on every guard; a feed of everything on *.
func TestSeveralAccesses(t *testing.T) {
	o := usual(t)
	o.Policy = rules(t, "token:teller append account,loan\ntoken:teller read account\n")
	appended := func(context.Context, *wattlev1.AppendRequest) (*wattlev1.AppendResponse, error) {
		return &wattlev1.AppendResponse{}, nil
	}
	s := start(t, o, fakes{logs: logs{append: appended}})
	for i, c := range []struct {
		batches, guards string
		want            bool
	}{
		{"account-1", "", true}, {"account-1 loan-1", "", true}, {"account-1 other-1", "", false}, {"other-1 account-1", "", false},
		{"account-1", "account-2", true}, {"account-1", "loan-1", false}, {"account-1", "account-1 other-1", false}, {"loan-1", "account-1", true},
		{"", "account-1", false}, {"", "", false}, {"account", "", true}, {"accoun-1", "", false}, {"*-1", "", false}, {"account*-1", "", false},
		{"account-1 *", "", false}, {"-account", "", false}, {"account\x00-1", "", false},
	} {
		r := &wattlev1.AppendRequest{}
		for _, b := range strings.Fields(c.batches) {
			r.Batches = append(r.Batches, &wattlev1.Batch{Stream: b})
		}
		for _, g := range strings.Fields(c.guards) {
			r.Guards = append(r.Guards, &wattlev1.Guard{Stream: g})
		}
		_, err := s.client(t, ways[i%len(ways)], "teller").Append(t.Context(), r)
		if denied := kind(t, err) == wattlev1.ErrorKind_ERROR_KIND_DENIED; denied == c.want || c.want != (err == nil) {
			t.Errorf("%q guarded by %q: %v", c.batches, c.guards, err)
		}
	}
	for _, f := range []*wattlev1.Filter{nil, {}, {Types: []string{"x"}}, {Categories: []string{"account", "loan"}}, {Categories: []string{"*"}}, {Categories: []string{""}}} {
		if _, err := s.client(t, ways[0], "teller").ReadFeed(t.Context(), &wattlev1.ReadFeedRequest{Filter: f}); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_DENIED {
			t.Errorf("feed of %v: %v", f, err)
		}
	}
}

// once reads one message, and is not implemented then.
func once(_ context.Context, b *connect.BidiStream[wattlev1.ProduceRequest, wattlev1.ProduceResponse]) error {
	if _, err := b.Receive(); err != nil {
		return err
	}
	return connect.NewError(connect.CodeUnimplemented, errors.New("read"))
}

// Lists are filtered by what the caller may do something with.
func TestVisible(t *testing.T) {
	var s *site
	seen := map[string]bool{}
	read := func(ctx context.Context, _ *wattlev1.ReadRequest) (*wattlev1.ReadResponse, error) {
		for _, c := range []string{"account", "loan", "hidden"} {
			seen[c] = s.Visible(ctx, c)
		}
		if !s.May(ctx, policy.Append, "account") || s.May(ctx, policy.Fence, "account") || Identity(ctx) != "token:teller" {
			t.Error("May, Identity")
		}
		return &wattlev1.ReadResponse{}, nil
	}
	o := usual(t)
	o.Policy = rules(t, "token:teller read,append account\ntoken:teller publish loan\ntoken:ops * *\n")
	s = start(t, o, fakes{logs: logs{read: read}})
	if _, err := s.client(t, ways[0], "teller").Read(t.Context(), &wattlev1.ReadRequest{Stream: "account-1"}); err != nil {
		t.Fatal(err)
	}
	if !seen["account"] || !seen["loan"] || seen["hidden"] {
		t.Error(seen)
	}
	if s.Visible(t.Context(), "account") || Identity(t.Context()) != "" {
		t.Error("visible outside of a call")
	}
}
