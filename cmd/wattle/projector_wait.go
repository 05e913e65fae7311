// wattle projector wait: until a projection holds what a token is of.

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattle-es/wattle/cmd/wattle/internal/open"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

func (p *projecting) waitCommand() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "wait NAME TOKEN",
		Short: "wait until a projector has passed a token",
		Long: `Wait waits until the live version of a projector has handled everything through a token that
concerns it, and prints the version. The token is that of an append, as 018f….42, or a position
of this store, as wattle tail prints it.

The exit code is 9 if it has not come so far within --timeout, and 4 if the entry waits under a
parked key, or the token is of another store.`,
		Example: `  wattle projector wait balances 1042 --timeout 5s
  wattle projector wait balances 01890a5d-ac96-774b-bcce-b302099a8057.1042`,
		Args: arguments("NAME", "TOKEN"),
		RunE: func(c *cobra.Command, args []string) error {
			if timeout < 0 {
				return &usageError{"a --timeout", timeout.String(), "0 waits for ever"}
			}
			return p.of(c.Context(), args[0], open.Options{ReadOnly: true}, func(s *open.Store, k open.Keeper) error {
				token, err := tokenOf(c.Context(), s, args[1])
				if err != nil {
					return err
				}
				ctx, cancel := within(c.Context(), timeout)
				defer cancel()
				version, err := projector.NewReader(s.Store, args[0], k.Control).Wait(ctx, token)
				if err != nil {
					if _, late := errors.AsType[*projector.LagError](err); !late && ctx.Err() != nil && c.Context().Err() == nil {
						err = &coded{err, exitBehind} // it could not even be looked at
					}
					return err
				}
				done := fmt.Sprintf("version %d has passed position %d", version, token.Position)
				return p.say(done, doneJSON{Projector: args[0], Version: version, Done: done})
			})
		},
		ValidArgsFunction: p.completeNames,
	}
	timeoutFlag(c, &timeout)
	return c
}

// tokenOf reads a token, or a position of the store.
func tokenOf(ctx context.Context, s *open.Store, word string) (t eventstore.Token, err error) {
	if strings.Contains(word, ".") {
		return eventstore.ParseToken(word)
	}
	if t.Position, err = eventstore.ParsePosition(word); err != nil {
		return t, &usageError{"a token, as INCARNATION.POSITION, or a position", fmt.Sprintf("%q", word), "see: wattle projector wait --help"}
	}
	t.Incarnation, err = s.Backends()[0].Incarnation(ctx)
	return t, err
}
