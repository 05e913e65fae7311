// The client and the service beside the suite: opening and closing, tokens, traces, what
// is visible, sizes.

package remotelog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/remotelog"
)

func TestOpen(t *testing.T) {
	for _, url := range []string{"", "localhost:80", "ftp://a", "http://", "http://user:CANARY@a", "http://a?token=CANARY", "http://a#b", "http://a\n", "http://[::1"} {
		l, err := remotelog.Open(t.Context(), url, nil)
		if l != nil || !errors.Is(err, eventstore.ErrInvalid) || strings.Contains(err.Error(), "CANARY@") {
			t.Errorf("Open(%q) = %v, %v", url, l, err)
		}
	}
	mux := http.NewServeMux()
	below := http.NewServeMux()
	remotelog.NewService(eventstore.New(memlog.New(nil), nil), nil).Mount(below)
	mux.Handle("/some/path/", http.StripPrefix("/some/path", below))
	l := open(t, listen(t, mux)+"/some/path/", nil)
	if all, err := l.ListCategories(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("below a path: %v, %v", all, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := remotelog.Open(ended, l.Target(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Open with a context that has ended: %v", err)
	}
}

// guarded serves a log to who has a token.
func guarded(t *testing.T) (url string) {
	refuse := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			switch r.Header().Get("Authorization") {
			case "Bearer reader":
				if r.Spec().Procedure != "/wattle.v1.AdminService/ListCategories" {
					return nil, remotelog.AsConnect(&eventstore.Error{Kind: remotelog.ErrDenied, Op: "x", Wanted: "a rule"})
				}
			case "Bearer all":
			default:
				return nil, remotelog.AsConnect(&eventstore.Error{Kind: remotelog.ErrUnauthenticated})
			}
			return next(ctx, r)
		}
	})
	return serve(t, memlog.New(nil), &remotelog.ServiceOptions{Options: []connect.HandlerOption{connect.WithInterceptors(refuse)}})
}

func token(s string, err error) *remotelog.Options {
	return &remotelog.Options{Token: func(context.Context) (string, error) { return s, err }}
}

func TestToken(t *testing.T) {
	url := guarded(t)
	for _, o := range []*remotelog.Options{nil, token("", nil), token("other", nil), token("", errors.New("no vault"))} {
		if _, err := remotelog.Open(t.Context(), url, o); !errors.Is(err, remotelog.ErrUnauthenticated) {
			t.Errorf("Open = %v, want not authenticated", err)
		}
	}
	if _, err := remotelog.Open(t.Context(), serve(t, memlog.New(nil), nil), token("", errors.New("no vault"))); !errors.Is(err, remotelog.ErrUnauthenticated) {
		t.Errorf("Open without the token, where none is needed = %v", err)
	}
	l := open(t, url, token("reader", nil))
	if _, err := l.ListCategories(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := l.Append(t.Context(), appendTo("loan-a")); !errors.Is(err, remotelog.ErrDenied) || errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("Append = %v, want denied", err)
	}
	for f, err := range l.Verify(t.Context(), nil) { // streams are not guarded in this test
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Verify = %v, %v", f, err)
		}
	}
}

