// Sending with an eye on the clock: who does not read is ended, and holds nobody up.

package streaming

import (
	"fmt"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Sender sends the messages of one stream. One goroutine uses it.
type Sender struct {
	Op       string
	Exchange *Exchange
	// Slow is the kind of the error for who takes longer than SlowAfter to read a message.
	Slow      error
	SlowAfter time.Duration
	// StuckAfter is how long after that the exchange is reset.
	StuckAfter time.Duration

	last time.Time
}

// Put sends one message. It answers an error of kind Slow if that took too long, and does
// not return later than StuckAfter beyond that, if the exchange can be reset.
func (s *Sender) Put(do func() error) error {
	began := time.Now()
	t := time.AfterFunc(s.SlowAfter+s.StuckAfter, func() { s.Exchange.WriteBy(time.Now()) })
	err := do()
	t.Stop()
	s.last = time.Now()
	if took := s.last.Sub(began); took > s.SlowAfter {
		return &eventstore.Error{Kind: s.Slow, Op: s.Op, Wanted: fmt.Sprintf("a message to be read within %v", s.SlowAfter),
			Found: fmt.Sprintf("%v", took.Round(time.Millisecond)), Hint: "go on from the last message", Err: err}
	}
	return err
}

// Last is when the last message went out.
func (s *Sender) Last() time.Time { return s.last }

// Close bounds how long the end of the stream may take to be read.
func (s *Sender) Close() { s.Exchange.WriteBy(time.Now().Add(s.StuckAfter)) }
