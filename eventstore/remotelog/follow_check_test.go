// A client believes no server that sends what no log holds.

package remotelog

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// script is a message stream of messages that were made up.
type script struct {
	messages []FollowedFeed
	err      error
	at       int
	silent   <-chan struct{} // behind the messages nothing comes until this ends
}

func (s *script) Receive() bool {
	if s.at == len(s.messages) {
		if s.silent != nil {
			<-s.silent
		}
		return false
	}
	s.at++
	return true
}

func (s *script) Msg() *FollowedFeed { return &s.messages[s.at-1] }
func (s *script) Err() error         { return s.err }
func (s *script) Close() error       { return nil }

// errScript ends a stream that should have ended before.
var errScript = &eventstore.Error{Kind: eventstore.ErrInvalid}

func entry(s eventstore.Stream, n int) eventstore.Entry {
	return eventstore.Entry{Event: eventstore.Event{ID: eventstore.NameUUID(string(s) + eventstore.Seqno(n).String()), Type: "t"}, Stream: s, Seqno: eventstore.Seqno(n), Position: eventstore.Position(n)}
}

func entries(s eventstore.Stream, ns ...int) (all []eventstore.Entry) {
	for _, n := range ns {
		all = append(all, entry(s, n))
	}
	return all
}

var scripted = tail[FollowedFeed]{wrong: func(err error) error { return err }, silence: time.Minute}

func TestFollowBelievesNoNonsense(t *testing.T) {
	noID := entries("account-a", 1, 2, 3)
	noID[2].ID = eventstore.UUID{}
	for name, m := range map[string][]eventstore.Entry{
		"a hole": entries("account-a", 1, 2, 4), "a repeat": entries("account-a", 1, 2, 2), "from the start again": entries("account-a", 1, 2, 1),
		"another stream": append(entries("account-a", 1, 2), entry("account-b", 3)), "no ID": noID,
	} {
		n := 0
		var last error
		for _, err := range followStream(t.Context(), scripted, "account-a", eventstore.Mark{},
			func(context.Context, eventstore.Mark) (receiver[FollowedFeed], error) {
				return &script{messages: []FollowedFeed{{Entries: m}}, err: errScript}, nil
			},
			func(m *FollowedFeed) ([]eventstore.Entry, error) { return m.Entries, nil }) {
			if last = err; err == nil {
				n++
			}
		}
		if wantErr(t, last, eventstore.ErrCorrupt); n != 2 {
			t.Errorf("%s: %d entries before it", name, n)
		}
	}
}

func TestFollowFeedBelievesNoNonsense(t *testing.T) {
	id, through := eventstore.NewUUID(), func(n int) eventstore.PositionMark { return entry("account-a", n).PositionMark() }
	good := FollowedFeed{Entries: entries("account-a", 1, 2), Through: through(5), Incarnation: id}
	for name, c := range map[string]struct {
		m    FollowedFeed
		kind error
	}{
		"a repeat":           {FollowedFeed{Entries: entries("account-a", 5), Through: through(6), Incarnation: id}, eventstore.ErrCorrupt},
		"out of order":       {FollowedFeed{Entries: entries("account-a", 7, 6), Through: through(8), Incarnation: id}, eventstore.ErrCorrupt},
		"through too low":    {FollowedFeed{Entries: entries("account-a", 6, 7), Through: through(6), Incarnation: id}, eventstore.ErrCorrupt},
		"through falls":      {FollowedFeed{Through: through(4), Incarnation: id}, eventstore.ErrCorrupt},
		"no through":         {FollowedFeed{Entries: entries("account-a", 6), Incarnation: id}, eventstore.ErrCorrupt},
		"not asked for":      {FollowedFeed{Entries: entries("loan-a", 6), Through: through(6), Incarnation: id}, eventstore.ErrCorrupt},
		"another store":      {FollowedFeed{Entries: entries("account-a", 6), Through: through(6), Incarnation: eventstore.NewUUID()}, eventstore.ErrDiverged},
		"no store":           {FollowedFeed{Entries: entries("account-a", 6), Through: through(6)}, eventstore.ErrCorrupt},
		"another that rests": {FollowedFeed{Incarnation: eventstore.NewUUID()}, eventstore.ErrDiverged},
	} {
		var got []FollowedFeed
		var last error
		for p, err := range followFeed(t.Context(), scripted, eventstore.PositionMark{}, eventstore.Filter{Categories: []eventstore.Category{"account"}},
			func(context.Context, eventstore.PositionMark) (receiver[FollowedFeed], error) {
				return &script{messages: []FollowedFeed{good, {Incarnation: id}, c.m}, err: errScript}, nil
			},
			func(m *FollowedFeed) (FollowedFeed, error) { return *m, nil }) {
			if last = err; err == nil {
				got = append(got, p)
			}
		}
		if wantErr(t, last, c.kind); len(got) != 1 || got[0].Through != through(5) {
			t.Errorf("%s: %+v before it", name, got)
		}
	}
}

