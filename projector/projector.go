// Projector: what users hold, and how it is configured.

package projector

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"github.com/wattle-es/wattle/eventstore"
)

// Options of a Projector; nil and the zero value are the defaults.
type Options struct {
	// Version of the projection, from 1 (0 means 1). Every version has a checkpoint
	// and a hold of its own: a new one starts from the beginning.
	Version int
	// Categories to follow beside the one given to New, at most
	// eventstore.MaxFilterNames together.
	Categories []eventstore.Category
	// Stream makes the projector follow this one stream by its seqnos, instead of
	// categories. The category given to New is then that of the stream, or empty.
	Stream eventstore.Stream
	// Types are the wire names that are handled; all others are passed over. Empty: all.
	Types []string
	// PageSize is how many entries are read, and handled as one batch, at a time;
	// 0 means eventstore.DefaultPageEntries.
	PageSize int
	// PollInterval is how often the store is looked at when nothing announces; 0
	// means eventstore.DefaultPollInterval.
	PollInterval time.Duration
	// AcceptTrimmed goes on where entries were trimmed before the projector came to
	// them, without them. Without it that is ErrTrimmed. It is for handlers that
	// begin from snapshots.
	AcceptTrimmed bool
	// Snapshots has streams whose beginning was trimmed begin with their snapshot, so that
	// a version can be built although entries are gone. The handler gets it as an entry of
	// SnapshotType, whatever Types says, that stands for all entries of the stream through
	// its Seqno; its Position is that of the entry there, 0 if that is gone. It must put
	// the state in the place of all that it has of the stream, and be content with that in
	// the place of any entries: also later, wherever a lane begins to work again, a trimmed
	// stream may go on with its newest snapshot, and the same one may come several times.
	//
	// A stream without an entry left gets its turn before the lane has passed what was
	// trimmed; its snapshot may come before entries of other streams that are older. That
	// a stream was trimmed and has no usable snapshot is ErrTrimmed, unless AcceptTrimmed.
	Snapshots bool
	// StartAt is the position (of a stream: StartSeqno the seqno) behind which a
	// projector without a checkpoint begins. It must have been reached by the store.
	StartAt    eventstore.Position
	StartSeqno eventstore.Seqno
	// NoHold keeps no hold: entries may be trimmed before the projector came to them.
	NoHold bool
	// Tries is how often an entry is given to a handler that fails on it, for reasons of
	// its own, with growing pauses, before its key is parked; 0 means DefaultTries.
	Tries int
	// StopOnPoison has Run stop then, instead of parking the key. So it does anyhow if
	// the handler has no Control, or one stream is followed.
	StopOnPoison bool
	// MaxParked is how many keys a lane parks; then it waits at the next one, trying it
	// again and again, until some are retried or skipped. 0 means DefaultMaxParked.
	MaxParked int
	// Lanes is the number of lanes a version begins with, 1 to MaxLanes; 0 means 1. Once
	// it is registered SetLanes changes it. More than one take a handler with Control.
	Lanes int
	// LeaseTTL is how long a worker that is silent keeps its lanes; 0 means
	// eventstore.DefaultLeaseTTL. At least MinLeaseTTL.
	LeaseTTL time.Duration
	// MaxRebuilds is how many versions, of all projectors of the store, are built at once;
	// a further one waits. 0 means DefaultMaxRebuilds.
	MaxRebuilds int
	// SpanPerEntry makes a span for each entry (by the handlers of this module that
	// take one event at a time) beside the one of its batch.
	SpanPerEntry bool
}

// Projector follows entries and feeds them to a handler. All methods may be
// called from several goroutines at once.
type Projector struct {
	store   *eventstore.Store
	handler Handler
	source  source
	key     Key                // of the checkpoint
	whole   Key                // of the projector, if it is a part of one
	backend eventstore.Backend // what the source reads from
	rival   Key                // under which a checkpoint in this backend could be kept too; zero: none
	parts   []*Projector       // one a backend, if there are several; they do the work then
	o       Options
	mistake error   // in the configuration; every method returns it
	control Control // of the handler; nil: it has none
	leased  bool    // lanes are leased: the control is shared with other processes
	tracer  trace.Tracer
	metrics metrics // of a part
	logger  *slog.Logger

	running atomic.Bool

	mu       sync.Mutex
	state    state
	lanes    map[int]*laneState // that this instance works on
	layout   layout
	pl       *puller       // of a Run
	progress chan struct{} // closed and replaced whenever a checkpoint was kept
	held     held
	stores   map[eventstore.UUID]string // which backend is which store, when last asked
}

