// Plain curl with JSON: no protobuf library at all.

package foreign

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wattle-es/wattle/internal/foreign/servetest"
)

const (
	batchID  = "01975b1c-0000-7000-8000-00000000000"
	holderID = "01975b1c-0000-7000-8000-0000000000aa"
	// payload has numbers that a double does not hold.
	payload = `{"n":12345678901234567890,"r":0.1234567890123456789,"e":1e400}`
	// bigEpoch is above 2^53: a client that keeps numbers as doubles changes it.
	bigEpoch = "9007199254740993"
)

// message is the JSON of any answer, as far as the tests look at it. Integers of 64 bits
// are strings in it.
type message struct {
	Receipts []struct {
		First   string `json:"first"`
		Last    mark   `json:"last"`
		Replays bool   `json:"replays"`
	} `json:"receipts"`
	Entries []struct {
		Event    event  `json:"event"`
		Seqno    string `json:"seqno"`
		Epoch    string `json:"epoch"`
		Position string `json:"position"`
	} `json:"entries"`
	Messages []struct {
		Offset string `json:"offset"`
		Event  event  `json:"event"`
	} `json:"messages"`
	Assignment *struct {
		Generation string `json:"generation"`
	} `json:"assignment"`
	First   string   `json:"first"`
	Last    string   `json:"last"`
	Replays bool     `json:"replays"`
	End     bool     `json:"end"`
	Lost    []uint32 `json:"lost"`
	failure
}

// failure is an error's JSON: of a unary call the whole answer, of a stream its end.
type failure struct {
	Code    string `json:"code"`
	Details []struct {
		Type  string `json:"type"`
		Debug struct {
			Kind   string `json:"kind"`
			Stream string `json:"stream"`
			Head   struct {
				Epoch  string `json:"epoch"`
				Holder string `json:"holder"`
				Last   mark   `json:"last"`
			} `json:"head"`
		} `json:"debug"`
	} `json:"details"`
}

type mark struct {
	Seqno string `json:"seqno"`
	ID    string `json:"id"`
}

type event struct {
	Type string `json:"type"`
	Data []byte `json:"data"`
}

// caller is curl with a server and what it says of itself.
type caller struct {
	url  string
	args []string
}

func asTeller(s *servetest.Server, more ...string) *caller {
	return &caller{s.URL, append(more, "--cacert", s.Path("ca.crt"), "--cert", s.Path("teller.crt"), "--key", s.Path("teller.key"))}
}

// call returns the status and the answer of a unary call.
func (c *caller) call(t *testing.T, procedure, request string) (string, message) {
	t.Helper()
	args := append([]string{"-sS", "-w", "\n%{http_code}", "-H", "Content-Type: application/json", "-d", request, c.url + "/wattle.v1." + procedure}, c.args...)
	out, err := command(t, "curl", args...).Output()
	if err != nil {
		t.Fatalf("%s: %v %s", procedure, err, stderr(err))
	}
	text, status, _ := cutLast(string(out), "\n")
	var m message
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%s: %v\n%s", procedure, err, text)
	}
	return status, m
}

// ok is call where it has to go well.
func (c *caller) ok(t *testing.T, procedure, request string) message {
	t.Helper()
	status, m := c.call(t, procedure, request)
	if status != "200" || m.Code != "" {
		t.Fatalf("%s %s: wanted 200, found %s %+v", procedure, request, status, m.failure)
	}
	return m
}

func (f failure) is(code, kind string) error {
	if f.Code != code || len(f.Details) != 1 || f.Details[0].Type != "wattle.v1.ErrorDetail" || f.Details[0].Debug.Kind != "ERROR_KIND_"+kind {
		return fmt.Errorf("wanted %s with ERROR_KIND_%s, found %+v", code, kind, f)
	}
	return nil
}

// stream is what a call answers that answers without end.
type stream struct {
	t    *testing.T
	body *bufio.Reader
}

// stream starts a call with many answers.
func (c *caller) stream(t *testing.T, procedure, request string) *stream {
	t.Helper()
	frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request))), request...)
	file := filepath.Join(t.TempDir(), "request")
	if err := os.WriteFile(file, frame, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-sS", "-N", "-H", "Content-Type: application/connect+json", "--data-binary", "@" + file, c.url + "/wattle.v1." + procedure}, c.args...)
	p := command(t, "curl", args...)
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	return &stream{t, bufio.NewReader(out)}
}

