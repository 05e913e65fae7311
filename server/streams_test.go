// Streams: every message is asked about, and what forbids one ends it.

package server

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
	"github.com/wattle-es/wattle/server/policy"
)

var http2Ways = []way{{"connect", true, false}, {"connect", true, true}, {"grpc", true, false}, {"grpc-web", true, true}}

func produce(stream string) *wattlev1.ProduceRequest {
	return &wattlev1.ProduceRequest{Batches: []*wattlev1.Batch{{Stream: stream, Events: []*wattlev1.Event{{Data: []byte(canaryPayload)}}}}}
}

func TestEveryMessage(t *testing.T) {
	s := start(t, usual(t), fakes{logs: logs{produce: echo}})
	for _, w := range http2Ways {
		b, err := s.client(t, w, "teller").Produce(within(t))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := b.Send(produce("account-1")); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Receive(); err != nil {
				t.Fatalf("%v: %v", w, err)
			}
		}
		if n := len(s.takeReached()); n != 3 {
			t.Errorf("%v: %d messages reached it", w, n)
		}
		_ = b.Send(produce("loan-1"))
		_ = b.Send(produce("account-1"))
		_, err = b.Receive()
		if kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_DENIED || connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%v: %v", w, err)
		}
		if reached := s.takeReached(); len(reached) > 0 {
			t.Errorf("%v: a message that is denied, or one behind it, reached the service: %v", w, reached)
		}
		_ = b.CloseRequest()
		_ = b.CloseResponse()
	}
}

