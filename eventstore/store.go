// Store: what users hold. Everything that all backends need done is done here.

package eventstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Options of a Store; nil and the zero value are the defaults.
type Options struct {
	Announcer      Announcer            // nil: nothing is announced, readers poll
	TracerProvider trace.TracerProvider // nil: no spans
	MeterProvider  metric.MeterProvider // nil: no metrics
	Logger         *slog.Logger         // for what happens beside a call; nil: nothing
	Limits         Limits
}

// Store is a Log with everything around it: validation, limits, identifiers,
// spans, announcements. All methods may be called from several goroutines at once.
// Methods of an interface that the Log does not implement answer
// errors.ErrUnsupported.
type Store struct {
	log       Log
	announcer Announcer
	provider  trace.TracerProvider
	meters    metric.MeterProvider
	tracer    trace.Tracer
	untraced  bool // nobody looks at spans
	logger    *slog.Logger
	limits    Limits
}

// New returns a Store around a Log. Closing the Store closes the Log.
func New(log Log, o *Options) *Store {
	if o == nil {
		o = &Options{}
	}
	s := &Store{log: log, announcer: o.Announcer, provider: o.TracerProvider, meters: o.MeterProvider, logger: o.Logger, limits: o.Limits.orDefault()}
	if s.provider == nil {
		s.provider, s.untraced = noop.NewTracerProvider(), true
	}
	if s.meters == nil {
		s.meters = metricnoop.NewMeterProvider()
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	s.tracer = s.provider.Tracer(ScopeName)
	return s
}

// Log returns the Log that s was made of.
func (s *Store) Log() Log { return s.log }

// TracerProvider returns the provider that spans around this store use.
func (s *Store) TracerProvider() trace.TracerProvider { return s.provider }

// MeterProvider returns the provider that metrics of what works on this store use.
func (s *Store) MeterProvider() metric.MeterProvider { return s.meters }

// Logger returns the logger for what happens beside a call.
func (s *Store) Logger() *slog.Logger { return s.logger }

// Limits returns the bounds on what s is given, none of them zero.
func (s *Store) Limits() Limits { return s.limits }

// Close closes the Log.
func (s *Store) Close() error { return s.log.Close() }

// Append writes all batches or none; see [Log.Append]. What is left out is filled
// in: batch IDs (new ones: give your own to be able to resend after ErrUnknown),
// event IDs, version 1, application/json, the trace context. After the commit it
// announces.
func (s *Store) Append(ctx context.Context, a Append) (Appended, error) {
	return s.AppendBy(ctx, a, s.log.Append)
}

// AppendBy is Append with another last step than the log's own, for a backend that
// appends together with something else. do gets the append completed and checked.
// It keeps the promises of [Log.Append]: when it returns nil every batch is durable,
// and then it is announced.
func (s *Store) AppendBy(ctx context.Context, a Append, do func(context.Context, Append) (Appended, error)) (Appended, error) {
	return s.appendBy(ctx, a, do, s.announce)
}

// AppendPending is AppendBy for an append whose commit comes later, and not from
// do: nothing is announced before announce is called.
func (s *Store) AppendPending(ctx context.Context, a Append, do func(context.Context, Append) (Appended, error)) (
	done Appended, announce func(context.Context), err error) {
	done, err = s.appendBy(ctx, a, do, func(ctx context.Context, done Appended) {
		span := trace.SpanContextFromContext(ctx)
		announce = func(ctx context.Context) { s.announce(trace.ContextWithSpanContext(ctx, span), done) }
	})
	return done, announce, err
}

// appendBy completes, checks and traces an append around do, and calls then with
// what do wrote.
func (s *Store) appendBy(ctx context.Context, a Append, do func(context.Context, Append) (Appended, error),
	then func(context.Context, Appended)) (done Appended, err error) {
	var first Stream
	events := 0
	for i, b := range a.Batches {
		if i == 0 {
			first = b.Stream
		}
		events += len(b.Events)
	}
	ctx, span := s.span(ctx, "append", "send", trace.SpanKindProducer, first, AttrBatchCount.Int(events))
	defer func() { EndSpan(span, err) }()

	a = complete(a, traceMetadata(ctx))
	if err := s.limits.check(a); err != nil {
		return Appended{}, inOp("append", first, err)
	}
	if span.IsRecording() {
		span.SetAttributes(AttrEpoch.Int64(int64(a.Batches[0].Epoch)))
	}
	done, err = do(ctx, a)
	if err != nil {
		return Appended{}, err
	}
	if span.IsRecording() {
		span.SetAttributes(AttrSeqno.Int64(int64(done.Receipts[0].Last.Seqno)), AttrPosition.Int64(int64(done.Token.Position)))
	}
	then(ctx, done)
	return done, nil
}

// announce tells what was written. The append is durable already, so it neither
// fails for it nor waits long.
func (s *Store) announce(ctx context.Context, done Appended) {
	if s.announcer == nil {
		return
	}
	hints := make([]Announcement, len(done.Receipts))
	for i, r := range done.Receipts {
		hints[i] = Announcement{Category: r.Stream.Category(), Slot: r.Stream.Slot(), Stream: r.Stream,
			Seqno: r.Last.Seqno, Position: done.Token.Position}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DefaultAnnounceTimeout)
	defer cancel()
	ctx, span := s.span(ctx, "announce", "send", trace.SpanKindProducer, hints[0].Stream)
	for i := range hints {
		hints[i].Traceparent = Traceparent(ctx)
	}
	err := s.announcer.Announce(ctx, hints)
	EndSpan(span, err)
	if err != nil {
		s.logger.WarnContext(ctx, "announcement failed; readers find the entries when they poll", "stream", hints[0].Stream, "error", err)
	}
}

// Subscribe calls f with the announcements of the categories (none: all) until
// stop is called. Without an announcer it does nothing. f must not block.
func (s *Store) Subscribe(ctx context.Context, categories []Category, f func(Announcement)) (stop func(), err error) {
	if s.announcer == nil {
		return func() {}, nil
	}
	return s.announcer.Subscribe(ctx, categories, f)
}

// Fence grants holder the next epoch of a stream and returns the final head.
func (s *Store) Fence(ctx context.Context, stream Stream, holder UUID) (Head, error) {
	return s.fence(ctx, stream, holder, 0)
}

// FenceAt fences a stream at an epoch from outside (a lease, a ZooKeeper zxid):
// strictly greater than the stream's, or equal with the same holder.
func (s *Store) FenceAt(ctx context.Context, stream Stream, epoch Epoch, holder UUID) (Head, error) {
	if epoch == 0 {
		return Head{}, &Error{Kind: ErrZeroEpoch, Op: "fence", Stream: stream, Wanted: "an epoch of at least 1", Found: "0"}
	}
	return s.fence(ctx, stream, holder, epoch)
}

func (s *Store) fence(ctx context.Context, stream Stream, holder UUID, at Epoch) (h Head, err error) {
	err = stream.check()
	if err == nil {
		err = checkNumber("epoch", uint64(at))
	}
	if err == nil && holder.IsZero() {
		err = invalid("holder", "a UUID", "the zero UUID")
	}
	if err != nil {
		return Head{}, inOp("fence", stream, err)
	}
	ctx, span := s.span(ctx, "fence", "settle", trace.SpanKindClient, stream)
	defer func() { EndSpan(span, err) }()
	return s.log.Fence(ctx, stream, holder, at)
}

// Head returns what the registry knows of a stream; see [Log.Head].
func (s *Store) Head(ctx context.Context, stream Stream) (Head, error) {
	if err := stream.check(); err != nil {
		return Head{}, inOp("head", stream, err)
	}
	return s.log.Head(ctx, stream)
}

// Trim removes the entries of a stream through a seqno as far as is allowed, and
// says what stopped it; see [Log.Trim]. With dry it only tells.
func (s *Store) Trim(ctx context.Context, stream Stream, through Seqno, dry bool) (TrimResult, error) {
	err := stream.check()
	if err == nil {
		err = checkNumber("through", uint64(through))
	}
	if err != nil {
		return TrimResult{}, inOp("trim", stream, err)
	}
	return s.log.Trim(ctx, stream, through, dry)
}

// SaveSnapshot keeps a snapshot; see [Snapshots]. It fills in the checksum and,
// where it is empty, the content type.
func (s *Store) SaveSnapshot(ctx context.Context, sn Snapshot) error {
	if sn.ContentType == "" {
		sn.ContentType = defaultContentType
	}
	if sn.Data == nil {
		sn.Data = []byte{}
	}
	if err := sn.check(); err != nil {
		return inOp("save snapshot", sn.Stream, err)
	}
	l, err := as[Snapshots](s.log, "save snapshot")
	if err != nil {
		return err
	}
	sn.Checksum = sha256.Sum256(sn.Data)
	return l.SaveSnapshot(ctx, sn)
}

// CreateCategory creates a category; see [Categories].
func (s *Store) CreateCategory(ctx context.Context, spec CategorySpec) error {
	err := spec.Name.check()
	if err == nil && spec.Layout > Dedicated {
		err = invalid("layout", "shared or dedicated", fmt.Sprint(uint8(spec.Layout)))
	}
	if err != nil {
		return inOp("create category", "", err)
	}
	l, err := as[Categories](s.log, "create category")
	if err != nil {
		return err
	}
	return l.CreateCategory(ctx, spec)
}

// DeleteCategory removes a category and all that is in it; see [Categories].
func (s *Store) DeleteCategory(ctx context.Context, c Category) error {
	if err := c.check(); err != nil {
		return inOp("delete category", "", err)
	}
	l, err := as[Categories](s.log, "delete category")
	if err != nil {
		return err
	}
	return l.DeleteCategory(ctx, c)
}

// ListCategories returns all categories ordered by name.
func (s *Store) ListCategories(ctx context.Context) ([]CategorySpec, error) {
	l, err := as[Categories](s.log, "list categories")
	if err != nil {
		return nil, err
	}
	return l.ListCategories(ctx)
}

// CreateStreams creates streams of dedicated categories; see [Streams].
func (s *Store) CreateStreams(ctx context.Context, streams ...Stream) error {
	const op = "create streams"
	for _, stream := range streams {
		if err := stream.check(); err != nil {
			return inOp(op, stream, err)
		}
	}
	l, err := as[Streams](s.log, op)
	if err != nil || len(streams) == 0 {
		return err
	}
	return l.CreateStreams(ctx, streams)
}

// DropStream removes a stream of a dedicated category; see [Streams].
func (s *Store) DropStream(ctx context.Context, stream Stream) error {
	if err := stream.check(); err != nil {
		return inOp("drop stream", stream, err)
	}
	l, err := as[Streams](s.log, "drop stream")
	if err != nil {
		return err
	}
	return l.DropStream(ctx, stream)
}

// SetHold registers or moves a hold; see [Holds].
func (s *Store) SetHold(ctx context.Context, h Hold) error {
	if err := h.check(); err != nil {
		return inOp("set hold", h.Stream, err)
	}
	l, err := as[Holds](s.log, "set hold")
	if err != nil {
		return err
	}
	return l.SetHold(ctx, h)
}

// ReleaseHold removes the hold of that name on a stream or, where stream is
// empty, on a category; nil if there is none.
func (s *Store) ReleaseHold(ctx context.Context, name string, c Category, stream Stream) error {
	h := Hold{Name: name, Category: c, Stream: stream}
	if err := h.check(); err != nil {
		return inOp("release hold", stream, err)
	}
	l, err := as[Holds](s.log, "release hold")
	if err != nil {
		return err
	}
	return l.ReleaseHold(ctx, name, h.Category, stream)
}

// ListHolds returns all holds ordered by name, category, stream.
func (s *Store) ListHolds(ctx context.Context) ([]Hold, error) {
	l, err := as[Holds](s.log, "list holds")
	if err != nil {
		return nil, err
	}
	return l.ListHolds(ctx)
}

// AcquireLease asks for a named lease; see [Leases]. ttl 0 means DefaultLeaseTTL.
func (s *Store) AcquireLease(ctx context.Context, name string, holder UUID, ttl time.Duration) (Lease, bool, error) {
	l, ttl, err := s.leases("acquire lease", name, holder, ttl)
	if err != nil {
		return Lease{}, false, err
	}
	return l.AcquireLease(ctx, name, holder, ttl)
}

// RenewLease prolongs a lease by ttl from now; see [Leases]. ttl 0 means DefaultLeaseTTL.
func (s *Store) RenewLease(ctx context.Context, lease Lease, ttl time.Duration) (Lease, error) {
	l, ttl, err := s.leases("renew lease", lease.Name, lease.Holder, ttl)
	if err != nil {
		return Lease{}, err
	}
	return l.RenewLease(ctx, lease, ttl)
}

// ReleaseLease gives a lease back at once; nil if it is lost already.
func (s *Store) ReleaseLease(ctx context.Context, lease Lease) error {
	l, _, err := s.leases("release lease", lease.Name, lease.Holder, 0)
	if err != nil {
		return err
	}
	return l.ReleaseLease(ctx, lease)
}

// UpdateLeases renews, acquires, releases and lists leases at once; see [Leases]. TTL 0
// means DefaultLeaseTTL.
func (s *Store) UpdateLeases(ctx context.Context, u LeaseUpdate) ([]Lease, error) {
	const op = "update leases"
	l, ttl, err := s.leases(op, u.Prefix, u.Holder, u.TTL)
	if err != nil {
		return nil, err
	}
	if err := u.check(); err != nil {
		return nil, inOp(op, "", err)
	}
	u.TTL = ttl
	return l.UpdateLeases(ctx, u)
}

// check is the rule for the names of an update, the prefix aside.
func (u *LeaseUpdate) check() error {
	names := slices.Clone(u.Acquire)
	for _, l := range slices.Concat(u.Renew, u.Release) {
		names = append(names, l.Name)
	}
	if len(names) > MaxLeases {
		return tooLarge("lease names", fmt.Sprintf("at most %d", MaxLeases), fmt.Sprint(len(names)))
	}
	slices.Sort(names)
	for i, name := range names {
		if err := checkText("lease name", name, MaxNameBytes); err != nil {
			return err
		}
		if !strings.HasPrefix(name, u.Prefix) {
			return invalid("lease name", "the prefix "+strconv.Quote(u.Prefix), strconv.Quote(clip(name)))
		}
		if i > 0 && names[i-1] == name {
			return invalid("lease names", "each once", "twice "+strconv.Quote(clip(name)))
		}
	}
	return nil
}

func (s *Store) leases(op, name string, holder UUID, ttl time.Duration) (Leases, time.Duration, error) {
	if ttl == 0 {
		ttl = DefaultLeaseTTL
	}
	err := checkText("lease name", name, MaxNameBytes)
	switch {
	case err != nil:
	case holder.IsZero():
		err = invalid("holder", "a UUID", "the zero UUID")
	case ttl < MinLeaseTTL || ttl > MaxLeaseTTL:
		err = invalid("ttl", fmt.Sprintf("%v to %v", MinLeaseTTL, MaxLeaseTTL), ttl.String())
	}
	if err != nil {
		return nil, 0, inOp(op, "", err)
	}
	l, err := as[Leases](s.log, op)
	return l, ttl, err
}

// as returns the log as one of the smaller interfaces.
func as[T any](log Log, op string) (T, error) {
	l, ok := log.(T)
	if !ok {
		return l, fmt.Errorf("wattle: %s: %T: %w", op, log, errors.ErrUnsupported)
	}
	return l, nil
}
