// Metrics of a projector that works, by OpenTelemetry.
//
// Every measurement carries the projector (messaging.consumer.group.name is its name and
// version) and, where categories lie in several backends, the backend: so there are as
// many series as there are versions at work in this process, times backends. Lanes, keys
// and streams are no attributes: there may be very many.

package projector

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/wattle-es/wattle/eventstore"
)

// AttrBackend is the attribute for the backend of a part of a projector behind a Route.
const AttrBackend = attribute.Key("wattle.backend")

// The names of the metrics. Those under messaging are the semantic conventions'.
const (
	MetricEntries    = "messaging.client.consumed.messages" // counter: entries given to the handler; error.type if it failed
	MetricDuration   = "messaging.process.duration"         // histogram, s: of the handler, a batch; error.type if it failed
	MetricFailures   = "wattle.projector.failures"          // counter: failures after which a lane is tried again, or stops
	MetricLag        = "wattle.projector.lag"               // gauge: positions, see Status.Lag
	MetricLagTime    = "wattle.projector.lag.time"          // gauge, s: age of the oldest entry that was read and is not handled, by this process's clock
	MetricCheckpoint = "wattle.projector.checkpoint"        // gauge: position (of a stream: seqno) of the lowest lane at work here
	MetricLanes      = "wattle.projector.lanes"             // gauge: lanes that this process works on
	MetricParked     = "wattle.projector.parked"            // gauge: parked keys in these lanes
)

// metrics are the instruments of a projector.
type metrics struct {
	meter    metric.Meter
	entries  metric.Int64Counter
	failures metric.Int64Counter
	duration metric.Float64Histogram
	common   attribute.Set
}

// newMetrics makes the instruments; those that the provider refuses record nothing, and
// the error tells why.
func newMetrics(store *eventstore.Store, key Key, backend, destination string) (m metrics, err error) {
	m.meter = store.MeterProvider().Meter(eventstore.ScopeName)
	attributes := []attribute.KeyValue{
		eventstore.AttrSystem.String(eventstore.System), eventstore.AttrOperation.String("process"), eventstore.AttrDestination.String(destination),
		AttrGroup.String(fmt.Sprintf("%s/%d", key.Name(), key.Version)),
	}
	if backend != "" {
		attributes = append(attributes, AttrBackend.String(backend))
	}
	m.common = attribute.NewSet(attributes...)
	errs := make([]error, 3)
	m.entries, errs[0] = m.meter.Int64Counter(MetricEntries, metric.WithUnit("{message}"), metric.WithDescription("Entries given to the handler."))
	m.failures, errs[1] = m.meter.Int64Counter(MetricFailures, metric.WithUnit("{failure}"), metric.WithDescription("Failures after which a lane is tried again, or stops."))
	m.duration, errs[2] = m.meter.Float64Histogram(MetricDuration, metric.WithUnit("s"), metric.WithDescription("Duration of handling a batch."),
		metric.WithExplicitBucketBoundaries(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30))
	for _, e := range errs {
		if e != nil {
			err = e
		}
	}
	return m, err
}

// instrument makes the metrics of each part. It is done before a projector works.
func (p *Projector) instrument() {
	for _, leaf := range p.leaves() {
		m, err := newMetrics(p.store, leaf.key, leaf.backend.Name, leaf.source.name())
		if err != nil {
			p.logger.Warn("metrics of the projector are incomplete", "error", err)
		}
		leaf.metrics = m
	}
}

// handled records a batch.
func (m *metrics) handled(ctx context.Context, n int, took time.Duration, err error) {
	if m.meter == nil {
		return
	}
	o := metric.WithAttributeSet(m.common)
	if err != nil {
		o = metric.WithAttributes(append(m.common.ToSlice(), eventstore.AttrErrorType.String(eventstore.ErrorType(err)))...)
	}
	m.entries.Add(ctx, int64(n), o)
	m.duration.Record(ctx, took.Seconds(), o)
}

// failed records a failure.
func (m *metrics) failed(err error) {
	if m.meter != nil {
		m.failures.Add(context.Background(), 1, metric.WithAttributes(append(m.common.ToSlice(), eventstore.AttrErrorType.String(eventstore.ErrorType(err)))...))
	}
}

// observe has the state of all parts observed until stop is called.
func (p *Projector) observe() (stop func()) {
	var all []metric.Registration
	for _, leaf := range p.leaves() {
		r, err := leaf.gauges()
		if err != nil {
			p.logger.Warn("state of the projector is not observed", "error", err)
			continue
		}
		all = append(all, r)
	}
	return func() {
		for _, r := range all {
			if err := r.Unregister(); err != nil {
				p.logger.Warn("state of the projector is still observed", "error", err)
			}
		}
	}
}

// gauges registers what is observed of one part.
func (p *Projector) gauges() (metric.Registration, error) {
	m := &p.metrics
	if m.meter == nil {
		return nil, p.invalid("a projector without mistakes", "one with")
	}
	var all [5]metric.Observable
	var ints [4]metric.Int64ObservableGauge
	for i, d := range []struct{ name, unit, text string }{
		{MetricLag, "{position}", "Positions that the projector is behind the feed, at most."},
		{MetricCheckpoint, "{position}", "Position of the lowest lane."},
		{MetricLanes, "{lane}", "Lanes that this process works on."},
		{MetricParked, "{key}", "Keys parked in these lanes."},
	} {
		g, err := m.meter.Int64ObservableGauge(d.name, metric.WithUnit(d.unit), metric.WithDescription(d.text))
		if err != nil {
			return nil, err
		}
		all[i], ints[i] = g, g
	}
	age, err := m.meter.Float64ObservableGauge(MetricLagTime, metric.WithUnit("s"), metric.WithDescription("Age of the oldest entry that was read and is not handled."))
	if err != nil {
		return nil, err
	}
	all[4] = age
	return m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s, with := p.Status(), metric.WithAttributeSet(m.common)
		at := int64(s.Position)
		if p.o.Stream != "" {
			at = int64(s.Seqno)
		}
		o.ObserveInt64(ints[0], int64(s.Lag), with)
		o.ObserveInt64(ints[1], at, with)
		o.ObserveInt64(ints[2], int64(len(s.Lanes)), with)
		o.ObserveInt64(ints[3], int64(s.Parked), with)
		o.ObserveFloat64(age, p.lagTime().Seconds(), with)
		return nil
	}, all[:]...)
}

// reading is what one look found for a lane, while it is not handled.
type reading struct {
	through uint64    // place of the last entry
	oldest  time.Time // of the first
}

// reads notes what a look found; p.mu is held.
func (l *laneState) reads(p *Projector, entries []eventstore.Entry) {
	if len(entries) == 0 {
		return
	}
	through := p.source.placeOf(&entries[len(entries)-1])
	if n := len(l.readings); n == 0 || l.readings[n-1].through < through {
		l.readings = append(l.readings, reading{through, entries[0].Time})
	}
}

// passed forgets what is handled by now; p.mu is held.
func (l *laneState) passed(p *Projector, kept Checkpoint) {
	place := p.source.place(kept)
	if place < p.source.place(l.kept) {
		l.readings = nil // set back: it is read again
	}
	for len(l.readings) > 0 && l.readings[0].through <= place {
		l.readings = l.readings[1:]
	}
}

// lagTime is the age of the oldest entry that was read and is not handled.
func (p *Projector) lagTime() (lag time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lanes {
		if len(l.readings) > 0 {
			lag = max(lag, time.Since(l.readings[0].oldest))
		}
	}
	return lag
}
