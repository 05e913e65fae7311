//go:build !js && !wasip1

// Calls over net/http.

package lean

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

type defaultTransport struct{}

func (defaultTransport) Post(ctx context.Context, url string, header map[string]string, body []byte, most int) (int, []byte, error) {
	return HTTP{}.Post(ctx, url, header, body, most)
}

// HTTP is a Transport over an HTTP client; the zero value uses http.DefaultClient.
type HTTP struct{ Client *http.Client }

// Post sends a body and returns the answer; see [Transport].
func (h HTTP) Post(ctx context.Context, url string, header map[string]string, body []byte, most int) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, errors.Join(ErrNotSent, err)
	}
	for k, v := range header {
		r.Header.Set(k, v)
	}
	client := *http.DefaultClient
	if h.Client != nil {
		client = *h.Client
	}
	// A redirect is not followed: what was sent may have been carried out where it came from.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(r)
	if err != nil {
		if o, ok := errors.AsType[*net.OpError](err); ok && o.Op == "dial" {
			return 0, nil, errors.Join(ErrNotSent, err)
		}
		return 0, nil, err
	}
	defer res.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(res.Body, int64(most)+1))
	if err == nil && len(reply) > most {
		err = fmt.Errorf("an answer of more than %d bytes", most)
	}
	return res.StatusCode, reply, err
}
