// Panics.

package farside

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/wattle-es/wattle/handler"
)

// Contain returns h with its panics as ErrFailed. logger is told what was said and where;
// nil: nobody is. The caller learns that there was one and no more: what is said in a panic
// may be anything that the handler was given.
func Contain(h handler.Handler, logger *slog.Logger) handler.Handler {
	return handler.Func(func(ctx context.Context, r *handler.Request) (reply *handler.Reply, err error) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if logger != nil {
				logger.ErrorContext(ctx, "wattle: a handler panicked", "op", r.Op, "stream", r.Stream, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			}
			reply, err = nil, &handler.Error{Kind: handler.ErrFailed, Op: r.Op, Stream: r.Stream, Wanted: "a reply", Found: "a panic"}
		}()
		return h.Handle(ctx, r)
	})
}
