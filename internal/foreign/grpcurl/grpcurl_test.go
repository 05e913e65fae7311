// Package grpcurl calls a wattle serve with grpcurl, from the protobuf files and by
// reflection.
package grpcurl

import (
	"bytes"
	"context"
	"encoding/base64"
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
	holder = "01975b1c-0000-7000-8000-0000000000aa"
	// payload has numbers that a double does not hold.
	payload = `{"n":12345678901234567890,"r":0.1234567890123456789,"e":1e400}`
	// epoch is above 2^53.
	epoch = "9007199254740993"
	// limit bounds a command, on a busy machine too.
	limit = 4 * time.Minute
	// Codes of gRPC.
	permissionDenied, aborted, unauthenticated = 7, 10, 16
	// exitBase is what grpcurl adds to a code for its exit status.
	exitBase = 64
)

// program and grpcurl are built once for all tests.
var program, grpcurl string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "wattle-grpcurl-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if program, err = servetest.Build("../../..", dir); err == nil {
		grpcurl = filepath.Join(dir, "grpcurl")
		c := exec.Command("go", "build", "-o", grpcurl, "github.com/fullstorydev/grpcurl/cmd/grpcurl")
		c.Stderr = os.Stderr
		err = c.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// message is the JSON of any answer, as far as the tests look at it. Integers of 64 bits
// are strings in it.
type message struct {
	Receipts []struct {
		Last    mark `json:"last"`
		Replays bool `json:"replays"`
	} `json:"receipts"`
	Entries []struct {
		Event struct {
			Data []byte `json:"data"`
		} `json:"event"`
		Seqno    string `json:"seqno"`
		Epoch    string `json:"epoch"`
		Position string `json:"position"`
	} `json:"entries"`
	Messages []struct {
		Offset string `json:"offset"`
	} `json:"messages"`
	Last    string `json:"last"`
	Replays bool   `json:"replays"`
	End     bool   `json:"end"`
}

type mark struct {
	Seqno string `json:"seqno"`
	ID    string `json:"id"`
}

// failure is an error's JSON, with -format-error.
type failure struct {
	Code    int `json:"code"`
	Details []struct {
		Type string `json:"@type"`
		Kind string `json:"kind"`
		Head struct {
			Epoch  string `json:"epoch"`
			Holder string `json:"holder"`
			Last   mark   `json:"last"`
		} `json:"head"`
	} `json:"details"`
}

// caller is grpcurl with a server and what it says of itself.
type caller struct {
	server *servetest.Server
	args   []string
}

// fromFiles has the messages from the protobuf files.
func fromFiles(who ...string) []string {
	args := append(who, "-import-path", "../../../eventstore/remotelog/proto")
	for _, f := range []string{"log", "admin", "topic", "error"} {
		args = append(args, "-proto", "wattle/v1/"+f+".proto")
	}
	return args
}

func teller(s *servetest.Server) []string {
	return []string{"-cacert", s.Path("ca.crt"), "-cert", s.Path("teller.crt"), "-key", s.Path("teller.key")}
}

// command is one run of grpcurl, ended with its test.
func (c *caller) command(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	p := exec.CommandContext(ctx, grpcurl, append(c.args, args...)...)
	p.WaitDelay = 10 * time.Second
	return p
}

func (c *caller) call(t *testing.T, method, request string) *exec.Cmd {
	return c.command(t, "-format-error", "-d", request, c.server.Addr, "wattle.v1."+method)
}

// ok returns the answers of a call that has to go well.
func (c *caller) ok(t *testing.T, method, request string) (all []message) {
	t.Helper()
	p := c.call(t, method, request)
	var warnings bytes.Buffer
	p.Stderr = &warnings
	out, err := p.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", method, request, err, &warnings)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var m message
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		all = append(all, m)
	}
}