func TestClose(t *testing.T) {
	log := hanging{memlog.New(nil), make(chan struct{}, 1)}
	l, err := remotelog.Open(t.Context(), serve(t, log, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { _, _ = l.Head(ctx, "loan-a") })
	<-log.began
	closed := make(chan struct{})
	done.Go(func() {
		defer close(closed)
		if err := l.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	for began := time.Now(); !errors.Is(calls(l)["list holds"](t.Context()), eventstore.ErrClosed); time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Error("calls go on, 10 s after Close has begun")
			break
		}
	}
	select {
	case <-closed:
		t.Error("Close has ended before the call under way")
	case <-time.After(100 * time.Millisecond): // time for one that waits for nobody
	}
	cancel()
	done.Wait()
	for name, call := range calls(l) {
		if err := call(t.Context()); !errors.Is(err, eventstore.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	for _, err := range l.Verify(t.Context(), nil) {
		if !errors.Is(err, eventstore.ErrClosed) {
			t.Errorf("Verify after Close: %v", err)
		}
	}
	if err := l.Close(); err != nil {
		t.Errorf("Close again = %v", err)
	}
}

func TestTrace(t *testing.T) {
	var parent string
	look := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			parent = r.Header().Get("Traceparent")
			return next(ctx, r)
		}
	})
	url := serve(t, memlog.New(nil), &remotelog.ServiceOptions{Options: []connect.HandlerOption{connect.WithInterceptors(look)}})
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	ctx, outer := provider.Tracer("test").Start(t.Context(), "outer")
	if _, err := open(t, url, nil).Head(ctx, "loan-a"); !errors.Is(err, eventstore.ErrNoSuchCategory) || parent != eventstore.Traceparent(ctx) {
		t.Errorf("without a provider the server was told %q, want that of the context; %v", parent, err)
	}
	if _, err := open(t, url, &remotelog.Options{TracerProvider: provider, Lazy: true}).Head(ctx, "loan-a"); err == nil {
		t.Error("there is a category")
	}
	outer.End()
	span := spans.Ended()[0]
	sc, ok := eventstore.ParseTraceparent(parent, "")
	if !ok || span.Name() != "wattle.v1.LogService/GetHead" || span.SpanContext().SpanID() != sc.SpanID() || span.Parent().SpanID() != outer.SpanContext().SpanID() {
		t.Errorf("the server was told %q; the span is %q of %v", parent, span.Name(), span.Parent())
	}
}

func TestVisible(t *testing.T) {
	log := memlog.New(nil)
	store := eventstore.New(log, nil)
	see := func(_ context.Context, c eventstore.Category) bool { return c != "hidden" }
	l := open(t, serve(t, log, &remotelog.ServiceOptions{Visible: see}), nil)
	var last eventstore.Token
	for _, c := range []eventstore.Category{"hidden", "loan", "other"} {
		if err := errors.Join(store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c}), store.SetHold(t.Context(), eventstore.Hold{Name: "h", Category: c})); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []eventstore.Stream{"loan-a", "hidden-a", "other-a", "hidden-b"} {
		done, err := store.Append(t.Context(), appendTo(s))
		if err != nil {
			t.Fatal(err)
		}
		last = done.Token
	}
	all, err := l.ListCategories(t.Context())
	if err != nil || len(all) != 2 || all[0].Name != "loan" || all[1].Name != "other" {
		t.Errorf("categories %v, %v", all, err)
	}
	holds, err := l.ListHolds(t.Context())
	if err != nil || len(holds) != 2 || holds[0].Category != "loan" {
		t.Errorf("holds %v, %v", holds, err)
	}
	p, err := l.ReadFeed(t.Context(), 0, eventstore.Filter{}, 100)
	if err != nil || len(p.Entries) != 4 || p.Through.Position < last.Position || !p.End {
		t.Errorf("feed %+v, %v, want it to pass over what is hidden", p, err)
	}
	if i := slices.IndexFunc(p.Entries, func(e eventstore.Entry) bool { return e.Stream.Category() == "hidden" }); i >= 0 {
		t.Errorf("the feed shows %v", p.Entries[i])
	}
}

// bare is a log and nothing more.
type bare struct{ eventstore.Log }

func TestUnsupported(t *testing.T) {
	l := open(t, serve(t, bare{memlog.New(nil)}, nil), nil)
	sn := eventstore.Snapshot{Stream: "loan-a", At: eventstore.Mark{Seqno: 1, ID: holder}, Fingerprint: "f", ContentType: "x", Checksum: [32]byte{1}}
	_, loadErr := l.Load(t.Context(), "loan-a", "", 10)
	_, examineErr := l.Examine(t.Context())
	var verifyErr error
	for _, verifyErr = range l.Verify(t.Context(), nil) {
	}
	for name, err := range map[string]error{"list holds": calls(l)["list holds"](t.Context()), "renew": calls(l)["renew lease"](t.Context()), "load": loadErr, "examine": examineErr,
		"verify": verifyErr, "save": l.SaveSnapshot(t.Context(), sn), "create": l.CreateStreams(t.Context(), []eventstore.Stream{"loan-a"})} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s = %v, want unsupported", name, err)
		}
	}
}

// examined is a log that finds things.
type examined struct{ *memlog.Log }