// What is resumed, what is not, how soon, and from where.
func TestTail(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		final bool
	}{
		"nothing": {nil, false}, "a stranger's": {errors.New("x"), false},
		"unavailable": {&eventstore.Error{Kind: eventstore.ErrUnavailable}, false}, "overloaded": {&eventstore.Error{Kind: eventstore.ErrOverloaded}, false},
		"going away": {&eventstore.Error{Kind: ErrGoingAway}, false}, "slow": {&eventstore.Error{Kind: ErrSlowConsumer}, false},
		"trimmed": {&eventstore.Error{Kind: eventstore.ErrTrimmed}, true}, "diverged": {&eventstore.Error{Kind: eventstore.ErrDiverged}, true},
		"denied": {&eventstore.Error{Kind: ErrDenied}, true}, "unauthenticated": {&eventstore.Error{Kind: ErrUnauthenticated}, true},
		"invalid": {&eventstore.Error{Kind: eventstore.ErrInvalid}, true}, "no category": {&eventstore.Error{Kind: eventstore.ErrNoSuchCategory}, true},
		"no stream": {&eventstore.Error{Kind: eventstore.ErrNoSuchStream}, true}, "unsupported": {&eventstore.Error{Kind: errors.ErrUnsupported}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			opened := 0
			tl := scripted
			tl.open = func(context.Context) (receiver[FollowedFeed], error) {
				opened++
				return &script{err: c.err}, nil
			}
			err := tl.each(ctx, nil)
			switch {
			case c.final && (err != c.err || opened != 1 || time.Since(began) > 0):
				t.Errorf("%s: %v after %d", name, err, opened)
			case !c.final && (!errors.Is(err, context.DeadlineExceeded) || opened < 10 || opened > 40):
				t.Errorf("%s: %v after %d in a minute", name, err, opened)
			}
		})
	}
}

// Silence ends a stream after three heartbeats, and not while the caller works.
func TestTailSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		tl := scripted
		tl.open = func(ctx context.Context) (receiver[FollowedFeed], error) {
			at = append(at, time.Since(began).Truncate(time.Second))
			return &script{messages: []FollowedFeed{{}}, silent: ctx.Done()}, nil
		}
		enough := errors.New("enough")
		err := tl.each(t.Context(), func(*FollowedFeed) error {
			time.Sleep(10 * time.Minute)
			if len(at) == 3 {
				return enough
			}
			return nil
		})
		if err != enough || at[1] != 11*time.Minute || at[2] != 22*time.Minute {
			t.Errorf("%v, opened at %v", err, at)
		}
	})
}

// A stream that never says anything is silent too, and then the next must speak at once.
func TestTailSilentFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		tl := scripted
		tl.open = func(ctx context.Context) (receiver[FollowedFeed], error) {
			if at = append(at, time.Since(began).Truncate(time.Second)); len(at) == 3 {
				return &script{err: errScript}, nil
			}
			return &script{silent: ctx.Done()}, nil
		}
		err := tl.each(t.Context(), nil)
		if err != errScript || at[1] != time.Minute || at[2] != time.Minute+20*time.Second {
			t.Errorf("%v, opened at %v", err, at)
		}
	})
}