// A service that goes on after a denial gets nothing more.
func TestDeniedStreamStaysDenied(t *testing.T) {
	got := make(chan error, 3)
	s := start(t, usual(t), fakes{logs: logs{produce: func(ctx context.Context, b *connect.BidiStream[wattlev1.ProduceRequest, wattlev1.ProduceResponse]) error {
		for range 3 {
			_, err := b.Receive()
			got <- err
		}
		return nil
	}}})
	b, err := s.client(t, http2Ways[0], "teller").Produce(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range []string{"account-1", "loan-1", "account-2"} {
		if err := b.Send(produce(stream)); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	if _, err := b.Receive(); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_DENIED {
		t.Errorf("%v", err)
	}
	if a, b, c := <-got, <-got, <-got; a != nil || b == nil || c == nil {
		t.Errorf("%v, %v, %v", a, b, c)
	}
	_ = b.CloseRequest()
	_ = b.CloseResponse()
}

// open opens a stream of a kind and returns what ends it.
func openStream(t *testing.T, s *site, w way, name string, bidi bool) func() error {
	t.Helper()
	c := s.client(t, w, name)
	if bidi {
		b, err := c.Produce(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Send(produce("account-1")); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Receive(); err != nil {
			t.Fatalf("%v: %v", w, err)
		}
		return func() error {
			_, err := b.Receive()
			_ = b.CloseRequest()
			_ = b.CloseResponse()
			return err
		}
	}
	f, err := c.Follow(within(t), &wattlev1.FollowRequest{Stream: "account-1"})
	if err != nil {
		t.Fatalf("%v: %v", w, err)
	}
	if !f.Receive() {
		t.Fatalf("%v: %v", w, f.Err())
	}
	return func() error {
		for f.Receive() {
		}
		_ = f.Close()
		return f.Err()
	}
}

var streamWays = []struct {
	w    way
	bidi bool
}{{way{"connect", false, false}, false}, {way{"grpc-web", false, true}, false}, {way{"connect", true, true}, false}, {way{"grpc", true, false}, false},
	{way{"connect", true, false}, true}, {way{"grpc", true, false}, true}}

// A policy that forbids a stream ends it, and leaves the others.
func TestPolicyChangeEndsStreams(t *testing.T) {
	why := make(chan error, len(streamWays))
	o := usual(t)
	s := start(t, o, fakes{logs: logs{follow: endless(why), produce: echo}})
	var ends, stay []func() error
	for _, w := range streamWays {
		ends = append(ends, openStream(t, s, w.w, "teller", w.bidi))
		stay = append(stay, openStream(t, s, w.w, "ops", w.bidi))
	}
	other, err := policy.Parse("token:ops * *\ntoken:teller append,read loan\n")
	if err != nil {
		t.Fatal(err)
	}
	o.Policy.Set(other)
	for i, end := range ends {
		if err := end(); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_DENIED || connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Fatalf("%v: %v", streamWays[i].w, err) // the others do not end either
		}
	}
	for range 4 {
		select {
		case cause := <-why:
			if !strings.Contains(cause.Error(), "denied") {
				t.Errorf("the service was told %v", cause)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the service was not told")
		}
	}
	if n := len(s.streams.list()); n != len(stay) {
		t.Errorf("%d streams are open, want %d", n, len(stay))
	}
	if !strings.Contains(s.log.String(), `msg="wattle: denied" identity=token:teller procedure=/wattle.v1.LogService/Follow verb=read resource=account`) {
		t.Error("not logged")
	}
	endsAs(t, s, stay, wattlev1.ErrorKind_ERROR_KIND_GOING_AWAY)
}

// endsAs shuts a server down, and wants all streams to end so.
func endsAs(t *testing.T, s *site, ends []func() error, want wattlev1.ErrorKind) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(ctx) }()
	for _, end := range ends {
		if err := end(); kind(t, err) != want || connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%v", err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A file that changes does the same, without anybody who tells the server.
func TestPolicyFileChanges(t *testing.T) {
	file := t.TempDir() + "/policy"
	writeFile(t, file, "token:teller read,append account\n")
	var err error
	o := usual(t)
	if o.Policy, err = policy.Follow(file); err != nil {
		t.Fatal(err)
	}
	s := start(t, o, fakes{logs: logs{follow: endless(nil)}})
	end := openStream(t, s, way{"connect", true, false}, "teller", false)
	writeFile(t, file, "token:teller read,append\n")
	until(t, "a broken file is told", func() bool { return strings.Contains(s.log.String(), "stays in force") })
	if n := len(s.streams.list()); n != 1 {
		t.Fatalf("%d streams", n)
	}
	writeFile(t, file, "token:teller append account\n")
	if err := end(); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_DENIED {
		t.Error(err)
	}
	if strings.Count(s.log.String(), "stays in force") != 1 {
		t.Error("a broken file is told again and again")
	}
}

// Who is no longer known is shown out.
func TestTokenTakenAway(t *testing.T) {
	o := usual(t)
	s := start(t, o, fakes{logs: logs{follow: endless(nil), produce: echo}})
	var ends []func() error
	for _, w := range streamWays {
		ends = append(ends, openStream(t, s, w.w, "teller", w.bidi))
	}
	stays := openStream(t, s, streamWays[0].w, "ops", false)
	writeTokens(t, o.Tokens, "ops", "stranger")
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	for _, end := range ends {
		if err := end(); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_UNAUTHENTICATED || connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Error(err)
		}
	}
	if _, err := s.client(t, ways[0], "teller").Read(t.Context(), &wattlev1.ReadRequest{Stream: "account-1"}); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_UNAUTHENTICATED {
		t.Error(err)
	}
	if err := os.Chmod(o.Tokens, 0o644); err != nil {
		t.Fatal(err)
	}
	writeFile(t, o.Tokens, "broken "+canaryToken+" x\n")
	if err := s.Reload(); err == nil || strings.Contains(note(err).Error(), "broken") {
		t.Error(err)
	}
	if _, err := s.client(t, ways[0], "ops").Read(t.Context(), &wattlev1.ReadRequest{Stream: "account-1"}); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Error(err)
	}
	endsAs(t, s, []func() error{stays}, wattlev1.ErrorKind_ERROR_KIND_GOING_AWAY)
}

// A stream whose accesses are too many to be remembered is not kept on trust.
func TestCrowdedStream(t *testing.T) {
	o := usual(t)
	o.Policy = rules(t, "token:teller append *\n")
	s := start(t, o, fakes{logs: logs{produce: echo}})
	b, err := s.client(t, http2Ways[2], "teller").Produce(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i <= maxStreamAccesses; i += 200 {
		r := &wattlev1.ProduceRequest{}
		for j := range 200 {
			r.Batches = append(r.Batches, &wattlev1.Batch{Stream: "c" + strings.Repeat("x", i/200) + string(rune('a'+j%26)) + string(rune('a'+j/26)) + "-1"})
		}
		if err := b.Send(r); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Receive(); err != nil {
			t.Fatal(err)
		}
	}
	other, err := policy.Parse("token:teller append *\ntoken:ops read *\n")
	if err != nil {
		t.Fatal(err)
	}
	o.Policy.Set(other)
	if _, err := b.Receive(); kind(t, err) != wattlev1.ErrorKind_ERROR_KIND_GOING_AWAY {
		t.Error(err)
	}
	_ = b.CloseRequest()
	_ = b.CloseResponse()
}
