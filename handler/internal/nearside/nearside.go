// Package nearside is what the clients of carriers have in common.
package nearside

import (
	"context"
	"time"

	"github.com/wattle-es/wattle/handler"
)

// Bounded returns a context that ends when nobody waits for the reply to r any more: at
// the request's deadline, or that of ctx; where neither has one, after otherwise.
func Bounded(ctx context.Context, r *handler.Request, otherwise time.Duration) (context.Context, context.CancelFunc) {
	if !r.Deadline.IsZero() {
		return context.WithDeadline(ctx, r.Deadline)
	}
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, otherwise)
}
