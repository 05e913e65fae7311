// Catching up without going on.

package bank

import "context"

// CatchUp brings the read model to the end of what is in the store, and returns. A model
// in memory begins at the first event.
func (s *Service) CatchUp(ctx context.Context) error {
	_, err := s.projector.CatchUp(ctx, 0)
	return err
}
