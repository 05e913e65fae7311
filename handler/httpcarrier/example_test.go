// A Decider as a function, and an Executor that calls it.

package httpcarrier_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"

	"github.com/wattle-es/wattle/aggregate/guest"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/examples/loan/wire"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

const exampleKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // of a test

func Example() {
	ctx := context.Background()
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}

	// The function: a pure Decider, no store, no state between calls.
	decider, err := wire.Handler() // guest.New(applications, …)
	must(err)
	verifier, err := httpcarrier.NewVerifier(nil, exampleKey)
	must(err)
	function := httptest.NewServer(httpcarrier.NewHandler(decider, &httpcarrier.ServerOptions{Verifier: verifier}))
	defer function.Close()

	// The host: it has the store, calls, checks the reply, and appends under the fence.
	signer, err := httpcarrier.NewSigner(exampleKey)
	must(err)
	client, err := httpcarrier.NewClient(function.URL, &httpcarrier.ClientOptions{Signer: signer})
	must(err)
	caller, err := handler.NewCaller(ctx, client, nil)
	must(err)
	store := eventstore.New(memlog.New(nil), nil)
	defer store.Close()
	applications, err := guest.NewExecutor(ctx, store, caller, nil)
	must(err)

	submit := handler.Command{Type: "loan.submit", Data: json.RawMessage(`{"at":"2026-01-02T03:04:05Z","amount":5000}`)}
	for range 2 {
		result, err := applications.Execute(ctx, "4711", guest.Command{Command: submit})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(result.Events[0].Name, "is entry", result.Mark.Seqno)
	}
	// Output:
	// loan.submitted is entry 1
	// submitted-once: loan: refused by rule submitted-once: wanted an application not yet submitted, found one submitted before
}
