//go:build !wasm

// What the boundary costs: go test -run '^$' -bench . ./eventstore/wasm

package wasm_test

import (
	"bytes"
	"context"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/wattle-es/wattle/eventstore/wasm"
)

// BenchmarkOpen compiles and starts a guest in Go, and one of some hundred bytes.
func BenchmarkOpen(b *testing.B) {
	guest, err := goGuest()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		module []byte
		cache  string
	}{
		{"go/cold", guest, ""},
		{"go/cached", guest, filepath.Join(shared, "cache")},
		{"tiny/cold", echo().bytes(), ""},
		{"tiny/cached", echo().bytes(), filepath.Join(shared, "cache")},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				m, err := wasm.Open(b.Context(), c.module, &wasm.Options{CacheDir: c.cache, StartTimeout: time.Minute})
				if err != nil {
					b.Fatal(err)
				}
				if err := m.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStart makes an instance and calls it once.
func BenchmarkStart(b *testing.B) {
	for name, m := range map[string]*wasm.Module{"go": openGo(b, wasm.Options{}), "go/trusted": openGo(b, wasm.Options{Trusted: true}), "tiny": open(b, echo().bytes(), wasm.Options{})} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := m.CallFresh(b.Context(), wasm.OpDescribe, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEcho sends 1 KiB and gets it back, from an instance that is not replaced: what
// that costs, a call in RecycleCalls, is that of BenchmarkStart.
func BenchmarkEcho(b *testing.B) {
	request := append([]byte("e"), bytes.Repeat([]byte("z"), 1024)...)
	for _, trusted := range []bool{false, true} {
		name := map[bool]string{false: "/deadline", true: "/trusted"}[trusted]
		for guest, m := range map[string]*wasm.Module{"go": openGo(b, wasm.Options{Trusted: trusted, Instances: 1, RecycleCalls: 1 << 30}), "tiny": open(b, echo().bytes(), wasm.Options{Trusted: trusted, Instances: 1, RecycleCalls: 1 << 30})} {
			b.Run(guest+name, func(b *testing.B) {
				b.SetBytes(2 * int64(len(request)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := m.Call(b.Context(), wasm.OpDecide, request); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkInstances has as many callers as there are instances do some work each.
func BenchmarkInstances(b *testing.B) {
	request := []byte("s") // sorts 300 numbers
	for _, n := range []int{1, 2, 4} {
		m := openGo(b, wasm.Options{Instances: n})
		b.Run(map[int]string{1: "1", 2: "2", 4: "4"}[n], func(b *testing.B) {
			b.SetParallelism(max(1, 4/runtime.GOMAXPROCS(0)))
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if _, err := m.Call(context.Background(), wasm.OpDecide, request); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

// BenchmarkMemory tells what an instance that was called holds of the host's memory.
func BenchmarkMemory(b *testing.B) {
	const instances = 20
	for b.Loop() {
		m := openGo(b, wasm.Options{Instances: instances})
		before := held()
		var group sync.WaitGroup
		for range instances {
			group.Go(func() {
				if _, err := m.CallFresh(b.Context(), wasm.OpDecide, []byte("s")); err != nil {
					b.Error(err)
				}
			})
		}
		group.Wait()
		if n := m.Idle(); n != instances {
			b.Fatalf("wanted %d instances, found %d", instances, n)
		}
		b.ReportMetric(float64(held()-before)/(instances-1)/(1<<20), "MiB/instance") // one was there before
	}
}

func held() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc + s.StackInuse)
}