// New returns a projector of a category. The name is part of its checkpoint's key
// and of its hold's name: 1 to MaxNameBytes bytes without control characters and
// '/'. At most one Options is taken. Mistakes are the ErrInvalid of every method, a
// category that is bound to no backend of a Route its ErrNoSuchCategory.
//
// Behind a Route the categories may lie in several backends; see the package comment.
func New(store *eventstore.Store, name string, category eventstore.Category, h Handler, options ...*Options) *Projector {
	p := &Projector{
		store: store, handler: h, key: Key{Projector: name, Version: 1},
		tracer:   store.TracerProvider().Tracer(eventstore.ScopeName),
		progress: make(chan struct{}),
	}
	if len(options) > 0 && options[0] != nil {
		p.o = *options[0]
	}
	if p.o.Version > 0 {
		p.key.Version = p.o.Version
	}
	p.whole = p.key
	p.control, p.leased = controlOf(h)
	p.logger = store.Logger().With("projector", p.key.String())
	if p.mistake = p.configure(category, len(options)); p.mistake == nil {
		p.instrument()
	}
	return p
}

// Key returns the key of the projector's checkpoint; over several backends of that in
// the first.
func (p *Projector) Key() Key { return p.key }

// configure fills in defaults and returns what is wrong.
func (p *Projector) configure(category eventstore.Category, options int) error {
	if p.o.PageSize == 0 {
		p.o.PageSize = eventstore.DefaultPageEntries
	}
	if p.o.PollInterval == 0 {
		p.o.PollInterval = eventstore.DefaultPollInterval
	}
	if p.o.Tries == 0 {
		p.o.Tries = DefaultTries
	}
	if p.o.MaxParked == 0 {
		p.o.MaxParked = DefaultMaxParked
	}
	if p.o.LeaseTTL == 0 {
		p.o.LeaseTTL = eventstore.DefaultLeaseTTL
	}
	if p.o.MaxRebuilds == 0 {
		p.o.MaxRebuilds = DefaultMaxRebuilds
	}
	if err := p.checkName(); err != nil {
		return err
	}
	if err := p.checkLanes(); err != nil {
		return err
	}
	const maxVersion = 1<<31 - 1
	switch {
	case options > 1:
		return p.invalid("at most one Options", fmt.Sprint(options))
	case p.handler == nil:
		return p.invalid("a handler", "nil")
	case p.o.Version < 0 || p.o.Version > maxVersion:
		return p.invalid("a version of 1 to 2^31-1", fmt.Sprint(p.o.Version))
	case p.o.PageSize < 0 || p.o.PageSize > eventstore.MaxPageEntries:
		return p.invalid(fmt.Sprintf("a page size of 1 to %d", eventstore.MaxPageEntries), fmt.Sprint(p.o.PageSize))
	case p.o.PollInterval < minLook:
		return p.invalid(fmt.Sprintf("a poll interval of at least %v", minLook), p.o.PollInterval.String())
	case p.o.Tries < 0:
		return p.invalid("a number of tries of at least 1", fmt.Sprint(p.o.Tries))
	}
	return p.choose(category)
}

func (p *Projector) checkLanes() error {
	switch {
	case p.o.Lanes < 0 || p.o.Lanes > MaxLanes:
		return p.invalid(fmt.Sprintf("1 to %d lanes", MaxLanes), fmt.Sprint(p.o.Lanes))
	case p.o.Lanes > 1 && p.control == nil:
		return p.invalid("one lane, since the handler has no Control", fmt.Sprint(p.o.Lanes))
	case p.o.Lanes > 1 && p.o.Stream != "":
		return p.invalid("one lane where one stream is followed", fmt.Sprint(p.o.Lanes))
	case p.o.LeaseTTL < MinLeaseTTL || p.o.LeaseTTL > eventstore.MaxLeaseTTL:
		return p.invalid(fmt.Sprintf("a lease TTL of %v to %v", MinLeaseTTL, eventstore.MaxLeaseTTL), p.o.LeaseTTL.String())
	case p.o.MaxParked < 0 || p.o.MaxRebuilds < 0:
		return p.invalid("bounds of at least 1", fmt.Sprintf("%d parked keys, %d rebuilds", p.o.MaxParked, p.o.MaxRebuilds))
	}
	return nil
}

