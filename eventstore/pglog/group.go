// Group commit: appends that arrive while others are in flight go together as the
// next statement, each decided by its own predicate.
//
// A few senders work, each with one statement at a time on a connection of its own. An
// append that finds a free sender is sent at once and alone, by its own goroutine, so
// nothing is added when there is nothing to wait for. Otherwise it waits in a queue,
// and the next sender that is free takes all that wait. There is no timer.
//
// What can make a neighbour wait or fail is kept out of a group: an append of
// several streams or with guards, a stream's first append (it may wait for somebody
// else's), and, by SKIP LOCKED, a stream that somebody else has locked. These, and
// whatever did not pass in a group, go alone afterwards; so does every member when
// the server took a group back.

package pglog

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/wattle-es/wattle/eventstore"
)

// Bounds of group commit.
const (
	// DefaultSenders is how many statements of appends one Log has in flight. Few make
	// large groups; but as long as each append can have a sender to itself that is
	// faster than any group (make bench BENCH='-senders 2,4,8').
	DefaultSenders = 4

	maxGroup      = 128     // appends in one statement
	maxGroupBytes = 8 << 20 // their payload
	maxQueue      = 8192    // appends that wait
	maxQueueBytes = 256 << 20
)

// senders are those of one Log and the appends that wait for them.
type senders struct {
	most int

	mu    sync.Mutex
	busy  int
	queue []*member
	bytes int // payload in the queue
}

// member is an append that waits.
type member struct {
	batch *eventstore.Batch
	place category
	bytes int
	group *group       // nil while it waits in the queue
	done  chan outcome // takes one
}

// outcome is what became of a member.
type outcome struct {
	wrote
	err   error // it was not written, and why
	alone bool  // it was not written, and is to go alone
}

// group is the members of one statement, all of one layout.
type group struct {
	members []*member
	cancel  context.CancelFunc // when the last caller has left
	waiting int
}

// newMember copies what the batch refers to: a caller whose context ends leaves with
// the outcome unknown, and may use his payload anew before the group has been sent.
func newMember(b *eventstore.Batch, place category) *member {
	own := *b
	own.Events = slices.Clone(b.Events)
	m := &member{batch: &own, place: place, done: make(chan outcome, 1)}
	for i := range own.Events {
		e := &own.Events[i]
		e.Data, e.Metadata = bytes.Clone(e.Data), maps.Clone(e.Metadata)
		m.bytes += len(e.Data)
	}
	return m
}

// groupable says if an append may share a statement.
func (l *Log) groupable(a eventstore.Append) bool {
	return l.senders.most > 0 && len(a.Batches) == 1 && len(a.Guards) == 0 &&
		a.Batches[0].After.Seqno > 0 && a.Batches[0].Last() <= eventstore.MaxNumber // no column holds more
}

// enter takes a free sender, or queues m and returns false.
func (s *senders) enter(m *member) (free bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy < s.most {
		s.busy++
		return true, nil
	}
	if len(s.queue) >= maxQueue || s.bytes+m.bytes > maxQueueBytes {
		return false, &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: "append", Stream: m.batch.Stream,
			Wanted: "room in the queue of appends", Found: itoa(int64(len(s.queue))) + " waiting; nothing was written", Hint: "try again later"}
	}
	s.queue = append(s.queue, m)
	s.bytes += m.bytes
	return false, nil
}

// leaveSender gives a sender to those who wait, or back.
func (l *Log) leaveSender() {
	if g := l.senders.next(); g != nil {
		go l.serve(g)
	}
}

// serve sends groups until nobody waits. It is nobody's goroutine: a group goes on
// when one of its callers leaves.
func (l *Log) serve(g *group) {
	for ; g != nil; g = l.senders.next() {
		ctx, cancel := context.WithCancel(context.Background())
		if l.senders.start(g, cancel) {
			l.sendGroup(ctx, g)
		}
		cancel()
	}
}

// next takes the next group off the queue; nil if nobody waits: then the sender is free.
func (s *senders) next() *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.busy--
		return nil
	}
	g := &group{}
	last := map[eventstore.Stream]*member{}
	size := 0
	rest := s.queue[:0]
	for _, m := range s.queue {
		before := last[m.batch.Stream]
		full := len(g.members) > 0 && (len(g.members) == maxGroup || size+m.bytes > maxGroupBytes || m.place.dedicated != g.dedicated())
		if full || before != nil && !m.follows(before) {
			rest = append(rest, m)
			last[m.batch.Stream] = barrier // nothing behind it may overtake it
			continue
		}
		m.group = g
		g.members = append(g.members, m)
		size += m.bytes
		last[m.batch.Stream] = m
	}
	clear(s.queue[len(rest):])
	s.queue = rest
	s.bytes -= size
	g.waiting = len(g.members)
	return g
}

// barrier is followed by nobody.
var barrier = &member{batch: &eventstore.Batch{Events: make([]eventstore.Event, 1)}}

// follows says if m continues before: the owner's next batch, sent without waiting
// for the answer to the one before it.
func (m *member) follows(before *member) bool {
	b, p := m.batch, before.batch
	last := p.Events[len(p.Events)-1].ID
	return !b.Claim && b.Stream == p.Stream && b.Epoch == p.Epoch && b.Holder == p.Holder && b.After.Seqno == p.Last() &&
		(b.After.ID == last || b.After.ID.IsZero())
}

// start notes how to end a group; false if all its callers have left already.
func (s *senders) start(g *group, cancel context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.cancel = cancel
	return g.waiting > 0
}

