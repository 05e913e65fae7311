// The story comes true.

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/wattle-es/wattle/migrations/pgtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" { // one of the servers
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	pgtest.Main(m)
}

func TestStory(t *testing.T) {
	s := story{store: pgtest.DSN(t), schema: pgtest.SchemaName(t), messages: 200, ttl: time.Second}
	var out bytes.Buffer
	err := s.withSchema(t.Context(), func() error { return s.tell(t.Context(), &out) })
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one server was killed", "800 messages handled by 3 members", "800 messages stored, each once, in order for each of 40 keys"} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("wanted %q", want)
		}
	}
}
