// What the server counts, through OpenTelemetry, and Prometheus as a way to read it.
// None of it has a label that a caller can choose.

package server

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// metrics are the server's own; those of each procedure come from otelconnect.
type metrics struct {
	denials, strangers, overloads, panics, connections metric.Int64Counter
}

func (s *Server) newMetrics(provider metric.MeterProvider) (m *metrics, err error) {
	meter := provider.Meter("github.com/wattle-es/wattle/server")
	m = &metrics{}
	for _, c := range []struct {
		counter    *metric.Int64Counter
		name, text string
	}{
		{&m.denials, "wattle.server.denied", "calls and messages that the policy denied"},
		{&m.strangers, "wattle.server.unauthenticated", "calls of nobody who is known"},
		{&m.overloads, "wattle.server.overloaded", "calls refused for want of room"},
		{&m.panics, "wattle.server.panics", "panics of services that were contained"},
		{&m.connections, "wattle.server.connections.refused", "connections closed for want of room"},
	} {
		if *c.counter, err = meter.Int64Counter(c.name, metric.WithDescription(c.text)); err != nil {
			return nil, err
		}
	}
	return m, s.observe(meter)
}

// observe adds what is looked at when somebody asks.
func (s *Server) observe(meter metric.Meter) error {
	for _, g := range []struct {
		name, text string
		value      func() int64
	}{
		{"wattle.server.calls", "calls at this moment, unary and streams", s.calls.Load},
		{"wattle.server.connections", "connections at this moment", s.conns.Load},
		{"wattle.server.streams", "streams at this moment", func() int64 { return int64(len(s.streams.list())) }},
		{"wattle.server.inflight.bytes", "bytes of requests in memory", s.budget.used.Load},
		{"wattle.server.policy.generation", "how often the policy has changed, from 1", func() int64 { return int64(s.policy.State().Generation) }},
		{"wattle.server.draining", "1 while it ends", func() int64 { return flag(s.draining.Load()) }},
		{"wattle.server.certificate.expires", "when its own certificate does, as Unix time; 0 without TLS", s.expires},
	} {
		_, err := meter.Int64ObservableGauge(g.name, metric.WithDescription(g.text), metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(g.value())
			return nil
		}))
		if err != nil {
			return err
		}
	}
	_, err := meter.Int64ObservableGauge("wattle.server.broken", metric.WithDescription("1 where a changed file is not in force"),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for what, broken := range s.brokenNow() {
				o.Observe(flag(broken), metric.WithAttributes(attribute.String("what", what)))
			}
			return nil
		}))
	return err
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (s *Server) expires() int64 {
	if s.keys == nil {
		return 0
	}
	return (*s.keys.value.Load()).leaf.NotAfter.Unix()
}

func (m *metrics) denied(procedure string) {
	m.denials.Add(context.Background(), 1, metric.WithAttributes(attribute.String("procedure", procedure)))
}
func (m *metrics) unknown()           { m.strangers.Add(context.Background(), 1) }
func (m *metrics) overloaded()        { m.overloads.Add(context.Background(), 1) }
func (m *metrics) panicked()          { m.panics.Add(context.Background(), 1) }
func (m *metrics) refusedConnection() { m.connections.Add(context.Background(), 1) }

// Metrics collects what a process counts and shows it to Prometheus.
type Metrics struct {
	provider *sdkmetric.MeterProvider
	handler  http.Handler
}

// NewMetrics makes an empty collection. Its provider is for Options.MeterProvider, and for
// that of eventstore.
func NewMetrics() (*Metrics, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	return &Metrics{sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})}, nil
}

// Provider is what is counted with.
func (m *Metrics) Provider() metric.MeterProvider { return m.provider }

// ServeHTTP answers in the form of Prometheus.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// Close ends the collection.
func (m *Metrics) Close(ctx context.Context) error { return m.provider.Shutdown(ctx) }
