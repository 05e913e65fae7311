// A handler behind its encoded form.

package wire_test

import (
	"context"

	"github.com/wattle-es/wattle/handler"
)

type bytesOf struct{ h handler.Handler }

func (b bytesOf) Call(ctx context.Context, op string, request []byte) ([]byte, error) {
	return handler.Serve(ctx, b.h, op, request), nil
}
