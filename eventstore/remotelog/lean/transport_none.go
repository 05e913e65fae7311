//go:build wasip1

// No calls: there is no network.

package lean

import (
	"context"
	"errors"
)

type defaultTransport struct{}

func (defaultTransport) Post(context.Context, string, map[string]string, []byte, int) (int, []byte, error) {
	return 0, nil, errors.Join(ErrNotSent, errors.New("there is no network here: give a Transport"))
}
