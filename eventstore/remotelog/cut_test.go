// The dialogue of an append, cut at its bytes both ways in every manner: what is acked is
// there, what is refused is absent, and of what is unknown sending it again tells.

package remotelog_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/memlog"
	"github.com/wattle-es/wattle/eventstore/remotelog"
	"github.com/wattle-es/wattle/internal/cutproxy"
)

// step is how far one cut is from the next.
func step() int64 {
	if soak() {
		return 1
	}
	return 7
}

func TestCut(t *testing.T) {
	for name, options := range map[string]func(testing.TB) *remotelog.Options{
		"HTTP 2": func(testing.TB) *remotelog.Options { return &remotelog.Options{Lazy: true} },
		"JSON over HTTP 1.1": func(t testing.TB) *remotelog.Options {
			return &remotelog.Options{Transport: http1(t), JSON: true, Lazy: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCutter(t, options)
			for _, d := range cutproxy.Directions {
				for _, m := range []cutproxy.Mode{cutproxy.FIN, cutproxy.RST, cutproxy.BlackHole} {
					after := int64(0)
					for c.cut(t, cutproxy.Fault{Direction: d, After: after, Mode: m}) && !t.Failed() {
						after += step()
					}
					if after < 100 {
						t.Errorf("%v %v: the dialogue is over after %d bytes", m, d, after)
					}
				}
			}
			t.Logf("%d cuts: %d acked, %d unknown and there, %d unknown and absent, %d refused", c.cuts, c.acked, c.there, c.absent, c.refused)
			if c.there == 0 || c.absent == 0 {
				t.Error("one of the two outcomes was never met")
			}
		})
	}
}

// cutter appends to streams of its own, one for each cut.
type cutter struct {
	log     *memlog.Log
	proxy   *cutproxy.Proxy
	options func(testing.TB) *remotelog.Options
	through string // URL of the proxy

	cuts, acked, there, absent, refused int
}

func newCutter(t *testing.T, options func(testing.TB) *remotelog.Options) *cutter {
	c := &cutter{log: memlog.New(nil), options: options}
	if err := c.log.CreateCategory(t.Context(), eventstore.CategorySpec{Name: "loan"}); err != nil {
		t.Fatal(err)
	}
	direct, err := url.Parse(serve(t, c.log, nil))
	if err != nil {
		t.Fatal(err)
	}
	if c.proxy, err = cutproxy.New(direct.Host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.proxy.Close() })
	c.through = "http://127.0.0.1:" + strconv.Itoa(c.proxy.Port())
	return c
}

// client opens a client through the proxy, with a connection that is warm.
func (c *cutter) client(t *testing.T) (l *remotelog.Log, closed func()) {
	t.Helper()
	o := c.options(t)
	l, err := remotelog.Open(t.Context(), c.through, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Head(t.Context(), "loan-warm"); err != nil {
		t.Fatal(err)
	}
	return l, func() {
		l.Close()
		if transport, ok := o.Transport.(*http.Transport); ok {
			transport.CloseIdleConnections()
		}
	}
}

// cut makes one cut; false if the dialogue was over before.
func (c *cutter) cut(t *testing.T, f cutproxy.Fault) (struck bool) {
	c.cuts++
	l, closed := c.client(t)
	defer closed()
	a := appendTo(eventstore.Stream(fmt.Sprintf("loan-%d", c.cuts)))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	fired := c.proxy.Arm(f)
	if f.Mode == cutproxy.BlackHole {
		go func() {
			select {
			case <-fired:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	_, err := l.Append(ctx, a)
	struck = c.proxy.Disarm()
	c.proxy.Release()
	c.judge(t, f, a, err)
	return struck
}

func (c *cutter) judge(t *testing.T, f cutproxy.Fault, a eventstore.Append, err error) {
	t.Helper()
	stream := a.Batches[0].Stream
	before, _ := c.log.Head(t.Context(), stream)
	switch {
	case err == nil:
		c.acked++
		if before.Last.Seqno != 2 {
			t.Errorf("%v: acked, and the head is %v", f, before.Last)
		}
		return
	case !errors.Is(err, eventstore.ErrUnknown):
		c.refused++
		if before.Last.Seqno != 0 {
			t.Errorf("%v: %v, and the head is %v", f, err, before.Last)
		}
	case before.Last.Seqno == 0:
		c.absent++ // or not yet there
	default:
		c.there++
	}
	l, closed := c.client(t)
	defer closed()
	done, err := l.Append(t.Context(), a)
	if err != nil || before.Last.Seqno != 0 && !done.Receipts[0].Replays {
		t.Errorf("%v: sent again: %+v, %v; the head was %v", f, done, err, before.Last)
	}
	if p, err := c.log.ReadFrom(t.Context(), stream, 0, 10); err != nil || len(p.Entries) != 2 {
		t.Errorf("%v: %d entries, %v, want the batch once", f, len(p.Entries), err)
	}
}
