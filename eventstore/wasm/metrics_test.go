//go:build !wasm

package wasm_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/wattle-es/wattle/eventstore"
	"github.com/wattle-es/wattle/eventstore/wasm"
)

func TestMetrics(t *testing.T) {
	reader := sdk.NewManualReader()
	grow := code(i32Const(1), opMemoryGrow, 0, opDrop, answer)
	module := echo().decide(onBang(opUnreachable)...).with("es1_keys", sigOp, grow...).bytes()
	m, err := wasm.Open(t.Context(), module, &wasm.Options{Name: "counted", Instances: 1, RecycleCalls: 4, MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	answers(t, m, wasm.OpDecide, "hello", "hello")
	answers(t, m, wasm.OpKeys, "hello", "hello")
	fails(t, m, t.Context(), bang, wasm.ErrTrap)
	for range 4 {
		answers(t, m, wasm.OpKeys, "hello", "hello")
	}
	answers(t, m, wasm.OpKeys, "hello", "hello") // on a new one again, of 18 pages then
	want := map[string]string{
		wasm.MetricCompile:   "1",
		wasm.MetricWait:      "8",
		wasm.MetricCall:      "decide 1; decide guest trapped 1; keys 6; ",
		wasm.MetricFailures:  "decide guest trapped 1; ",
		wasm.MetricRecycles:  "calls 1; ",
		wasm.MetricInstances: "1",
		wasm.MetricMemory:    fmt.Sprint(18 * wasm.PageBytes),
	}
	compare(t, reader, want)
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want[wasm.MetricInstances], want[wasm.MetricMemory] = "0", "0"
	compare(t, reader, want)
}

// compare compares what the metrics say.
func compare(t *testing.T, reader *sdk.ManualReader, want map[string]string) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add(found, m.Name, p.Attributes, p.Count)
				}
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(found, m.Name, p.Attributes, p.Value)
				}
			}
		}
	}
	for name, w := range want {
		if !sameParts(found[name], w) {
			t.Errorf("%s: wanted %q, found %q", name, w, found[name])
		}
	}
	if len(found) != len(want) {
		t.Errorf("wanted %d metrics, found %v", len(want), found)
	}
}

// add adds a value with its attributes, without the name of the guest, which all have.
func add(found map[string]string, name string, set attribute.Set, n any) {
	if v, ok := set.Value(wasm.AttrGuest); !ok || v.AsString() != "counted" {
		found[name] += "without its guest; "
	}
	text := ""
	for _, k := range []attribute.Key{wasm.AttrOp, wasm.AttrReason, eventstore.AttrErrorType} {
		if v, ok := set.Value(k); ok {
			text += v.AsString() + " "
		}
	}
	if text == "" {
		found[name] += fmt.Sprint(n)
	} else {
		found[name] += fmt.Sprint(text, n, "; ")
	}
}

// sameParts compares, whatever the order.
func sameParts(a, b string) bool {
	x, y := strings.Split(a, "; "), strings.Split(b, "; ")
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
