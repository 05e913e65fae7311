// Appending: one statement, and when it did not pass, why.

package pglog

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/wattle-es/wattle/eventstore"
)

// maxAttempts bounds how often an append is sent when it lost a race that wrote
// nothing (a deadlock, a first append, a refusal that no longer holds).
const maxAttempts = 20

// errRaced says that a statement was rolled back for a race and may be sent again.
var errRaced = errors.New("raced")

// Append writes all batches or none.
func (l *Log) Append(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	if err := a.CheckShape(); err != nil {
		return eventstore.Appended{}, err
	}
	leave, err := l.enter(ctx, "append", a.Batches[0].Stream)
	if err != nil {
		return eventstore.Appended{}, err
	}
	defer leave()
	if l.groupable(a) {
		return l.appendGrouped(ctx, a)
	}
	return l.appendAlone(ctx, a)
}

// appendGrouped sends an append at once if a sender is free, else as one of a group.
func (l *Log) appendGrouped(ctx context.Context, a eventstore.Append) (eventstore.Appended, error) {
	b := &a.Batches[0]
	c, err := l.number(ctx, l.pool, "append", b.Stream.Category(), b.Stream)
	if err != nil {
		return eventstore.Appended{}, err
	}
	m := newMember(b, c)
	free, err := l.senders.enter(m)
	if err != nil {
		return eventstore.Appended{}, err
	}
	if free {
		defer l.leaveSender()
		return l.appendAlone(ctx, a)
	}
	position, done, err := l.await(ctx, m)
	switch {
	case !done:
		return l.appendAlone(ctx, a)
	case err != nil:
		return eventstore.Appended{}, err
	}
	return l.written(a, position), nil
}

// appendAlone sends an append in a statement of its own, again after a lost race.
func (l *Log) appendAlone(ctx context.Context, a eventstore.Append) (done eventstore.Appended, err error) {
	first := a.Batches[0].Stream
	for range maxAttempts {
		err = l.on(ctx, "append", first, func(q querier) error {
			done, err = l.appendOn(ctx, q, a)
			return err
		})
		if !stale(err) && !errors.Is(err, errRaced) {
			return done, err
		}
		l.categories.forget() // the race may have been with a category's deletion
	}
	return eventstore.Appended{}, &eventstore.Error{Kind: eventstore.ErrOverloaded, Op: "append", Stream: first,
		Wanted: "to write without losing a race", Found: itoa(maxAttempts) + " races lost; nothing was written", Hint: "try again", Err: err}
}

// appendOn sends an append and, if it did not pass, judges it.
func (l *Log) appendOn(ctx context.Context, q querier, a eventstore.Append) (eventstore.Appended, error) {
	places, err := l.numbers(ctx, q, a)
	if err != nil {
		return eventstore.Appended{}, err
	}
	w, err := l.send(ctx, q, a, places, l.sql.plain)
	if pgCode(err) == codeDeadlock || pgCode(err) == codeDivisionByZero {
		return eventstore.Appended{}, l.raced(err)
	}
	if err != nil {
		return eventstore.Appended{}, err
	}
	if !w.passed {
		return l.judge(ctx, q, a, places)
	}
	return l.written(a, w.position), nil
}

// written is the answer to an append that has just been written.
func (l *Log) written(a eventstore.Append, position eventstore.Position) eventstore.Appended {
	done := eventstore.Appended{Token: l.token(position)}
	for i := range a.Batches {
		b := &a.Batches[i]
		done.Receipts = append(done.Receipts, b.Written())
		l.grown(b)
	}
	return done
}

// token is that of a position, none for none: what is not in the feed has no token.
func (l *Log) token(position eventstore.Position) eventstore.Token {
	if position == 0 {
		return eventstore.Token{}
	}
	return eventstore.Token{Incarnation: l.incarnation, Position: position}
}

// raced wraps an error so that Append sends again, as one of ours: translate must
// not take it for an unknown outcome.
func (l *Log) raced(err error) error {
	return &eventstore.Error{Kind: errRaced, Op: "append", Err: err}
}

// numbers returns the categories' numbers of all batches, then of all guards: 0,
// which no category has, where a guard's is unknown. Only an append that is not
// proved is refused for that.
func (l *Log) numbers(ctx context.Context, q querier, a eventstore.Append) ([]category, error) {
	places := make([]category, 0, len(a.Batches)+len(a.Guards))
	for i := range a.Batches {
		c, err := l.number(ctx, q, "append", a.Batches[i].Stream.Category(), a.Batches[i].Stream)
		if err != nil {
			return nil, err
		}
		places = append(places, c)
	}
	for _, g := range a.Guards {
		c, err := l.number(ctx, q, "append", g.Stream.Category(), g.Stream)
		if err != nil && !errors.Is(err, eventstore.ErrNoSuchCategory) {
			return nil, err
		}
		places = append(places, c)
	}
	return places, nil
}