var findings = []eventstore.Finding{{Check: "a", Severity: eventstore.SeverityFault, Stream: "loan-a", Seqno: 3, Wanted: "w", Found: "f", Hint: "h"}, {Check: "b", Severity: eventstore.SeverityNote}}

func (examined) Examine(context.Context) ([]eventstore.Finding, error) { return findings, nil }

func (examined) Verify(ctx context.Context, progress func(eventstore.Progress)) iter.Seq2[eventstore.Finding, error] {
	return func(yield func(eventstore.Finding, error) bool) {
		progress(eventstore.Progress{Streams: 1, Entries: 2, Total: 3})
		for _, f := range findings {
			if !yield(f, nil) {
				return
			}
		}
		yield(eventstore.Finding{}, &eventstore.Error{Kind: eventstore.ErrUnavailable, Op: "verify", Found: "a broken disk"})
	}
}

func TestDiagnosis(t *testing.T) {
	l := open(t, serve(t, examined{memlog.New(nil)}, nil), nil)
	if got, err := l.Examine(t.Context()); err != nil || !slices.Equal(got, findings) {
		t.Errorf("Examine = %v, %v", got, err)
	}
	var got []eventstore.Finding
	var told eventstore.Progress
	var last error
	for f, err := range l.Verify(t.Context(), func(p eventstore.Progress) { told = p }) {
		if last = err; err == nil {
			got = append(got, f)
		}
	}
	if !slices.Equal(got, findings) || told.Total != 3 || !errors.Is(last, eventstore.ErrUnavailable) || !strings.Contains(last.Error(), "a broken disk") {
		t.Errorf("Verify = %v, %v after %+v", got, last, told)
	}
	for range l.Verify(t.Context(), nil) {
		break // it lets the server off
	}
}

// What is as large as the contract allows passes in every form, and a page of entries with
// much metadata is cut in time.
func TestSizes(t *testing.T) {
	log := memlog.New(nil)
	url := serve(t, log, nil)
	for name, o := range map[string]*remotelog.Options{"binary": {}, "JSON": {JSON: true}} {
		l := open(t, url, o)
		store := eventstore.New(l, nil)
		c := eventstore.Category("large" + name)
		if err := store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: c}); err != nil {
			t.Fatal(err)
		}
		s := eventstore.Stream(c + "-a")
		a := appendTo(s)
		a.Batches[0].Events = nil
		for range eventstore.MaxAppendBytes / eventstore.MaxEventBytes {
			a.Batches[0].Events = append(a.Batches[0].Events, eventstore.Event{Type: "large", Data: bytes.Repeat([]byte{0xff}, eventstore.MaxEventBytes)})
		}
		if _, err := store.Append(t.Context(), a); err != nil {
			t.Fatalf("%s: the largest append: %v", name, err)
		}
		h, err := store.Head(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		sn := eventstore.Snapshot{Stream: s, At: h.Last, Fingerprint: "f", Data: bytes.Repeat([]byte{0xfe}, eventstore.MaxSnapshotBytes)}
		if err := store.SaveSnapshot(t.Context(), sn); err != nil {
			t.Fatalf("%s: the largest snapshot: %v", name, err)
		}
		if got, err := store.Load(t.Context(), s, "f"); err != nil || !bytes.Equal(got.Snapshot.Data, sn.Data) {
			t.Errorf("%s: the largest snapshot is loaded as %v, %v", name, got.Snapshot == nil, err)
		}
	}
	l := open(t, url, nil)
	a := appendTo("largebinary-m")
	a.Batches[0].Events = nil
	for i := range 1500 { // 24 MB of metadata, of which a log counts nothing
		a.Batches[0].Events = append(a.Batches[0].Events, eventstore.Event{ID: eventstore.DeriveUUID(holder, i), Type: "m", Version: 1, ContentType: "x", Data: []byte{},
			Metadata: eventstore.Metadata{"k": strings.Repeat("m", 16000)}})
	}
	if _, err := l.Append(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	p, err := l.ReadFrom(t.Context(), "largebinary-m", 0, 10_000)
	if err != nil || len(p.Entries) > 600 || len(p.Entries) < 500 || p.End {
		t.Errorf("a page of %d entries, end %t, %v", len(p.Entries), p.End, err)
	}
	f, err := l.ReadFeed(t.Context(), p.Entries[0].Position-1, eventstore.Filter{}, 10_000)
	if n := len(f.Entries); err != nil || n > 600 || n < 500 || f.End || f.Through != f.Entries[n-1].PositionMark() {
		t.Errorf("a feed page of %d entries through %v, end %t, %v", n, f.Through, f.End, err)
	}
	loaded, err := l.Load(t.Context(), "largebinary-m", "", 10_000)
	if err != nil || len(loaded.Entries) > 600 || loaded.End {
		t.Errorf("loaded %d entries, end %t, %v", len(loaded.Entries), loaded.End, err)
	}
	back, err := l.ReadBackward(t.Context(), "largebinary-m", 0, 10_000)
	if err != nil || len(back.Entries) > 600 || back.End || back.Entries[0].Seqno != 1500 {
		t.Errorf("backward %d entries, end %t, %v", len(back.Entries), back.End, err)
	}
}