// leave takes a caller whose context has ended off. It returns true if its append
// was still in the queue, so was never sent.
func (s *senders) leave(m *member) (unsent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.group == nil {
		for i, q := range s.queue {
			if q == m {
				s.queue = append(s.queue[:i], s.queue[i+1:]...)
				s.bytes -= m.bytes
				break
			}
		}
		return true
	}
	if m.group.waiting--; m.group.waiting == 0 && m.group.cancel != nil {
		m.group.cancel()
	}
	return false
}

// await waits for what becomes of a member that was queued. done false means that
// it was not written and is to go alone.
func (l *Log) await(ctx context.Context, m *member) (position eventstore.Position, done bool, err error) {
	select {
	case o := <-m.done:
		return o.position, !o.alone, o.err
	case <-ctx.Done():
	}
	if l.senders.leave(m) {
		return 0, true, ctx.Err()
	}
	select {
	case o := <-m.done: // the answer came after all
		return o.position, !o.alone, o.err
	default:
	}
	return 0, true, &eventstore.Error{Kind: eventstore.ErrUnknown, Op: "append", Stream: m.batch.Stream, Err: ctx.Err(),
		Hint: "send the same batch again to learn the outcome"}
}

// sendGroup sends a group and tells every member its outcome.
func (l *Log) sendGroup(ctx context.Context, g *group) {
	written, err := l.writeGroup(ctx, g)
	for i, m := range g.members {
		switch {
		case err == nil && written[i].passed:
			m.done <- outcome{wrote: written[i]}
		case err == nil, takenBack(err):
			m.done <- outcome{alone: true}
		default:
			m.done <- outcome{err: l.translate("append", m.batch.Stream, err, writing)}
		}
	}
}

// takenBack says if the server answered that it took the statement back: one
// member's fault must not become its neighbours'.
func takenBack(err error) bool {
	pg, answered := errors.AsType[*pgconn.PgError](err)
	return answered && !fatal(pg)
}

// dedicated says of which layout the group is.
func (g *group) dedicated() bool { return g.members[0].place.dedicated }

// writeGroup returns what became of each member.
func (l *Log) writeGroup(ctx context.Context, g *group) ([]wrote, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, l.translate("append", "", err, connecting)
	}
	defer conn.Release()
	if err := readable("append", "", conn.Conn()); err != nil {
		return nil, err
	}
	args, rowOf := g.args()
	sql := l.sql.appendGroup
	if g.dedicated() {
		sql = l.sql.appendLogGroup
	}
	waits := watchWaits(conn)
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	byRow, err := scanGroup(rows)
	if unfit(err) {
		conn.Conn().Close(ctx)
	}
	if err == nil {
		err = waits.err()
	}
	if err != nil {
		return nil, err
	}
	written := make([]wrote, len(g.members))
	taken := map[int64]int{} // events of a row that members before have
	for i, m := range g.members {
		row := rowOf[i]
		taken[row] += len(m.batch.Events)
		positions, passed := byRow[row]
		if written[i].passed = passed; len(positions) >= taken[row] {
			written[i].position = eventstore.Position(positions[taken[row]-1])
		}
	}
	return written, nil
}

// scanGroup returns the positions of each row that passed, in the order of seqnos; none
// in the dedicated layout.
func scanGroup(rows pgx.Rows) (map[int64][]int64, error) {
	defer rows.Close()
	byRow := map[int64][]int64{}
	for rows.Next() {
		var row *int64
		var positions []int64
		if err := rows.Scan(&row, &positions); err != nil {
			return nil, err
		}
		if row != nil { // nobody passes under another isolation level: alone they learn why
			byRow[*row] = positions
		}
	}
	return byRow, rows.Err()
}

// args are the statement's: a row for each stream, in which members that follow one
// another are one, and every event with the number of its row.
func (g *group) args() (args []any, rowOf []int64) {
	n := len(g.members)
	ids, keys, slots := make([]int32, 0, n), make([]string, 0, n), make([]int16, 0, n)
	epochs, holders, claims := make([]int64, 0, n), make([]uuid, 0, n), make([]bool, 0, n)
	afters, afterIDs, counts, lastIDs := make([]int64, 0, n), make([]uuid, 0, n), make([]int64, 0, n), make([]uuid, 0, n)
	var items []int64
	var batches []uuid
	var ev eventArrays
	var chunks chunkArrays
	rows := make(map[eventstore.Stream]int, n)
	rowOf = make([]int64, n)
	for i, m := range g.members {
		b := m.batch
		row, known := rows[b.Stream]
		if !known {
			row = len(ids)
			rows[b.Stream] = row
			ids, keys, slots = append(ids, m.place.id), append(keys, b.Stream.Key()), append(slots, int16(b.Stream.Slot()))
			epochs, holders, claims = append(epochs, int64(b.Epoch)), append(holders, toUUID(b.Holder)), append(claims, b.Claim)
			afters, afterIDs = append(afters, int64(b.After.Seqno)), append(afterIDs, toUUID(b.After.ID))
			counts, lastIDs = append(counts, 0), append(lastIDs, uuid{})
		}
		rowOf[i] = int64(row + 1)
		nth := counts[row]
		counts[row] += int64(len(b.Events))
		lastIDs[row] = toUUID(b.Events[len(b.Events)-1].ID)
		if g.dedicated() {
			for range chunks.add(b.Events, nth) {
				items, batches = append(items, rowOf[i]), append(batches, toUUID(b.ID))
			}
			continue
		}
		for range b.Events {
			items, batches = append(items, rowOf[i]), append(batches, toUUID(b.ID))
		}
		ev.add(b.Events)
	}
	if g.dedicated() {
		return append([]any{ids, keys, epochs, holders, claims, afters, afterIDs, counts, lastIDs, items, batches}, chunks.args()...), rowOf
	}
	return append([]any{ids, keys, slots, epochs, holders, claims, afters, afterIDs, counts, lastIDs, items, batches}, ev.args()...), rowOf
}