// refused returns the error of a call that has to fail, by its code and the kind.
func (c *caller) refused(t *testing.T, method, request string, code int, kind string) failure {
	t.Helper()
	p := c.call(t, method, request)
	var said bytes.Buffer
	p.Stderr = &said
	out, err := p.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != exitBase+code || len(out) > 0 {
		t.Fatalf("wanted code %d, found %v\n%s%s", code, err, out, &said)
	}
	var f failure
	if err := json.Unmarshal(said.Bytes(), &f); err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	if f.Code != code || len(f.Details) != 1 || f.Details[0].Type != "type.googleapis.com/wattle.v1.ErrorDetail" || f.Details[0].Kind != "ERROR_KIND_"+kind {
		t.Fatalf("wanted code %d with an ErrorDetail of %s, found\n%s", code, kind, &said)
	}
	return f
}

// first returns the first answer of a running call for which found says yes.
func first(t *testing.T, answers *json.Decoder, found func(message) bool) message {
	t.Helper()
	for {
		var m message
		if err := answers.Decode(&m); err != nil {
			t.Fatalf("wanted an answer, found %v", err)
		}
		if found(m) {
			return m
		}
	}
}

// appending is the JSON of an append of one event.
func appending(id, stream, epoch, more, data string) string {
	return fmt.Sprintf(`{"batches":[{"id":%q,"stream":%q,"epoch":%q,"holder":%q,%s,"events":[{"type":"account.opened","data":%q}]}]}`,
		id, stream, epoch, holder, more, base64.StdEncoding.EncodeToString([]byte(data)))
}

func TestFiles(t *testing.T) {
	s := servetest.Start(t, program)
	c := &caller{s, fromFiles(teller(s)...)}
	c.ok(t, "AdminService/CreateCategory", `{"spec":{"name":"account"}}`)
	last := appends(t, c, "account-1")
	follows(t, c, "account-1", last)
	produces(t, c, "account-2")
	topics(t, c)

	const vault = `{"stream":"vault-1"}`
	c.refused(t, "LogService/Read", vault, permissionDenied, "DENIED")
	c.refused(t, "LogService/Follow", vault, permissionDenied, "DENIED")
	nobody := &caller{s, fromFiles("-cacert", s.Path("ca.crt"))}
	nobody.refused(t, "LogService/Read", vault, unauthenticated, "UNAUTHENTICATED")
	clerk := &caller{s, append(nobody.args, "-H", "authorization: Bearer "+servetest.Token)}
	clerk.ok(t, "LogService/Read", `{"stream":"account-1"}`)
	// Go shows no certificate of an authority that the server does not name.
	stranger := &caller{s, fromFiles("-cacert", s.Path("ca.crt"), "-cert", s.Path("stranger.crt"), "-key", s.Path("stranger.key"))}
	stranger.refused(t, "LogService/Read", vault, unauthenticated, "UNAUTHENTICATED")
}

// appends appends, appends again, is refused, and reads.
func appends(t *testing.T, c *caller, stream string) mark {
	request := appending("01975b1c-0000-7000-8000-000000000001", stream, epoch, `"claim":true`, payload)
	r := c.ok(t, "LogService/Append", request)[0].Receipts[0]
	if r.Last.Seqno != "1" || r.Replays {
		t.Fatalf("wanted the receipt of seqno 1, found %+v", r)
	}
	if again := c.ok(t, "LogService/Append", request)[0].Receipts[0]; !again.Replays || again.Last != r.Last {
		t.Errorf("wanted the same receipt, replayed, found %+v", again)
	}
	f := c.refused(t, "LogService/Append", appending("", stream, "1", `"claim":false`, "{}"), aborted, "FENCED")
	if h := f.Details[0].Head; h.Epoch != epoch || h.Holder != holder || h.Last != r.Last {
		t.Errorf("wanted the head of the stream, found %+v", h)
	}
	e := c.ok(t, "LogService/Read", fmt.Sprintf(`{"stream":%q}`, stream))[0].Entries
	if len(e) != 1 || string(e[0].Event.Data) != payload || e[0].Epoch != epoch || e[0].Position == "" {
		t.Errorf("wanted the entry to the byte, found %+v", e)
	}
	return r.Last
}

