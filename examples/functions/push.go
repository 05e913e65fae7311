// Pushes: what tells the projection to look. None of it holds any truth.

package functions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/handler"
	"github.com/wattle-es/wattle/handler/httpcarrier"
)

const (
	pushLimit = 100 * time.Millisecond // that a command waits for a push to be sent
	rest      = time.Second            // after a push that failed
)

// pusher tells the projection within the call that appended, since what is sent behind it
// may be frozen. It is an eventstore.Announcer.
type pusher struct {
	address string
	signer  *httpcarrier.Signer
}

// Announce posts one hint for all, and does not wait for what comes of it.
func (p pusher) Announce(ctx context.Context, _ []eventstore.Announcement) error {
	ctx, cancel := context.WithTimeout(ctx, pushLimit)
	defer cancel()
	if _, err := Push(ctx, p.address, p.signer); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// Subscribe hears nothing: a push goes one way.
func (p pusher) Subscribe(context.Context, []eventstore.Category, func(eventstore.Announcement)) (func(), error) {
	return func() {}, nil
}

// Push posts a hint, an empty one, and says if there is more to do. A nil signer does not
// sign it.
func Push(ctx context.Context, address string, signer *httpcarrier.Signer) (more bool, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, address, http.NoBody)
	if err != nil {
		return false, err
	}
	if signer != nil {
		signer.Sign(q.Header, eventstore.NewUUID().String(), time.Now(), nil)
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, handler.MaxMessageBytes))
	switch {
	case resp.StatusCode == http.StatusOK:
		return false, nil
	case err == nil && resp.StatusCode == http.StatusServiceUnavailable && bytes.Contains(reply, []byte(`"more":true`)):
		return true, nil
	}
	return false, fmt.Errorf("push: wanted status 200, found %d: %s", resp.StatusCode, reply)
}

// Trigger pushes to an address whenever an announcer, as that of natsannounce, hints at
// something of a category, until ctx ends. Hints that come during a push are one.
func Trigger(ctx context.Context, a eventstore.Announcer, c eventstore.Category, address string, signer *httpcarrier.Signer) error {
	hinted := make(chan struct{}, 1)
	hint := func() {
		select {
		case hinted <- struct{}{}:
		default:
		}
	}
	stop, err := a.Subscribe(ctx, []eventstore.Category{c}, func(eventstore.Announcement) { hint() })
	if err != nil {
		return err
	}
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-hinted:
		}
		more, err := Push(ctx, address, signer)
		if more || err != nil {
			hint()
		}
		if err != nil { // of no use at once
			select {
			case <-ctx.Done():
			case <-time.After(rest):
			}
		}
	}
}
