//go:build !wasm

// Metrics of guests, by OpenTelemetry.
//
// Every measurement carries Options.Name; calls their operation, and error.type if they
// failed. Nothing of a module's or request's choice is an attribute.

package wasm

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/wattle-es/wattle/eventstore"
)

// Attributes of the metrics.
const (
	AttrGuest  = attribute.Key("wattle.guest")        // Options.Name
	AttrOp     = attribute.Key("wattle.guest.op")     // as "decide"; "start" for an instance that does not start
	AttrReason = attribute.Key("wattle.guest.reason") // why an instance was recycled: "calls", "memory"
)

// The names of the metrics.
const (
	MetricCompile   = "wattle.guest.compile.duration" // histogram, s: of checking and compiling a module, or reading it from CacheDir
	MetricWait      = "wattle.guest.wait.duration"    // histogram, s: until an instance is free
	MetricCall      = "wattle.guest.call.duration"    // histogram, s: of a call, without waiting
	MetricFailures  = "wattle.guest.failures"         // counter: calls that failed, so instances thrown away, by error.type
	MetricRecycles  = "wattle.guest.recycles"         // counter: instances replaced because they were worn
	MetricInstances = "wattle.guest.instances"        // up and down: instances that are there
	MetricMemory    = "wattle.guest.memory"           // up and down, By: their linear memory together, as of their last call
)

var bounds = []float64{0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10}

// metrics are the instruments of a Module.
type metrics struct {
	guest               attribute.KeyValue
	common              []metric.RecordOption            // made once: calls are many
	ok                  map[string][]metric.RecordOption // of calls that go well, by operation
	adds                []metric.AddOption
	compile, wait, call metric.Float64Histogram
	failures, recycles  metric.Int64Counter
	instances, memory   metric.Int64UpDownCounter
}

// newMetrics makes the instruments. A provider that refuses a name gives one that records
// nothing.
func newMetrics(o *Options) *metrics {
	provider := o.MeterProvider
	if provider == nil {
		provider = noop.NewMeterProvider()
	}
	meter := provider.Meter(eventstore.ScopeName)
	m := &metrics{guest: AttrGuest.String(o.Name)}
	m.common, m.adds = []metric.RecordOption{metric.WithAttributes(m.guest)}, []metric.AddOption{metric.WithAttributes(m.guest)}
	m.ok = map[string][]metric.RecordOption{}
	for _, op := range ops {
		m.ok[op] = []metric.RecordOption{metric.WithAttributes(m.guest, AttrOp.String(op))}
	}
	seconds := func(name, text string) metric.Float64Histogram {
		h, _ := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(bounds...))
		return h
	}
	m.compile = seconds(MetricCompile, "Duration of checking and compiling a module.")
	m.wait = seconds(MetricWait, "Duration until an instance is free.")
	m.call = seconds(MetricCall, "Duration of a call of a guest.")
	m.failures, _ = meter.Int64Counter(MetricFailures, metric.WithUnit("{call}"), metric.WithDescription("Calls that failed."))
	m.recycles, _ = meter.Int64Counter(MetricRecycles, metric.WithUnit("{instance}"), metric.WithDescription("Instances replaced because they were worn."))
	m.instances, _ = meter.Int64UpDownCounter(MetricInstances, metric.WithUnit("{instance}"), metric.WithDescription("Instances that are there."))
	m.memory, _ = meter.Int64UpDownCounter(MetricMemory, metric.WithUnit("By"), metric.WithDescription("Linear memory of the instances."))
	return m
}

func (m *metrics) compiled(ctx context.Context, took time.Duration) {
	m.compile.Record(ctx, took.Seconds(), m.common...)
}

func (m *metrics) waited(ctx context.Context, took time.Duration) {
	m.wait.Record(ctx, took.Seconds(), m.common...)
}

func (m *metrics) called(ctx context.Context, op string, took time.Duration, err error) {
	if err == nil {
		m.call.Record(ctx, took.Seconds(), m.ok[op]...)
		return
	}
	with := metric.WithAttributes(m.guest, AttrOp.String(op), eventstore.AttrErrorType.String(errorType(err)))
	m.call.Record(ctx, took.Seconds(), with)
	m.failures.Add(ctx, 1, with)
}

func (m *metrics) recycled(ctx context.Context, why string) {
	m.recycles.Add(ctx, 1, metric.WithAttributes(m.guest, AttrReason.String(why)))
}

func (m *metrics) started(ctx context.Context, in *instance) {
	m.instances.Add(ctx, 1, m.adds...)
	m.grown(ctx, in)
}

// grown records what memory an instance has got since the last time.
func (m *metrics) grown(ctx context.Context, in *instance) {
	if by := in.memory.size() - in.recorded; by != 0 {
		in.recorded += by
		m.memory.Add(ctx, by, m.adds...)
	}
}

func (m *metrics) ended(ctx context.Context, in *instance) {
	m.instances.Add(ctx, -1, m.adds...)
	m.memory.Add(ctx, -in.recorded, m.adds...)
}
