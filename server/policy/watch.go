// A policy that changes while it is in force.

package policy

import (
	"crypto/sha256"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Current is a policy in force. All methods may be called from several goroutines at once.
type Current struct {
	file  string
	state atomic.Pointer[State]
	mu    sync.Mutex // one reload at a time
	seen  [sha256.Size]byte
}

// State is what is in force.
type State struct {
	Policy *Policy
	// Generation rises by one with every change of the policy, from 1.
	Generation uint64
	// Broken is why the file as it is now is not in force, since when. Nil: it is.
	Broken error
	Since  time.Time

	changed chan struct{}
}

// Changed is closed when another policy is in force.
func (s *State) Changed() <-chan struct{} { return s.changed }

// follow puts another policy in force.
func (c *Current) follow(p *Policy) {
	old := c.State()
	c.state.Store(&State{Policy: p, Generation: old.Generation + 1, changed: make(chan struct{})})
	close(old.changed)
}

func first(p *Policy) *State { return &State{Policy: p, Generation: 1, changed: make(chan struct{})} }

// Fixed is a policy that stays.
func Fixed(p *Policy) *Current {
	c := &Current{}
	c.state.Store(first(p))
	return c
}

// Follow loads a policy from a file, which Reload reads again.
func Follow(file string) (*Current, error) {
	c := &Current{file: file}
	text, err := readBounded(file)
	if err != nil {
		return nil, err
	}
	p, err := Parse(string(text))
	if err != nil {
		return nil, err
	}
	c.seen = sha256.Sum256(text)
	c.state.Store(first(p))
	return c, nil
}

// State returns what is in force.
func (c *Current) State() *State { return c.state.Load() }

// Decide is Policy's, of what is in force.
func (c *Current) Decide(identity string, verb Verb, resource string) Decision {
	return c.State().Policy.Decide(identity, verb, resource)
}

// Set puts another policy in force.
func (c *Current) Set(p *Policy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.follow(p)
}

// Reload reads the file again, and says if that changed what is in force. A file that is
// broken or gone changes nothing: the error says why, and State too. The file is compared
// by what is in it: looking costs one read of it.
func (c *Current) Reload() (changed bool, err error) {
	if c.file == "" {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	text, err := readBounded(c.file)
	if err != nil {
		return false, c.broken(err)
	}
	old := c.State()
	sum := sha256.Sum256(text)
	if sum == c.seen {
		if old.Broken != nil { // it is as it was before it was broken
			c.state.Store(&State{Policy: old.Policy, Generation: old.Generation, changed: old.changed})
		}
		return false, nil
	}
	if len(text) == 0 {
		return false, c.broken(errEmptied)
	}
	p, err := Parse(string(text))
	if err != nil {
		return false, c.broken(err)
	}
	c.seen = sum
	c.follow(p)
	return true, nil
}

// errEmptied: whoever writes a file anew may have emptied it first, and to end all streams for
// that moment would be for good: clients take a denial as final. Who means to allow nothing
// writes a comment.
var errEmptied = errors.New("policy: wanted lines, of which one may be a comment, found an empty file in place of one that was not")

// broken keeps the policy and says that the file is not in force.
func (c *Current) broken(err error) error {
	old := c.State()
	since := old.Since
	if old.Broken == nil {
		since = time.Now()
	}
	c.state.Store(&State{Policy: old.Policy, Generation: old.Generation, Broken: err, Since: since, changed: old.changed})
	return err
}
