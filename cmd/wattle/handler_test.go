// wattle handler, on handlers over HTTP, NATS, Connect and gRPC.

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/examples/loan/wire/wiretest"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/conformance"
	"github.com/wattle-es/wattle/handler/connectcarrier"
	"github.com/wattle-es/wattle/handler/httpcarrier"
	"github.com/wattle-es/wattle/handler/natscarrier"
)

func loanHandler(t *testing.T) handler.Handler {
	t.Helper()
	h, err := wire.Handler()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// overHTTP serves a handler and returns its address.
func overHTTP(t *testing.T, h handler.Handler) string {
	t.Helper()
	s := httptest.NewServer(httpcarrier.NewHandler(h, nil))
	t.Cleanup(s.Close)
	return s.URL
}

func overNATS(t *testing.T, h handler.Handler) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := natscarrier.Serve(t.Context(), nc, h, &natscarrier.ServeOptions{Prefix: "handler.loan"}); err != nil {
		t.Fatal(err)
	}
	return s.ClientURL() + "/handler.loan"
}

// overConnect serves a handler by all three protocols and returns its address.
func overConnect(t *testing.T, h handler.Handler) string {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	mux := http.NewServeMux()
	mux.Handle(connectcarrier.NewHandler(h, nil))
	s := httptest.NewUnstartedServer(mux)
	s.Config.Protocols = &protocols
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// everywhere serves the loan process by all carriers of services and returns their names.
func everywhere(t *testing.T) []string {
	t.Helper()
	connect := overConnect(t, loanHandler(t))
	return []string{overHTTP(t, loanHandler(t)), overNATS(t, loanHandler(t)), "connect:" + connect, "grpc:" + connect}
}

// casesFile is a file of decisions of the loan process.
func casesFile(t *testing.T) string {
	t.Helper()
	cases, err := wiretest.Cases(1, 5, 10)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cases.jsonl")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := conformance.WriteCases(f, cases[:20]); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestHandlerDescribe(t *testing.T) {
	t.Parallel()
	for _, target := range everywhere(t) {
		r := wattle(t, "handler", "describe", target)
		if r.code != 0 || !strings.Contains(r.out, "decide evolve") || !strings.Contains(r.out, "loan.submit/1") {
			t.Errorf("%s: %+v", target, r)
		}
		r = wattle(t, "handler", "describe", target, "-o", "json")
		var d struct {
			Name     string
			Commands []struct{ Name string }
		}
		if err := json.Unmarshal([]byte(r.out), &d); err != nil || d.Name != "loan" || len(d.Commands) != 20 {
			t.Errorf("%s: %v, %+v", target, err, r)
		}
	}
}

func TestHandlerTest(t *testing.T) {
	t.Parallel()
	file := casesFile(t)
	for _, target := range everywhere(t) {
		if r := wattle(t, "handler", "test", target, "--cases", file); r.code != 0 || !strings.Contains(r.out, "20 cases") || !strings.Contains(r.out, ", 0 findings") {
			t.Errorf("%s: %+v", target, r)
		}
	}
	h := loanHandler(t)
	wrong := handler.Func(func(ctx context.Context, r *handler.Request) (*handler.Reply, error) {
		reply, err := h.Handle(ctx, r)
		if reply != nil && reply.Rejected != nil {
			reply.Rejected.Code = "no"
		}
		return reply, err
	})
	if r := wattle(t, "handler", "test", overHTTP(t, wrong), "--cases", file); r.code != exitFound || !strings.Contains(r.out, "the code of its refusal") {
		t.Errorf("%+v", r)
	}
	r := wattle(t, "handler", "test", overHTTP(t, wrong), "--cases", file, "-o", "json")
	var report struct {
		Findings []struct{ Rule, Case, Error string }
	}
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.code != exitFound || len(report.Findings) == 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestHandlerAway(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close()
	for target, code := range map[string]int{
		"http://" + nobody:                      exitUnavailable,
		"nats://" + nobody + "/p":               exitUnavailable,
		"nats://" + nobody:                      exitUsage,
		"ftp://" + nobody:                       exitUsage,
		"grpc:http://" + nobody:                 exitUnavailable,
		"connect:ftp://" + nobody:               exitUsage,
		"somewhere":                             exitUsage,
		filepath.Join(t.TempDir(), "none.wasm"): exitFailure,
	} {
		if r := wattle(t, "handler", "describe", target, "--timeout", "2s"); r.code != code || !strings.HasPrefix(r.err, "wattle: ") {
			t.Errorf("%s: %+v, want code %d", target, r, code)
		}
	}
	file := filepath.Join(t.TempDir(), "cases.jsonl")
	if err := os.WriteFile(file, []byte(`{"stream":"a-b"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := wattle(t, "handler", "test", "http://"+nobody, "--cases", file); r.code != exitUsage || !strings.Contains(r.err, "line 1") {
		t.Errorf("%+v", r)
	}
}
