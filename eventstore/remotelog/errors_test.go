// What a call comes to: the server's errors with all facts, and no false word where an
// answer is lost.

package remotelog_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/eventstore/remotelog/wattlev1"
)

// failing is a log whose calls fail with an error.
type failing struct {
	*memlog.Log
	err error
}

func (l failing) Append(context.Context, eventstore.Append) (eventstore.Appended, error) {
	return eventstore.Appended{}, l.err
}

func (l failing) Head(context.Context, eventstore.Stream) (eventstore.Head, error) {
	return eventstore.Head{}, l.err
}

func (l failing) Fence(context.Context, eventstore.Stream, eventstore.UUID, eventstore.Epoch) (eventstore.Head, error) {
	return eventstore.Head{}, l.err
}

func (l failing) RenewLease(context.Context, eventstore.Lease, time.Duration) (eventstore.Lease, error) {
	return eventstore.Lease{}, l.err
}

func (l failing) ListHolds(context.Context) ([]eventstore.Hold, error) { return nil, l.err }

var holder = eventstore.NameUUID("holder")

// appendTo is an append that is complete.
func appendTo(streams ...eventstore.Stream) (a eventstore.Append) {
	for _, s := range streams {
		b := eventstore.Batch{ID: eventstore.NewUUID(), Stream: s, Epoch: 1, Holder: holder, Claim: true}
		for i := range 2 {
			b.Events = append(b.Events, eventstore.Event{ID: eventstore.DeriveUUID(b.ID, i), Type: "opened", Version: 1, ContentType: "application/json", Data: []byte("{}")})
		}
		a.Batches = append(a.Batches, b)
	}
	return a
}

// calls are one of each way that a call may go.
func calls(l *remotelog.Log) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"append": func(ctx context.Context) error { _, err := l.Append(ctx, appendTo("loan-a")); return err },
		"fence":  func(ctx context.Context) error { _, err := l.Fence(ctx, "loan-a", holder, 0); return err },
		"renew lease": func(ctx context.Context) error {
			_, err := l.RenewLease(ctx, eventstore.Lease{Name: "x", Holder: holder, Epoch: 1}, time.Second)
			return err
		},
		"head":       func(ctx context.Context) error { _, err := l.Head(ctx, "loan-a"); return err },
		"list holds": func(ctx context.Context) error { _, err := l.ListHolds(ctx); return err },
	}
}

func writes(call string) bool { return call != "head" && call != "list holds" }

func TestFactsArrive(t *testing.T) {
	cause := errors.New("postgres://app:CANARY@db")
	kinds := []error{eventstore.ErrFenced, eventstore.ErrDiverged, eventstore.ErrTrimmed, eventstore.ErrUnknown, eventstore.ErrUnavailable, eventstore.ErrOverloaded,
		eventstore.ErrReadOnly, eventstore.ErrCorrupt, eventstore.ErrCrossBackend, remotelog.ErrDenied, remotelog.ErrUnauthenticated, remotelog.ErrGoingAway, errors.ErrUnsupported}
	for _, protocol := range []remotelog.Protocol{remotelog.Connect, remotelog.GRPC, remotelog.GRPCWeb} {
		for _, kind := range kinds {
			want := eventstore.Error{Kind: kind, Op: "op", Stream: "loan-a", Category: "loan", Wanted: "w ü", Found: "f", Hint: "h", First: 3, FirstPosition: 4, Unprovable: true,
				Head: &eventstore.Head{Epoch: 3, Holder: holder, Last: eventstore.Mark{Seqno: 1 << 53, ID: holder}, Trimmed: 2}}
			behind := want
			behind.Err = cause
			var told atomic.Pointer[error]
			url := serve(t, failing{memlog.New(nil), &behind}, &remotelog.ServiceOptions{Failed: func(_ context.Context, _ string, err error) { told.Store(&err) }})
			l := open(t, url, &remotelog.Options{Protocol: protocol})
			for name, call := range calls(l) {
				err := call(t.Context())
				got, ok := errors.AsType[*eventstore.Error](err)
				if !ok || !reflect.DeepEqual(*got, want) {
					t.Errorf("%s of a log that says %v: %#v", name, &want, err)
				}
				if heard := told.Load(); heard == nil || !errors.Is(*heard, cause) {
					t.Errorf("%s: Failed was told %v", name, heard)
				}
			}
		}
	}
}