// cannotPass says if an append is out of reach of the statement: a seqno that no
// column holds, a guard in no category.
func cannotPass(a eventstore.Append, places []category) bool {
	for i := range a.Batches {
		if a.Batches[i].Last() > eventstore.MaxNumber {
			return true
		}
	}
	return slices.Contains(places, category{})
}

// statementFor chooses the text for one batch alone or for all there is, with its
// arguments.
func statementFor(a eventstore.Append, places []category, texts appendTexts) (sql string, args []any) {
	mixed := slices.ContainsFunc(places, func(c category) bool { return c.dedicated })
	switch {
	case len(places) == 1 && mixed:
		return texts.log, logArgs(&a.Batches[0], places[0].id)
	case len(places) == 1:
		return texts.one, oneArgs(&a.Batches[0], places[0].id)
	case mixed:
		return texts.mixed, mixedArgs(a, places)
	}
	return texts.all, allArgs(a, places)
}

// wrote is what a statement that appends answers: did it pass, and the last position,
// 0 if no batch is in the feed.
type wrote struct {
	passed   bool
	position eventstore.Position
}

// send writes.
func (l *Log) send(ctx context.Context, q querier, a eventstore.Append, places []category, texts appendTexts) (w wrote, err error) {
	if cannotPass(a, places) {
		return w, nil
	}
	sql, args := statementFor(a, places, texts)
	var ok bool
	var position *int64
	if err := q.QueryRow(ctx, sql, args...).Scan(&ok, &position); err != nil {
		return w, err
	}
	return wroteOf(a, ok, position)
}

// wroteOf is what the columns of an append say.
func wroteOf(a eventstore.Append, ok bool, position *int64) (wrote, error) {
	switch {
	case !ok:
		return wrote{}, isolationError("append", a.Batches[0].Stream)
	case position == nil:
		return wrote{}, nil
	}
	return wrote{passed: true, position: eventstore.Position(*position)}, nil
}

func oneArgs(b *eventstore.Batch, category int32) []any {
	var ev eventArrays
	ev.add(b.Events)
	return append([]any{category, b.Stream.Key(), int16(b.Stream.Slot()), int64(b.Epoch), toUUID(b.Holder), b.Claim,
		int64(b.After.Seqno), toUUID(b.After.ID), int64(len(b.Events)), toUUID(b.Events[len(b.Events)-1].ID), toUUID(b.ID)}, ev.args()...)
}

func allArgs(a eventstore.Append, places []category) []any {
	n := len(places)
	ids := make([]int32, n)
	for i, c := range places {
		ids[i] = c.id
	}
	keys, slots, epochs, holders, claims := make([]string, n), make([]int16, n), make([]int64, n), make([]uuid, n), make([]bool, n)
	afters, afterIDs, counts, lastIDs, batches := make([]int64, n), make([]uuid, n), make([]int64, n), make([]uuid, n), make([]uuid, n)
	var items []int64
	var ev eventArrays
	set := func(i int, s eventstore.Stream, after eventstore.Mark) {
		keys[i], slots[i] = s.Key(), int16(s.Slot())
		afters[i], afterIDs[i] = int64(after.Seqno), toUUID(after.ID)
		holders[i], lastIDs[i], batches[i] = toUUID(eventstore.UUID{}), toUUID(eventstore.UUID{}), toUUID(eventstore.UUID{})
	}
	for i := range a.Batches {
		b := &a.Batches[i]
		set(i, b.Stream, b.After)
		epochs[i], holders[i], claims[i], batches[i] = int64(b.Epoch), toUUID(b.Holder), b.Claim, toUUID(b.ID)
		counts[i], lastIDs[i] = int64(len(b.Events)), toUUID(b.Events[len(b.Events)-1].ID)
		if places[i].dedicated {
			continue // see mixedArgs
		}
		for range b.Events {
			items = append(items, int64(i+1))
		}
		ev.add(b.Events)
	}
	for i, g := range a.Guards {
		set(len(a.Batches)+i, g.Stream, g.At)
	}
	return append([]any{ids, keys, slots, epochs, holders, claims, afters, afterIDs, counts, lastIDs, batches, items}, ev.args()...)
}

