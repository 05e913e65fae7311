// Command lambda is the command side of the loan process on AWS Lambda. The function's
// handler name, _HANDLER, says what calls it:
//
//	url    a function URL, InvokeMode RESPONSE_STREAM
//	api    an HTTP API of API Gateway, payload format 2.0
//	queue  SQS, each message a command as a structured CloudEvent; report batch item failures
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/wattle-es/wattle/examples/functions"
)

func main() {
	f, err := functions.Command(context.Background(), functions.FromEnv())
	if err != nil {
		initFailed(err)
	}
	switch by := os.Getenv("_HANDLER"); by {
	case "", "url":
		lambdaurl.Start(f)
	case "api":
		lambda.Start(gateway(f))
	case "queue":
		lambda.Start(queue(f))
	default:
		initFailed(fmt.Errorf("_HANDLER: wanted url, api or queue, found %q", by))
	}
}

// initFailed tells the runtime why the function cannot begin, and ends it.
func initFailed(err error) {
	fmt.Fprintln(os.Stderr, "lambda:", err)
	body, _ := json.Marshal(map[string]string{"errorType": "Init", "errorMessage": err.Error()}) // strings always can be
	resp, err := http.Post("http://"+os.Getenv("AWS_LAMBDA_RUNTIME_API")+"/2018-06-01/runtime/init/error", "application/json", bytes.NewReader(body))
	if err == nil {
		resp.Body.Close()
	}
	os.Exit(1)
}