func TestServersOwnErrors(t *testing.T) {
	for _, c := range []struct {
		says        error
		write, read error
	}{
		{errors.New("odd CANARY"), eventstore.ErrUnknown, eventstore.ErrUnavailable},
		{context.Canceled, eventstore.ErrUnavailable, eventstore.ErrUnavailable}, // nothing was written
		{&eventstore.Error{Kind: eventstore.ErrUnknown, Err: context.Canceled}, eventstore.ErrUnknown, eventstore.ErrUnknown},
		{&eventstore.Error{Kind: eventstore.ErrClosed}, eventstore.ErrUnavailable, eventstore.ErrUnavailable}, // the client's log is not
	} {
		l := open(t, serve(t, failing{memlog.New(nil), c.says}, nil), nil)
		for name, call := range calls(l) {
			want := c.read
			if writes(name) {
				want = c.write
			}
			if err := call(t.Context()); !errors.Is(err, want) || strings.Contains(err.Error(), "CANARY") {
				t.Errorf("%s of a log that says %v: %v, want %v", name, c.says, err, want)
			}
		}
	}
}

// answers are servers that do not answer as a Wattle would.
func answers(t *testing.T) map[string]http.HandlerFunc {
	page := func(code int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			fmt.Fprint(w, body)
		}
	}
	hijacked := func(end func(*net.TCPConn)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			end(conn.(*net.TCPConn))
		}
	}
	return map[string]http.HandlerFunc{
		"a proxy's page": page(502, "text/html", "<html>bad gateway\r\nCANARY</html>"),
		"unavailable":    page(503, "text/plain", "try later"),
		"not found":      page(404, "text/plain; charset=utf-8", "404 page not found"),
		"forbidden":      page(403, "text/html", "<html>no</html>"),
		"all is well":    page(200, "text/html", "<html>welcome</html>"),
		"nothing":        page(204, "", ""),
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		},
		"an error of JSON": page(400, "application/json", `{"code":"aborted","message":"fenced"}`),
		"a false detail":   page(400, "application/json", `{"code":"aborted","details":[{"type":"wattle.v1.ErrorDetail","value":"//8"}]}`),
		"no message":       page(200, "application/proto", "\xff\xff\xff"),
		"an empty message": page(200, "application/proto", ""),
		"half a message": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/proto")
			w.Header().Set("Content-Length", "1000")
			w.Write([]byte{10})
		},
		"a panic": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"end":     hijacked(func(*net.TCPConn) {}),
		"reset":   hijacked(func(c *net.TCPConn) { c.SetLinger(0) }),
	}
}

func TestNoAnswerOfWattle(t *testing.T) {
	for server, answer := range answers(t) {
		l := open(t, listen(t, answer), &remotelog.Options{Transport: http1(t), Lazy: true})
		for name, call := range calls(l) {
			if name == "list holds" && server == "an empty message" {
				continue // it is one: no holds
			}
			err := call(t.Context())
			want := eventstore.ErrUnavailable
			if writes(name) {
				want = eventstore.ErrUnknown
			}
			e, ok := errors.AsType[*eventstore.Error](err)
			if !ok || e.Kind != want || e.Op != name || e.Hint == "" || strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("%s of %s: %v, want %v", name, server, err, want)
			}
		}
		if _, err := remotelog.Open(t.Context(), l.Target(), &remotelog.Options{Transport: http1(t)}); !errors.Is(err, eventstore.ErrUnavailable) {
			t.Errorf("Open of %s: %v", server, err)
		}
	}
}

func TestNobodyThere(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for _, transport := range []http.RoundTripper{nil, http1(t)} {
		l := open(t, "http://"+gone.Addr().String(), &remotelog.Options{Transport: transport, Lazy: true})
		for name, call := range calls(l) {
			if err := call(t.Context()); !errors.Is(err, eventstore.ErrUnavailable) {
				t.Errorf("%s where nobody listens: %v", name, err)
			}
		}
	}
	// A transport that does not tell may have sent it.
	l := open(t, "http://"+gone.Addr().String(), &remotelog.Options{Transport: silent{}, Lazy: true})
	for name, call := range calls(l) {
		want := eventstore.ErrUnavailable
		if writes(name) {
			want = eventstore.ErrUnknown
		}
		if err := call(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s over a transport that tells nothing: %v, want %v", name, err, want)
		}
	}
}

type silent struct{}

func (silent) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: errors.New("TypeError: Failed to fetch")}
}

// hanging is a log that answers when a call's context ends.
type hanging struct {
	*memlog.Log
	began chan struct{}
}

func (l hanging) Append(ctx context.Context, _ eventstore.Append) (eventstore.Appended, error) {
	l.began <- struct{}{}
	<-ctx.Done()
	return eventstore.Appended{}, &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "append", Err: ctx.Err()}
}

func (l hanging) Head(ctx context.Context, _ eventstore.Stream) (eventstore.Head, error) {
	l.began <- struct{}{}
	<-ctx.Done()
	return eventstore.Head{}, ctx.Err()
}

