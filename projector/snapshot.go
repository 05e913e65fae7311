// The snapshotter: keeps snapshots current and trims behind them.

package projector

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// SnapshotOptions say when snapshots are made and what is trimmed.
type SnapshotOptions struct {
	// Take makes and saves a snapshot of a stream's present state and returns its
	// mark; the zero Mark if there was nothing to do. It may be called again for the
	// same entries.
	Take func(ctx context.Context, s eventstore.Stream) (eventstore.Mark, error)
	// Every is how many entries of a stream lie between its snapshots; 0 means
	// DefaultSnapshotEvery.
	Every uint64
	// KeepEntries is how many entries up to the snapshot stay.
	KeepEntries uint64
	// KeepFor is how long entries stay at least, from their Time to this process's
	// clock; 0: no longer than KeepEntries says.
	KeepFor time.Duration
	// NoTrim makes snapshots and trims nothing.
	NoTrim bool
	// Projector are the options of the projector around it. It takes snapshots
	// instead of entries, so AcceptTrimmed and NoHold are always set, Types and Snapshots never.
	Projector Options
}

// DefaultSnapshotEvery is the number of entries between two snapshots of a stream.
const DefaultSnapshotEvery = 100

// NewSnapshotter returns a projector that takes a snapshot of a stream of the
// category each time its seqno passes a multiple of Every, and then trims the
// stream behind it. Trims stop at holds and are tried again later, when the end
// of the feed is reached. Both happen at least once; c keeps the checkpoint.
func NewSnapshotter(store *eventstore.Store, name string, category eventstore.Category, c Checkpoints, o SnapshotOptions) *Projector {
	if o.Every == 0 {
		o.Every = DefaultSnapshotEvery
	}
	s := &snapshotter{store: store, o: o, stopped: map[eventstore.Stream]eventstore.Seqno{}, tried: map[eventstore.Category]time.Time{}}
	o.Projector.AcceptTrimmed, o.Projector.NoHold, o.Projector.Types, o.Projector.Snapshots = true, true, nil, false
	h := &sink{Checkpoints: c, f: s.handle, tidy: s.retrim}
	p := New(store, name, category, h, &o.Projector)
	if p.mistake == nil && (o.Take == nil || c == nil) {
		p.mistake = p.invalid("checkpoints and a function Take", "nil")
	}
	return p
}

// snapshotter is the handler's function and what it remembers.
type snapshotter struct {
	store *eventstore.Store
	o     SnapshotOptions

	mu sync.Mutex
	// stopped are trims that something held up, by stream. Losing them costs space
	// until the stream's next snapshot, nothing else.
	stopped map[eventstore.Stream]eventstore.Seqno
	tried   map[eventstore.Category]time.Time // by the first category of those that share a feed
}

func (s *snapshotter) handle(ctx context.Context, _ Key, batch []eventstore.Entry) error {
	for _, e := range s.due(batch) {
		err := Contain([]eventstore.Entry{e}, func() error { return s.snapshot(ctx, e.Stream) })
		if err != nil {
			return err
		}
	}
	return nil
}

// due returns, for each stream that is due, the last of its entries that makes it so.
func (s *snapshotter) due(batch []eventstore.Entry) []eventstore.Entry {
	var all []eventstore.Entry
	seen := map[eventstore.Stream]bool{}
	for _, e := range slices.Backward(batch) {
		if uint64(e.Seqno)%s.o.Every == 0 && !seen[e.Stream] {
			seen[e.Stream] = true
			all = append(all, e)
		}
	}
	slices.Reverse(all)
	return all
}

func (s *snapshotter) snapshot(ctx context.Context, stream eventstore.Stream) error {
	at, err := s.o.Take(ctx, stream)
	if err != nil || s.o.NoTrim || uint64(at.Seqno) <= s.o.KeepEntries {
		return err
	}
	return s.trim(ctx, stream, at.Seqno-eventstore.Seqno(s.o.KeepEntries))
}

// trim trims as far as the policy, holds and snapshots allow, and remembers the rest.
func (s *snapshotter) trim(ctx context.Context, stream eventstore.Stream, through eventstore.Seqno) error {
	old := through
	if s.o.KeepFor > 0 {
		last, err := s.store.LastBefore(ctx, stream, time.Now().Add(-s.o.KeepFor))
		if err != nil {
			return err
		}
		old = min(old, last)
	}
	done, err := s.store.Trim(ctx, stream, old, false)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stopped, stream)
	if done.Trimmed < through {
		s.store.Logger().DebugContext(ctx, "trim stopped", "stream", stream, "wanted", through, "trimmed", done.Trimmed, "by", done.StoppedBy)
		if len(s.stopped) < maxUntrimmed {
			s.stopped[stream] = through
		}
	}
	return nil
}

// retrim tries the trims again that were stopped in categories of one backend, not too
// often. Those of another backend are not this one's to wait for.
func (s *snapshotter) retrim(ctx context.Context, of []eventstore.Category) error {
	s.mu.Lock()
	again := map[eventstore.Stream]eventstore.Seqno{}
	if time.Since(s.tried[of[0]]) >= holdInterval {
		s.tried[of[0]] = time.Now()
		for stream, through := range s.stopped {
			if slices.Contains(of, stream.Category()) {
				again[stream] = through
			}
		}
	}
	s.mu.Unlock()
	for stream, through := range again {
		if err := s.trim(ctx, stream, through); err != nil {
			return err
		}
	}
	return nil
}

// tidy gives the handler a turn when the end of the feed is reached.
func (p *Projector) tidy(ctx context.Context) error {
	if s, ok := p.handler.(*sink); ok && s.tidy != nil {
		return contained(func() error { return s.tidy(ctx, p.source.categories()) })
	}
	return nil
}
