// deadline: a moment that may be moved while somebody waits for it.

package worker

import (
	"sync"
	"time"
)

// deadline is one of a net.Conn; the zero value is none.
type deadline struct {
	mu      sync.Mutex
	timer   *time.Timer
	past    chan struct{} // closed when the moment has come; nil never is
	changed chan struct{} // closed when the deadline is another
}

// get returns channels that are closed when the deadline has passed, and when it is
// another one; whoever waits asks again then.
func (d *deadline) get() (past, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return d.past, d.changed
}

// set sets the deadline; the zero time is none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	if d.changed != nil {
		close(d.changed)
	}
	d.timer, d.past, d.changed = nil, nil, nil
	if t.IsZero() {
		return
	}
	past := make(chan struct{})
	if d.past = past; time.Until(t) <= 0 {
		close(past)
		return
	}
	d.timer = time.AfterFunc(time.Until(t), func() { close(past) })
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
