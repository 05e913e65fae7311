// A session: one instance's work on a checkpoint.

package projector

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/wattle-es/wattle/eventstore"
)

// session is the work of one Run or CatchUp. What it knows is thrown away and
// loaded anew after every failure; only who it is stays.
type session struct {
	p      *Projector
	holder eventstore.UUID
	kept   Checkpoint // as it is durably kept
	cur    Checkpoint // how far was read: kept, or behind it entries that are not handled
	owned  bool       // kept is this holder's
	lost   bool       // it was, and is another's now
	saved  time.Time  // when kept was loaded or written
	eager  time.Duration

	claimed atomic.Bool // it was this holder's at some time; others may look
}

func (p *Projector) session() *session { return p.sessionOf(eventstore.NewUUID()) }

func (p *Projector) sessionOf(holder eventstore.UUID) *session {
	return &session{p: p, holder: holder}
}

// open loads the checkpoint, proves that it stands in the store, and holds what
// is behind it. It also settles what became of a step whose answer was lost.
func (s *session) open(ctx context.Context) error {
	kept, err := s.p.load(ctx)
	if err != nil {
		return err
	}
	// A lower epoch is nobody's who came after: the claim was lost with the server that
	// it was kept on, or the answer is an old one. It is made again.
	if s.owned && kept.Holder != s.holder && kept.Epoch >= s.kept.Epoch {
		s.lost = true
		return FencedError(s.p.key, s.kept, kept)
	}
	if kept.Epoch == 0 {
		if err := s.p.unrivaled(ctx); err != nil {
			return err
		}
	}
	s.take(kept)
	s.cur = s.p.start(kept)
	if err := s.p.source.resume(ctx, s.cur); err != nil {
		return s.overtaken(ctx, err)
	}
	return s.overtaken(ctx, s.p.hold(ctx, s.cur))
}

// overtaken tells an error of the store from its being asked for what another
// instance has left behind: a zombie finds entries trimmed that it has not handled.
func (s *session) overtaken(ctx context.Context, failed error) error {
	if !hopeless(failed) {
		return failed
	}
	if kept, err := s.p.load(ctx); err == nil && !kept.Same(s.kept) {
		return FencedError(s.p.key, s.kept, kept)
	}
	return failed
}

func (s *session) take(kept Checkpoint) {
	s.kept, s.cur, s.owned, s.saved = kept, kept, kept.Epoch > 0 && kept.Holder == s.holder, time.Now()
	if s.owned {
		s.claimed.Store(true)
	}
	s.p.kept(kept)
}

// write lets the handler take one step from the kept checkpoint, claiming it if it
// is not this session's yet.
func (s *session) write(ctx context.Context, to Checkpoint, batch []eventstore.Entry) error {
	to.Epoch, to.Holder = s.kept.Epoch, s.holder
	if !s.owned {
		to.Epoch++
	}
	if err := s.p.handle(ctx, s.kept, to, batch); err != nil {
		return err
	}
	s.take(to)
	return nil
}

// claim makes the checkpoint this session's: whoever worked on it is fenced.
func (s *session) claim(ctx context.Context) error {
	if s.owned {
		return nil
	}
	return s.write(ctx, s.cur, nil)
}

// step looks at the store once and handles what is there. end says that nothing
// stood behind it.
func (s *session) step(ctx context.Context) (end bool, err error) {
	l, err := s.p.source.read(ctx, s.cur)
	if err != nil {
		return false, s.overtaken(ctx, err)
	}
	s.p.looked(l)
	if len(l.entries) > 0 {
		if err := s.write(ctx, l.next, l.entries); err != nil {
			return false, s.salvage(ctx, l, err)
		}
	} else {
		s.cur = l.next
		if s.ahead() && (!l.end || time.Since(s.saved) >= passInterval) {
			if err := s.write(ctx, s.cur, nil); err != nil {
				return false, err
			}
		}
	}
	s.p.stepped(s.cur, l.end)
	return l.end, nil
}

// ahead says if entries were passed over since the checkpoint was kept.
func (s *session) ahead() bool { return s.p.source.place(s.cur) != s.p.source.place(s.kept) }

// salvage keeps what stands before an entry that cannot be handled, so that the
// checkpoint gets as far as it can and the next batch begins with that entry. It
// returns nil if it has come further.
func (s *session) salvage(ctx context.Context, l look, failed error) error {
	bad, ok := errors.AsType[*EntryError](failed)
	if !ok || bad.Count != 1 || outage(failed) || ctx.Err() != nil {
		return failed
	}
	good := 0
	for good < len(l.entries) && (l.entries[good].Stream != bad.Stream || l.entries[good].Seqno != bad.Seqno) {
		good++
	}
	if good == 0 || good == len(l.entries) {
		return failed
	}
	// A handler whose effects cannot be taken back has kept them itself.
	kept, err := s.p.load(ctx)
	switch {
	case err != nil:
		return err
	case kept.Holder == s.holder && !kept.Same(s.kept):
		s.take(kept)
		return nil
	}
	to := s.cur
	for _, e := range l.entries[:good] {
		to = to.Past(e, l.next)
	}
	return s.write(ctx, to, l.entries[:good])
}
