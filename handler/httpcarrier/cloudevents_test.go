// The two codecs: tables of what the specification allows and does not, and fuzzing.

package httpcarrier_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

func full() *httpcarrier.CloudEvent {
	return &httpcarrier.CloudEvent{ID: "A 234-\"1\"", Source: "/mycontext/4", Type: "com.example.someevent", Subject: "Euro € 😀 100%", Time: time.Date(2018, 4, 5, 17, 31, 0, 5, time.UTC),
		DataContentType: "application/json", DataSchema: "https://example.com/schema", Extensions: map[string]string{"comexampleextension1": "value", "n": "-3"}, Data: []byte(`{"a": 1}`)}
}

// Both modes give back what was put in.
func TestCodecs(t *testing.T) {
	bare := &httpcarrier.CloudEvent{ID: "1", Source: "/", Type: "t"}
	text := full()
	text.DataContentType, text.Data = "text/plain", []byte("a < b")
	for name, e := range map[string]*httpcarrier.CloudEvent{"full": full(), "bare": bare, "text": text} {
		h := http.Header{}
		ok(t, httpcarrier.WriteBinary(h, e))
		for header, values := range h {
			if s := strings.Join(values, ""); strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > 0x7e }) >= 0 {
				t.Errorf("%s: header %s: %q", name, header, s)
			}
		}
		back, err := httpcarrier.ParseBinary(h, e.Data)
		if err != nil || !reflect.DeepEqual(back, e) {
			t.Errorf("%s, binary: %+v %v", name, back, err)
		}
		body, err := httpcarrier.AppendStructured(nil, e)
		ok(t, err)
		back, err = httpcarrier.ParseStructured(body)
		if err != nil || !reflect.DeepEqual(back, e) {
			t.Errorf("%s, structured: %s: %+v %v", name, body, back, err)
		}
	}
	h := http.Header{}
	ok(t, httpcarrier.WriteBinary(h, full()))
	if got := h.Get("Ce-Subject"); got != "Euro%20%E2%82%AC%20%F0%9F%98%80%20100%25" { // as the specification has it
		t.Errorf("subject %q", got)
	}
}