// follows prints what is appended while it runs.
func follows(t *testing.T, c *caller, stream string, last mark) {
	p := c.call(t, "LogService/Follow", fmt.Sprintf(`{"stream":%q,"heartbeat":"1s"}`, stream))
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Process.Kill(); _ = p.Wait() }()
	answers := json.NewDecoder(out)
	first(t, answers, func(m message) bool { return m.End })
	c.ok(t, "LogService/Append", appending("", stream, epoch, fmt.Sprintf(`"after":{"seqno":%q,"id":%q}`, last.Seqno, last.ID), `{"live":true}`))
	m := first(t, answers, func(m message) bool { return len(m.Entries) > 0 && m.Entries[0].Seqno != "1" })
	if m.Entries[0].Seqno != "2" || string(m.Entries[0].Event.Data) != `{"live":true}` {
		t.Errorf("wanted what was appended, found %+v", m.Entries)
	}
}

// produces sends the second batch without waiting for the answer to the first.
func produces(t *testing.T, c *caller, stream string) {
	all := c.ok(t, "LogService/Produce", appending("01975b1c-0000-7000-8000-000000000002", stream, "1", `"claim":true`, "{}")+
		appending("01975b1c-0000-7000-8000-000000000003", stream, "1", `"after":{"seqno":"1"}`, "{}"))
	if len(all) != 2 || all[0].Receipts[0].Last.Seqno != "1" || all[1].Receipts[0].Last.Seqno != "2" {
		t.Errorf("wanted the receipts of seqnos 1 and 2 in order, found %+v", all)
	}
}

// topics publishes a publication twice on one stream of them, and consumes it.
func topics(t *testing.T, c *caller) {
	c.ok(t, "TopicService/CreateTopic", `{"topic":{"name":"orders","partitions":1}}`)
	one := fmt.Sprintf(`{"publish":{"topic":"orders","key":"alice","id":"01975b1c-0000-4000-8000-000000000001","firstTried":%q,"events":[{"type":"order.placed"}]}}`,
		time.Now().UTC().Format(time.RFC3339))
	if out, err := c.call(t, "TopicService/PublishStream", one+one).CombinedOutput(); err != nil || strings.Count(string(out), `"published"`) != 2 || strings.Count(string(out), `"replays": true`) != 1 {
		t.Errorf("wanted two answers, the second replayed, found %v\n%s", err, out)
	}
	p := c.call(t, "TopicService/Consume", `{"topic":"orders"}`)
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Process.Kill(); _ = p.Wait() }()
	if m := first(t, json.NewDecoder(out), func(m message) bool { return len(m.Messages) > 0 }); len(m.Messages) != 1 || m.Messages[0].Offset != "1" {
		t.Errorf("wanted one message at offset 1, found %+v", m.Messages)
	}
}

// With reflection no files are needed, and without it on the server there is none.
func TestReflection(t *testing.T) {
	s := servetest.Start(t, program, "--reflection")
	c := &caller{s, teller(s)}
	out, err := c.command(t, s.Addr, "list").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "wattle.v1.LogService\n") || !strings.Contains(string(out), "wattle.v1.TopicService\n") {
		t.Fatalf("wanted the services, found %v\n%s", err, out)
	}
	c.ok(t, "AdminService/CreateCategory", `{"spec":{"name":"account"}}`)
	appends(t, c, "account-1")

	without := servetest.Start(t, program)
	if out, err := (&caller{without, teller(without)}).command(t, without.Addr, "list").CombinedOutput(); err == nil || strings.Contains(string(out), "LogService") {
		t.Errorf("wanted no reflection, found %v\n%s", err, out)
	}
}
