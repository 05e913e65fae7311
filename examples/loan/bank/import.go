// Import: a log replayed as commands.

package bank

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wattle-es/wattle/aggregate"
	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/examples/loan"
)

const (
	// DefaultWriters is how many applications are imported at once if nothing is said.
	DefaultWriters = 16
	// MaxWriters bounds them. As many cases wait in a queue.
	MaxWriters = 256
)

// ImportOptions of an import; nil and the zero value are the defaults.
type ImportOptions struct {
	Writers int    // 0: DefaultWriters
	Count   *Count // is counted up as the import goes; nil: nobody looks
}

// Count is how far an import is. It may be read at any time.
type Count struct {
	Cases  atomic.Int64 // done with
	Events atomic.Int64 // done with, those that were there already included
	Known  atomic.Int64 // of these, the ones that were there already
}

// ErrDiffers is found by errors.Is in the *CaseError of a case that is recorded
// already, but otherwise than the log has it.
var ErrDiffers = errors.New("the store holds something else")

// CaseError says at which event of which case an import failed.
type CaseError struct {
	Key   string
	Event int // number in the case, from 1
	Line  int // of the file; 0 if the case is from none
	Err   error
}

func (e *CaseError) Error() string {
	line := ""
	if e.Line > 0 {
		line = fmt.Sprintf(" (line %d)", e.Line)
	}
	return fmt.Sprintf("case %q, event %d%s: %v", e.Key, e.Event, line, e.Err)
}

// Unwrap returns the cause.
func (e *CaseError) Unwrap() error { return e.Err }

// Import executes every event of the cases as one command: applications side by
// side, the events of one in order. It holds as many cases as there are writers,
// and as many again in a queue. It returns tokens, one for each category with any of
// them; a projection that has passed all has seen all.
//
// A command's ID is made of its case and its number there, so importing again,
// wholly or from where a process was killed, executes only what is missing. What is
// there is compared with what the log says; a difference is a *CaseError with
// ErrDiffers. A rule that refuses an event is one with loan.ErrRefused.
//
// When cases ends with an error, those before it are imported and the error
// returned. After any other error an unknown part has been imported, each case up
// to some event; importing again goes on there.
func (s *Service) Import(ctx context.Context, cases iter.Seq2[loan.Case, error], o *ImportOptions) ([]eventstore.Token, error) {
	tokens, _, err := s.imported(ctx, cases, o)
	return tokens, err
}