func TestTooLarge(t *testing.T) {
	l := open(t, serve(t, memlog.New(nil), nil), nil)
	a := appendTo("loan-a")
	a.Batches[0].Events[0].Data = make([]byte, 65<<20)
	if _, err := l.Append(t.Context(), a); !errors.Is(err, eventstore.ErrTooLarge) {
		t.Errorf("65 MiB: %v", err)
	}
	a = appendTo("loan-\xff")
	if _, err := l.Append(t.Context(), a); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("a name that is not UTF-8: %v", err)
	}
}

// A server that comes back is found again by itself.
func TestServerReturns(t *testing.T) {
	log := memlog.New(nil)
	if err := log.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "loan"}); err != nil {
		t.Fatal(err)
	}
	service := remotelog.NewService(eventstore.New(log, nil), nil)
	first, stop := listenAt(t, "127.0.0.1:0", service)
	l := open(t, "http://"+first, nil)
	a := appendTo("loan-a")
	if _, err := l.Append(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := l.Head(t.Context(), "loan-a"); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("while the server is away: %v", err)
	}
	_, stop = listenAt(t, first, service)
	defer stop()
	deadline := time.Now().Add(20 * time.Second)
	for {
		done, err := l.Append(t.Context(), a)
		if err == nil && done.Receipts[0].Replays {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("since the server is back: %+v, %v", done, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func ExampleOpen() {
	log := memlog.New(nil)
	url, stop := exampleServer(log)
	defer stop()
	ctx := context.Background()
	remote, err := remotelog.Open(ctx, url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	store := eventstore.New(remote, nil)
	defer store.Close()
	fmt.Println(store.CreateCategory(ctx, eventstore.CategorySpec{Name: "loan"}))
	_, err = store.Append(ctx, eventstore.Append{Batches: []eventstore.Batch{{Stream: "loan-a", Epoch: 1, Holder: eventstore.NewUUID(), Claim: true,
		Events: []eventstore.Event{{Type: "loan.asked", Data: []byte(`{"amount":500}`)}}}}})
	fmt.Println(err)
	for e, err := range store.Read(ctx, "loan-a", 0) {
		fmt.Println(e.Seqno, e.Type, string(e.Data), err)
	}
	// Output:
	// <nil>
	// <nil>
	// 1 loan.asked {"amount":500} <nil>
}

// A snapshot keeps the checksum it was given, so that damage on its way is noticed.
func TestDamagedOnTheWay(t *testing.T) {
	l := open(t, serve(t, memlog.New(nil), nil), nil)
	store := eventstore.New(l, nil)
	if err := store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "loan"}); err != nil {
		t.Fatal(err)
	}
	done, err := store.Append(t.Context(), appendTo("loan-a"))
	if err != nil {
		t.Fatal(err)
	}
	sn := eventstore.Snapshot{Stream: "loan-a", At: done.Receipts[0].Last, Fingerprint: "f", ContentType: "x", Data: []byte("damaged"), Checksum: [32]byte{1}}
	if err := l.SaveSnapshot(t.Context(), sn); err != nil {
		t.Fatal(err)
	}
	if got, err := l.Load(t.Context(), "loan-a", "f", 10); err != nil || got.Snapshot != nil || got.Skipped == "" || len(got.Entries) != 2 {
		t.Errorf("loaded %+v, %v, want the snapshot left out", got, err)
	}
}