const (
	endOfStream = 2       // flag of the last frame
	maxFrame    = 4 << 20 // of an answer of these tests
)

// next returns the next answer, and if it is the last, which then may be an error.
func (s *stream) next() (m message, last bool) {
	s.t.Helper()
	head := make([]byte, 5)
	if _, err := io.ReadFull(s.body, head); err != nil {
		s.t.Fatalf("wanted an answer, found %v", err)
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame || head[0]&^endOfStream != 0 {
		s.t.Fatalf("wanted a frame, found %x", head)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(s.body, text); err != nil {
		s.t.Fatal(err)
	}
	last = head[0] == endOfStream
	into := any(&m)
	if last {
		into = &struct {
			Error *failure `json:"error"`
		}{&m.failure}
	}
	if err := json.Unmarshal(text, into); err != nil {
		s.t.Fatalf("%v\n%s", err, text)
	}
	return m, last
}

// until returns the first answer for which found says yes.
func (s *stream) until(found func(message) bool) message {
	s.t.Helper()
	for {
		m, last := s.next()
		if last {
			s.t.Fatalf("wanted more, found the end: %+v", m.failure)
		}
		if found(m) {
			return m
		}
	}
}

// appending is the JSON of an append of one event.
func appending(id, stream, epoch, more, data string) string {
	return fmt.Sprintf(`{"batches":[{"id":%q,"stream":%q,"epoch":%q,"holder":%q,%s,"events":[{"type":"account.opened","data":%q}]}]}`,
		id, stream, epoch, holderID, more, base64.StdEncoding.EncodeToString([]byte(data)))
}

func TestCurl(t *testing.T) {
	s := servetest.Start(t, program)
	asTeller(s).ok(t, "AdminService/CreateCategory", `{"spec":{"name":"account"}}`)
	for i, version := range []string{"--http1.1", "--http2"} {
		t.Run(version[2:], func(t *testing.T) {
			c, name := asTeller(s, version), fmt.Sprint("account-", i)
			last := curlAppend(t, c, name, batchID+fmt.Sprint(i))
			curlFollow(t, c, name, last)
			curlTopic(t, c, fmt.Sprint("orders", i))
			curlRefused(t, s, c, version)
		})
	}
}

// curlAppend appends, appends again, is refused, and reads.
func curlAppend(t *testing.T, c *caller, name, id string) (last mark) {
	first := appending(id, name, bigEpoch, `"claim":true`, payload)
	r := c.ok(t, "LogService/Append", first)
	if len(r.Receipts) != 1 || r.Receipts[0].Last.Seqno != "1" || r.Receipts[0].Replays {
		t.Fatalf("wanted the receipt of seqno 1, found %+v", r.Receipts)
	}
	last = r.Receipts[0].Last
	if r := c.ok(t, "LogService/Append", first); len(r.Receipts) != 1 || !r.Receipts[0].Replays || r.Receipts[0].Last != last {
		t.Errorf("wanted the same receipt, replayed, found %+v", r.Receipts)
	}
	status, f := c.call(t, "LogService/Append", appending("", name, "1", `"claim":false`, "{}"))
	if err := f.is("aborted", "FENCED"); err != nil || status != "409" {
		t.Fatal(status, err)
	}
	if d := f.Details[0].Debug; d.Stream != name || d.Head.Epoch != bigEpoch || d.Head.Holder != holderID || d.Head.Last != last {
		t.Errorf("wanted the facts of the refusal, found %+v", d)
	}
	e := c.ok(t, "LogService/Read", fmt.Sprintf(`{"stream":%q}`, name)).Entries
	if len(e) != 1 || string(e[0].Event.Data) != payload || e[0].Epoch != bigEpoch || e[0].Position == "" || e[0].Position == "0" {
		t.Errorf("wanted the entry to the byte, found %+v", e)
	}
	return last
}

// curlFollow follows live, and goes on where it was.
func curlFollow(t *testing.T, c *caller, name string, last mark) {
	s := c.stream(t, "LogService/Follow", fmt.Sprintf(`{"stream":%q,"heartbeat":"1s"}`, name))
	s.until(func(m message) bool { return m.End })
	after, err := json.Marshal(last)
	if err != nil {
		t.Fatal(err)
	}
	c.ok(t, "LogService/Append", appending("", name, bigEpoch, `"after":`+string(after), `{"live":true}`))
	m := s.until(func(m message) bool { return len(m.Entries) > 0 && m.Entries[0].Seqno != "1" })
	if m.Entries[0].Seqno != "2" || string(m.Entries[0].Event.Data) != `{"live":true}` {
		t.Errorf("wanted what was appended, found %+v", m.Entries)
	}
	m = c.stream(t, "LogService/Follow", fmt.Sprintf(`{"stream":%q,"after":%s}`, name, after)).until(func(m message) bool { return len(m.Entries) > 0 })
	if len(m.Entries) != 1 || m.Entries[0].Seqno != "2" {
		t.Errorf("wanted to go on with seqno 2, found %+v", m.Entries)
	}
}

// curlTopic publishes, publishes again, consumes and commits.
func curlTopic(t *testing.T, c *caller, name string) {
	c.ok(t, "TopicService/CreateTopic", fmt.Sprintf(`{"topic":{"name":%q,"partitions":1}}`, name))
	publication := fmt.Sprintf(`{"topic":%q,"key":"alice","id":"01975b1c-0000-4000-8000-000000000001","firstTried":%q,"events":[{"type":"order.placed","data":%q}]}`,
		name, time.Now().UTC().Format(time.RFC3339), base64.StdEncoding.EncodeToString([]byte(payload)))
	p := c.ok(t, "TopicService/Publish", publication)
	again := c.ok(t, "TopicService/Publish", publication)
	if p.Last == "" || p.Replays || !again.Replays || again.Last != p.Last {
		t.Errorf("wanted the same place, replayed, found %+v and %+v", p, again)
	}
	who := fmt.Sprintf(`"topic":%q,"consumer":"mailer","member":%q`, name, holderID)
	generation := ""
	m := c.stream(t, "TopicService/Consume", "{"+who+"}").until(func(m message) bool {
		if m.Assignment != nil {
			generation = m.Assignment.Generation
		}
		return len(m.Messages) > 0
	})
	if string(m.Messages[0].Event.Data) != payload || m.Messages[0].Offset != p.Last {
		t.Errorf("wanted what was published, found %+v", m.Messages)
	}
	if done := c.ok(t, "TopicService/Commit", fmt.Sprintf(`{%s,"generation":%q,"places":[{"offset":%q}],"leave":true}`, who, generation, p.Last)); len(done.Lost) != 0 {
		t.Errorf("wanted the place stored, found it lost")
	}
}

// curlRefused is denied, not known, known by a token, and certified by another.
func curlRefused(t *testing.T, s *servetest.Server, teller *caller, version string) {
	const vault = `{"stream":"vault-1"}`
	nobody := &caller{s.URL, []string{version, "--cacert", s.Path("ca.crt")}}
	for _, c := range []struct {
		by                 *caller
		code, kind, status string
	}{{teller, "permission_denied", "DENIED", "403"}, {nobody, "unauthenticated", "UNAUTHENTICATED", "401"}} {
		status, m := c.by.call(t, "LogService/Read", vault)
		if err := m.is(c.code, c.kind); err != nil || status != c.status {
			t.Error(status, err)
		}
	}
	m, last := teller.stream(t, "LogService/Follow", vault).next()
	if err := m.is("permission_denied", "DENIED"); err != nil || !last {
		t.Error(last, err)
	}
	clerk := &caller{s.URL, append(nobody.args, "-H", "Authorization: Bearer "+servetest.Token)}
	clerk.ok(t, "LogService/Read", `{"stream":"account-0"}`)
	stranger := command(t, "curl", "-sS", version, "--cacert", s.Path("ca.crt"), "--cert", s.Path("stranger.crt"), "--key", s.Path("stranger.key"),
		"-H", "Content-Type: application/json", "-d", vault, s.URL+"/wattle.v1.LogService/Read")
	if out, err := stranger.Output(); err == nil || bytes.Contains(out, []byte("code")) {
		t.Errorf("wanted no connection for a certificate of another authority, found %v %s", err, out)
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func stderr(err error) []byte {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.Stderr
	}
	return nil
}