// What older and other senders may write.
func TestReadsWhatIsAllowed(t *testing.T) {
	h := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {`"a \"b\" c\\"`}, "Ce-Source": {"/x"}, "Ce-Type": {"%e2%82%ac%41"}, "Content-Type": {"text/xml"}}
	e, err := httpcarrier.ParseBinary(h, []byte("<x/>"))
	if err != nil || e.ID != `a "b" c\` || e.Type != "€A" || e.DataContentType != "text/xml" || string(e.Data) != "<x/>" {
		t.Errorf("%+v %v", e, err)
	}
	for body, want := range map[string]string{
		`{"specversion":"1.0","id":"1","source":"/","type":"t","data":{"x":1.50}}`:                                `{"x":1.50}`,
		`{"specversion":"1.0","id":"1","source":"/","type":"t","data":"text"}`:                                    `"text"`,
		`{"specversion":"1.0","id":"1","source":"/","type":"t","data":"text","datacontenttype":"text/plain"}`:     `text`,
		`{"specversion":"1.0","id":"1","source":"/","type":"t","data_base64":"AAE="}`:                             "\x00\x01",
		`{"specversion":"1.0","id":"1","source":"/","type":"t","subject":null,"data":[ ],"datacontenttype":null}`: `[ ]`,
		`{"specversion":"1.0","id":"1","source":"/","type":"t","data":3,"datacontenttype":"application/x+json"}`:  `3`,
		`{"specversion":"1.0","id":"1","source":"/","type":"t","ext1":true,"ext2":-5}`:                            ``,
	} {
		e, err := httpcarrier.ParseStructured([]byte(body))
		if err != nil || string(e.Data) != want {
			t.Errorf("%s: %+v %v", body, e, err)
		}
	}
	e, err = httpcarrier.ParseStructured([]byte(`{"specversion":"1.0","id":"1","source":"/","type":"t","ext1":true,"ext2":-5}`))
	if err != nil || e.Extensions["ext1"] != "true" || e.Extensions["ext2"] != "-5" || e.Data != nil {
		t.Errorf("%+v %v", e, err)
	}
}

func TestRefusesWhatIsNot(t *testing.T) {
	good := `"specversion":"1.0","id":"1","source":"/","type":"t"`
	for _, body := range []string{``, `null`, `[]`, `"x"`, `{`, `{}`, `{` + good, `{` + good + `}x`, `{` + good + `}{}`,
		`{"id":"1","source":"/","type":"t"}`, `{"specversion":null,"id":"1","source":"/","type":"t"}`, `{"specversion":"1.1","id":"1","source":"/","type":"t"}`,
		`{"specversion":1.0,"id":"1","source":"/","type":"t"}`, `{"specversion":"1.0","source":"/","type":"t"}`, `{"specversion":"1.0","id":"","source":"/","type":"t"}`,
		`{"specversion":"1.0","id":1,"source":"/","type":"t"}`, `{"specversion":"1.0","id":"1","source":"","type":"t"}`, `{"specversion":"1.0","id":"1","source":":","type":"t"}`, `{"specversion":"1.0","id":"1","source":"/a b","type":"t"}`,
		`{"specversion":"1.0","id":"1","source":"/"}`, `{` + good + `,"id":"2"}`, `{` + good + `,"subject":""}`, `{` + good + `,"time":"yesterday"}`,
		`{` + good + `,"dataschema":"relative"}`, `{` + good + `,"datacontenttype":"/"}`, `{` + good + `,"Upper":"x"}`, `{` + good + `,"with_under":"x"}`, `{` + good + `,"":"x"}`,
		`{` + good + `,"ext":{}}`, `{` + good + `,"ext":1.5}`, `{` + good + `,"ext":2147483648}`, `{` + good + `,"ext":"a\u0000b"}`, `{` + good + `,"ext":"\u0085"}`, `{` + good + `,"ext":"\ufffe"}`,
		`{` + good + `,"data":1,"data_base64":"AA=="}`, `{` + good + `,"data_base64":"A"}`, `{` + good + `,"data_base64":1}`, `{` + good + `,"data_base64":null}`,
		`{` + good + `,"data":1,"datacontenttype":"text/plain"}`, `{` + good + `,"ext":"` + "\xff" + `"}`, `{` + good + `,"ext":"` + strings.Repeat("x", 20<<10) + `"}`} {
		var wrong *httpcarrier.EventError
		if e, err := httpcarrier.ParseStructured([]byte(body)); !errors.As(err, &wrong) {
			t.Errorf("%.200s: %+v, %v", body, e, err)
		}
	}
	for name, value := range map[string]string{"Ce-Id": "", "Ce-Time": "now", "Ce-Specversion": "1", "Ce-Ext": "%0a", "Ce-Ext2": "%ff", "Ce-Ext3": "%4", "Ce-Ext4": "%zz", "Ce-Data": "x", "Ce-Datacontenttype": "x/y", "Ce-A-B": "x", "Ce-": "x"} {
		h := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/x"}, "Ce-Type": {"t"}}
		h[name] = []string{value}
		if e, err := httpcarrier.ParseBinary(h, nil); err == nil {
			t.Errorf("%s: %q: %+v", name, value, e)
		}
	}
	for _, e := range []*httpcarrier.CloudEvent{{}, {ID: "1", Source: "/", Type: "a\x01"}, {ID: "1", Source: "/", Type: "t", Extensions: map[string]string{"id": "2"}}, {ID: "1", Source: "/", Type: "t", Extensions: map[string]string{"A": "2"}}} {
		if _, err := httpcarrier.AppendStructured(nil, e); err == nil {
			t.Errorf("written: %+v", e)
		}
		if err := httpcarrier.WriteBinary(http.Header{}, e); err == nil {
			t.Errorf("written: %+v", e)
		}
	}
}

// What names a command is its source and its id, wherever one of them ends.
func TestCommandID(t *testing.T) {
	ids := map[eventstore.UUID]string{}
	for _, e := range []httpcarrier.CloudEvent{{Source: "/a", ID: "b c"}, {Source: "/a b", ID: "c"}, {Source: "/a", ID: " b c"}, {Source: "/a%20b", ID: "c"}} {
		e.Type = "t"
		if e.Check() != nil {
			continue
		}
		id := httpcarrier.CommandID(&e)
		if other, there := ids[id]; there {
			t.Errorf("%q and %q have one ID", other, e.Source+e.ID)
		}
		ids[id] = e.Source + e.ID
	}
	if len(ids) != 3 {
		t.Errorf("%d IDs", len(ids))
	}
}

// What one mode reads both write, and read back as the same.
func FuzzCloudEvent(f *testing.F) {
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"/","type":"t","time":"2018-04-05T17:31:00Z","x":true,"data":{"a": 1}}`), "a%20b", "text/plain")
	f.Add([]byte(`{"specversion":"1.0","id":"€","source":"/","type":"t","datacontenttype":"text/plain","data":"x"}`), `"q\"x"`, "")
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"/","type":"t","data_base64":"AAEC"}`), "%", jsonType)
	f.Add([]byte("0 "), "0", "")
	f.Fuzz(func(t *testing.T, body []byte, header, contentType string) {
		if e, err := httpcarrier.ParseStructured(body); err == nil {
			same(t, e)
		}
		h := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/x"}, "Ce-Type": {header}}
		if contentType != "" {
			h.Set("Content-Type", contentType)
		}
		if e, err := httpcarrier.ParseBinary(h, body); err == nil {
			same(t, e)
		}
	})
}

func same(t *testing.T, e *httpcarrier.CloudEvent) {
	e.Time = e.Time.UTC()
	h := http.Header{}
	ok(t, httpcarrier.WriteBinary(h, e))
	back, err := httpcarrier.ParseBinary(h, e.Data)
	ok(t, err)
	if len(e.Data) == 0 {
		back.Data = e.Data // a body of no bytes is none
	}
	if !reflect.DeepEqual(back, e) {
		t.Fatalf("binary: wanted %+v, found %+v", e, back)
	}
	body, err := httpcarrier.AppendStructured(nil, e)
	ok(t, err)
	if back, err = httpcarrier.ParseStructured(body); err != nil || !reflect.DeepEqual(back, e) {
		t.Fatalf("structured: wanted %+v, found %+v, %v: %s", e, back, err, body)
	}
}

// Whatever is posted, there is an answer, it is one of the contract, and it is no 5xx.
func FuzzServer(f *testing.F) {
	r := decide(5)
	f.Add([]byte(encoded(r)), jsonType, "", "", "")
	f.Add([]byte(envelope("wattle.decide.v1", r.Key.String(), string(r.Stream), encoded(r))), structured, "", "", "")
	f.Add([]byte(encoded(r)), jsonType, "wattle.decide.v1", r.Key.String(), "")
	f.Add([]byte(`{"amount":1}`), jsonType, "deposit", "1", "")
	f.Add([]byte(gzipped(encoded(r))), jsonType, "", "", "gzip")
	h := httpcarrier.NewHandler(handler.Func(func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
		return &handler.Reply{State: r.State}, nil
	}), &httpcarrier.ServerOptions{Commands: "account", Hints: "/hints"})
	f.Fuzz(func(t *testing.T, body []byte, contentType, typ, id, coding string) {
		q := httptest.NewRequest("POST", "/", strings.NewReader(string(body)))
		q.Header = http.Header{"Content-Type": {contentType}}
		if typ != "" {
			q.Header["Ce-Specversion"], q.Header["Ce-Source"], q.Header["Ce-Type"], q.Header["Ce-Id"], q.Header["Ce-Subject"] = []string{"1.0"}, []string{"/"}, []string{typ}, []string{id}, []string{id}
		}
		if coding != "" {
			q.Header["Content-Encoding"] = []string{coding}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		answer, err := io.ReadAll(w.Result().Body)
		ok(t, err)
		if strings.HasPrefix(w.Header().Get("Content-Type"), structured) {
			e, err := httpcarrier.ParseStructured(answer)
			ok(t, err)
			answer = e.Data
		}
		if _, err := handler.ParseReply(answer); err != nil || w.Code >= 500 && w.Code != 504 {
			t.Fatalf("%d %s %v", w.Code, answer, err)
		}
	})
}
