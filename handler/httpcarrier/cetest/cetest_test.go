// Package cetest holds the codecs of httpcarrier, and its server, against the CloudEvents
// SDK for Go, which nothing but this test links.
package cetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// random is an event that both can carry. In binary mode the SDK writes headers as they
// are, so text there is ASCII without blanks, quotes and percents.
func random(dice *rand.Rand, anyText bool) *httpcarrier.CloudEvent {
	alphabet := []rune("abcXYZ019-._~:/?#[]@!$&'()*+,;=")
	if anyText {
		alphabet = append(alphabet, []rune(" \"%\\é€😀")...)
	}
	text := func() string {
		s := append([]rune("x"), make([]rune, dice.IntN(12))...) // the SDK does not take blanks alone
		for i := range s[1:] {
			s[1+i] = alphabet[dice.IntN(len(alphabet))]
		}
		return string(s)
	}
	maybe := func(f func()) {
		if dice.IntN(2) == 0 {
			f()
		}
	}
	e := &httpcarrier.CloudEvent{ID: text(), Source: fmt.Sprintf("/source/%d", dice.IntN(100)), Type: text()}
	maybe(func() { e.Subject = text() })
	maybe(func() { e.Time = time.Unix(dice.Int64N(4e9), dice.Int64N(1e9)).UTC() })
	maybe(func() { e.DataSchema = "https://example.com/schema" })
	maybe(func() { e.Extensions = map[string]string{"ext1": text(), "another": text()} })
	switch dice.IntN(4) {
	case 0:
		e.DataContentType, e.Data = "application/json", fmt.Appendf(nil, `{"n":%d,"s":"€ <&>"}`, dice.IntN(100))
	case 1:
		e.DataContentType, e.Data = "text/plain", []byte("a text, €")
	case 2:
		e.DataContentType, e.Data = "application/octet-stream", []byte{0, 1, 0xff, byte(dice.IntN(256))}
	}
	return e
}

// differs compares an event of ours with one of the SDK's.
func differs(want *httpcarrier.CloudEvent, got *event.Event) string {
	if got == nil {
		return "no event"
	}
	for name, pair := range map[string][2]string{
		"id": {want.ID, got.ID()}, "source": {want.Source, got.Source()}, "type": {want.Type, got.Type()}, "subject": {want.Subject, got.Subject()},
		"dataschema": {want.DataSchema, got.DataSchema()}, "datacontenttype": {want.DataContentType, got.DataContentType()},
		"time": {want.Time.String(), got.Time().UTC().String()}, "data": {string(want.Data), string(got.Data())}, "extensions": {fmt.Sprint(len(want.Extensions)), fmt.Sprint(len(got.Extensions()))},
	} {
		if pair[0] != pair[1] {
			return fmt.Sprintf("%s: wanted %q, found %q", name, pair[0], pair[1])
		}
	}
	for name, value := range want.Extensions {
		if fmt.Sprint(got.Extensions()[name]) != value {
			return fmt.Sprintf("%s: wanted %q, found %q", name, value, got.Extensions()[name])
		}
	}
	return ""
}

// What we write the SDK reads, and what it writes we read.
func TestBothWays(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		binaryEvent, structuredEvent := random(dice, false), random(dice, true)
		h := http.Header{}
		ok(t, httpcarrier.WriteBinary(h, binaryEvent))
		read(t, binaryEvent, h, binaryEvent.Data)
		body, err := httpcarrier.AppendStructured(nil, structuredEvent)
		ok(t, err)
		read(t, structuredEvent, http.Header{"Content-Type": {httpcarrier.StructuredType}}, body)
		write(t, binaryEvent, binding.WithForceBinary(t.Context()))
		write(t, structuredEvent, binding.WithForceStructured(t.Context()))
	}
}

// read has the SDK read what we wrote.
func read(t *testing.T, want *httpcarrier.CloudEvent, h http.Header, body []byte) {
	t.Helper()
	q := httptest.NewRequest("POST", "/", bytes.NewReader(body))
	q.Header = h
	got, err := cloudevents.NewEventFromHTTPRequest(q)
	if err != nil {
		t.Fatalf("%v %s: %v", h, body, err)
	}
	if d := differs(want, got); d != "" {
		t.Fatalf("%v %s: %s", h, body, d)
	}
}

