// Metrics: what a projector that works reports, and that it stops with Run.

package projector_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/projector"
)

// meters collects what was measured.
type meters struct {
	t      *testing.T
	reader *sdk.ManualReader
}

// number is one measurement: of a histogram its count, in sum the sum.
type number struct {
	value, sum float64
	at         attribute.Set
}

func newMeters(t *testing.T) (*meters, *sdk.MeterProvider) {
	m := &meters{t: t, reader: sdk.NewManualReader()}
	return m, sdk.NewMeterProvider(sdk.WithReader(m.reader))
}

// read returns the series by name.
func (m *meters) read() map[string][]number {
	m.t.Helper()
	var rm metricdata.ResourceMetrics
	if err := m.reader.Collect(context.Background(), &rm); err != nil {
		m.t.Fatal(err)
	}
	all := map[string][]number{}
	for _, scope := range rm.ScopeMetrics {
		if scope.Scope.Name != eventstore.ScopeName {
			m.t.Errorf("scope %q", scope.Scope.Name)
		}
		for _, one := range scope.Metrics {
			all[one.Name] = numbers(m.t, one)
		}
	}
	return all
}

func numbers(t *testing.T, m metricdata.Metrics) (all []number) {
	t.Helper()
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			all = append(all, number{float64(p.Value), 0, p.Attributes})
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			all = append(all, number{float64(p.Value), 0, p.Attributes})
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			all = append(all, number{p.Value, 0, p.Attributes})
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			all = append(all, number{float64(p.Count), p.Sum, p.Attributes})
		}
	default:
		t.Errorf("%s is a %T", m.Name, d)
	}
	return all
}

// one returns the only series of a metric, that of a projector.
func one(t *testing.T, all map[string][]number, name, group string) number {
	t.Helper()
	if len(all[name]) != 1 {
		t.Fatalf("%s has %d series: %v", name, len(all[name]), all[name])
	}
	if v, _ := all[name][0].at.Value(projector.AttrGroup); v.AsString() != group {
		t.Errorf("%s of %v, want %s", name, all[name][0].at.ToSlice(), group)
	}
	return all[name][0]
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, provider := newMeters(t)
		e := newEnv(t, nil)
		e.store = eventstore.New(e.log, &eventstore.Options{MeterProvider: provider})
		gate, down := make(chan struct{}), true
		h := newPicky(func(entry eventstore.Entry) error {
			if entry.Type == "renamed" {
				return errBad
			}
			return nil
		})
		h.before = func(ctx context.Context, s projector.Step) error {
			if len(s.Batch) == 0 {
				return nil
			}
			if down {
				down = false
				return errOutage
			}
			time.Sleep(20 * time.Millisecond)
			if s.Batch[0].Stream == "account-slow" {
				<-gate
			}
			return nil
		}
		p := projector.New(e.store, "p", "account", h, &projector.Options{LeaseTTL: ttl, PageSize: 10, Version: 3})
		stop := run(t, p)
		e.ok(p.Wait(within(t), e.spread(40, 10)))
		e.append("account-5", Renamed{"x"})
		eventually(t, time.Minute, "a parked key", func() bool { return p.Status().Parked == 1 })
		e.append("account-slow", Deposited{1})
		time.Sleep(7 * time.Second)
		all := m.read()
		want := func(name string, value float64) {
			t.Helper()
			if n := one(t, all, name, "p/3"); n.value != value {
				t.Errorf("%s is %v, want %v", name, n.value, value)
			}
		}
		want(projector.MetricLanes, 1)
		want(projector.MetricParked, 1)
		want(projector.MetricLag, 1)
		want(projector.MetricCheckpoint, 41)
		if n := one(t, all, projector.MetricLagTime, "p/3"); n.value < 6.9 || n.value > 7.1 {
			t.Errorf("the oldest entry is %v s old, want 7", n.value)
		}
		if failed := all[projector.MetricFailures]; len(failed) != 2 { // by kind: the outage, and what poison is
			t.Errorf("failures %v", failed)
		}
		handled, failed := 0.0, 0.0
		for _, n := range all[projector.MetricEntries] {
			if n.at.HasValue(eventstore.AttrErrorType) {
				failed += n.value
			} else {
				handled += n.value
			}
		}
		if handled != 40 || failed < projector.DefaultTries {
			t.Errorf("%v entries handled, %v not", handled, failed)
		}
		for _, n := range all[projector.MetricDuration] {
			if !n.at.HasValue(eventstore.AttrErrorType) && (n.value < 4 || n.sum < 0.02*n.value || n.sum > 0.03*n.value) {
				t.Errorf("%v batches took %v s together", n.value, n.sum)
			}
		}
		close(gate)
		e.ok(p.Wait(within(t), e.spread(1, 1)))
		if n := one(t, m.read(), projector.MetricLagTime, "p/3"); n.value != 0 {
			t.Errorf("lag of %v s when all is handled", n.value)
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for _, name := range []string{projector.MetricLag, projector.MetricLagTime, projector.MetricCheckpoint, projector.MetricLanes, projector.MetricParked} {
			if n := m.read()[name]; len(n) != 0 {
				t.Errorf("%s is observed after Run has ended: %v", name, n)
			}
		}
	})
}

// Without a provider nothing is measured, and nothing is in the way.
func TestNoMetrics(t *testing.T) {
	e := newEnv(t, nil)
	p := projector.New(e.store, "p", "account", newLedger(), nil)
	e.deposit("account-1", 3)
	if more, err := p.CatchUp(t.Context(), 0); more || err != nil {
		t.Error(more, err)
	}
}
