//go:build !wasm

// What tests see of the inside.

package wasm

// InFlight is how many calls run.
func (m *Module) InFlight() int { return len(m.slots) }

// Versions is how many versions of the module are not let go, and Idle how many instances
// of the one that is called now wait.
func (m *Module) Versions() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live
}

func (m *Module) Idle() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.current.idle)
}

// Ends is what keeps stderr.
type Ends = ends

// NewEnds keeps both ends of what is written, of a number of bytes.
func NewEnds(most int) *Ends { return &ends{most: most} }