func TestContextEnds(t *testing.T) {
	log := hanging{memlog.New(nil), make(chan struct{}, 10)}
	l := open(t, serve(t, log, nil), nil)
	for name, call := range calls(l) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := call(ended); err != context.Canceled {
			t.Errorf("%s with a context that has ended: %v", name, err)
		}
		if name != "append" && name != "head" {
			continue
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-log.began
			cancel()
		}()
		err := call(ctx)
		if writes(name) && !errors.Is(err, eventstore.ErrUnknown) || !writes(name) && err != context.Canceled {
			t.Errorf("%s whose context ends meanwhile: %v", name, err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		err = call(ctx)
		cancel()
		if writes(name) && !errors.Is(err, eventstore.ErrUnknown) || !writes(name) && err != context.DeadlineExceeded {
			t.Errorf("%s whose time is up: %v", name, err)
		}
	}
	l = open(t, l.Target(), &remotelog.Options{Timeout: 50 * time.Millisecond, Lazy: true})
	for name, want := range map[string]error{"append": eventstore.ErrUnknown, "head": eventstore.ErrUnavailable} {
		ctx, cancel := context.WithCancel(t.Context())
		bound := time.AfterFunc(10*time.Second, cancel)
		if err := calls(l)[name](ctx); !errors.Is(err, want) || ctx.Err() != nil {
			t.Errorf("%s within the client's own time: %v, want %v", name, err, want)
		}
		bound.Stop()
		cancel()
	}
}

// mixing is a server that answers an append with receipts that were changed.
func mixing(t *testing.T, change func(*wattlev1.AppendResponse)) (url string) {
	return listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := &wattlev1.AppendResponse{}
		for _, s := range []string{"loan-a", "loan-b"} {
			m.Receipts = append(m.Receipts, &wattlev1.Receipt{Stream: s, First: 1, Last: &wattlev1.Mark{Seqno: 2, Id: r.Header.Get("X-Last-" + s[5:])}})
		}
		change(m)
		data, err := proto.Marshal(m)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/proto")
		w.Write(data)
	}))
}

func TestReceiptsFit(t *testing.T) {
	for name, change := range map[string]func(*wattlev1.AppendResponse){
		"none":          func(m *wattlev1.AppendResponse) { m.Receipts = nil },
		"one of two":    func(m *wattlev1.AppendResponse) { m.Receipts = m.Receipts[:1] },
		"one too many":  func(m *wattlev1.AppendResponse) { m.Receipts = append(m.Receipts, m.Receipts[0]) },
		"other order":   func(m *wattlev1.AppendResponse) { m.Receipts[0], m.Receipts[1] = m.Receipts[1], m.Receipts[0] },
		"other stream":  func(m *wattlev1.AppendResponse) { m.Receipts[0].Stream = "loan-c" },
		"other first":   func(m *wattlev1.AppendResponse) { m.Receipts[1].First = 2 },
		"other last":    func(m *wattlev1.AppendResponse) { m.Receipts[1].Last.Seqno = 3 },
		"other event":   func(m *wattlev1.AppendResponse) { m.Receipts[1].Last.Id = holder.String() },
		"no last":       func(m *wattlev1.AppendResponse) { m.Receipts[1].Last = nil },
		"huge position": func(m *wattlev1.AppendResponse) { m.Token = &wattlev1.Token{Position: 1 << 63} },
		"":              func(*wattlev1.AppendResponse) {},
	} {
		l := open(t, mixing(t, change), &remotelog.Options{Transport: echoed{http1(t)}, Lazy: true})
		a := appendTo("loan-a", "loan-b")
		_, err := l.Append(context.WithValue(t.Context(), echoed{}, a), a)
		if name == "" && err != nil || name != "" && !errors.Is(err, eventstore.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// echoed tells the server in headers what the last events are, so that it need not read.
type echoed struct{ next http.RoundTripper }

func (e echoed) RoundTrip(r *http.Request) (*http.Response, error) {
	a, _ := r.Context().Value(echoed{}).(eventstore.Append)
	for _, b := range a.Batches {
		r.Header.Set("X-Last-"+b.Stream.Key(), b.Events[len(b.Events)-1].ID.String())
	}
	return e.next.RoundTrip(r)
}

// Where a server sends its caller elsewhere the call is not made again: it may have been
// carried out, and the token is not for others.
func TestRedirect(t *testing.T) {
	log := memlog.New(nil)
	if err := log.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "loan"}); err != nil {
		t.Fatal(err)
	}
	elsewhere := serve(t, log, nil)
	l := open(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
	})), &remotelog.Options{Transport: http1(t), Lazy: true})
	if _, err := l.Append(t.Context(), appendTo("loan-a")); !errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("Append where it is sent elsewhere: %v", err)
	}
	if h, err := log.Head(t.Context(), "loan-a"); err != nil || h.Epoch != 0 {
		t.Errorf("the other server has written %+v, %v", h, err)
	}
}
