// Requests that no client of ours makes, and connections as they are outside of tests.

package remotelog_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/remotelog"
)

// unary are the procedures that take one message.
var unary = []string{"LogService/Append", "LogService/Read", "LogService/ReadBackward", "LogService/ReadFeed", "LogService/Load", "LogService/GetHead",
	"LogService/Fence", "LogService/Trim", "LogService/SaveSnapshot", "LogService/ListTrimmed", "AdminService/CreateCategory", "AdminService/DeleteCategory",
	"AdminService/ListCategories", "AdminService/CreateStreams", "AdminService/DropStream", "AdminService/SetHold", "AdminService/ReleaseHold",
	"AdminService/ListHolds", "AdminService/Examine", "LeaseService/AcquireLease", "LeaseService/RenewLease", "LeaseService/ReleaseLease", "LeaseService/UpdateLeases"}

// FuzzService sends bytes as every request: none may be an internal error, or worse.
func FuzzService(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte(`{"batches":[{"stream":"loan-a","epoch":"1","holder":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","claim":true,"events":[{"type":"x"}]}]}`))
	f.Add([]byte(`{"stream":"loan-a","after":"18446744073709551615","limit":4294967295,"slots":[70000]}`))
	f.Add([]byte(`{"lease":{"name":"x"},"ttl":"-1s","snapshot":{"checksum":"AA=="},"spec":{"name":"a","layout":9},"hold":{"seqno":"-1"}}`))
	f.Add([]byte("\n\x06loan-a\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	mux := http.NewServeMux()
	log := memlog.New(nil)
	remotelog.NewService(eventstore.New(log, nil), nil).Mount(mux)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, procedure := range unary {
			for _, form := range []string{"application/json", "application/proto"} {
				r := httptest.NewRequest(http.MethodPost, "/wattle.v1."+procedure, bytes.NewReader(body))
				r.Header.Set("Content-Type", form)
				w := httptest.NewRecorder()
				mux.ServeHTTP(w, r)
				if w.Code == http.StatusInternalServerError || w.Code == http.StatusNotFound && w.Header().Get("Content-Type") != "application/json" {
					t.Errorf("%s of %q: %d %s", procedure, body, w.Code, w.Body)
				}
			}
		}
	})
}

// Over TLS the transport says in other places when it has a connection.
func TestTLS(t *testing.T) {
	log := memlog.New(nil)
	if err := log.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "loan"}); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	remotelog.NewService(eventstore.New(log, nil), nil).Mount(mux)
	lose := false
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("it speaks %s", r.Proto)
		}
		if !lose {
			mux.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	if _, err := remotelog.Open(t.Context(), server.URL, nil); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("Open with a certificate that nobody knows: %v", err)
	}
	stranger := open(t, server.URL, &remotelog.Options{Lazy: true})
	if _, err := stranger.Append(t.Context(), appendTo("loan-a")); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("Append where the certificate is refused: %v, want that nothing was sent", err)
	}
	l := open(t, server.URL, &remotelog.Options{Transport: server.Client().Transport})
	a := appendTo("loan-a")
	lose = true
	if _, err := l.Append(t.Context(), a); !errors.Is(err, eventstore.ErrUnknown) {
		t.Errorf("Append whose answer is lost: %v", err)
	}
	lose = false
	if done, err := l.Append(t.Context(), a); err != nil || !done.Receipts[0].Replays {
		t.Errorf("sent again: %+v, %v", done, err)
	}
}
