package connectcarrier_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/connectcarrier"
)

// greeter is a handler that says what it is, and refuses all else: a Decider made a
// handler by aggregate/guest does more.
var greeter = handler.Func(func(_ context.Context, r *handler.Request) (*handler.Reply, error) {
	if r.Op == handler.Describe {
		return &handler.Reply{Description: &handler.Description{Name: "greeter", Release: "1.0.0"}}, nil
	}
	return nil, handler.Unsupported(r, handler.Describe)
})

func Example() {
	mux := http.NewServeMux()
	mux.Handle(connectcarrier.NewHandler(greeter, nil))
	server := httptest.NewServer(mux)
	defer server.Close()

	caller, err := handler.NewCaller(context.Background(), connectcarrier.NewClient(server.Client(), server.URL, nil), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(caller.Description().Name, caller.Description().Release)
	// Output: greeter 1.0.0
}
