// API Gateway's HTTP API, payload format 2.0, to an http.Handler and back.

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"
)

// answer is an http.ResponseWriter that keeps what is written.
type answer struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func newAnswer() *answer { return &answer{status: http.StatusOK, header: http.Header{}} }

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// gateway has a request answered by h. The context carries the invocation's deadline.
func gateway(h http.Handler) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return func(ctx context.Context, e events.APIGatewayV2HTTPRequest) (out events.APIGatewayV2HTTPResponse, err error) {
		body := []byte(e.Body)
		if e.IsBase64Encoded {
			if body, err = base64.StdEncoding.DecodeString(e.Body); err != nil {
				return out, err
			}
		}
		address := "https://" + e.RequestContext.DomainName + e.RawPath
		if e.RawQueryString != "" {
			address += "?" + e.RawQueryString
		}
		q, err := http.NewRequestWithContext(ctx, e.RequestContext.HTTP.Method, address, bytes.NewReader(body))
		if err != nil {
			return out, err
		}
		for name, value := range e.Headers {
			q.Header.Set(name, value)
		}
		a := newAnswer()
		h.ServeHTTP(a, q)
		out = events.APIGatewayV2HTTPResponse{StatusCode: a.status, Headers: map[string]string{}, Body: a.body.String()}
		for name, values := range a.header {
			out.Headers[name] = strings.Join(values, ", ")
		}
		if a.header.Get("Content-Encoding") != "" {
			out.Body, out.IsBase64Encoded = base64.StdEncoding.EncodeToString(a.body.Bytes()), true
		}
		return out, nil
	}
}