func (p *Projector) checkName() error {
	name := p.key.Projector
	bad := func(r rune) bool { return unicode.IsControl(r) || r == '/' }
	if name == "" || len(name) > MaxNameBytes || !utf8.ValidString(name) || strings.ContainsFunc(name, bad) {
		if len(name) > MaxNameBytes {
			name = name[:MaxNameBytes] + "…"
		}
		return p.invalid(fmt.Sprintf("a name of 1 to %d bytes of UTF-8 without control characters and '/'", MaxNameBytes), fmt.Sprintf("%q", name))
	}
	return nil
}

// choose makes the source.
func (p *Projector) choose(category eventstore.Category) error {
	if p.o.Stream != "" {
		if _, err := eventstore.ParseStream(string(p.o.Stream)); err != nil {
			return err
		}
		if len(p.o.Categories) > 0 || category != "" && category != p.o.Stream.Category() || p.o.StartAt != 0 {
			return p.invalid("one stream alone, of the category given, begun at a seqno", fmt.Sprintf("stream %s and other categories or a position", p.o.Stream))
		}
		p.source = &stream{store: p.store, stream: p.o.Stream, types: p.o.Types, limit: p.o.PageSize, acceptTrimmed: p.o.AcceptTrimmed || p.o.Snapshots, snapshots: p.o.Snapshots, bare: p.o.AcceptTrimmed}
		shares, err := p.store.Split(p.o.Stream.Category())
		if err != nil {
			return err
		}
		p.backend = shares[0].Backend
		return nil
	}
	f := eventstore.Filter{Types: append([]string(nil), p.o.Types...), AcceptTrimmed: p.o.AcceptTrimmed || p.o.Snapshots}
	if p.o.Snapshots {
		f.Types = nil // an entry of any type may be where a snapshot goes; the session chooses
	}
	f.Categories = append(f.Categories, category)
	f.Categories = append(f.Categories, p.o.Categories...)
	for _, c := range f.Categories {
		if _, err := eventstore.ParseCategory(string(c)); err != nil {
			return err
		}
	}
	if p.o.StartSeqno != 0 {
		return p.invalid("a seqno to begin at with a stream only", p.o.StartSeqno.String())
	}
	shares, err := p.store.Split(f.Categories...)
	switch {
	case err != nil:
		return err
	case len(shares) > 1 && p.o.StartAt != 0:
		return p.invalid("no position to begin at where categories lie in several backends", p.o.StartAt.String())
	case len(shares) > 1:
		p.divide(shares, f)
		return nil
	}
	if p.backend = shares[0].Backend; p.backend.Name != "" {
		p.rival = p.keyIn(p.backend)
	}
	p.source = newFeed(p.store, f, p.o.PageSize, p.o.Snapshots)
	return nil
}

func (p *Projector) invalid(wanted, found string) error {
	return &eventstore.Error{Kind: eventstore.ErrInvalid, Op: "project", Wanted: wanted, Found: found}
}

// start is the place where a projector begins that has kept nothing yet.
func (p *Projector) start(kept Checkpoint) Checkpoint {
	if kept.Epoch == 0 {
		kept.Position, kept.Seqno = p.o.StartAt, p.o.StartSeqno
	}
	return kept
}

// loadLane loads a lane. Without Control there is one.
func (p *Projector) loadLane(ctx context.Context, key Key) (l Lane, err error) {
	if p.control == nil {
		l.Lanes = 1
		l.Checkpoint, err = p.loadKey(ctx, key)
		return l, err
	}
	err = contained(func() error {
		l, err = p.control.Lane(ctx, key)
		return err
	})
	return l, err
}

// loadKey loads a durable checkpoint.
func (p *Projector) loadKey(ctx context.Context, key Key) (kept Checkpoint, err error) {
	err = contained(func() error {
		kept, err = p.handler.Load(ctx, key)
		return err
	})
	return kept, err
}

// handle lets the handler take one step, in a span if there is anything to handle.
func (p *Projector) handle(ctx context.Context, s Step) (err error) {
	if len(s.Batch) == 0 {
		return contained(func() error { return p.handler.Handle(ctx, s) })
	}
	ctx, span := p.batchSpan(ctx, s.To, s.Batch)
	began := time.Now()
	defer func() {
		p.metrics.handled(ctx, len(s.Batch), time.Since(began), err)
		eventstore.EndSpan(span, err)
	}()
	return containedBatch(s.Batch, func() error { return p.handler.Handle(ctx, s) })
}
