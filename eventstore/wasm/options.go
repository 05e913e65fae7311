//go:build !wasm

// What a Module is opened with, and its defaults.

package wasm

import (
	"encoding/hex"
	"fmt"
	"runtime"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// Defaults of Options.
const (
	DefaultModuleBytes    = 32 << 20
	DefaultMemoryPages    = 512 // 32 MiB; a Go guest needs 128 at least
	DefaultRequestBytes   = 1 << 20
	DefaultReplyBytes     = 4 << 20
	DefaultTimeout        = 250 * time.Millisecond
	DefaultProjectTimeout = time.Second
	DefaultStartTimeout   = 2 * time.Second
	DefaultRecycleCalls   = 1000
	DefaultStderrBytes    = 4 << 10
)

// Bounds that are not options.
const (
	PageBytes = 64 << 10 // of WebAssembly
	maxPages  = 1 << 16  // what 32 bits can address

	// A guest may grow its tables beside its memory, and each element is 8 bytes of the
	// host's: the runtime knows no limit, so modules are given one (see capTables).
	maxTables        = 16
	maxTableElements = 1 << 18
)

// Options of Open; nil and zero values are the defaults.
type Options struct {
	// Name is told in errors and metrics; empty: the hash alone.
	Name string
	// CacheDir keeps what was compiled for the next start; empty: nothing is kept. What
	// lies there is run as it is: nobody else may be able to write to it. It serves this
	// version of the runtime, kind of CPU and setting of Trusted; see Precompile.
	CacheDir string
	// Allow is the SHA-256, in hex, of each module that may be opened. Nil allows any; a
	// list that is not nil allows those in it, so an empty one none.
	Allow []string
	// Trusted turns the check of the deadline inside guest code off, which makes it
	// several times faster. No time is kept then, and while guest code runs the garbage
	// collector of the process waits for it, and soon everything waits for that: a guest
	// that does not end stops the process.
	Trusted bool

	MaxModuleBytes  int // largest module: 32 MiB
	MaxRequestBytes int // 1 MiB
	MaxReplyBytes   int // 4 MiB
	MaxStderrBytes  int // how much of what a call writes to stderr is kept: 4 KiB
	MemoryPages     int // most memory of an instance, in pages of 64 KiB: 512

	Timeout        time.Duration // of a call: 250 ms. A nearer deadline of the caller goes before it
	ProjectTimeout time.Duration // of a call of "keys" or "project", which get a batch: 1 s
	StartTimeout   time.Duration // of starting an instance: 2 s

	Instances    int // most that are called at a time: GOMAXPROCS
	RecycleCalls int // after so many an instance is replaced, and when it holds over half of MemoryPages: 1000

	MeterProvider metric.MeterProvider // nil: no metrics
}

// orDefault returns the options as they are used, or what is wrong with them.
func (o *Options) orDefault() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	for _, n := range []struct {
		name    string
		value   *int
		usual   int
		largest int
	}{
		{"MaxModuleBytes", &c.MaxModuleBytes, DefaultModuleBytes, 1 << 30},
		{"MaxRequestBytes", &c.MaxRequestBytes, DefaultRequestBytes, 1 << 30},
		{"MaxReplyBytes", &c.MaxReplyBytes, DefaultReplyBytes, 1 << 30},
		{"MaxStderrBytes", &c.MaxStderrBytes, DefaultStderrBytes, 1 << 20},
		{"MemoryPages", &c.MemoryPages, DefaultMemoryPages, maxPages},
		{"Instances", &c.Instances, runtime.GOMAXPROCS(0), 1 << 16},
		{"RecycleCalls", &c.RecycleCalls, DefaultRecycleCalls, 1 << 30},
	} {
		if *n.value == 0 {
			*n.value = n.usual
		}
		if *n.value < 0 || *n.value > n.largest {
			return c, c.invalid(fmt.Sprintf("%s of 1 to %d", n.name, n.largest), fmt.Sprint(*n.value))
		}
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{
		{"Timeout", &c.Timeout, DefaultTimeout},
		{"ProjectTimeout", &c.ProjectTimeout, DefaultProjectTimeout},
		{"StartTimeout", &c.StartTimeout, DefaultStartTimeout},
	} {
		if *d.value == 0 {
			*d.value = d.usual
		}
		if *d.value < 0 {
			return c, c.invalid(d.name+" above 0", d.value.String())
		}
	}
	for _, a := range c.Allow {
		if b, err := hex.DecodeString(a); err != nil || len(b) != 32 {
			return c, c.invalid("Allow of SHA-256 sums, 64 hex digits each", fmt.Sprintf("%.100q", a))
		}
	}
	return c, nil
}

func (o *Options) invalid(wanted, found string) error {
	return &Error{Kind: ErrInvalid, Op: opOpen, Name: o.Name, Wanted: wanted, Found: found}
}

// allows says if a module of this hash may be opened.
func (o *Options) allows(hash string) bool {
	if o.Allow == nil {
		return true
	}
	for _, a := range o.Allow {
		if strings.EqualFold(a, hash) {
			return true
		}
	}
	return false
}

// timeout is how long a call of an operation may take.
func (o *Options) timeout(op string) time.Duration {
	if op == OpKeys || op == OpProject {
		return o.ProjectTimeout
	}
	return o.Timeout
}

func (o *Options) memoryLimit() int64 { return int64(o.MemoryPages) * PageBytes }
