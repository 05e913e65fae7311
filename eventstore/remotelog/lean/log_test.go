// The client on the conformance suite over a real server, and when there is none.

package lean_test

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/logtest"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/eventstore/remotelog/lean"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.short", "true"); err != nil { // the suite goes over the network
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// at returns a client of what is served.
func at(t testing.TB, served http.Handler) *lean.Log {
	t.Helper()
	s := httptest.NewServer(served)
	t.Cleanup(s.Close)
	return client(t, s.URL+"/")
}

func client(t testing.TB, url string) *lean.Log {
	t.Helper()
	h := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	t.Cleanup(h.CloseIdleConnections)
	l, err := lean.Open(url, &lean.Options{Transport: lean.HTTP{Client: h}, Token: "a token"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func service() http.Handler {
	mux := http.NewServeMux()
	remotelog.NewService(eventstore.New(memlog.New(nil), nil), nil).Mount(mux)
	return mux
}

func TestConformance(t *testing.T) {
	h := logtest.Harness{Open: func(t testing.TB) eventstore.Log { return at(t, service()) }}
	logtest.Run(t, h)
	logtest.Random(t, h, nil)
}

// one is an append of one entry to a stream that does not exist.
func one() eventstore.Append {
	return eventstore.Append{Batches: []eventstore.Batch{{Stream: "account-alice", Claim: true, Epoch: 1, Holder: eventstore.NewUUID(),
		Events: []eventstore.Event{{Type: "opened", Data: []byte("12345678901234567890")}}}}}
}

// Whoever answers in the place of the service, or does not, an append is not known, and a
// read has failed. The service has appended: sending the same again proves it.
func TestLostAnswer(t *testing.T) {
	behind := service()
	for name, answer := range map[string]http.HandlerFunc{
		"cut off":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"a page":      func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>welcome</html>")) },
		"a bad proxy": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"redirected":  func(w http.ResponseWriter, r *http.Request) { http.Error(w, "elsewhere", http.StatusSeeOther) },
		"no receipt":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) },
		"another receipt": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"receipts":[{"stream":"account-alice","first":"7","last":{"seqno":"7"}}]}`))
		},
		"a huge number": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"receipts":[{"stream":"account-alice","first":"18446744073709551615"}]}`))
		},
		"no such error": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"code":"aborted","details":[{"type":"wattle.v1.ErrorDetail","value":"CGM"}]}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var lossy atomic.Bool // a handler may outlive its request
			l := at(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !lossy.Load() {
					behind.ServeHTTP(w, r)
					return
				}
				behind.ServeHTTP(httptest.NewRecorder(), r)
				answer(w, r)
			}))
			store := eventstore.New(l, nil)
			lossy.Store(false)
			if err := store.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "account"}); err != nil {
				t.Fatal(err)
			}
			a := one()
			a.Batches[0].ID, a.Batches[0].Stream = eventstore.NewUUID(), eventstore.Stream("account-"+eventstore.NewUUID().String())
			lossy.Store(true)
			if _, err := store.Append(t.Context(), a); !errors.Is(err, eventstore.ErrUnknown) {
				t.Errorf("append: %v, want ErrUnknown", err)
			}
			if name != "no receipt" && name != "another receipt" && name != "a huge number" { // for a read that is an empty page
				if _, err := store.ReadFrom(t.Context(), a.Batches[0].Stream, 0, 0); !errors.Is(err, eventstore.ErrUnavailable) {
					t.Errorf("read: %v, want ErrUnavailable", err)
				}
			}
			lossy.Store(false)
			done, err := store.Append(t.Context(), a)
			if err != nil || !done.Receipts[0].Replays {
				t.Errorf("sent again: %+v, %v, want a receipt that says so", done, err)
			}
		})
	}
}

// What was never sent has never happened.
func TestNotSent(t *testing.T) {
	n, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
	l, err := lean.Open("http://"+n.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	store := eventstore.New(l, nil)
	if _, err := store.Append(t.Context(), one()); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Append(ended, one()); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that the context ended", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Append(t.Context(), one()); !errors.Is(err, eventstore.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
	for _, bad := range []string{"", "host", "ftp://host", "https://", "https://host?x=1", "https://host#x", "https://%zz"} {
		if _, err := lean.Open(bad, nil); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", bad, err)
		}
	}
}

// The header says who asks and for how long.
func TestHeader(t *testing.T) {
	var got http.Header
	l := at(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		_, _ = w.Write([]byte("{}"))
	}))
	if _, err := l.Head(t.Context(), "account-alice"); err != nil {
		t.Fatal(err)
	}
	if got.Get("Authorization") != "Bearer a token" || got.Get("Content-Type") != "application/json" || got.Get("Connect-Protocol-Version") != "1" || got.Get("Connect-Timeout-Ms") == "" {
		t.Errorf("header %v", got)
	}
}
