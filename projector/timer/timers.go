// Timers: what users hold to set, cancel, reschedule and look up timers.

package timer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// Options of Timers and Scheduler, the same for both; nil and the zero value are the
// defaults.
type Options struct {
	// Category of the timers. Empty: DefaultCategory.
	Category eventstore.Category
	// LogCategories are those whose entries' times are the log's clock. None: there
	// are no timers on it. They exist, are shared, lie in the backend of Category, which
	// is not one of them, and must be the same for all schedulers.
	LogCategories []eventstore.Category
	// Now is the clock of a scheduler, for timers on the wall clock. Nil: time.Now.
	Now func() time.Time
	// PollInterval is how often a scheduler looks at the feed when nothing announces;
	// 0: eventstore.DefaultPollInterval. It is most of what a timer can be late.
	PollInterval time.Duration
	// Keep is how long timers that are over stay on disk, with the IDs they remember;
	// 0: DefaultKeep. Below 0: for ever, nothing is trimmed.
	Keep time.Duration
	// MaxPending bounds the pending timers of either clock in a scheduler's memory; 0:
	// DefaultMaxPending. With more on the wall's clock the category is read again after
	// every MaxPending/4 firings or more: none is refused, and none is late but by that
	// read. With more on the log's clock a scheduler stops with eventstore.ErrOverloaded.
	MaxPending int
	// LeaseTTL has the schedulers that Run take turns under a lease of that time-to-live,
	// so that they do not all fire everything. It is no part of any promise but this: a
	// timer may be late by LeaseTTL and a third more, when the holder crashed or froze. 0: none.
	LeaseTTL time.Duration
	// Retries is how often a change is decided anew when others were faster, and how
	// often an append whose outcome is unknown is sent again. 0: eventstore.DefaultRetries.
	Retries int
}