// write has the SDK write, and us read.
func write(t *testing.T, e *httpcarrier.CloudEvent, ctx context.Context) {
	t.Helper()
	theirs := sdkEvent(t, e)
	q, err := http.NewRequest("POST", "http://x/", nil)
	ok(t, err)
	ok(t, cehttp.WriteRequest(ctx, binding.ToMessage(&theirs), q))
	var body []byte
	if q.Body != nil {
		body, err = io.ReadAll(q.Body)
		ok(t, err)
	}
	var got *httpcarrier.CloudEvent
	if httpcarrier.IsBinary(q.Header) {
		got, err = httpcarrier.ParseBinary(q.Header, body)
	} else {
		got, err = httpcarrier.ParseStructured(body)
	}
	if err != nil {
		t.Fatalf("%v %s: %v", q.Header, body, err)
	}
	if d := differs(got, &theirs); d != "" {
		t.Fatalf("%v %s: %s", q.Header, body, d)
	}
}

func sdkEvent(t *testing.T, e *httpcarrier.CloudEvent) event.Event {
	t.Helper()
	s := cloudevents.NewEvent()
	s.SetID(e.ID)
	s.SetSource(e.Source)
	s.SetType(e.Type)
	if e.Subject != "" {
		s.SetSubject(e.Subject)
	}
	if !e.Time.IsZero() {
		s.SetTime(e.Time)
	}
	if e.DataSchema != "" {
		s.SetDataSchema(e.DataSchema)
	}
	for name, value := range e.Extensions {
		s.SetExtension(name, value)
	}
	switch {
	case e.Data == nil:
	case e.DataContentType == "application/json":
		ok(t, s.SetData(e.DataContentType, json.RawMessage(e.Data)))
	default:
		ok(t, s.SetData(e.DataContentType, e.Data))
	}
	ok(t, s.Validate())
	return s
}

// In binary mode the SDK neither decodes nor encodes percents, as the specification
// demands. What it gets of ours is what is decoded to it, and its raw UTF-8 is read.
func TestHeadersOfTheSDK(t *testing.T) {
	e := &httpcarrier.CloudEvent{ID: "1", Source: "/x", Type: "t", Subject: `a b "€" 100%`}
	q := httptest.NewRequest("POST", "/", nil)
	ok(t, httpcarrier.WriteBinary(q.Header, e))
	got, err := cloudevents.NewEventFromHTTPRequest(q)
	ok(t, err)
	if decoded, err := url.PathUnescape(got.Subject()); err != nil || decoded != e.Subject {
		t.Errorf("%q %v", got.Subject(), err)
	}
	e.Subject = "a b €"
	write(t, e, binding.WithForceBinary(t.Context()))
}

// A producer that knows only the SDK sends commands, in both modes, and reads the reply as
// an event where it asks for one.
func TestCommandsOfTheSDK(t *testing.T) {
	var got *handler.Request
	h := handler.Func(func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
		got = r
		return &handler.Reply{Events: []handler.Event{{Type: "deposited", Data: r.Command.Data}}}, nil
	})
	srv := httptest.NewServer(httpcarrier.NewHandler(h, &httpcarrier.ServerOptions{Commands: "account"}))
	defer srv.Close()
	client, err := cloudevents.NewClientHTTP()
	ok(t, err)
	for name, ctx := range map[string]context.Context{"binary": cloudevents.WithEncodingBinary(t.Context()), "structured": cloudevents.WithEncodingStructured(t.Context())} {
		id := eventstore.NewUUID()
		e := cloudevents.NewEvent()
		e.SetID(id.String())
		e.SetSource("/bank/7")
		e.SetType("deposit")
		e.SetSubject("alice")
		ok(t, e.SetData(cloudevents.ApplicationJSON, map[string]int{"amount": 5}))
		result := client.Send(cloudevents.ContextWithTarget(ctx, srv.URL), e)
		if !cloudevents.IsACK(result) {
			t.Errorf("%s: %v", name, result)
		}
		if got == nil || got.Op != handler.Execute || got.Stream != "account-alice" || got.ID != id || string(got.Command.Data) != `{"amount":5}` {
			t.Errorf("%s: %+v", name, got)
		}
		got = nil
	}
	body, err := httpcarrier.AppendStructured(nil, &httpcarrier.CloudEvent{ID: "1", Source: "/", Type: "deposit", Subject: "bob", Data: []byte(`{}`)})
	ok(t, err)
	q, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL, bytes.NewReader(body))
	ok(t, err)
	q.Header.Set("Content-Type", httpcarrier.StructuredType)
	q.Header.Set("Accept", httpcarrier.StructuredType)
	resp, err := http.DefaultClient.Do(q)
	ok(t, err)
	defer resp.Body.Close()
	reply, err := cloudevents.NewEventFromHTTPResponse(resp)
	if err != nil || reply.Type() != "wattle.reply.v1" || reply.Subject() != "account-bob" {
		t.Errorf("%v %v", reply, err)
	}
}