// judge finds out, as of one moment, what became of an append that did not pass.
// The moment is later than the statement's: if the append would pass now it is
// sent again, so an error tells the facts it was decided on.
func (l *Log) judge(ctx context.Context, q querier, a eventstore.Append, places []category) (eventstore.Appended, error) {
	seen, err := l.see(ctx, q, a, places)
	if err != nil {
		return eventstore.Appended{}, err
	}
	var v eventstore.Verdict
	var done eventstore.Appended
	last := eventstore.Position(0)
	for i := range a.Batches {
		b, s := &a.Batches[i], seen[i]
		if places[i].dedicated && !s.exists {
			v.Refuse(eventstore.NoSuchStreamError("append", b.Stream))
			continue
		}
		if b.Passes(s.Head) {
			v.Pass()
			continue
		}
		r, err := b.Judge(s.Seen)
		if err != nil {
			v.Refuse(err)
			continue
		}
		v.Prove(b, s.Head)
		done.Receipts = append(done.Receipts, r)
		for _, e := range s.Around {
			if e.Seqno == r.Last.Seqno {
				last = max(last, e.Position)
			}
		}
	}
	for i, g := range a.Guards {
		n := len(a.Batches) + i
		if h := seen[n].Head; places[n].id == 0 {
			v.RefuseGuard(noSuchCategory("append", g.Stream.Category(), g.Stream))
		} else if places[n].dedicated && !seen[n].exists {
			v.RefuseGuard(eventstore.NoSuchStreamError("append", g.Stream))
		} else if !g.Passes(h) {
			v.RefuseGuard(g.Refusal(h))
		}
	}
	write, err := v.Settle()
	if write {
		return eventstore.Appended{}, l.passesNow(a)
	}
	if err == nil {
		err = l.settle(ctx, q, a.Batches[0].Stream, places[0].id)
	}
	if err != nil {
		return eventstore.Appended{}, err
	}
	done.Token = l.token(last)
	return done, nil
}

// settle waits until what has been read of a stream is as durable as an append: whose
// wait for a standby was cancelled is there to be read, but may be lost by a failover.
// A transaction of the caller's is his to settle.
func (l *Log) settle(ctx context.Context, q querier, s eventstore.Stream, id int32) error {
	if _, inTx := q.(pgx.Tx); inTx {
		return nil
	}
	_, err := q.Exec(ctx, l.sql.settle, id, s.Key())
	return l.translate("append", s, err, writing)
}

func (l *Log) passesNow(a eventstore.Append) error {
	for i := range a.Batches {
		if b := &a.Batches[i]; b.Last() > eventstore.MaxNumber {
			return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "append", Stream: b.Stream, Wanted: "seqnos of at most 2^63-1", Found: "more", Hint: "the stream is full"}
		}
	}
	return l.raced(nil)
}

// seen is what see found of one stream.
type seen struct {
	eventstore.Seen
	exists bool
}

// see reads, in one round trip and as of one moment, the head of every stream and
// the entries around every batch.
func (l *Log) see(ctx context.Context, q querier, a eventstore.Append, places []category) ([]seen, error) {
	if slices.ContainsFunc(places, func(c category) bool { return c.dedicated }) {
		return l.seeLogs(ctx, q, a, places)
	}
	streams := make([]eventstore.Stream, 0, len(places))
	queue := func(b *pgx.Batch) {
		for i := range a.Batches {
			batch := &a.Batches[i]
			streams = append(streams, batch.Stream)
			b.Queue(of(l.sql.around, places[i].id), places[i].id, batch.Stream.Key(), int64(batch.After.Seqno), int64(min(batch.Last()+1, eventstore.MaxNumber)))
		}
		for i, g := range a.Guards {
			streams = append(streams, g.Stream)
			id := places[len(a.Batches)+i].id
			b.Queue(of(l.sql.around, id), id, g.Stream.Key(), int64(1), int64(0)) // the head alone
		}
	}
	res, end := l.moment(ctx, q, queue)
	all := make([]seen, len(places))
	for i, s := range streams {
		rows, err := res.Query()
		if err == nil {
			all[i], err = scanSeen(rows, s)
		}
		if err != nil {
			end()
			return nil, l.readError("append", s, err)
		}
	}
	return all, l.readError("append", streams[0], end())
}

// readError translates an error of a read that belongs to a write: nothing of it
// can have been written.
func (l *Log) readError(op string, s eventstore.Stream, err error) error {
	if stale(err) {
		return err
	}
	return l.translate(op, s, err, reading)
}

// moment sends what queue adds so that all of it sees one moment: in a repeatable
// read transaction of its own or, where q is a transaction already, in that.
func (l *Log) moment(ctx context.Context, q querier, queue func(b *pgx.Batch)) (res pgx.BatchResults, end func() error) {
	if _, inTx := q.(pgx.Tx); inTx {
		b := &pgx.Batch{}
		queue(b)
		res = q.SendBatch(ctx, b)
		return res, res.Close
	}
	res = q.SendBatch(ctx, readOnlySnapshot(queue))
	res.Exec() // begin; its error comes again with the next result
	return res, res.Close
}

func scanSeen(rows pgx.Rows, s eventstore.Stream) (seen seen, err error) {
	defer rows.Close()
	for rows.Next() {
		var h headRow
		var r entryRow
		if err := rows.Scan(h.targets(r.targets()...)...); err != nil {
			return seen, err
		}
		seen.Head, seen.exists = h.head(), h.epoch != nil
		e, ok, err := r.entry(s)
		if err != nil {
			return seen, err
		}
		if ok {
			seen.Around = append(seen.Around, e)
		}
	}
	return seen, rows.Err()
}
