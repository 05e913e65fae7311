// The client: what it is opened with, and how a call is made.

package lean

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Bounds and defaults.
const (
	// DefaultTimeout is how long a call may take for which the context does not say.
	DefaultTimeout = 30 * time.Second
	// maxReplyBytes is what an answer may have: a snapshot and a page at their largest,
	// in base64, with what is around them.
	maxReplyBytes = (eventstore.MaxSnapshotBytes+eventstore.MaxPageBytes+eventstore.MaxEventBytes)/3*4 + 8<<20
)

// Options of Open; nil and the zero value are the defaults.
type Options struct {
	// Token is sent as a bearer token with each call, if there is one.
	Token string
	// Timeout bounds a call whose context has no deadline. 0: DefaultTimeout.
	Timeout time.Duration
	// Transport carries the calls. Nil: fetch on js, none on wasip1, elsewhere http.DefaultClient.
	Transport Transport
}

// Transport carries one call. It may be used from several goroutines at once.
type Transport interface {
	// Post sends a body and returns the status and the body of the answer, of at most so
	// many bytes. An error that is ErrNotSent says that nothing reached the server.
	Post(ctx context.Context, url string, header map[string]string, body []byte, most int) (status int, reply []byte, err error)
}

// ErrNotSent: the server was not reached, so nothing has happened there.
var ErrNotSent = errors.New("not sent")

// Log is a log at a server. All methods may be called from several goroutines at once.
type Log struct {
	base   string
	target string // as errors show it
	o      Options
	closed atomic.Bool
}

var _ interface {
	eventstore.Log
	eventstore.Categories
	eventstore.Streams
	eventstore.Snapshots
	eventstore.TrimmedStreams
	eventstore.Holds
	eventstore.Leases
	eventstore.BackwardReader
} = (*Log)(nil)

// Open returns the log at a URL as https://host:port, to which nothing is sent yet. A bad
// URL is ErrInvalid.
func Open(base string, o *Options) (*Log, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return nil, &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "open", Wanted: "a URL as https://host:port", Found: "another"}
	}
	l := &Log{base: strings.TrimSuffix(u.String(), "/"), target: u.Redacted()}
	if o != nil {
		l.o = *o
	}
	if l.o.Timeout <= 0 {
		l.o.Timeout = DefaultTimeout
	}
	if l.o.Transport == nil {
		l.o.Transport = defaultTransport{}
	}
	return l, nil
}

// Close makes every method answer ErrClosed. Calls under way go on.
func (l *Log) Close() error {
	l.closed.Store(true)
	return nil
}

// action is what a call is to the log.
type action struct {
	op        string
	stream    eventstore.Stream
	procedure string // as "LogService/Append"
	writes    bool   // when its answer is lost nobody knows what it has done
}

// call carries a call to the server and back.
func call[Res any](ctx context.Context, l *Log, a action, req any) (*Res, error) {
	if l.closed.Load() {
		return nil, a.error(eventstore.ErrClosed, "", "", nil)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return nil, a.error(eventstore.ErrInvalid, "what can be sent", err.Error(), nil)
	}
	bounded, cancel := l.bounded(ctx)
	defer cancel()
	status, reply, err := l.o.Transport.Post(bounded, l.base+"/wattle.v1."+a.procedure, l.header(bounded), body, maxReplyBytes)
	switch {
	case errors.Is(err, ErrNotSent):
		return nil, a.error(eventstore.ErrUnavailable, "a server at "+l.target, "", err)
	case err != nil:
		return nil, a.lost(ctx, "an answer from "+l.target, err)
	case status != 200:
		return nil, a.failed(status, reply)
	}
	res := new(Res)
	if err := json.Unmarshal(reply, res); err != nil {
		return nil, a.lost(ctx, "an answer that can be read", fmt.Errorf("%d bytes of another form", len(reply)))
	}
	return res, nil
}

// bounded gives a context a deadline if it has none.
func (l *Log) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, l.o.Timeout)
}

func (l *Log) header(ctx context.Context) map[string]string {
	h := map[string]string{"Content-Type": "application/json", "Connect-Protocol-Version": "1"}
	if end, ok := ctx.Deadline(); ok {
		h["Connect-Timeout-Ms"] = strconv.FormatInt(max(1, min(time.Until(end).Milliseconds(), 9_999_999_999)), 10)
	}
	if l.o.Token != "" {
		h["Authorization"] = "Bearer " + l.o.Token
	}
	if parent := eventstore.Traceparent(ctx); parent != "" {
		h["Traceparent"] = parent
	}
	return h
}