// imported is Import, and tells the business time of the last event met.
func (s *Service) imported(ctx context.Context, cases iter.Seq2[loan.Case, error], o *ImportOptions) ([]eventstore.Token, time.Time, error) {
	if o == nil {
		o = &ImportOptions{}
	}
	im := &importing{s: s, count: o.Count, last: map[eventstore.Category]eventstore.Position{}}
	if im.count == nil {
		im.count = &Count{}
	}
	writers := o.Writers
	if writers < 1 || writers > MaxWriters {
		writers = DefaultWriters
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	queue := make(chan *job, writers)
	var working sync.WaitGroup
	for range writers {
		working.Go(func() {
			for j := range queue {
				if err := im.do(ctx, j); err != nil {
					stop(err)
					return
				}
			}
		})
	}
	err := s.feed(ctx, cases, queue)
	close(queue)
	working.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	tokens, err := im.tokens(ctx)
	return tokens, im.at, err
}

// feed turns cases into jobs until there are no more or somebody has failed.
func (s *Service) feed(ctx context.Context, cases iter.Seq2[loan.Case, error], queue chan<- *job) error {
	for c, err := range cases {
		if err != nil {
			return err
		}
		j, err := s.newJob(c)
		if err != nil {
			return err
		}
		select {
		case queue <- j:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// job is one case, made into commands.
type job struct {
	loan.Case
	stream   eventstore.Stream
	commands []loan.Command
}

// newJob reads a whole case before any of it is executed. What is wrong with it is
// an *XESError.
func (s *Service) newJob(c loan.Case) (*job, error) {
	j := &job{Case: c, commands: make([]loan.Command, len(c.Events))}
	for i := range c.Events {
		command, err := loan.CommandFor(c, i)
		if err != nil {
			return nil, err
		}
		j.commands[i] = command
	}
	var err error
	if j.stream, err = s.stream(c.Key); err != nil && len(c.Events) > 0 {
		return nil, &loan.XESError{Line: c.Events[0].Line, Wanted: "a case name that can be the key of a stream", Found: err.Error(), Err: err}
	}
	return j, nil
}

// command names command i of a case: the same in every import.
func (j *job) command(i int) eventstore.UUID {
	return eventstore.NameUUID("loan import " + j.Key + " " + strconv.Itoa(i))
}

func (j *job) fail(i int, err error) error {
	return &CaseError{Key: j.Key, Event: i + 1, Line: j.Events[i].Line, Err: err}
}

// importing is one Import.
type importing struct {
	s     *Service
	count *Count

	mu   sync.Mutex
	last map[eventstore.Category]eventstore.Position // highest met
	at   time.Time                                   // business time of the last event met
}

// do executes what of a case is not recorded yet.
func (im *importing) do(ctx context.Context, j *job) error {
	next, err := im.recorded(ctx, j)
	if err != nil {
		return err
	}
	im.count.Events.Add(int64(next))
	im.count.Known.Add(int64(next))
	for next < len(j.commands) {
		res, err := im.s.Execute(ctx, j.Key, j.commands[next], aggregate.CommandID(j.command(next)))
		if err != nil {
			return j.fail(next, err)
		}
		done := next + 1
		if res.Replayed { // another process imports the same log
			known, err := im.recorded(ctx, j)
			if err != nil {
				return err
			}
			done = max(done, known)
			im.count.Known.Add(int64(done - next))
		}
		im.passed(j.stream.Category(), res.Token.Position)
		im.count.Events.Add(int64(done - next))
		next = done
	}
	im.count.Cases.Add(1)
	im.happened(j)
	return nil
}

// happened notes when the last event of a case was.
func (im *importing) happened(j *job) {
	im.mu.Lock()
	defer im.mu.Unlock()
	for _, e := range j.Events {
		if e.Time.After(im.at) {
			im.at = e.Time
		}
	}
}

// recorded returns how many commands of a case, from the first on, are in the
// store, and compares what they wrote with what they would write. It is one read
// for a case of usual size. Entries that are not of this import are folded, as they
// count for what is decided behind them. Of a trimmed stream it returns 0: there is
// nothing to compare, but the Executor knows from the snapshot what was executed.
func (im *importing) recorded(ctx context.Context, j *job) (n int, err error) {
	state := loan.Initial()
	for e, err := range im.s.store.Read(ctx, j.stream, 0) {
		if errors.Is(err, eventstore.ErrTrimmed) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("case %q: %w", j.Key, err)
		}
		event, err := im.s.events.Decode(e)
		if err != nil {
			return 0, err
		}
		if n < len(j.commands) && e.Metadata[eventstore.MetaCommand] == j.command(n).String() {
			if err := same(state, j.commands[n], event); err != nil {
				return 0, j.fail(n, fmt.Errorf("entry %d of %s: %w", e.Seqno, e.Stream, err))
			}
			n++
		}
		state = loan.Evolve(state, event)
		im.passed(j.stream.Category(), e.Position)
	}
	return n, nil
}

// same compares a recorded event with what its command decides. Events hold no
// pointers and their times are UTC, so they can be compared as they are.
func same(state loan.State, c loan.Command, recorded loan.Event) error {
	decided, err := loan.Decide(state, c)
	if err != nil {
		return err
	}
	if decided[0] != recorded {
		return fmt.Errorf("%w: recorded %+v, the log says %+v", ErrDiffers, recorded, decided[0])
	}
	return nil
}

func (im *importing) passed(c eventstore.Category, p eventstore.Position) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.last[c] = max(im.last[c], p)
}

// tokens are those of the highest positions met. Positions of two categories compare
// only if both lie in one store, so each has its own.
func (im *importing) tokens(ctx context.Context) (all []eventstore.Token, err error) {
	for _, c := range im.s.categories {
		last := im.last[c]
		if last == 0 {
			continue
		}
		filter := eventstore.Filter{Categories: []eventstore.Category{c}, AcceptTrimmed: true}
		p, err := im.s.store.ReadFeed(ctx, last-1, filter, 1)
		if err != nil {
			return nil, err
		}
		all = append(all, eventstore.Token{Incarnation: p.Incarnation, Position: last})
	}
	return all, nil
}
