// Calls side by side.

package topic

import "sync"

// each calls f with 0 to n-1, a few side by side, and returns the first error by number.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	slots := make(chan struct{}, sideBySide)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = f(i)
			<-slots
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