// configured returns o with its defaults, and sees to it that the category exists.
func (o *Options) configured(ctx context.Context, store *eventstore.Store) (c Options, err error) {
	if o != nil {
		c = *o
	}
	c.LogCategories = slices.Clone(c.LogCategories)
	if c.Category == "" {
		c.Category = DefaultCategory
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.PollInterval == 0 {
		c.PollInterval = eventstore.DefaultPollInterval
	}
	if c.Keep == 0 {
		c.Keep = DefaultKeep
	}
	if c.MaxPending == 0 {
		c.MaxPending = DefaultMaxPending
	}
	if c.Retries == 0 {
		c.Retries = eventstore.DefaultRetries
	}
	const op = "open timers"
	switch {
	case store == nil:
		return c, invalid(op, "", "store", "one", "nil")
	case c.PollInterval < minLook:
		return c, invalid(op, "", "poll interval", fmt.Sprintf("at least %v", minLook), c.PollInterval.String())
	case c.MaxPending < minMaxPending:
		return c, invalid(op, "", "pending timers", fmt.Sprintf("at least %d", minMaxPending), fmt.Sprint(c.MaxPending))
	case c.LeaseTTL != 0 && (c.LeaseTTL < eventstore.MinLeaseTTL || c.LeaseTTL > eventstore.MaxLeaseTTL):
		return c, invalid(op, "", "lease TTL", fmt.Sprintf("%v to %v", eventstore.MinLeaseTTL, eventstore.MaxLeaseTTL), c.LeaseTTL.String())
	case c.Retries < 0:
		return c, invalid(op, "", "retries", "at least 0", fmt.Sprint(c.Retries))
	case slices.Contains(c.LogCategories, c.Category):
		return c, invalid(op, "", "log categories", "others than that of the timers", string(c.Category))
	case len(c.LogCategories) >= eventstore.MaxFilterNames:
		return c, invalid(op, "", "log categories", fmt.Sprintf("fewer than %d", eventstore.MaxFilterNames), fmt.Sprint(len(c.LogCategories)))
	}
	shares, err := store.Split(append([]eventstore.Category{c.Category}, c.LogCategories...)...)
	if err != nil {
		return c, err
	}
	if len(shares) > 1 {
		return c, &eventstore.Error{Kind: eventstore.ErrCrossBackend, Op: op, Category: c.Category, Wanted: "timers and log categories in one backend",
			Found: fmt.Sprintf("%d backends", len(shares)), Hint: "positions of two backends do not compare; bind the categories to one"}
	}
	if len(c.LogCategories) > 0 { // one that is missing is told now, and not when the first log timer is set
		if _, err := store.ReadFeed(ctx, 0, eventstore.Filter{Categories: c.LogCategories, AcceptTrimmed: true}, 1); err != nil {
			return c, err
		}
	}
	return c, store.CreateCategory(ctx, eventstore.CategorySpec{Name: c.Category, TrimFreely: true})
}

// Timers changes and looks up the timers of a category. All methods may be called from
// several goroutines at once, and from any number of processes.
type Timers struct {
	store  *eventstore.Store
	o      Options
	holder eventstore.UUID // who claims the timers' streams
}

// New returns the timers of a category, which it creates unless it is there: shared,
// trimmed freely. eventstore.ErrInvalid if it is there with another spec.
func New(ctx context.Context, store *eventstore.Store, o *Options) (*Timers, error) {
	c, err := o.configured(ctx, store)
	if err != nil {
		return nil, err
	}
	return &Timers{store: store, o: c, holder: eventstore.NewUUID()}, nil
}

// Option is an option of one change.
type Option func(*change)

// ID names the change, so that making it again changes nothing and answers what has
// become of the timer (Timer.Replayed). The ID of a reactor's command is one. It is known
// while it is among the last RememberedIDs of the timer, and until a timer that is over
// is trimmed (Options.Keep). After that one that carries its time (UUIDv7) is
// [ErrForgotten] if it is not younger than what was forgotten; any other is taken for
// new. A change that was refused leaves nothing behind and is decided anew.
func ID(id eventstore.UUID) Option {
	return func(c *change) {
		if id.IsZero() {
			c.wrong = invalid(c.op, c.stream, "ID", "a UUID", "the zero UUID")
		}
		c.id = id
	}
}

// OnLog has Set go by the log's clock.
func OnLog() Option { return func(c *change) { c.clock = Log } }

// ContentType is that of Set's payload; application/json without it.
func ContentType(s string) Option { return func(c *change) { c.contentType = s } }

// CausedBy says that the change is a reaction to an entry, as aggregate.CausedBy does.
// The fired entry is caused by the one that set it, in the same conversation.
func CausedBy(e eventstore.Entry) Option {
	return func(c *change) { c.metadata = causedBy(&e) }
}

func causedBy(e *eventstore.Entry) eventstore.Metadata {
	correlation := e.Metadata[eventstore.MetaCorrelation]
	if correlation == "" {
		correlation = e.ID.String()
	}
	return eventstore.Metadata{eventstore.MetaCausation: e.ID.String(), eventstore.MetaCorrelation: correlation}
}

// Set makes a timer pending under a new generation, whatever it was before. due may
// have passed, then it fires as soon as a scheduler sees it, and lies in the years up
// to 9999; the zero time is ErrInvalid, since it is a forgotten one. The payload, at
// most MaxPayloadBytes, comes with the fired entry.
//
// When Set returns nil the timer is durable. Errors are those of an append. After
// eventstore.ErrUnknown call it again, with the same [ID]; without one the timer may be
// set twice, and then the first generation is over: it fires once all the same unless
// it did in between. After ErrAlreadyWritten and ErrFenced others kept changing it:
// nothing was written.
func (t *Timers) Set(ctx context.Context, name string, due time.Time, payload []byte, options ...Option) (Timer, error) {
	c, err := t.change("set timer", name, options)
	if err != nil {
		return Timer{}, err
	}
	if due, err = c.checkDue(due); err != nil {
		return Timer{}, err
	}
	switch {
	case len(payload) > MaxPayloadBytes:
		return Timer{}, &eventstore.Error{Kind: eventstore.ErrTooLarge, Op: c.op, Stream: c.stream,
			Wanted: fmt.Sprintf("a payload of at most %d bytes", MaxPayloadBytes), Found: fmt.Sprintf("%d bytes", len(payload))}
	case c.clock == Log && len(t.o.LogCategories) == 0:
		return Timer{}, invalid(c.op, c.stream, "clock", "that of the wall, since there are no LogCategories", "that of the log")
	}
	return t.apply(ctx, c, func(Timer, bool) (State, record, error) {
		return Pending, record{Due: due, Clock: c.clock, ContentType: c.contentType, Payload: payload}, nil
	})
}

// Reschedule moves a pending timer: it begins a new generation with the same payload
// and clock. A timer that is over stays so: ErrFired or ErrCancelled; ErrNoTimer if
// nothing is known of it. Due and other errors as in Set.
func (t *Timers) Reschedule(ctx context.Context, name string, due time.Time, options ...Option) (Timer, error) {
	c, err := t.change("reschedule timer", name, options)
	if err != nil {
		return Timer{}, err
	}
	if due, err = c.checkDue(due); err != nil {
		return Timer{}, err
	}
	return t.apply(ctx, c, func(now Timer, known bool) (State, record, error) {
		switch {
		case !known:
			return 0, record{}, noTimer(c.op, c.stream, now.Mark.Seqno > 0)
		case now.State != Pending:
			return 0, record{}, over(c.op, now, c.stream)
		}
		return Pending, record{Due: due, Clock: now.Clock, ContentType: now.ContentType, Payload: now.Payload}, nil
	})
}

// Cancel ends a pending timer. When it returns nil the timer has not fired and will
// not, in this generation; a timer that was cancelled before is as well. ErrFired if
// it has fired, ErrNoTimer if nothing is known of it. Other errors as in Set.
func (t *Timers) Cancel(ctx context.Context, name string, options ...Option) (Timer, error) {
	c, err := t.change("cancel timer", name, options)
	if err != nil {
		return Timer{}, err
	}
	return t.apply(ctx, c, func(now Timer, known bool) (State, record, error) {
		switch {
		case !known:
			return 0, record{}, noTimer(c.op, c.stream, now.Mark.Seqno > 0)
		case now.State == Fired:
			return 0, record{}, over(c.op, now, c.stream)
		case now.State == Cancelled:
			return 0, record{}, nil
		}
		return Cancelled, record{Due: now.Due, Clock: now.Clock, Generation: now.Generation}, nil
	})
}

// Get returns a timer as it is; ErrNoTimer if nothing is known of it.
func (t *Timers) Get(ctx context.Context, name string) (Timer, error) {
	c, err := t.change("get timer", name, nil)
	if err != nil {
		return Timer{}, err
	}
	l, err := t.load(ctx, c)
	if err == nil && !l.known {
		err = noTimer(c.op, c.stream, l.timer.Mark.Seqno > 0)
	}
	if err != nil {
		return Timer{}, err
	}
	return l.timer, nil
}

// change begins a change.
func (t *Timers) change(op, name string, options []Option) (*change, error) {
	s, err := eventstore.NewStream(t.o.Category, name)
	if err != nil {
		if e, ok := errors.AsType[*eventstore.Error](err); ok && e.Op == "" {
			e.Op = op
		}
		return nil, err
	}
	c := &change{op: op, stream: s}
	for _, o := range options {
		if o != nil {
			o(c)
		}
	}
	return c, c.wrong
}

// checkDue returns a due time as it is kept: rounded up, so that nothing fires early.
func (c *change) checkDue(due time.Time) (time.Time, error) {
	due = due.Round(0).UTC()
	if due.IsZero() {
		return due, invalid(c.op, c.stream, "due time", "a time; time.Now() for at once", "the zero time")
	}
	if rest := due.Nanosecond() % 1000; rest > 0 {
		due = due.Add(time.Duration(1000 - rest))
	}
	if due.After(maxDue) || due.Year() < 1 {
		return due, invalid(c.op, c.stream, "due time", "one in the years 1 to 9999", due.String())
	}
	return due, nil
}
